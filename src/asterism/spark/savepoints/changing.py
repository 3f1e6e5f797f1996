"""Savepoints for a changed definition: what becomes of the state, as a plan, and a new savepoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypedDict

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism.arguments import expect, expect_string, expect_strings, shown
from asterism.changes.plan import Counts, PlanPart, SavepointPlan, plan_of
from asterism.errors import StateError
from asterism.joins.operator import StreamJoinOperator
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.multiple_input import MultipleInputOperator
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import PatternSequence
from asterism.row_patterns.operator import RowPatternOperator
from asterism.savepoints.changes.change import StateChange, changed_waiting
from asterism.savepoints.changes.clauses import ClauseChange
from asterism.savepoints.changes.joins import JoinChange
from asterism.savepoints.changes.keys import KeyChange, RekeyedState
from asterism.savepoints.changes.operators import OperatorChange
from asterism.savepoints.changes.patterns import PatternChange, operator_of_pattern
from asterism.savepoints.changes.windows import WindowsChange
from asterism.savepoints.key_groups import (
    KEY_GROUP,
    KEY_HASH,
    POSITION,
    THE_KEY,
    Summary,
    broadcast_tables,
    rows_schema,
)
from asterism.savepoints.kinds import key_states
from asterism.savepoints.manifest import ROWS, Manifest, folder_of_broadcast, folder_of_waiting
from asterism.savepoints.plain_types import as_plain, plain_schema, retyped_table
from asterism.spark.host.column_types import spark_schema
from asterism.spark.host.stateful import hash_of
from asterism.spark.savepoints.creating import PARQUET, check_unused, writing
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.rescaling import in_place
from asterism.spark.savepoints.restoring import StoredSavepoint, write_checkpoint
from asterism.spark.session.settings import expect_session, settings
from asterism.streams.pattern_stream import PatternStream
from asterism.streams.windows import LATE_ROWS, RESULT_ROWS, WindowedStream
from asterism.windows.operator import WindowOperator

_COUNTS = pa.schema([*((name, pa.string()) for name in PlanPart._fields), ("count", pa.int64())])
_Changed = Callable[[StateChange, pa.Table], tuple[pa.Table, Counts]]
_Batches = Iterator[pa.RecordBatch]


class ChangeOptions(TypedDict, total=False):
    """The options of :func:`change_savepoint`."""

    renamed: Mapping[str, str] | None
    measures: Sequence[str]
    allow_dropped: bool
    operator_id: int | None


def plan_savepoint(
    spark: SparkSession,
    savepoint: str,
    definition: Any,
    *,
    renamed: Mapping[str, str] | None = None,
    measures: Sequence[str] = (),
    operator_id: int | None = None,
) -> SavepointPlan:
    """What becomes of the state in a savepoint if the query continues with another definition: which partial matches continue,
    and which are dropped, by stage and with the reason. Nothing is written.

    :param savepoint: the folder that :func:`create_savepoint` has written
    :param definition: the new :class:`Pattern`, or the stream of the changed query: ``CEP.pattern(stream, pattern)``,
        :func:`match_recognize`, :func:`connect`, :func:`window`, or a joined stream; or a :class:`WindowOperator`
    :param renamed: new names of stages, of the states of an operator, or of key columns, by their former names. A stage or state
        with another name is otherwise new, and the former one was removed.
    :param measures: measures that the query will have. Partial matches whose events lack a column that these read are dropped.
        Without them, such a column is NULL. Of :func:`window`: its aggregates, which are required.
    :param operator_id: with several operators, Spark's number of the one that *definition* is of; 0 is the last one
    :raises StateError: there is no savepoint, or its state cannot be continued at all
    :raises CheckpointMismatchError: more has changed than can, such as the key

    Source: Flink, "Savepoints", ``allowNonRestoredState``. docs/savepoints.md has a runnable example.
    """
    return _SavepointChange(spark, savepoint, definition, renamed or {}, measures, operator_id).plan()


def change_savepoint(
    spark: SparkSession,
    savepoint: str,
    target: str,
    definition: Any,
    *,
    renamed: Mapping[str, str] | None = None,
    measures: Sequence[str] = (),
    allow_dropped: bool = False,
    operator_id: int | None = None,
) -> SavepointPlan:
    """Write a new savepoint, with which the query continues with another definition. Returns what became of the state.

    :param target: a new folder
    :param definition, renamed, measures, operator_id: as for :func:`plan_savepoint`
    :param allow_dropped: whether a part of the state may be dropped
    :raises StateError: as :func:`plan_savepoint`; *target* has files, or the savepoint has files that do not belong to it; or a
        part of the state would be dropped, and that is not allowed
    :raises CheckpointInUseError: another process writes a savepoint there

    Source: Flink, "Savepoints", ``allowNonRestoredState``. docs/savepoints.md has a runnable example.
    """
    expect_string(StateError, target, "the target must be a location", '"/savepoints/carts-2"')
    expect(StateError, allow_dropped, bool, "allow_dropped must be True or False")
    changed = _SavepointChange(spark, savepoint, definition, renamed or {}, measures, operator_id)
    folder = StoredFolder.of(spark, target)
    check_unused(folder, None)
    changed.check_names()
    plan = changed.plan()
    plan.check(allow_dropped=allow_dropped)
    with writing(spark, folder, None) as complete:
        complete(changed.write(folder))
    return plan


def change_checkpoint(
    spark: SparkSession,
    checkpoint: str,
    definition: Any,
    *,
    renamed: Mapping[str, str] | None = None,
    measures: Sequence[str] = (),
    allow_dropped: bool = False,
    operator_id: int | None = None,
) -> SavepointPlan:
    """Change the checkpoint of a stopped query in place, so that it continues with another definition, with the same location.
    Returns what became of the state.

    The query continues with the former state until this function has ended, also if it was interrupted. The former state remains
    in the checkpoint.

    :param definition, renamed, measures, allow_dropped, operator_id: as for :func:`change_savepoint`
    :raises StateError: as :func:`change_savepoint` and :func:`create_savepoint`
    :raises CheckpointInUseError: another process runs the query

    Source: Flink, "Savepoints", ``allowNonRestoredState``. docs/savepoints.md has an example.
    """
    expect_session(spark, "change_checkpoint")
    expect_string(StateError, checkpoint, "the checkpoint must be a location", '"/checkpoints/carts"')
    options: dict[str, Any] = {"renamed": renamed, "measures": measures}
    options |= {"allow_dropped": allow_dropped, "operator_id": operator_id}
    with (
        in_place(spark, checkpoint, "changed") as (savepoint, new),
        changed_savepoint(spark, savepoint.location, savepoint, definition, **options) as (changed, plan),
    ):
        write_checkpoint(spark, changed, new, None, key_groups=None, tasks=None)
    return plan


@contextmanager
def changed_savepoint(
    spark: SparkSession, savepoint: str, beside: StoredFolder, definition: Any, **options: Any
) -> Iterator[tuple[StoredFolder, SavepointPlan]]:
    """The savepoint as :func:`change_savepoint` changes it, and its plan, for the time of the block.

    :param beside: the place whose name the folder of the changed savepoint begins with
    """
    changed = StoredFolder.of(spark, f"{beside.location}.changed")
    changed.delete()  # what an interrupted call has left
    try:
        yield changed, change_savepoint(spark, savepoint, changed.location, definition, **options)
    finally:
        changed.delete()


def change_of(
    manifest: Manifest, summary: Summary, definition: Any, renamed: Mapping[str, str], measures: Sequence[str]
) -> StateChange:
    """What a definition that a user gives, or the operator of a query, makes of a state.

    :raises StateError: it does not belong to the state
    """
    old, watermark = summary.definition, manifest.watermark_of(summary)
    operator = _operator_of(definition, old, measures)
    _check_kind(old, operator)
    key = KeyChange.of(old, operator.definition, renamed)
    if key is not None:
        old, renamed = key.definition, key.renamed
    change = _change_of(old, operator, renamed, watermark, manifest)
    return change if key is None else RekeyedState(key, change)


def _operator_of(definition: Any, old: StateDefinition, measures: Sequence[str]) -> KeyGroupOperator:
    if isinstance(definition, WindowedStream):
        return _operator_of_windows(definition, measures)
    if isinstance(definition, PatternSequence | PatternStream) and old.kind is not OperatorKind.PATTERN:
        raise _other_kind(old, "a pattern")
    if isinstance(definition, PatternSequence):
        assert isinstance(definition, Pattern)
        return operator_of_pattern(definition, old, measures)
    if isinstance(definition, PatternStream):
        return definition._operator(
            {OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES, measures=tuple(measures))}
        )
    operator = definition if isinstance(definition, KeyGroupOperator) else getattr(definition, "operator", None)
    if isinstance(operator, KeyGroupOperator) and any(isinstance(operator, kind) for kind, _, _ in _KINDS):
        return operator
    raise StateError(
        f"not a definition of a query: {shown(definition)}",
        hint="a Pattern, CEP.pattern(stream, pattern), match_recognize(...), connect(...), window(...), or a joined stream",
    )


def _change_of(
    old: StateDefinition, operator: KeyGroupOperator, renamed: Mapping[str, str], watermark: int, manifest: Manifest
) -> StateChange:
    """:param renamed: without key columns"""
    if isinstance(operator, CepOperator):
        return PatternChange(old, operator, renamed, watermark)
    if isinstance(operator, MultipleInputOperator):
        return OperatorChange(old, operator, renamed, watermark, manifest.written_at)
    if renamed:
        what = "only key columns can be renamed here: a clause, windows and a join have no other names"
        raise StateError(what, f"renamed: {dict(renamed)}", "leave out renamed=")
    if isinstance(operator, RowPatternOperator):
        return ClauseChange(old, operator, watermark)
    if isinstance(operator, WindowOperator):
        return WindowsChange(old, operator, watermark)
    assert isinstance(operator, StreamJoinOperator)
    return JoinChange(old, operator, watermark)


def _operator_of_windows(stream: WindowedStream[Any], measures: Sequence[str]) -> WindowOperator:
    """
    :raises StateError: there is no measure
    """
    if not measures:
        raise StateError(
            "windows of a stream need the aggregates of their results",
            hint='measures=["SUM(v) AS v"]; for process, reduce or fold, a WindowOperator, with the same in_order as the query',
        )
    # With late elements, the events that wait keep all columns that they have.
    _, operator = stream._of_outputs("run", [RESULT_ROWS, LATE_ROWS], {"aggregate": measures}, None)
    return operator


_KINDS: tuple[tuple[type[KeyGroupOperator], OperatorKind, str], ...] = (
    (CepOperator, OperatorKind.PATTERN, "a pattern"),
    (RowPatternOperator, OperatorKind.ROW_PATTERN, "a MATCH_RECOGNIZE clause"),
    (MultipleInputOperator, OperatorKind.OPERATOR, "a StreamOperator"),
    (WindowOperator, OperatorKind.WINDOWS, "windows"),
    (StreamJoinOperator, OperatorKind.JOIN, "a join"),
)


def _check_kind(old: StateDefinition, operator: KeyGroupOperator) -> None:
    for kind, stored, what in _KINDS:
        if isinstance(operator, kind) and old.kind is not stored:
            raise _other_kind(old, what)


def _other_kind(old: StateDefinition, what: str) -> StateError:
    return StateError(f"the savepoint has no state of {what}", f"Its state is that of: {old.kind.value}")


class _SavepointChange:
    """A savepoint and a new definition."""

    def __init__(
        self,
        spark: SparkSession,
        savepoint: str,
        definition: Any,
        renamed: Mapping[str, str],
        measures: Sequence[str],
        operator_id: int | None,
    ) -> None:
        expect_session(spark, "a change of a savepoint")
        expect_string(StateError, savepoint, "the savepoint must be a location", '"/savepoints/carts"')
        expect(StateError, renamed, Mapping, "renamed must map former names to new names", 'renamed={"cart": "basket"}')
        expect_strings(StateError, [*renamed, *renamed.values()], "names must be strings", 'renamed={"cart": "basket"}')
        expect_strings(StateError, measures, "a measure must be an SQL string", 'measures=["COUNT(a.*) AS n"]')
        expect(StateError, operator_id, int | None, "operator_id must be an integer or None", "operator_id=0")
        self._spark, self._stored = spark, StoredSavepoint.of(StoredFolder.of(spark, savepoint))
        self._manifest = self._stored.manifest
        self._number = self._manifest.operator_number(operator_id)
        self._operator = self._stored.operators[self._number]
        self._folder, summary = self._operator.folder, self._operator.summary
        self._change = None if summary is None else change_of(self._manifest, summary, definition, renamed, measures)

    def check_names(self) -> None:
        """:raises StateError: the savepoint has more than its own files"""
        self._stored.check_names()

    def plan(self) -> SavepointPlan:
        change = self._change
        if change is None:
            return SavepointPlan({})
        counted = [_counted(rows, change, changed) for _, rows, changed in self._tables(change)]
        counted += [counts for _, _, counts in self._broadcast(change)]
        return plan_of(counted, change.notes)

    def _broadcast(self, change: StateChange) -> Iterator[tuple[str | None, pa.Table, Counts]]:
        """The broadcast states as :meth:`StateChange.broadcast` changes them."""
        for name, schema in broadcast_tables(change.old).items():
            folder = folder_of_broadcast(name)
            if folder in self._operator.counts:
                with settings(self._spark, PARQUET):
                    rows = self._spark.read.parquet(f"{self._folder.location}/{folder}").orderBy(POSITION).toArrow()
                yield change.broadcast(name, retyped_table(rows, schema))

    def _tables(self, change: StateChange) -> Iterator[tuple[str, DataFrame, _Changed]]:
        """The folders of the tables that change, their rows, and how they change."""
        with settings(self._spark, PARQUET):
            yield ROWS, self._spark.read.parquet(f"{self._folder.location}/{ROWS}"), _changed_rows
            for name in change.old.inputs:
                folder = folder_of_waiting(name)
                if folder in self._operator.counts:
                    yield folder, self._spark.read.parquet(f"{self._folder.location}/{folder}"), _ChangedWaiting(name)

    def write(self, target: StoredFolder) -> Manifest:
        """Write all of the new savepoint but its manifest."""
        change, manifest, summary = self._change, self._manifest, self._operator.summary
        place = self._stored.place_of(self._number, target)
        if change is not None and summary is not None:
            counts = dict(self._operator.counts)
            schema = rows_schema(key_states(change.new))
            schemas = {ROWS: pa.schema([*schema, (KEY_HASH, pa.int64())])}
            for name, prepared in change.new.inputs.items():
                of_group = pa.schema([(KEY_GROUP, pa.int32()), (POSITION, pa.int64())])
                schemas[folder_of_waiting(name)] = pa.schema([*of_group, (KEY_HASH, pa.int64()), *prepared])
            for name, rows, changed in self._tables(change):
                location = f"{place.location}/{name}"
                made = _mapped(rows, change, changed, schemas[name])
                (_rehashed(made, change) if change.rekeys else made).write.parquet(location)
                counts[name] = self._spark.read.parquet(location).count()
            former = [folder_of_broadcast(name) for name in broadcast_tables(change.old)]
            counts = {name: count for name, count in counts.items() if name not in former}
            for now, entries, _ in self._broadcast(change):
                if now is not None:
                    counts[folder_of_broadcast(now)] = entries.num_rows
                    self._write_entries(entries, f"{place.location}/{folder_of_broadcast(now)}")
            summary = replace(summary, definition=change.new, fingerprint=change.fingerprint)
            manifest = manifest.with_operator(self._number, summary, counts)
        self._stored.copy_rest(target, [self._number])
        return manifest

    def _write_entries(self, entries: pa.Table, location: str) -> None:
        positions = pa.array(range(entries.num_rows), pa.int64())
        plain = as_plain(entries.add_column(0, POSITION, positions))
        with settings(self._spark, PARQUET):
            self._spark.createDataFrame(plain, spark_schema(plain.schema)).coalesce(1).write.parquet(location)


def _rehashed(rows: DataFrame, change: StateChange) -> DataFrame:
    """The rows of a table with the hashes of their new keys."""
    if KEY_HASH not in rows.columns:  # the events of a broadcast input
        return rows
    keys: Sequence[str | Column] = [name for name in rows.columns if name.startswith("k:")]
    if THE_KEY in rows.columns:
        keys = [F.col(THE_KEY).getField(field.name.removeprefix("k:")) for field in key_states(change.new).keys]
    return rows.withColumn(KEY_HASH, hash_of(keys))


def _changed_rows(change: StateChange, rows: pa.Table) -> tuple[pa.Table, Counts]:
    return change.rows(rows)


class _ChangedWaiting:
    """The events of one input that wait."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, change: StateChange, rows: pa.Table) -> tuple[pa.Table, Counts]:
        return changed_waiting(change, self._name, rows)


def _counted(rows: DataFrame, change: StateChange, changed: _Changed) -> Counts:
    """What becomes of the rows of a table."""

    def count(batches: _Batches) -> _Batches:
        total: Counts = Counter()
        for batch in batches:
            if batch.num_rows:
                total.update(changed(change, pa.Table.from_batches([batch]))[1])
        parts = [{**part._asdict(), "count": n} for part, n in total.items()]
        yield from pa.Table.from_pylist(parts, _COUNTS).to_batches()

    counts: Counts = Counter()
    for row in rows.mapInArrow(count, spark_schema(_COUNTS)).collect():
        *part, n = row
        counts[PlanPart(*part)] += n
    return counts


def _mapped(rows: DataFrame, change: StateChange, changed: _Changed, schema: pa.Schema) -> DataFrame:
    """The changed rows of a table, with the columns of *schema* that it has."""
    plain = plain_schema(schema)
    if KEY_HASH not in rows.columns:  # the events of a broadcast input
        plain = pa.schema([field for field in plain if field.name != KEY_HASH])
    names = plain.names

    def map_rows(batches: _Batches) -> _Batches:
        for batch in batches:
            if batch.num_rows:
                made, _ = changed(change, pa.Table.from_batches([batch]))
                yield from as_plain(made.select(names)).cast(plain).to_batches()

    return rows.mapInArrow(map_rows, spark_schema(plain))
