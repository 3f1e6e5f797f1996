"""The public interface on Spark: patterns, windows, joins, operators, MATCH_RECOGNIZE, and statements of SQL."""
