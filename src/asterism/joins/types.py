"""The types of joins, with Spark's names."""

INNER, LEFT_OUTER, LEFT_SEMI, LEFT_ANTI = "inner", "left", "left_semi", "left_anti"
BRINGING = (INNER, LEFT_OUTER)
"""Rows of the result have columns of both sides."""
FILTERING = (LEFT_SEMI, LEFT_ANTI)
"""Rows of the result are rows of the left side."""
JOIN_TYPES = (*BRINGING, *FILTERING)
