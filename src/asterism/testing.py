"""The test kit: a pattern, or another operator, without Spark, files or a clock.

:func:`match` runs a pattern over events that are written as words; :class:`PatternHarness` does it step by step, with time in
the test's hands; :func:`assert_matches` says what differs, and :func:`check_independence` that the answer does not depend on
how the events are cut. :class:`StreamOperatorHarness` and :func:`check_operator_independence` do the same for operators with any
number of inputs. Nothing here needs pytest. ``docs/testing.md`` shows all of it at work.

>>> from asterism import Pattern
>>> pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND value > LAST(a.value)")
>>> match(pattern, "a1 x2 b3 b4").matches
['a1 b3']
"""

from __future__ import annotations

import hashlib
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import expect, expect_number, expect_text, expect_texts, shown
from asterism.columns.groups import KEY_HASH, group_codes
from asterism.columns.schemas import schema_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, MICROSECOND, TimeColumn
from asterism.errors import ColumnNotFoundError, InvalidEventError, PatternWarning, StreamDefinitionError
from asterism.matching.operator import EVENTS as EVENTS_INPUT
from asterism.matching.operator import MAX_PAGES, MAX_PARTIAL_MATCHES, CepOperator, OnLimit
from asterism.matching.outputs import MATCH_ID, MATCH_TIME, TIMEOUT_TIME, OutputKind, OutputSpec
from asterism.matching.page import Page
from asterism.operators.multiple_input import MultipleInputOperator, Wire
from asterism.operators.operator import Arrival, Now, Operator, Result
from asterism.operators.state_store import MemoryStore
from asterism.operators.stream_operator import Input, StreamOperator
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.warnings import warn

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
Events: TypeAlias = "str | Sequence[Row] | pa.Table | pd.DataFrame"
Time = str | timedelta | datetime
Part: TypeAlias = pa.Table | int | None
"""What a harness is told: a batch of events, or a time to move to (microseconds; None: the latest so far)."""
EVENTS = pa.schema(
    [("key", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("value", pa.int64())]
)
"""The columns of events that are written as words."""
SELECTED = "selected"
"""The output that holds the measures of *select*."""
MAX_KEY_GROUPS = 2**15
"""As on Spark."""
_TIMES = "10s, 1h30m, 500ms, 00:10, 2025-01-31T12:00:00"
_EVENTS = '"a1 b2", dicts, a pyarrow.Table or a pandas DataFrame'
_CONNECTED = 'inputs={"orders": {"key": "id", "time": "ts"}}'
_SECOND = timedelta(seconds=1)


__all__ = [
    "EVENTS",
    "Clock",
    "End",
    "Finding",
    "Literals",
    "OperatorHarness",
    "PatternHarness",
    "Send",
    "Snapshot",
    "StreamOperatorHarness",
    "Watermark",
    "assert_matches",
    "check_independence",
    "check_operator_independence",
    "match",
    "table_of",
]

# ---------------------------------------------------------------------- events as words

_WORD = re.compile(
    r"(?:(?P<key>\w+)\.)?(?P<kind>[^\W\d]+)(?P<value>-?\d+(?:\.\d+)?)?(?:\((?P<more>[^()]*)\))?(?:@(?P<time>\S+))?"
)
_DURATION = re.compile(r"-?(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?(?:(\d+)us)?")
_DURATION_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
_CLOCK = re.compile(r"(?:(?P<h>\d+):)?(?P<m>\d{1,2}):(?P<s>\d{1,2}(?:\.\d{1,6})?)")
_A_DATE = 10**14
"""Microseconds since 1970, some three years, from which on a time is written as a date."""


@dataclass(frozen=True, slots=True)
class Literals:
    """How events are written as words: ``a1`` is an event of kind "a" with the value 1.

    ==================  ================================================================================
    word                the event
    ==================  ================================================================================
    ``a1``              kind "a", value 1, one *step* after the event before it; the first one after one
                        *step*
    ``add_to_cart``     kind "add_to_cart", its value is null
    ``ann.a1``          the key is "ann"; without it, null
    ``a1@10s``          at 10 seconds: also ``500ms``, ``1h30m``, ``00:10``, ``01:00:10``,
                        ``2025-01-31T12:00:00``, and ``10``, ten steps; ``a1@null`` has no time
    ``a1(price=2.5)``   values of other columns, separated by commas
    ==================  ================================================================================

    Between events, ``/`` ends a batch, ``|`` ends it and moves the watermark to the latest time so far, and ``|10s`` moves it
    to that time (in processing time: the clock); ``|end`` is the end of input.

    :param kind: the column of the letters; *value*, *key* and *time* likewise
    :param step: the distance of events whose time is not written
    :param timed_by_value: the time is the value, in *steps*: ``a7`` is at 7 s
    :param label: in answers, write an event as the value of this column
    """

    kind: str = "kind"
    value: str = "value"
    key: str = "key"
    time: str = "ts"
    step: timedelta = _SECOND
    timed_by_value: bool = False
    label: str | None = None

    def __post_init__(self) -> None:
        for name in ("kind", "value", "key", "time"):
            expect_text(StreamDefinitionError, getattr(self, name), f"{name} is the name of a column")
        expect(StreamDefinitionError, self.label, str | None, "label is the name of a column")
        expect(StreamDefinitionError, self.timed_by_value, bool, "timed_by_value is True or False")
        expect(StreamDefinitionError, self.step, timedelta, "step is a timedelta", "timedelta(seconds=1)")
        if self.step < MICROSECOND:
            raise StreamDefinitionError(f"step must be positive, not {self.step}")

    def parse(self, text: str, schema: pa.Schema, after: int = 0) -> list[Part]:
        """What *text* says, in order: batches of events, and times to move to (microseconds; None: the latest so far).

        :param after: the time of the event before the first one, in microseconds
        :raises InvalidEventError: a word is not an event, or a value is of another type
        :raises ColumnNotFoundError: the events have no such column

        >>> [batch] = Literals().parse("a1 b2@01:00", EVENTS)
        >>> [row["ts"].minute for row in batch.to_pylist()]
        [0, 1]
        """
        expect_text(InvalidEventError, text, "events as words are a text", '"a1 b2"')
        expect(InvalidEventError, schema, pa.Schema, "the schema of events is a pyarrow.Schema")
        _check_micros(after)
        parts: list[Part] = []
        rows: list[Row] = []
        for word in [*text.split(), "/"]:
            if word != "/" and not word.startswith("|"):
                row, after = self._event(word, schema, after)
                rows.append(row)
                continue
            if rows:
                parts.append(table_of(rows, schema))
                rows = []
            if word != "/":
                parts.append(None if word == "|" else self.micros(word[1:]))
        return parts

    def _event(self, word: str, schema: pa.Schema, after: int) -> tuple[Row, int]:
        found = _WORD.fullmatch(word)
        if not found:
            raise InvalidEventError(f"not an event: {word!r}", hint="a1, ann.a1, a1@10s, a1(price=2.5)")
        texts = {self.kind: found["kind"], self.value: found["value"], self.key: found["key"]}
        for part in filter(None, (found["more"] or "").split(",")):
            name, equals, value = part.partition("=")
            if not equals:
                raise InvalidEventError(f"not an event: {word!r}", "In brackets are columns.", "a1(price=2.5,user=ann)")
            texts[name] = value
        row = {
            name: None if text in (None, "null") else _typed(text, name, schema, word)
            for name, text in texts.items()
            if text is not None or name in schema.names
        }
        if found["time"] == "null":
            return row, after
        if found["time"] is not None:
            after = self.micros(found["time"])
        elif self.timed_by_value and found["value"] is not None:
            after = self.micros(found["value"])
        else:
            after += self.step // MICROSECOND
        if self.time in schema.names:
            column = TimeColumn.of(self.time, schema)
            row[self.time] = column.from_micros(np.array([after]))[0].as_py()
        return row, after

    def micros(self, time: str | timedelta | datetime) -> int:
        """A point in time as microseconds since the epoch; a text as in a word, a datetime without a zone is in UTC.

        >>> Literals().micros("1m30s"), Literals().micros("01:30"), Literals().micros(timedelta(seconds=90))
        (90000000, 90000000, 90000000)
        """
        if time == "end":
            return END_OF_TIME
        try:
            found = self._micros(time)
        except (ValueError, OverflowError):
            found = None
        if found is None or not BEFORE_TIME < found < END_OF_TIME:
            raise InvalidEventError(f"not a time: {shown(time)}", hint=_TIMES)
        return found

    def _micros(self, time: Any) -> int | None:
        if isinstance(time, timedelta):
            return time // MICROSECOND
        if isinstance(time, datetime):
            moment = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND
        if not isinstance(time, str):
            return None
        if re.fullmatch(r"-?\d+", time):
            return int(time) * (self.step // MICROSECOND)
        if found := _DURATION.fullmatch(time):
            numbers = {unit: int(number or 0) for unit, number in zip(_DURATION_UNITS, found.groups(), strict=True)}
            return timedelta(**numbers) // MICROSECOND * (-1 if time.startswith("-") else 1)
        if found := _CLOCK.fullmatch(time):
            clock = timedelta(hours=int(found["h"] or 0), minutes=int(found["m"]), seconds=float(found["s"]))
            return clock // MICROSECOND
        return self._micros(datetime.fromisoformat(time))

    def time_text(self, micros: int) -> str:
        """A point in time as one would write it in a word."""
        _check_micros(micros)
        step = self.step // MICROSECOND
        if micros == END_OF_TIME:
            return "end"
        if self.timed_by_value and micros % step == 0:
            return str(micros // step)
        if abs(micros) >= _A_DATE:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
            return moment.replace(tzinfo=None).isoformat()
        number, unit = next(
            (micros // size, unit) for size, unit in ((10**6, "s"), (1000, "ms"), (1, "us")) if micros % size == 0
        )
        return f"{number}{unit}"

    def text(self, event: Row) -> str:
        """An event as a word, without its time: key, kind and value, or its *label*.

        Without such columns, all that there is.

        >>> Literals().text({"kind": "a", "value": 1, "key": "ann"})
        'ann.a1'
        >>> Literals().text({"user": "ann", "price": 2.5})
        '(user=ann,price=2.5)'
        """
        expect(InvalidEventError, event, Mapping, "an event is a dict")
        if self.label is not None:
            if self.label not in event:
                raise ColumnNotFoundError.from_missing_and_available(self.label, event, "the label of events")
            return _written(event[self.label])
        if self.kind not in event:
            return (
                "(" + ",".join(f"{name}={_written(value)}" for name, value in event.items() if value is not None) + ")"
            )
        key, value = event.get(self.key), event.get(self.value)
        return ("" if key is None else f"{key}.") + str(event[self.kind]) + ("" if value is None else _written(value))


WORDS = Literals()


def _check_micros(micros: Any) -> None:
    expect_number(InvalidEventError, micros, "a time in microseconds", least=BEFORE_TIME, most=END_OF_TIME)


def _named(name: Any) -> str:
    return f'"{name}"' if isinstance(name, str) else shown(name)


def _check_table(events: Any) -> None:
    expect(InvalidEventError, events, pa.Table, "a batch of events is a pyarrow.Table", "table_of(...) makes one")


def _typed(text: str, name: str, schema: pa.Schema, word: str) -> Any:
    if name not in schema.names:
        raise ColumnNotFoundError.from_missing_and_available(name, schema.names, f"in: {word}")
    try:
        return pa.scalar(text, pa.string()).cast(schema.field(name).type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidEventError(
            f"{text!r} is not a value of {name}: {schema.field(name).type}", f"in: {word}"
        ) from None


def _written(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def table_of(events: Sequence[Row] | pa.Table | pd.DataFrame, schema: pa.Schema | None = None) -> pa.Table:
    """Events as a table: from dicts, a pandas DataFrame or a table, with the columns of *schema* or as they come.

    :raises ColumnNotFoundError: a column is not in *schema*
    :raises InvalidEventError: a value is of another type

    >>> table_of([{"kind": "a"}], EVENTS).column_names
    ['key', 'ts', 'kind', 'value']
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(events, pandas.DataFrame):
        events = pa.Table.from_pandas(events, preserve_index=False)
    table = events if isinstance(events, pa.Table) else None
    rows = cast("Sequence[Row]", events)
    expect(InvalidEventError, schema, pa.Schema | None, "the schema of events is a pyarrow.Schema")
    if table is None:
        _check_rows(events)
    if schema is None:
        try:
            return pa.Table.from_pylist(rows) if table is None else table
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidEventError(
                "the events do not make a table", str(error), "say the types of their columns: schema="
            ) from None
    names = list(dict.fromkeys(name for row in rows for name in row)) if table is None else table.column_names
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise ColumnNotFoundError.from_missing_and_available(unknown[0], schema.names, "in the events that are sent")
    try:
        if table is None:
            return _table_of_rows(rows, schema)
        missing = {f.name: pa.nulls(table.num_rows, f.type) for f in schema if f.name not in names}
        columns = [missing[f.name] if f.name in missing else table.column(f.name).cast(f.type) for f in schema]
        return pa.table(columns, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidEventError("an event does not fit the schema", str(error)) from None


def _check_rows(events: Any) -> None:
    if isinstance(events, str | bytes | Mapping) or not isinstance(events, Sequence):
        raise InvalidEventError(f"these are no events: {shown(events)}", hint=_EVENTS)
    for row in events:
        expect(InvalidEventError, row, Mapping, "an event is a dict", _EVENTS)
        for name in row:
            expect_text(InvalidEventError, name, "the column of an event has a name")


def _table_of_rows(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        for row in rows:
            for name, value in row.items():
                try:
                    pa.array([value], schema.field(name).type)
                except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                    raise InvalidEventError(
                        f"{value!r} is not a value of {name}: {schema.field(name).type}", f"{error}\nin: {row}"
                    ) from None
        raise


# ---------------------------------------------------------------------- any operator


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a harness knows at one moment; its state is bytes, as in a checkpoint."""

    now: Now
    state: tuple[tuple[bytes | None, dict[int, bytes]], ...]
    wakes: list[int | None]
    clocks: list[int | None]
    outputs: dict[str, list[pa.Table]]
    sent: list[pa.Table]
    metrics: Mapping[str, int]


class OperatorHarness:
    """Drives an operator as Spark would: carries batches, state and time, and collects what comes out.

    Keys are spread over *key_groups*, each with a store of its own. All times are microseconds since the epoch.

    :param keys: the key columns, for the hashes that tell a key's group and page; of each input, where they differ

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
            raise StreamDefinitionError(
                f"what is tested is an operator, not {shown(operator)}", hint="PatternHarness(pattern)"
            )
        expect_number(StreamDefinitionError, key_groups, "key_groups", least=1, most=MAX_KEY_GROUPS)
        for columns in keys.values() if isinstance(keys, Mapping) else [keys]:
            expect_texts(StreamDefinitionError, columns, "keys is a list of columns", 'keys=["user"]')
        self.operator = operator
        self.keys = [] if isinstance(keys, Mapping) else list(keys)
        self._keys = keys if isinstance(keys, Mapping) else dict.fromkeys(operator.inputs, self.keys)
        self.stores = [MemoryStore() for _ in range(key_groups)]
        self.wakes: list[int | None] = [None] * key_groups
        self.clocks: list[int | None] = [None] * key_groups
        self.now = Now()
        self.outputs: dict[str, list[pa.Table]] = {name: [] for name in operator.output_schemas}
        self.sent: list[pa.Table] = []
        self.metrics: Counter[str] = Counter()
        """What the operator counted."""
        self._open = False

    def feed(self, events: pa.Table, name: str = EVENTS_INPUT) -> Self:
        """One batch of the input *name*, at the present time; each key group that has events of it is called once.

        A broadcast input reaches every key group.

        :raises InvalidEventError: the stream has ended
        """
        _check_table(events)
        self._check_input(name)
        missing = [key for key in self._keys.get(name, ()) if key not in events.column_names]
        if missing:
            raise ColumnNotFoundError.from_missing_and_available(missing[0], events.column_names, "a key of the events")
        if self.now == Now(END_OF_TIME, END_OF_TIME):
            raise InvalidEventError("the stream has ended", hint="restore a snapshot, or begin a new harness")
        self.sent.append(events)
        broadcast = self.operator.inputs[name].broadcast
        heard_by_all = any(spec.idle_after is not None for spec in self.operator.inputs.values())
        hashes = np.zeros(events.num_rows, np.int64) if broadcast else key_hashes(events.select(self._keys[name]))
        groups = hashes.view(np.uint64) % np.uint64(len(self.stores))
        hashed = events.append_column(KEY_HASH, pa.array(hashes))
        for group in range(len(self.stores)):
            mine = hashed if broadcast or len(self.stores) == 1 else hashed.filter(pa.array(groups == group))
            if mine.num_rows:
                self._call(group, [Arrival(name, self.operator.prepare(name, mine))])
            elif heard_by_all:
                self._call(group, [Arrival(name)])
        return self

    def feed_watermark(self, watermark: int, name: str = EVENTS_INPUT) -> Self:
        """The watermark of one input: it reaches every key group."""
        _check_micros(watermark)
        self._check_input(name)
        for group in range(len(self.stores)):
            self._call(group, [Arrival(name, watermark=watermark)])
        return self

    def _check_input(self, name: Any) -> None:
        if not isinstance(name, str) or name not in self.operator.inputs:
            raise InvalidEventError(
                f"there is no input {_named(name)}", f"Inputs: {', '.join(self.operator.inputs) or 'none'}"
            )

    def move(self, *, watermark: int | None = None, processing_time: int | None = None) -> Self:
        """Let time pass for all inputs; it never goes back. Every key group is called."""
        for time in (watermark, processing_time):
            if time is not None:
                _check_micros(time)
        self.now = Now(
            max(self.now.watermark, self.now.watermark if watermark is None else watermark),
            max(self.now.processing_time, self.now.processing_time if processing_time is None else processing_time),
        )
        for group in range(len(self.stores)):
            self._call(group, [])
        return self

    def tick(self, processing_time: int) -> Self:
        """The clock moves; as on Spark, only the key groups are called that asked for it."""
        _check_micros(processing_time)
        self.now = replace(self.now, processing_time=max(self.now.processing_time, processing_time))
        for group, clock in enumerate(self.clocks):
            if clock is not None and clock <= self.now.processing_time:
                self._call(group, [])
        return self

    def end(self) -> Self:
        """The end of input: every deadline fires, nothing waits any more."""
        return self.move(watermark=END_OF_TIME, processing_time=END_OF_TIME).close()

    def close(self) -> Self:
        """Close the operator, as at the end of a task; what comes next opens it again."""
        if self._open:
            self._open = False
            self.operator.close()
        return self

    def _call(self, group: int, arrivals: Sequence[Arrival]) -> None:
        if not self._open:
            self.operator.open()
            self._open = True
        result: Result = self.operator.process(self.stores[group], arrivals, self.now)
        self.wakes[group] = result.wake if result.wake is not None else result.wake_processing
        self.clocks[group] = result.wake_processing
        self.metrics.update(result.metrics)
        for name, rows in result.outputs.items():
            self.outputs[name].append(rows)

    @property
    def wake(self) -> int | None:
        """When the operator wants to be called next; None: only with events."""
        return min((wake for wake in self.wakes if wake is not None), default=None)

    @property
    def is_empty(self) -> bool:
        """Nothing is remembered at all."""
        return all(store.is_empty for store in self.stores)

    def output(self, name: str) -> pa.Table:
        """What came out so far, in order; likewise."""
        if not isinstance(name, str) or name not in self.operator.output_schemas:
            raise StreamDefinitionError(
                f"there is no output {_named(name)}", f"Outputs: {', '.join(self.operator.output_schemas) or 'none'}"
            )
        return pa.concat_tables([self.operator.output_schemas[name].empty_table(), *self.outputs[name]])

    def rows(self, name: str) -> list[Row]:
        """What came out so far, as dicts.

        :raises StreamDefinitionError: there is no such output
        """
        return _rows(self.output(name))

    def snapshot(self) -> Snapshot:
        """State, time and what came out so far."""
        return Snapshot(
            self.now,
            tuple((store.header, dict(store.pages)) for store in self.stores),
            list(self.wakes),
            list(self.clocks),
            {name: list(tables) for name, tables in self.outputs.items()},
            list(self.sent),
            dict(self.metrics),
        )

    def restore(self, snapshot: Snapshot) -> Self:
        """Go back, or on in a new harness for the same operator, as after a failure: only what the snapshot holds is known."""
        expect(StreamDefinitionError, snapshot, Snapshot, "what is restored is a Snapshot", "harness.snapshot()")
        self.close()
        self.now = snapshot.now
        self.stores = [MemoryStore(header, dict(pages)) for header, pages in snapshot.state]
        self.wakes, self.clocks = list(snapshot.wakes), list(snapshot.clocks)
        self.metrics = Counter(snapshot.metrics)
        self.outputs = {name: list(tables) for name, tables in snapshot.outputs.items()}
        self.sent = list(snapshot.sent)
        return self


def key_hashes(keys: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A 64-bit hash for each row, the same in every process."""
    codes, count = group_codes(keys)
    if keys.num_columns == 0:
        return np.zeros(keys.num_rows, np.int64)
    first = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    texts = [repr(tuple(row.values())) for row in keys.take(pa.array(first)).to_pylist()]
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    hashes: np.ndarray[Any, np.dtype[np.int64]] = np.frombuffer(b"".join(digests), np.int64)[codes]
    return hashes


# ---------------------------------------------------------------------- operators with any number of inputs

Rows: TypeAlias = "Row | Sequence[Row] | pa.Table | pd.DataFrame"


@dataclass(frozen=True, slots=True)
class Send:
    """A step of a test: elements of an input arrive."""

    input: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class Watermark:
    """A step of a test: event time has passed *to*, for one *input* or for all that have a time."""

    to: Time
    input: str | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """A step of a test: the clock shows *to*."""

    to: Time


@dataclass(frozen=True, slots=True)
class End:
    """A step of a test: one *input* ends, or all do."""

    input: str | None = None


Step: TypeAlias = Send | Watermark | Clock | End


class StreamOperatorHarness(OperatorHarness):
    """A :class:`~asterism.operators.stream_operator.StreamOperator` with its state and time, to be fed step by step.

    :param inputs: to what each input is connected, by name, with what ``KeyedStream`` and ``BroadcastStream`` are told: ``key``
        (a column or several), ``time`` and ``idle_after``; and with ``columns``, Spark SQL or an Arrow schema, where the stream
        has more columns than the operator reads: its key, or its time. An input that is not named has no key and no time.
    :param key_groups: as on Spark; *pages*: pages of state per key group. The answers must not depend on them
    :raises StreamDefinitionError, ColumnNotFoundError: as ``connect``

    Times, also those in timestamp columns of rows, are texts as in words (``"10s"``, see :class:`Literals`), the time since 1970,
    or datetimes.

    >>> from asterism.operators.keyed_state import ValueState
    >>> from asterism.operators.stream_operator import Input, Output, StreamOperator
    >>> class Unpaid(StreamOperator):
    ...     orders = Input("id BIGINT, ts TIMESTAMP")
    ...     payments = Input("id BIGINT")
    ...     paid = ValueState("BOOLEAN")
    ...     reminders = Output("id BIGINT")
    ...
    ...     @orders.process_element
    ...     def order(self, order, ctx):
    ...         ctx.register_event_time_timer("due", order.ts + timedelta(minutes=30))
    ...
    ...     @payments.process_element
    ...     def pay(self, payment, ctx):
    ...         self.paid.update(True)
    ...
    ...     def on_event_time_timer(self, timer, ctx):
    ...         if not self.paid.value():
    ...             self.reminders.collect(id=ctx.key)
    >>> inputs = {"orders": {"key": "id", "time": "ts"}, "payments": {"key": "id"}}
    >>> harness = StreamOperatorHarness(Unpaid(), inputs)
    >>> harness = harness.send("orders", [{"id": 1, "ts": "1m"}, {"id": 2, "ts": "2m"}]).send("payments", {"id": 1})
    >>> harness.advance_watermark("orders", "40m").rows("reminders")
    [{'id': 2}]
    """

    def __init__(
        self,
        operator: StreamOperator,
        inputs: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        key_groups: int = 1,
        pages: int = 1,
    ) -> None:
        expect(StreamDefinitionError, operator, StreamOperator, "what is tested is a StreamOperator", "Unpaid()")
        expect_number(StreamDefinitionError, pages, "pages", least=1, most=MAX_PAGES)
        expect(StreamDefinitionError, inputs, Mapping | None, "inputs tell what each input is connected to", _CONNECTED)
        for name, said in (inputs or {}).items():
            expect_text(StreamDefinitionError, name, "an input has a name", _CONNECTED)
            expect(StreamDefinitionError, said, Mapping, f'of the input "{name}" the options are a dict', _CONNECTED)
        self._options: dict[str, Any] = {
            "operator": operator, "inputs": inputs or {}, "key_groups": key_groups, "pages": pages
        }  # fmt: skip
        declared: Mapping[str, Input] = operator.declared(Input)
        connected: dict[str, Mapping[str, Any]] = {name: {} for name in declared} | dict(inputs or {})
        wires = {name: _wire(name, declared.get(name), **_known(name, options)) for name, options in connected.items()}
        self.streams = MultipleInputOperator(operator, wires, pages=pages)
        super().__init__(self.streams, keys={name: wire.keys for name, wire in wires.items()}, key_groups=key_groups)

    def again(self, **changes: Any) -> StreamOperatorHarness:
        """A new harness for the same operator, with the same options but for *changes*."""
        return StreamOperatorHarness(**self._options | changes)

    def send(self, input: str, rows: Rows) -> Self:
        """Elements of one input arrive: a dict, several, a table or a pandas DataFrame; each call is a batch.

        Columns that are missing are null. Elements with an event time wait for the watermark.

        :raises InvalidEventError: they do not fit the input, or it has ended
        :raises ColumnNotFoundError: they have a column that the input has not
        """
        table = self.table(input, rows)
        return self.feed(table, input) if table.num_rows else self

    def table(self, input: str, rows: Rows) -> pa.Table:
        """Elements as a table with the columns of an input."""
        schema = self._wire(input).schema
        timed = [field for field in schema if pa.types.is_timestamp(field.type) or field.name == self._wire(input).time]
        if isinstance(rows, Mapping):
            rows = [rows]
        if isinstance(rows, Sequence):
            _check_rows(rows)
            rows = [
                row | {f.name: _as_time(row[f.name], f) for f in timed if isinstance(row.get(f.name), str | timedelta)}
                for row in rows
            ]
        return table_of(rows, schema)

    def _wire(self, input: str) -> Wire:
        self._check_input(input)
        return self.streams.wires[input]

    @overload
    def advance_watermark(self, input: Time, to: None = None) -> Self: ...
    @overload
    def advance_watermark(self, input: str, to: Time) -> Self: ...
    def advance_watermark(self, input: Time, to: Time | None = None) -> Self:
        """Event time has passed a point: ``("orders", "10s")`` for one input, ``("10s")`` for all that have a time.

        A lower one than before changes nothing.
        """
        if to is None:
            names = [name for name, spec in self.operator.inputs.items() if spec.timed]
            return self._arrive([Arrival(name, watermark=WORDS.micros(input)) for name in names])
        self._check_input(input)
        assert isinstance(input, str)
        return self._arrive([Arrival(input, watermark=WORDS.micros(to))])

    def advance_processing_time(self, to: Time) -> Self:
        """The clock shows *to*. It stands until the test moves it, and starts in 1970."""
        return self.tick(WORDS.micros(to))

    def end(self, input: str | None = None) -> Self:
        """One input ends; or all do: then every deadline fires, nothing waits any more, and no state is left."""
        if input is None:
            last = self.now
            for group in range(len(self.stores)):  # the end comes with a last micro-batch, at the time that it is
                self.now = last
                self._call(group, [])
                self.now = Now(END_OF_TIME, END_OF_TIME)
                self._call(group, [])
            return self.close()
        self._wire(input)
        return self._arrive([Arrival(input, watermark=END_OF_TIME)])

    def _arrive(self, arrivals: Sequence[Arrival]) -> Self:
        """Watermarks arrive, in every key group."""
        for group in range(len(self.stores)):
            self._call(group, arrivals)
        return self

    def play(self, steps: Iterable[Step]) -> Self:
        """Do one step after the other."""
        if not isinstance(steps, Iterable):
            raise InvalidEventError(
                f"these are no steps: {shown(steps)}", hint='[Send("orders", rows), Watermark("5m")]'
            )
        for step in steps:
            match step:
                case Send(input, rows):
                    self.send(input, rows)
                case Watermark(to, None):
                    self.advance_watermark(to)
                case Watermark(to, input):
                    self.advance_watermark(cast("str", input), to)
                case Clock(to):
                    self.advance_processing_time(to)
                case End(input):
                    self.end(input)
                case _:
                    raise InvalidEventError(f"no step of a test: {shown(step)}", hint="Send, Watermark, Clock or End")
        return self


def _wire(
    name: str,
    declared: Input | None,
    *,
    key: str | Sequence[str] = (),
    time: str | None = None,
    columns: str | pa.Schema | None = None,
    idle_after: timedelta | None = None,
) -> Wire:
    if columns is None:
        columns = pa.schema([]) if declared is None else declared.schema
    schema = schema_of(columns)
    what = f'of the input "{name}"'
    expect(StreamDefinitionError, time, str | None, f"{what} the time is a column", _CONNECTED)
    expect(StreamDefinitionError, idle_after, timedelta | None, f"{what} idle_after is a timedelta")
    expect_texts(
        StreamDefinitionError, [key] if isinstance(key, str) else key, f"{what} the key is columns", _CONNECTED
    )
    keys = [key] if isinstance(key, str) else list(key)
    for column in [*keys, *([] if time is None else [time])]:
        if column not in schema.names:
            raise ColumnNotFoundError.from_missing_and_available(
                column, schema.names, f'of the input "{name}"; if its stream has more columns, say them: columns="..."'
            )
    return Wire(schema, keys, time, None if idle_after is None else idle_after // MICROSECOND)


def _known(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    known = "key", "time", "idle_after", "columns"
    unknown = next((option for option in options if option not in known), None)
    if unknown is not None:
        raise StreamDefinitionError(f'the input "{name}" has no option {unknown!r}', hint=f"one of {', '.join(known)}")
    return options


def _as_time(time: str | timedelta, field: pa.Field) -> Any:
    return TimeColumn(field.name, field.type).from_micros(np.array([WORDS.micros(time)]))[0].as_py()


def check_operator_independence(
    operator: StreamOperator,
    steps: Sequence[Step],
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    cuts: int = 5,
    seed: int = 0,
    spread: Sequence[tuple[int, int]] = ((3, 1), (1, 4), (2, 3)),
) -> StreamOperatorHarness:
    """Assert that what an operator gives depends on its elements and on time, not on how the elements are cut.

    The *steps* are done, and the stream ends: with the elements of each step whole; one by one; cut at random; one by one, with
    a snapshot that a new harness goes on from after each; and with keys spread over several key groups and pages.

    An operator that keeps something outside of its declared state is what this finds, and one that puts different keys together.

    :param inputs: as for :class:`StreamOperatorHarness`
    :param cuts: how many random cuts, begun with *seed*
    :param spread: numbers of key groups, and of pages in each; none for an operator that gives something once per key group
    :return: the harness to which the elements were sent whole, at its end
    :raises AssertionError: two ways give different rows, or counts

    >>> from asterism.operators.stream_operator import Input, Output, StreamOperator
    >>> class Number(StreamOperator):
    ...     clicks = Input("user STRING")
    ...     numbered = Output("user STRING, number BIGINT")
    ...
    ...     def open(self):
    ...         self.seen = 0  # not a state
    ...
    ...     @clicks.process_element
    ...     def click(self, click, ctx):
    ...         self.seen += 1
    ...         self.numbered.collect(user=click.user, number=self.seen)
    >>> steps = [Send("clicks", [{"user": "ann"}, {"user": "ann"}])]
    >>> check_operator_independence(Number(), steps, {"clicks": {"key": "user"}})
    Traceback (most recent call last):
    ...
    AssertionError: numbered depends on how the elements arrive
      whole, not restored after each:
        {'user': 'ann', 'number': 2}
      restored after each, not whole:
        {'user': 'ann', 'number': 1}
    """
    __tracebackhide__ = True
    _check_ways(cuts, seed)
    whole = StreamOperatorHarness(operator, inputs)
    pairs: Any = spread
    if not isinstance(pairs, list | tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise StreamDefinitionError(f"spread is pairs of numbers, not {shown(spread)}", hint="spread=[(3, 1), (1, 4)]")
    if not isinstance(steps, Sequence):
        raise InvalidEventError(f"these are no steps: {shown(steps)}", hint='[Send("orders", rows), Watermark("5m")]')
    tabled = [
        Send(step.input, whole.table(step.input, step.rows)) if isinstance(step, Send) else step for step in steps
    ]
    whole.play(tabled).end()
    for name, harness in _operator_ways(whole, tabled, cuts, random.Random(seed), spread):
        for output in whole.outputs:
            wanted, found = _counted(whole, output), _counted(harness, output)
            if wanted != found:
                lines = [f"{output} depends on how the elements arrive"]
                for title, rows in ((f"whole, not {name}", wanted - found), (f"{name}, not whole", found - wanted)):
                    texts = sorted(rows.elements())
                    lines += [f"  {title}:", *(f"    {text}" for text in texts[:_SHOWN])]
                    lines += [f"    and {len(texts) - _SHOWN} more"] * (len(texts) > _SHOWN)
                raise AssertionError("\n".join(lines))
        if whole.metrics != harness.metrics:
            raise AssertionError(
                f"the counts depend on how the elements arrive\n  whole: {dict(whole.metrics)}\n"
                f"  {name}: {dict(harness.metrics)}"
            )
    return whole


def _operator_ways(
    whole: StreamOperatorHarness,
    steps: Sequence[Step],
    cuts: int,
    rng: random.Random,
    spread: Sequence[tuple[int, int]],
) -> Iterator[tuple[str, StreamOperatorHarness]]:
    """The same steps in other ways, to their end."""
    ones = list(_cut_steps(steps, lambda size: range(1, size)))
    yield "one by one", whole.again().play(ones).end()
    for number in range(1, cuts + 1):
        pieces = _cut_steps(steps, lambda size: sorted(rng.sample(range(1, size), rng.randint(0, size - 1))))
        yield f"random cut {number}", whole.again().play(pieces).end()
    restored = whole.again()
    for step in ones:
        restored = whole.again().restore(restored.play([step]).snapshot())
    yield "restored after each", restored.end()
    for key_groups, pages in spread:
        spread_out = whole.again(key_groups=key_groups, pages=pages)
        yield f"{key_groups} key groups of {pages} pages", spread_out.play(steps).end()


def _cut_steps(steps: Iterable[Step], places: Callable[[int], Sequence[int]]) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, Send) and len(cast("pa.Table", step.rows)):
            table = cast("pa.Table", step.rows)
            inner = places(table.num_rows)
            for begin, end in zip([0, *inner], [*inner, table.num_rows], strict=True):
                yield Send(step.input, table.slice(begin, end - begin))
        else:
            yield step


# ---------------------------------------------------------------------- patterns


@dataclass(frozen=True, slots=True)
class Finding:
    """A match, a timed-out partial match or a late event: *stages* has its events as words.

    *time* is in microseconds since the epoch: of the match, or the deadline that passed; a late event has none.
    """

    key: tuple[Any, ...]
    time: int | None
    stages: dict[str, list[str]]

    @property
    def text(self) -> str:
        """Its words, stage by stage."""
        return " ".join(word for words in self.stages.values() for word in words)


class PatternHarness(OperatorHarness):
    """A pattern with its state and time, to be fed step by step.

    :param schema: the columns of the events; by default :data:`EVENTS`, those of words
    :param keys: the key columns; by default the key column of *literals*, where there is one
    :param time: the event-time column; None: processing time, the clock is moved by hand and starts in 1970
    :param semantics: whose answers, see ``docs/differences_from_flink.md``
    :param select: measures, see :attr:`selected`
    :param order_by: secondary order of events with equal times, as in ``KeyedStream``
    :param literals: how events are written as words
    :param outputs: what is asked for, by name, instead of matches, timed-out partial matches and late events
    :param pages: pages of state per key group; *key_groups*: as on Spark. The answers must not depend on them
    :param max_partial_matches: and *on_limit*: see :class:`asterism.matching.operator.CepOperator`

    Warns with :class:`~asterism.errors.PatternWarning` where the pattern surely does not mean what it says.

    >>> from asterism import Pattern
    >>> pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'").within(timedelta(seconds=10))
    >>> harness = PatternHarness(pattern).send("a1@1s b2@2s a3@3s").advance_watermark("12s")
    >>> harness.matches, harness.partial_matches
    (['a1 b2'], ['a3'])
    >>> harness.end().timed_out
    ['a3']
    """

    def __init__(
        self,
        pattern: Pattern,
        schema: pa.Schema = EVENTS,
        *,
        keys: Sequence[str] | None = None,
        time: str | None = "ts",
        semantics: Semantics = Semantics.DEFAULT,
        select: Sequence[str] | None = None,
        order_by: Sequence[str] = (),
        literals: Literals = WORDS,
        outputs: Mapping[str, OutputSpec] | None = None,
        pages: int = 1,
        key_groups: int = 1,
        max_partial_matches: int | None = MAX_PARTIAL_MATCHES,
        on_limit: OnLimit = "error",
    ) -> None:
        expect(StreamDefinitionError, literals, Literals, "how events are written as words is said by Literals")
        expect(StreamDefinitionError, schema, pa.Schema, "the schema of the events is a pyarrow.Schema")
        if keys is None:
            keys = [literals.key] if literals.key in schema.names else []
        expect_texts(StreamDefinitionError, keys, "keys is a list of columns", 'keys=["user"]')
        expect(StreamDefinitionError, time, str | None, "time is the name of a column, or None", 'time="ts"')
        expect(StreamDefinitionError, outputs, Mapping | None, "outputs are OutputSpecs by name")
        if len(keys) == 1:
            literals = replace(literals, key=keys[0])
        if time is not None:
            literals = replace(literals, time=time)
        if outputs is None:
            outputs = {kind.value: OutputSpec(kind) for kind in OutputKind}
        if select is not None:
            expect_texts(StreamDefinitionError, select, "select is a list of measures", 'select=["COUNT(a.*) AS n"]')
            outputs = {**outputs, SELECTED: OutputSpec(OutputKind.MATCHES, tuple(select))}
        options: dict[str, Any] = {
            "keys": keys, "time": time, "semantics": semantics, "order_by": order_by, "outputs": outputs, "pages": pages,
            "max_partial_matches": max_partial_matches, "on_limit": on_limit,
        }  # fmt: skip
        self.cep = CepOperator(pattern, schema, **options)
        warn(pattern)
        super().__init__(self.cep, keys=keys, key_groups=key_groups)
        self.literals = literals
        self._options = {
            **options,
            "schema": schema,
            "literals": literals,
            "key_groups": key_groups,
            "pattern": pattern,
        }

    def again(self, **changes: Any) -> PatternHarness:
        """A new harness for the same pattern, with the same options but for *changes*."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PatternWarning)  # it was said where the first one was made
            return PatternHarness(**self._options | changes)

    # ------------------------------------------------------------------ events and time

    def send(self, events: Events) -> Self:
        """Events arrive: words (see :class:`Literals`), dicts, or a table; each call is a batch.

        Columns that are missing are null.

        :raises InvalidEventError: what is sent are no events, or not of the schema's types, or the stream has ended
        :raises ColumnNotFoundError: what is sent has a column that is not in the schema
        """
        return self.deliver(self.parts(events))

    def parts(self, events: Events) -> list[Part]:
        """*events* as batches, with the times to move to that words say between them."""
        if not isinstance(events, str):
            table = table_of(events, self.cep.schema)
            return [table] if table.num_rows else []
        before = [time for table in self.sent[-1:] for time in self.times(table) if time is not None]
        return self.literals.parse(events, self.cep.schema, before[-1] if before else 0)

    def deliver(self, parts: Iterable[Part]) -> Self:
        """Batches arrive, and in between the watermark moves (in processing time: the clock)."""
        if isinstance(parts, str | bytes | Mapping) or not isinstance(parts, Iterable):
            raise InvalidEventError(f"parts are batches and times, not {shown(parts)}", hint="harness.parts(...)")
        for part in parts:
            if isinstance(part, pa.Table):
                self.feed(part)
            elif part == END_OF_TIME:
                self.end()
            elif not self.cep.event_time:
                if part is None:
                    raise InvalidEventError('"|" says no time', hint="in processing time, say to when: |10s")
                self.move(processing_time=part)
            elif part is None:
                self.advance_watermark()
            else:
                self.move(watermark=part)
        return self

    def times(self, events: pa.Table) -> list[int | None]:
        """The times of events, in microseconds since the epoch; None: it is null, or out of range."""
        _check_table(events)
        if self.literals.time not in self.cep.schema.names:
            return [None] * events.num_rows
        column = TimeColumn.of(self.literals.time, self.cep.schema)
        times: list[int | None] = column.to_micros(events.column(column.name), lenient=True).to_pylist()
        return times

    def advance_watermark(self, to: Time | None = None) -> Self:
        """Event time has passed *to*; None: the latest time of the events so far. A lower one than before changes nothing.

        :param to: a text as in words, the time since 1970, or a datetime (without a zone: in UTC)
        """
        if to is None:
            times = [time for table in self.sent for time in self.times(table) if time is not None]
            return self.move(watermark=max(times, default=None))
        return self.move(watermark=self.literals.micros(to))

    def advance_processing_time(self, to: Time) -> Self:
        """The clock shows *to*, as in :meth:`advance_watermark`."""
        return self.move(processing_time=self.literals.micros(to))

    # ------------------------------------------------------------------ answers

    @property
    def matches(self) -> list[str]:
        """Each match as the words of its events, stage by stage; in order of time, equal times in that of their texts."""
        return _texts(self.found("matches"))

    @property
    def timed_out(self) -> list[str]:
        """The partial matches that ran out of time, likewise."""
        return _texts(self.found("timed_out"))

    @property
    def late(self) -> list[str]:
        """The late events, in order of arrival."""
        return [self.literals.text(row) for row in self.rows("late")]

    @property
    def selected(self) -> list[Row]:
        """The measures of each match, with its key."""
        return self.rows(SELECTED)

    def by_stage(self, output: str = "matches") -> list[dict[str, list[str]]]:
        """Each match as the words of its events by stage; stages without events are absent.

        >>> from asterism import Pattern
        >>> match(Pattern.begin("any").times(2).next("last"), "a1 b2 c3").by_stage()
        [{'any': ['a1', 'b2'], 'last': ['c3']}]
        """
        return [found.stages for found in _in_order(self.found(output))]

    def found(self, output: str = "matches") -> list[Finding]:
        """Each match (or timed-out partial match, or late event) with its words, key and time, as they came out."""
        table = self.output(output)
        spec = self.cep.outputs[output]
        if spec.kind is OutputKind.LATE:
            return [Finding((), None, {"": [self.literals.text(row)]}) for row in self.rows(output)]
        stages = self.cep.match_outputs[output].stages
        decided = TIMEOUT_TIME if spec.kind is OutputKind.TIMED_OUT else MATCH_TIME
        return [
            Finding(
                tuple(row[key] for key in self.keys),
                time,
                {stage: [self.literals.text(event) for event in row[stage]] for stage in stages if row[stage]},
            )
            for row, time in zip(_rows(table), self._times_of(table.column(decided)), strict=True)
        ]

    def _times_of(self, column: pa.ChunkedArray) -> list[int]:
        """The times of an output, in which the end of time is written as the largest value that the column can hold."""
        time = replace(self.cep.time, type=self.cep.time.written)
        last = time.from_micros(np.array([END_OF_TIME]))[0]
        ends = pc.equal(column, last).to_pylist()
        micros = time.to_micros(column, lenient=True).to_pylist()
        return [END_OF_TIME if end else each for end, each in zip(ends, micros, strict=True)]

    # ------------------------------------------------------------------ what is under way

    @property
    def partial_matches(self) -> list[str]:
        """The partial matches that are alive; events that the watermark has not passed take no part yet."""
        return sorted((" ".join(words) for words in self._alive("run_rows")), key=_natural)

    @property
    def held_matches(self) -> list[str]:
        """Finished matches that a skip strategy holds back while an earlier partial match is alive."""
        return sorted((" ".join(words) for words in self._alive("waiting_rows")), key=_natural)

    def _alive(self, rows: str) -> Iterator[list[str]]:
        for store in self.stores:
            for stored in store.pages.values():
                page = Page.from_bytes(stored, self.cep.key_schema, self.cep.pattern.event_schema)
                events = _rows(page.events.rename_columns([n.partition(":")[2] for n in page.events.column_names]))
                for node in getattr(page, rows)[:, 1]:
                    taken: list[tuple[int, str]] = []
                    while node >= 0:
                        event, stage, node = page.nodes[node]
                        taken.insert(0, (stage, self.literals.text(events[event])))
                    if taken:
                        yield [word for _, word in sorted(taken, key=lambda pair: pair[0])]


def _rows(table: pa.Table) -> list[Row]:
    try:
        rows: list[Row] = table.to_pylist()
    except OverflowError:
        columns = [[_python(value) for value in column] for column in table.columns]
        rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def _python(value: pa.Scalar) -> Any:
    """A value as Python has it; of a time beyond the years of Python its number."""
    try:
        return value.as_py()
    except OverflowError:
        if isinstance(value, pa.StructScalar):
            return {name: _python(part) for name, part in value.items()}
        return [_python(part) for part in value] if isinstance(value, pa.ListScalar) else value.value


def _in_order(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: (one.time or 0, _natural(one.text)))


def _texts(found: Iterable[Finding]) -> list[str]:
    return [one.text for one in _in_order(found)]


def _natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts a2 before a10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def match(pattern: Pattern, events: Events, **options: Any) -> PatternHarness:
    """Run *pattern* over *events* to their end.

    :param events: words (see :class:`Literals`), dicts, a pyarrow table or a pandas DataFrame
    :param options: those of :class:`PatternHarness`; the schema of events that are no words is found out where it is not said
    :raises InvalidEventError, ColumnNotFoundError: as :meth:`PatternHarness.send`

    >>> from asterism import Pattern
    >>> pattern = Pattern.begin("low").where("price < 3").next("high").where("price > 5")
    >>> events = [{"ts": 1000, "price": 2.5}, {"ts": 2000, "price": 7.0}]
    >>> match(pattern, events, select=["LAST(high.price) - LAST(low.price) AS rise"]).selected
    [{'rise': 4.5}]
    """
    if not isinstance(events, str) and "schema" not in options:
        events = table_of(events)
        options["schema"] = events.schema
    return PatternHarness(pattern, **options).send(events).end()


# ---------------------------------------------------------------------- assertions

Expected = str | Mapping[str, str | Sequence[str]]
_SHOWN = 40
"""Events, and lines of a difference, that a message shows at most."""


def assert_matches(
    actual: PatternHarness | Sequence[Expected],
    expected: Sequence[Expected],
    *,
    output: str = "matches",
    in_any_order: bool = False,
) -> None:
    """Compare what was found with what should have been, and say what differs.

    Matches are in order of time, for each key; among those of equal time the order is free.

    :param actual: a harness, or its answers: then their order is compared as it stands
    :param expected: each as text (``"a1 b2"``, with a time ``"a1 b2 @2s"``) or by stage (``{"a": "a1", "b": ["b2", "b3"]}``)
    :param output: which output of the harness
    :raises AssertionError: the difference, as text

    >>> from asterism import Pattern
    >>> pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
    >>> assert_matches(match(pattern, "a1 b2 a3 b4"), ["a1 b2", {"a": "a3", "b": "b4"}])
    >>> assert_matches(match(pattern, "a1 x2 b3 a4 b5"), ["a1 b3", "a4 b5"])
    Traceback (most recent call last):
    ...
    AssertionError: matches: 1 missing
    <BLANKLINE>
        expected   found
      - a1 b3
        a4 b5      a4 b5 @5s
    <BLANKLINE>
      a1 b3: came as far as a1, until x2@2s
      events: a1@1s x2@2s b3@3s a4@4s b5@5s
    """
    __tracebackhide__ = True
    for one in (expected, actual):
        if isinstance(one, str | bytes | Mapping) or not isinstance(one, Sequence | PatternHarness):
            raise StreamDefinitionError(f"matches are a list of texts, not {shown(one)}", hint='["a1 b2"]')
    expect(StreamDefinitionError, expected, Sequence, "what is expected is a list", '["a1 b2"]')
    literals = actual.literals if isinstance(actual, PatternHarness) else WORDS
    if isinstance(actual, PatternHarness):
        found = [
            one if one.time is not None else Finding(one.key, number, one.stages)
            for number, one in enumerate(actual.found(output))
        ]
    else:
        found = [Finding((), number, _expected(one, literals).stages) for number, one in enumerate(actual)]
    wanted = [_expected(one, literals) for one in expected]
    difference = _Difference.of(wanted, _in_order(found), in_any_order)
    if difference.is_none:
        return
    notes = []
    if isinstance(actual, PatternHarness):
        if output == "matches" and actual.cep.event_time:
            known = {one.text for one in found}  # these differ in their time or stages only
            notes = list(_nearest(actual, [one.text for one in difference.missing if one.text not in known][:3]))
        notes.append("events: " + _events_text(actual))
    written = literals if isinstance(actual, PatternHarness) and output != "late" else None
    by_stage = any(not isinstance(one, str) for one in expected)
    raise AssertionError(difference.text(output, written, notes, by_stage=by_stage))


def _expected(one: Expected, literals: Literals) -> Finding:
    """What is expected; a time that is not said is None, stages that are not said are one without a name."""
    expect(StreamDefinitionError, one, str | Mapping, "a match is a text, or its events by stage", '["a1 b2"]')
    if isinstance(one, str):
        words = one.split()
        time = None
        if words and words[-1].startswith("@"):
            time = literals.micros(words.pop()[1:])
        return Finding((), time, {"": words})
    for texts in one.values():
        if not isinstance(texts, str):
            expect_texts(StreamDefinitionError, texts, "the events of a stage are a text, or texts", '{"a": "a1 a2"}')
    return Finding((), None, {stage: w.split() if isinstance(w, str) else list(w) for stage, w in one.items() if w})


@dataclass(slots=True)
class _Difference:
    """Lines with what was expected beside what was found, each with a mark: - missing, + unexpected, ~ out of order."""

    lines: list[tuple[str, Finding | None, Finding | None]] = field(default_factory=list)

    @classmethod
    def of(cls, wanted: Sequence[Finding], found: Sequence[Finding], in_any_order: bool) -> _Difference:
        difference = cls()
        left = list(found)
        last: dict[tuple[Any, ...], int] = {}
        for one in wanted:
            other = next((other for other in left if _fits(one, other)), None)
            mark = "-"
            if other is not None:
                left.remove(other)
                assert other.time is not None
                mark = " " if in_any_order or last.get(other.key, other.time) <= other.time else "~"
                last[other.key] = max(last.get(other.key, other.time), other.time)
            difference.lines.append((mark, one, other))
        difference.lines += [("+", None, other) for other in left]
        return difference

    @property
    def is_none(self) -> bool:
        return all(mark == " " for mark, _, _ in self.lines)

    @property
    def missing(self) -> list[Finding]:
        return [one for mark, one, _ in self.lines if mark == "-" and one is not None]

    def text(
        self,
        title: str,
        literals: Literals | None,
        notes: Sequence[str] = (),
        titles: tuple[str, str] = ("expected", "found"),
        by_stage: bool = False,
    ) -> str:
        """*literals*: how to write the times of what was found; None: leave them out."""
        marks = Counter(mark for mark, _, _ in self.lines)
        kinds = {"-": "missing", "+": "unexpected", "~": "out of order"}
        counts = ", ".join(f"{marks[mark]} {kind}" for mark, kind in kinds.items() if marks[mark])
        table = [(" ", *titles)]
        for mark, one, other in self.lines[:_SHOWN]:
            right = "" if other is None else _found_text(other, by_stage, literals)
            table.append((mark, "" if one is None else _found_text(one, by_stage, literals), right))
        width = max(len(left) for _, left, _ in table)
        lines = [f"  {mark} {left:{width}}   {right}".rstrip() for mark, left, right in table]
        if len(self.lines) > _SHOWN:
            lines.append(f"    and {len(self.lines) - _SHOWN} more")
        said = ["", *(f"  {note}" for note in notes)] if notes else []
        return "\n".join([f"{title}: {counts}", "", *lines, *said])


def _fits(wanted: Finding, found: Finding) -> bool:
    if wanted.time not in (None, found.time):
        return False
    return wanted.text == found.text if "" in wanted.stages or "" in found.stages else wanted.stages == found.stages


def _found_text(found: Finding, by_stage: bool, literals: Literals | None) -> str:
    if by_stage and "" not in found.stages:
        text = " ".join(f"{stage}:[{' '.join(words)}]" for stage, words in found.stages.items())
    else:
        text = found.text
    return text if literals is None or found.time is None else f"{text} @{literals.time_text(found.time)}"


def _events_text(harness: PatternHarness) -> str:
    words = _timed_words(harness)
    return " ".join(word for _, word in words[:_SHOWN]) + (
        f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    )


def _timed_words(harness: PatternHarness) -> list[tuple[int | None, str]]:
    """The events that were sent, in order of arrival: their times, and words with these."""
    words = []
    for table in harness.sent:
        for row, time in zip(table.to_pylist(), harness.times(table), strict=True):
            moment = "null" if time is None else harness.literals.time_text(time)
            words.append((time, f"{harness.literals.text(row)}@{moment}"))
    return words


def _nearest(harness: PatternHarness, texts: Sequence[str]) -> Iterator[str]:
    """For each match that was not found: how far a partial match came that is part of it, and what ended it.

    The events are shown to the pattern again, in order of time, and its partial matches are looked at after each.
    """
    late, held = set(harness.late), harness.held_matches
    again = harness.again(outputs=None)
    events = pa.concat_tables([harness.cep.schema.empty_table(), *harness.sent])
    times = [BEFORE_TIME if time is None else time for time in harness.times(events)]
    moments: list[tuple[str, list[str]]] = []  # the events of a time, and the partial matches after them
    words = _timed_words(harness)
    for moment in sorted({time for time in times if time != BEFORE_TIME}):
        rows = [row for row, time in enumerate(times) if time == moment]
        again.feed(events.take(pa.array(rows))).move(watermark=moment)
        moments.append((" ".join(words[row][1] for row in rows), again.partial_matches))
    again.end()
    expired = {one.text: one.time for one in again.found("timed_out")}
    for text in texts:
        wanted = Counter(text.split())
        parts = [part for _, alive in moments for part in alive if not Counter(part.split()) - wanted]
        best = max(parts, key=lambda part: len(part.split()), default=None)
        if text in held:
            yield f"{text}: complete, and held back by the skip strategy while an earlier partial match is alive"
        elif late & wanted.keys():
            yield f"{text}: {', '.join(sorted(late & wanted.keys()))} came late"
        elif best is None:
            yield f"{text}: no partial match began with its events"
        elif best in expired:
            deadline = expired[best]
            assert deadline is not None
            yield f"{text}: came as far as {best}, which timed out at {harness.literals.time_text(deadline)}"
        else:
            begun = next(at for at, (_, alive) in enumerate(moments) if best in alive)
            end = next((came for came, alive in moments[begun:] if best not in alive), None)
            yield f"{text}: came as far as {best}, " + ("and waits for more" if end is None else f"until {end}")


# ---------------------------------------------------------------------- independence of cuts


def check_independence(
    pattern: Pattern, events: Events, *, cuts: int = 5, seed: int = 0, **options: Any
) -> PatternHarness:
    """Assert that the answers depend on the events alone, not on how they arrive.

    The events are sent whole; one by one; cut at random; one by one, with a snapshot that a new harness goes on from after
    each; with keys spread over several key groups and pages; and, with default semantics and no times between the events,
    with a watermark after each event.

    A condition in Python that looks at its batch as a whole, or remembers something, is what this finds.

    :param cuts: how many random cuts, begun with *seed*
    :param options: those of :class:`PatternHarness`
    :return: the harness to which the events were sent whole, at its end
    :raises AssertionError: two ways give different answers

    >>> import pyarrow.compute as pc
    >>> from asterism import Pattern
    >>> check_independence(Pattern.begin("a").where("value > 2"), "a1 a2 a3").matches
    ['a3']
    >>> more_than_most = Pattern.begin("a").where(lambda events: pc.greater(events["value"], pc.mean(events["value"])))
    >>> check_independence(more_than_most, "a1 a2 a3")
    Traceback (most recent call last):
    ...
    AssertionError: matches depend on how the events arrive: 1 missing
    <BLANKLINE>
        whole    one by one
      - a3 @3s
    """
    __tracebackhide__ = True
    _check_ways(cuts, seed)
    if not isinstance(events, str) and "schema" not in options:
        events = table_of(events)
        options["schema"] = events.schema
    whole = PatternHarness(pattern, **options)
    parts = whole.parts(events)
    whole.deliver(parts).end()
    for name, harness in _ways(whole, parts, cuts, random.Random(seed)):
        for output, spec in whole.cep.outputs.items():
            # In processing time events that come together have positions, and those that do not have other times.
            without = () if whole.cep.event_time else (MATCH_ID,)
            if _counted(whole, output, without) == _counted(harness, output, without):
                continue
            title = f"{output} depend on how the events arrive"
            if spec.measures is not None or spec.function is not None:
                raise AssertionError(f"{title}\n  whole: {whole.rows(output)}\n  {name}: {harness.rows(output)}")
            wanted, found = (_in_order(one.found(output)) for one in (whole, harness))
            literals = whole.literals if spec.kind is not OutputKind.LATE else None
            difference = _Difference.of(wanted, found, in_any_order=True)
            raise AssertionError(difference.text(title, literals, titles=("whole", name)))
    return whole


def _check_ways(cuts: Any, seed: Any) -> None:
    expect_number(StreamDefinitionError, cuts, "cuts", least=0, most=1000)
    expect(StreamDefinitionError, seed, int, "seed is a number")


def _ways(
    whole: PatternHarness, parts: Sequence[Part], cuts: int, rng: random.Random
) -> Iterator[tuple[str, PatternHarness]]:
    """The same events in other ways, to their end."""
    rows = list(_cut(parts, lambda size: range(1, size)))
    yield "one by one", whole.again().deliver(rows).end()
    for number in range(1, cuts + 1):
        pieces = _cut(parts, lambda size: sorted(rng.sample(range(1, size), rng.randint(0, size - 1))))
        yield f"random cut {number}", whole.again().deliver(pieces).end()
    restored = whole.again()
    for part in rows:
        restored = whole.again().restore(restored.deliver([part]).snapshot())
    yield "restored after each", restored.end()
    for key_groups, pages in ((3, 1), (1, 4), (2, 3)):
        spread = whole.again(key_groups=key_groups, pages=pages).deliver(parts).end()
        yield f"{key_groups} key groups of {pages} pages", spread
    only_events = all(isinstance(part, pa.Table) for part in parts)
    if whole.cep.pattern.semantics is Semantics.DEFAULT and whole.cep.event_time and only_events:
        watched = whole.again()
        times = [END_OF_TIME if time is None else time for part in rows for time in whole.times(part)]
        for number, part in enumerate(rows, 1):
            # As far as it may go: nothing that is still to come becomes late.
            watched.feed(part).move(watermark=min(times[number:], default=END_OF_TIME) - 1)
        yield "a watermark after each", watched.end()


def _cut(parts: Iterable[Part], places: Callable[[int], Sequence[int]]) -> Iterator[Part]:
    """The parts, with each batch cut at the *places* for its size."""
    for part in parts:
        if isinstance(part, pa.Table):
            inner = places(part.num_rows)
            for begin, end in zip([0, *inner], [*inner, part.num_rows], strict=True):
                yield part.slice(begin, end - begin)
        else:
            yield part


def _counted(harness: OperatorHarness, output: str, without: Sequence[str] = ()) -> Counter[str]:
    rows = harness.rows(output)
    return Counter(repr({name: value for name, value in row.items() if name not in without}) for row in rows)
