"""Spark SQL over the current event, in the words of DuckDB: same types, same values, same errors.

``translation`` walks the syntax tree; ``operators`` and ``functions`` hold what may occur in it, ``values`` what a value is and
its casts, ``types`` how Spark brings types together, ``patterns`` its LIKE and RLIKE, ``routines`` what DuckDB cannot say.
"""
