"""Runs any operator without Spark."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Self

import numpy as np
import pyarrow as pa

from asterism.arguments import expect, expect_number, expect_outputs, expect_strings, shown
from asterism.columns.groups import KEY_HASH, first_rows, group_codes
from asterism.columns.time import END_OF_TIME
from asterism.errors import ColumnNotFoundError, InvalidEventError, StreamDefinitionError
from asterism.operators.histograms import HistogramStatistics
from asterism.operators.key_group import MAX_KEY_GROUPS
from asterism.operators.operator import EVENTS as EVENTS_INPUT
from asterism.operators.operator import Arrival, Now, Operator, Result
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.state_store import MemoryStore
from asterism.testing.literals import Row, check_micros, check_table, shown_name

_COMBINED: Mapping[str, Callable[[Sequence[float]], float]] = {"max": max, "min": min, "sum": sum, "avg": fmean}

# ---------------------------------------------------------------------- any operator


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete state of a harness at one point in time. The operator's state is bytes, as in a checkpoint."""

    now: Now
    state: tuple[tuple[bytes | None, dict[int, bytes]], ...]
    next_times: list[int | None]
    next_processing_times: list[int | None]
    outputs: dict[str, list[pa.Table]]
    sent: list[pa.Table]
    metrics: Mapping[str, int]
    ended: frozenset[str] = frozenset()
    measured: tuple[tuple[int, Mapping[str, int], Mapping[str, float]], ...] = ()


class OperatorHarness:
    """Runs an operator as Spark does: passes batches, state and times to it, and collects its output.

    Keys are distributed over *key_groups*, each with a separate state store. All times are in microseconds since the epoch.

    :param keys: the key columns, whose hash determines the key group and page of a key; by input, if they differ

    >>> from datetime import UTC, datetime
    >>> from asterism import Pattern
    >>> from asterism.matching.operator import CepOperator
    >>> from asterism.matching.outputs import OutputKind, OutputSpec
    >>> from asterism.testing import EVENTS, table_of
    >>> outputs = {"matches": OutputSpec(OutputKind.MATCHES)}
    >>> operator = CepOperator(Pattern.begin("a"), EVENTS, keys=["key"], time="ts", outputs=outputs)
    >>> events = table_of([{"key": "ann", "ts": datetime(2025, 1, 1, tzinfo=UTC)}], EVENTS)
    >>> OperatorHarness(operator, keys=["key"], key_groups=4).feed(events).end().output("matches").num_rows
    1
    """

    def __init__(
        self, operator: Operator, *, keys: Sequence[str] | Mapping[str, Sequence[str]] = (), key_groups: int = 1
    ) -> None:
        if not isinstance(getattr(operator, "inputs", None), Mapping) or isinstance(operator, type):
            raise StreamDefinitionError(f"expected an operator, not {shown(operator)}", hint="PatternHarness(pattern)")
        expect_number(StreamDefinitionError, key_groups, "key_groups", least=1, most=MAX_KEY_GROUPS)
        for columns in keys.values() if isinstance(keys, Mapping) else [keys]:
            expect_strings(StreamDefinitionError, columns, "keys must be a list of columns", 'keys=["user"]')
        self.operator = operator
        self.keys = [] if isinstance(keys, Mapping) else list(keys)
        self._keys = keys if isinstance(keys, Mapping) else dict.fromkeys(operator.inputs, self.keys)
        self.stores = [MemoryStore() for _ in range(key_groups)]
        self.next_times: list[int | None] = [None] * key_groups
        self.next_processing_times: list[int | None] = [None] * key_groups
        self.now = Now()
        self.outputs: dict[str, list[pa.Table]] = {name: [] for name in operator.output_schemas}
        self.sent: list[pa.Table] = []
        self.metrics: Counter[str] = Counter()
        """The counts of the operator."""
        self._measured: list[tuple[int, Mapping[str, int], Mapping[str, float]]] = []
        self.ended: set[str] = set()
        """The inputs that have ended, before the end of the stream."""
        self._open = False

    def feed(self, events: pa.Table, name: str = EVENTS_INPUT) -> Self:
        """Send one batch of the input *name*, at the current time. The operator is called once for each key group with
        events.

        Events of a broadcast input are sent to every key group.

        :raises InvalidEventError: the stream has ended
        """
        check_table(events)
        self._check_input(name)
        missing = [key for key in self._keys.get(name, ()) if key not in events.column_names]
        if missing:
            raise ColumnNotFoundError.from_missing_and_available(missing[0], events.column_names, "a key of the events")
        self._check_going(name)
        self.sent.append(events)
        broadcast = self.operator.inputs[name].broadcast
        detects_idle = any(spec.idle_after is not None for spec in self.operator.inputs.values())
        hashes = np.zeros(events.num_rows, np.int64) if broadcast else key_hashes(events.select(self._keys[name]))
        groups = hashes.view(np.uint64) % np.uint64(len(self.stores))
        hashed = events.append_column(KEY_HASH, pa.array(hashes))
        for group in range(len(self.stores)):
            of_group = hashed if broadcast or len(self.stores) == 1 else hashed.filter(pa.array(groups == group))
            if of_group.num_rows:
                with self._running():
                    prepared = self.operator.prepare(name, of_group)
                self._call(group, [Arrival(name, prepared)])
            elif detects_idle:
                self._call(group, [Arrival(name)])
        return self

    def feed_watermark(self, watermark: int, name: str = EVENTS_INPUT) -> Self:
        """Send the watermark of one input to every key group."""
        check_micros(watermark)
        self._check_input(name)
        return self._arrive([Arrival(name, watermark=watermark)])

    def _arrive(self, arrivals: Sequence[Arrival]) -> Self:
        """Send watermarks to every key group."""
        for arrival in arrivals:
            self._check_going(arrival.input)
        self.ended |= {arrival.input for arrival in arrivals if arrival.watermark == END_OF_TIME}
        for group in range(len(self.stores)):
            self._call(group, arrivals)
        return self

    def _check_going(self, name: str) -> None:
        """:raises InvalidEventError: the stream or the input *name* has ended"""
        hint = "restore a snapshot, or create a new harness"
        if self.now == Now(END_OF_TIME, END_OF_TIME):
            raise InvalidEventError("the stream has ended", hint=hint)
        if name in self.ended:
            raise InvalidEventError(f'the input "{name}" has ended', hint=hint)

    def _check_input(self, name: Any) -> None:
        if not isinstance(name, str) or name not in self.operator.inputs:
            raise InvalidEventError(
                f"there is no input {shown_name(name)}", f"Inputs: {', '.join(self.operator.inputs) or 'none'}"
            )

    def move(self, *, watermark: int | None = None, processing_time: int | None = None) -> Self:
        """Advance the time of all inputs; it never decreases. The operator is called for every key group."""
        for time in (watermark, processing_time):
            if time is not None:
                check_micros(time)
        self.now = Now(
            max(self.now.watermark, self.now.watermark if watermark is None else watermark),
            max(self.now.processing_time, self.now.processing_time if processing_time is None else processing_time),
        )
        for group in range(len(self.stores)):
            self._call(group, [])
        return self

    def tick(self, processing_time: int) -> Self:
        """Advance processing time. As on Spark, the operator is called only for key groups with a timer that is due."""
        check_micros(processing_time)
        self.now = replace(self.now, processing_time=max(self.now.processing_time, processing_time))
        for group, time in enumerate(self.next_processing_times):
            if time is not None and time <= self.now.processing_time:
                self._call(group, [])
        return self

    def end(self) -> Self:
        """End the input: every deadline and timer fires, and no event is buffered any longer."""
        return self.move(watermark=END_OF_TIME, processing_time=END_OF_TIME).close()

    def close(self) -> Self:
        """Close the operator, as at the end of a task. The next call opens it again."""
        if self._open:
            self._open = False
            self.operator.close()
        return self

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Open the operator, and close it after a failure, as on Spark."""
        if not self._open:
            self.operator.open()
            self._open = True
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is reported
                self.close()
            raise

    def _call(self, group: int, arrivals: Sequence[Arrival]) -> None:
        with self._running():
            result: Result = self.operator.process(self.stores[group], arrivals, replace(self.now, key_group=group))
        self.next_times[group] = (
            result.next_event_time if result.next_event_time is not None else result.next_processing_time
        )
        self.next_processing_times[group] = result.next_processing_time
        buckets = self.operator.histograms
        self.metrics.update({n: count for n, count in result.metrics.items() if n.partition("/")[0] not in buckets})
        if result.gauges:
            self._measured.append((group, result.metrics, result.gauges))
        for name, rows in result.outputs.items():
            self.outputs[name].append(rows)

    @property
    def gauges(self) -> dict[str, float]:
        """The gauges of the operator: the last value that each key group has set, combined. Those that were not set are
        missing.
        """
        combined: dict[str, float] = {}
        for name, aggregate in self.operator.gauges.items():
            last = {group: values[name] for group, _, values in self._measured if name in values}
            if last:
                combined[name] = _COMBINED[aggregate](list(last.values()))
        return combined

    @property
    def histograms(self) -> dict[str, HistogramStatistics]:
        """The histograms of the operator, of all values so far."""
        calls = [(counts, values) for _, counts, values in self._measured]
        return {name: HistogramStatistics.of(name, bounds, calls) for name, bounds in self.operator.histograms.items()}

    @property
    def next_time(self) -> int | None:
        """The time at which the operator is to be called next; None: only when events arrive."""
        return min((time for time in self.next_times if time is not None), default=None)

    @property
    def is_empty(self) -> bool:
        """Whether no key has state: no timers, no windows, no partial matches, and no elements that wait for the watermark.

        Watermarks and broadcast state, which belong to no key, do not count. An entry with a time to live counts until the
        state of its key is next read after that. At the end of the stream all state is dropped; to find state that an operator
        forgets to clear, ask before :meth:`end`.
        """
        return all(has_no_keys(store) for store in self.stores)

    def output(self, name: str) -> pa.Table:
        """The rows of an output so far, in order.

        :raises StreamDefinitionError: there is no such output
        """
        expect_outputs([name], self.operator.output_schemas)
        return pa.concat_tables([self.operator.output_schemas[name].empty_table(), *self.outputs[name]])

    def rows(self, name: str) -> list[Row]:
        """The rows of an output so far, as dicts.

        :raises StreamDefinitionError: there is no such output
        """
        return python_rows(self.output(name))

    def snapshot(self) -> Snapshot:
        """A snapshot of the state, the time and the outputs so far."""
        return Snapshot(
            self.now,
            tuple((store.header, dict(store.pages)) for store in self.stores),
            list(self.next_times),
            list(self.next_processing_times),
            {name: list(tables) for name, tables in self.outputs.items()},
            list(self.sent),
            dict(self.metrics),
            frozenset(self.ended),
            tuple(self._measured),
        )

    def restore(self, snapshot: Snapshot) -> Self:
        """Restore a snapshot of this harness, or of another one for the same operator, as after a failure."""
        expect(StreamDefinitionError, snapshot, Snapshot, "expected a Snapshot", "harness.snapshot()")
        self.close()
        self.now = snapshot.now
        self.stores = [MemoryStore(header, dict(pages)) for header, pages in snapshot.state]
        self.next_times, self.next_processing_times = list(snapshot.next_times), list(snapshot.next_processing_times)
        self.metrics = Counter(snapshot.metrics)
        self.outputs = {name: list(tables) for name, tables in snapshot.outputs.items()}
        self.sent = list(snapshot.sent)
        self.ended = set(snapshot.ended)
        self._measured = list(snapshot.measured)
        return self


def has_no_keys(store: MemoryStore) -> bool:
    """Whether no key of a key group has state, and no event waits."""
    if store.header is None:
        return store.is_empty
    header = GroupHeader.from_bytes(store.header)
    return not header.exists.any() and not any(map(header.is_waiting, range(len(header.buffers))))


def key_hashes(keys: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A 64-bit hash of each row, which is the same in every process."""
    codes, count = group_codes(keys)
    if keys.num_columns == 0:
        return np.zeros(keys.num_rows, np.int64)
    texts = [repr(tuple(row.values())) for row in keys.take(pa.array(first_rows(codes, count))).to_pylist()]
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    hashes: np.ndarray[Any, np.dtype[np.int64]] = np.frombuffer(b"".join(digests), np.int64)[codes]
    return hashes


def python_rows(table: pa.Table) -> list[Row]:
    try:
        rows: list[Row] = table.to_pylist()
    except OverflowError:
        columns = [[_python(value) for value in column] for column in table.columns]
        rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _python(value: pa.Scalar) -> Any:
    """A value as a Python object; a time out of the range of Python's datetime as an integer."""
    try:
        return value.as_py()
    except OverflowError:
        if isinstance(value, pa.StructScalar):
            return {name: _python(part) for name, part in value.items()}
        return [_python(part) for part in value] if isinstance(value, pa.ListScalar) else value.value
