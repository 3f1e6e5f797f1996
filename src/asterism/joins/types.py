"""The types of joins, with Spark's names."""

INNER, LEFT_SEMI, LEFT_ANTI = "inner", "left_semi", "left_anti"
LEFT_OUTER, RIGHT_OUTER, FULL_OUTER = "left", "right", "full"
FILTERING = (LEFT_SEMI, LEFT_ANTI)
"""Rows of the result are rows of the left side."""
KEEPS_LEFT, KEEPS_RIGHT = (LEFT_OUTER, FULL_OUTER), (RIGHT_OUTER, FULL_OUTER)
"""Rows of this side that join nothing are in the result."""
BRINGING = (INNER, LEFT_OUTER, RIGHT_OUTER, FULL_OUTER)
"""Rows of the result have columns of both sides."""
JOIN_TYPES = (INNER, LEFT_OUTER, *FILTERING)
"""Joins for which only the left side is read row by row: with small tables, and with versions."""
STREAM_JOIN_TYPES = (*BRINGING, *FILTERING)
"""Joins of two streams."""
