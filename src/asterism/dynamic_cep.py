"""Many patterns that change while the stream runs, as one operator.

The events are a keyed input, the sets of pattern processors a broadcast one. Before the exchange an event is copied for each
key that some processor groups by, if it can matter to one of them; a copy belongs to a *selector*, the list of key expressions.
In a key group every processor in force sees the copies of its selector that arrived since the set that brought it and whose
times it covers. Partial matches of a processor live in a page of their own, several of which share a bucket of state.

Source: FLIP-200.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from asterism.cep import PROCESSING_TIME
from asterism.compiler import Semantics
from asterism.errors import AsterismError, InvalidEventError, PatternProcessorError
from asterism.expressions import Scope, Vectorized, parse
from asterism.key_group import KEY_HASH, Group, KeyGroupOperator
from asterism.key_group import LATE as LATE_ELEMENTS
from asterism.matcher import Matcher, Step
from asterism.operator import BEFORE_TIME, END_OF_TIME, NO_TIME, TIME, Arrival, InputSpec, Now, Result
from asterism.outputs import MatchOutput, OutputKind, OutputSpec, TimeColumn, late_table
from asterism.processor_sets import Entry, ProcessorSet, ProcessorSource, passed, updated
from asterism.processors import PatternProcessor
from asterism.state import Page, StateStore, tables_from_bytes, tables_to_bytes

EVENTS, PROCESSORS = "events", "processors"
MATCHES, TIMED_OUT, LATE, ERRORS = "matches", "timed_out", "late", "errors"
BY_PROCESSOR = "matches_by_processor"
"""The metrics that count the matches of each processor: this, a slash, its id."""
BUCKETS = 16
SETS_PAGE = 256
"""The page of state that has the entries."""
SELECTOR, KEY, SINCE, FIRST = "__selector", "__key", "__since", "__first"
"""Columns of prepared events: the selector's number, the key as text, the set in force at arrival, is it the first copy?"""
DISABLED = "disabled"
_SETS = pa.schema([(TIME, pa.int64()), ("set", pa.binary())])
_TEXTS = pa.map_(pa.string(), pa.string())
_log = logging.getLogger("asterism.processors")


def selector_of(processor: PatternProcessor, keys: Sequence[str]) -> tuple[str, ...]:
    """The expressions that a processor groups by: its own, or the stream's."""
    return processor.key if processor.key is not None else tuple(keys)


def selector_number(selector: Sequence[str]) -> int:
    """The same in every process."""
    return int.from_bytes(hashlib.sha256(json.dumps(list(selector)).encode()).digest()[:8], "big", signed=True)


def key_texts(columns: Sequence[pa.ChunkedArray], rows: int) -> pa.Array:
    """Keys as texts, from which :func:`key_values` reads them back: each value after its length, ``-`` for a null."""
    if not columns:
        return pa.array([""] * rows, pa.string())
    parts = []
    for column in columns:
        text = pc.cast(column, pa.string())
        part = pc.binary_join_element_wise(pc.cast(pc.utf8_length(text), pa.string()), text, ":")
        parts.append(pc.fill_null(part, "-"))
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def key_values(text: str) -> list[str | None]:
    """The values in a key text.

    >>> key_values("3:ann-2:42")
    ['ann', None, '42']
    """
    found: list[str | None] = []
    at = 0
    while at < len(text):
        if text[at] == "-":
            found.append(None)
            at += 1
        else:
            colon = text.index(":", at)
            end = colon + 1 + int(text[at:colon])
            found.append(text[colon + 1 : end])
            at = end
    return found


@dataclass(frozen=True, slots=True)
class Compiled:
    """A processor bound to the schema of the events."""

    processor: PatternProcessor
    matcher: Matcher
    outputs: Mapping[str, MatchOutput]
    selector: tuple[str, ...]
    number: int

    @property
    def needs_all(self) -> bool:
        """Must it see events that meet none of its conditions?"""
        return not self.matcher.relevant_only


class ProcessorCompiler:
    """Binds processors to a stream's schema; the same object for the coordinator, which refuses what it cannot bind.

    :param keys: the stream's own key
    :param functions: what processors may name as their function: from a table of matches to a table of as many rows
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: TimeColumn,
        semantics: Semantics,
        functions: Mapping[str, Any],
    ) -> None:
        self.schema, self.keys, self.time = schema, list(keys), time
        self.semantics, self.functions = semantics, dict(functions)

    def compile(self, processor: PatternProcessor) -> Compiled:
        """:raises AsterismError: the pattern, a key or a measure means nothing for these events"""
        selector = selector_of(processor, self.keys)
        scope = Scope(self.schema)
        for text in selector:
            Vectorized(self.schema).add(scope.resolve(parse(text), text), text)
        if processor.function is not None and processor.function not in self.functions:
            raise PatternProcessorError(
                f"the function {processor.function!r:.120} is not known",
                f"Known: {', '.join(sorted(self.functions)) or 'none'}",
                "functions={name: function} in CEP.pattern_processors",
            )
        stages = [stage.name for stage in processor.pattern.atoms()]
        kinds = [OutputKind.MATCHES, *([OutputKind.TIMED_OUT] if processor.timed_out else [])]
        measures = processor.select or None
        outputs = {
            kind.value: MatchOutput(OutputSpec(kind, measures=measures), self.schema, (), self.time, stages)
            for kind in kinds
        }
        carried = {column for output in outputs.values() for column in output.carried}
        matcher = Matcher(
            processor.pattern, self.schema, [name for name in self.schema.names if name in carried], self.semantics
        )
        return Compiled(processor, matcher, outputs, selector, selector_number(selector))


class DynamicCepOperator(KeyGroupOperator):
    """Pattern processors over one stream of events.

    :param schema: the columns of the events
    :param keys: the stream's own key: columns or SQL expressions; none: processors without a key see one key
    :param time: the event-time column; None: processing time
    :param source: where :meth:`prepare` finds the sets
    :param functions: see :class:`ProcessorCompiler`
    :param disable_on_error: a processor that fails is disabled in the key group where it failed, and reported in the output
        ``errors``; otherwise the query fails
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        keys: Sequence[str] = (),
        time: str | None,
        source: ProcessorSource,
        semantics: Semantics = Semantics.DEFAULT,
        functions: Mapping[str, Any] | None = None,
        disable_on_error: bool = False,
    ) -> None:
        self.schema = schema
        self.source = source
        self.disable_on_error = disable_on_error
        self.processing_time = time is None
        self.time = PROCESSING_TIME if time is None else TimeColumn(time, schema.field(time).type)
        self.compiler = ProcessorCompiler(schema, keys, self.time, semantics, functions or {})
        self.pages = BUCKETS
        self.metrics = (MATCHES, TIMED_OUT, ERRORS, LATE_ELEMENTS, f"{BY_PROCESSOR}/*")
        copies = [
            pa.field(SELECTOR, pa.int64()),
            pa.field(KEY, pa.string()),
            pa.field(TIME, pa.int64()),
            pa.field(SINCE, pa.int64()),
            pa.field(FIRST, pa.bool_()),
        ]
        prepared = pa.schema([*copies, *(field.with_name("e:" + field.name) for field in schema)])
        self.inputs = {
            PROCESSORS: InputSpec(pa.schema([]), _SETS, broadcast=True, timed=False),
            EVENTS: InputSpec(schema, prepared, timed=time is not None),
        }
        event = pa.struct([("stage", pa.string()), ("event", pa.struct(list(schema)))])
        head = [("processor_id", pa.string()), ("processor_version", pa.int64()), ("key", pa.list_(pa.string()))]
        tail = [("events", pa.list_(event)), ("measures", _TEXTS), ("result", pa.string())]
        times = self.time.written

        def output(decided: str) -> pa.Schema:
            return pa.schema([*head, ("start_time", times), ("end_time", times), (decided, times), *tail])

        self.output_schemas = {
            MATCHES: output("match_time"),
            TIMED_OUT: output("timeout_time"),
            LATE: schema,
            ERRORS: pa.schema([*head[:2], ("time", times), ("error", pa.string())]),
        }
        definition = repr((semantics, list(keys), self.time, str(prepared)))
        self.fingerprint = hashlib.sha256(definition.encode()).digest()[:16]
        self._entries: list[Entry] = []
        """Those of the key group at hand, during a call."""
        self._changed = False
        """Has a set arrived in this call?"""
        self._compiled: dict[int, Compiled] = {}
        """By identity: equal processors are one object (``processor_sets.processor_of``), and hashing a pattern takes time."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_compiled": {}, "_entries": []}

    def compiled(self, processor: PatternProcessor) -> Compiled:
        """A processor bound to the schema; kept for as long as the process lives."""
        found = self._compiled.get(id(processor))
        if found is None or found.processor is not processor:
            found = self._compiled[id(processor)] = self.compiler.compile(processor)
        return found

    # ------------------------------------------------------------------ before the exchange

    def latest(self, name: str, events: pa.Table, prepared: pa.Table) -> int:
        # Of all events, also those that can matter to no processor.
        if self.processing_time or name != EVENTS:
            return NO_TIME
        found = pc.max(self.time.to_micros(events.column(self.time.name))).as_py()
        return NO_TIME if found is None else int(found)

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """The copies of the events, with KEY_HASH."""
        if name == PROCESSORS:
            raise AssertionError("sets come as prepared_set makes them")
        from asterism.hashing import hash_texts

        count = events.num_rows
        full = pa.table([events.column(f.name).cast(f.type) for f in self.schema], schema=self.schema)
        times = pa.array(np.zeros(count, np.int64)) if self.processing_time else self._times(full)
        processors = {id(p): p for found in self.source.retained() for p in found.processors}
        compiled = [self.compiled(processor) for processor in processors.values()]
        values = _Values(full, compiled)
        seen = np.zeros(count, np.bool_)
        parts = []
        for selector in sorted({c.selector for c in compiled}):
            mine = [c for c in compiled if c.selector == selector]
            wanted = self._wanted(mine, full, values)
            rows = pa.array(np.flatnonzero(wanted))
            expressions = Vectorized(self.schema)
            scope = Scope(self.schema)
            numbers = [expressions.add(scope.resolve(parse(text), text), text) for text in selector]
            kept = full.take(rows)
            evaluated = expressions.evaluate(kept) if selector else []
            keys = key_texts([evaluated[number] for number in numbers], len(rows))
            first = ~seen[wanted]
            seen |= wanted
            number = mine[0].number
            columns = [
                pa.array(np.full(len(rows), number, np.int64)),
                keys,
                times.take(rows),
                pa.array(np.zeros(len(rows), np.int64)),
                pa.array(first),
                *kept.columns,
            ]
            table = pa.table(columns, schema=self.inputs[EVENTS].prepared)
            hashes = (hash_texts(keys) ^ np.uint64(number & (2**64 - 1))).view(np.int64)
            parts.append(table.append_column(KEY_HASH, pa.array(hashes)))
        empty = self.inputs[EVENTS].prepared.empty_table().append_column(KEY_HASH, pa.array([], pa.int64()))
        return pa.concat_tables([empty, *parts])

    def _times(self, events: pa.Table) -> pa.ChunkedArray:
        column = self.time.to_micros(events.column(self.time.name))
        if column.null_count:
            raise InvalidEventError(
                f'the event time "{self.time.name}" of {column.null_count} events is null',
                "An event without a time has no place in the order of events.",
                "filter such events out",
            )
        return column

    @staticmethod
    def _wanted(compiled: Sequence[Compiled], events: pa.Table, values: _Values) -> npt.NDArray[np.bool_]:
        """The events that can matter to one of the processors."""
        wanted = np.zeros(events.num_rows, np.bool_)
        for one in compiled:
            if one.needs_all:
                return np.ones(events.num_rows, np.bool_)
            wanted |= _meets_any(one.matcher, one.matcher.prepare(events, values.of(one)))
        return wanted

    # ------------------------------------------------------------------ with state

    def process(self, store: StateStore, arrivals: Sequence[Arrival], now: Now) -> Result:
        stored = store.read_page(SETS_PAGE)
        before, entries = _entries_from(stored)
        version = before
        for arrival in arrivals:
            if arrival.input == PROCESSORS and arrival.events is not None:
                for value in arrival.events.column("set").to_pylist():
                    found = _set_from(value)
                    if found.version > version:
                        version, entries = found.version, updated(entries, found)
        self._entries, self._changed = entries, version != before
        events = [
            replace(arrival, events=None if arrival.events is None else _since(arrival.events, version))
            for arrival in arrivals
            if arrival.input == EVENTS
        ]
        result = super().process(store, events, now)
        if now.watermark == END_OF_TIME:
            if stored is not None:
                store.write_page(SETS_PAGE, None)
        elif self._changed or self._entries != entries:
            store.write_page(SETS_PAGE, _entries_to(version, self._entries))
        return result

    def must_advance(self, group: Group) -> bool:
        # What belongs to processors that are gone must go.
        return self._changed

    def late(self, group: Group, name: str, events: pa.Table) -> None:
        first = events.filter(events.column(FIRST))
        group.metrics[LATE_ELEMENTS] += first.num_rows
        group.emit(LATE, late_table(self.schema, first))

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> None:
        entries = [entry for entry in self._entries if not entry.disabled]
        compiled = {entry.name: self.compiled(entry.processor) for entry in entries}
        copies = self._copies(ready.get(EVENTS), list(compiled.values()))
        for bucket in range(BUCKETS):
            mine = [entry for entry in entries if bucket_of(entry) == bucket]
            self._advance_bucket(group, bucket, mine, compiled, copies, horizon)
        self._entries = passed(self._entries, horizon)

    def _copies(self, events: pa.Table | None, compiled: Sequence[Compiled]) -> dict[int, _Copies]:
        """The events by selector, with all conditions evaluated once; those of no selector in use are surplus."""
        found: dict[int, _Copies] = {}
        if events is None:
            return found
        numbers = events.column(SELECTOR).to_numpy()
        for number in np.unique(numbers).tolist():
            mine = [one for one in compiled if one.number == number]
            if mine:
                found[number] = _Copies.of(events.filter(pa.array(numbers == number)), self.schema, mine)
        return found

    def _advance_bucket(
        self,
        group: Group,
        bucket: int,
        entries: Sequence[Entry],
        compiled: Mapping[tuple[str, int], Compiled],
        copies: Mapping[int, _Copies],
        horizon: int,
    ) -> None:
        exists = bool(group.exists[bucket])
        concerned = {}
        for entry in entries:
            one = compiled[entry.name]
            if one.number in copies:
                events = copies[one.number].for_entry(entry, one)
                if events is not None:
                    concerned[entry.name] = events
        due = group.header.wakes[bucket] <= horizon or group.watermark == END_OF_TIME or self._changed
        over = any(entry.until is not None and entry.until <= horizon for entry in entries)
        if not concerned and not (exists and (due or over)):
            return
        old = group.read_page(bucket)
        pages = _pages_from(old)
        kept: dict[tuple[str, int], tuple[int, bytes]] = {}
        for entry in entries:
            wake, stored = pages.get(entry.name, (END_OF_TIME, None))
            events = concerned.get(entry.name)
            limit = horizon if entry.until is None else min(horizon, entry.until - 1)
            if events is None and (stored is None or (wake > limit and group.watermark != END_OF_TIME)):
                if stored is not None:
                    kept[entry.name] = wake, stored
            else:
                page = self._run(group, entry, compiled[entry.name], stored, events, limit)
                if page is not None:
                    kept[entry.name] = page
            if entry.until is not None and entry.until <= horizon:
                kept.pop(entry.name, None)
        new = _pages_to(kept) if kept else None
        wakes = [wake for wake, _ in kept.values()]
        group.write_page(bucket, old, new, min(wakes, default=END_OF_TIME))

    def _run(
        self, group: Group, entry: Entry, one: Compiled, stored: bytes | None, events: pa.Table | None, limit: int
    ) -> tuple[int, bytes] | None:
        """Show *events* to a processor; its page afterwards, with the time at which it has something to do."""
        matcher = one.matcher
        page = (
            Page.empty(_KEYS, matcher.event_schema)
            if stored is None
            else Page.from_bytes(stored, _KEYS, matcher.event_schema)
        )
        if events is None:
            events = _prepared_schema(matcher).empty_table()
        try:
            step = matcher.advance(
                [page], events.select([KEY]), None, events, limit, processing_time=group.processing_time
            )
            for name, output in one.outputs.items():
                found = step.timeouts if output.spec.kind is OutputKind.TIMED_OUT else step.matches
                if len(found):
                    group.emit(name, self._rows(one, name, output, step, found))
                    group.metrics[name] += len(found)
                    if name == MATCHES:
                        group.metrics[f"{BY_PROCESSOR}/{entry.processor.id}"] += len(found)
        except Exception as error:
            if not self.disable_on_error:
                if isinstance(error, AsterismError):
                    raise PatternProcessorError(
                        f'the pattern processor "{entry.processor.id}" version {entry.processor.version} failed',
                        str(error),
                    ) from error
                raise
            self._disable(group, entry, error)
            return None
        new = step.pages[0]
        return (step.wakes[0], new.to_bytes()) if new.keys.num_rows else None

    def _disable(self, group: Group, entry: Entry, error: Exception) -> None:
        self._entries = [replace(e, disabled=True) if e is entry else e for e in self._entries]
        _log.error("pattern processor %s version %s is disabled: %s", *entry.name, error)
        time = self.time.from_micros(np.array([max(group.watermark, 0)], np.int64))
        row = [[entry.processor.id], [entry.processor.version], time, [f"{type(error).__name__}: {error}"]]
        group.emit(ERRORS, pa.table(row, schema=self.output_schemas[ERRORS]))
        group.metrics[ERRORS] += 1

    def _rows(self, one: Compiled, name: str, output: MatchOutput, step: Step, found: Any) -> pa.Table:
        """Matches in the form that is the same for all processors."""
        schema = self.output_schemas[name]
        count = len(found)
        made = output.build(step, found)
        base = output.base(step, found)
        keys = step.keys.column(KEY).take(pa.array(found.key)).to_pylist()
        columns: dict[str, Any] = {
            "processor_id": pa.array([one.processor.id] * count, pa.string()),
            "processor_version": pa.array([one.processor.version] * count, pa.int64()),
            "key": pa.array([key_values(key) for key in keys], pa.list_(pa.string())),
            **{column: base.column(column) for column in base.column_names},
            "events": pa.nulls(count, schema.field("events").type),
            "measures": pa.nulls(count, _TEXTS),
            "result": pa.nulls(count, pa.string()),
        }
        if one.processor.select:
            names = made.column_names
            texts = [_as_texts(made.column(column)) for column in names]
            rows = [list(zip(names, values, strict=True)) for values in zip(*texts, strict=True)]
            columns["measures"] = pa.array(rows, _TEXTS)
        elif one.processor.function is not None:
            columns["result"] = self._result(one, made)
        else:
            columns["events"] = output.events_in_order(step, found).cast(schema.field("events").type)
        return pa.table([columns[column] for column in schema.names], schema=schema)

    def _result(self, one: Compiled, matches: pa.Table) -> pa.Array:
        name = one.processor.function
        assert name is not None
        rows = self.compiler.functions[name](matches)
        if not isinstance(rows, pa.Table) or rows.num_rows != matches.num_rows:
            raise PatternProcessorError(f"the function {name!r} must return a pyarrow.Table with a row for each match")
        return pa.array([json.dumps(row, default=str) for row in rows.to_pylist()], pa.string())


_KEYS = pa.schema([(KEY, pa.string())])


class _Values:
    """The expressions of many processors over the same events, each distinct one evaluated once."""

    def __init__(self, events: pa.Table, compiled: Sequence[Compiled]) -> None:
        union = Vectorized(events.schema)
        for one in compiled:
            own = one.matcher.vectorized
            for text, kind, source in zip(own.texts, own.types, own.sources, strict=True):
                if text not in union.texts:
                    union.texts.append(text)
                    union.types.append(kind)
                    union.sources.append(source)
        self._by_text = dict(zip(union.texts, union.evaluate(events) if union.texts else [], strict=True))

    def of(self, one: Compiled) -> list[pa.ChunkedArray]:
        return [self._by_text[text] for text in one.matcher.vectorized.texts]


@dataclass(slots=True)
class _Copies:
    """Ready events of one selector."""

    keys: pa.ChunkedArray
    times: npt.NDArray[np.int64]
    since: npt.NDArray[np.int64]
    events: pa.Table
    values: _Values

    @classmethod
    def of(cls, copies: pa.Table, schema: pa.Schema, compiled: Sequence[Compiled]) -> _Copies:
        events = pa.table([copies.column("e:" + name) for name in schema.names], schema=schema)
        return cls(
            copies.column(KEY),
            copies.column(TIME).to_numpy(),
            copies.column(SINCE).to_numpy(),
            events,
            _Values(events, compiled),
        )

    def for_entry(self, entry: Entry, one: Compiled) -> pa.Table | None:
        """The prepared events that the processor is to see; None if there are none."""
        wanted = self.since >= entry.since
        if entry.begins is not None:
            wanted &= self.times >= entry.begins
        if entry.until is not None:
            wanted &= self.times < entry.until
        columns = one.matcher.prepare(self.events, self.values.of(one))
        if not one.needs_all:
            wanted &= _meets_any(one.matcher, columns)
        if not wanted.any():
            return None
        table = pa.table([self.keys, pa.array(self.times), *columns], schema=_prepared_schema(one.matcher))
        return table if wanted.all() else table.filter(pa.array(wanted))


def _prepared_schema(matcher: Matcher) -> pa.Schema:
    return pa.schema(
        [pa.field(KEY, pa.string()), pa.field(TIME, pa.int64()), *matcher.bit_fields, *matcher.event_schema]
    )


def _meets_any(matcher: Matcher, columns: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.bool_]:
    """The events that meet one of the conditions, by the columns of :meth:`Matcher.prepare`."""
    met = np.zeros(len(columns[0]), np.bool_)
    for word in range(matcher.words):
        met |= columns[word].to_numpy() != 0
    return met


def _as_texts(column: pa.ChunkedArray) -> list[str | None]:
    try:
        found: list[str | None] = column.cast(pa.string()).to_pylist()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        found = [None if value is None else str(value) for value in column.to_pylist()]
    return found


def prepared_set(found: ProcessorSet) -> pa.Table:
    """A set as an element of the broadcast input."""
    return pa.table([[BEFORE_TIME], [found.to_bytes()]], schema=_SETS)


def bucket_of(entry: Entry) -> int:
    return crc32(entry.processor.id.encode()) % BUCKETS


def _since(events: pa.Table, version: int) -> pa.Table:
    column = pa.array(np.full(events.num_rows, version, np.int64))
    return events.set_column(events.column_names.index(SINCE), SINCE, column)


@lru_cache(maxsize=64)
def _set_from(value: bytes) -> ProcessorSet:
    return ProcessorSet.from_bytes(value)


@lru_cache(maxsize=256)
def _decoded(value: bytes) -> tuple[int, tuple[Entry, ...]]:
    found = json.loads(value)
    return found["version"], tuple(Entry.from_dict(entry) for entry in found["entries"])


def _entries_from(value: bytes | None) -> tuple[int, list[Entry]]:
    if value is None:
        return 0, []
    version, entries = _decoded(value)
    return version, list(entries)


def _entries_to(version: int, entries: Sequence[Entry]) -> bytes:
    found = {"version": version, "entries": [entry.to_dict() for entry in entries]}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


_PAGES = pa.schema([("id", pa.string()), ("version", pa.int64()), ("wake", pa.int64()), ("page", pa.binary())])


def _pages_from(value: bytes | None) -> dict[tuple[str, int], tuple[int, bytes]]:
    if value is None:
        return {}
    (table,) = tables_from_bytes(value, [_PAGES])
    columns = (table.column(name).to_pylist() for name in _PAGES.names)
    return {(name, version): (wake, page) for name, version, wake, page in zip(*columns, strict=True)}


def _pages_to(pages: Mapping[tuple[str, int], tuple[int, bytes]]) -> bytes:
    rows: Iterator[tuple[str, int, int, bytes]] = ((*name, *page) for name, page in pages.items())
    names, versions, wakes, values = zip(*rows, strict=True)
    return tables_to_bytes([pa.table([names, versions, wakes, values], schema=_PAGES)])
