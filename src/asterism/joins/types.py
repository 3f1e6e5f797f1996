"""The types of joins, with Spark's names."""

INNER, LEFT_SEMI, LEFT_ANTI = "inner", "left_semi", "left_anti"
LEFT_OUTER, RIGHT_OUTER, FULL_OUTER = "left", "right", "full"
FILTERING = (LEFT_SEMI, LEFT_ANTI)
"""Join types whose results are rows of the left side."""
KEEPS_LEFT, KEEPS_RIGHT = (LEFT_OUTER, FULL_OUTER), (RIGHT_OUTER, FULL_OUTER)
"""Join types whose results include the rows of this side that join nothing."""
BRINGING = (INNER, LEFT_OUTER, RIGHT_OUTER, FULL_OUTER)
"""Join types whose results have the columns of both sides."""
JOIN_TYPES = (INNER, LEFT_OUTER, *FILTERING)
"""Join types of joins that look up each row of the left side: with small tables, and with versions."""
STREAM_JOIN_TYPES = (*BRINGING, *FILTERING)
"""Join types of joins of two streams."""
