"""Joins of two streams by key and time: interval joins, as-of joins and window joins.

``matching.py`` finds the pairs of rows in columns, ``kinds.py`` has the three joins, and ``operator.py`` the operator that Spark
hosts.
"""
