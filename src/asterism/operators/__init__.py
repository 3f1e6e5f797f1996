"""Operators without Spark: the contract with the host, key groups, state, timers and user-defined operators."""
