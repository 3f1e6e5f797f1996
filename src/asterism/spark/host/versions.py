"""What differs between the versions of Spark, from 3.5 to 4.3. All other modules are written for the newest one.

Before 4.1, operators run over tables only. Spark 3.5 has none of the classes that the parts for streams derive from; they derive
from empty ones there, and are not used.

Spark 4.1 passes no start and no limit to a source in Python, and cannot divide the data of a query with such a source into
micro-batches with the trigger *available now*. There, :class:`_ReaderOf41` knows the start from the offsets that pass through
it, and :func:`settings_of_start` selects Spark's own replacement for sources without the trigger, which asks them for their
offset once, when the query begins.

See docs/decisions/0067.
"""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from asterism.errors import StreamDefinitionError
from asterism.spark.host import end_of_input as signals

__all__ = [
    "PASSES_START", "DataSource", "DataSourceStreamReader", "InputPartition", "ReadAllAvailable", "ReadLimit", "ReadMaxRows",
    "StatefulProcessor", "SupportsTriggerAvailableNow", "check_version", "named", "offset_of", "reader_for_spark",
    "settings_of_start", "to_arrow", "wait_for_ends",
]  # fmt: skip

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    PASSES_START: bool
else:
    try:
        from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
        from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    except ModuleNotFoundError:  # Spark 3.5

        class DataSource: ...

        class DataSourceStreamReader: ...

        class InputPartition: ...

        class StatefulProcessor: ...

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        PASSES_START = True
        """Whether Spark passes the start and a limit to sources in Python."""
    except ModuleNotFoundError:  # Spark 4.1
        PASSES_START = False

        class ReadLimit: ...

        class ReadAllAvailable(ReadLimit): ...

        class ReadMaxRows(ReadLimit):
            def __init__(self, max_rows: int) -> None: ...

        class SupportsTriggerAvailableNow: ...


LEAST_SPARK = "4.1"
SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Whether each source of a query has a name, by which Spark finds its offsets in the checkpoint. Default: false."""
SOURCE_NAME = "spark.asterism.sourceName"
"""What tells the source of an operator from that of another one beside it, in such a query. Default: nothing."""
_REPLACEMENT = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
_SECONDS = 0.01
"""Between two checks whether queries have ended."""


def to_arrow(schema: T.StructType, *, large: bool) -> pa.Schema:
    """The Arrow schema of these columns, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # imports pyarrow, which the processes of sources do without

    options: dict[str, Any] = {"timezone": "UTC"} if PASSES_START else {}  # Spark 4.1 knows no other
    if large:  # Spark 3.5 knows no large types
        options["prefers_large_types"] = True
    return to_arrow_schema(schema, **options)


def check_version(spark: SparkSession, df: DataFrame) -> None:
    """:raises StreamDefinitionError: this version of Spark cannot run operators over streams"""
    if not hasattr(df.groupBy(), "transformWithState"):
        raise StreamDefinitionError(
            f"Spark {spark.version} cannot run this over a stream",
            "Its API has no transformWithState for rows, which Asterism's state is kept with.",
            f"use Spark {LEAST_SPARK} or later, with the pyspark of the same version",
        )


def named(spark: SparkSession, reader: DataStreamReader, name: str, upstream: int) -> DataStreamReader:
    """The reader of an operator's source; with a name, if the session wants one for each source (Spark 4.2 and later).

    :param upstream: how many operators there are before it in the query. The name must be unique in the query, and the same
        after a restart.

    See docs/decisions/0127.
    """
    if spark.conf.get(SOURCE_EVOLUTION, "false") != "true":
        return reader
    if given := spark.conf.get(SOURCE_NAME, None):
        name = f"{name}_{given}"
    return reader.name(f"{name}_{upstream + 1}" if upstream else name)


def reader_for_spark(
    reader: DataSourceStreamReader, options: Mapping[str, str], check: Callable[[dict[str, Any]], object]
) -> DataSourceStreamReader:
    """The reader of a source as this version of Spark calls it.

    :param options: those of the source. ``start`` is the last offset in the checkpoint, if the run knows it.
    :param check: raises an error if the query cannot continue from an offset
    """
    return reader if PASSES_START else _ReaderOf41(reader, options, check)


class _ReaderOf41(DataSourceStreamReader):
    """Calls a reader with the start and the limit that Spark 4.1 does not pass.

    Whether the query ends its input is known only when it begins, because then no other query of this process does.
    """

    def __init__(
        self, reader: DataSourceStreamReader, options: Mapping[str, str], check: Callable[[dict[str, Any]], object]
    ) -> None:
        self.reader, self.check = reader, check
        self.start: dict[str, Any] | None = json.loads(options["start"]) if "start" in options else None
        ending = "signals" in options and signals.is_ending(options["signals"])
        self.limit: Any = ReadAllAvailable() if ending else None  # None: unknown

    def initialOffset(self) -> dict[str, Any]:
        return self.reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # that of Spark 4.1
        self.start = self.reader.latestOffset(self.start or self.initialOffset(), self.limit)
        return self.start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.start = end
        if start == end:  # Spark passes the last offset of a checkpoint in this way
            self.check(end)
            return []
        return self.reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self.reader.commit(end)

    def stop(self) -> None:
        self.reader.stop()


def settings_of_start(*, in_parts: bool) -> dict[str, str]:
    """The settings with which a query starts.

    :param in_parts: whether it has the trigger *available now*, and may read the data in several micro-batches
    """
    return {} if PASSES_START or not in_parts else {_REPLACEMENT: "true"}


def wait_for_ends() -> None:
    """Wait until the queries of this process that end their input have ended. A query that began in the meantime would end its
    input, too.
    """
    while not PASSES_START and signals.is_ending(signals.folder()):
        time.sleep(_SECONDS)


def offset_of(text: str) -> dict[str, Any] | None:
    """An offset in the progress of a query; None: it is not that of a source in Python. In ``lastProgress`` of Spark 4.1, it is
    written as a Python literal.
    """
    for read in (json.loads, ast.literal_eval):
        with suppress(TypeError, ValueError, SyntaxError):
            offset = read(text)
            return offset if isinstance(offset, dict) else None
    return None
