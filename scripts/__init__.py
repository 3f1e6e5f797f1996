"""Programs for the maintainers."""
