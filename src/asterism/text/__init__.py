"""Printable strings, drawings, and strict parsing of JSON and YAML. Independent of patterns."""
