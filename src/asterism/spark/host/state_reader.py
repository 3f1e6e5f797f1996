"""Reads the state in the checkpoint of a query as DataFrames.

Spark's data source ``statestore`` reads a committed version of the state, also while the query runs. Its rows are pages, which
are decoded in parallel, one task for each task of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from asterism.arguments import expect, expect_string, shown
from asterism.columns.arrays import cast_table
from asterism.columns.time import BEFORE_TIME, MOMENT, moments
from asterism.errors import StateError
from asterism.joins.stored_joins import kept_rows_of
from asterism.matching.stored_matches import event_type, matches_schema, partial_matches_of
from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.multiple_input import definition_of
from asterism.operators.operator import EVENTS
from asterism.operators.state.broadcast_state import PART, parts_in
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.keyed_state import StateKind
from asterism.operators.state.page_numbers import BROADCAST_PAGE, CLAUSES_PAGE, DEFINITION_PAGE, SETS_PAGE, PageKind
from asterism.operators.state.partition_watermarks import IDLE, values_of
from asterism.operators.state.state_definition import OperatorKind, StateDefinition, keys_as_structs
from asterism.operators.state.state_store import Record, batch_from_bytes, kind_of
from asterism.operators.stored_state import (
    BROADCAST,
    RULE_KEY,
    STATE,
    WAITING,
    entries,
    entries_schema,
    key_type,
    numbers_of_entries,
    tables_of_page,
    timers,
    timers_schema,
    unselected_events,
    waiting_events,
    waiting_schema,
)
from asterism.operators.stream_operator import StreamOperator
from asterism.row_patterns.stored_searches import ROWS, searches_of
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.stored_rules import matches_of_rules, processors_in, searches_of_rules
from asterism.rules.sets.sets import processor_of
from asterism.spark.host.column_types import spark_schema
from asterism.spark.host.partitioning import group_of, label
from asterism.spark.session.checkpoints import current_checkpoint
from asterism.spark.session.settings import configure_state_store, expect_session
from asterism.windows.stored_windows import (
    FUNCTION_KEYS,
    FUNCTION_STATE,
    WINDOW_STATE,
    states_of_keys,
    states_of_windows,
    window_state_schema,
    windows_of,
    windows_schema,
)

_ESCAPED = ' %#?"<>^`{|}[]\\'
"""The characters that are escaped in the path of a URI, which Spark's source of state does once too often."""
_PLACE = "use the checkpoint location of a query that has completed a micro-batch"
_HEADER = -1
"""In place of the number of a page."""
_OPERATORS = "transformWithState"
"""How Spark's names of the operators that can be ours begin."""
_PARTIAL = (OperatorKind.PATTERN, OperatorKind.RULES, OperatorKind.ROW_PATTERN)
_READERS = {
    STATE: ("keyed state", "state"),
    BROADCAST: ("broadcast state", "broadcast"),
    FUNCTION_STATE: ("state", "state"),
    WINDOW_STATE: ("state of windows", "window_state"),
}
"""For each prefix of tables, the kind of state and the method that reads it."""
_Batches = Iterator[pa.RecordBatch]
_Decode = Callable[[Any, int, bytes], pa.Table]
"""From the definition of a key group (None: an earlier release wrote it), the number of a page, and the page, to rows."""
_PAGES = pa.schema([("key_group", pa.int32()), ("page", pa.int32()), ("value", pa.binary())])
_GROUPS = pa.schema(
    [
        ("key_group", pa.int32()),
        ("group", pa.int32()),
        ("pages", pa.int64()),
        ("watermark", MOMENT),
        ("next_event_time", MOMENT),
        ("next_processing_time", MOMENT),
    ]
)

_PARTITIONS = pa.schema(
    [
        ("input", pa.string()),
        ("partition", pa.map_(pa.string(), pa.string())),
        ("watermark", MOMENT),
        ("last_activity", MOMENT),
        ("holds_back", pa.bool_()),
    ]
)


def read_state(
    spark: SparkSession,
    checkpoint: str,
    operator: Any = None,
    *,
    operator_id: int | None = None,
    batch_id: int | None = None,
) -> StateReader:
    """Read the state in the checkpoint of a query, while it runs or when it is stopped.

    :param checkpoint: the checkpoint location
    :param operator: not needed for state of this release. State of an earlier release has no names and types; its reader
        takes them from the operator: the class of a :class:`~asterism.StreamOperator` (everything but the keys), the result of
        :func:`~asterism.connect`, a :class:`~asterism.PatternStream` or :class:`~asterism.RowPatternStream`, or a
        :class:`~asterism.WindowOperator`. The class of an operator is also checked against the state.
    :param operator_id: Spark's number of the operator. Default: the only one. A query with several operators has several.
    :param batch_id: the micro-batch after which the state is read. Default: the last one that was committed.
    :raises StateError: there is no such checkpoint, it has no state of Asterism, or the operator does not match; or its path has
        a character that is escaped in URIs, such as a space, ``%`` or ``#``, with which Spark cannot read state

    docs/state.md has runnable examples.
    """
    expect_session(spark, "read_state", "read_state(spark, checkpoint)")
    expect_string(
        StateError, checkpoint, "the checkpoint must be a location", 'read_state(spark, "/checkpoints/carts")'
    )
    for name, number in (("operator_id", operator_id), ("batch_id", batch_id)):
        expect(StateError, number, int | None, f"{name} must be an integer or None", f"{name}=0")
    given = _definition_of(operator)
    wrong = next((letter for letter in checkpoint if letter in _ESCAPED), None)
    if wrong is not None:
        raise StateError(
            f"Spark cannot read state in a location with the character {wrong!r}",
            f"{checkpoint}\nQueries can use this checkpoint, but Spark's source of state escapes the character.",
            "read it through a symbolic link, or in a copy, whose path has no such character",
        )
    configure_state_store(spark)
    checkpoint = current_checkpoint(spark, checkpoint)
    operators = operators_in(spark, checkpoint)
    chosen = _chosen(checkpoint, operators, operator_id)
    number = int(chosen.maxBatchId if batch_id is None else batch_id)
    if not chosen.minBatchId <= number <= chosen.maxBatchId:
        raise StateError(
            f"the checkpoint has no state after the micro-batch {number}",
            f"It has that of the micro-batches {chosen.minBatchId} to {chosen.maxBatchId}.",
        )
    return StateReader(
        *_stored(spark, checkpoint, int(chosen.operatorId), number), int(chosen.operatorId), number, given
    )


def _stored(spark: SparkSession, checkpoint: str, operator_id: int, batch_id: int) -> tuple[DataFrame, DataFrame]:
    """The headers and pages in a checkpoint."""

    def variable(name: str) -> DataFrame:
        reader = spark.read.format("statestore").option("stateVarName", name)
        return reader.option("operatorId", operator_id).option("batchId", batch_id).load(checkpoint)

    header, pages = variable("header"), variable("pages")
    group = F.col("key.key_group").alias("key_group")
    headers = header.select(group, F.lit(_HEADER).alias("page"), F.col("value.value").alias("value"))
    inline = header.where("value.page IS NOT NULL").select(
        group, F.lit(0).alias("page"), F.col("value.page").alias("value")
    )
    stored = pages.select(group, F.col("user_map_key.page").alias("page"), F.col("user_map_value.value").alias("value"))
    return headers, stored.unionByName(inline)


def operators_in(spark: SparkSession, checkpoint: str) -> list[Row]:
    """What Spark's data source ``state-metadata`` tells about each stateful operator.

    :raises StateError: there is none
    """
    try:
        operators = spark.read.format("state-metadata").load(checkpoint).collect()
    except PySparkException as error:
        raise StateError(
            f"there is no state of Asterism in {checkpoint}", str(error).strip().splitlines()[0], _PLACE
        ) from None
    if not operators:
        raise StateError(f"there is no state of Asterism in {checkpoint}", hint=_PLACE)
    return operators


def is_of_asterism(operator: Row) -> bool:
    """Whether a row of :func:`operators_in` is an operator of Asterism."""
    return operator.operatorName.startswith(_OPERATORS) and '"header"' in (operator.operatorProperties or "")


def _chosen(checkpoint: str, operators: Iterable[Row], operator_id: int | None) -> Row:
    ours = {int(row.operatorId): row for row in operators if is_of_asterism(row)}
    if not ours:
        raise StateError(f"there is no state of Asterism in {checkpoint}", hint=_PLACE)
    if operator_id is None and len(ours) == 1:
        return next(iter(ours.values()))
    numbers = ", ".join(map(str, sorted(ours)))
    if operator_id is None:
        raise StateError(
            f"the query has {len(ours):,} operators of Asterism",
            f"Their numbers: {numbers}",
            f"operator_id={min(ours)}",
        )
    if operator_id not in ours:
        raise StateError(f"the query has no operator of Asterism with the number {operator_id}", f"Numbers: {numbers}")
    return ours[operator_id]


@dataclass(frozen=True, slots=True)
class _Given:
    """The caller's description of the operator.

    :param fingerprint: None: only its class is known
    """

    definition: StateDefinition
    fingerprint: bytes | None = None


def _definition_of(operator: Any) -> _Given | None:
    if operator is None:
        return None
    if isinstance(operator, type) and issubclass(operator, StreamOperator):
        return _Given(definition_of(operator))
    if isinstance(operator, StreamOperator):
        return _Given(definition_of(type(operator)))
    key_group_operator = operator if isinstance(operator, KeyGroupOperator) else getattr(operator, "operator", None)
    if not isinstance(key_group_operator, KeyGroupOperator):
        raise StateError(
            f"not an operator: {shown(operator)}",
            "The state is that of a StreamOperator, of connect(...), CEP.pattern(...) or match_recognize(...), or of a "
            "WindowOperator.",
            "leave it out: the state itself has its names and types, unless an earlier release wrote it",
        )
    return _Given(key_group_operator.definition, key_group_operator.fingerprint)


class StateReader:
    """The state of an operator in a checkpoint, as it was after a micro-batch. Times are TIMESTAMP, whatever the type of the
    event time. The column ``key`` is a struct of the key columns, with rules the list of their values as strings.

    :ivar kind: "pattern", "rules", "row pattern", "windows", "join" or "operator"; None: there is no state, or it is unknown
    :ivar batch_id: the micro-batch
    :ivar operator_id: Spark's number of the operator
    """

    def __init__(
        self, headers: DataFrame, pages: DataFrame, operator_id: int, batch_id: int, given: _Given | None = None
    ) -> None:
        """:param headers, pages: as :meth:`stored_headers` and :meth:`stored_pages`"""
        self._headers, self._pages = headers, pages
        self.operator_id, self.batch_id = operator_id, batch_id
        by_value = (
            self._pages.where(_is(DEFINITION_PAGE)).groupBy("value").agg(F.collect_list("key_group").alias("groups"))
        )
        written = sorted(by_value.collect(), key=lambda row: (-len(row.groups), bytes(row.value)))
        self.definitions = [StateDefinition.from_bytes(bytes(row.value)) for row in written]
        # Key groups that were not called since the query was changed have the former definition.
        self._others = {
            group: definition
            for row, definition in zip(written[1:], self.definitions[1:], strict=True)
            for group in row.groups
        }
        self._definition = self.definitions[0] if written else None
        self._check(given)
        if self._definition is None and given is not None:
            self._definition = given.definition
        self.kind = self._kind()

    def __repr__(self) -> str:
        kind = "" if self.kind is None else f"{self.kind.value}, "
        return f"StateReader({kind}operator_id={self.operator_id}, batch_id={self.batch_id})"

    def stored_headers(self) -> DataFrame:
        """The header of each key group: ``key_group`` (its label), ``page`` (negative) and ``value``."""
        return self._headers

    def stored_pages(self) -> DataFrame:
        """The pages of all key groups: ``key_group`` (its label), ``page`` and ``value``."""
        return self._pages

    def _check(self, given: _Given | None) -> None:
        known = self._definition
        if given is None:
            return
        if known is None:
            if given.fingerprint is not None:
                header = self._headers.first()
                if header is not None:
                    GroupHeader.from_bytes(bytes(header.value), given.fingerprint)
            return
        wanted = given.definition
        if known.kind is not wanted.kind:
            raise StateError(f"the state is that of {_what(known)}, not of {_what(wanted)}")
        if known.kind is OperatorKind.OPERATOR:
            for name, schema in wanted.tables.items():
                if name.startswith((STATE, BROADCAST)) and known.tables.get(name) not in (None, schema):
                    raise StateError(
                        f'the state "{name.partition(":")[2]}" of {wanted.details["operator"]} does not have the type that '
                        "it has in the checkpoint",
                        f"In the checkpoint: {_types(known.tables[name])}\nDeclared: {_types(schema)}",
                    )

    def _kind(self) -> OperatorKind | None:
        if self._definition is not None:
            return self._definition.kind
        # State of an earlier release: pages of patterns can be distinguished from others.
        if any(kind_of(bytes(row.value)) == 0 for row in self._pages.where(_is(SETS_PAGE)).limit(1).collect()):
            return OperatorKind.RULES
        some = self._pages.where(_of_keys()).first()
        is_pattern = some is not None and kind_of(bytes(some.value)) == Record.PAGE
        return OperatorKind.PATTERN if is_pattern else None

    # ------------------------------------------------------------------ what there is

    @property
    def is_empty(self) -> bool:
        """Whether there is no state at all, as after a drain."""
        return self._headers.isEmpty()

    @property
    def _known(self) -> list[StateDefinition]:
        return self.definitions or ([] if self._definition is None else [self._definition])

    @property
    def states(self) -> dict[str, str]:
        """The keyed and broadcast states of a user-defined operator, or the states of a window function, by name: "value",
        "list" or "map".
        """
        return {name: kind for definition in self._known for name, kind in definition.details.get("kinds", {}).items()}

    @property
    def keyed_states(self) -> list[str]:
        """The names of the states that are kept by key."""
        prefixes = STATE, FUNCTION_STATE
        return [
            name
            for name in self.states
            if any(p + name in definition.tables for definition in self._known for p in prefixes)
        ]

    @property
    def window_states(self) -> list[str]:
        """The names of the states of a window function that are also kept by window: all, unless windows merge."""
        return [
            name for name in self.states if any(WINDOW_STATE + name in definition.tables for definition in self._known)
        ]

    @property
    def inputs(self) -> list[str]:
        """The inputs of which events can wait for the watermark."""
        if self._definition is None:
            return []
        return [name for name, schema in self._definition.inputs.items() if "set" not in schema.names or name == EVENTS]

    def key_groups(self) -> DataFrame:
        """One row per key group: ``key_group``, its ``watermark``, the number of its ``pages`` and all their ``bytes``, and
        when it has something to do without new events: ``next_event_time``, ``next_processing_time``.
        """
        sizes = self._pages.unionByName(self._headers).groupBy("key_group").agg(F.sum(F.length("value")).alias("bytes"))

        def row(number: int, header: GroupHeader) -> list[tuple[Any, ...]]:
            exists = header.exists
            least = [_least(times[exists]) for times in (header.next_event_times, header.next_processing_times)]
            times = moments(np.array([header.watermark, *least]))
            return [(number, group_of(number), int(exists.sum()), *times)]

        groups = _of_headers(self._headers, _GROUPS, row).join(sizes, "key_group")
        return groups.select(
            F.col("group").alias("key_group"), "watermark", "pages", "bytes", "next_event_time", "next_processing_time"
        )

    def partitions(self) -> DataFrame:
        """The partitions of inputs with ``watermark_by`` that have had events: the ``input``, the ``partition`` as a map of its
        columns to their values as strings, its ``watermark``, its ``last_activity`` (processing time; NULL: it is idle), and
        whether it ``holds_back`` the watermark of the input.
        """
        names = [] if self._definition is None else list(self._definition.inputs)

        def rows(group: int, header: GroupHeader) -> list[tuple[Any, ...]]:
            return [
                (names[number], list(zip(partitions.columns, values_of(name), strict=True)), *rest)
                for number, partitions in header.partitions.items()
                for name, *rest in zip(
                    partitions.names,
                    moments(partitions.watermarks),
                    moments(partitions.last_activity, partitions.last_activity != IDLE),
                    partitions.holding_back.tolist(),
                    strict=True,
                )
            ]

        # All key groups have the same, and one with many partitions is large.
        return _of_headers(self._headers.orderBy("key_group").limit(1), _PARTITIONS, rows)

    def partial_matches(self, *, events: bool = False) -> DataFrame:
        """The partial matches of a pattern, of rules or of MATCH_RECOGNIZE.

        Columns: ``key``; ``rule`` and ``version``, with rules; ``stage``, that of the last event, and the one that it
        ``waits_for``; ``since``, the time of its first event; its ``deadline``; and the number of its ``events``. With
        MATCH_RECOGNIZE, it is a search: one row for each key that waits, with the rows from the first undecided one on.

        :param events: whether there is also a column ``accepted``: for each event its stage, its time, and the columns of it
            that the query keeps
        :raises StateError: it is the state of windows or of a user-defined operator
        """
        expect(StateError, events, bool, "events must be True or False")
        kind, definition = self._needs("partial matches", *_PARTIAL), self._definition
        event = self._event() if events else None
        processors: Mapping[Any, str] = {}
        pages: Column = _of_keys()
        if kind is OperatorKind.RULES:
            processors = processors_in(self._entries())
            pages = pages | _is(CLAUSES_PAGE)
            schema = matches_schema(RULE_KEY, event)
        else:
            schema = matches_schema(key_type(definition), event)

        def decode(known: Any, page: int, value: bytes) -> pa.Table:
            if kind is OperatorKind.PATTERN:
                return partial_matches_of(known, value, event)
            if kind is OperatorKind.ROW_PATTERN:
                return searches_of(known, value, event)
            read = searches_of_rules if page == CLAUSES_PAGE else matches_of_rules
            return read(known, processors, value, event)

        return self._decoded(pages, schema, decode)

    def processors(self) -> list[PatternProcessor]:
        """The rules that are in force, or wait for their time.

        :raises StateError: it is not the state of rules
        """
        self._needs("rules", OperatorKind.RULES)
        return list(dict.fromkeys(map(processor_of, processors_in(self._entries()).values())))

    def _entries(self) -> list[bytes]:
        stored = self._pages.where(_is(SETS_PAGE)).select("value").distinct().collect()
        return [bytes(row.value) for row in stored]

    def _event(self) -> pa.DataType:
        definition = self._defined("The events")
        if definition.kind is OperatorKind.RULES:
            return pa.struct(list(definition.tables[EVENTS]))
        table = ROWS if definition.kind is OperatorKind.ROW_PATTERN else EVENTS
        events = event_type(max((known.tables[table] for known in self._known), key=len))
        if events is None:
            raise StateError("the query keeps no columns of events", hint="partial_matches() has their number")
        return events

    def windows(self) -> DataFrame:
        """The open windows: ``key``, ``window_start``, ``window_end`` (NULL: global), ``kept_until``, which is its end with the
        allowed lateness, the number of its ``firings``, and that of the ``elements`` that it has.

        :raises StateError: it is not the state of windows
        """
        self._needs("windows", OperatorKind.WINDOWS)
        definition = self._defined("Windows")
        schema = windows_schema(key_type(definition))
        return self._decoded(_of_keys(), schema, lambda known, page, value: windows_of(known, value))

    def kept_rows(self, side: str) -> DataFrame:
        """The rows of one side of a join that may still join others: ``key``, ``time``, and ``event``, a struct of the columns
        that the query keeps. Rows that the watermark has not passed are :meth:`waiting_events`.

        :param side: "left" or "right"; of a join of many streams, the name of an input
        :raises StateError: it is not the state of a join, or there is no such side
        """
        self._needs("kept rows", OperatorKind.JOIN)
        if not isinstance(side, str) or side not in self.inputs:
            hint = ", ".join(f'kept_rows("{name}")' for name in self.inputs)
            raise StateError(f"a join has no side {shown(side)}", hint=hint)
        definition = self._defined("Kept rows")
        schema = waiting_schema(key_type(definition), max((known.tables[side] for known in self._known), key=len))
        return self._decoded(_of_keys(), schema, lambda known, page, value: kept_rows_of(known, side, value, schema))

    def state(self, name: str) -> DataFrame:
        """A keyed state of a user-defined operator, or the state of a window function by key (``ctx.global_state``): ``key``; of
        a list also ``position``, of a map ``map_key``; ``value``; and ``expires``, if the state has a time to live. Of an
        AggregatingState, ``value`` is the accumulator.

        :raises StateError: there is no such state
        """
        of_windows = self._needs("states", OperatorKind.OPERATOR, OperatorKind.WINDOWS) is OperatorKind.WINDOWS
        definition, table, positions = self._state_of(name, FUNCTION_STATE if of_windows else STATE)
        schema = entries_schema(key_type(definition), definition.tables[table], positions=positions)
        keys = FUNCTION_KEYS if of_windows else "keys"
        return self._decoded_state(table, schema, partial(states_of_keys, table=table, positions=positions, keys=keys))

    def window_state(self, name: str) -> DataFrame:
        """The state of a window function by window (``ctx.window_state``): the columns of :meth:`state`, and after ``key``
        ``window_start`` and ``window_end``, which are NULL for a global window. Session windows have no such state.

        :raises StateError: there is no such state
        """
        self._needs("states of windows", OperatorKind.WINDOWS)
        definition, table, positions = self._state_of(name, WINDOW_STATE)
        schema = window_state_schema(key_type(definition), definition.tables[table], positions=positions)
        rows = partial(states_of_windows, table=table, positions=positions)
        return self._decoded_state(table, schema, rows)

    def _decoded_state(
        self, table: str, schema: pa.Schema, rows: Callable[[StateDefinition, bytes], pa.Table]
    ) -> DataFrame:
        def decode(known: StateDefinition, page: int, value: bytes) -> pa.Table:
            return rows(known, value) if table in known.tables else schema.empty_table()  # the state may be new

        return self._decoded(_of_keys(), schema, decode)

    def broadcast(self, name: str) -> DataFrame:
        """A broadcast state of a user-defined operator, as :meth:`state`, without a key. All key groups have the same; it is
        read from one of them.

        :raises StateError: there is no such state
        """
        self._needs("broadcast states", OperatorKind.OPERATOR)
        definition, table, positions = self._state_of(name, BROADCAST)
        schema = entries_schema(None, definition.tables[table], positions=positions)
        in_first_group = F.col("key_group") == label(0)
        index = self._pages.where(_is(BROADCAST_PAGE) & in_first_group).first()
        if index is None or kind_of(bytes(index.value)) == Record.TABLES:

            def of_all(known: StateDefinition, page: int, value: bytes) -> pa.Table:
                tables = tables_of_page(known, value, broadcast=True)
                return entries(tables[table], None, positions=positions) if table in tables else schema.empty_table()

            return self._decoded(_is(BROADCAST_PAGE) & in_first_group, schema, of_all)
        pages = parts_in(bytes(index.value), name)

        def decode(known: StateDefinition, page: int, value: bytes) -> pa.Table:
            rows = batch_from_bytes(value, definition.tables[table])
            return entries(rows, None, positions=positions, first=PART * pages.index(page))

        return self._decoded(F.col("page").isin(pages) & in_first_group, schema, decode)

    def _state_of(self, name: str, prefix: str) -> tuple[StateDefinition, str, bool]:
        expect_string(StateError, name, "the name of a state must be a string", 'state("balance")')
        definition = self._defined("States")
        definition = next((known for known in self._known if prefix + name in known.tables), definition)
        if prefix + name not in definition.tables:
            names = [each.removeprefix(prefix) for each in definition.tables if each.startswith(prefix)]
            other = next((each for each in _READERS if each != prefix and each + name in definition.tables), None)
            raise StateError(
                f"{definition.details.get('operator', 'the window function')} has no {_READERS[prefix][0]} {shown(name)}",
                f"It has: {', '.join(names) or 'none'}",
                None if other is None else f'{_READERS[other][1]}("{name}")',
            )
        return definition, prefix + name, definition.details["kinds"][name] == StateKind.LIST.value

    def timers(self) -> DataFrame:
        """The timers of a user-defined operator: ``key``, ``name``, ``time``, and ``domain``: "event time" or "processing time".

        :raises StateError: it is not the state of such an operator
        """
        self._needs("timers", OperatorKind.OPERATOR)
        definition = self._defined("Timers")

        def decode(known: StateDefinition, page: int, value: bytes) -> pa.Table:
            tables = tables_of_page(known, value)
            return timers(tables, _keys(known, tables))

        return self._decoded(_of_keys(), timers_schema(key_type(definition)), decode)

    def waiting_events(self, name: str | None = None) -> DataFrame:
        """The events of an input that wait for the watermark, or to be selected: ``key``, ``time``, and ``event``, a struct of
        the columns that the query keeps of events.

        With rules, there is one row for each key by which a rule groups the event.

        :param name: the input. Default: the only one
        :raises StateError: there is no such input, or the operator has several and none is named
        """
        expect(StateError, name, str | None, "the name of an input must be a string", 'waiting_events("orders")')
        definition, names = self._defined("Waiting events"), self.inputs
        if name is None and len(names) == 1:
            name = names[0]
        if name is None or name not in names:
            what = "the operator has several inputs" if name is None else f"there is no input {shown(name)}"
            raise StateError(
                what, f"Inputs: {', '.join(names) or 'unknown'}", None if name else f'"{names[0]}"' if names else None
            )
        wanted, number = name, list(definition.inputs).index(name)
        schema = waiting_schema(key_type(definition), max((known.inputs[name] for known in self._known), key=len))

        def buffers(group: int, header: GroupHeader) -> list[tuple[Any, ...]]:
            return [(group, _HEADER, header.buffers[number])] if header.buffers[number] else []

        def chunks_of(group: int, header: GroupHeader) -> list[tuple[Any, ...]]:
            return [(group, place) for place, _ in header.chunks[number]]

        recent = _of_headers(self._headers, _PAGES, buffers)
        places = _of_headers(self._headers, pa.schema(list(_PAGES)[:2]), chunks_of)
        chunks = self._pages.where(_is_of(PageKind.WAITING_EVENTS)).join(places, ["key_group", "page"])

        def decode(known: StateDefinition, page: int, value: bytes) -> pa.Table:
            return waiting_events(known, wanted, value, schema)

        waiting = _decoded(recent.unionByName(chunks), schema, decode, definition, self._others)
        if all(WAITING + name not in known.tables for known in self._known):
            return waiting

        def unselected(known: StateDefinition, page: int, value: bytes) -> pa.Table:
            tables = tables_of_page(known, value)
            if WAITING + wanted not in tables:
                return schema.empty_table()
            return unselected_events(tables[WAITING + wanted], _keys(known, tables), schema)

        return waiting.unionByName(self._decoded(_of_keys(), schema, unselected))

    # ------------------------------------------------------------------ summaries

    def heaviest_keys(self, limit: int = 10) -> DataFrame:
        """The keys with most state: ``key`` and ``rule``, the number of ``partial_matches`` and of their ``events``; or the
        number of ``windows`` and of their ``elements``; or the number of ``rows`` that a join keeps; or the number of ``entries``
        of all states and of ``timers``.

        :raises StateError: the kind of the state is unknown
        """
        _check_rows(limit)
        kind = self._needs("keys", *OperatorKind)
        if kind is OperatorKind.WINDOWS:
            sums = [F.count("*").alias("windows"), F.sum("elements").alias("elements")]
            by_key = self.windows().groupBy("key").agg(*sums)
        elif kind is OperatorKind.JOIN:
            rows = reduce(DataFrame.unionAll, [self.kept_rows(name).select("key") for name in self.inputs])
            by_key = rows.groupBy("key").agg(F.count("*").alias("rows"))
        elif kind is OperatorKind.OPERATOR:
            by_key = self._entries_by_key()
        else:
            by = ["key", "rule", "version"] if kind is OperatorKind.RULES else ["key"]
            sums = [
                F.count("*").alias("partial_matches"),
                F.sum("events").alias("events"),
                F.min("since").alias("since"),
            ]
            by_key = self.partial_matches().groupBy(*by).agg(*sums)
        columns = {OperatorKind.WINDOWS: "elements", OperatorKind.JOIN: "rows", OperatorKind.OPERATOR: "entries"}
        most = columns.get(kind, "partial_matches")
        return by_key.orderBy(F.desc(most), F.col("key").cast("string")).limit(limit)

    def _entries_by_key(self) -> DataFrame:
        definition = self._defined("Keys")
        schema = pa.schema([("key", key_type(definition)), ("entries", pa.int64()), ("timers", pa.int64())])

        def decode(known: StateDefinition, page: int, value: bytes) -> pa.Table:
            tables = tables_of_page(known, value)
            keys = _keys(known, tables)
            return pa.table([keys, *map(pa.array, numbers_of_entries(tables, len(keys)))], schema=schema)

        return self._decoded(_of_keys(), schema, decode)

    def deadlines(self, limit: int = 10) -> DataFrame:
        """The first deadlines: partial matches, by ``deadline``; windows, by ``kept_until``; or timers, by ``time``.

        :raises StateError: the kind of the state is unknown, or it is that of a join
        """
        _check_rows(limit)
        kind = self._needs("deadlines", *(kind for kind in OperatorKind if kind is not OperatorKind.JOIN))
        if kind is OperatorKind.WINDOWS:
            with_deadlines, column = self.windows(), "kept_until"
        elif kind is OperatorKind.OPERATOR:
            with_deadlines, column = self.timers(), "time"
        else:
            with_deadlines, column = self.partial_matches(), "deadline"
        return with_deadlines.where(F.col(column).isNotNull()).orderBy(column, F.col("key").cast("string")).limit(limit)

    # ------------------------------------------------------------------ decoding

    def _needs(self, what: str, *kinds: OperatorKind) -> OperatorKind:
        if self.kind is None:
            raise StateError(
                f"there is no state with {what}, or it is unknown what it consists of",
                "An earlier release wrote it, or there is no state at all.",
                "name the operator: read_state(spark, checkpoint, operator); or let the query run once with this release",
            )
        if self.kind not in kinds:
            has = {
                OperatorKind.WINDOWS: "windows(); state(name) and window_state(name), if its function has state",
                OperatorKind.JOIN: "kept_rows(side), waiting_events(side)",
                OperatorKind.OPERATOR: "state(name), broadcast(name), timers()",
            }
            raise StateError(
                f"the state of {_what_kind(self.kind)} has no {what}", hint=has.get(self.kind, "partial_matches()")
            )
        return self.kind

    def _defined(self, what: str) -> StateDefinition:
        if self._definition is None:
            raise StateError(
                f"{what} cannot be read: the state has no names and types",
                "An earlier release wrote it.",
                "name the operator: read_state(spark, checkpoint, operator); or let the query run once with this release",
            )
        return self._definition

    def _decoded(self, pages: Column, schema: pa.Schema, decode: _Decode) -> DataFrame:
        return _decoded(self._pages.where(pages), schema, decode, self._definition, self._others)


def _decoded(
    pages: DataFrame,
    schema: pa.Schema,
    decode: _Decode,
    definition: StateDefinition | None,
    others: Mapping[int, StateDefinition],
) -> DataFrame:
    """:param others: the definitions of the key groups whose definition differs"""

    def decoder(batches: _Batches) -> _Batches:
        for batch in batches:
            groups, numbers = (batch.column(name).to_pylist() for name in ("key_group", "page"))
            for group, page, value in zip(groups, numbers, batch.column("value"), strict=True):
                decoded = decode(others.get(group, definition), page, value.as_py())
                yield from cast_table(decoded, schema).to_batches()

    return pages.mapInArrow(decoder, spark_schema(schema))


def _of_headers(
    headers: DataFrame, schema: pa.Schema, rows_of: Callable[[int, GroupHeader], list[tuple[Any, ...]]]
) -> DataFrame:
    """The rows that are computed from the label of each key group and its header."""

    def decode(batches: _Batches) -> _Batches:
        for batch in batches:
            rows: list[tuple[Any, ...]] = []
            for number, value in zip(batch.column("key_group").to_pylist(), batch.column("value"), strict=True):
                rows += rows_of(number, GroupHeader.from_bytes(value.as_py()))
            columns = list(zip(*rows, strict=True)) or [()] * len(schema)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return headers.mapInArrow(decode, spark_schema(schema))


def _keys(definition: StateDefinition, tables: Mapping[str, pa.Table]) -> pa.Array:
    return keys_as_structs(tables["keys"], definition.keys.names)


def _is(page: int) -> Column:
    return F.col("page") == page


def _of_keys() -> Column:
    return _is_of(PageKind.FIXED_KEYS) | _is_of(PageKind.KEYS)


def _is_of(kind: PageKind) -> Column:
    return F.col("page").between(kind.first, kind.last)


def _least(times: Any) -> int:
    return int(times.min()) if len(times) else BEFORE_TIME


def _check_rows(limit: Any) -> None:
    expect(StateError, limit, int, "the number of rows must be an integer", "10")
    if not 1 <= limit <= 2**31 - 1:
        raise StateError(f"the number of rows must be positive, not {limit:,}", hint="10")


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in list(schema)[1:])


def _what(definition: StateDefinition) -> str:
    return str(definition.details.get("operator") or _what_kind(definition.kind))


def _what_kind(kind: OperatorKind) -> str:
    return {
        OperatorKind.PATTERN: "a pattern",
        OperatorKind.RULES: "rules",
        OperatorKind.ROW_PATTERN: "MATCH_RECOGNIZE",
        OperatorKind.WINDOWS: "windows",
        OperatorKind.JOIN: "a join",
        OperatorKind.OPERATOR: "an operator",
    }[kind]
