"""Results as rows: what a query gives for each match, timed-out partial match and late event.

A match becomes one row. Its default form has the key, ``start_time`` and ``end_time`` (first and last event), ``match_time``
(when it was decided), ``match_id`` (see :mod:`asterism.matching.match_ids`) and, per stage, a column with a list of the
events that the stage took, typed as the input. With
*measures*, SQL over the stages (``FIRST(a.ts)``, ``COUNT(b.*)``), a row has the key and the measures instead; with a *function*,
a user's code makes rows from the default form. All of it works on columns: no Python object per event or match.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from asterism.arguments import described, expect, expect_text
from asterism.columns.time import MILLISECONDS, TimeColumn
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    InvalidEventError,
    StreamDefinitionError,
)
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope, aggregate_of, columns_of
from asterism.expressions.parsing import AGGREGATES, parse
from asterism.matching.instructions import Kind as ValueKind
from asterism.matching.instructions import kind_of
from asterism.matching.match_ids import match_ids, seed_of
from asterism.matching.matcher import Found, Step

START_TIME, END_TIME, MATCH_TIME, TIMEOUT_TIME = "start_time", "end_time", "match_time", "timeout_time"
MATCH_ID = "match_id"


class OutputKind(enum.Enum):
    MATCHES = "matches"
    TIMED_OUT = "timed_out"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """What a query asks of one of its outputs. *measures* are SQL texts, ``expression AS name``."""

    kind: OutputKind
    measures: tuple[str, ...] | None = None
    function: Callable[[pa.Table], pa.Table] | None = None
    function_schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class Described:
    """A time column as checkpoints are told of it: its unit only where it is not the one that it was before there were others."""

    time: TimeColumn

    def __repr__(self) -> str:
        return repr(self.time) if self.time.unit == MILLISECONDS else f"{self.time!r} {self.time.unit}"


def times_of(time: TimeColumn, step: Step, found: Found) -> list[pa.Array]:
    """The times of matches: of the first event, of the last, and when it was decided."""
    first, last = found.events[found.offsets[:-1]], found.events[found.offsets[1:] - 1]
    return [time.from_micros(values) for values in (step.times[first], step.times[last], found.emitted)]


def events_of(step: Step, schema: pa.Schema) -> pa.StructArray:
    """The events of a step, whole."""
    columns = [_one_chunk(step.events.column("e:" + name)) for name in schema.names]
    return pa.StructArray.from_arrays(columns, fields=list(schema))


class MatchOutput:
    """Makes the rows of one output from what the matcher found. Plain data, it travels to the workers.

    :param id_keys: the columns of ``Step.keys`` by which matches are told apart; by default *keys*
    :param id_names: what tells matches of this pattern from those of others; by default the names of the stages
    """

    def __init__(
        self,
        spec: OutputSpec,
        schema: pa.Schema,
        keys: Sequence[str],
        time: TimeColumn,
        stages: Sequence[str],
        *,
        id_keys: Sequence[str] | None = None,
        id_names: Sequence[str | int] = (),
    ) -> None:
        self.spec = spec
        self.id_keys = list(keys if id_keys is None else id_keys)
        self.id_seed = seed_of(spec.kind.value, *(id_names or stages))
        self.input_schema = schema
        self.key_schema = pa.schema([schema.field(name) for name in keys])
        self.time = time
        self.stages = list(stages)
        decided = TIMEOUT_TIME if spec.kind is OutputKind.TIMED_OUT else MATCH_TIME
        self.base_schema = pa.schema(
            [
                *self.key_schema,
                *(pa.field(name, time.written) for name in (START_TIME, END_TIME, decided)),
                pa.field(MATCH_ID, pa.string()),
            ]
        )
        self.measures = (
            None if spec.measures is None else _Measures(spec.measures, schema, self.base_schema, self.stages)
        )
        if self.measures is not None:
            self.schema = pa.schema([*self.key_schema, *self.measures.fields])
            self.carried = self.measures.carried
        else:
            event = pa.struct(list(schema))
            self.schema = pa.schema([*self.base_schema, *(pa.field(stage, pa.list_(event)) for stage in self.stages)])
            self.carried = list(schema.names)
        twice = [name for name, count in Counter(self.schema.names).items() if count > 1]
        if twice:
            raise StreamDefinitionError(
                f"the {spec.kind.value} output would have two columns named {sorted(twice)[0]!r}",
                f"Its columns are the key columns, then {', '.join(self.schema.names[len(keys) :])}.",
                "rename the stage or the key column, or name other columns with select(...)",
            )
        if spec.function is not None:
            assert spec.function_schema is not None
            self.schema = spec.function_schema

    def base(self, step: Step, found: Found) -> pa.Table:
        """The key columns, the times and the id of each match."""
        times = times_of(self.time, step, found)
        keys = step.keys.select(self.key_schema.names).take(pa.array(found.key))
        ids = pa.nulls(len(found), pa.string())
        if self.measures is None or self.measures.read_id:
            ids = match_ids(step, found, self.id_keys, self.id_seed)
        return pa.table([*keys.columns, *times, ids], schema=self.base_schema)

    def build(self, step: Step, found: Found) -> pa.Table:
        base = self.base(step, found)
        if self.measures is not None:
            measured = self.measures.build(base, step, found)
            return pa.table([*base.columns[: len(self.key_schema)], *measured], schema=self.schema)
        parts = _Parts(found)
        columns: list[Any] = list(base.columns)
        events = events_of(step, self.input_schema)
        for number in range(len(self.stages)):
            rows, counts = parts.of(number)
            offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
            columns.append(
                pa.ListArray.from_arrays(pa.array(offsets), events.take(pa.array(rows)), type=pa.list_(events.type))
            )
        default = pa.table(columns, names=[*self.base_schema.names, *self.stages])
        return default if self.spec.function is None else self._apply(default)

    def _apply(self, table: pa.Table) -> pa.Table:
        function = self.spec.function
        assert function is not None
        name = getattr(function, "__qualname__", repr(function))
        try:
            rows = function(table)
        except Exception as error:
            raise InvalidEventError(f"match function {name} failed", described(error)) from error
        if not isinstance(rows, pa.Table) or rows.schema.names != self.schema.names:
            raise InvalidEventError(
                f"match function {name} must return a pyarrow.Table with the columns {', '.join(self.schema.names)}"
            )
        try:
            return rows.cast(self.schema)
        except pa.ArrowInvalid as error:
            raise InvalidEventError(f"match function {name} returned a column of another type", str(error)) from None


class _Parts:
    """The events of each match, stage by stage."""

    def __init__(self, found: Found) -> None:
        self.events, self.stages = found.events, found.stages
        self.matches = np.repeat(np.arange(len(found)), np.diff(found.offsets))
        self.count = len(found)

    def of(self, stage: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(events, in order of match and acceptance; how many of them belong to each match)"""
        mine = self.stages == stage
        return self.events[mine], np.bincount(self.matches[mine], minlength=self.count)


class _Measures:
    """SQL over the stages of a match: aggregates become columns, what is left is computed from them."""

    def __init__(self, texts: Sequence[str], schema: pa.Schema, base: pa.Schema, stages: Sequence[str]) -> None:
        scope = Scope(schema, tuple(stages))
        self.stages = list(stages)
        self.arguments = Vectorized(schema)
        self.base = base
        self.aggregates: list[tuple[str, int, int, int]] = []  # function, stage, number of the argument or -1, offset
        fields = list(base)
        trees = []
        for text in texts:
            with ExpressionSyntaxError.if_too_deep(text):
                tree = parse(text)
                name, body = (tree.alias, tree.this) if isinstance(tree, exp.Alias) else (text.strip(), tree)
                trees.append((name, text, self._extract(scope, body, text, fields)))
        self.table_schema = pa.schema(fields, metadata=schema.metadata)  # which holds the time zone
        self.read_id = any(column.name == MATCH_ID for *_, body in trees for column in body.find_all(exp.Column))
        self.rest = Vectorized(self.table_schema)
        self.fields = []
        self.plan: list[tuple[str, int]] = []  # ("column", position in the table) or ("rest", number)
        for name, text, body in trees:
            if isinstance(body, exp.Column):
                position = self.table_schema.names.index(body.name)
                self.plan.append(("column", position))
                self.fields.append(self.table_schema.field(position).with_name(name))
            else:
                with ExpressionSyntaxError.if_too_deep(text):
                    number = self.rest.add(body, text)
                self.plan.append(("rest", number))
                self.fields.append(pa.field(name, self.rest.types[number]))
        read = {number for text in self.arguments.texts for number in columns_of(text)}
        self.carried = [name for number, name in enumerate(schema.names) if number in read]

    def _extract(self, scope: Scope, body: exp.Expr, text: str, fields: list[pa.Field]) -> exp.Expr:
        """Replace each aggregate by a column of the table that will hold its values."""
        holder = exp.Paren(this=body.copy())
        for node in reversed(list(holder.this.walk())):
            if isinstance(node, exp.Column) and not node.table and node.find_ancestor(*AGGREGATES) is None:
                if node.name not in self.base.names:
                    if node.name in scope.schema.names:
                        raise self._of_no_stage(node.name, text)
                    raise ColumnNotFoundError.from_missing_and_available(node.name, self.base.names, f"in: {text}")
                node.replace(exp.column(node.name, quoted=True))
            elif type(node) in AGGREGATES or (isinstance(node, exp.Column) and node.find_ancestor(*AGGREGATES) is None):
                resolved = scope.resolve(node, text)
                if type(resolved) not in AGGREGATES:  # a field of a column
                    raise self._of_no_stage(".".join(part.name for part in node.parts), text)
                function, stage, argument, offset = aggregate_of(resolved)
                number = -1 if argument is None else self.arguments.add(argument, text)
                entry = (function, self.stages.index(stage), number, offset)
                name = "__" + "_".join(map(str, entry))
                if entry not in self.aggregates:
                    self.aggregates.append(entry)
                    fields.append(pa.field(name, self._type(entry, text)))
                node.replace(exp.column(name, quoted=True))
        unnested: exp.Expr = holder.this.unnest()
        return unnested

    def _of_no_stage(self, name: str, text: str) -> ColumnNotFoundError:
        return ColumnNotFoundError(
            f"{name!r} is a column of the events, and a match has several",
            f"in: {text}",
            f"say of which: LAST({self.stages[-1]}.{name})",
        )

    def _type(self, entry: tuple[str, int, int, int], text: str) -> pa.DataType:
        function, _, number, _ = entry
        if function == "COUNT":
            return pa.int64()
        data_type = self.arguments.types[number]
        kind = kind_of(data_type)
        if function in ("SUM", "AVG"):
            if kind not in (ValueKind.INT, ValueKind.FLOAT):
                raise ExpressionTypeError.at(f"{function} needs numbers, not {data_type}", text)
            return pa.int64() if function == "SUM" and kind is ValueKind.INT else pa.float64()
        return data_type

    def build(self, base: pa.Table, step: Step, found: Found) -> list[pa.ChunkedArray]:
        parts = _Parts(found)
        columns = list(base.columns)
        used = np.unique(found.events)
        view = pa.table(
            [
                step.events.column("e:" + f.name).take(pa.array(used))
                if f.name in self.carried
                else pa.nulls(len(used), f.type)
                for f in self.arguments.schema
            ],
            schema=self.arguments.schema,
        )
        values = self.arguments.evaluate(view)
        for function, stage, number, offset in self.aggregates:
            rows, counts = parts.of(stage)
            argument = None if number < 0 else _one_chunk(values[number])
            data_type = self.table_schema.field(len(columns)).type
            columns.append(
                pa.chunked_array(
                    [_aggregate(function, argument, np.searchsorted(used, rows), counts, offset).cast(data_type)]
                )
            )
        table = pa.table(columns, schema=self.table_schema)
        rest = self.rest.evaluate(table)
        return [table.column(number) if kind == "column" else rest[number] for kind, number in self.plan]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _aggregate(
    function: str, argument: pa.Array | None, rows: npt.NDArray[Any], counts: npt.NDArray[Any], offset: int
) -> pa.Array:
    """One value per match, from *rows* of the argument, *counts* of them for each match in turn."""
    ends = np.cumsum(counts)
    none = counts == 0
    if argument is None:
        return pa.array(counts)
    if function in ("FIRST", "LAST"):
        none = counts <= offset
        at = np.where(none, 0, ends - counts + offset if function == "FIRST" else ends - 1 - offset)
        picked = rows[at] if len(rows) else np.zeros(len(counts), np.int64)
        return argument.take(pa.array(picked, mask=none)) if len(argument) else pa.nulls(len(counts), argument.type)
    if function in ("SUM", "AVG") and pa.types.is_decimal(argument.type):
        argument = argument.cast(pa.float64())
    match = np.repeat(np.arange(len(counts)), counts)
    grouped = pa.table({"match": match, "value": argument.take(pa.array(rows))}).group_by("match", use_threads=False)
    verb = {"SUM": "sum", "AVG": "mean", "MIN": "min", "MAX": "max", "COUNT": "count"}[function]
    result = grouped.aggregate([("value", verb)])
    place = np.zeros(len(counts), np.int64)
    place[result.column("match").to_numpy()] = np.arange(result.num_rows)
    values = _one_chunk(result.column(f"value_{verb}"))
    if not len(values):
        values = pa.nulls(1, values.type)
    filled = values.take(pa.array(place, mask=none))
    return pc.fill_null(filled, 0) if function == "COUNT" else filled


def check_outputs(outputs: Mapping[str, OutputSpec]) -> None:
    expect(StreamDefinitionError, outputs, Mapping, "outputs are OutputSpecs by name")
    for name, spec in outputs.items():
        expect_text(StreamDefinitionError, name, "an output has a name")
        expect(StreamDefinitionError, spec, OutputSpec, f'output "{name}" is an OutputSpec')
        if spec.kind is OutputKind.LATE and (spec.measures is not None or spec.function is not None):
            raise StreamDefinitionError(f'output "{name}": late events have no measures, they come as they are')
