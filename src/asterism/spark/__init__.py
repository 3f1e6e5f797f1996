"""The Spark host: the only package that imports pyspark.

Importing it makes Spark's Python workers use this interpreter, unless PYSPARK_PYTHON is set.
"""

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# The schemas of the rows between Spark's stages. They are here because Spark loads the control source in separate processes,
# which must be quick to import.
CHUNKS = "key_group int, input string, seq bigint, watermark bigint, chunk binary"
"""Events of one input for one key group (*chunk*), the watermark after them, or both; *seq* orders the rows of a micro-batch.
"""
RESULTS = "output string, chunk binary, metrics map<string, bigint>"
"""Rows of one output, or counts."""
CONTROL = "(control)"
"""Name of the control source among the inputs. An input of an operator cannot have this name."""
END_OF_INPUT = b"end of input"
