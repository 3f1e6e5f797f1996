"""Rows in files, which Spark writes."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import TYPE_CHECKING

from asterism.arguments import expect, expect_string
from asterism.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCH_COLUMN = "batch"
_BATCH = f"/{_BATCH_COLUMN}=([0-9]+)/[^/]*$"


class FileSink:
    """Writes rows to files, each of them once. Spark writes them, so any number of rows may be in a micro-batch.

    A sink of :meth:`PatternStream.run` and of the other streams. The rows of micro-batch 7 are in the folder ``batch=7`` of
    *path*, which is overwritten if the micro-batch is repeated after a failure: it has the same rows then.
    ``spark.read.parquet(path)`` reads all rows, with the number of the micro-batch in the column ``batch``. A reader may see a
    folder while it is written. Rows that have a column ``batch`` themselves are refused.

    The micro-batches of a query are numbered from 0 for each checkpoint. A query with a new checkpoint would therefore replace
    some of the files of an earlier query and keep others, so a *path* with later micro-batches than the first one that is
    written is refused, and so is one with other files.

    :param path: the folder, as Spark reads it: ``/data/matches``, ``s3a://bucket/matches``. It is created if it does not exist.
    :param format: a data source of Spark that writes files: ``parquet``, ``json``, ``orc``. Formats without nested values, such
        as ``csv``, need measures (``select``) instead of events.
    :raises SinkError: an argument is invalid. When the query starts: the rows have a column ``batch``. When it is called:
        *path* has files of another query

    >>> FileSink("/data/matches", "json")
    FileSink('/data/matches', 'json')
    """

    needs_spark = True
    """whether it writes DataFrames only"""

    def __init__(self, path: str | PathLike[str], format: str = "parquet") -> None:
        expect(SinkError, path, str | PathLike, "the path of a sink must be a string or a path", '"/data/matches"')
        expect_string(SinkError, format, "the format of a sink must be a string", '"parquet"')
        self.path, self.format = fspath(path).rstrip("/"), format
        if not self.path:
            raise SinkError("the path of a sink must be a folder", hint='"/data/matches"')
        self._last: int | None = None
        """The last micro-batch that was written."""

    def __repr__(self) -> str:
        return f"FileSink({self.path!r}, {self.format!r})"

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write the rows of a micro-batch."""
        self.check_columns(df.columns)
        last = self._last_in_folder(df) if self._last is None else self._last
        if last is not None and last > batch_id:
            raise SinkError(
                f"the folder {self.path!r} has the results of another query",
                f"This query writes micro-batch {batch_id}, but the folder already has micro-batch {last}.",
                "use a new folder with a new checkpoint",
            )
        df.write.format(self.format).mode("overwrite").save(f"{self.path}/{_BATCH_COLUMN}={batch_id}")
        self._last = batch_id

    def check_columns(self, columns: Iterable[str]) -> None:
        """Called when a query starts, with the columns of its rows.

        :raises SinkError: the number of the micro-batch would hide one of them
        """
        for name in columns:
            if name.lower() == _BATCH_COLUMN:
                raise SinkError(
                    f"the rows have a column {name!r}, which cannot be read from the files",
                    f"The folders are named {_BATCH_COLUMN}=0, {_BATCH_COLUMN}=1, ...: readers find this column in their names.",
                    f"give a measure another name: a.{name} AS {name}_number; rename a column of the events before, "
                    f"for example to '{name}_number'",
                )

    def _last_in_folder(self, df: DataFrame) -> int | None:
        """The last micro-batch of which there are files.

        :raises SinkError: there are other files
        """
        from pyspark.errors import AnalysisException

        number = f"regexp_extract(path, '{_BATCH}', 1)"
        files = df.sparkSession.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            ((last, other),) = (
                # Of a single path that does not exist, Spark would log this, with a stack trace.
                files.load([self.path, self.path])
                .selectExpr(
                    f"max(CAST(nullif({number}, '') AS BIGINT)) AS last",
                    f"min(path) FILTER (WHERE {number} = '') AS other",
                )
                .collect()
            )
        except AnalysisException as error:
            if "[PATH_NOT_FOUND]" not in str(error):  # Spark 3.5 has no getCondition()
                raise
            return None
        if other is not None:
            raise SinkError(
                f"the folder {self.path!r} has files of something else",
                f"One of them: {other}",
                "use a folder for the results of one output of one query",
            )
        newest: int | None = last
        return newest
