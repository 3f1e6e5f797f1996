"""Runs the tests that are written beside a rule, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.schemas import type_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME, TimeColumn
from asterism.errors import AsterismError, InvalidEventError, StreamDefinitionError
from asterism.expressions.routines.user_functions import Purpose, UserFunctions, checked
from asterism.operators.operator import EVENTS as EVENTS_INPUT
from asterism.operators.operator import Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.clause.clause import RowsPerMatch
from asterism.row_patterns.clause.reading import read
from asterism.rules.definition.processor import PatternProcessor, as_in_force
from asterism.rules.definition.rule_tests import COLUMNS_OF_LITERALS, ExpectedMatch, RuleTest
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import MATCHES, TIMED_OUT
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.sets.set_store import SingleSetStore
from asterism.rules.sets.sets import ProcessorSet
from asterism.testing.literals import EVENTS, WORDS, Literals, Part, Row, table_of
from asterism.text.printable import one_line

MAX_LINES = 20
"""The maximum number of missing, and of unexpected matches that a failure shows."""


@dataclass(frozen=True, slots=True)
class RuleTestResult:
    """:ivar failure: what differs, as lines of text; empty if the test has passed"""

    test: RuleTest
    failure: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failure


def run_rule_test(
    processor: PatternProcessor,
    test: RuleTest,
    semantics: Semantics = Semantics.DEFAULT,
    *,
    udfs: Mapping[str, Any] | None = None,
) -> RuleTestResult:
    """Run one test of a rule: all of its events, then the end of the input.

    :param udfs: the functions in Python that the query lists for its rules, as for :meth:`asterism.CEP.pattern_processors`

    >>> from asterism import Pattern
    >>> rule = PatternProcessor("pair", 1, Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'"))
    >>> run_rule_test(rule, RuleTest("pair", "a1 x2 b3", ((1, 3),))).passed
    True
    >>> run_rule_test(rule, RuleTest("pair", "a1 x2 b3", ("a1 b2",))).failure
    ('expected, not found: a1 b2', 'found, not expected: a1 b3 [1, 3]', 'events: a1 x2 b3')
    """
    try:
        rule = as_in_force(processor)
        return RuleTestResult(test, tuple(_failure(rule, test, semantics, checked(udfs))))
    except AsterismError as error:
        return RuleTestResult(test, tuple(line.strip() for line in str(error).splitlines()))


@dataclass(frozen=True, slots=True)
class _FoundMatch:
    """A match with its events, its measures, or both, as the output of the rule has them."""

    numbers: tuple[int, ...] | None
    text: str | None
    stages: Mapping[str, tuple[tuple[int, ...], str]]
    measures: Mapping[str, str | None] | None

    def fits(self, expected: ExpectedMatch) -> bool:
        if isinstance(expected, str):
            return self.text == " ".join(expected.split())
        if isinstance(expected, tuple):
            return self.numbers == expected
        if self.measures is not None:
            return all(name in self.measures and _equal(value, self.measures[name]) for name, value in expected.items())
        return self.stages.keys() == expected.keys() and all(
            self.stages[stage][1] == " ".join(value.split())
            if isinstance(value, str)
            else self.stages[stage][0] == (tuple(value) if isinstance(value, list | tuple) else value)
            for stage, value in expected.items()
        )

    def __str__(self) -> str:
        words = [] if self.text is None else [f"{self.text} {list(self.numbers or ())}"]
        if self.measures is not None:
            words.append(_object_text(self.measures))
        return one_line(" ".join(words), 500)


def _failure(rule: PatternProcessor, test: RuleTest, semantics: Semantics, udfs: UserFunctions) -> Iterator[str]:
    _check_expectations(rule, test)
    events = _TestEvents.of(test)
    literals, names = events.literals, events.schema.names
    rows = rows_of_matches(
        rule if rule.sql is not None else replace(rule, timed_out=test.timed_out is not None),
        events.schema,
        events.parts,
        keys=[literals.key] if literals.key in names else [],
        time=literals.time if literals.time in names else None,
        semantics=semantics,
        udfs=udfs,
    )
    differs = False
    for output, expected in ((MATCHES, test.matches), (TIMED_OUT, test.timed_out)):
        if expected is None:
            continue
        matches = [_found_match(row, events) for row in rows.get(output, ())]
        missing = []
        # The objects with the most values come first, because an object may omit values of a match.
        for wanted in sorted(expected, key=lambda wanted: -len(wanted) if isinstance(wanted, Mapping) else 0):
            place = next((n for n, match in enumerate(matches) if match.fits(wanted)), None)
            if place is None:
                missing.append(wanted)
            else:
                del matches[place]
        prefix = "" if output == MATCHES else "timed out: "
        for what, differing in (("expected, not found", missing), ("found, not expected", matches)):
            yield from (f"{prefix}{what}: {_expected_text(match)}" for match in differing[:MAX_LINES])
            if len(differing) > MAX_LINES:
                yield f"{prefix}{what}: {len(differing) - MAX_LINES:,} more"
        differs |= bool(missing or matches)
    if differs:
        words = test.events if isinstance(test.events, str) else ", ".join(map(_object_text, test.events))
        yield f"events: {one_line(words, 1000)}"


def _check_expectations(rule: PatternProcessor, test: RuleTest) -> None:
    """Reject expectations that no match can meet, whatever the events are."""
    expected = [*test.matches, *(test.timed_out or ())]
    if rule.sql is None:
        return
    if test.timed_out is not None:
        raise StreamDefinitionError("a rule in SQL has no timed-out partial matches")
    clause = read(rule.sql)
    if clause.rows is RowsPerMatch.ONE and any(not isinstance(match, Mapping) for match in expected):
        raise StreamDefinitionError(
            "the matches of a rule in SQL have no events, except with ALL ROWS PER MATCH",
            hint='an object with its measures: {"failures": 3}',
        )


@dataclass(frozen=True, slots=True)
class _TestEvents:
    """:param number: the column with the number of an event, from 1"""

    schema: pa.Schema
    parts: Sequence[Part]
    literals: Literals
    number: str

    @classmethod
    def of(cls, test: RuleTest) -> _TestEvents:
        kind, value, key, time = (test.literals.get(name, getattr(WORDS, name)) for name in COLUMNS_OF_LITERALS)
        literals = Literals(kind, value, key, time)
        types = {name: type_of(text) for name, text in test.columns.items()}
        if isinstance(test.events, str):
            names = dict(zip(EVENTS.names, (literals.key, literals.time, literals.kind, literals.value), strict=True))
            usual = {names[field.name]: field.type for field in EVENTS}
            schema = pa.schema(list((usual | types).items()))
            parts = literals.parse(test.events, schema)
        else:
            rows = [_typed(row, types, literals) for row in test.events]
            schema = _schema_of(rows, types)
            parts = [table_of(rows, schema)] if rows else []
        number = number_column(schema)
        numbered: list[Part] = []
        count = 0
        for part in parts:
            if isinstance(part, pa.Table):
                numbers = np.arange(count + 1, count + part.num_rows + 1)
                part = part.append_column(number, pa.array(numbers))
                count += part.num_rows
            numbered.append(part)
        return cls(schema.append(pa.field(number, pa.int64())), numbered, literals, number)


def number_column(schema: pa.Schema) -> str:
    """The name of a column with the numbers of events, which no other column has."""
    number = "__event"
    while number in schema.names:
        number = "_" + number
    return number


def _typed(row: Mapping[str, Any], types: Mapping[str, pa.DataType], literals: Literals) -> Row:
    """The values of an event. Strings become values of the types of their columns, and the event time."""
    values = dict(row)
    for name, value in row.items():
        kind = types.get(name)
        if not isinstance(value, str) or (kind is not None and pa.types.is_string(kind)):
            continue
        if name == literals.time and (kind is None or pa.types.is_timestamp(kind)):
            column = TimeColumn.of(name, pa.schema([(name, kind or EVENTS.field("ts").type)]))
            values[name] = column.from_micros(np.array([literals.micros(value)]))[0].as_py()
        elif kind is not None:
            try:
                values[name] = pa.scalar(value, pa.string()).cast(kind).as_py()
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise InvalidEventError(f"{value!r:.60} is not a value of {name:.60}: {kind}") from None
    return values


def _schema_of(rows: Sequence[Row], types: Mapping[str, pa.DataType]) -> pa.Schema:
    names = dict.fromkeys(name for row in rows for name in row)
    others = [{name: row.get(name) for name in names if name not in types} for row in rows]
    inferred = table_of(others).schema
    fields = {field.name: pa.string() if pa.types.is_null(field.type) else field.type for field in inferred}
    return pa.schema(list((fields | dict(types)).items()))


def _found_match(row: Row, events: _TestEvents) -> _FoundMatch:
    measures = row["measures"]
    if row["events"] is None:
        return _FoundMatch(None, None, {}, measures if measures is not None else {})
    taken: dict[str, list[Row]] = {}
    for accepted in row["events"]:
        taken.setdefault(accepted["stage"], []).append(accepted["event"])

    def numbers(rows: Sequence[Row]) -> tuple[int, ...]:
        return tuple(event[events.number] for event in rows)

    def text(rows: Sequence[Row]) -> str:
        without = ({name: value for name, value in event.items() if name != events.number} for event in rows)
        return " ".join(map(events.literals.text, without))

    all_rows = [accepted["event"] for accepted in row["events"]]
    stages = {stage: (numbers(rows), text(rows)) for stage, rows in taken.items()}
    return _FoundMatch(numbers(all_rows), text(all_rows), stages, measures)


def rows_of_matches(rule: PatternProcessor, *arguments: Any, **options: Any) -> dict[str, list[Row]]:
    """The rows of :func:`rows_of_rule`, each with the events of its match, if they are known, and with the measures, if the rule
    has any. The function of the rule is not called.
    """
    if rule.sql is not None:
        return rows_of_rule(rule, *arguments, **options)
    rows = rows_of_rule(replace(rule, select=(), function=None), *arguments, **options)
    if rule.select:
        measured = rows_of_rule(replace(rule, function=None), *arguments, **options)
        for output in (MATCHES, TIMED_OUT):
            measures = {row["match_id"]: row["measures"] for row in measured.get(output, ())}
            rows[output] = [row | {"measures": measures[row["match_id"]]} for row in rows.get(output, ())]
    return rows


def rows_of_rule(
    rule: PatternProcessor,
    schema: pa.Schema,
    parts: Sequence[Part],
    *,
    keys: Sequence[str],
    time: str | None,
    semantics: Semantics,
    udfs: Mapping[str, Any] | None = None,
) -> dict[str, list[Row]]:
    """The rows of all outputs of a query with one rule, at the end of its input.

    :param keys: the key columns of the stream, for a rule without a key
    :param time: the event-time column
    :param udfs: the functions in Python that the query lists for rules
    :raises AsterismError: the rule cannot be used with these events, fails on one of them, or exceeds a limit
    """
    store, functions = SingleSetStore(), checked(udfs, Purpose.RULES)
    options = RuleOptions(
        keys=keys, time=time, semantics=semantics, udfs=functions, wants_late=True, disable_on_limit=False
    )
    operator = DynamicCepOperator(schema, store, options)
    data = rule.as_data()
    operator.compiler.try_out(data)
    store.put(ProcessorSet(1, (data,)))
    state = MemoryStore()
    latest = BEFORE_TIME
    calls: list[tuple[list[Arrival], Now]] = [
        ([Arrival(PROCESSORS, prepared_set(rules.to_bytes())) for rules in store.retained()], Now())
    ]
    for part in parts:
        if isinstance(part, pa.Table):
            prepared = operator.prepare(EVENTS_INPUT, part)
            times = prepared.column(TIME).to_numpy()
            latest = max(latest, int(times.max(initial=BEFORE_TIME)))
            calls.append(([Arrival(EVENTS_INPUT, prepared)], Now()))
        else:
            calls.append(([Arrival(EVENTS_INPUT, None, latest if part is None else part)], Now()))
    calls.append(([], Now(END_OF_TIME, END_OF_TIME)))
    rows: dict[str, list[Row]] = {}
    for arrivals, now in calls:
        for result in operator.slices(state, arrivals, now):
            for name, table in result.outputs.items():
                rows.setdefault(name, []).extend(table.to_pylist(maps_as_pydicts="lossy"))
    return rows


def _equal(expected: Any, value: str | None) -> bool:
    """Whether a value of JSON equals the value of a measure, which is a string."""
    if expected is None or value is None or isinstance(expected, str):
        return bool(expected == value)
    if isinstance(expected, bool):
        return value == str(expected).lower()
    if isinstance(expected, int | float):
        try:
            return bool(float(value) == expected)
        except ValueError:
            return False
    return False


def _expected_text(match: ExpectedMatch | _FoundMatch) -> str:
    if isinstance(match, Mapping):
        return _object_text(match)
    return one_line(str(list(match)) if isinstance(match, tuple) else str(match), 500)


def _object_text(value: Mapping[str, Any]) -> str:
    words = (f"{one_line(str(name), 60)}={one_line(str(part), 100)}" for name, part in list(value.items())[:MAX_LINES])
    return "{" + ", ".join(words) + "}"
