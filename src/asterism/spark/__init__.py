"""The Spark host: the only folder that imports pyspark.

Importing it makes Spark's Python workers use this interpreter, unless PYSPARK_PYTHON says otherwise.
"""

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
