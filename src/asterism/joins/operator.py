"""A join of two streams as an operator: in columns, per key group.

Rows wait until the watermarks of both inputs have passed them. Each call numbers the keys of the rows that are ready and of the
rows of the state, and :mod:`asterism.joins.kinds` finds the candidates of all of them at once. The state contains the rows that a
later row may still join:

* An interval join emits a pair when the watermark has passed both rows. A row of the left side without a partner is emitted
  when the watermark has passed its interval.
* An as-of join emits a row when the watermark has passed it. The state contains the last version of each key.
* A window join emits all pairs of a window when the watermark has passed its end.

So the result depends only on the rows that are not late, and not on their order of arrival.

Source: Flink's interval joins, window joins and temporal joins.

See docs/decisions/0057.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.arguments import expect_string, expect_strings, shown
from asterism.columns.arrays import Ints, Mask
from asterism.columns.groups import mask_of
from asterism.columns.sort_keys import SortKey, check_order, order_of
from asterism.columns.time import END_OF_TIME, TIME, Described, TimeColumn
from asterism.errors import ColumnNotFoundError, StreamDefinitionError
from asterism.expressions.computed_columns import is_computed, visible
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import columns_of
from asterism.expressions.types import TIME_ZONE
from asterism.joins.conditions import bound_condition, inputs_of, names_in_conditions, passed
from asterism.joins.kept_rows import MATCHED, SEEN, KeptRows, key_columns, stored_fields
from asterism.joins.kinds import JoinKind, JoinSearch, SideSearch, WindowJoin
from asterism.joins.matching import JoinRows
from asterism.joins.stored_joins import LEFT, RIGHT
from asterism.joins.types import BRINGING, FILTERING, INNER, KEEPS_LEFT, KEEPS_RIGHT, LEFT_SEMI, RIGHT_OUTER
from asterism.operators.evolution import FIXED, aligned_tables
from asterism.operators.key_group import LATE, Group, KeyGroupOperator, complete, key_schema_of, late_table
from asterism.operators.multiple_input import Wire, check_same_keys
from asterism.operators.operator import InputSpec
from asterism.operators.state.pages import PAGE
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.windows.spec import check_zone

JOINED = "results"
"""The output of joined rows."""
LATE_LEFT, LATE_RIGHT = "late_left", "late_right"
"""The outputs of late rows."""
WINDOW_COLUMNS = ("window_start", "window_end")
PAIRS = 2**18
"""The maximum number of candidates that are in memory at once."""


def late_output(name: str) -> str:
    """The output of the late rows of an input."""
    return f"late_{name}"


class StreamJoinOperator(KeyGroupOperator):
    """The inputs, the state and the exchange of a join of streams.

    :ivar kept: the columns of each input that results and conditions need
    """

    metrics: Sequence[str] = (LATE,)
    inputs: Mapping[str, InputSpec]
    kept: dict[str, list[str]]
    needs_times: str
    """The error if an input has no event time; *without_time* is its detail."""
    without_time: str
    rows_of: str
    """The rows of an input, in errors."""

    def set_wires(self, wires: Mapping[str, Wire], late: Collection[str]) -> None:
        """
        :param late: the requested outputs of late rows
        :raises StreamDefinitionError: an input has no event time, or the keys differ
        """
        self.wires = dict(wires)
        self.late_outputs = [name for name in map(late_output, wires) if name in late]
        self.times = {name: self._time_of(name, wire) for name, wire in wires.items()}
        keys = {name: [wire.schema.field(key) for key in wire.keys] for name, wire in wires.items()}
        check_same_keys(keys)
        fields = key_schema_of(next(iter(keys.values())))
        self.key_schema = pa.schema([field.with_name("k:" + field.name) for field in fields])
        self.processing_time = any(wire.idle_after is not None for wire in wires.values())

    def _time_of(self, name: str, wire: Wire) -> TimeColumn:
        if wire.time is None:
            detail = self.without_time.format(name=name)
            raise StreamDefinitionError(self.needs_times, detail, 'KeyedStream(..., time="ts")')
        return TimeColumn.of(wire.time, wire.schema)

    def set_schemas(self, result: pa.Schema, sent: Mapping[str, Collection[str]], *defined_by: object) -> None:
        """
        :param sent: the columns of each input that results, conditions and the order need
        :param defined_by: what identifies the join besides its inputs and its result
        """
        late = {late_output(name): visible(wire.schema) for name, wire in self.wires.items()}
        self.output_schemas = {JOINED: result, **{name: late[name] for name in self.late_outputs}}
        paged = [pa.field(PAGE, pa.uint8())] if self.pages > 1 else []
        inputs = {}
        for name, wire in self.wires.items():
            names = wire.schema.names if late_output(name) in self.late_outputs else sent[name]
            read = pa.schema([f for f in wire.schema if f.name in {*names, *wire.keys, wire.time}])
            stored = stored_fields(wire.schema, names)
            prepared = pa.schema([*self.key_schema, pa.field(TIME, pa.int64()), *paged, *stored])
            inputs[name] = InputSpec(read, prepared, idle_after=wire.idle_after, watermark_by=wire.watermark_by)
        self.inputs = inputs
        self.row_schemas = {
            name: pa.schema(
                [
                    *self.key_schema,
                    pa.field(TIME, pa.int64()),
                    *self._flags(name),
                    *stored_fields(wire.schema, self.kept[name]),
                ]
            )
            for name, wire in self.wires.items()
        }
        of_inputs = (
            [list(wire.keys) for wire in self.wires.values()], [Described(time) for time in self.times.values()],
            self.pages, self.processing_time, [str(spec.prepared) for spec in inputs.values()], str(result),
        )  # fmt: skip
        self.fingerprint = hashlib.sha256(repr((*defined_by, *of_inputs)).encode()).digest()[:16]

    def _flags(self, name: str) -> list[pa.Field]:
        """What the state records of the rows of an input."""
        return []

    @property
    def definition(self) -> StateDefinition:
        fixed = {**self._fixed, "the use of processing time": str(self.processing_time), "pages": str(self.pages)}
        return StateDefinition(
            OperatorKind.JOIN,
            key_columns(self.key_schema),
            self.row_schemas,
            {name: spec.prepared for name, spec in self.inputs.items()},
            {FIXED: fixed},
        )

    @property
    @abstractmethod
    def _fixed(self) -> dict[str, str]:
        """What must not change while there is state."""

    def converted(self, old: StateDefinition, page: bytes) -> bytes:
        return aligned_tables(page, old.tables, self.row_schemas)

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """The key, the time, and the columns that are kept."""
        wire, prepared = self.wires[name], self.inputs[name].prepared
        full = complete(events, wire.schema)
        times = self.times[name].of_events(
            full,
            lenient=late_output(name) in self.late_outputs,
            what=self.rows_of.format(name=name),
            detail="A row without a time joins nothing.",
            hint=f"filter such rows out, or read them from the output {late_output(name)}",
        )
        columns = self.first_columns(events, [full.column(key) for key in wire.keys], times)
        columns += [full.column(field.name[2:]) for field in prepared if field.name.startswith("e:")]
        return pa.table(columns, schema=prepared)

    def late(self, group: Group, name: str, events: pa.Table) -> None:
        group.metrics[LATE] += events.num_rows
        if late_output(name) in self.late_outputs:
            group.emit(late_output(name), late_table(visible(self.wires[name].schema), events))


class JoinOperator(StreamJoinOperator):
    """A join of the inputs ``left`` and ``right``.

    The rows of the output JOINED have the columns of the left side, followed by the columns of the right side except its key. In
    a window join, the first columns are those of the window. A key with a NULL equals no key.

    :param left, right: the columns, keys and event times of the inputs
    :param kind: an IntervalJoin, AsOfJoin or WindowJoin
    :param how: one of STREAM_JOIN_TYPES; for an as-of join, one of JOIN_TYPES
    :param on: a further condition on both rows, in Spark SQL; columns have the names that they have in the result
    :param prefix: a prefix for the names of the columns of the right side
    :param order_by: the order of rows of the right side with equal times: columns, descending with a leading ``-``
    :param late: the requested outputs of late rows: LATE_LEFT, LATE_RIGHT
    :param pages: a fixed number of pages of state per key group; None: as many as the size of the state requires
    :raises StreamDefinitionError: the arguments do not match
    :raises ExpressionError: the condition does not match the columns

    >>> from datetime import timedelta
    >>> from asterism.joins.kinds import IntervalJoin
    >>> from asterism.testing import OperatorHarness
    >>> orders, payments = pa.schema({"id": "int64", "ts": "int64"}), pa.schema({"id": "int64", "at": "int64"})
    >>> kind = IntervalJoin.of((timedelta(0), timedelta(hours=1)))
    >>> join = JoinOperator(Wire(orders, ["id"], "ts"), Wire(payments, ["id"], "at"), kind)
    >>> harness = OperatorHarness(join, keys=["id"])
    >>> harness = harness.feed(pa.table({"id": [1, 2], "ts": [0, 0]}), "left").feed(pa.table({"id": [1], "at": [5000]}), "right")
    >>> harness.end().rows("results")
    [{'id': 1, 'ts': 0, 'at': 5000}]
    """

    without_time = "The {name} side has none."
    rows_of = "rows of the {name} side"

    def __init__(
        self,
        left: Wire,
        right: Wire,
        kind: JoinKind,
        how: str = INNER,
        *,
        on: str | None = None,
        prefix: str = "",
        order_by: Sequence[str] = (),
        late: Collection[str] = (),
        pages: int | None = None,
    ) -> None:
        self.set_pages(pages)
        self.kind, self.how, self.on, self.outlives = kind, _checked_type(how, kind), on, kind.outlives
        expect_string(StreamDefinitionError, prefix, "the prefix must be a string", 'prefix="payment_"')
        expect_strings(StreamDefinitionError, order_by, "order_by must be a list of columns", 'order_by=["version"]')
        self.needs_times = f"{kind.name} needs the event time of both sides"
        self.order_by = [SortKey.of(text) for text in order_by]
        self.set_wires({LEFT: left, RIGHT: right}, late)
        if isinstance(kind, WindowJoin):
            for time in self.times.values():
                check_zone(kind.windows, time)
        self.names = names_in_conditions(self.wires, {RIGHT: prefix})
        self.right_names = self.names[RIGHT]
        self._make_result()
        self._bind(on)
        sent = self._sent()
        self.set_schemas(self.result, sent, type(kind).__name__, kind, how, on, prefix, list(order_by))

    @property
    def _fixed(self) -> dict[str, str]:
        return {
            "the kind of the join": self.kind.name,
            "what is joined": repr(self.kind),
            "the type of the join": self.how,
            **{f"the event time of the {n} side": f"{Described(t)!r}" for n, t in self.times.items()},
            "the order of versions": ", ".join(map(str, self.order_by)) or "none",
        }

    # ------------------------------------------------------------------ definition

    def _make_result(self) -> None:
        left, right = visible(self.wires[LEFT].schema), self.wires[RIGHT].schema
        moment = self.times[LEFT].written
        self.window_fields = (
            [pa.field(name, moment) for name in WINDOW_COLUMNS] if isinstance(self.kind, WindowJoin) else []
        )
        self.right_fields = [right.field(name).with_name(new) for name, new in self.right_names.items()]
        computed = [field for wire in self.wires.values() for field in wire.schema if is_computed(field.name)]
        self.both = pa.schema([*left, *self.right_fields, *computed], metadata=_zone(left) or _zone(right))
        """The columns of a pair, which the condition can read."""
        self.brings = self.how in BRINGING
        owners: dict[str, str] = {field.name.lower(): "of the window" for field in self.window_fields}
        for name, side in [*((n, LEFT) for n in left.names), *((n, RIGHT) for n in self.right_names.values())]:
            if name.lower() in owners and (side == LEFT or self.brings or self.on is not None):
                hint = (
                    'prefix="right_" for the columns of the right side'
                    if side == RIGHT
                    else f"rename that column, for example to {'row_' + name!r}"
                )
                raise StreamDefinitionError(
                    f"two columns of the join are named {shown(name)}",
                    f"One is {owners[name.lower()]}, one is of the {side} side. Spark treats names that differ in case as equal.",
                    hint,
                )
            owners[name.lower()] = f"of the {side} side"
        self.result = pa.schema([*self.window_fields, *left, *(self.right_fields if self.brings else [])])

    def _bind(self, on: str | None) -> None:
        """Bind the condition. The columns that it reads are kept."""
        self.condition: Vectorized | None = None
        self._read: set[str] = set()
        if on is None:
            return
        expect_string(
            StreamDefinitionError, on, "the condition of a join must be a string", 'on="amount >= payment_amount"'
        )
        self.condition = bound_condition(on, self.both, inputs_of(self.names))
        self._read = {self.both.names[number] for number in columns_of(self.condition.texts[0])}

    def _sent(self) -> dict[str, list[str]]:
        """The columns of each side that results, the condition and the order need."""
        left, right = self.wires[LEFT], self.wires[RIGHT]
        joined = {name for name, new in self.right_names.items() if self.brings or new in self._read}
        joined |= {name for name in self._read if is_computed(name)}
        order = {name for name, *_ in self.order_by}
        for name in order - set(right.schema.names):
            raise ColumnNotFoundError.from_missing_and_available(name, visible(right.schema).names, "in order_by")
        check_order(right.schema, self.order_by)
        self.kept = {LEFT: list(left.schema.names), RIGHT: [name for name in right.schema.names if name in joined]}
        return self.kept | {RIGHT: [name for name in right.schema.names if name in joined | order]}

    def _flags(self, name: str) -> list[pa.Field]:
        """Whether a row has joined another one, and when it was written, if the join needs them."""
        keeps = self.kind.remembers_matches and self.how in (KEEPS_LEFT if name == LEFT else KEEPS_RIGHT)
        matched = [pa.field(MATCHED, pa.bool_())] if keeps else []
        return [*([pa.field(SEEN, pa.int64())] if self.kind.needs_seen else []), *matched]

    # ------------------------------------------------------------------ with state

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> Iterator[None]:
        if self.order_by and RIGHT in ready:
            # The search keeps this order among equal times.
            order = order_of(ready[RIGHT], [key._replace(name="e:" + key.name) for key in self.order_by])
            ready = {**ready, RIGHT: ready[RIGHT].take(pa.array(order))}
        kept = KeptRows.load(group, ready, self.row_schemas, self.key_schema.names, horizon)
        tables, sides = kept.tables, kept.numbered()
        search = self.kind.search(sides[LEFT], sides[RIGHT], horizon)
        found = {LEFT: search.left, RIGHT: search.right}
        matched = {name: _matched_before(tables[name])[side.rows] for name, side in found.items()}
        matched_before = matched[LEFT].copy()
        yield from self._join(group, tables, search, matched)
        self._emit_left_rows(group, tables[LEFT], search.left, matched[LEFT], matched_before)
        self._emit_unmatched_targets(group, tables[RIGHT], search.right, matched[RIGHT])
        self._write(kept, sides, found, matched, horizon, over=group.over)

    def _join(
        self, group: Group, tables: Mapping[str, pa.Table], search: JoinSearch, matched: Mapping[str, Mask]
    ) -> Iterator[None]:
        """Emit pairs, and mark the probes and the targets that have joined."""
        left, right = tables[LEFT], tables[RIGHT]
        for candidates in search.candidates:
            if self.condition is None and not self.brings:
                matched[LEFT][candidates.probes[candidates.end > candidates.begin]] = True
                continue
            for probes, targets in candidates.pairs(PAIRS):
                rows, partners = search.left.rows[probes], search.right.rows[targets]
                if self.condition is not None:
                    chosen = self._passed(self.condition, left, rows, right, partners)
                    probes, targets, rows, partners = (each[chosen] for each in (probes, targets, rows, partners))
                matched[LEFT][probes] = matched[RIGHT][targets] = True
                if self.brings and len(rows):
                    right_rows = right.select(["e:" + name for name in self.right_names]).take(pa.array(partners))
                    self._emit(group, left, search.left, probes, right_rows.columns)
                    yield

    def _passed(self, condition: Vectorized, left: pa.Table, rows: Ints, right: pa.Table, partners: Ints) -> Mask:
        columns: dict[str, Any] = {}
        for name, table, chosen in ((LEFT, left, rows), (RIGHT, right, partners)):
            names = self.names[name] | {
                column: column for column in self.wires[name].schema.names if is_computed(column)
            }
            read = {new: "e:" + column for column, new in names.items() if new in self._read}
            taken = table.select(list(read.values())).take(pa.array(chosen))
            columns |= dict(zip(read, taken.columns, strict=True))
        return passed(condition, columns, len(rows))

    def _emit_left_rows(
        self, group: Group, left: pa.Table, search: SideSearch, matched: Mask, matched_before: Mask
    ) -> None:
        """Emit the rows of the left side that the result has without a row of the right side."""
        if self.how in (INNER, RIGHT_OUTER):
            return
        probes = np.flatnonzero(matched & ~matched_before if self.how == LEFT_SEMI else search.decided & ~matched)
        nothing = [pa.nulls(len(probes), field.type) for field in self.right_fields] if self.brings else []
        self._emit(group, left, search, probes, nothing)

    def _emit_unmatched_targets(self, group: Group, right: pa.Table, search: SideSearch, matched: Mask) -> None:
        """Emit the rows of the right side that join nothing. As with USING in SQL, they have their key."""
        if self.how not in KEEPS_RIGHT:
            return
        targets = np.flatnonzero(search.decided & ~matched)
        rows = right.take(pa.array(search.rows[targets]))
        columns = self._windows(search, targets)
        for field in visible(self.wires[LEFT].schema):
            is_key = field.name in self.wires[LEFT].keys
            columns.append(rows.column("k:" + field.name) if is_key else pa.nulls(len(targets), field.type))
        columns += rows.select(["e:" + name for name in self.right_names]).columns
        group.emit(JOINED, pa.table(columns, schema=self.output_schemas[JOINED]))

    def _emit(
        self, group: Group, left: pa.Table, search: SideSearch, probes: Ints, right_columns: Sequence[Any]
    ) -> None:
        columns = self._windows(search, probes)
        left_rows = left.select(["e:" + name for name in self.names[LEFT]]).take(pa.array(search.rows[probes]))
        group.emit(JOINED, pa.table([*columns, *left_rows.columns, *right_columns], schema=self.output_schemas[JOINED]))

    def _windows(self, search: SideSearch, entries: Ints) -> list[Any]:
        """The columns of the windows of some entries."""
        if search.windows is None:
            return []
        start = search.windows[0][entries]
        return [self.times[LEFT].from_micros(bound[entries], start) for bound in search.windows]

    def _write(
        self,
        kept: KeptRows,
        sides: Mapping[str, JoinRows],
        found: Mapping[str, SideSearch],
        matched: Mapping[str, Mask],
        horizon: int,
        *,
        over: bool,
    ) -> None:
        tables, keeps, dues = [], [], []
        for name, side in found.items():
            rows, keep, due = kept.tables[name], side.keep & (not over), side.due
            only_joined = self.how in (INNER, LEFT_SEMI, RIGHT_OUTER) if name == LEFT else self.how not in KEEPS_RIGHT
            if side.windows is None:  # probes and targets are rows
                if name == LEFT and self.how in FILTERING:
                    keep &= ~matched[name]
                if MATCHED in rows.column_names:
                    rows = rows.set_column(rows.column_names.index(MATCHED), MATCHED, pa.array(matched[name]))
                # A row is due when it can be emitted without a partner.
                due = np.where(matched[name] | only_joined, END_OF_TIME, due)
            if only_joined:
                keep &= sides[name].joins
            tables.append(rows)
            keeps.append(keep)
            dues.append(due)
        kept.write(tables, keeps, dues, [side.over for side in found.values()], horizon)


def _matched_before(rows: pa.Table) -> Mask:
    if MATCHED in rows.column_names:
        return mask_of(rows.column(MATCHED)).copy()
    return np.zeros(rows.num_rows, np.bool_)


def _zone(schema: pa.Schema) -> dict[bytes, bytes] | None:
    zone = (schema.metadata or {}).get(TIME_ZONE)
    return None if zone is None else {TIME_ZONE: zone}


def _checked_type(how: Any, kind: JoinKind) -> str:
    if not isinstance(how, str) or how not in kind.types:
        of_versions = isinstance(how, str) and how in KEEPS_RIGHT
        raise StreamDefinitionError(
            f"{kind.name} cannot be of the type {shown(how)}",
            "A version that no row has joined may be valid for a later row." if of_versions else None,
            f"use one of {', '.join(kind.types)}",
        )
    return how
