"""Sources of rules: files, folders, databases, topics and web servers, each with a discoverer and its factory, and the sources of
lookups.

``documents`` and ``rows`` read rules from text and from rows of a table. ``sources`` finds the source for a path or a URL.
"""
