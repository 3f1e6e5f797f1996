"""A rule as data: its pattern or clause, conditions that it names, its template, its tests, its costs, and the lookups that it
reads.

Read ``processor`` first.
"""
