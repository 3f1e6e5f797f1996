"""The cell magic ``%%asterism`` of notebooks."""

from __future__ import annotations

import inspect
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism.errors import StreamDefinitionError
from asterism.spark.api.statements import is_session, sql


def load(ipython: Any) -> None:
    """Register the magic in an IPython shell."""
    names = inspect.signature(sql).parameters

    def run(line: str, cell: str) -> DataFrame | None:
        """The result of the cell, a statement of :func:`asterism.sql`. The DataFrames of the notebook are its tables. A name
        after ``%%asterism`` is that of the result.
        """
        variables = ipython.user_ns
        session = variables.get("spark")
        spark = session if is_session(session) else SparkSession.getActiveSession()
        if spark is None:
            raise StreamDefinitionError("there is no Spark session", hint="SparkSession.builder.getOrCreate()")
        name = line.strip()
        if name and not name.isidentifier():
            raise StreamDefinitionError(f"not a name for the result: {name!r:.60}", hint="%%asterism falls")
        tables: dict[str, Any] = {
            key: value
            for key, value in variables.items()
            if isinstance(value, DataFrame) and key not in names and not key.startswith("_")
        }
        result = sql(cell, spark, **tables)
        if not name:
            return result
        variables[name] = result
        return None

    ipython.register_magic_function(run, "cell", "asterism")
