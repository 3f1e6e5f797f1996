"""Rules on Spark: ``CEP.pattern_processors``, the source that publishes sets, and backtests."""
