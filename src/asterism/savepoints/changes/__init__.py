"""State of a savepoint, continued with another definition."""
