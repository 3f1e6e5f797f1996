"""Spark Declarative Pipelines: analysis inside the function of a dataset.

Spark Connect analyzes nothing for a thread that is in such a function, because the datasets of the pipeline may not exist yet.
This library needs the types of columns there. Its DataFrames have a session of their own (:func:`analyzing`), whose requests do
not say that they are of the pipeline: Spark analyzes them as it does outside.

See docs/decisions/0123.
"""

from __future__ import annotations

import copy
import threading
from functools import cache, cached_property
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.utils import is_remote

from asterism.errors import StreamDefinitionError

_ANALYZES = "_asterism_analyzes"
"""The attribute of the sessions of this module."""


def is_pipeline(spark: SparkSession) -> bool:
    """Whether this is a session of :func:`analyzing` in a pipeline."""
    return getattr(spark, _ANALYZES, False)


def analyzable(df: DataFrame) -> DataFrame:
    """*df*; in a function of a pipeline, with a session in which Spark analyzes it.

    :raises StreamDefinitionError: *df* reads a dataset of the pipeline that does not exist yet
    """
    if not is_remote() or (session := analyzing(df.sparkSession)) is df.sparkSession:
        return df
    frame: Any = type(df)
    df = frame(df._plan, session)
    try:
        df.schema  # noqa: B018 - it is analyzed here
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
        raise StreamDefinitionError(
            f"the table {name} does not exist",
            "Spark analyzes the input of an operator when the pipeline is defined; a dataset of the same pipeline comes later.",
            "read what the dataset reads, spark.readStream.format(...); or move the operator into a pipeline that runs later",
        ) from None
    return df


def analyzing(spark: SparkSession) -> SparkSession:
    """*spark*; in a function of a pipeline, the same session without the context of the pipeline."""
    if not is_remote() or is_pipeline(spark) or not _is_in_pipeline(spark):
        return spark
    original: Any = type(spark)
    kind = _session_class(original)
    session: Any = kind.__new__(kind)  # a copy of a session is the active one
    for name, value in vars(spark).items():
        refers_to_session = name == "_sqm" or isinstance(getattr(kind, name, None), cached_property)
        if not refers_to_session:
            setattr(session, name, value)
    session._client = copy.copy(session._client)
    session._client.thread_local = threading.local()  # it has the context
    setattr(session, _ANALYZES, True)
    return session  # type: ignore[no-any-return]


def parsed(spark: Any, schema: str) -> T.StructType | str:
    """A schema in DDL. In a pipeline, it is parsed here: PySpark would do it by a request of the other session."""
    return spark._parse_ddl(schema) if is_pipeline(spark) else schema


def _is_in_pipeline(spark: Any) -> bool:
    try:
        from pyspark.sql.connect.proto import PipelineAnalysisContext
    except ImportError:  # Spark 4.0 and earlier
        return False
    extensions = getattr(spark.client.thread_local, "user_context_extensions", ())
    return any(extension.Is(PipelineAnalysisContext.DESCRIPTOR) for _, extension in extensions)


@cache
def _session_class(kind: Any) -> Any:
    def close(self: Any) -> None:
        """Leave the channel open, which the other session has, too."""

    return type(kind.__name__, (kind,), {"__del__": close, "__module__": kind.__module__})
