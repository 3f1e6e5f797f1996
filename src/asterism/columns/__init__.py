"""Arrow columns: event time, time zones, schemas, keys and groups of rows. Knows neither patterns nor SQL."""
