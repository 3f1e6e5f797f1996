"""Histories: tables that a query reads before its streams. ``plans`` has the plan of the batch job, ``runner`` the functions of
its tasks.

See docs/decisions/0134.
"""
