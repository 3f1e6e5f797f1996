"""What users see of running queries: the monitor of notebooks, and the metrics."""
