"""Runs operators on Spark: the plan, the exchange, state, time, and execution.

Read in this order: ``keyed_stream`` (a DataFrame with key and time), ``stateful`` (the plan of an operator), ``exchange``
(chunks of rows), ``host`` (Spark's ``transformWithState``), ``execution`` (starts a query and ends it), ``batch`` (operators
over tables). ``versions`` has what differs between releases of Spark.
"""
