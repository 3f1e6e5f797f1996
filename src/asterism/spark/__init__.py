"""The Spark host: the only package that imports pyspark.

``import asterism`` imports it. Sessions that are created afterwards start their Python workers faster, and with this interpreter
unless PYSPARK_PYTHON is set.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
_STARTUP = str(Path(__file__).resolve().parent / "startup")
_PATH = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
if _STARTUP not in _PATH:
    os.environ["PYTHONPATH"] = os.pathsep.join([*_PATH, _STARTUP])

# The schemas of the rows between Spark's stages. They are here because Spark loads the control source in separate processes,
# which must be quick to import.
CHUNKS = "key_group int, input string, seq bigint, watermark bigint, chunk binary"
"""Events of one input for one key group (*chunk*), the watermark after them, or both; *seq* orders the rows of a micro-batch.
"""
RESULTS = "output string, chunk binary, metrics map<string, bigint>, gauges map<string, double>"
"""Rows of one output, or counts."""
CONTROL = "(control)"
"""Name of the control source among the inputs. An input of an operator cannot have this name."""
END_OF_INPUT, BEGIN_OF_RUN = b"end of input", b"begin of run"
QUERY_ID = "sql.streaming.queryId"
"""The local property of Spark's jobs and tasks with the id of their query."""
