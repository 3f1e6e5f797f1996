"""Validation of rules before a query uses them, and the results of backtests over history."""
