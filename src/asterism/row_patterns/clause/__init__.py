"""The text of a MATCH_RECOGNIZE clause, and its syntax tree."""
