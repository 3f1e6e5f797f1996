"""What becomes of partial matches when their pattern changes: in a savepoint, and of those that a rule adopts."""
