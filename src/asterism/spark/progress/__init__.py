"""Observes the progress of queries."""
