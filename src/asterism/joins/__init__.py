"""Joins of streams by key and time: interval joins, as-of joins and window joins of two streams, and joins of many.

``matching.py`` finds the pairs of rows in columns, ``kinds.py`` has the three joins of two streams, and ``operator.py`` the
operator that Spark hosts. ``multi_join.py`` and ``multi_operator.py`` are the same for many streams.
"""
