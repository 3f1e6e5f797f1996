"""Savepoints: the state of a query as tables, independent of its number of key groups.

:mod:`asterism.savepoints.key_states` turns a page of any operator into one row for each key, with all that belongs to the key as
lists, and back. :mod:`asterism.savepoints.key_groups` does the same with the state of whole key groups, for another number of
them. Nothing here depends on Spark; :mod:`asterism.spark.savepoints` reads and writes the tables.

See docs/decisions/0128.
"""
