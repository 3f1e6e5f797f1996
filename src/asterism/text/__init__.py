"""Strings and pictures for people, and strict readers of JSON. Knows nothing of patterns."""
