"""The Spark host: the only folder that imports pyspark.

Importing it makes Spark's Python workers use this interpreter, unless PYSPARK_PYTHON says otherwise.
"""

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# What travels between Spark's stages; here, because the control source, which Spark loads in processes of its own, must be
# quick to import.
CHUNKS = "key_group int, input string, seq bigint, watermark bigint, chunk binary"
"""Events of one input for one key group (*chunk*), a watermark that holds after them, or both; *seq* orders a micro-batch."""
RESULTS = "output string, chunk binary, metrics map<string, bigint>"
"""Rows of one output, or counts."""
CONTROL = "(control)"
"""Name of the control source among the inputs; no input of an operator can have it."""
END_OF_INPUT = b"end of input"
