"""Patterns and their conditions, the automaton that a pattern is compiled to, and how both are shown and written as JSON."""
