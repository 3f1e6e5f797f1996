"""Carries state, batches and time between Spark's ``transformWithState`` and an operator.

Spark's grouping key is the key group. Of each call Spark gives the chunks of the micro-batch, the watermark and the
processing time; the host answers with result chunks and keeps one timer per key group, the time at which the operator wants
to be called again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from asterism.spark import CONTROL, END_OF_INPUT
from asterism.spark.worker import settle_memory

if TYPE_CHECKING:
    from asterism.cep import CepOperator

_NO_TIMER = -1
_Record = tuple[int, bytes | None, bytes | None]


class OperatorHost(StatefulProcessor):
    """Runs one operator over all its key groups.

    The operator travels as bytes and is opened when the first rows come. When a query is planned, Spark asks the host in a new
    process which state it has: that takes a third of a second less without the modules of the operator.
    """

    def __init__(self, operator: CepOperator) -> None:
        self._pickled: bytes = cloudpickle.dumps(operator)  # type: ignore[no-untyped-call] # pyspark's copy has no types
        self._inline = operator.pages == 1

    @cached_property
    def operator(self) -> CepOperator:
        operator: CepOperator = cloudpickle.loads(self._pickled)
        return operator

    def init(self, handle: StatefulProcessorHandle) -> None:
        settle_memory()
        self.handle = handle
        self.header = handle.getValueState("header", "timer long, value binary, page binary")
        self.pages = handle.getMapState("pages", "page int", "value binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        from asterism.state import batch_from_bytes

        events, ends = [], False
        for row in rows:
            if row.input == CONTROL:
                ends = ends or bytes(row.chunk) == END_OF_INPUT
            else:
                events.append(batch_from_bytes(row.chunk, self.operator.prepared_schema))
        return self._process(events, timerValues, ends, fired=None)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        return self._process([], timerValues, False, fired=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        pass

    def _process(self, events: list[Any], times: TimerValues, ends: bool, fired: int | None) -> Iterator[Row]:
        from asterism.operator import BEFORE_TIME, END_OF_TIME, Now
        from asterism.spark.exchange import results

        store = _SparkStore(self.header, self.pages, inline=self._inline)
        watermark = times.getCurrentWatermarkInMs()
        now = Now(
            watermark=watermark * 1000 if watermark > 0 else BEFORE_TIME,
            processing_time=times.getCurrentProcessingTimeInMs() * 1000,
        )
        result = self.operator.process(store, events, now)
        rows = list(results(dict(result.outputs)))
        if ends:
            result = self.operator.process(store, [], Now(END_OF_TIME, END_OF_TIME))
            rows += results(dict(result.outputs))
        # Spark fires a timer when its clock, in milliseconds, has reached it.
        self._set_timer(store, _NO_TIMER if result.wake is None else -(-result.wake // 1000), fired)
        store.flush()
        return iter([Row(output=name, chunk=chunk) for name, chunk in rows])

    def _set_timer(self, store: _SparkStore, timer: int, fired: int | None) -> None:
        if timer == store.timer:
            return
        if store.timer not in (_NO_TIMER, fired):
            self.handle.deleteTimer(store.timer)
        if timer != _NO_TIMER:
            self.handle.registerTimer(timer)
        store.timer = timer


class _SparkStore:
    """State of the current key group: read when asked for, the header written once.

    Every access is a round trip to the JVM, some 50 microseconds: where there is a single page, it lives with the header
    (*inline*).
    """

    def __init__(self, header: ValueState, pages: MapState, *, inline: bool) -> None:
        self._header, self._pages, self._inline = header, pages, inline
        stored = header.get()
        self._stored: _Record = (
            (_NO_TIMER, None, None) if stored is None else (stored[0], _bytes(stored[1]), _bytes(stored[2]))
        )
        self.timer, self.value, self.page = self._stored

    def read_header(self) -> bytes | None:
        return self.value

    def write_header(self, value: bytes | None) -> None:
        self.value = value

    def flush(self) -> None:
        new = (self.timer, self.value, self.page)
        if new == self._stored:
            return
        if new == (_NO_TIMER, None, None):
            self._header.clear()
        else:
            self._header.update(new)

    def read_page(self, number: int) -> bytes | None:
        if self._inline:
            return self.page
        value = self._pages.getValue((number,))
        return None if value is None else _bytes(value[0])

    def write_page(self, number: int, value: bytes | None) -> None:
        if self._inline:
            self.page = value
        elif value is None:
            self._pages.removeKey((number,))
        else:
            self._pages.updateValue((number,), (value,))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
