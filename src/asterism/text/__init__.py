"""Strings and pictures for people, and strict readers of JSON and YAML. Knows nothing of patterns."""
