"""Makes a savepoint from a table: the state of a query after a history, with which queries over a stream begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asterism.arguments import expect_string
from asterism.errors import LeaseLostError, StateError, StreamDefinitionError
from asterism.operators.sink_functions import Sink
from asterism.operators.state.page_numbers import HEADER
from asterism.rules.sets.set_store import STORE
from asterism.savepoints.file_sums import FileSums, below
from asterism.savepoints.manifest import INCOMPLETE, MAX_SIZE, SEAM, Manifest, QueryPosition, StoredSeam
from asterism.savepoints.rule_sets import RULES
from asterism.spark.host.evolution import LAST_OPERATOR
from asterism.spark.host.state_reader import StateReader
from asterism.spark.savepoints.creating import (
    PARQUET,
    SavepointTables,
    begin_writing,
    rules_of,
    summary_of,
    writing,
)
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.restoring import StoredSavepoint, clear_store, pages_of_groups, read_checked
from asterism.spark.session.settings import settings
from asterism.streams.run_options import QueryHistory, RunOptions

_JOB = "job"


def bootstrap_savepoint(
    stream: Any,
    history: DataFrame | Mapping[str, DataFrame],
    target: str,
    sinks: Mapping[str, Sink],
    *,
    until: datetime | None = None,
    **options: Any,
) -> None:
    """Make a savepoint from a table, once: with ``run(..., history=target)``, any number of queries begin with it.

    If the process ends before this returns, call it again: the sinks get the results again, as the same micro-batch.

    :param stream: that of the queries: a :class:`~asterism.PatternStream`, :class:`~asterism.PatternProcessorStream`,
        :class:`~asterism.RowPatternStream`, :class:`~asterism.WindowedStream`, :class:`~asterism.JoinedStream`,
        :class:`~asterism.MultiJoinedStream` or :class:`~asterism.OperatorStream`. Its streams are not read. Rules are
        those that are discovered now, and the savepoint has them.
    :param history: a table with the columns of the stream, or several tables by input
    :param target: a new folder
    :param sinks: as in ``run``. They get the results of the history, as micro-batch 0; the queries get those after it.
    :param until: see :class:`~asterism.streams.run_options.BeginOptions`. The queries use it without naming it.
    :param options: those of ``run`` that define the outputs, such as ``select`` and ``aggregate``
    :raises StateError: *target* has files
    :raises CheckpointInUseError: another process writes a savepoint there
    :raises StreamDefinitionError: the stream cannot have this history

    Source: Flink, "State Processor API": ``SavepointWriter.newSavepoint``, ``OperatorTransformation.bootstrapWith``.
    docs/savepoints.md has a runnable example.
    """
    if not hasattr(stream, "run"):
        raise StreamDefinitionError(
            "a savepoint is made for a stream with a method run",
            hint="bootstrap_savepoint(CEP.pattern(stream, pattern), ...)",
        )
    expect_string(StateError, target, "the target must be a location", '"/savepoints/carts"')
    checked = QueryHistory.checked(history, until)
    if checked is None or isinstance(checked.rows, str):
        raise StreamDefinitionError("the history must be a DataFrame, or several by input")
    if getattr(stream, "store", None) is not None:
        raise StreamDefinitionError(
            "a savepoint has the sets of its rules itself",
            hint="leave out store= here; the queries that begin with the savepoint may have one",
        )
    RunOptions.checked(
        sinks, target, False, None, None, with_trigger=False, key_groups=None
    )  # before anything is written
    table: DataFrame = next(iter(history.values())) if isinstance(history, Mapping) else history
    spark = table.sparkSession
    folder = StoredFolder.of(spark, target)
    try:
        with writing(spark, folder, None) as complete:
            try:
                complete(_bootstrap(stream, sinks, folder, checked, options))
            except LeaseLostError:
                raise
            except BaseException:
                begin_writing(folder, None)
                folder.delete_file(INCOMPLETE)
                raise
    except BaseException:
        if not folder.names():
            folder.delete()
        raise


def _bootstrap(
    stream: Any, sinks: Mapping[str, Sink], folder: StoredFolder, history: QueryHistory, options: Mapping[str, Any]
) -> Manifest:
    """Write all of the savepoint but its manifest."""
    manifests: list[Manifest] = []

    def write(rows: DataFrame, key_groups: int, time_mode: str) -> DataFrame:
        results, manifest = _write(folder, rows, key_groups, time_mode)
        manifests.append(manifest)
        return results

    stream.run(sinks, checkpoint=folder.location, drain=False, history=replace(history, into=write), **options)
    (folder / _JOB).delete()
    folder.write(SEAM, StoredSeam(history.until).to_json())
    return manifests[0]  # The savepoint is complete only after the sinks have the results.


def _write(folder: StoredFolder, rows: DataFrame, key_groups: int, time_mode: str) -> tuple[DataFrame, Manifest]:
    """Write the state of the *rows* of :data:`asterism.spark.histories.runner.HISTORY`, and return those with results."""
    spark = rows.sparkSession
    rows.write.parquet((folder / _JOB).location)
    stored = spark.read.parquet((folder / _JOB).location)
    pages = stored.where("page IS NOT NULL").select("key_group", "page", "value")
    state = StateReader(pages.where(f"page = {HEADER}"), pages.where(f"page <> {HEADER}"), 0, 0)
    headers, summary = summary_of(state)
    rules = rules_of(spark, state, summary, key_groups, folder / STORE)
    counts = {}
    if summary is not None:
        with settings(spark, PARQUET):
            counts = SavepointTables(spark, folder, state, summary, headers, key_groups, rules).all()
    if rules is not None:
        folder.write(RULES, rules.to_json())
    position = QueryPosition("", 0, 0, "", "")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    tasks = min(key_groups, int(spark.conf.get("spark.sql.shuffle.partitions") or key_groups))
    manifest = Manifest(
        version("asterism"), spark.version, now, position, time_mode, key_groups, tasks, summary, counts
    )
    return stored, manifest


def with_savepoint(spark: SparkSession, options: RunOptions, store: str | None = None) -> RunOptions:
    """The options of a run whose history may be a savepoint that was made from tables.

    :param store: where the sets of rules of the query will be, if it has rules
    :raises StateError: there is no such savepoint
    """
    history = options.history
    if history is None or not isinstance(history.rows, str):
        return options
    stored = StoredSavepoint.of(StoredFolder.of(spark, history.rows))
    seam = read_checked(stored.folder, SEAM, MAX_SIZE, stored.manifest.files)
    if seam is None:
        raise StateError(f"the savepoint {history.rows} was not made from a table", hint="bootstrap_savepoint(...)")

    def pages(key_groups: int) -> DataFrame:
        with settings(spark, PARQUET):
            return pages_of_groups(spark, stored.operators[LAST_OPERATOR], key_groups)

    until = StoredSeam.from_json(seam, stored.folder.location).until if history.until is None else history.until
    history = replace(history, until=until, pages=pages)
    if store is not None:
        sums = below(stored.manifest.files, STORE)
        history = with_sets(history, stored.folder / STORE, StoredFolder.of(spark, store), sums)
    return replace(options, history=history)


def with_sets(
    history: QueryHistory, sets: StoredFolder, store: StoredFolder, sums: FileSums | None = None
) -> QueryHistory:
    """A history that is a savepoint, with how its *sets* of rules come to the store of the query.

    :param sums: the files of the sets
    """
    if not sets.names():
        return history

    def clear(is_begun: bool) -> None:
        clear_store(store, is_begun=is_begun)

    return replace(history, store=store.location, clear=clear, begin=lambda: sets.copy_to(store, sums))
