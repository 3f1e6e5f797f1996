"""Spark SQL expressions: parsed by sqlglot, typed as in Spark, and evaluated by DuckDB with the same results as in Spark.

``parsing`` parses an expression and rejects what is not supported, ``names`` resolves its columns and stages, and
``evaluation`` computes it over Arrow tables. ``translation`` walks the syntax tree; ``operators`` and ``functions`` define
what it may contain; ``values`` defines values and casts, ``types`` Spark's type coercion, ``regex`` LIKE and RLIKE, and
``udfs`` the functions that DuckDB lacks. ``aggregates`` has the aggregate functions of windows.
"""
