"""Sets of rules: which rules are in force at which time (``sets``), where sets are stored (``set_store``), and what is recorded
about them: status, history, counts, excluded rules and used versions.

``interfaces`` has the interfaces of discoverers, Flink's ``PatternProcessorDiscoverer`` among them.
"""
