"""Printable strings, drawings, and strict parsing of JSON. Independent of patterns."""
