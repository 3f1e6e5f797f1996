"""Arrow columns: event time, time zones, schemas, keys and groups of rows. Independent of patterns and SQL."""
