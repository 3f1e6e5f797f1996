"""The live engine: runs an operator over a stream in the process of the user, without Spark.

:mod:`asterism.live.engine` has the engine, :mod:`asterism.live.snapshots` its state in a folder. It takes any operator of
:mod:`asterism.operators`; the hosts of tables (:mod:`asterism.embedded`) open it. See docs/decisions/0136.
"""
