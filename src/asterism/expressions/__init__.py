"""Spark SQL expressions: parsed by sqlglot, typed as in Spark, evaluated by DuckDB with Spark's answers.

``parsing`` reads an expression and refuses what is not supported, ``names`` resolves its columns and stages, ``evaluation``
computes it over Arrow tables. ``translation`` walks the syntax tree; ``operators`` and ``functions`` hold what may occur in it,
``values`` what a value is and its casts, ``types`` how Spark brings types together, ``regex`` its LIKE and RLIKE, ``udfs`` what
DuckDB cannot compute itself. ``aggregates`` are the aggregate functions of windows.
"""
