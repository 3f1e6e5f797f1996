"""The live engine: batches and single events go in, rows come out, in the process and the thread of the caller.

A call passes prepared events and watermarks to the operator of the query, as a micro-batch of Spark does. Its state is in memory;
what has changed is written to a folder from time to time. See docs/decisions/0136.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from asterism.arguments import expect, shown
from asterism.columns.arrays import empty_table
from asterism.columns.time import END_OF_TIME, EPOCH, micros, to_datetime
from asterism.errors import AsterismError, CheckpointMismatchError, InvalidEventError, StreamDefinitionError
from asterism.live.batches import Batch, EngineCalls, batches_of, watched
from asterism.live.companions import Companion
from asterism.live.engine_meter import EngineMeter
from asterism.live.handover import Handover
from asterism.live.live_input import LiveInput
from asterism.live.live_options import SNAPSHOT_EVERY, LiveOptions
from asterism.live.live_store import LiveStore
from asterism.live.snapshots import SnapshotFolder, SnapshotRecord
from asterism.operators.counted import CallMetrics
from asterism.operators.evolution import CANNOT_CONTINUE
from asterism.operators.histograms import HistogramStatistics
from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.operator import Arrival, Now, Operator, Result
from asterism.operators.sink_functions import check_columns_of_sink, check_takes_tables, sink_of_output
from asterism.operators.state.group_header import GroupHeader, other_query
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.state_definition import StateDefinition

if TYPE_CHECKING:
    from asterism.rules.sets.discovery_status import Status

Rows = dict[str, pa.Table]
"""The rows of each output."""


@dataclass(frozen=True, slots=True)
class _Before:
    """What a call replaces, beside the pages: that of the last call remains until the next one begins, see ``_take_back``.

    :param results: those of the call, of which the companion has not been told
    """

    record: SnapshotRecord
    gauges: Mapping[str, float]
    histograms: Mapping[str, HistogramStatistics]
    begun: bool
    results: tuple[Result, ...] = ()


_BY_SAVEPOINT = (
    "continue with a changed savepoint, see create_live_savepoint, change_savepoint and restore_live_savepoint"
)
_ANOTHER_FOLDER = "finish() the former query, and open another folder"
OBSERVATION = "asterism"
"""The name of the counts in the progress of a query, as on Spark."""


class LiveEngine:
    """A query that runs in this process. Made by ``open`` of its stream, such as :meth:`asterism.PatternStream.open`.

    All methods may be called by several threads, one at a time: a call waits for the one before it.

    **Snapshots.** The state is written to the folder in the background, after *snapshot_every*. A snapshot is taken when a call
    begins, or at the end: it has the effects of the calls before it, whose rows the caller has had. So whoever writes the rows of
    a call before the next call loses none, even after ``kill -9``. After a restart, :attr:`position` is that of the last batch
    in the snapshot, and the caller sends the batches after it again. Their rows come again as well, with the same
    ids. With several threads, or a queue behind the rows, use *sinks*, which are called before a call is over.

    **Failures.** A call that raises an exception has no effect: the state is that before it, and the batch may be sent again, or
    left out. This includes KeyboardInterrupt and the cancellation of a task that reads :meth:`astream`. Sinks that have taken
    rows of such a call do not get them again with the same batch.
    """

    def __init__(
        self,
        operator: Operator,
        inputs: Mapping[str, LiveInput],
        options: LiveOptions,
        *,
        names: Mapping[str, str] | None = None,
        companion: Callable[[Mapping[str, Any]], Companion] | None = None,
        zone: str | None = None,
    ) -> None:
        """
        :param names: the outputs that calls return: their names for the user, by those of the operator. Default: all
        :param companion: makes the companion of the operator from what the snapshot has kept of it
        :param zone: the time zone of expressions
        """
        self._operator, self._inputs, self._options = operator, dict(inputs), options
        self._companion: Companion | None = None
        self._begins: list[Arrival] = []
        self._names = dict(names) if names is not None else {output: output for output in operator.output_schemas}
        self._sinks = {output: sink_of_output(sink, output) for output, sink in options.sinks.items()}
        self._schemas = {name: operator.output_schemas[output] for output, name in self._names.items()}
        self._empty = {name: empty_table(schema) for name, schema in self._schemas.items()}
        for output, sink in self._sinks.items():
            check_takes_tables(sink, output)
            check_columns_of_sink(sink, self._schemas[output].names)
        # A signal handler may call a method while its thread holds the lock.
        self._lock, self._caller = threading.RLock(), 0
        self._closed = self._closes = self._begun = False
        self._before: _Before | None = None
        self._handover: Handover | None = None
        self._is_written = False
        """Whether sinks have taken all rows of the last call. Of others, nobody knows before the next call whether they are
        written.
        """
        self._gauges: Mapping[str, float] = {}
        self._histograms: Mapping[str, HistogramStatistics] = {}
        self._failure: AsterismError | None = None
        self._unsaved = False
        self._folder = None if options.folder is None else SnapshotFolder(options.folder)
        try:
            record, pages = (None, {}) if self._folder is None else self._folder.read()
            self._store = LiveStore(pages)
            self._record = SnapshotRecord(zone=zone) if record is None else record
            self._check_state(zone)
            operator.open()
            try:
                self._companion = None if companion is None else companion(self._record.details)
            except BaseException:
                with suppress(Exception):
                    operator.close()
                raise
        except BaseException:
            self._release()
            raise
        self._saved_events, self._saved_at = self._record.events, time.monotonic()
        self.meter = EngineMeter(self._record)

    def _check_state(self, zone: str | None) -> None:
        """:raises CheckpointMismatchError: the folder has the state of another query"""
        if self._record.zone != zone:
            raise CheckpointMismatchError(
                f"the state was created in the time zone {self._record.zone}, but the stream has {zone}",
                "An expression may depend on it, such as hour(ts).",
                f'a first column of timestamps in the time zone "{self._record.zone}", or another folder',
            )
        stored = self._store.read_header()
        if stored is None or GroupHeader.from_bytes(stored).fingerprint == self._operator.fingerprint:
            return
        written = self._store.read_page(DEFINITION_PAGE)
        with self._of_a_folder():
            if written is None or not isinstance(self._operator, KeyGroupOperator):
                raise other_query()
            self._operator.check_state(StateDefinition.from_bytes(written))

    @contextmanager
    def _of_a_folder(self) -> Iterator[None]:
        """An error of state that cannot be continued says what can be done here, and not on Spark."""
        try:
            yield
        except CheckpointMismatchError as error:
            if self._folder is None:
                raise
            by_savepoint = _BY_SAVEPOINT if error.by_savepoint else None
            raise CheckpointMismatchError(
                f"the folder {self._folder.path} cannot be continued: {error.message.removeprefix(CANNOT_CONTINUE)}",
                error.detail,
                "; or ".join(filter(None, [error.remedy, by_savepoint, _ANOTHER_FOLDER])),
            ) from error

    # ------------------------------------------------------------------ events in, rows out

    def process(self, events: Any, *, input: str | None = None, position: Any = None, watermark: Any = None) -> Rows:
        """Process a batch of events, and return the rows that follow from it.

        :param events: anything with Arrow's C stream or array interface (a pyarrow table or batch, a DataFrame of Polars or
            pandas), a dict, or a list of dicts. Columns that the stream does not have are ignored; the values that a dict lacks
            are NULL.
        :param input: the input, if there are several
        :param position: the position of this batch in its source, such as an offset or a dict of offsets: anything that JSON can
            express. After a restart, :attr:`position` is that of the last batch in the state.
        :param watermark: no event at or before this time will come after this batch: a datetime, or an int if the event time is
            a BIGINT. In any case, none will come at or before the latest event time, less the stream's *max_out_of_orderness* and
            a millisecond.
        :return: for each output a table, with no rows if there are none
        :raises InvalidEventError, ColumnNotFoundError, ColumnTypeError: the batch does not fit the stream. It has no effect.
        :raises StateError: a snapshot could not be written. The batch has no effect, and may be sent again.
        """
        name = self._name_of(input)
        text = None if position is None else _position_text(position)
        with self._call():
            self._check_going(name)
            source = self._inputs[name]
            mark = None if watermark is None else source.micros(watermark)
            table = source.read(events)
            if not table.num_rows and mark is None:
                return self._run([], name, text, 0)
            arrivals = source.arrivals(self._operator, name, table, mark)
            return self._run(arrivals, name, text, table.num_rows)

    def advance_watermark(self, to: Any, *, input: str | None = None) -> Rows:
        """Advance the watermark: no event at or before this time will come any more. A watermark less than the current one has no
        effect.

        :param to: a datetime, or an int if the event time is a BIGINT
        :param input: an input; None: all of them that have an event time and have not ended
        """
        names = [self._name_of(input)] if input is not None else self._timed()
        with self._call():
            arrivals = [Arrival(name, None, self._inputs[name].micros(to)) for name in names]
            if self._record.over:
                return dict(self._empty)
            return self._run([arrival for arrival in arrivals if arrival.input not in self._record.ended])

    def advance_processing_time(self, to: datetime | None = None) -> Rows:
        """Advance processing time, which fires timers, and makes inputs idle. Every call does this; without events, call this
        method at :attr:`next_processing_time`.

        :param to: default: the time of the system's clock. A datetime without a time zone is in UTC. Time does not go back.
        """
        expect(StreamDefinitionError, to, datetime | None, "a processing time must be a datetime")
        with self._call():
            if self._record.over:
                return dict(self._empty)
            moment = None if to is None else (to if to.tzinfo is not None else to.replace(tzinfo=UTC))
            return self._run([], at=None if moment is None else micros(moment - EPOCH))

    def finish(self, input: str | None = None) -> Rows:
        """End one input, or the stream: every deadline and timer fires, no event waits any longer, and no state remains.

        What has ended takes no more events. All other calls have no effect then, this one included: a program that was killed
        after the end makes them when it is started again.

        :param input: an input; None: all of them, and the stream takes no more events
        """
        name = None if input is None else self._name_of(input)
        with self._call():
            if self._record.over or name in self._record.ended:
                return dict(self._empty)
            if name is not None and len(self._inputs) > 1:
                self._record = replace(self._record, ended=(*self._record.ended, name))
                return self._run([Arrival(name, None, END_OF_TIME)])
            return self._run(None)

    def stream(self, batches: Any) -> Iterator[Rows]:
        """Process the batches of an iterable, and yield the rows of each of them that has some.

        :param batches: an iterator of batches, or of :class:`asterism.Batch`, which also has a position; a
            :class:`pyarrow.RecordBatchReader`. It may be endless; the stream does not end with it (:meth:`finish`). If it
            fails, its exception is raised after the rows of the batches before.
        """
        for batch in batches_of(batches):
            rows = self._of_batch(batch)
            if any(table.num_rows for table in rows.values()):
                yield rows

    async def astream(self, batches: Any) -> AsyncIterator[Rows]:
        """As :meth:`stream`, for ``async for``: batches are processed in another thread, which does not block the event loop.
        Timers in processing time fire while no batch comes. If the task is cancelled while a batch is processed, the batch has no
        effect, since nobody gets its rows.

        :param batches: an asynchronous iterator, or an iterable
        """

        def numbered(call: Callable[[], Rows]) -> tuple[Rows, int]:
            with self._lock:
                return call(), self._record.batch

        calls = EngineCalls(
            lambda batch: numbered(lambda: self._of_batch(batch)),
            lambda: numbered(self.advance_processing_time),
            lambda result: self._withdraw(result[1]),
        )
        async for rows, _ in watched(batches, calls, self._seconds_to_timer):
            if any(table.num_rows for table in rows.values()):
                yield rows

    def _withdraw(self, batch: int) -> None:
        """Take the last call back, if there were so many calls after it: the caller does not get its rows."""
        with self._lock:
            if self._record.batch == batch and not self._closed:
                self._take_back()

    def _of_batch(self, batch: Batch) -> Rows:
        return self.process(batch.events, input=batch.input, position=batch.position, watermark=batch.watermark)

    def _seconds_to_timer(self) -> float | None:
        due = self._record.next_processing_time
        return None if due is None or self._record.over else max(0.0, due / 1e6 - time.time())

    # ------------------------------------------------------------------ calls

    @contextmanager
    def _call(self, *, calls: bool = True) -> Iterator[None]:
        """One call at a time, which has no effect if it fails. A snapshot that is due is taken first.

        :param calls: whether the operator is called
        """
        if self._caller == threading.get_ident():
            raise StreamDefinitionError(
                "a sink or a function of the query calls the engine", hint="call it when this call has returned"
            )
        with self._lock:
            self._caller, began = threading.get_ident(), time.perf_counter()
            has_begun = self._is_written = False
            try:
                if self._folder is not None:
                    self._folder.is_called = True
                self._begin()
                self._before = _Before(self._record, self._gauges, self._histograms, self._begun)
                has_begun = True
                try:
                    if calls and self._companion is not None and not self._record.over:
                        self._begins, details = self._companion.begin(self._record.details)
                        self._record = replace(self._record, details=details)
                    yield
                except BaseException:
                    self._take_back()
                    self.meter.failed_calls += calls
                    raise
                if calls:
                    events = self._record.events - self._before.record.events
                    self.meter.called(self._record, events, time.perf_counter() - began)
            finally:
                try:
                    if self._closes and not self._closed:
                        if has_begun and not self._is_written:
                            self._take_back()
                        else:
                            self._accept()
                        self._close()
                finally:
                    if self._folder is not None:
                        self._folder.is_called = False
                    self._caller = 0

    def _begin(self) -> None:
        """Begin a call: the rows of the call before it are written."""
        if self._closed:
            raise StreamDefinitionError("the engine is closed", hint="open it again")
        if self._folder is not None:
            self._folder.check()
        self._raise_failure()
        self._accept()
        if self._is_due():
            self._save()

    def _accept(self) -> None:
        """The effects of the last call remain."""
        before, self._before, self._handover = self._before, None, None
        self._store.accept()
        if before is not None and self._companion is not None:
            for result in before.results:
                self._companion.succeeded(result.metrics)

    def _take_back(self) -> None:
        """Restore what was there before the last call, also if that had an effect already. Sinks keep what they have taken."""
        before, handover = self._before, self._handover
        if before is None:
            return
        self._store.take_back()
        self._record = replace(before.record, snapshots=self._record.snapshots)
        self._gauges, self._histograms = before.gauges, before.histograms
        self._begun, self._before, self._handover = before.begun, None, None
        if handover is not None and handover.taken:
            self._record, self._unsaved = replace(self._record, handed=handover.after), True

    def _run(
        self,
        arrivals: list[Arrival] | None,
        name: str | None = None,
        position: str | None = None,
        events: int = 0,
        *,
        at: int | None = None,
    ) -> Rows:
        """Call the operator.

        :param arrivals: None: the stream ends
        :param name: the input with the *position*, as JSON, and this number of *events*
        :param at: the processing time; None: now
        """
        operator, record = self._operator, self._record
        moment = max(record.processing_time, time.time_ns() // 1000 if at is None else at)
        now = Now(processing_time=moment, key_group=0, begins_run=not self._begun)
        parts = [(self._begins + (arrivals or []), now)]
        if arrivals is None:
            last = END_OF_TIME if operator.processing_time else moment
            parts.append(([], Now(END_OF_TIME, last, key_group=0)))
        rows: dict[str, list[pa.Table]] = {}
        results = []
        for part, when in parts:
            result = Result({})
            with self._of_a_folder():
                for result in operator.slices(self._store, part, when):
                    for output, table in result.outputs.items():
                        rows.setdefault(output, []).append(table)
            results.append(result)
        found = self._whole(rows)
        positions = dict(record.positions)
        if name is not None and position is not None:
            positions[name] = json.loads(position)
        counts = Counter(record.counts)
        for result in results:
            counts.update(self._counts(result))
        handover = Handover(name if events else None, position, arrivals or [], record.handed)
        self._record = replace(
            record,
            positions=positions,
            batch=record.batch + 1,
            events=record.events + events,
            over=arrivals is None,
            counts=dict(counts),
            processing_time=moment,
            watermark=result.watermark if result.watermark is not None else record.watermark,
            next_processing_time=result.next_processing_time,
            handed=handover.remaining,
        )
        self._hand_over(handover, found, record.batch)
        assert self._before is not None
        self._before = replace(self._before, results=tuple(results))
        self._store.commit()
        self._begun = self._unsaved = True
        for result in results:
            self._measure(result)
        self.meter.behind = {**self.meter.behind, **result.behind}
        self._is_written = all(output in self._sinks for output, rows in found.items() if rows.num_rows)
        return found

    def _hand_over(self, handover: Handover, rows: Rows, number: int) -> None:
        """Call the sinks, each of which gets the rows of a batch once, also if that is sent again after a failure."""
        self._handover = handover if self._sinks else None
        for output, sink in self._sinks.items():
            if rows[output].num_rows:
                if not handover.repeats(output, rows[output]):
                    sink(rows[output], number)
                handover.taken[output] = rows[output]

    def _whole(self, rows: Mapping[str, list[pa.Table]]) -> Rows:
        return {
            name: pa.concat_tables(rows[output]) if output in rows else self._empty[name]
            for output, name in self._names.items()
        }

    def _counts(self, result: Result) -> dict[str, int]:
        """The counters, without those of histograms and of single rules, which have no names yet or a slash."""
        return {name: count for name, count in CallMetrics.of(result.metrics).named.items() if "/" not in name}

    def _measure(self, result: Result) -> None:
        if not result.gauges:
            return
        gauges = {name: result.gauges[name] for name in self._operator.gauges if name in result.gauges}
        self._gauges = {**self._gauges, **gauges}
        histograms = dict(self._histograms)
        for name, bounds in self._operator.histograms.items():
            values = HistogramStatistics.of(name, bounds, [(result.metrics, result.gauges)])
            histograms[name] = values.plus(histograms[name]) if name in histograms else values
        self._histograms = histograms

    def _timed(self) -> list[str]:
        timed = [name for name, source in self._inputs.items() if source.time is not None]
        return [name for name in timed if name not in self._record.ended] or timed or list(self._inputs)

    def _name_of(self, input: str | None) -> str:
        if input is None and len(self._inputs) == 1:
            return next(iter(self._inputs))
        if not isinstance(input, str) or input not in self._inputs:
            raise InvalidEventError(
                "the input must be named, because there are several"
                if input is None
                else f"there is no input {shown(input)}",
                f"Inputs: {', '.join(self._inputs)}",
                f'input="{next(iter(self._inputs))}"',
            )
        return input

    def _check_going(self, name: str) -> None:
        if self._record.over or name in self._record.ended:
            what = "the stream has ended" if self._record.over else f'the input "{name}" has ended'
            raise InvalidEventError(what, hint="open another folder for another stream")

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> None:
        """Write a snapshot of all calls so far, and wait until it is on the disk. The caller has had their rows.

        :raises StateError: it cannot be written; the former snapshot remains
        """
        with self._call(calls=False):
            self._save_and_wait()

    def _is_due(self) -> bool:
        every = SNAPSHOT_EVERY if self._folder is None else self._options.snapshot_every
        if every is None or not self._unsaved or (self._folder is not None and self._folder.is_writing):
            return False
        if isinstance(every, timedelta):
            return time.monotonic() - self._saved_at >= every.total_seconds()
        return self._record.events - self._saved_events >= every

    def _save(self) -> None:
        """Begin to write a snapshot of all calls so far."""
        self._record = record = replace(self._record, snapshots=self._record.snapshots + 1, pages=self._store.pages)
        self._saved_events, self._saved_at, self._unsaved = record.events, time.monotonic(), False
        companion = self._companion
        saved = nothing if companion is None else companion.saving(record.details, record.snapshots)
        if self._folder is None:
            saved()
            return
        changes = self._store.taken()

        def written() -> None:
            self.meter.saved(record)
            saved()

        def failed(error: AsterismError) -> None:
            self._store.put_back(changes)
            self._unsaved, self._failure = True, error
            self.meter.failed_snapshots += 1

        self._folder.write(changes, record, written, failed)

    def _save_and_wait(self) -> None:
        if self._folder is not None:
            self._folder.wait()
            self._raise_failure()
        if self._unsaved:
            self._save()
            if self._folder is not None:
                self._folder.wait()
            self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise the error of a snapshot in the background."""
        error, self._failure = self._failure, None
        if error is not None:
            raise error

    # ------------------------------------------------------------------ end

    def close(self) -> None:
        """Take a last snapshot, and leave the folder to others. The stream does not end: it goes on when it is opened again.

        During a call, in a sink or in a handler of signals, this only says that the engine shall be closed after the call. The
        last snapshot has this call if sinks have taken all of its rows. Otherwise it does not, since nobody knows whether the
        rows that the call returns are written: its batch is sent again, and sinks do not get their rows twice.

        :raises StateError: the snapshot cannot be written
        """
        if self._caller == threading.get_ident():
            self._closes = True
            return
        with self._lock:
            if self._closed:
                return
            self._caller = threading.get_ident()
            try:
                self._accept()
                self._close()
            finally:
                self._caller = 0

    def _close(self) -> None:
        self._closed, self.meter.outcome = True, "failed"
        try:
            self._save_and_wait()
            self.meter.outcome = "finished"
        finally:
            self._release()
            self._operator.close()

    def _release(self) -> None:
        if self._companion is not None:
            self._companion.close()
        if self._folder is not None:
            self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the engine. After an exception, the last snapshot does not have the last call, whose rows may not be written,
        unless sinks have taken all of them.
        """
        if error is None:
            self.close()
            return
        with self._lock:
            if self._closed:
                return
            if self._is_written:
                self._accept()
            else:
                self._take_back()
            with suppress(Exception):  # the first error is raised
                self._close()
            self.meter.outcome = "failed"

    # ------------------------------------------------------------------ progress

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """The columns of each output."""
        return self._schemas

    @property
    def position(self) -> Any:
        """The position of the last batch that the state contains, as the caller gave it; None: there was none. Of several inputs
        a dict, by input.
        """
        positions = self._record.positions
        return positions.get(self._name_of(None)) if len(self._inputs) == 1 else dict(positions)

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the query; None: there is none yet."""
        return None if self._record.watermark is None else to_datetime(self._record.watermark)

    @property
    def next_processing_time(self) -> datetime | None:
        """When :meth:`advance_processing_time` has something to do without events; None: never."""
        due = self._record.next_processing_time
        return None if due is None else to_datetime(due)

    @property
    def has_rules(self) -> bool:
        """Whether the query has rules, and so a :meth:`status`."""
        return hasattr(self._companion, "status")

    def status(self) -> Status:
        """The status of the rules and of their discovery, as :meth:`asterism.PatternProcessorStream.status`.

        :raises StreamDefinitionError: the query has no rules
        """
        status = getattr(self._companion, "status", None)
        if status is None:
            raise StreamDefinitionError("the query has no rules, so there is no status", hint="engine.progress")
        of_rules: Status = status()
        return of_rules

    @property
    def progress(self) -> dict[str, Any]:
        """Numbers of the query, with the names of Spark's progress: ``batchId`` and ``numInputRows`` of all calls so far,
        ``eventTime``, ``stateOperators``, and the counts, gauges and histograms of the operator in ``observedMetrics``, in the
        observation ``asterism``. Counts go on after a restart, gauges and histograms do not.
        """
        record = self._record
        mark = self.watermark
        return {
            "batchId": record.batch,
            "numInputRows": record.events,
            "eventTime": {} if mark is None else {"watermark": mark.isoformat()},
            "stateOperators": [{"numRowsTotal": self._store.pages, "memoryUsedBytes": self._store.size}],
            "observedMetrics": {OBSERVATION: {**record.counts, **self._gauges, **self._histograms}},
            "position": dict(record.positions),
        }


def _position_text(position: Any) -> str:
    try:
        return json.dumps(position, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise StreamDefinitionError(
            f"a position must be something that JSON can express, not {shown(position)}",
            hint='position=42, or position={"0": 17, "1": 25}',
        ) from None


def nothing() -> None:
    """Do nothing."""
