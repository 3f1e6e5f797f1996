"""A join of many streams as one operator: in columns, per key group, without intermediate results.

Rows wait until the watermarks of all inputs have passed them. :mod:`asterism.joins.multi_join` finds the results of a call among
the rows that are ready and the rows of the state. The state contains each row once, until no later row can join it.

See docs/decisions/0102.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.arguments import expect, expect_number, expect_string, shown
from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import Described
from asterism.errors import (
    LimitExceededError,
    StreamDefinitionError,
)
from asterism.expressions.computed_columns import is_computed
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import columns_of
from asterism.expressions.types import TIME_ZONE
from asterism.joins.conditions import bound_condition, inputs_of, names_in_conditions, passed
from asterism.joins.kept_rows import KeptRows
from asterism.joins.kinds import IntervalJoin
from asterism.joins.multi_join import NO_ROW, Bound, MultiJoin, MultiJoinSearch
from asterism.joins.operator import JOINED, StreamJoinOperator
from asterism.joins.types import INNER, LEFT_OUTER
from asterism.operators.key_group import ONE_KEY, Group
from asterism.operators.multiple_input import Wire

MAX_INPUTS = 16
MAX_ROWS = 1_000_000
PAIRS = 2**19
"""The maximum number of rows that are in memory at once, before results are emitted, divided by the number of inputs."""
_BETWEEN = 'between={("orders", "payments"): (timedelta(0), timedelta(hours=1))}'


class MultiJoinOperator(StreamJoinOperator):
    """A join of 2 to MAX_INPUTS inputs.

    The rows of the output JOINED have the columns of the first input, followed by the columns of the others except their keys. A
    key with a NULL equals no key.

    :param wires: the columns, keys and event times of the inputs, in the order of the join
    :param between: for pairs of inputs, the interval of the time of the second one relative to the time of the first one
    :param how: the types of the joins: ``inner`` or ``left``, by input; default: ``inner``
    :param on: further conditions, in Spark SQL, by input. Each can read the columns of this input and of those before it.
    :param prefix: prefixes for the names of columns, by input
    :param late: the outputs of late rows that are wanted, of :func:`late_output`
    :param max_rows: the maximum number of rows of a key in the state
    :param pages: a fixed number of pages of state per key group; None: as many as the size of the state requires
    :raises StreamDefinitionError: the arguments do not match
    :raises ExpressionError: a condition does not match the columns
    """

    needs_times = "a join of many streams needs the event times of all inputs"
    without_time = "The input {name!r} has none."
    rows_of = 'rows of the input "{name}"'

    def __init__(
        self,
        wires: Mapping[str, Wire],
        between: Mapping[tuple[str, str], Any],
        *,
        how: Mapping[str, str] | None = None,
        on: Mapping[str, str] | None = None,
        prefix: Mapping[str, str] | None = None,
        late: Collection[str] = (),
        max_rows: int = MAX_ROWS,
        pages: int | None = None,
    ) -> None:
        self.set_pages(pages)
        check_inputs(wires)
        expect_number(StreamDefinitionError, max_rows, "max_rows", least=1)
        self.max_rows = max_rows
        self.names = list(wires)
        self.set_wires(wires, late)
        hows = self._by_input(how, "how", 'how={"payments": "left"}')
        self.join = MultiJoin(self._left(hows), self._bounds(between))
        self.outlives = self.join.outlives
        self.prefixes = self._by_input(prefix, "prefix", 'prefix={"payments": "paid_"}')
        self._make_result()
        self._bind(self._by_input(on, "on", 'on={"payments": "paid >= amount"}'))
        self.kept = {
            name: [column for of, column, _ in self._readable if of == number] for number, name in enumerate(self.names)
        }
        definition = ("multi_join", self.names, self.join, sorted((on or {}).items()), sorted(self.prefixes.items()))
        self.set_schemas(self.result.remove_metadata(), self.kept, *definition)

    @property
    def _fixed(self) -> dict[str, str]:
        return {
            "the kind of the join": "a join of many streams",
            "what is joined": repr(self),
            **{f"the event time of {n}": f"{Described(t)!r}" for n, t in self.times.items()},
        }

    def __repr__(self) -> str:
        parts = [self.names[0]]
        for number, name in enumerate(self.names[1:], 1):
            bounds = [
                f"{self.names[bound.earlier]} {IntervalJoin(bound.lower, bound.upper)!r}"
                for bound in sorted(self.join.of_input[number], key=lambda bound: bound.earlier)
            ]
            how = LEFT_OUTER if self.join.left[number] else INNER
            parts.append(f"{how} {name} ({' and '.join(bounds)})")
        return ", ".join(parts)

    # ------------------------------------------------------------------ definition

    def _by_input(self, values: Mapping[str, str] | None, what: str, hint: str) -> dict[str, str]:
        """:raises StreamDefinitionError: it is not a dict of strings by input"""
        expect(StreamDefinitionError, values, dict | None, f"{what} must be a dict by input", hint)
        for name, value in (values or {}).items():
            self._check_name(name, what)
            expect_string(StreamDefinitionError, value, f"{what} of the input {shown(name)} must be a string", hint)
        return dict(values or {})

    def _check_name(self, name: Any, what: str) -> None:
        if name not in self.names:
            close = difflib.get_close_matches(str(name), self.names, n=1)
            raise StreamDefinitionError(
                f"{what} names an input that the join does not have: {shown(name)}",
                f"Inputs: {', '.join(self.names)}",
                f"did you mean {close[0]!r}?" if close else None,
            )

    def _left(self, how: Mapping[str, str]) -> tuple[bool, ...]:
        for name, kind in how.items():
            if kind not in (INNER, LEFT_OUTER):
                raise StreamDefinitionError(
                    f"the join of {name!r} cannot be of the type {shown(kind)}",
                    "A join of many streams is inner or left, for each input.",
                    "use inner or left; or interval_join, which has the other types for two streams",
                )
        if how.get(self.names[0], INNER) != INNER:
            raise StreamDefinitionError(
                f"the first input {self.names[0]!r} cannot be joined as left",
                "A left join keeps the rows of the inputs before it.",
                f"how={{{self.names[1]!r}: 'left'}}",
            )
        return tuple(how.get(name) == LEFT_OUTER for name in self.names)

    def _bounds(self, between: Any) -> tuple[Bound, ...]:
        expect(
            StreamDefinitionError, between, Mapping, "between must be a dict of intervals by pairs of inputs", _BETWEEN
        )
        bounds: dict[tuple[int, int], Bound] = {}
        for pair, interval in between.items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise StreamDefinitionError(
                    f"between has the key {shown(pair)}, which is not a pair of inputs", hint=_BETWEEN
                )
            for name in pair:
                self._check_name(name, "between")
            first, second = map(self.names.index, pair)
            if first == second:
                raise StreamDefinitionError(f"between has an interval of {pair[0]!r} and itself", hint=_BETWEEN)
            try:
                bound = Bound.of(first, second, IntervalJoin.of(interval))
            except StreamDefinitionError as error:
                detail = f"The interval of {pair[0]!r} and {pair[1]!r}" + (f"\n{error.detail}" if error.detail else "")
                raise StreamDefinitionError(error.message, detail, error.hint) from None
            if (bound.earlier, bound.later) in bounds:
                raise StreamDefinitionError(f"between has two intervals of {pair[0]!r} and {pair[1]!r}", hint=_BETWEEN)
            bounds[bound.earlier, bound.later] = bound
        for number, name in enumerate(self.names[1:], 1):
            if not any(later == number for _, later in bounds):
                pair = f"({self.names[0]!r}, {name!r})"
                raise StreamDefinitionError(
                    f"the input {name!r} has no interval with an input before it",
                    "Without one, its rows would have to be kept forever.",
                    f"between={{{pair}: (timedelta(0), timedelta(hours=1))}}; or another order of the inputs",
                )
        return tuple(sorted(bounds.values(), key=lambda bound: (bound.later, bound.earlier)))

    def _make_result(self) -> None:
        """The columns of the result, in the order of the inputs."""
        self.columns: list[tuple[int, str, pa.Field]] = []
        """Of the result: the input, the name that the column has there, and the column."""
        self._readable: list[tuple[int, str, pa.Field]] = []
        """The same, of conditions: with those that Spark computes for them."""
        owners: dict[str, str] = {}
        self._names = names_in_conditions(self.wires, self.prefixes)
        for number, (name, wire) in enumerate(self.wires.items()):
            of_input = []
            for column, new in self._names[name].items():
                if new.lower() in owners:
                    raise StreamDefinitionError(
                        f"two columns of the join are named {shown(new)}",
                        f"One is of {owners[new.lower()]!r}, one of {name!r}. Spark treats names that differ in case as equal.",
                        f"prefix={{{name!r}: {name + '_'!r}}}",
                    )
                owners[new.lower()] = name
                of_input.append((number, column, wire.schema.field(column).with_name(new).with_nullable(True)))
            self.columns += of_input
            self._readable += [*of_input, *((number, f.name, f) for f in wire.schema if is_computed(f.name))]
        zones = [zone for wire in self.wires.values() if (zone := (wire.schema.metadata or {}).get(TIME_ZONE))]
        self.result = pa.schema(
            [field for _, _, field in self.columns], metadata={TIME_ZONE: zones[0]} if zones else None
        )

    def _bind(self, on: Mapping[str, str]) -> None:
        """Bind the conditions. Each reads columns of its input and of those before it."""
        self.conditions: dict[int, Vectorized] = {}
        self._read: dict[int, list[int]] = {}
        for name, text in on.items():
            number = self.names.index(name)
            if number == 0:
                raise StreamDefinitionError(
                    f"the first input {name!r} has a condition",
                    "A condition belongs to the join of an input with those before it.",
                    "filter the stream: df.where(...); or give the condition to a later input",
                )
            seen = pa.schema([field for of, _, field in self._readable if of <= number], metadata=self.result.metadata)
            self.conditions[number] = condition = bound_condition(text, seen, inputs_of(self._names))
            self._read[number] = sorted(columns_of(condition.texts[0]))

    # ------------------------------------------------------------------ with state

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> Iterator[None]:
        kept = KeptRows.load(group, ready, self.row_schemas, self.key_schema.names, horizon)
        tables = list(kept.tables.values())

        search = MultiJoinSearch(
            self.join,
            list(kept.numbered().values()),
            {number: frozenset(self._readable[at][0] for at in read) for number, read in self._read.items()},
            partial(self._passed, tables),
            group.header.watermark,  # the time of the previous call
            horizon,
            PAIRS,
        )
        for rows in search.results():
            if rows.shape[1]:
                columns = [_taken(tables[number], column, rows[number]) for number, column, _ in self.columns]
                group.emit(JOINED, pa.table(columns, schema=self.output_schemas[JOINED]))
                yield
        keep, due, gone = search.kept()
        if group.over:
            keep = [np.zeros(len(mask), np.bool_) for mask in keep]
        self._check_rows(search, keep, tables)
        kept.write(tables, keep, due, gone, horizon)

    def _passed(self, tables: Sequence[pa.Table], number: int, rows: Ints) -> Mask:
        condition = self.conditions[number]
        read = {
            field.name: _taken(tables[of], column, rows[of])
            for of, column, field in (self._readable[at] for at in self._read[number])
        }
        return passed(condition, read, rows.shape[1])

    def _check_rows(self, search: MultiJoinSearch, keep: Sequence[Mask], tables: Sequence[pa.Table]) -> None:
        """:raises LimitExceededError: a key has more rows in the state than are allowed"""
        largest, counts = search.largest_key(keep)
        if sum(counts) <= self.max_rows:
            return
        of_key = next(table.slice(row, 1) for table, row in zip(tables, largest, strict=True) if row is not None)
        names = [name.removeprefix("k:") for name in self.key_schema.names]
        key = ", ".join(f"{name} {shown(of_key.column('k:' + name)[0].as_py())}" for name in names)
        raise LimitExceededError(
            f"a join keeps more than {self.max_rows:,} rows of a key (max_rows)",
            f"Rows: {', '.join(f'{name} {count:,}' for name, count in zip(self.names, counts, strict=True))}"
            + ("" if names == [ONE_KEY] else f"\nThe key: {key}"),
            "shorter intervals, a key with more columns, or a larger max_rows",
        )


def check_inputs(inputs: Any) -> None:
    """:raises StreamDefinitionError: it is not a dict of 2 to MAX_INPUTS inputs with names that outputs can have"""
    hint = 'multi_join({"orders": KeyedStream(...), "payments": KeyedStream(...)}, between=...)'
    expect(StreamDefinitionError, inputs, Mapping, "the inputs of a join must be a dict by name", hint)
    if not 2 <= len(inputs) <= MAX_INPUTS:
        raise StreamDefinitionError(f"a join has 2 to {MAX_INPUTS} inputs, not {len(inputs)}", hint=hint)
    for name in inputs:
        if not isinstance(name, str) or not name.isidentifier() or len(name) > 100:
            raise StreamDefinitionError(f"the name of an input must be an identifier, not {shown(name)}", hint=hint)


def _taken(table: pa.Table, column: str, rows: Ints) -> Any:
    """A column of *rows*; NULL for NO_ROW."""
    none = rows == NO_ROW
    return table.column("e:" + column).take(pa.array(rows, mask=none) if none.any() else pa.array(rows))
