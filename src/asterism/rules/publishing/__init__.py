"""The coordinator: the part of a query that polls its discoverers, accepts rules (``acceptance``), and publishes sets and
lookups.
"""
