"""The rows of the results of rules, in the format that all processors share."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.caches import IdentityCache
from asterism.columns.arrays import Ints, Mask, cast_to, one_chunk
from asterism.columns.failures import failure_of, first_failure
from asterism.columns.groups import offsets_of
from asterism.columns.ids import Numbers, seed_of
from asterism.columns.keys import KEY, key_values
from asterism.columns.time import TimeColumn, to_datetime
from asterism.matching.matcher import MatchColumns, Step
from asterism.matching.outputs import events_of, match_ids, times_of
from asterism.matching.process_function import MatchContext, MatchFunction
from asterism.operators.rich_functions import ready
from asterism.operators.tools import Emitted
from asterism.rules.binding.binding import (
    BoundClauseProcessor,
    BoundPatternProcessor,
    ProcessorCompiler,
)
from asterism.rules.binding.function_rows import FunctionRows
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.selections import ENTRY, MAX_SETS, RuleFailure
from asterism.rules.matching.suppression import Emission, some_of

MATCHES, TIMED_OUT, SHADOW, LATE, ERRORS = "matches", "timed_out", "shadow", "late", "errors"
"""The names of the outputs."""
TIMED_OUT_OF_SHADOWS = "timed_out of shadows"
"""In place of the name of an output: these partial matches are only counted."""
_OF_SHADOWS = {MATCHES: SHADOW, TIMED_OUT: TIMED_OUT_OF_SHADOWS}
_STRINGS = pa.map_(pa.string(), pa.string())


class OutputRows(NamedTuple):
    """The rows of an output.

    :ivar name: the name of the output
    :ivar rows: its rows; None: they are only counted
    :ivar counts: the number of rows of each processor (by its place) with the latest of their times
    :ivar emitted: what functions have emitted to their additional outputs for the same matches
    """

    name: str
    rows: pa.Table | None
    counts: dict[int, tuple[int, int]]
    emitted: Sequence[Emitted] = ()


class RuleResults:
    """Computes the rows of matches, of timed-out partial matches and of clauses.

    :param schema: the columns of the events
    :param wants_shadow: whether there is an output for the matches of shadows; otherwise they are only counted
    :ivar schemas: the schemas of the outputs
    """

    def __init__(self, schema: pa.Schema, time: TimeColumn, compiler: ProcessorCompiler, *, wants_shadow: bool) -> None:
        self.schema, self.time, self.compiler, self.wants_shadow = schema, time, compiler, wants_shadow
        event = pa.struct([("stage", pa.string()), ("event", pa.struct(list(schema)))])
        head = [("processor_id", pa.string()), ("processor_version", pa.int64()), ("key", pa.list_(pa.string()))]
        tail = [
            ("events", pa.list_(event)),
            ("measures", _STRINGS),
            ("result", pa.string()),
            ("labels", _STRINGS),
        ]
        suppressed = [("suppressed", pa.int64())]
        times = self.time.written

        def output(decided: str) -> list[tuple[str, pa.DataType]]:
            times_and_id = [("start_time", times), ("end_time", times), (decided, times), ("match_id", pa.string())]
            return [*head, *times_and_id, *tail]

        matches = pa.schema([*output("match_time"), *suppressed])
        self.schemas = {
            MATCHES: matches,
            TIMED_OUT: pa.schema(output("timeout_time")),
            SHADOW: matches,
            LATE: schema,
            ERRORS: pa.schema([*head[:2], ("time", times), ("error", pa.string())]),
        }

    def of_clause(self, bound: BoundClauseProcessor, results: pa.Table, suppressed: Ints) -> pa.Table:
        schema, clause, count = self.schemas[MATCHES], bound.clause, results.num_rows
        measured = _measured(results.select(clause.measures)) if clause.measures else {}
        columns = [
            pa.array([bound.processor.id] * count, pa.string()),
            pa.array(np.full(count, bound.processor.version, np.int64)),
            _key_lists(clause.keys_of(results)),
            *clause.times_of(results),
            clause.ids_of(results),
            clause.events_of(results, schema.field("events").type),
            *(measured.get(name, pa.nulls(count, schema.field(name).type)) for name in ("measures", "result")),
            _labels_of([bound.processor]).take(pa.array(np.zeros(count, np.int64))),
            pa.array(suppressed),
        ]
        return pa.table(columns, schema=schema)

    def of_step(
        self,
        bound: Sequence[BoundPatternProcessor],
        step: Step,
        emission: Emission,
        processing_time: int,
        *,
        only_try: bool = False,
    ) -> tuple[list[OutputRows], list[RuleFailure]]:
        """Matches and timed-out partial matches in the format shared by all processors, with the number of rows of each
        processor, and the processors that fail. *only_try*: compute only what may fail.
        """
        made: list[OutputRows] = []
        failed: list[RuleFailure] = []
        emitted_matches, suppressed = emission.matches_of(step)
        for name, matches, numbers in ((MATCHES, emitted_matches, suppressed), (TIMED_OUT, step.timeouts, None)):
            of_shadow = _RuleColumns.of(bound).shadows[_rules_of(step, matches)]
            for output, is_selected in ((name, ~of_shadow), (_OF_SHADOWS[name], of_shadow)):
                if not is_selected.any():
                    continue
                selected = matches if is_selected.all() else some_of(matches, is_selected)
                selected_numbers = None if numbers is None else numbers[is_selected]
                counted = only_try or output == TIMED_OUT_OF_SHADOWS or (output == SHADOW and not self.wants_shadow)
                made_of, failures = self._output(
                    bound, step, name, selected, selected_numbers, to_datetime(processing_time), only_try=counted
                )
                failed += failures
                if made_of.counts:
                    # A shadow must have no side effects.
                    made.append(made_of._replace(name=output, emitted=made_of.emitted if output == name else ()))
        return made, failed

    def _output(
        self,
        bound: Sequence[BoundPatternProcessor],
        step: Step,
        name: str,
        matches: MatchColumns,
        suppressed: Ints | None,
        now: datetime,
        *,
        only_try: bool,
    ) -> tuple[OutputRows, list[RuleFailure]]:
        """:param suppressed: for each match, the number of those suppressed before it"""
        entries = _rules_of(step, matches)
        parts: list[pa.Table] = []
        emitted: list[Emitted] = []
        failed: list[RuleFailure] = []
        counts: dict[int, tuple[int, int]] = {}
        default = np.zeros(len(matches), np.bool_)

        def add(is_selected: Mask, selected: MatchColumns, columns: Mapping[str, pa.Array] | FunctionRows) -> None:
            numbers = {} if suppressed is None else {"suppressed": pa.array(suppressed[is_selected])}
            if isinstance(columns, FunctionRows):
                parts.append(columns.of(self._rows(name, bound, step, selected, numbers)))
            else:
                parts.append(self._rows(name, bound, step, selected, {**columns, **numbers}))

        order = np.argsort(entries, kind="stable")
        numbers, begins = np.unique(entries[order], return_index=True)
        last = np.maximum.reduceat(matches.emitted[order], begins).tolist() if len(numbers) else []
        bounds = itertools.pairwise([*begins.tolist(), len(order)])
        for number, (begin, end), time in zip(numbers.tolist(), bounds, last, strict=True):
            rule, rows = bound[number], order[begin:end]
            if name not in rule.outputs:
                continue
            counts[number] = len(rows), time
            if not rule.processor.select and rule.processor.function is None:
                default[rows] = True
                continue
            is_selected = np.zeros(len(matches), np.bool_)
            is_selected[rows] = True
            selected = some_of(matches, is_selected)
            if rule.processor.function is not None and not rule.processor.shadow:
                # A function that cannot be opened is not a failure of the rule.
                ready(self.compiler.functions[rule.processor.function])
            try:
                columns, by_function = self._own_columns(rule, name, step, selected, now)
            except MemoryError:
                raise
            except Exception as error:
                failed.append(self._first_failure(number, rule, name, step, selected, now, error))
                continue
            if not only_try:
                add(is_selected, selected, columns)
                emitted.append(by_function)
        if default.any() and not only_try:
            selected = some_of(matches, default)
            add(default, selected, {"events": self._events(bound, step, selected)})
        return OutputRows(name, pa.concat_tables(parts) if parts else None, counts, emitted), failed

    def _first_failure(
        self,
        number: int,
        rule: BoundPatternProcessor,
        name: str,
        step: Step,
        matches: MatchColumns,
        now: datetime,
        error: Exception,
    ) -> RuleFailure:
        """The first time at which the output for the matches up to it fails. *error*: the error for all of them."""
        times = np.unique(matches.emitted)

        def failure(last: int) -> Exception | None:
            return failure_of(
                lambda: self._own_columns(rule, name, step, some_of(matches, matches.emitted <= times[last]), now)
            )

        first, error = first_failure(failure, 0, len(times) - 1, error)
        return RuleFailure(number, int(times[first]), error)

    def _rows(
        self,
        name: str,
        bound: Sequence[BoundPatternProcessor],
        step: Step,
        matches: MatchColumns,
        computed: Mapping[str, pa.Array],
    ) -> pa.Table:
        schema = self.schemas[name]
        rules, number = _RuleColumns.of(bound), _rules_of(step, matches)
        taken = pa.array(number)
        columns = [
            rules.ids.take(taken),
            rules.versions.take(taken),
            _key_lists(one_chunk(step.keys.column(KEY).take(pa.array(matches.key)))),
            *times_of(self.time, step, matches),
            match_ids(step, matches, [KEY], rules.seeds[name][number], with_stages=not self.compiler.ids_by_events),
        ]
        computed = {**computed, "labels": rules.labels.take(taken)}
        columns += [
            computed.get(field.name, pa.nulls(len(matches), field.type)) for field in list(schema)[len(columns) :]
        ]
        return pa.table(columns, schema=schema)

    def _events(self, bound: Sequence[BoundPatternProcessor], step: Step, matches: MatchColumns) -> pa.Array:
        """The default output: for each match its events in order of acceptance, each with the name of its stage."""
        rules = _RuleColumns.of(bound)
        stages = np.repeat(rules.stages_at[_rules_of(step, matches)], np.diff(matches.offsets)) + matches.stages
        events = events_of(step, self.schema).take(pa.array(matches.events))
        pairs = pa.StructArray.from_arrays([rules.stages.take(pa.array(stages)), events], names=["stage", "event"])
        lists = pa.ListArray.from_arrays(pa.array(matches.offsets.astype(np.int32)), pairs)
        return cast_to(lists, self.schemas[MATCHES].field("events").type)

    def _own_columns(
        self, rule: BoundPatternProcessor, name: str, step: Step, matches: MatchColumns, now: datetime
    ) -> tuple[dict[str, pa.Array] | FunctionRows, Emitted]:
        """Compute the measures or the function of a processor for its matches, and the additional outputs of the function."""
        made = rule.outputs[name].build(step, matches)
        if rule.processor.select:
            return _measured(made), Emitted()
        function = rule.processor.function
        assert function is not None
        called, emitted = self.compiler.functions[function], Emitted()
        if isinstance(called, MatchFunction):
            context = MatchContext(now, rule.processor.id, rule.processor.version)
            answer, emitted = called.process(made, context, timed_out=name == TIMED_OUT)
            if answer is None:
                return {}, emitted
        else:
            answer = ready(called)(made)
        return FunctionRows.from_answer(function, made, answer, _as_objects), emitted


class _RuleColumns(NamedTuple):
    """What results say about each of some rules.

    :ivar seeds: of match ids, by output
    :ivar stages: the names of the stages of all rules; those of a rule begin at *stages_at*
    """

    ids: pa.Array
    versions: pa.Array
    labels: pa.Array
    shadows: Mask
    seeds: Mapping[str, Numbers]
    stages: pa.Array
    stages_at: Ints

    @classmethod
    def of(cls, bound: Sequence[BoundPatternProcessor]) -> _RuleColumns:
        """Those of these rules. The most recent ones are cached for the lifetime of the process."""
        return _COLUMNS.of(bound, lambda: cls._of(bound))

    @classmethod
    def _of(cls, bound: Sequence[BoundPatternProcessor]) -> _RuleColumns:
        processors, stages = [rule.processor for rule in bound], [rule.pattern.nfa.stages for rule in bound]
        return cls(
            pa.array([processor.id for processor in processors], pa.string()),
            pa.array([processor.version for processor in processors], pa.int64()),
            _labels_of(processors),
            np.array([processor.shadow for processor in processors], np.bool_),
            {
                name: np.array([rule.outputs[name].id_seed if name in rule.outputs else seed_of() for rule in bound])
                for name in (MATCHES, TIMED_OUT)
            },
            pa.array([stage for of_rule in stages for stage in of_rule], pa.string()),
            offsets_of([len(of_rule) for of_rule in stages]),
        )


def _rules_of(step: Step, matches: MatchColumns) -> Ints:
    """For each match the index of its rule."""
    indexes: Ints = step.keys.column(ENTRY).to_numpy()[matches.key]
    return indexes


def _key_lists(texts: pa.Array) -> pa.Array:
    """The values of key texts. Equal texts, of several rules or matches, are read once."""
    encoded = pc.dictionary_encode(texts)
    keys = pa.array([key_values(text) for text in encoded.dictionary.to_pylist()], pa.list_(pa.string()))
    return keys.take(encoded.indices)


def _labels_of(processors: Sequence[PatternProcessor]) -> pa.Array:
    return pa.array([list(processor.labels.items()) for processor in processors], _STRINGS)


def _measured(made: pa.Table) -> dict[str, pa.Array]:
    """The columns with measures: as strings, and with their types."""
    return {"measures": _as_maps(made), "result": _as_objects(made)}


def _as_objects(made: pa.Table) -> pa.Array:
    return pa.array([json.dumps(_as_json(row)) for row in made.to_pylist()], pa.string())


def _as_maps(made: pa.Table) -> pa.Array:
    texts = [_as_strings(column) for column in made.columns]
    rows = [list(zip(made.column_names, values, strict=True)) for values in zip(*texts, strict=True)]
    return pa.array(rows, _STRINGS)


def _as_json(value: Any) -> Any:
    """Convert a value to what Spark's ``to_json`` writes, if JSON has no such value."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if np.isfinite(value) else float_text(np.float64(value))
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case dict():
            return {str(name): _as_json(part) for name, part in value.items()}
        case list() | tuple():
            return [_as_json(part) for part in value]
    return str(value)


def _as_strings(column: pa.ChunkedArray) -> list[str | None]:
    if pa.types.is_floating(column.type):
        values = column.to_numpy().astype(column.type.to_pandas_dtype())
        nulls = column.is_null().to_numpy()
        return [None if null else float_text(value) for value, null in zip(values, nulls, strict=True)]
    try:
        texts: list[str | None] = column.cast(pa.string()).to_pylist()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        texts = [None if value is None else str(value) for value in column.to_pylist()]
    return texts


def float_text(value: np.floating[Any]) -> str:
    """Format a floating-point number as Spark does.

    >>> [float_text(np.float64(x)) for x in (650, 0.5, -0.0, 1e7, 1.25e-5, float("inf"))]
    ['650.0', '0.5', '-0.0', '1.0E7', '1.25E-5', 'Infinity']
    """
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, unique=True, trim="0")
    return np.format_float_scientific(value, unique=True, trim="0", exp_digits=1).replace("e+", "E").replace("e", "E")


_COLUMNS = IdentityCache[_RuleColumns](MAX_SETS)
