"""The metrics of queries in the text format of Prometheus, the same for queries on Spark and for live engines.

Begin with ``query_metrics.py``.
"""
