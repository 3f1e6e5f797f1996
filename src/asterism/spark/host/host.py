"""Connects an operator to Spark's ``transformWithState``: passes state, batches and times between them.

Spark's grouping key is the key group. In each call, Spark passes the chunks of the micro-batch, the watermark and the
processing time, and the host returns result chunks. The host keeps one Spark timer per key group, at the time at which the
operator is to be called even if no data arrives.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql import Row
from pyspark.sql import types as T

from asterism.operators.state.page_numbers import HEADER, PageKind
from asterism.spark import BEGIN_OF_RUN, CHUNKS, CONTROL, END_OF_INPUT, QUERY_ID
from asterism.spark.host.partitioning import group_of
from asterism.spark.host.versions import StatefulProcessor
from asterism.spark.session.worker import receive_at_once, settle_memory

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        MapState,
        StatefulProcessorHandle,
        TimerValues,
        ValueState,
    )

    from asterism.operators.operator import Arrival, Operator, Result

NO_TIMER, NOW = -1, -2
"""In place of the time of a timer, in milliseconds."""
# Spark parses a schema that is a string in the JVM, several times for each task.
_HEADER = T.StructType().add("timer", T.LongType()).add("value", T.BinaryType()).add("page", T.BinaryType())
_PAGE_NUMBER, _PAGE = T.StructType().add("page", T.IntegerType()), T.StructType().add("value", T.BinaryType())
_CHUNK = [column.split()[0] for column in CHUNKS.split(", ")]
_SEQUENCE = itemgetter(*map(_CHUNK.index, ("seq", "input", "watermark", "chunk")))
"""Of a row, by position: the fields of a Row are found by name in ten times the time."""
_MAY_BE_ABSENT = {*PageKind.OPERATOR.value, *PageKind.DEFINITION.value}
"""The numbers of pages that a key group may lack. See docs/decisions/0170."""
_Record = tuple[int, bytes | None, bytes | None]
_there: dict[tuple[str | None, int], set[tuple[int, int]]] = {}
"""By query and operator, the key groups and pages that this process has seen in the state. A header has the number HEADER."""
_MAX_OPERATORS = 64
"""How many of them are remembered."""

MAX_RESULTS = 2**31 - 2**24
"""Maximum size in bytes of the results of a call, which become one Arrow array in PySpark."""
NO_TIME, EVENT_TIME, PROCESSING_TIME = "None", "EventTime", "ProcessingTime"
"""Spark's time modes, which define the kind of the timers."""
WATERMARK = "/watermark"
"""The watermark of a key group in the metrics of its results: not the name of a counter, which is an identifier."""
BEHIND = "/behind "
"""Precedes an input and one of its partitions there, as JSON: how far it is behind the fastest one, in microseconds."""


class OperatorHost(StatefulProcessor):
    """Runs one operator on all its key groups.

    The operator is transferred as pickled bytes and opened when the first rows arrive. When Spark plans a query, it starts
    the host in a new process to get its state schemas; this is a third of a second faster without importing the operator's
    modules.
    """

    def __init__(
        self,
        operator: Operator,
        time_mode: str = NO_TIME,
        *,
        bounded: bool = False,
        upstream: Mapping[str, int] | None = None,
        begins: bool = False,
    ) -> None:
        self._pickled: bytes = cloudpickle.dumps(operator)  # type: ignore[no-untyped-call] # pyspark's copy has no types
        self._inline = operator.pages == 1
        self.time_mode = time_mode
        self.bounded = bounded
        """Whether there are bounded inputs, which are read to their end before all others."""
        self.begins = begins
        """Whether the initial state consists of pages and headers of key groups."""
        self.upstream = dict(upstream or {})
        """The inputs that come from other operators of the query, and have Spark's watermark, each with its maximum
        out-of-orderness in microseconds."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        receive_at_once()  # a worker has unpickled this, and now waits for the input of its task

    @cached_property
    def operator(self) -> Operator:
        operator: Operator = cloudpickle.loads(self._pickled)
        operator.open()
        return operator

    @cached_property
    def _seen(self) -> set[tuple[int, int]]:
        """What this process has seen in the state of this operator of the query whose task runs."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        name = query, zlib.crc32(self._pickled)
        if name not in _there and len(_there) >= _MAX_OPERATORS:
            _there.clear()
        return _there.setdefault(name, set())

    def init(self, handle: StatefulProcessorHandle) -> None:
        settle_memory()
        self.handle, self._told = handle, None
        self.header = handle.getValueState("header", _HEADER)
        self.pages = handle.getMapState("pages", _PAGE_NUMBER, _PAGE)
        # Every checkpoint has this state, since Spark does not allow adding it later. Tasks open it only if it is used, which
        # saves some milliseconds.
        if self.bounded or TaskContext.get() is None:
            self.first = handle.getListState("first", CHUNKS)

    _told: Mapping[str, int] | None = None
    """The watermark that this task has told."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        if self.begins:
            self.write_page(initialState.page, initialState.value, initialState.timer, timerValues)
            return
        # This method cannot return results, so the chunks are kept in state until the first call.
        self.first.appendValue(tuple(initialState))

    def write_page(self, number: int, value: bytes, timer: int, times: TimerValues) -> None:
        """Write a page or the header of a key group.

        :param timer: that of the key group
        """
        if number > 0 or (number == 0 and not self._inline):
            self.pages.updateValue((number,), (value,))
            return
        header = (self.header.get() if self.header.exists() else None) or (NO_TIMER, None, None)
        if number == 0:
            self.header.update((header[0], header[1], value))
            return
        if timer == NOW:  # a timer of the time of this micro-batch would fire in it
            timer = times.getCurrentProcessingTimeInMs() + 1
        if timer != NO_TIMER:
            self.handle.registerTimer(timer)
        self.header.update((timer, value, header[2]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        rows = list(rows)
        self.processing_time = rows[0].processing_time
        messages = {bytes(row.chunk) for row in rows if row.input == CONTROL}
        first = []
        if self.bounded:
            first = [Row(**dict(zip(_CHUNK, values, strict=True))) for values in self.first.get()]
            if first:
                self.first.clear()
        return self._process(key, [first, rows] if first else [rows], timerValues, messages)

    def _arrivals(self, rows: Sequence[Any]) -> list[Arrival]:
        from asterism.columns.time import BEFORE_TIME
        from asterism.operators.operator import Arrival
        from asterism.operators.state.state_store import batch_from_bytes
        from asterism.spark.host.exchange import partitions_from_bytes

        # Spark's shuffle has no defined order. In this order, all key groups process the same sequence of broadcast elements,
        # and a repeated task processes the same sequence of rows.
        arrivals = []
        for _, name, watermark, chunk in sorted(map(_SEQUENCE, rows), key=itemgetter(0)):
            if name != CONTROL:
                partitions = None if chunk is None else partitions_from_bytes(chunk)
                if partitions is not None:
                    arrivals.append(Arrival(name, partitions=partitions))
                    continue
                events = None if chunk is None else batch_from_bytes(chunk, self.operator.inputs[name].prepared)
                arrivals.append(Arrival(name, events, BEFORE_TIME if watermark is None else watermark))
        return arrivals

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        return self._process(key, [[]], timerValues, fired=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        if "operator" in self.__dict__:
            self.operator.close()

    def _process(
        self,
        key: Any,
        parts: Sequence[Sequence[Any]],
        times: TimerValues,
        messages: Collection[bytes] = (),
        *,
        fired: int | None = None,
    ) -> Iterator[Row]:
        from asterism.errors import StateError

        number = group_of(key[0])
        store = _SparkStore(self.header, self.pages, number, self._seen, inline=self._inline)
        if self.bounded and len(parts) == 1 and store.value is None:
            if all(row.input == CONTROL for row in parts[0]):  # a stream that has ended is ended again
                return iter(())
            raise StateError(
                "the stream of this checkpoint has ended, and its bounded inputs cannot be read again",
                "An earlier run drained it, so their elements are no longer in the state.",
                "use a new checkpoint location; to continue a stream later, run it with drain=False",
            )
        calls = self._calls(store, parts, times, messages, number)
        return self._rows(key, store, calls, times, fired)

    def _rows(
        self, key: Any, store: _SparkStore, calls: Iterator[Result], times: TimerValues, fired: int | None
    ) -> Iterator[Row]:
        """The rows of RESULTS. State is written after the last of them; Spark discards the state of a task that does not
        complete.
        """
        from asterism.errors import AsterismError, LimitExceededError
        from asterism.spark.host.exchange import results

        size = 0
        try:
            for number, result in enumerate(calls):
                # Results in several slices are large. They are compressed to a fraction of the size, since matches repeat
                # events.
                for name, chunk in results(result.outputs, compressed=number > 0):
                    size += len(chunk)
                    if size > MAX_RESULTS:
                        raise LimitExceededError(
                            f"the results of one call have more than {MAX_RESULTS:,} bytes",
                            "Spark reads the results of a key group in a micro-batch as a single value.",
                            "use more key_groups or smaller micro-batches (maxFilesPerTrigger, maxOffsetsPerTrigger)",
                        )
                    yield Row(output=name, chunk=chunk, metrics=None, gauges=None)
                metrics = dict(result.metrics)
                if result.watermark is not None:
                    metrics[WATERMARK] = result.watermark
                    for name, partitions in result.behind.items():
                        metrics |= {f"{BEHIND}[{json.dumps(name)}, {each}]": time for each, time in partitions.items()}
                if result.metrics or result.gauges or (metrics and metrics != self._told):
                    # Of key groups without counts, the task tells the watermark once: it is the same in all of them.
                    self._told = metrics if not result.metrics else self._told
                    yield Row(output=None, chunk=None, metrics=metrics, gauges=dict(result.gauges) or None)
        except Exception as error:
            if isinstance(error, AsterismError):
                place = f"key group {group_of(key[0])}"
                error.detail = place if error.detail is None else f"{error.detail}\n{place}"
            with suppress(Exception):  # Spark does not call close() after a failure; the first error is reported
                self.close()
            raise
        next_time = {EVENT_TIME: result.next_event_time, PROCESSING_TIME: result.next_processing_time}.get(
            self.time_mode
        )
        # Spark fires a timer when the time in milliseconds has reached it: round up.
        timer = NO_TIMER if next_time is None else -(-next_time // 1000)
        if self.upstream and store.value is not None:
            timer = self._as_the_watermark_moves(timer, times)
        if fired is not None and timer == fired:  # Spark deletes the fired timer after this call
            timer += 1
        self._set_timer(store, timer, fired)
        store.flush()

    def _calls(
        self,
        store: _SparkStore,
        parts: Sequence[Sequence[Any]],
        times: TimerValues,
        messages: Collection[bytes],
        key_group: int,
    ) -> Iterator[Result]:
        """Call the operator for each of *parts*, and once more at the end of the input."""
        from asterism.columns.time import BEFORE_TIME, END_OF_TIME
        from asterism.operators.operator import Arrival, Now

        watermark, processing_time = times.getCurrentWatermarkInMs(), times.getCurrentProcessingTimeInMs()
        now = Now(
            watermark=watermark * 1000 if watermark > 0 else BEFORE_TIME,
            processing_time=1000 * (processing_time if processing_time >= 0 else self.processing_time),
            key_group=key_group,
            begins_run=BEGIN_OF_RUN in messages,
        )
        arrived = [self._arrivals(part) for part in parts]
        if self.upstream and now.watermark != BEFORE_TIME:
            # Upstream operators have emitted all rows up to Spark's watermark, the last of them in this micro-batch.
            arrived[-1] += [Arrival(name, None, now.watermark - delay) for name, delay in self.upstream.items()]
            now = replace(now, watermark=BEFORE_TIME)
        for arrivals in arrived:
            yield from self.operator.slices(store, arrivals, now)
        if END_OF_INPUT in messages:
            # Processing time is not advanced if the operator has no timers in it, since conditions may refer to its value.
            processing_time = END_OF_TIME if self.operator.processing_time else now.processing_time
            yield from self.operator.slices(store, [], Now(END_OF_TIME, processing_time, key_group))

    def _as_the_watermark_moves(self, timer: int, times: TimerValues) -> int:
        """A timer with which Spark calls every key group whenever the watermark advances, so that all have the same
        watermark.
        """
        in_event_time = self.time_mode == EVENT_TIME
        now = times.getCurrentWatermarkInMs() if in_event_time else times.getCurrentProcessingTimeInMs()
        moves = max(now, 0) + 1
        return moves if timer == NO_TIMER else min(timer, moves)

    def _set_timer(self, store: _SparkStore, timer: int, fired: int | None) -> None:
        if timer == store.timer:
            return
        if store.timer not in (NO_TIMER, fired):
            self.handle.deleteTimer(store.timer)
        if timer != NO_TIMER:
            self.handle.registerTimer(timer)
        store.timer = timer


class _SparkStore:
    """State of the current key group. Pages are read on demand, and the header is written once.

    Every access is a round trip to the JVM of some 50 microseconds. Therefore a single page is stored with the header
    (*inline*).
    """

    def __init__(
        self, header: ValueState, pages: MapState, group: int, seen: set[tuple[int, int]], *, inline: bool
    ) -> None:
        self._header, self._pages, self._inline, self._group, self._seen = header, pages, inline, group, seen
        stored = header.get() if self._is_there(HEADER, header.exists) else None
        self._stored: _Record = (
            (NO_TIMER, None, None) if stored is None else (stored[0], _bytes(stored[1]), _bytes(stored[2]))
        )
        self.timer, self.value, self.page = self._stored

    def _is_there(self, number: int, asked: Callable[[], bool]) -> bool:
        """Whether there is a page, or the header. Spark logs a warning if one is read that is absent. What this process has seen
        once is not asked for again: it is seldom removed, and the warning is all that happens then.
        """
        place = self._group, number
        if place not in self._seen:
            if not asked():
                return False
            self._seen.add(place)
        return True

    def read_header(self) -> bytes | None:
        return self.value

    def write_header(self, value: bytes | None) -> None:
        self.value = value

    def flush(self) -> None:
        new = (self.timer, self.value, self.page)
        if new == self._stored:
            return
        if new == (NO_TIMER, None, None):
            self._header.clear()
        else:
            self._header.update(new)

    def read_page(self, number: int) -> bytes | None:
        if self._inline and number == 0:
            return self.page
        # Which pages of keys there are is known.
        if number in _MAY_BE_ABSENT and not self._is_there(number, partial(self._pages.containsKey, (number,))):
            return None
        value = self._pages.getValue((number,))
        return None if value is None else _bytes(value[0])

    def write_page(self, number: int, value: bytes | None) -> None:
        if self._inline and number == 0:
            self.page = value
        elif value is None:
            self._pages.removeKey((number,))
        else:
            self._pages.updateValue((number,), (value,))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
