"""Rows in tables of Delta and Iceberg, which Spark writes. See docs/decisions/0120."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Self
from uuid import uuid4

from asterism.arguments import expect, expect_string
from asterism.errors import ColumnNotFoundError, SinkError
from asterism.sinks.common import KEY, check_key, named_columns
from asterism.text.printable import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PART = re.compile(r"`(?:[^`]|``)+`|\w+")
_IDENTIFIER = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
_FIRING, _SESSION, _REPLACES = "firing", "session_id", "replaces"
"""Columns of the results of windows."""
_DELETED, _RANK = "asterism deleted", "asterism rank"
_NO_TABLE = [
    "[DELTA_MISSING_DELTA_TABLE]",
    "[DELTA_TABLE_NOT_FOUND]",
    "[DELTA_PATH_DOES_NOT_EXIST]",
    "[PATH_NOT_FOUND]",
]
HISTORY = 10_000
"""The commits of a Delta table among which the last one of the query is looked for."""


class _TableSink(ABC):
    """What the sinks for Delta and Iceberg share."""

    _example: ClassVar[str]

    needs_spark = True
    """whether it writes DataFrames only"""

    def __init__(
        self,
        table: str,
        *,
        name: str | None = None,
        key: str | Sequence[str] | None = None,
        order_by: str | None = None,
    ) -> None:
        self.table = table
        if name is not None:
            expect_string(SinkError, name, "the name of a sink must be a string", 'name="matches"')
        self.name = name
        self.key = () if key is None else named_columns(key)
        if order_by is not None:
            expect_string(SinkError, order_by, "the order of a sink must be a column", 'order_by="updated"')
            if not self.key:
                raise SinkError("a sink that appends rows has no order", hint=f"{KEY}, order_by={order_by!r}")
        self.order_by = order_by
        self._last: tuple[str, int | None] | None = None
        """The query, and its last micro-batch in the table."""

    def __repr__(self) -> str:
        options = {"name": self.name, "key": self.key or None, "order_by": self.order_by}
        given = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
        return f"{type(self).__name__}({self.table!r}{given})"

    def for_output(self, output: str) -> Self:
        """Called when a query starts: the sink of one of its outputs, of which the name is the default of *name*."""
        sink = copy(self)
        sink.name, sink._last = output if self.name is None else self.name, None
        return sink

    def check_columns(self, columns: Collection[str]) -> None:
        """Called when a query starts, with the columns of its rows.

        :raises SinkError: a column of the key, or of the order, is missing
        """
        check_key([*self.key, *([] if self.order_by is None else [self.order_by])], columns)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write the rows of a micro-batch."""
        self.check_columns(df.columns)
        query = None if self.key else self._query(df)
        # The micro-batch has to be computed completely, also if the table has it already, and MERGE reads rows twice.
        level = df.storageLevel
        is_cached = level.useMemory or level.useDisk
        rows = df if is_cached else df.persist()
        try:
            if rows.count():
                with self._errors():
                    self._check_table(rows)
                    if query is None:
                        self._merge(rows)
                    else:
                        self._append_once(rows, query, batch_id)
        finally:
            if not is_cached:
                rows.unpersist()

    # ------------------------------------------------------------------ rows that are appended

    def _query(self, df: DataFrame) -> str:
        """The id of the query, which its checkpoint has, and the name of the output."""
        try:
            query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        except AttributeError:  # Spark Connect
            query = None
        if query is None:
            raise SinkError(
                f"rows cannot be appended to the table {self.table!r} exactly once: there is no id of the query",
                "A query over a stream has an id, unless it runs over Spark Connect. A query over a table has none.",
                f"name the columns that identify a row: {KEY}",
            )
        return f"asterism/{query}/{self.name or ''}"

    def _append_once(self, rows: DataFrame, query: str, batch_id: int) -> None:
        if self._last is None or self._last[0] != query:
            self._last = query, self._last_batch(rows.sparkSession, query)
        last = self._last[1]
        if last is not None and last > batch_id:
            raise SinkError(
                f"the table {self.table!r} has later micro-batches of this query",
                f"This query writes micro-batch {batch_id}, but the table already has micro-batch {last}. Its checkpoint is"
                " older than the table.",
                self._older_checkpoint,
            )
        if last != batch_id:
            self._append(rows, query, batch_id)
            self._last = query, batch_id

    _older_checkpoint: ClassVar[str]

    @abstractmethod
    def _last_batch(self, spark: SparkSession, query: str) -> int | None:
        """The last micro-batch of a query that the table has."""

    @abstractmethod
    def _append(self, rows: DataFrame, query: str, batch_id: int) -> None:
        """Append the rows and the number of the micro-batch in one transaction."""

    # ------------------------------------------------------------------ rows that are identified by a key

    def _merge(self, rows: DataFrame) -> None:
        spark = rows.sparkSession
        source, order = self._changes(rows)
        same = " AND ".join(f"target.{quoted_name(name)} <=> source.{quoted_name(name)}" for name in self.key)
        is_newer = (
            "" if order is None else f" AND coalesce(source.{quoted_name(order)} >= target.{quoted_name(order)}, true)"
        )
        deleted = f"source.{quoted_name(_DELETED)}"
        columns = [quoted_name(name) for name in rows.columns]
        view = f"asterism_{uuid4().hex}"
        source.createTempView(view)
        try:
            spark.sql(
                f"MERGE INTO {self._identifier} AS target USING {view} AS source ON {same}"
                f" WHEN MATCHED AND {deleted} THEN DELETE"
                f" WHEN MATCHED{is_newer} THEN UPDATE SET {', '.join(f'target.{name} = source.{name}' for name in columns)}"
                f" WHEN NOT MATCHED AND NOT {deleted} THEN INSERT ({', '.join(columns)})"
                f" VALUES ({', '.join(f'source.{name}' for name in columns)})"
            ).collect()
        finally:
            spark.catalog.dropTempView(view)

    def _changes(self, rows: DataFrame) -> tuple[DataFrame, str | None]:
        """For each key its newest row, or that its row is deleted; and the column that says which row is newer."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        keys = [F.col(quoted_name(name)) for name in self.key]
        changes = rows.withColumn(_DELETED, F.lit(False))
        if _SESSION in self.key and _REPLACES in rows.columns:
            of_session = F.explode(quoted_name(_REPLACES)).alias(_SESSION)
            replaced = rows.select(*(of_session if name == _SESSION else quoted_name(name) for name in self.key))
            changes = changes.unionByName(
                replaced.distinct().withColumn(_DELETED, F.lit(True)), allowMissingColumns=True
            )
        order = self.order_by
        if order is None and _FIRING in rows.columns and _FIRING not in self.key:
            order = _FIRING
        newest = [F.col(quoted_name(_DELETED)).desc(), *([] if order is None else [F.col(quoted_name(order)).desc()])]
        rank = F.rank().over(Window.partitionBy(*keys).orderBy(*newest))
        changes = changes.withColumn(_RANK, rank).where(f"{quoted_name(_RANK)} = 1").drop(_RANK)
        twice = changes.groupBy(*keys).count().where("count > 1").limit(1).collect()
        if twice:
            values = ", ".join(f"{name} = {value!r}" for name, value in zip(self.key, twice[0][:-1], strict=True))
            raise SinkError(
                f"{twice[0][-1]} rows of a micro-batch have the same key: {values}",
                "It is not known which of them replaces the others."
                if order is None
                else f"Their {order!r} is equal, too.",
                "name all columns that identify a row: key=[...], or the column that says which one is newer: order_by=...",
            )
        return changes, order

    # ------------------------------------------------------------------ the table

    @property
    def _identifier(self) -> str:
        """The table in a statement."""
        return self.table

    def _check_table(self, rows: DataFrame) -> None:
        """Create the table if it does not exist, and look whether it has the columns of the rows."""
        columns = self._columns(rows.sparkSession)
        if columns is None:
            self._create(rows)
            return
        known = {name.lower() for name in columns}
        for name in rows.columns:
            if name.lower() not in known:
                raise ColumnNotFoundError.from_missing_and_available(name, columns, f"in the table {self.table!r}")

    def _columns(self, spark: SparkSession) -> list[str] | None:
        """Those of the table, or None if it does not exist."""
        return spark.table(self._identifier).columns if spark.catalog.tableExists(self._identifier) else None

    @abstractmethod
    def _create(self, rows: DataFrame) -> None: ...

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what Spark says about the columns as an error of the sink."""
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            raise SinkError(
                f"the rows cannot be written to the table {self.table!r}",
                str(error).strip().partition("\n")[0],
                "change the types of the measures, such as CAST(x AS BIGINT) AS x, or the table",
            ) from error


class DeltaSink(_TableSink):
    """Writes rows to a table of Delta Lake, each of them once. Spark writes them, so any number of rows may be in a micro-batch.

    A sink of :meth:`PatternStream.run` and of the other streams. Spark needs Delta's jars and settings. The table is created
    if it does not exist. Columns of the table that the rows do not have are NULL. A micro-batch without rows makes no commit.

    Without *key*, rows are appended. The commit has the number of the micro-batch and the id of the query, which its checkpoint
    contains (Delta's ``txnAppId`` and ``txnVersion``), so a micro-batch that is repeated after a failure is not appended again.
    A query with a new checkpoint is another one: its rows are appended, too. This is possible for queries over streams, but
    not over Spark Connect.

    With *key*, each micro-batch is one ``MERGE``: a row whose key the table has replaces it, and other rows are inserted. So the
    table has one row for each key, also if a query begins again with a new checkpoint or runs over a table. Of several rows
    with one key, the one with the greatest *order_by* is kept. A row is deleted if its ``session_id``, in the key, is in the
    column ``replaces`` of the rows: this is for ``window(..., session_ids=True)``.

    :param table: the name of the table, with its catalog and schema: ``lake.alarms``; or a path, which has a ``/``:
        ``/data/alarms``, ``s3a://bucket/alarms``
    :param name: of the output, among the outputs of a query that are appended to one table. Default: the name of the output in
        ``run``
    :param key: the column, or the columns, that identify a row. The key of a match is ``match_id``. NULL is a value like others.
    :param order_by: the column that says which of two rows with one key is newer. Default: ``firing``, if the rows have it and
        the key has not. Without it, the row that is written last is kept, and two rows with one key in a micro-batch are
        refused.
    :raises SinkError: an argument is invalid. When the query starts: the rows have no such key. When it is called: there is no
        id of the query; the table has later micro-batches of the query than the one that is written; two rows have one key;
        the types do not fit
    :raises ColumnNotFoundError: when it is called: the table has no such column

    >>> DeltaSink("lake.visits", key="session_id")
    DeltaSink('lake.visits', key=('session_id',))
    """

    _older_checkpoint = (
        "use the newest checkpoint; or restore the table, too, and give the sink another name; or use key=..."
    )

    def __init__(
        self,
        table: str | PathLike[str],
        *,
        name: str | None = None,
        key: str | Sequence[str] | None = None,
        order_by: str | None = None,
    ) -> None:
        expect(SinkError, table, str | PathLike, "the table of a sink must be a string or a path", '"lake.alarms"')
        super().__init__(fspath(table), name=name, key=key, order_by=order_by)
        expect_string(SinkError, self.table, "the table of a sink must be a string or a path", '"lake.alarms"')
        self._is_path = not isinstance(table, str) or ("/" in table and not _IDENTIFIER.fullmatch(table))
        if not self._is_path:
            check_identifier(self.table)

    @property
    def _identifier(self) -> str:
        return f"delta.{quoted_name(self.table)}" if self._is_path else self.table

    def _columns(self, spark: SparkSession) -> list[str] | None:
        from pyspark.errors import AnalysisException

        if not self._is_path:
            return super()._columns(spark)
        try:
            return spark.read.format("delta").load(self.table).columns
        except AnalysisException as error:
            if any(condition in str(error) for condition in _NO_TABLE):  # Spark 3.5 has no getCondition()
                return None
            raise

    def _last_batch(self, spark: SparkSession, query: str) -> int | None:
        values = {name: f"get_json_object(userMetadata, '$.asterism.{name}')" for name in ("query", "batch")}
        history = spark.sql(f"DESCRIBE HISTORY {self._identifier} LIMIT {HISTORY}")
        found = history.selectExpr(*(f"{value} AS {name}" for name, value in values.items())).collect()
        return max((int(row.batch) for row in found if row.query == query), default=None)

    def _append(self, rows: DataFrame, query: str, batch_id: int) -> None:
        commit = json.dumps({"asterism": {"query": query, "batch": batch_id}})
        self._write(rows, txnAppId=query, txnVersion=batch_id, userMetadata=commit)

    def _create(self, rows: DataFrame) -> None:
        self._write(rows.limit(0))

    def _write(self, rows: DataFrame, **options: Any) -> None:
        writer = rows.write.format("delta").mode("append").options(**options)
        if self._is_path:
            writer.save(self.table)
        else:
            writer.saveAsTable(self.table)


class IcebergSink(_TableSink):
    """Writes rows to a table of Iceberg, each of them once. Spark writes them, so any number of rows may be in a micro-batch.

    A sink of :meth:`PatternStream.run` and of the other streams. Spark needs Iceberg's jar, a catalog, and with *key* also
    Iceberg's extensions of SQL. The table is created if it does not exist. A micro-batch without rows makes no snapshot.

    Without *key*, rows are appended. The snapshot has the number of the micro-batch and the id of the query, which its checkpoint
    contains, as properties ``asterism.batch`` and ``asterism.query``. Before the first write, the sink looks for the
    last micro-batch of the query in the snapshots of the table, so a micro-batch that is repeated after a failure is not appended
    again. The last snapshot of a stopped query must therefore not be expired before the query has been started again. Only
    ancestors of the current snapshot count, so a table can be rolled back together with the checkpoint. A query with a new
    checkpoint is another one: its rows are appended, too. This is possible for queries over streams, but not over Spark
    Connect.

    With *key*, each micro-batch is one ``MERGE``, as in :class:`DeltaSink`. This does not depend on snapshots.

    :param table: the name of the table, with its catalog and namespace: ``lake.fraud.alarms``. The namespace must exist.
    :param name: of the output, among the outputs of a query that are appended to one table. Default: the name of the output in
        ``run``
    :param key: the column, or the columns, that identify a row. The key of a match is ``match_id``. NULL is a value like others.
    :param order_by: the column that says which of two rows with one key is newer. Default: ``firing``, if the rows have it and
        the key has not. Without it, the row that is written last is kept, and two rows with one key in a micro-batch are
        refused.
    :raises SinkError: an argument is invalid. When the query starts: the rows have no such key. When it is called: there is no
        id of the query; the table has later micro-batches of the query than the one that is written; two rows have one key;
        the columns or their types do not fit
    :raises ColumnNotFoundError: when it is called: the table has no such column

    >>> IcebergSink("lake.fraud.alarms", key="match_id")
    IcebergSink('lake.fraud.alarms', key=('match_id',))
    """

    _older_checkpoint = (
        "use the newest checkpoint; or roll the table back, too (system.rollback_to_snapshot); or use key=..."
    )

    def __init__(
        self,
        table: str,
        *,
        name: str | None = None,
        key: str | Sequence[str] | None = None,
        order_by: str | None = None,
    ) -> None:
        expect_string(SinkError, table, "the table of a sink must be a string", '"lake.fraud.alarms"')
        super().__init__(table, name=name, key=key, order_by=order_by)
        check_identifier(table)

    def _last_batch(self, spark: SparkSession, query: str) -> int | None:
        properties = ", ".join(f"summary['asterism.{name}'] AS {name}" for name in ("query", "batch"))
        found = spark.sql(
            f"SELECT {properties} FROM {self.table}.snapshots JOIN {self.table}.history USING (snapshot_id)"
            " WHERE is_current_ancestor"
        ).collect()
        return max((int(row.batch) for row in found if row.query == query), default=None)

    def _append(self, rows: DataFrame, query: str, batch_id: int) -> None:
        writer = rows.writeTo(self.table)
        for name, value in {"query": query, "batch": str(batch_id)}.items():
            writer = writer.option(f"snapshot-property.asterism.{name}", value)
        writer.append()

    def _create(self, rows: DataFrame) -> None:
        from pyspark.errors import AnalysisException

        try:
            rows.limit(0).writeTo(self.table).using("iceberg").create()
        except AnalysisException as error:  # seen over Spark Connect, and another query may be faster
            if "[TABLE_OR_VIEW_ALREADY_EXISTS]" not in str(error):
                raise


def check_identifier(table: str) -> None:
    """Refuse what is not the name of a table: it becomes a part of statements."""
    if not _IDENTIFIER.fullmatch(table):
        raise SinkError(
            f"{table!r} is not the name of a table",
            hint='names with other characters than letters, digits and "_" in backticks: "lake.`my alarms`"',
        )
