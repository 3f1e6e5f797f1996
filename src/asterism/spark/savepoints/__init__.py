"""Writes savepoints from checkpoints (``creating``), and checkpoints from savepoints (``restoring``).

The state is read by Spark's data source ``statestore``, and written by the initial state of ``transformWithState``. The positions
of the sources come from the logs of the checkpoint (:mod:`asterism.savepoints.offset_log`).

See docs/decisions/0128 and 0129.
"""
