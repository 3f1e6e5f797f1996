"""Converts results to rows, for each match, timed-out partial match and late event.

By default a match becomes a row with the key, ``start_time`` and ``end_time`` (first and last event), ``match_time`` (when it
was decided), ``match_id`` (see :func:`match_ids`) and, per stage, a column with the list of the events that
the stage took, typed as the input. With *measures*, SQL over the stages (``FIRST(a.ts)``, ``COUNT(b.*)``), a row has the key
and the measures instead. With a *function*, user code makes rows from the default form. All of it is columnar: there is no
Python object per event or match.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from asterism.arguments import described, expect, expect_string, function_name
from asterism.columns.arrays import Ints, cast_table, from_numpy, from_strings, one_chunk
from asterism.columns.groups import offsets_of
from asterism.columns.ids import Numbers, as_hex, seed_of
from asterism.columns.internal import is_of_user
from asterism.columns.keys import key_strings
from asterism.columns.time import TimeColumn
from asterism.errors import (
    ColumnNotFoundError,
    EvaluationFailedError,
    ExpressionSyntaxError,
    StreamDefinitionError,
)
from asterism.expressions.aggregates import OF_MATCH, Call, Calls, Measures, parse_measure
from asterism.expressions.computed_columns import visible
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import EVERY_STAGE, PreviousColumn, Scope
from asterism.expressions.translation import position_of
from asterism.matching.matcher import MatchColumns, Step
from asterism.operators.rich_functions import ready, rich

START_TIME, END_TIME, MATCH_TIME, TIMEOUT_TIME = "start_time", "end_time", "match_time", "timeout_time"
MATCH_ID = "match_id"
VALUES_OF_MATCH = (START_TIME, END_TIME, MATCH_TIME, TIMEOUT_TIME, MATCH_ID)
"""The values of a match that measures can read, besides the key columns."""
_CLASSIFIER, _NUMBER = OF_MATCH["classifier"], OF_MATCH["match_number"]
_NUMBER_FIELD = pa.field(_NUMBER, pa.int64())


class OutputKind(enum.Enum):
    MATCHES = "matches"
    TIMED_OUT = "timed_out"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The definition of an output. *measures* are SQL strings, ``expression AS name``."""

    kind: OutputKind
    measures: tuple[str, ...] | None = None
    function: Callable[[pa.Table], pa.Table] | None = None
    function_schema: pa.Schema | None = None


def times_of(time: TimeColumn, step: Step, matched: MatchColumns) -> list[pa.Array]:
    """The times of matches: of the first event, of the last event, and of the decision."""
    first, last = matched.events[matched.offsets[:-1]], matched.events[matched.offsets[1:] - 1]
    return [
        time.from_micros(values, step.times[last]) for values in (step.times[first], step.times[last], matched.emitted)
    ]


def events_of(step: Step, schema: pa.Schema) -> pa.StructArray:
    """The events of a step with all columns."""
    columns = [one_chunk(step.events.column("e:" + name)) for name in schema.names]
    return pa.StructArray.from_arrays(columns, fields=list(schema))


class MatchOutput:
    """Makes the rows of one output from the results of the matcher. Plain data, so that it can be sent to the workers.

    :param id_keys: the columns of ``Step.keys`` that go into match ids; by default *keys*
    :param id_names: what distinguishes match ids of this pattern from those of others; by default the names of the stages
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
        subsets: Sequence[tuple[str, tuple[str, ...]]] = (),
    ) -> None:
        self.spec = spec
        self.id_keys = list(keys if id_keys is None else id_keys)
        self.id_seed = seed_of(spec.kind.value, *(id_names or stages))
        self.input_schema = visible(schema)
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
            None
            if spec.measures is None
            else _MatchMeasures(spec.measures, schema, self.base_schema, self.stages, subsets)
        )
        self.counts_matches = self.measures is not None and self.measures.counts_matches
        self.previous = frozenset() if self.measures is None else self.measures.previous
        """the columns of earlier events that the measures read"""
        if self.counts_matches and spec.kind is OutputKind.TIMED_OUT:
            raise StreamDefinitionError("MATCH_NUMBER() is not defined for timed-out partial matches")
        if self.measures is not None:
            self.schema = pa.schema([*self.key_schema, *self.measures.fields])
            self.kept_columns = self.measures.kept_columns
        else:
            event = pa.struct(list(self.input_schema))
            self.schema = pa.schema([*self.base_schema, *(pa.field(stage, pa.list_(event)) for stage in self.stages)])
            self.kept_columns = list(self.input_schema.names)
        hint = "rename the key column, for example to 'event_{0}'"
        _check_alike(spec, self.base_schema.names, len(keys), hint)
        if self.measures is None:
            hint = 'select measures instead of all events: select("COUNT({0}.*) AS n"); or rename the stage or the key column'
        else:
            hint = "give the measure another name: COUNT(a.*) AS n"
        _check_alike(spec, self.schema.names, len(keys), hint)
        self.function = None if spec.function is None else rich(spec.function, self.input_schema)
        if spec.function is not None:
            assert spec.function_schema is not None
            self.schema = spec.function_schema

    def base(self, step: Step, matched: MatchColumns) -> pa.Table:
        """The key columns, the times and the id of each match."""
        times = times_of(self.time, step, matched)
        keys = step.keys.select(self.key_schema.names).take(from_numpy(matched.key))
        ids = pa.nulls(len(matched), pa.string())
        if self.measures is None or self.measures.read_id:
            ids = match_ids(step, matched, self.id_keys, self.id_seed)
        return pa.table([*keys.columns, *times, ids], schema=self.base_schema)

    def build(self, step: Step, matched: MatchColumns) -> pa.Table:
        base = self.base(step, matched)
        if self.measures is not None:
            measured = self.measures.build(base, step, matched)
            return pa.table([*base.columns[: len(self.key_schema)], *measured], schema=self.schema)
        parts = _Parts(matched)
        columns: list[Any] = list(base.columns)
        events = events_of(step, self.input_schema)
        for number in range(len(self.stages)):
            rows, matches, _ = parts.of([number])
            offsets = offsets_of(np.bincount(matches, minlength=len(matched))).astype(np.int32)
            columns.append(
                pa.ListArray.from_arrays(from_numpy(offsets), events.take(from_numpy(rows)), type=pa.list_(events.type))
            )
        default = pa.table(columns, names=[*self.base_schema.names, *self.stages])
        return default if self.function is None else self._apply(default)

    def _apply(self, table: pa.Table) -> pa.Table:
        name = f"match function {function_name(self.function)}"
        function = ready(self.function)
        try:
            rows = function(table)
        except Exception as error:
            raise EvaluationFailedError(f"{name} failed", described(error)) from error
        return returned_rows(name, rows, self.schema)


def returned_rows(name: str, rows: Any, schema: pa.Schema) -> pa.Table:
    """The rows that a match function returned, with the types of *schema*.

    :raises EvaluationFailedError: they are not a table with these columns
    """
    if not isinstance(rows, pa.Table) or rows.schema.names != schema.names:
        raise EvaluationFailedError(f"{name} must return a pyarrow.Table with the columns {', '.join(schema.names)}")
    try:
        return cast_table(rows, schema)
    except pa.ArrowInvalid as error:
        raise EvaluationFailedError(f"{name} returned a column of a wrong type", str(error)) from None


def _check_alike(spec: OutputSpec, names: Sequence[str], keys: int, hint: str) -> None:
    """Refuse names of columns that are equal in Spark. Names of key columns, the first ones, are those of the user's DataFrame.
    Stages that differ only in case are different stages in Flink, and so are their columns.

    :raises StreamDefinitionError: two names are equal
    """
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        former = seen.setdefault(name if spec.measures is None else name.lower(), place)
        if former != place and (place >= keys or names[former] == name):
            alike = repr(name) if names[former] == name else f"{names[former]!r} and {name!r}, which are equal in Spark"
            raise StreamDefinitionError(
                f"the {spec.kind.value} output would have two columns named {alike}",
                f"Its columns are the key columns, then {', '.join(filter(is_of_user, names[keys:]))}.",
                hint.format(name),
            )


class _Parts:
    """The events of each match, stage by stage."""

    def __init__(self, matched: MatchColumns) -> None:
        self.events, self.stages = matched.events, matched.stages
        self.matches = np.repeat(np.arange(len(matched)), np.diff(matched.offsets))

    def of(self, stages: Sequence[int] | None) -> tuple[Ints, Ints, Ints]:
        """(the events of *stages*, in order of match and acceptance; the match of each; its stage); None: of all stages"""
        if stages is None:
            return self.events, self.matches, self.stages
        selected = self.stages == stages[0] if len(stages) == 1 else np.isin(self.stages, stages)
        return self.events[selected], self.matches[selected], self.stages[selected]


class _MatchMeasures:
    """SQL over the stages of a match. An aggregate ranges over the events of one stage, of a subset, or of the whole match."""

    def __init__(
        self,
        texts: Sequence[str],
        schema: pa.Schema,
        base: pa.Schema,
        stages: Sequence[str],
        subsets: Sequence[tuple[str, tuple[str, ...]]],
    ) -> None:
        scope = Scope(schema.append(pa.field(_CLASSIFIER, pa.string())), tuple(stages), tuple(subsets))
        trees: list[exp.Expr] = []
        self.previous: frozenset[PreviousColumn] = frozenset()
        for text in texts:
            with ExpressionSyntaxError.if_too_deep(text):
                tree, previous_columns = scope.without_previous(parse_measure(text, scope), text)
            trees.append(tree)
            self.previous |= previous_columns
        whole = scope.schema
        for previous in sorted(self.previous):
            whole = whole.append(schema.field(previous.name).with_name(previous.column).with_nullable(True))
        self._scope, self._base = replace(scope, schema=whole), base.append(_NUMBER_FIELD)
        self._calls: dict[str, Calls] = {}
        """by stage"""
        metadata, parsed = schema.metadata, iter(trees)
        self._measures = Measures(
            texts,
            self._base.with_metadata(metadata),
            self._add,
            self._outside,
            read=lambda text: next(parsed),
        )
        self.fields = self._measures.fields
        self.read_id = MATCH_ID in self._measures.base_read
        self.counts_matches = _NUMBER in self._measures.base_read
        read = {name for calls in self._calls.values() for name in calls.read} - {_CLASSIFIER}
        self.kept_columns = [name for name in schema.names if name in read]

    @property
    def read_by_stage(self) -> dict[str, list[str]]:
        """The columns of events that the measures read, by stage, subset or EVERY_STAGE."""
        return {stage: [name for name in calls.read if name != _CLASSIFIER] for stage, calls in self._calls.items()}

    @property
    def expressions(self) -> list[Vectorized]:
        """All computed expressions except the aggregates."""
        return [*(calls.arguments for calls in self._calls.values()), self._measures.rest]

    def _add(self, call: Call, text: str) -> tuple[tuple[str, int], pa.DataType]:
        """((the stage, the index of the call within the stage), type)"""
        stage = self._scope.stage_of(call.parts, call.name.upper(), text, call.start)
        calls = self._calls.setdefault(stage, Calls(self._scope.schema, whole=True))
        number, data_type = calls.add(call if stage == EVERY_STAGE else call.of_events(), text)
        return (stage, number), data_type

    def _outside(self, column: exp.Column, text: str) -> Call | str:
        """Outside of aggregates, ``a.x`` is ``LAST(a.x)``."""
        name = ".".join(part.name for part in column.parts)
        if not column.table and name in self._base.names:
            return name
        if name == _CLASSIFIER:
            return Call("last", column.sql(), position_of(column) or 0, (column,))
        if not column.table and name not in self._scope.schema.names:
            raise ColumnNotFoundError.from_missing_and_available(name, self._base.names[:-1], f"in: {text}")
        if not isinstance(self._scope.resolve(column, text), exp.Last):
            previous = next(
                (candidate for candidate in self.previous if candidate.column == column.parts[0].name),
                None,
            )
            if previous is not None:
                problem = f"{previous} reads the event before one of the match, and a match has several events"
                hint = f"PREV({self._scope.stages[-1]}.{previous.name}), or PREV(LAST({previous.name}))"
                raise ExpressionSyntaxError.at(problem, text, position_of(column), hint)
            raise ColumnNotFoundError(
                f"{name!r} is a column of the events, and a match has several events",
                f"in: {text}",
                f"LAST({self._scope.stages[-1]}.{name}), or LAST({name}) for the last event of the match",
            )
        return Call("last", column.sql(), position_of(column) or 0, (column,))

    def build(self, base: pa.Table, step: Step, matched: MatchColumns) -> list[pa.ChunkedArray]:
        parts = _Parts(matched)
        results = {}
        for stage, calls in self._calls.items():
            events, matches, of_stages = parts.of(self._numbers(stage))
            reads_stage = _CLASSIFIER in calls.read
            if reads_stage:  # it can differ between the matches that contain an event
                used, places = events, np.arange(len(events))
            else:
                # Take each event once, however many matches contain it. This takes a tenth of the time of np.unique.
                is_used, place = np.zeros(len(step.times), np.bool_), np.empty(len(step.times), np.int64)
                is_used[events] = True
                used = np.flatnonzero(is_used)
                place[used] = np.arange(len(used))
                places = place[events]
            rows = from_numpy(used)
            columns = {name: step.events.column("e:" + name).take(rows) for name in calls.read if name != _CLASSIFIER}
            if reads_stage:
                columns[_CLASSIFIER] = from_strings(self._scope.stages).take(from_numpy(of_stages))
            results[stage] = calls.compute(matches, len(matched), pa.table({"event": rows} | columns), places)
        number = pa.nulls(len(matched), pa.int64()) if matched.numbers is None else from_numpy(matched.numbers)
        return self._measures.build(
            [*base.columns, number, *(results[stage][number] for stage, number in self._measures.calls)]
        )

    def _numbers(self, stage: str) -> list[int] | None:
        """The numbers of the stages that an aggregate ranges over; None: all."""
        if stage == EVERY_STAGE:
            return None
        return [self._scope.stages.index(member) for member in dict(self._scope.subsets).get(stage, (stage,))]


def check_outputs(outputs: Mapping[str, OutputSpec]) -> None:
    expect(StreamDefinitionError, outputs, Mapping, "outputs must map names to OutputSpecs")
    for name, spec in outputs.items():
        expect_string(StreamDefinitionError, name, "the name of an output must be a string")
        expect(StreamDefinitionError, spec, OutputSpec, f'output "{name}" must be an OutputSpec')
        if spec.kind is OutputKind.LATE and (spec.measures is not None or spec.function is not None):
            raise StreamDefinitionError(
                f'output "{name}": measures and functions are not supported, because late events are returned unchanged'
            )


def match_ids(
    step: Step, matched: MatchColumns, keys: Sequence[str], seeds: Numbers, *, with_stages: bool = True
) -> pa.Array:
    """The id of each match, 32 hexadecimal digits, by which a sink recognizes a match that it already has.

    An id is a 128-bit hash of the pattern, the key, and for each event its stage, its time and its position among the visible
    events of its key and time. An event is visible if it satisfies one of the conditions; all events are visible if a stage
    uses strict contiguity. The id is the same in every run over the same events; it does not depend on the boundaries of
    micro-batches, the selected outputs or other patterns over these events. See docs/decisions/0011.

    :param keys: the columns of ``step.keys`` that form the key of an event
    :param seeds: the result of :func:`seed_of` for each match, or one for all
    :param with_stages: whether matches of the same events in other stages have other ids
    """
    from asterism.columns.hashing import hash_strings, mixed

    counts = np.diff(matched.offsets)
    seeds = np.broadcast_to(seeds, (len(matched), 2))
    used, place = np.unique(matched.key, return_inverse=True)
    key_hashes = hash_strings(key_strings(step.keys.select(keys).take(from_numpy(used)).columns, len(used)))[place]
    ids = np.empty((len(matched), 2), ">u8")
    events = np.repeat(seeds, counts, axis=0)
    for part in (step.times[matched.events], matched.positions, *([matched.stages] if with_stages else [])):
        events = mixed(events ^ part.astype(np.int64).view(np.uint64)[:, None])
    # The events of a match differ in these values, so the hash need not depend on their order.
    ids[:] = mixed(np.add.reduceat(events, matched.offsets[:-1]) ^ key_hashes[:, None])
    return as_hex(ids.view(np.uint8))
