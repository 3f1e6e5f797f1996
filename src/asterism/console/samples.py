"""Tries a rule on a few events: its matches, and the trace of one key. Spark is not required."""

from __future__ import annotations

import base64
import difflib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.event_files import as_in_spark, files_of, read_events, read_table, timestamps
from asterism.columns.keys import key_strings, key_values
from asterism.columns.schemas import schema_of
from asterism.columns.time import time_text
from asterism.console.needed_events import needed_events
from asterism.discovery.sources.lookup_sources import source_of
from asterism.errors import AsterismError, InvalidEventError, StreamDefinitionError
from asterism.expressions.types import name_of
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.clause.clause import RowsPerMatch
from asterism.row_patterns.clause.reading import read
from asterism.rules.binding.clauses import traced_clause_of
from asterism.rules.checking.validation import check_processor
from asterism.rules.definition.lookup_tables import table_of, with_lookups
from asterism.rules.definition.processor import PatternProcessor, as_in_force
from asterism.rules.definition.rule_tests import read_tests
from asterism.rules.definition.source_words import SourceWords, words_of
from asterism.rules.matching.result_rows import MATCHES, TIMED_OUT
from asterism.rules.publishing.lookup_watch import DefinedLookup, defined_lookups, fixed_versions, lookups_of
from asterism.rules.sets.set_store import SingleSetStore
from asterism.streams.evidence import key_texts, keys_of_events
from asterism.testing.rule_harness import number_column, rows_of_matches, run_rule_test
from asterism.text.printable import one_line
from asterism.text.strict_json import DocumentSyntaxError, decode, nowhere, text_of
from asterism.trace.report import Trace, trace
from asterism.trace.row_patterns import RowPatternTrace, trace_rows

_UNKNOWN = re.compile(r"unknown column '([^']*)'")
_ONE_ROW = re.compile(r"\bONE\s+ROW\s+PER\s+MATCH\b", re.IGNORECASE)
_MEASURES = re.compile(r"\bMEASURES\b", re.IGNORECASE | re.ASCII)
_BEFORE_PATTERN = re.compile(r"\b(?:ONE\s+ROW\s+PER\s+MATCH\b|AFTER\s+MATCH\b|PATTERN\s*\()", re.IGNORECASE)
MAX_TEXT = 1_000_000
MAX_EVENTS = 2_000
MAX_COLUMNS = 200
MAX_MATCHES = 200
MAX_KEYS = 200
MAX_LINES = 600
"""Lines of a trace."""
MAX_CELL = 300
MAX_SEARCHED = 100_000
"""Events of a history that is searched for keys with matches, when a sample is taken from it."""
MAX_FILES = 500_000_000
"""Bytes of the files of the history, from which events can be taken."""


@dataclass(frozen=True, slots=True)
class SampleSettings:
    """The parts that all requests share.

    :param columns: the types of columns, as Spark's DDL; None: those of the history, or else of each sample
    :param history: files of events
    :param keys: the key columns of the stream, for rules without a key
    :param time: the event-time column
    """

    columns: str | None = None
    history: Sequence[str] = ()
    keys: Sequence[str] = ()
    time: str | None = None
    semantics: str = Semantics.DEFAULT.value
    lookups: Sequence[tuple[str, str, str]] = ()


@dataclass(slots=True)
class Samples:
    """Answers requests about samples."""

    settings: SampleSettings
    _history: pa.Table | None = field(default=None, init=False)
    _lookups: Sequence[DefinedLookup] | None = field(default=None, init=False)

    def history(self) -> pa.Table:
        """:raises AsterismError: there is none, it is too large, or it cannot be read"""
        if self._history is None:
            if not self.settings.history:
                raise StreamDefinitionError("there is no history", hint="start the console with --history")
            paths = [Path(path) for path in self.settings.history]
            size = sum(file.stat().st_size for path in paths for file in files_of(path)[1])
            if size > MAX_FILES:
                raise StreamDefinitionError(
                    f"the history is too large to take events from it: {size:,} bytes (limit {MAX_FILES:,})",
                    hint="paste events, or run a backtest",
                )
            tables = [read_events(path, self.settings.time) for path in paths]
            self._history = pa.concat_tables(tables, promote_options="permissive")
        return self._history

    def schema(self) -> pa.Schema | None:
        """The columns of events, if they are known, and of lookups."""
        if self.settings.columns is not None:
            columns = schema_of(self.settings.columns)
        elif self.settings.history:
            columns = self.history().schema
        else:
            return None
        return with_lookups(columns, [lookup.column for lookup in self._lookups_over(columns)])

    def _lookups_over(self, events: pa.Schema) -> Sequence[DefinedLookup]:
        if self._lookups is None:
            self._lookups = defined_lookups(lookups_of(self.settings.lookups), events, source_of)
        return self._lookups

    def _looked_up(self, events: pa.Table) -> pa.Table:
        """The events with the lookups that the sample does not have itself."""
        names = [name for name, _, _ in self.settings.lookups]
        without_lookups = events.drop_columns([name for name in names if name in events.column_names])
        lookups = self._lookups_over(without_lookups.schema)
        store = SingleSetStore()
        versions = {lookup_version.name: lookup_version for lookup_version in fixed_versions(lookups, store)}
        for column in (lookup.column for lookup in lookups):
            if column.name in events.column_names:
                place = events.column_names.index(column.name)
                if events.column(place).null_count < events.num_rows:
                    continue
                events = events.remove_column(place)
            keys = column.keys_of(without_lookups, column.key_expressions(without_lookups.schema))
            looked_up = table_of(column, versions[column.name], store.read_lookup).of_keys(keys)
            events = events.append_column(column.field, looked_up)
        return events

    def answer(self, request: Mapping[str, Any]) -> Any:
        """:raises AsterismError: the request cannot be answered, for the reason in the message"""
        match request["do"]:
            case "schema":
                schema_of_sample = self.schema()
                return None if schema_of_sample is None else base64.b64encode(schema_of_sample.serialize()).decode()
            case "events":
                rule = request["rule"]
                processor = None if rule is None else PatternProcessor.from_dict(rule)
                return self._events(processor, request["key"], request["limit"], request.get("around"))
            case "tests":
                return self._tested(request["rule"])
            case "test":
                return self._test_from(request["rule"], request["events"], request["name"], request.get("needed"))
            case _:
                processor = PatternProcessor.from_dict(request["rule"])
                words = words_of(request["rule"], processor)
                return self._tried(processor, words, request["events"], request["key"])

    def _events(
        self,
        rule: PatternProcessor | None,
        key: Sequence[str | None] | None,
        limit: int,
        around: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Events of the history as JSON lines: those of a key; without a key, those of keys with matches, and with several
        events; without a rule, the first ones.

        :param around: the times of the first and the last event of a match, for a key with more events than *limit*
        """
        events = self.history()
        time = self.settings.time if self.settings.time in events.column_names else None
        if time is not None:
            events = events.take(pc.sort_indices(events, sort_keys=[(time, "ascending")]))
        of, begin = events.num_rows, 0
        if rule is not None:
            events = self._looked_up(events)
            keys = keys_of_events(rule, events, self.settings.keys)
            if key is not None:
                wanted = key_strings([pa.chunked_array([[part]], pa.string()) for part in key], 1)[0]
                events = events.filter(pc.equal(keys, wanted))
                of = events.num_rows
                begin = _begin(events, time, limit, around)
            else:
                events = events.take(self._rows_of_keys(rule, events, keys, time, limit))
            events = events.drop_columns([name for name, _, _ in self.settings.lookups])
        rows = events.slice(begin, limit).to_pylist()
        lines = [json.dumps(row, ensure_ascii=False, default=time_text) for row in rows]
        return {"text": "\n".join(lines), "events": len(lines), "of": of}

    def _rows_of_keys(
        self, rule: PatternProcessor, events: pa.Table, keys: pa.Array, time: str | None, limit: int
    ) -> pa.Array:
        """The rows of some keys as a whole: half of them of keys with a match, then of keys with several events."""
        counts = Counter(keys.to_pylist())
        few = [key for key, count in counts.items() if 1 < count <= max(limit // 2, 2)]
        several = sorted(few, key=lambda key: -counts[key]) or sorted(counts, key=lambda key: -counts[key])
        chosen: dict[str, None] = {}
        room = limit
        matched = self._matched_keys(rule, events, time)
        for number, key in enumerate([*matched, *several]):
            half = limit // 2 if number < len(matched) else 0
            if key not in chosen and counts[key] <= room - half:
                chosen[key] = None
                room -= counts[key]
        wanted = pa.array(list(chosen) or several[:1], pa.string())
        return pc.indices_nonzero(pc.is_in(keys, wanted))

    def _matched_keys(self, rule: PatternProcessor, events: pa.Table, time: str | None) -> list[str]:
        """The keys with matches, if the history is small enough to search it at once."""
        if events.num_rows > MAX_SEARCHED:
            return []
        settings = self.settings
        rule = as_in_force(rule)
        try:
            matches, _ = numbered_matches(rule, events, settings.keys, time, Semantics(settings.semantics))
        except AsterismError:
            return []
        found = dict.fromkeys(tuple(match["key"]) for match in matches)
        return [key_strings([pa.chunked_array([[part]], pa.string()) for part in key], 1)[0].as_py() for key in found]

    def _tried(
        self, rule: PatternProcessor, words: SourceWords, text: str, key: Sequence[str | None] | None
    ) -> dict[str, Any]:
        settings = self.settings
        # Rules are tried as if they were in force.
        rule = as_in_force(rule)
        schema = self.schema()
        sample = events_in(text, schema, settings.time)
        events = self._looked_up(with_columns_of(sample, schema))
        time = settings.time if settings.time in events.column_names else None
        # Columns without values are those that the sample does not have.
        shown = events.select([name for name in events.column_names if events[name].null_count < events.num_rows])
        semantics = Semantics(settings.semantics)
        keys = keys_of_events(rule, events, settings.keys)
        response: dict[str, Any] = {
            "columns": [[field.name, name_of(field.type)] for field in shown.schema],
            "time": time,
            "rows": [[_cell(value) for value in row.values()] for row in shown.to_pylist()],
            "key": list(key_texts(rule, settings.keys)),
            "rowKeys": [key_values(encoded_key) for encoded_key in keys.to_pylist()],
        }
        response["missing"] = (
            [] if schema is None else list(_missing(rule, sample.schema, events.schema, semantics, settings))
        )
        try:
            matches, timed_out = numbered_matches(rule, events, settings.keys, time, semantics)
            if rule.sql is not None:
                _add_events(matches, rule, events, settings.keys, time, semantics)
                for match in matches:
                    match["events"] = _named(match["events"], words)
            response["matches"], response["timedOut"] = matches[:MAX_MATCHES], timed_out[:MAX_MATCHES]
            response["moreMatches"] = len(matches) - len(response["matches"])
            if rule.suppress is not None:
                every, _ = numbered_matches(replace(rule, suppress=None), events, settings.keys, time, semantics)
                response["suppressed"] = len(every) - len(matches)
        except AsterismError as error:
            matches = []
            response["error"] = {"message": error.message, "detail": error.detail, "hint": error.hint}
        counts, matched = Counter(keys.to_pylist()), Counter(tuple(match["key"]) for match in matches)
        response["keys"] = [
            {"key": key_values(encoded_key), "events": count, "matches": matched[tuple(key_values(encoded_key))]}
            for encoded_key, count in list(counts.items())[:MAX_KEYS]
        ]
        chosen = self._chosen(counts, matches, key)
        response["numbers"] = _numbers(rule, events, keys, time)
        if chosen is not None:
            number = number_column(events.schema)
            numbered = events.append_column(number, pa.array(range(events.num_rows), pa.int64()))
            lines, order = _traced(rule, words, numbered.filter(pc.equal(keys, chosen)), number, time, semantics)
            response["trace"] = {"key": key_values(chosen), "lines": lines}
            for at, event in enumerate(order, 1):
                response["numbers"][event] = at
        return response

    def _tested(self, rule: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The results of the tests of a rule."""
        processor, semantics = PatternProcessor.from_dict(rule), Semantics(self.settings.semantics)
        results = [run_rule_test(processor, test, semantics) for test in read_tests(rule.get("tests"))]
        return [{"name": result.test.name, "failure": list(result.failure)} for result in results]

    def _test_from(
        self, item: Mapping[str, Any], text: str, name: str, needed: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """A test that expects what a rule finds in a sample.

        :param needed: only the events that matches need: of all, or of that with this ``key``, ``start`` and ``end``; None: all
            events
        :raises AsterismError: the rule fails on the sample, or a test cannot have such events
        """
        settings = self.settings
        rule = as_in_force(PatternProcessor.from_dict(item))
        schema = self.schema()
        sample = events_in(text, schema, settings.time)
        time = settings.time if settings.time in sample.column_names else None
        semantics = Semantics(settings.semantics)
        if needed is not None:
            sample = sample.take(self._needed(rule, sample, time, needed))
        matches, _ = numbered_matches(
            rule, self._looked_up(with_columns_of(sample, schema)), settings.keys, time, semantics
        )
        shown = sample.select([field for field in sample.column_names if sample[field].null_count < sample.num_rows])
        rows = json.loads(json.dumps(shown.to_pylist(), ensure_ascii=False, default=time_text))
        literals = {"time": time, "key": settings.keys[0] if settings.keys else None}
        test: dict[str, Any] = {
            "name": name,
            "events": [{field: value for field, value in row.items() if value is not None} for row in rows],
            "matches": [
                [event for _, event in match["events"]] if match["events"] else dict(match["measures"])
                for match in matches
            ],
            "columns": {field.name: name_of(field.type) for field in with_columns_of(sample, schema).schema},
            "literals": {part: column for part, column in literals.items() if column is not None},
        }
        result = run_rule_test(rule, read_tests([test])[0], semantics)
        if not result.passed:
            raise StreamDefinitionError("this sample cannot be a test of the rule", "\n".join(result.failure))
        return test

    def _needed(
        self, rule: PatternProcessor, sample: pa.Table, time: str | None, wanted: Mapping[str, Any]
    ) -> Sequence[int]:
        """The numbers of the events of a sample that its matches need, or the *wanted* one of them."""
        settings, semantics = self.settings, Semantics(self.settings.semantics)
        events = self._looked_up(with_columns_of(sample, self.schema()))
        every = list(range(events.num_rows))

        def outcome(numbers: Sequence[int]) -> list[dict[str, Any]]:
            kept = events.take(numbers)
            matches, _ = numbered_matches(rule, kept, settings.keys, time, semantics)
            if rule.sql is not None:
                _add_events(matches, rule, kept, settings.keys, time, semantics)
            for match in matches:
                match["events"] = [[stage, numbers[event - 1]] for stage, event in match["events"]]
            return matches

        try:
            matches = outcome(every)
        except AsterismError:
            return every  # the test then says why
        keys = keys_of_events(rule, events, settings.keys).to_pylist()
        order = every if time is None else pc.sort_indices(events, sort_keys=[(time, "ascending")]).to_pylist()
        chosen = [match for match in matches if all(match[name] == value for name, value in wanted.items())]

        def needed_by(kept: Sequence[Mapping[str, Any]]) -> Sequence[int] | None:
            matched = {event for match in kept for event in _events_of(match, keys, events, time)}
            return needed_events(keys, order, matched, lambda numbers: outcome(numbers) == kept)

        numbers = needed_by(chosen) if chosen else None
        if numbers is None and matches:
            numbers = needed_by(matches)
        return every if numbers is None else numbers

    @staticmethod
    def _chosen(
        counts: Mapping[str, int], matches: Sequence[Mapping[str, Any]], key: Sequence[str | None] | None
    ) -> str | None:
        """The key to trace: the given one, the first that has a match, or the one with most events."""
        wanted = key if key is not None else matches[0]["key"] if matches else None
        for candidate in counts:
            if wanted is not None and key_values(candidate) == list(wanted):
                return candidate
        return max(counts, key=lambda candidate: counts[candidate], default=None)


# ---------------------------------------------------------------------- events


def events_in(text: str, schema: pa.Schema | None, time: str | None) -> pa.Table:
    """The events of a text: JSON lines, a JSON list, or CSV with a header.

    :param schema: the types of columns that have this name; those of all others are inferred
    :raises StreamDefinitionError: the text cannot be read, or is too large
    :raises InvalidEventError: a value is not of the type of its column

    >>> events_in("user,n\\nann,1\\n", None, None).to_pylist()
    [{'user': 'ann', 'n': 1}]
    """
    if len(text) > MAX_TEXT:
        raise StreamDefinitionError(f"the events have {len(text):,} characters (limit {MAX_TEXT:,})")
    if not text.strip():
        raise StreamDefinitionError("there are no events", hint="paste JSON lines, a JSON list, or CSV with a header")
    try:
        if text.lstrip()[0] in "[{":
            lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in _rows_in(text)).encode()
            table = read_table(io.BytesIO(lines), "json") if lines else pa.table({})
        else:
            table = read_table(io.BytesIO(text.encode()), "csv")
            _check_header(table.column_names, schema)
    except (pa.ArrowException, UnicodeEncodeError) as error:
        raise StreamDefinitionError("the events cannot be read", str(error).splitlines()[0]) from None
    for what, count, most in (("events", table.num_rows, MAX_EVENTS), ("columns", table.num_columns, MAX_COLUMNS)):
        if count > most:
            raise StreamDefinitionError(f"there are {count:,} {what} (limit {most:,})")
    if not table.num_rows:
        raise StreamDefinitionError("there are no events")
    if len(set(table.column_names)) < table.num_columns:
        raise StreamDefinitionError("two columns have the same name")
    for number, column in enumerate(table.schema):
        wanted = None if schema is None or column.name not in schema.names else schema.field(column.name).type
        if wanted is not None:
            table = table.set_column(number, column.name, _typed(table.column(number), column.name, wanted))
        elif pa.types.is_null(column.type):
            table = table.set_column(number, column.name, table.column(number).cast(pa.string()))
    return as_in_spark(table, "csv", time)


def with_columns_of(events: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """The events with all columns of *schema*: a condition may read a column that no event of the sample has."""
    for column in schema or ():
        if column.name not in events.column_names:
            events = events.append_column(column.name, pa.nulls(events.num_rows, column.type))
    return events


def _missing(
    rule: PatternProcessor, sample: pa.Schema, schema: pa.Schema, semantics: Semantics, settings: SampleSettings
) -> Iterator[str]:
    """The columns of *schema* that the rule reads and the sample lacks, each with similar ones of the sample."""
    known = {*sample.names, *(name for name, _, _ in settings.lookups)}
    names = [name for name in schema.names if name in known]
    absent = [name for name in schema.names if name not in known]
    key = [] if rule.sql is not None or rule.key is not None else [name for name in settings.keys if name in absent]
    found = dict.fromkeys(key)
    while True:
        given = pa.schema([schema.field(name) for name in (*names, *found)])
        problems = check_processor(rule.to_dict(), nowhere, given, semantics).problems
        unknown = [match[1] for problem in problems if (match := _UNKNOWN.search(problem.message))]
        new = [name for name in dict.fromkeys(unknown) if name in absent and name not in found]
        if not new:
            break
        found.update(dict.fromkeys(new))
    for name in found:
        similar = difflib.get_close_matches(name, sample.names, n=1)
        yield f"No event has {name}, which the rule reads: it is NULL." + (
            f" Did you mean {name} by {similar[0]}?" if similar else ""
        )


def _check_header(names: Sequence[str], schema: pa.Schema | None) -> None:
    """:raises StreamDefinitionError: the first line is no header"""
    if (
        schema is None
        or not schema.names
        or not {name.lower() for name in names}.isdisjoint(map(str.lower, schema.names))
    ):
        return
    raise StreamDefinitionError(
        "the first line is no header: none of its values is a column of the events",
        f"Its values are {one_line(', '.join(names), 200)}.",
        f"begin with a line such as {one_line(','.join(schema.names), 200)}",
    )


def _rows_in(text: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a JSON list, or of JSON lines."""
    if text.lstrip()[0] == "[":
        rows, numbers = _decoded(text, 1), None
    else:
        numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(numbered) > MAX_EVENTS:
            raise StreamDefinitionError(f"there are {len(numbered):,} events (limit {MAX_EVENTS:,})")
        rows, numbers = [_decoded(line, number) for number, line in numbered], [number for number, _ in numbered]
    for at, row in enumerate(rows):
        where = f"event {at + 1}" if numbers is None else f"line {numbers[at]}"
        if not isinstance(row, Mapping):
            raise StreamDefinitionError(f"{where} is not an object", hint='{"user": "ann", "price": 5}')
        if len(row) > MAX_COLUMNS:
            raise StreamDefinitionError(f"{where} has {len(row):,} columns (limit {MAX_COLUMNS:,})")
        yield row


def _decoded(text: str, line: int) -> Any:
    try:
        return decode(text_of(text))
    except DocumentSyntaxError as error:
        raise StreamDefinitionError(
            f"line {line + error.line - 1}, column {error.column}: {error.message}", error.detail, error.hint
        ) from None


def _typed(column: pa.ChunkedArray, name: str, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    try:
        if pa.types.is_timestamp(wanted) and pa.types.is_string(column.type):
            column = timestamps(column)
        if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
            if wanted.tz is not None and column.type.tz is None:
                column = pc.assume_timezone(column, "UTC")
        if pa.types.is_string(wanted) and not pa.types.is_string(column.type):
            return column.cast(pa.string())
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        at = next((at for at in range(len(column)) if not _can_be(column[at], wanted)), None)
        where = "" if at is None else f"event {at + 1}: "
        value = str(error).splitlines()[0] if at is None else f"The value is {one_line(repr(column[at].as_py()), 100)}."
        raise InvalidEventError(
            f"{where}the column {name!r:.60} is of type {name_of(column.type)}, not {name_of(wanted)}",
            value,
            "write a time as 2026-01-31 12:00:00" if pa.types.is_timestamp(wanted) else None,
        ) from None


def _can_be(value: pa.Scalar, wanted: pa.DataType) -> bool:
    try:
        if pa.types.is_timestamp(wanted) and pa.types.is_string(value.type):
            return not value.is_valid or pa.types.is_timestamp(timestamps(pa.chunked_array([[value.as_py()]])).type)
        value.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    text = time_text(value) if isinstance(value, datetime) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


# ---------------------------------------------------------------------- matches


def numbered_matches(
    rule: PatternProcessor, events: pa.Table, keys: Sequence[str], time: str | None, semantics: Semantics
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The matches and the timed-out partial matches of a rule, each with the numbers of its events (from 1), where they are
    known. The function of a rule is not called.

    :raises AsterismError: as for a query
    """
    number = number_column(events.schema)
    numbered = events.append_column(number, pa.array(range(1, events.num_rows + 1), pa.int64()))
    rows = rows_of_matches(rule, numbered.schema, [numbered], keys=keys, time=time, semantics=semantics)
    outputs = []
    for name, decided in ((MATCHES, "match_time"), (TIMED_OUT, "timeout_time")):
        made = [
            {
                "key": row["key"],
                "start": time_text(row["start_time"]),
                "end": time_text(row["end_time"]),
                "time": time_text(row[decided]),
                "events": [[entry["stage"], entry["event"][number]] for entry in row["events"] or ()],
                "measures": row["measures"] or {},
                "suppressed": row.get("suppressed") or 0,
            }
            for row in rows.get(name, ())
        ]
        outputs.append(sorted(made, key=lambda match: (str(match["time"]), str(match["key"]))))
    return outputs[0], outputs[1]


def _add_events(
    matches: Sequence[dict[str, Any]],
    rule: PatternProcessor,
    events: pa.Table,
    keys: Sequence[str],
    time: str | None,
    semantics: Semantics,
) -> None:
    """Add the events to the matches of a clause that has one row for each match, from the same clause with all rows."""
    assert rule.sql is not None
    if not matches or any(match["events"] for match in matches):
        return
    text = _with_all_rows(rule.sql)
    if text is None:
        return
    try:
        rows, _ = numbered_matches(replace(rule, sql=text, suppress=None), events, keys, time, semantics)
    except AsterismError:
        return  # not every clause can be written so
    of_match: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        of_match.setdefault(_extent(row), []).extend(row["events"])
    extents = Counter(map(_extent, matches))
    for match in matches:
        if extents[_extent(match)] == 1:  # of several with the same extent, the events are not known
            match["events"] = of_match.get(_extent(match), [])


def _events_of(match: Mapping[str, Any], keys: Sequence[str], events: pa.Table, time: str | None) -> list[int]:
    """The numbers of the events of a match: where they are not known, those of its key from its first to its last time."""
    if match["events"]:
        return [event for _, event in match["events"]]
    own = [event for event, key in enumerate(keys) if key_values(key) == list(match["key"])]
    if time is None:
        return own
    times = events.column(time)
    return [event for event in own if match["start"] <= time_text(times[event].as_py()) <= match["end"]]


def _named(events: Sequence[Sequence[Any]], words: SourceWords) -> list[list[Any]]:
    """The events with the names that the author of a rule knows, without those that have none."""
    named = [(words.variables.name(variable), event) for variable, event in events]
    return [[name, event] for name, event in named if name]


def _extent(match: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(match["key"]), match["start"], match["end"]


def _with_all_rows(sql: str) -> str | None:
    """A clause with ALL ROWS PER MATCH and without measures, whose names could be those of columns; None: it has other rows."""
    clause = read(sql)
    if clause.rows is not RowsPerMatch.ONE:
        return None
    begin, end = 0, 0
    if clause.measures:
        first, last = clause.measures[0].expression, clause.measures[-1].expression
        words = [found.start() for found in _MEASURES.finditer(sql, 0, first.start)]
        begin, end = words[-1] if words else -1, last.start + len(last.text)
    following = _BEFORE_PATTERN.search(sql, end)
    if begin < 0 or following is None:
        return None
    begin = begin if clause.measures else following.start()
    rest = _ONE_ROW.sub("", sql[following.start() :], count=1)
    return f"{sql[:begin]}ALL ROWS PER MATCH {rest}"


def _traced(
    rule: PatternProcessor,
    words: SourceWords,
    events: pa.Table,
    number: str,
    time: str | None,
    semantics: Semantics,
) -> tuple[list[tuple[str, str]], list[int]]:
    """The lines of a trace, each with the kind of its step, and the *number* of each event that the trace numbers."""
    try:
        report: Trace | RowPatternTrace
        if rule.pattern is None:
            report = trace_rows(traced_clause_of(rule, time), events, explained=MAX_LINES, words=words.variables)
            traced = report.rows
        else:
            report = trace(rule.pattern, events, time=time, semantics=semantics)
            traced = report.events
        lines = [("" if what is None else what.value, words.line(line)) for what, line in report.lines(limit=MAX_LINES)]
        return _summary_last(lines), traced.column(number).to_pylist()
    except AsterismError as error:
        return [("error", str(error))], []


def _summary_last(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The lines of a trace as the page reads them, which shows the summary beside the steps."""
    end = next((at for at, (_, line) in enumerate(lines) if not line), len(lines))
    return [*lines[:1], *lines[end:], ("", ""), *lines[1:end]]


def _numbers(rule: PatternProcessor, events: pa.Table, keys: pa.Array, time: str | None) -> list[int]:
    """For each event its number among those of its key: in the order of the events, or of a clause in that of time."""
    order = range(events.num_rows)
    if rule.sql is not None and time is not None:
        order = pc.sort_indices(events, sort_keys=[(time, "ascending")]).to_pylist()
    counted: Counter[str] = Counter()
    numbers = [0] * events.num_rows
    for event, key in ((event, keys[event].as_py()) for event in order):
        counted[key] += 1
        numbers[event] = counted[key]
    return numbers


def _begin(events: pa.Table, time: str | None, limit: int, around: Sequence[str] | None) -> int:
    """The first of *limit* events that are shown of a key: the last ones that end soon after a match."""
    if around is None or time is None or events.num_rows <= limit:
        return 0
    times = events.column(time)  # in order
    start, end = _typed(pa.chunked_array([list(around)]), time, times.type)
    first, after = pc.sum(pc.less(times, start)).as_py() or 0, pc.sum(pc.less_equal(times, end)).as_py() or 0
    return max(0, min(first, max(after + limit // 5, limit) - limit))
