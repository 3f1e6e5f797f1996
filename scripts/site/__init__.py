"""The documentation site: its configuration, its pictures of streams."""
