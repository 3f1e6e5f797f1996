"""Functions over Arrow arrays, called by DuckDB, that :mod:`asterism.expressions.functions` uses."""
