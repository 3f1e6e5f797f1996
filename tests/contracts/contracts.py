"""What operators with any number of inputs do, as operators, timelines and the rows that must come out.

Each contract is kept by the operator without Spark, however its elements are cut (``test_pure.py``), and on Spark, as a stream
and in batch (``test_spark.py``). Keyed inputs have the key ``k`` and, unless they say otherwise, the time ``t``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.operators.context import Timer
from asterism.operators.state.keyed_state import (
    AggregateFunction,
    AggregatingState,
    BroadcastListState,
    BroadcastMapState,
    BroadcastValueState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from asterism.operators.stream_operator import BroadcastInput, Counter, Input, InputSelection, Output, StreamOperator
from asterism.testing import End, ProcessingTime, Send, Watermark
from asterism.testing.literals import Row
from asterism.testing.stream_harness import Step

ITEM = "k STRING, t TIMESTAMP, v BIGINT"
TIMED: Mapping[str, Any] = {"key": "k", "time": "t"}
UNTIMED: Mapping[str, Any] = {"key": "k"}
NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Contract:
    """An operator, what happens to it, and what must come out: rows by output, as tuples, in any order.

    :param counts: what it counts
    :param batch: is it the same in batch? Or the rows that come out there.
    :param spread: do the rows not depend on the number of key groups?
    :param stream: is it tried on a Spark stream?
    """

    name: str
    operator: StreamOperator
    inputs: Mapping[str, Mapping[str, Any]]
    steps: Sequence[Step]
    expected: Mapping[str, Sequence[tuple[Any, ...]]]
    counts: Mapping[str, int] = field(default_factory=dict)
    batch: bool | Mapping[str, Sequence[tuple[Any, ...]]] = True
    spread: bool = True
    stream: bool = True

    @property
    def processing_time(self) -> bool:
        """Does it need a clock that the test moves?"""
        return any(isinstance(step, ProcessingTime) for step in self.steps)


CONTRACTS: list[Contract] = []


def contract(name: str, *args: Any, **options: Any) -> None:
    CONTRACTS.append(Contract(name, *args, **options))


def items(*texts: str) -> list[Row]:
    """Rows of ITEM: ``"a 1s 5"``; null: ``-``."""
    rows = []
    for text in texts:
        k, t, *v = text.split()
        rows.append(
            {"k": None if k == "-" else k, "t": None if t == "-" else t, "v": int(v[0]) if v and v[0] != "-" else None}
        )
    return rows


def log(text: str) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of the output *log*: a key and what it says, in lines; each key numbers its own."""
    numbers: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    for line in text.strip().splitlines():
        key, said = line.strip().split(maxsplit=1)
        numbers[key] = numbers.get(key, 0) + 1
        rows.append((None if key == "-" else key, numbers[key], said))
    return {"log": rows}


class Saying(StreamOperator):
    """Base of the operators: each key numbers what it says, so that the order counts."""

    said = ValueState("BIGINT")
    log = Output("k STRING, n BIGINT, what STRING")

    def say(self, ctx: Any, what: str) -> None:
        self.said.update((self.said.value() or 0) + 1)
        self.log.collect(k=ctx.key, n=self.said.value(), what=what)


def seconds(time: datetime | None) -> str:
    """A time as in the timelines."""
    if time is None:
        return "no time"
    if time.year == 9999:
        return "the end"
    return f"{round(time.timestamp(), 3):g}s"


# ---------------------------------------------------------------------- order


class Order(Saying):
    left = Input(ITEM)
    right = Input(ITEM)
    rules = BroadcastInput("t TIMESTAMP, v BIGINT")
    rule = BroadcastValueState("BIGINT")

    @right.process_element
    def on_right(self, e: Any, ctx: Any) -> None:
        assert ctx.input == "right"
        self.say(ctx, f"right {e.v} at {seconds(ctx.timestamp)} rule {self.rule.value()}")

    @left.process_element
    def on_left(self, e: Any, ctx: Any) -> None:
        assert ctx.input == "left"
        self.say(ctx, f"left {e.v} at {seconds(ctx.timestamp)} rule {self.rule.value()}")

    @rules.process_element
    def on_rule(self, e: Any, ctx: Any) -> None:
        self.rule.update(e.v)


ORDER_TIMELINE = [
    Send("right", items("a 3s 1", "a 1s 2", "b 2s 3")),
    Send("left", items("a 3s 4", "a 3s 5", "b 1s 6")),
    Send("rules", [{"t": "2s", "v": 1}]),
    Watermark("2s", "right"),
    Watermark("9s", "left"),
    Send("rules", [{"t": "3s", "v": 2}]),
    Watermark("3s", "rules"),
    Send("right", items("a 3s 7", "a 8s 8")),
    Watermark("8s"),
    Send("rules", [{"t": "10s", "v": 3}]),
    Send("left", items("b 10s 9", "b 11s 10")),
]
ORDERED = """
    a right 2 at 1s rule None
    a left 4 at 3s rule 2
    a left 5 at 3s rule 2
    a right 1 at 3s rule 2
    a right 7 at 3s rule 2
    a right 8 at 8s rule 2
    b left 6 at 1s rule None
    b right 3 at 2s rule 1
    b left 9 at 10s rule 3
    b left 10 at 11s rule 3
    """
ORDER_INPUTS = {"left": TIMED, "right": TIMED, "rules": {"time": "t"}}
contract("order of event time", Order(), ORDER_INPUTS, ORDER_TIMELINE, log(ORDERED))


class OrderOfBatches(Saying):
    """The same, with functions that see many elements at once."""

    left = Input(ITEM)
    right = Input(ITEM)
    rules = BroadcastInput("t TIMESTAMP, v BIGINT")
    rule = BroadcastValueState("BIGINT")

    @left.process_batch
    def on_left(self, batch: Any, ctx: Any) -> None:
        self.say_all("left", batch, ctx)

    @right.process_batch
    def on_right(self, batch: Any, ctx: Any) -> None:
        self.say_all("right", batch, ctx)

    @rules.process_batch
    def on_rule(self, batch: Any, ctx: Any) -> None:
        self.rule.update(batch["v"][-1].as_py())

    def say_all(self, what: str, batch: Any, ctx: Any) -> None:
        numbers = dict(zip(ctx.keys.tolist(), self.said.column(ctx.keys).fill_null(0).to_pylist(), strict=True))
        told = []
        for key, row in zip(ctx.keys.tolist(), batch.to_pylist(), strict=True):
            numbers[key] += 1
            told.append(f"{what} {row['v']} at {seconds(row['t'])} rule {self.rule.value()}")
            row |= {"n": numbers[key]}
            self.log.collect(k=row["k"], n=row["n"], what=told[-1])
        assert ctx.key_columns(ctx.keys)["k"].to_pylist() == batch["k"].to_pylist()
        keys = np.fromiter(numbers, np.int64)
        self.said.update_column(keys, list(numbers.values()))


contract("order of batches", OrderOfBatches(), ORDER_INPUTS, ORDER_TIMELINE, log(ORDERED))


class OrderOfBoth(OrderOfBatches):
    """One input in batches, one element by element, and timers of the keys between them."""

    left = Input(ITEM)

    @left.process_element
    def on_left(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"left {e.v} at {seconds(ctx.timestamp)} rule {self.rule.value()}")
        ctx.register_event_time_timer("soon", e.t + timedelta(seconds=2))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"timer at {seconds(timer.time)} watermark {seconds(ctx.current_watermark)}")


contract(
    "timers between batches",
    OrderOfBoth(),
    ORDER_INPUTS,
    [
        Send("left", items("a 1s 1", "b 10s 2", "c 3s 3")),
        Send("right", items("a 2s 4", "a 3s 5", "a 4s 6", "b 1s 7", "b 13s 8", "c 2s 9", "c 9s 10", "a 11s 11")),
        Send("left", items("a 5s 12", "b 10s 13")),
        Watermark("3s"),
        Watermark("12s"),
    ],
    log("""
        a left 1 at 1s rule None
        a right 4 at 2s rule None
        a right 5 at 3s rule None
        a timer at 3s watermark 3s
        a right 6 at 4s rule None
        a left 12 at 5s rule None
        a timer at 7s watermark 7s
        a right 11 at 11s rule None
        b right 7 at 1s rule None
        b left 2 at 10s rule None
        b left 13 at 10s rule None
        b timer at 12s watermark 12s
        b right 8 at 13s rule None
        c right 9 at 2s rule None
        c left 3 at 3s rule None
        c timer at 5s watermark 5s
        c right 10 at 9s rule None
        """),
)


class Untimed(Saying):
    """An input with a time and one without: the latter's elements never wait."""

    timed = Input(ITEM)
    plain = Input("k STRING, v BIGINT")

    @timed.process_element
    def on_timed(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"timed {e.v}")

    @plain.process_element
    def on_plain(self, e: Any, ctx: Any) -> None:
        assert ctx.timestamp is None
        self.say(ctx, f"plain {e.v} after {seconds(ctx.current_watermark)}")


contract(
    "an input without a time",
    Untimed(),
    {"timed": TIMED, "plain": UNTIMED},
    [
        Send("timed", items("a 1s 1", "a 5s 2")),
        Send("plain", [{"k": "a", "v": 3}, {"k": "a", "v": 4}]),
        Watermark("1s", "timed"),
        Send("plain", [{"k": "a", "v": 5}]),
        Watermark("5s", "timed"),
        End("timed"),
        Send("plain", [{"k": "a", "v": 6}]),
        Send("plain", [{"k": "a", "v": 7}]),
    ],
    log("""
        a plain 3 after no time
        a plain 4 after no time
        a timed 1
        a plain 5 after 1s
        a timed 2
        a plain 6 after the end
        a plain 7 after the end
        """),
    batch=log("""
        a plain 3 after no time
        a plain 4 after no time
        a plain 5 after no time
        a plain 6 after no time
        a plain 7 after no time
        a timed 1
        a timed 2
        """),
)


# ---------------------------------------------------------------------- timers


class Timers(Saying):
    """The elements say what to do with timers; ``v`` is the time to register."""

    todo = Input("k STRING, t TIMESTAMP, what STRING, name STRING, at BIGINT")

    @todo.process_element
    def do(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"{e.what} {e.name}")
        if e.what == "delete":
            ctx.delete_event_time_timer(e.name)
        else:
            ctx.register_event_time_timer(e.name, e.at * 1000)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        assert ctx.timestamp == timer.time
        assert ctx.input is None
        self.say(ctx, f"{timer.name} at {seconds(timer.time)} watermark {seconds(ctx.current_watermark)}")
        if timer.name.startswith("chain"):
            ctx.register_event_time_timer(timer.name[:-1], timer.time + timedelta(seconds=1))
        if timer.name == "killer":
            ctx.delete_event_time_timer("victim")


def todo(*texts: str) -> list[Row]:
    """``a 1s set x 5``"""
    rows = []
    for text in texts:
        k, t, what, name, *at = text.split()
        rows.append({"k": k, "t": t, "what": what, "name": name, "at": int(at[0]) if at else None})
    return rows


contract(
    "event-time timers",
    Timers(),
    {"todo": TIMED},
    [
        Send("todo", todo("a 1s set x 5", "a 2s set y 5", "a 2s set w 5", "a 5s set late 3", "b 1s set x 6")),
        Send("todo", todo("a 4s set x 7", "c 1s set gone 9", "c 2s delete gone", "c 2s delete unknown")),
        Watermark("4s"),
        Watermark("5s"),
        Send("todo", todo("a 6s set y 8", "d 7s set chain!! 7", "b 6s set x 6")),
        Watermark("7s"),
        Send("todo", todo("e 8s set killer 10", "e 8s set victim 10", "e 9s set victim2 10", "f 8s set far 1000")),
        Watermark("20s"),
        Send("todo", todo("f 30s set again 40", "f 40s set again 50", "f 45s set far 2000")),
    ],
    log("""
        a set x
        a set y
        a set w
        a set x
        a set late
        a late at 3s watermark 5s
        a w at 5s watermark 5s
        a y at 5s watermark 5s
        a set y
        a x at 7s watermark 7s
        a y at 8s watermark 8s
        b set x
        b set x
        b x at 6s watermark 6s
        c set gone
        c delete gone
        c delete unknown
        d set chain!!
        d chain!! at 7s watermark 7s
        d chain! at 8s watermark 8s
        d chain at 9s watermark 9s
        d chai at 10s watermark 10s
        e set killer
        e set victim
        e set victim2
        e killer at 10s watermark 10s
        e victim2 at 10s watermark 10s
        f set far
        f set again
        f set again
        f set far
        f again at 50s watermark 50s
        f far at 2000s watermark 2000s
        """),
)


class Periodic(Saying):
    """A timer that registers itself again until its input has ended."""

    clicks = Input(ITEM)

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"click at {seconds(e.t)}")
        ctx.register_event_time_timer("hour", e.t + timedelta(hours=1))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"hour at {seconds(timer.time)}")
        if not ctx.has_ended("clicks"):
            ctx.register_event_time_timer("hour", timer.time + timedelta(hours=1))


contract(
    "a timer that goes on and on",
    Periodic(),
    {"clicks": TIMED},
    [Send("clicks", items("a 0s 1")), Watermark("2h"), Send("clicks", items("a 9000s 2"))],
    log("""
        a click at 0s
        a hour at 3600s
        a hour at 7200s
        a click at 9000s
        a hour at 12600s
        """),
)


class Clocks(Saying):
    """Timers of both kinds, in one operator."""

    clicks = Input(ITEM)
    plain = Input("k STRING, v BIGINT")

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        ctx.register_event_time_timer("event", e.t + timedelta(seconds=10))
        ctx.register_processing_time_timer("clock", ctx.processing_time + timedelta(seconds=10))
        self.say(ctx, f"click {e.v} at {seconds(ctx.processing_time)}")

    @plain.process_element
    def delete(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"plain {e.v}")
        if e.v == 0:
            ctx.delete_processing_time_timer("clock")
        elif e.v == 1:
            ctx.register_processing_time_timer("clock", ctx.processing_time + timedelta(seconds=20))
        elif e.v == 2:
            ctx.register_processing_time_timer("past", ctx.processing_time - timedelta(seconds=20))
        else:
            for name in ("x", "y"):
                ctx.register_processing_time_timer(name, ctx.processing_time + timedelta(seconds=5))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"event at {seconds(timer.time)}, clock {seconds(ctx.processing_time)}")

    def on_processing_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"{timer.name} at {seconds(timer.time)}, clock {seconds(ctx.processing_time)}")
        if timer.name == "x":
            ctx.delete_processing_time_timer("y")
        if timer.name == "clock":
            ctx.register_event_time_timer("event", timer.time + timedelta(seconds=50))


contract(
    "timers of both kinds",
    Clocks(),
    {"clicks": TIMED, "plain": UNTIMED},
    [
        ProcessingTime("100s"),
        Send("clicks", items("a 1s 1", "b 2s 2", "c 3s 3")),
        Watermark("3s", "clicks"),
        ProcessingTime("105s"),
        Send("plain", [{"k": "b", "v": 0}, {"k": "c", "v": 1}, {"k": "d", "v": 2}]),
        Send("plain", {"k": "d", "v": 3}),
        ProcessingTime("109s"),
        ProcessingTime("110s"),
        Watermark("50s", "clicks"),
        ProcessingTime("124s"),
        ProcessingTime("130s"),
        Watermark("155s", "clicks"),
        Send("clicks", items("a 160s 4", "e 161s 5")),
        ProcessingTime("150s"),
    ],
    log("""
        a click 1 at 100s
        a clock at 110s, clock 110s
        a click 4 at 150s
        a event at 170s, clock 150s
        a clock at 160s, clock 160s
        a event at 210s, clock 160s
        b click 2 at 100s
        b plain 0
        b event at 12s, clock 110s
        c click 3 at 100s
        c plain 1
        c event at 13s, clock 110s
        c clock at 125s, clock 130s
        c event at 175s, clock 150s
        d plain 2
        d past at 85s, clock 105s
        d plain 3
        d x at 110s, clock 110s
        e click 5 at 150s
        e event at 171s, clock 150s
        e clock at 160s, clock 160s
        e event at 210s, clock 160s
        """),
    batch=False,
    stream=False,
)


class ProcessingTimeTimers(Saying):
    """No input has a time: an element's is that of its arrival."""

    clicks = Input("k STRING, v BIGINT")
    last = ValueState("BIGINT", ttl=timedelta(seconds=10))

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"click {e.v} at {seconds(ctx.timestamp)} after {self.last.value()}")
        self.last.update(e.v)
        ctx.register_processing_time_timer("idle", ctx.processing_time + timedelta(seconds=5))

    def on_processing_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"idle at {seconds(timer.time)} after {self.last.value()}")
        if not ctx.has_ended("clicks"):
            ctx.register_processing_time_timer("idle", timer.time + timedelta(minutes=1))


contract(
    "processing time",
    ProcessingTimeTimers(),
    {"clicks": UNTIMED},
    [
        ProcessingTime("10s"),
        Send("clicks", [{"k": "a", "v": 1}, {"k": "b", "v": 2}]),
        ProcessingTime("14s"),
        Send("clicks", [{"k": "a", "v": 3}]),
        ProcessingTime("15s"),
        ProcessingTime("23s"),
        Send("clicks", [{"k": "a", "v": 4}]),
        ProcessingTime("34s"),
        Send("clicks", [{"k": "a", "v": 5}, {"k": "a", "v": 6}]),
    ],
    log("""
        a click 1 at 10s after None
        a click 3 at 14s after 1
        a idle at 19s after 3
        a click 4 at 23s after 3
        a idle at 28s after None
        a click 5 at 34s after None
        a click 6 at 34s after 5
        a idle at 39s after 6
        b click 2 at 10s after None
        b idle at 15s after 2
        b idle at 75s after None
        """),
    batch=False,
    stream=False,
)


class Escalating(Saying):
    """After the end every timer fires, also those that timers register."""

    clicks = Input(ITEM)
    reminders = ValueState("BIGINT")

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.reminders.clear()
        ctx.register_event_time_timer("remind", e.t + timedelta(hours=1))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        number = (self.reminders.value() or 0) + 1
        self.reminders.update(number)
        self.say(ctx, f"reminder {number} at {seconds(timer.time)}")
        if number < 4:
            ctx.register_event_time_timer("remind", timer.time + timedelta(hours=1))


contract(
    "timers after the end",
    Escalating(),
    {"clicks": TIMED},
    [Send("clicks", items("a 0s 1", "b 0s 1", "a 3601s 2")), Watermark("2h"), Send("clicks", items("c 7201s 2"))],
    log("""
        a reminder 1 at 3600s
        a reminder 1 at 7201s
        a reminder 2 at 10801s
        a reminder 3 at 14401s
        a reminder 4 at 18001s
        b reminder 1 at 3600s
        b reminder 2 at 7200s
        b reminder 3 at 10800s
        b reminder 4 at 14400s
        c reminder 1 at 10801s
        c reminder 2 at 14401s
        c reminder 3 at 18001s
        c reminder 4 at 21601s
        """),
)


# ---------------------------------------------------------------------- keyed state


class States(Saying):
    """Every kind of keyed state; a key that has nothing left is forgotten."""

    clicks = Input("k STRING, t TIMESTAMP, what STRING, v BIGINT")
    one = ValueState("BIGINT")
    many = ListState("BIGINT")
    named = MapState("STRING", "BIGINT")
    total = ReducingState("BIGINT", lambda a, b: a + b)

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        getattr(self, "do_" + e.what)(e.v)
        self.say(
            ctx,
            f"{self.one.value()} {self.many.get()} {dict(self.named.items())} {self.total.value()}",
        )

    def do_set(self, v: int) -> None:
        self.one.update(v)
        self.many.add(v)
        self.named.put(f"n{v}", v)
        self.total.add(v)

    def do_more(self, v: int) -> None:
        self.many.add_all([v, v])
        self.named.put_all({"x": v, "y": None})
        assert "y" in self.named
        assert self.named.get("y", 7) is None
        assert self.named.get("z", 7) == 7

    def do_replace(self, v: int) -> None:
        self.many.update([v])
        self.named.remove("x")
        self.named.remove("nothing")
        assert list(self.named.keys()) == list(dict(self.named.items()))

    def do_clear(self, v: int) -> None:
        for state in (self.one, self.many, self.named, self.total):
            state.clear()
        assert self.named.is_empty()
        assert list(self.named.values()) == []

    def do_mine(self, v: int) -> None:
        """What a state gives is a copy."""
        self.many.get().append(99)
        dict(self.named.items())["mine"] = 99


def acts(*texts: str) -> list[Row]:
    rows = []
    for text in texts:
        k, t, what, v = text.split()
        rows.append({"k": k, "t": t, "what": what, "v": int(v)})
    return rows


contract(
    "keyed state",
    States(),
    {"clicks": TIMED},
    [
        Send("clicks", acts("a 1s set 1", "b 1s set 2", "a 2s set 3", "a 3s more 4", "b 3s mine 0")),
        Watermark("3s"),
        Send("clicks", acts("a 4s replace 5", "a 5s mine 0", "b 4s clear 0", "b 5s set 6")),
        Watermark("5s"),
        Send("clicks", acts("a 6s set 1", "b 6s clear 0", "b 7s more 1")),
    ],
    log("""
        a 1 [1] {'n1': 1} 1
        a 3 [1, 3] {'n1': 1, 'n3': 3} 4
        a 3 [1, 3, 4, 4] {'n1': 1, 'n3': 3, 'x': 4, 'y': None} 4
        a 3 [5] {'n1': 1, 'n3': 3, 'y': None} 4
        a 3 [5] {'n1': 1, 'n3': 3, 'y': None} 4
        a 1 [5, 1] {'n1': 1, 'n3': 3, 'y': None} 5
        b 2 [2] {'n2': 2} 2
        b 2 [2] {'n2': 2} 2
        b None [] {} None
        b 6 [6] {'n6': 6} 6
        b None [] {} None
        b None [1, 1] {'x': 1, 'y': None} None
        """),
)


class Forgotten(StreamOperator):
    """A key that has nothing left costs nothing."""

    clicks = Input(ITEM)
    open_ = ValueState("BIGINT")
    seen = ListState("BIGINT")
    out = Output("k STRING, v BIGINT")

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        before = self.open_.value()
        self.out.collect(k=e.k, v=before)
        self.open_.update(e.v)
        self.seen.update([e.v] if e.v else [])


contract(
    "a key with nothing left",
    Forgotten(),
    {"clicks": TIMED},
    [
        Send("clicks", items("a 1s 1", "a 2s -", "b 1s 2")),
        Watermark("2s"),
        Send("clicks", items("b 3s -", "a 3s 3")),
        Watermark("3s"),
        Send("clicks", items("a 4s -", "b 4s 4")),
    ],
    {"out": [("a", None), ("a", 1), ("a", None), ("a", 3), ("b", None), ("b", 2), ("b", None)]},
)


class Expiring(Saying):
    """State with a time to live of ten seconds."""

    clicks = Input(ITEM)
    one = ValueState("BIGINT", ttl=timedelta(seconds=10))
    many = ListState("BIGINT", ttl=timedelta(seconds=10))
    named = MapState("BIGINT", "BIGINT", ttl=timedelta(seconds=10))
    total = ReducingState("BIGINT", max, ttl=timedelta(seconds=10))

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.say(
            ctx,
            f"{e.v}: {self.one.value()} {self.many.get()} {dict(self.named.items())} {self.total.value()} {1 in self.named}",
        )
        self.one.update(e.v)
        self.many.add(e.v)
        self.named.put(e.v, e.v)
        self.total.add(e.v)


contract(
    "time to live",
    Expiring(),
    {"clicks": TIMED},
    [
        Send("clicks", items("a 1s 1", "b 1s 1", "a 6s 2")),
        Watermark("6s"),
        Send("clicks", items("b 10s 3", "a 11s 3")),
        Watermark("11s"),
        Send("clicks", items("b 20s 4", "a 30s 4")),
    ],
    log("""
        a 1: None [] {} None False
        a 2: 1 [1] {1: 1} 1 True
        a 3: 2 [2] {2: 2} 2 False
        a 4: None [] {} None False
        b 1: None [] {} None False
        b 3: 1 [1] {1: 1} 1 True
        b 4: None [] {} None False
        """),
)


class LivesWhileRead(Saying):
    """State that lives ten seconds after it was last read or written."""

    clicks = Input(ITEM)
    one = ValueState("BIGINT", ttl=timedelta(seconds=10), update_type="on_read_and_write")
    many = ListState("BIGINT", ttl=timedelta(seconds=10), update_type="on_read_and_write")
    named = MapState("BIGINT", "BIGINT", ttl=timedelta(seconds=10), update_type="on_read_and_write")
    kept = MapState("BIGINT", "BIGINT", ttl=timedelta(seconds=10), update_type="on_read_and_write")

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        empty = self.kept.is_empty()
        self.say(ctx, f"{e.v}: {self.one.value()} {self.many.get()} {self.named.get(1)} {2 in self.named} {empty}")
        if e.v < 3:
            self.one.update(e.v)
            self.many.add(e.v)
            self.named.put(e.v, e.v)
            self.kept.put(e.v, e.v)
        elif e.v == 5:
            self.say(ctx, f"{dict(self.kept.items())}")


contract(
    "time to live of what is read",
    LivesWhileRead(),
    {"clicks": TIMED},
    [
        Send("clicks", items("a 1s 1", "b 1s 1", "a 6s 2")),
        Watermark("6s"),
        Send("clicks", items("b 10s 3", "a 15s 3", "b 15s 5")),
        Watermark("15s"),
        Send("clicks", items("b 19s 3", "a 24s 3", "b 24s 4", "b 40s 4")),
    ],
    log("""
        a 1: None [] None False True
        a 2: 1 [1] 1 False False
        a 3: 2 [1, 2] 1 True False
        a 3: 2 [1, 2] 1 True True
        b 1: None [] None False True
        b 3: 1 [1] 1 False False
        b 5: 1 [1] 1 False True
        b {}
        b 3: 1 [1] 1 False True
        b 4: 1 [1] 1 False True
        b 4: None [] None False True
        """),
)


class Mean(AggregateFunction):
    """Changes its accumulator."""

    def create_accumulator(self) -> Any:
        return {"total": 0, "n": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator["total"] += value
        accumulator["n"] += 1
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["total"] / accumulator["n"]


class Means(Saying):
    clicks = Input(ITEM)
    mean = AggregatingState("STRUCT<total: BIGINT, n: BIGINT>", Mean())
    recent = AggregatingState("STRUCT<total: BIGINT, n: BIGINT>", Mean(), ttl=timedelta(seconds=10))

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        if e.v is None:
            self.mean.clear()
        else:
            self.mean.add(e.v)
            self.recent.add(e.v)
        self.say(ctx, f"{self.mean.get()} {self.recent.get()}")


contract(
    "aggregating state",
    Means(),
    {"clicks": TIMED},
    [
        Send("clicks", items("a 1s 1", "b 1s 5", "a 2s 2")),
        Watermark("2s"),
        Send("clicks", items("a 12s 9", "b 10s 6", "b 11s -", "b 20s 7")),
    ],
    log("""
        a 1.0 1.0
        a 1.5 1.5
        a 4.0 9.0
        b 5.0 5.0
        b 5.5 5.5
        b None 5.5
        b 7.0 7.0
        """),
)


class Closes(Saying):
    """The end of an input concerns all keys."""

    orders = Input(ITEM)
    ticks = Input("k STRING, t TIMESTAMP")
    open_ = ValueState("BIGINT")
    counts = MapState("STRING", "BIGINT")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.open_.update(e.v)
        ctx.register_event_time_timer("due", e.t + timedelta(hours=1))

    @ticks.process_element
    def tick(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"tick {self.open_.value()}")

    @orders.end_input
    def close_orders(self, ctx: Any) -> None:
        def close_one(key: str, order: ValueState) -> None:
            self.say(ctx, f"closed {order.value()} {ctx.key} {ctx.input}")
            ctx.delete_event_time_timer("due")
            if order.value() == 3:
                order.clear()
            else:
                ctx.register_event_time_timer("after", ctx.current_watermark)

        ctx.apply_to_keyed_state(self.open_, close_one)

    def on_event_time_timer(self, timer: Timer, ctx: Any) -> None:
        self.say(ctx, f"{timer.name} {self.open_.value()}")


contract(
    "the end of an input visits all keys",
    Closes(),
    {"orders": TIMED, "ticks": TIMED},
    [
        Send("orders", items("a 1s 1", "b 2s 2", "c 3s 3", "d 4s 4")),
        Send("ticks", [{"k": k, "t": "1s"} for k in "ac"]),
        Watermark("4s"),
        End("orders"),
        Send("ticks", [{"k": k, "t": "5s"} for k in "ac"]),
    ],
    log("""
        a tick 1
        a closed 1 a orders
        a after 1
        a tick 1
        b closed 2 b orders
        b after 2
        c tick None
        c closed 3 c orders
        c tick None
        d closed 4 d orders
        d after 4
        """),
    batch=log("""
        a tick 1
        a tick 1
        a due 1
        a closed 1 a orders
        a after 1
        b due 2
        b closed 2 b orders
        b after 2
        c tick None
        c tick 3
        c due 3
        c closed 3 c orders
        d due 4
        d closed 4 d orders
        d after 4
        """),
)


class ExpiringColumns(StreamOperator):
    """The same in batches: what is there is that of a key's first row, and lives from its last."""

    clicks = Input(ITEM)
    one = ValueState("BIGINT", ttl=timedelta(seconds=10))
    out = Output("k STRING, before BIGINT")

    @clicks.process_batch
    def click(self, batch: Any, ctx: Any) -> None:
        before = self.one.column(ctx.keys)
        self.out.collect_batch(pa.table({"before": before, "k": batch["k"], "more": batch["v"]}))
        self.one.update_column(ctx.keys, batch["v"])


contract(
    "time to live in batches",
    ExpiringColumns(),
    {"clicks": TIMED},
    [
        Send("clicks", items("a 1s 1", "b 2s 2")),
        Watermark("2s"),
        Send("clicks", items("a 10s 3", "b 12s 4", "c 3s 5")),
        Watermark("12s"),
        Send("clicks", items("a 20s 6", "b 21s 7", "c 12500ms 8")),
        Watermark("21s"),
        Send("clicks", items("a 29s -", "b 30s 9", "c 30s 10")),
        Watermark("30s"),
        Send("clicks", items("a 31s 11", "b 31s 12")),
    ],
    {
        "out": [
            *[("a", None), ("a", 1), ("a", None), ("a", 6), ("a", None)],
            *[("b", None), ("b", None), ("b", 4), ("b", 7), ("b", 9)],
            *[("c", None), ("c", 5), ("c", None)],
        ]
    },
    batch=False,
)

TYPES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-(2**15), 5],
    "INT": [2**31 - 1, 0],
    "BIGINT": [2**63 - 1, -(2**63)],
    "FLOAT": [0.1, 1],
    "DOUBLE": [0.1, 1, float("inf")],
    "DECIMAL(10, 2)": [Decimal("1.5"), 3],
    "STRING": ["", "ä\N{GRINNING FACE}"],
    "BINARY": [b"", b"\x00\xff", bytearray(b"x")],
    "DATE": [date(2025, 1, 31), NEW_YEAR],
    "TIMESTAMP": [NEW_YEAR, datetime(2025, 1, 1, 12), NEW_YEAR.astimezone()],
    "TIMESTAMP_NTZ": [datetime(2025, 1, 1)],
    "ARRAY<INT>": [[], [1, None], (1, 2), np.array([1, 2])],
    "STRUCT<a: INT, b: STRING>": [{"a": 1, "b": "x"}, {"a": 1}, {}],
    "MAP<STRING, INT>": [{}, {"x": 1}, [("x", 1)]],
    "ARRAY<STRUCT<a: INT>>": [[{"a": 1}]],
    "ARRAY<MAP<STRING, INT>>": [[{"x": 1}]],
}
"""What may be given to a state of each type."""


class Types(Saying):
    """What is read from a state is the same at once and after a restart."""

    clicks = Input(ITEM)
    cells = {f"v{n}": ValueState(kind) for n, kind in enumerate(TYPES)}  # noqa: RUF012 - as if they were declared one by one
    keys_ = {  # noqa: RUF012
        f"m{n}": MapState(kind, kind) for n, kind in enumerate(TYPES) if not kind.startswith(("ARRAY", "STRUCT", "MAP"))
    }
    locals().update(cells)
    locals().update(keys_)

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        for n, values in enumerate(TYPES.values()):
            state = getattr(self, f"v{n}")
            known = getattr(self, f"m{n}", None)
            for at, value in enumerate(values):
                if e.v == at:
                    state.update(value)
                    if known is not None:
                        known.put(value, value)
                        assert value in known
            self.say(ctx, f"{e.v} {n} {state.value()!r} {None if known is None else list(known.items())}")


def _types() -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """By an operator that has one element per run of its own: everything came from a checkpoint."""
    from asterism.testing import StreamOperatorHarness

    harness = StreamOperatorHarness(Types(), {"clicks": TIMED})
    for number in range(5):
        harness.send("clicks", {"k": "a", "t": f"{number + 1}s", "v": number}).advance_watermark(f"{number + 1}s")
    return {"log": [tuple(row.values()) for row in harness.rows("log")]}


contract(
    "state of all types",
    Types(),
    {"clicks": TIMED},
    [Send("clicks", items(*(f"a {n + 1}s {n}" for n in range(5))))],
    _types(),
)


class Columns(StreamOperator):
    """Elements of all types; columns that are named like what the library uses."""

    clicks = Input(
        "k STRING, t TIMESTAMP, key BIGINT, time BIGINT, order ARRAY<BIGINT>, name MAP<STRING, BIGINT>,"
        " value STRUCT<a: BIGINT, items: STRING>, expires DECIMAL(10, 2), items DATE"
    )
    kept = ListState("STRING")
    out = Output("k STRING, text STRING, value STRUCT<a: BIGINT, items: STRING>, name MAP<STRING, BIGINT>")

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        text = f"{e.key} {e.time} {e.order} {e.name} {e.value} {e.expires} {e['items']}"
        self.out.collect(k=e.k, text=text, value=e.value, name=e.name)

    def select_inputs(self, ctx: Any) -> Any:
        late = ctx.current_watermark is None or ctx.current_watermark < datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
        return InputSelection.of("none") if late else InputSelection.ALL

    none = Input("k STRING")

    @none.process_element
    def nothing(self, e: Any, ctx: Any) -> None: ...


CELLS = {
    "key": 1,
    "time": 2,
    "order": [3, None],
    "name": {"x": 4},
    "value": {"a": 5, "items": "y"},
    "expires": Decimal("1.50"),
    "items": date(2025, 1, 1),
}
contract(
    "columns that are named like others, and that wait",
    Columns(),
    {"clicks": TIMED, "none": UNTIMED},
    [
        Send("clicks", [{"k": "a", "t": "1s", **CELLS}, {"k": "a", "t": "2s"}]),
        Watermark("2s", "clicks"),
        Watermark("3s", "clicks"),
        Send("clicks", [{"k": "b", "t": "4s", **CELLS}]),
        Watermark("6s", "clicks"),
    ],
    {
        "out": [
            (
                key,
                "1 2 [3, None] {'x': 4} {'a': 5, 'items': 'y'} 1.50 2025-01-01",
                {"a": 5, "items": "y"},
                [("x", 4)],
            )
            for key in "ab"
        ]
        + [("a", "None None None None None None None", None, None)]
    },
)


# ---------------------------------------------------------------------- broadcast state


class Rules(Saying):
    """Rules that are changed while the stream runs, in every kind of broadcast state."""

    clicks = Input(ITEM)
    rules = BroadcastInput("t TIMESTAMP, name STRING, v BIGINT")
    latest = BroadcastValueState("STRING")
    history = BroadcastListState("STRING")
    limits = BroadcastMapState("STRING", "BIGINT")

    @rules.process_element
    def rule(self, e: Any, ctx: Any) -> None:
        self.latest.update(e.name)
        self.history.add(e.name)
        if e.v is None:
            self.limits.remove(e.name)
        else:
            self.limits.put(e.name, e.v)
        if len(self.history.get()) > 3:
            self.history.update(self.history.get()[1:])

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"{e.v}: {self.latest.value()} {self.history.get()} {dict(self.limits.items())}")


RULE_CHANGES = [
    Send("rules", [{"t": "1s", "name": "x", "v": 1}, {"t": "3s", "name": "y", "v": 2}]),
    Send("clicks", items("a 0s 0", "a 1s 1", "b 2s 2", "c 3s 3")),
    Watermark("2s"),
    Send("rules", [{"t": "4s", "name": "x", "v": None}, {"t": "4s", "name": "z", "v": 4}]),
    Watermark("3s"),
    Send("clicks", items("a 4s 4", "b 5s 5")),
    Watermark("9s", "clicks"),
    Watermark("4s", "rules"),
]
contract(
    "timed broadcast state",
    Rules(),
    {"clicks": TIMED, "rules": {"time": "t"}},
    RULE_CHANGES,
    log("""
        a 0: None [] {}
        a 1: x ['x'] {'x': 1}
        a 4: z ['y', 'x', 'z'] {'y': 2, 'z': 4}
        b 2: x ['x'] {'x': 1}
        b 5: z ['y', 'x', 'z'] {'y': 2, 'z': 4}
        c 3: y ['x', 'y'] {'x': 1, 'y': 2}
        """),
)
contract(
    "broadcast state without times",
    Rules(),
    {"clicks": TIMED, "rules": {}},
    [
        Send("rules", [{"name": "x", "v": 1}]),  # while there is no keyed data
        Send("rules", [{"name": "y", "v": 2}]),
        Send("clicks", items("a 1s 1", "b 5s 2")),
        Watermark("1s", "clicks"),
        Send("rules", [{"name": "x", "v": None}]),
        Watermark("5s", "clicks"),
        Send("clicks", items("c 6s 3")),
        Send("rules", [{"name": "z", "v": 4}]),
    ],
    log("""
        a 1: y ['x', 'y'] {'x': 1, 'y': 2}
        b 2: x ['x', 'y', 'x'] {'y': 2}
        c 3: z ['y', 'x', 'z'] {'y': 2, 'z': 4}
        """),
    batch=log("""
        a 1: z ['y', 'x', 'z'] {'y': 2, 'z': 4}
        b 2: z ['y', 'x', 'z'] {'y': 2, 'z': 4}
        c 3: z ['y', 'x', 'z'] {'y': 2, 'z': 4}
        """),
)


class Visits(Saying):
    """A broadcast element that looks at all keys, and changes their state."""

    clicks = Input(ITEM)
    sweeps = BroadcastInput("t TIMESTAMP, least BIGINT")
    total = ValueState("BIGINT")
    seen = MapState("STRING", "BIGINT")

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.seen.put("last", e.v)
        if e.v < 0:
            self.total.clear()

    @sweeps.process_element
    def sweep(self, e: Any, ctx: Any) -> None:
        def visit(key: str, total: Any) -> None:
            assert ctx.key == key
            self.say(ctx, f"{total.value()} >= {e.least}, last {self.seen.get('last')}")
            if total.value() < e.least:
                total.clear()
                self.seen.clear()
            else:
                ctx.register_event_time_timer("kept", e.t + timedelta(seconds=100))

        ctx.apply_to_keyed_state(self.total, visit)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"{timer.name} {self.total.value()}")


contract(
    "broadcast elements that visit all keys",
    Visits(),
    {"clicks": TIMED, "sweeps": {"time": "t"}},
    [
        Send("clicks", items("a 1s 1", "b 1s 5", "c 2s 7", "c 3s -7")),
        Watermark("3s"),
        Send("sweeps", [{"t": "4s", "least": 2}, {"t": "6s", "least": 6}]),
        Send("clicks", items("a 5s 1", "d 4s 9", "d 6s 1")),
        Watermark("6s"),
        Watermark("50s"),
        Send("sweeps", [{"t": "60s", "least": 0}]),
    ],
    log("""
        a 1 >= 2, last 1
        a 1 >= 6, last 1
        b 5 >= 2, last 5
        b 5 >= 6, last 5
        b kept None
        d 9 >= 6, last 9
        d 10 >= 0, last 1
        d kept 10
        """),
)


# ---------------------------------------------------------------------- input selection


class BuildThenProbe(Saying):
    """Rows of the build side first, to the end; then the probe side."""

    probe = Input(ITEM)
    build = Input(ITEM)
    table = ListState("BIGINT")

    def select_inputs(self, ctx: Any) -> Any:
        return InputSelection.ALL if ctx.has_ended("build") else InputSelection.of("build")

    @build.process_element
    def on_build(self, e: Any, ctx: Any) -> None:
        assert not ctx.has_ended("build")
        self.table.add(e.v)

    @probe.process_element
    def on_probe(self, e: Any, ctx: Any) -> None:
        assert ctx.has_ended("build")
        self.say(ctx, f"{e.v} with {self.table.get()}")


JOINED = """
    a 10 with [1, 2, 3]
    a 11 with [1, 2, 3]
    b 12 with []
    """
for how in (TIMED, UNTIMED):
    contract(
        f"build before probe, {'with' if how is TIMED else 'without'} times",
        BuildThenProbe(),
        {"probe": how, "build": how},
        [
            Send("probe", items("a 1s 10", "b 2s 12")),
            Send("build", items("a 5s 1", "a 6s 2")),
            Watermark("5s"),
            Send("probe", items("a 6s 11")),
            Send("build", items("a 9s 3")),
            End("build"),
            Watermark("20s", "probe"),
        ]
        if how is TIMED
        else [
            Send("probe", items("a 1s 10", "b 2s 12")),
            Send("build", items("a 5s 1", "a 6s 2")),
            Send("build", items("a 9s 3")),
            End("build"),
            Send("probe", items("a 6s 11")),
        ],
        log(JOINED),
    )
contract(
    "build that never ends by itself",
    BuildThenProbe(),
    {"probe": TIMED, "build": TIMED},
    [
        Send("probe", items("a 1s 10", "b 2s 12")),
        Send("build", items("a 5s 1", "a 7s 2")),
        Watermark("6s"),
        Send("probe", items("a 6500ms 11")),
        Send("build", items("a 8s 3")),
    ],
    log(JOINED),
)


class Alternating(Saying):
    """One of each in turn, per key; of an input that has ended there is nothing to wait for."""

    left = Input(ITEM)
    right = Input(ITEM)
    turn = ValueState("STRING")

    def select_inputs(self, ctx: Any) -> Any:
        return InputSelection.of(self.turn.value() or "left")

    @left.process_element
    def on_left(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"left {e.v}")
        self.turn.update("right")

    @right.process_element
    def on_right(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"right {e.v}")
        self.turn.update("left")


contract(
    "one of each in turn",
    Alternating(),
    {"left": TIMED, "right": TIMED},
    [
        Send("left", items("a 1s 1", "a 2s 2", "b 1s 1")),
        Watermark("2s"),
        Send("right", items("a 3s 3", "b 3s 2", "b 4s 3")),
        Watermark("4s"),
        Send("left", items("a 5s 4", "a 6s 5", "b 5s 4")),
        Send("right", items("a 6s 6")),
    ],
    log("""
        a left 1
        a right 3
        a left 2
        a right 6
        a left 4
        a left 5
        b left 1
        b right 2
        b left 4
        b right 3
        """),
)


class Stubborn(Saying):
    """Wants what never comes, until that has ended."""

    wanted = Input(ITEM)
    other = Input(ITEM)

    def select_inputs(self, ctx: Any) -> Any:
        return InputSelection.of("wanted")

    @wanted.process_element
    def on_wanted(self, e: Any, ctx: Any) -> None: ...

    @other.process_element
    def on_other(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"{e.v} at {seconds(ctx.timestamp)} after {seconds(ctx.current_watermark)}")


contract(
    "the selected input has ended",
    Stubborn(),
    {"wanted": UNTIMED, "other": TIMED},
    [
        Send("other", items("a 1s 1", "a 2s 2", "b 3s 3")),
        Watermark("9s", "other"),
        End("wanted"),
        Send("other", items("a 10s 4")),
    ],
    log("""
        a 1 at 1s after 9s
        a 2 at 2s after 9s
        a 4 at 10s after 10s
        b 3 at 3s after 9s
        """),
    batch=log("""
        a 1 at 1s after 1s
        a 2 at 2s after 2s
        a 4 at 10s after 10s
        b 3 at 3s after 3s
        """),
)


# ---------------------------------------------------------------------- time


class Late(Saying):
    clicks = Input(ITEM)
    other = Input(ITEM)
    late = Output("input STRING, v BIGINT, time STRING")
    strays = Counter()

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"{e.v}")

    @other.process_element
    def on_other(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"other {e.v}")

    @clicks.process_late
    def too_late(self, e: Any, ctx: Any) -> None:
        self.strays.inc(2)
        self.late.collect(input=ctx.input, v=e.v, time=seconds(ctx.timestamp))


contract(
    "late elements",
    Late(),
    {"clicks": TIMED, "other": TIMED},
    [
        Send("clicks", items("a 5s 1", "a - 2", "b 3s 3")),
        Watermark("5s", "clicks"),
        Send("clicks", items("a 4s 4")),  # behind its own watermark, but not that of the operator
        Send("other", items("a 4s 5")),
        Watermark("4s", "other"),
        Send("clicks", items("a 4s 6", "a 5s 7")),
        Send("other", items("a 4s 8", "b 3s 9", "b 5s 10")),
        Watermark("5s", "other"),
        Send("clicks", items("b 5s 11", "b 6s 12")),
    ],
    log("""
        a 4
        a other 5
        a 1
        a 7
        b 3
        b other 10
        b 12
        """)
    | {"late": [("clicks", 2, "no time"), ("clicks", 6, "4s"), ("clicks", 11, "5s")]},
    counts={"late_elements": 2, "strays": 6},
    batch=False,
)


class Hears(StreamOperator):
    """Watermarks and ends of inputs, once per key group."""

    a = Input(ITEM)
    b = Input(ITEM)
    c = BroadcastInput("v BIGINT")
    out = Output("what STRING")
    total = ValueState("BIGINT")

    @a.process_element
    def on_a(self, e: Any, ctx: Any) -> None:
        self.out.collect(what=f"a {e.v}")

    @b.process_element
    def on_b(self, e: Any, ctx: Any) -> None:
        self.out.collect(what=f"b {e.v}")

    @c.process_element
    def on_c(self, e: Any, ctx: Any) -> None:
        self.out.collect(what=f"c {e.v}")

    @a.process_watermark
    def mark_a(self, watermark: datetime, ctx: Any) -> None:
        self.out.collect(what=f"mark a {seconds(watermark)} {ctx.input}")

    @a.end_input
    def end_a(self, ctx: Any) -> None:
        self.out.collect(what=f"end {ctx.input} {ctx.has_ended('a')} {ctx.has_ended('b')}")

    @b.end_input
    def end_b(self, ctx: Any) -> None:
        self.out.collect(what="end b")

    @c.end_input
    def end_c(self, ctx: Any) -> None:
        self.out.collect(what="end c")


contract(
    "watermarks and ends of inputs",
    Hears(),
    {"a": TIMED, "b": TIMED, "c": {}},
    [
        Watermark("1s", "a"),
        Send("a", items("x 5s 1")),
        Watermark("3s"),
        Watermark("2s", "a"),
        Send("c", {"v": 7}),
        End("a"),  # whose last element still waits for b
        Watermark("4s", "b"),
        Send("b", items("x 5s 2")),
        Watermark("5s", "b"),
        End("b"),
    ],
    {
        "out": [
            (what,)
            for what in (
                "mark a 1s a", "mark a 3s a", "c 7", "mark a the end a", "a 1", "end a True False", "b 2", "end b",
                "end c",
            )
        ]
    },
    batch=False,
    spread=False,
)  # fmt: skip


class Announces(StreamOperator):
    """What a function of a broadcast input emits and counts comes once; what it emits for keys comes for each of them."""

    clicks = Input(ITEM)
    notes = BroadcastInput("t TIMESTAMP, v BIGINT")
    seen = ValueState("BIGINT")
    out = Output("what STRING")
    noted = Counter()

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.seen.update(e.v)

    @notes.process_element
    def note(self, e: Any, ctx: Any) -> None:
        self.out.collect(what=f"note {e.v}")
        self.noted.inc()
        ctx.apply_to_keyed_state(self.seen, lambda key, seen: self.out.collect(what=f"{e.v} for {key}"))

    @notes.process_late
    def late(self, e: Any, ctx: Any) -> None:
        self.out.collect(what=f"late {e.v}")
        self.noted.inc(10)


contract(
    "rows of broadcast elements come once",
    Announces(),
    {"clicks": TIMED, "notes": {"time": "t"}},
    [
        Send("clicks", items("a 1s 1", "b 1s 1", "c 3s 1")),
        Send("notes", [{"t": "2s", "v": 7}, {"t": "4s", "v": 8}]),
        Watermark("5s"),
        Send("notes", {"t": "1s", "v": 9}),
    ],
    {"out": [(what,) for what in ("note 7", "7 for a", "7 for b", "note 8", "8 for a", "8 for b", "8 for c", "late 9")]},
    counts={"noted": 12},
    batch={
        "out": [
            (what,)
            for what in ("note 9", "note 7", "7 for a", "7 for b", "note 8", "8 for a", "8 for b", "8 for c")
        ]
    },
)  # fmt: skip


class Idle(Saying):
    a = Input(ITEM)
    b = Input(ITEM)

    @a.process_element
    def on_a(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"a {e.v} by {seconds(ctx.processing_time)}")

    @b.process_element
    def on_b(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"b {e.v} by {seconds(ctx.processing_time)}")


contract(
    "idle inputs",
    Idle(),
    {"a": TIMED, "b": {**TIMED, "idle_after": timedelta(seconds=10)}},
    [
        ProcessingTime("100s"),
        Send("a", items("x 1s 1")),
        Watermark("1s", "a"),
        ProcessingTime("109s"),
        ProcessingTime("110s"),  # nothing was heard of b for so long
        Send("a", items("x 3s 2")),
        Watermark("4s", "a"),
        ProcessingTime("112s"),
        Send("b", items("x 3s 3", "x 5s 4")),
        Watermark("4s", "b"),
        Send("a", items("x 5s 5")),
        Watermark("9s", "a"),
        ProcessingTime("121s"),
        ProcessingTime("122s"),
        Send("b", items("x 10s 6")),
        Watermark("9s", "b"),
        ProcessingTime("1000s"),  # nothing was heard of anyone, and only b can be idle
        Send("a", items("x 20s 7")),
        Watermark("20s", "a"),
        ProcessingTime("1001s"),
        Send("b", items("x 15s 8")),
        Watermark("15s", "b"),
        ProcessingTime("1010s"),
        ProcessingTime("1011s"),
    ],
    log("""
        x a 1 by 110s
        x a 2 by 110s
        x a 5 by 122s
        x b 4 by 122s
        x b 6 by 1000s
        x a 7 by 1000s
        """),
    counts={"late_elements": 2},
    batch=False,
    stream=False,
)
contract(
    "all inputs are idle",
    Idle(),
    {name: {**TIMED, "idle_after": timedelta(seconds=10)} for name in "ab"},
    [
        Send("a", items("x 1s 1")),
        Watermark("1s", "a"),
        Send("b", items("x 2s 2")),
        Watermark("3s", "b"),
        ProcessingTime("9s"),
        ProcessingTime("10s"),
        Send("a", items("x 4s 3")),
        Watermark("4s", "a"),
        ProcessingTime("12s"),
    ],
    log("""
        x a 1 by 0s
        x b 2 by 10s
        x a 3 by 10s
        """),
    batch=False,
    stream=False,
)


# ---------------------------------------------------------------------- outputs


class Sides(StreamOperator):
    clicks = Input(ITEM)
    even = Output("k STRING, v BIGINT")
    odd = Output("v BIGINT, k STRING, note STRING")
    nothing = Output("v BIGINT")
    evens = Counter()
    unused = Counter()

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        if e.v % 2:
            self.odd.collect(e | {"note": "!"} if e.v == 1 else {"k": e.k}, **({} if e.v == 1 else {"v": e.v}))
        else:
            self.evens.inc()
            self.even.collect(v=e.v, k=e.k)
            self.even.collect_batch(pa.table({"v": pa.array([e.v, None], pa.int64()), "k": [e.k, e.k]}))

    def on_odd(self, row: Any) -> None: ...


class SidesOfElement(Sides):
    """An element as a row, where it has the output's columns."""

    odd = Output("v BIGINT, k STRING, t TIMESTAMP, note STRING")


contract(
    "side outputs and counters",
    SidesOfElement(),
    {"clicks": TIMED},
    [Send("clicks", items("a 1s 1", "b 1s 2")), Watermark("1s"), Send("clicks", items("a 2s 3", "c 3s 4"))],
    {
        "even": [("b", 2), ("b", 2), ("b", None), ("c", 4), ("c", 4), ("c", None)],
        "odd": [(1, "a", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "!"), (3, "a", None, None)],
        "nothing": [],
    },
    counts={"evens": 2},
)


class Opened(Saying):
    """What open makes is there; what functions keep in the operator is not state, and here is none."""

    clicks = Input(ITEM)

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def open(self) -> None:
        self.model = {"factor": self.factor}

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.say(ctx, str(self.model["factor"] * e.v))


contract(
    "what open makes",
    Opened(10),
    {"clicks": TIMED},
    [Send("clicks", items("a 1s 1", "b 1s 2"))],
    log("a 10\nb 20"),
)


# ---------------------------------------------------------------------- keys


class Composite(StreamOperator):
    left = Input("a STRING, b BIGINT, t TIMESTAMP")
    right = Input("x STRING, y BIGINT, t TIMESTAMP")
    count = ValueState("BIGINT")
    out = Output("key STRING, n BIGINT")

    @left.process_element
    def on_left(self, e: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.out.collect(key=f"{ctx.key.a} {ctx.key['b']}", n=self.count.value())

    @right.process_element
    def on_right(self, e: Any, ctx: Any) -> None:
        self.on_left(e, ctx)


contract(
    "composite and null keys",
    Composite(),
    {"left": {"key": ["a", "b"], "time": "t"}, "right": {"key": ["x", "y"], "time": "t"}},
    [
        Send("left", [{"a": "p", "b": 1, "t": "1s"}, {"a": "p", "b": None, "t": "1s"}, {"t": "1s"}]),
        Watermark("1s"),
        Send("right", [{"x": "p", "y": 1, "t": "2s"}, {"x": None, "y": 1, "t": "2s"}, {"t": "3s"}]),
        Send("right", [{"x": "p", "t": "2s"}]),
    ],
    {
        "out": [
            ("p 1", 1), ("p 1", 2), ("p None", 1), ("p None", 2), ("None None", 1), ("None None", 2), ("None 1", 1)
        ]
    },
)  # fmt: skip
contract(
    "null is a key",
    Periodic(),
    {"clicks": TIMED},
    [Send("clicks", items("- 1s 1", "a 1s 2")), Watermark("2s"), Send("clicks", items("- 3s 3"))],
    log("""
        - click at 1s
        - click at 3s
        - hour at 3603s
        a click at 1s
        a hour at 3601s
        """),
)


class Keyless(StreamOperator):
    clicks = Input("t TIMESTAMP, v BIGINT")
    total = ReducingState("BIGINT", lambda a, b: a + b)
    out = Output("total BIGINT")

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        assert ctx.key is None
        self.total.add(e.v)
        self.out.collect(total=self.total.value())


contract(
    "no key",
    Keyless(),
    {"clicks": {"time": "t"}},
    [
        Send("clicks", [{"t": "1s", "v": 1}, {"t": "2s", "v": 2}]),
        Watermark("1s"),
        Send("clicks", [{"t": "3s", "v": 4}]),
    ],
    {"out": [(1,), (3,), (7,)]},
)


class Instances(StreamOperator):
    """Distributed elements, which each instance counts; some of its columns cannot be hashed."""

    items = Input("t TIMESTAMP, v BIGINT, more MAP<STRING, INT>")
    count = ValueState("BIGINT")
    values = Output("v BIGINT")
    counts = Output("n BIGINT")

    @items.process_element
    def item(self, e: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.values.collect(v=e.v)

    @items.end_input
    def end(self, ctx: Any) -> None:
        ctx.apply_to_keyed_state(self.count, lambda key, count: self.counts.collect(n=count.value()))


class KeyTypes(StreamOperator):
    """Keys that no input needs as columns, of many types."""

    clicks = Input("t TIMESTAMP")
    count = ValueState("BIGINT")
    out = Output("key STRING, n BIGINT")

    @clicks.process_element
    def click(self, e: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.out.collect(key=" ".join(map(str, ctx.key.values())), n=self.count.value())


KEY_TYPES: dict[str, tuple[str, Sequence[Any]]] = {
    "a": ("INT", (1, 2)),
    "b": ("DECIMAL(10, 2)", (Decimal("1.50"), Decimal("2.00"))),
    "c": ("DATE", (date(2025, 1, 1), date(2025, 1, 2))),
    "d": ("BINARY", (b"x", b"")),
    "e": ("BOOLEAN", (True, False)),
    "f": ("TIMESTAMP_NTZ", (datetime(2025, 1, 1), datetime(2025, 1, 2))),
    "g": ("TINYINT", (1, -1)),
}
contract(
    "keys of many types",
    KeyTypes(),
    {
        "clicks": {
            "key": list(KEY_TYPES),
            "time": "t",
            "columns": ", ".join(f"{name} {kind}" for name, (kind, _) in KEY_TYPES.items())
            + ", t TIMESTAMP, unused DOUBLE",
        }
    },
    [
        step
        for turn in ("1s", "2s")
        for step in (
            Send(
                "clicks", [{"t": turn} | {name: values[n] for name, (_, values) in KEY_TYPES.items()} for n in (0, 1)]
            ),
            Watermark(turn),
        )
    ],
    {
        "out": [
            (" ".join(str(values[n]) for _, values in KEY_TYPES.values()), count) for n in (0, 1) for count in (1, 2)
        ]
    },
)


# ---------------------------------------------------------------------- inheritance


class Child(Order):
    """Inherits everything, overrides a function, adds an input, an output, a state, and a function for late elements."""

    more = Input(ITEM)
    extra = Output("v BIGINT")
    kept = ListState("BIGINT")

    def on_right(self, e: Any, ctx: Any) -> None:
        self.kept.add(e.v)
        self.say(ctx, f"my right {self.kept.get()}")

    @more.process_element
    @Order.left.process_late
    def anything(self, e: Any, ctx: Any) -> None:
        self.extra.collect(v=e.v)


contract(
    "inheritance",
    Child(),
    {**ORDER_INPUTS, "more": UNTIMED},
    [
        Send("right", items("a 1s 1", "a 2s 2")),
        Send("more", items("a - 3")),
        Send("left", items("a 3s 4")),
        Watermark("4s"),
        Send("left", items("a 4s 5", "a 5s 6")),
    ],
    log("""
        a my right [1]
        a my right [1, 2]
        a left 4 at 3s rule None
        a left 6 at 5s rule None
        """)
    | {"extra": [(3,), (5,)]},
    batch=False,
)
contract(
    "the base of another operator",
    Order(),
    ORDER_INPUTS,
    [Send("left", items("a 3s 4")), Watermark("4s"), Send("left", items("a 4s 5"))],
    log("a left 4 at 3s rule None"),
    counts={"late_elements": 1},
    batch=False,
)


# ---------------------------------------------------------------------- as users write them


class Enriched(Saying):
    """Prices in euros, at the rate of their time; of an unknown currency, as they are."""

    sales = Input("k STRING, t TIMESTAMP, v BIGINT, currency STRING")
    rates = BroadcastInput("currency STRING, t TIMESTAMP, rate DOUBLE, source STRUCT<name: STRING, version: INT>")
    rate = BroadcastMapState("STRING", "STRUCT<rate: DOUBLE, source: STRING>")
    unknown = Counter()

    @rates.process_element
    def learn(self, e: Any, ctx: Any) -> None:
        if e.rate is None:
            self.rate.remove(e.currency)
        else:
            self.rate.put(e.currency, {"rate": e.rate, "source": e.source and e.source["name"]})

    @sales.process_element
    def sell(self, e: Any, ctx: Any) -> None:
        rate = self.rate.get(e.currency)
        if rate is None:
            self.unknown.inc()
            rate = {"rate": 1.0, "source": "nobody"}
        self.say(ctx, f"{e.v * rate['rate']:g} says {rate['source']}")


def sold(*texts: str) -> list[Row]:
    return [item | {"currency": text.split()[3]} for text in texts for item in items(text)]


contract(
    "enrichment",
    Enriched(),
    {"sales": TIMED, "rates": {"time": "t"}},
    [
        Send("sales", sold("a 1s 8 usd", "a 3s 8 usd", "b 4s 8 gbp")),
        Send("rates", {"currency": "usd", "t": "3s", "rate": 0.5, "source": {"name": "ecb", "version": 1}}),
        Watermark("5s"),
        Send("rates", [{"currency": "usd", "t": "8s"}, {"currency": "gbp", "t": "7s", "rate": 2.0}]),
        Send("sales", sold("a 7s 6 usd", "b 7s 6 gbp", "a 8s 4 usd")),
    ],
    log("""
        a 8 says nobody
        a 4 says ecb
        a 3 says ecb
        a 4 says nobody
        b 8 says nobody
        b 12 says None
        """),
    counts={"unknown": 3},
)


class Missing(Saying):
    """What an order lacks: at its deadline, and every five seconds of the clock until then."""

    orders = Input(ITEM)
    payments = Input(ITEM)
    shipments = Input(ITEM)
    came = MapState("STRING", "TIMESTAMP")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        ctx.register_event_time_timer("deadline", e.t + timedelta(minutes=1))
        ctx.register_processing_time_timer("beat", ctx.processing_time + timedelta(seconds=5))
        self.arrived(e, ctx)

    @payments.process_element
    @shipments.process_element
    def arrived(self, e: Any, ctx: Any) -> None:
        self.came.put(ctx.input, e.t)
        if len(list(self.came.keys())) == 3:
            self.close_order(ctx)

    def close_order(self, ctx: Any) -> None:
        self.came.clear()
        ctx.delete_event_time_timer("deadline")
        ctx.delete_processing_time_timer("beat")

    def lacking(self) -> str:
        return " and ".join(name for name in ("orders", "payments", "shipments") if name not in self.came)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"lacks {self.lacking()} at {seconds(timer.time)}")
        self.close_order(ctx)

    def on_processing_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"waits for {self.lacking()}, {seconds(timer.time)}")
        ctx.register_processing_time_timer("beat", timer.time + timedelta(seconds=5))


contract(
    "a deadline in event time and a heartbeat",
    Missing(),
    dict.fromkeys(("orders", "payments", "shipments"), TIMED),
    [
        Send("orders", items("a 1s", "b 2s", "c 3s")),
        Send("payments", items("b 8s")),
        Watermark("10s"),
        ProcessingTime("6s"),
        Send("shipments", items("b 20s", "a 61s", "c 64s")),
        Watermark("25s"),
        ProcessingTime("11s"),
        Watermark("62s"),
        ProcessingTime("16s"),
    ],
    log("""
        a waits for payments and shipments, 5s
        a waits for payments and shipments, 10s
        a lacks payments at 61s
        b waits for shipments, 5s
        c waits for payments and shipments, 5s
        c waits for payments and shipments, 10s
        c waits for payments and shipments, 15s
        c lacks payments and shipments at 63s
        """),
    batch=log("""
        a lacks payments at 61s
        c lacks payments and shipments at 63s
        """),
    stream=False,
)


class Limited(StreamOperator):
    """At most two calls of a user a minute, in columns; what a user has left is forgotten after two minutes."""

    calls = Input(ITEM)
    used = ValueState("STRUCT<minute: BIGINT, calls: BIGINT>", ttl=timedelta(minutes=2))
    accepted = Output(ITEM)
    rejected = Output(f"{ITEM}, excess BIGINT")
    rejections = Counter()

    @calls.process_batch
    def call(self, batch: pa.Table, ctx: Any) -> None:
        minutes = batch["t"].cast(pa.int64()).to_numpy() // 60_000_000
        _, first, turn = np.unique(np.stack([ctx.keys, minutes]), axis=1, return_index=True, return_inverse=True)
        turn = turn.ravel()
        by_turn = np.argsort(turn, kind="stable")
        count = np.empty(len(turn), np.int64)
        count[by_turn] = np.arange(len(turn)) - np.searchsorted(turn[by_turn], turn[by_turn]) + 1
        before = self.used.column(ctx.keys[first]).to_pylist()
        known = [
            value["calls"] if value and value["minute"] == minutes[at] else 0
            for value, at in zip(before, first, strict=True)
        ]
        count += np.array(known, np.int64)[turn]
        self.used.update_column(
            ctx.keys,
            [
                {"minute": minute, "calls": calls}
                for minute, calls in zip(minutes.tolist(), count.tolist(), strict=True)
            ],
        )
        good = count <= 2
        self.accepted.collect_batch(batch.filter(pa.array(good)))
        excess = batch.append_column("excess", pa.array(count - 2))
        self.rejected.collect_batch(excess.filter(pa.array(~good)))
        self.rejections.inc(np.count_nonzero(~good))


contract(
    "a limit of calls, in columns",
    Limited(),
    {"calls": TIMED},
    [
        Send("calls", items("a 1s 1", "b 2s 2", "a 3s 3")),
        Watermark("3s"),
        Send("calls", items("a 4s 4", "a 59s 5", "a 61s 6", "b 62s 7", "a 63s 8")),
        Watermark("62s"),
        Send("calls", items("a 64s 9", "a 10m 10", "b 599s 11")),
    ],
    {
        "accepted": [("a", datetime.fromtimestamp(t, UTC), v) for t, v in [(1, 1), (3, 3), (61, 6), (63, 8), (600, 10)]]
        + [("b", datetime.fromtimestamp(t, UTC), v) for t, v in [(2, 2), (62, 7), (599, 11)]],
        "rejected": [
            ("a", datetime.fromtimestamp(t, UTC), v, excess) for t, v, excess in [(4, 4, 1), (59, 5, 2), (64, 9, 1)]
        ],
    },
    counts={"rejections": 3},
)


class Recalled(Saying):
    """Who bought what is recalled later is told, once; whoever buys it after that is told at once."""

    bought = Input("k STRING, t TIMESTAMP, item STRING")
    recalls = BroadcastInput("t TIMESTAMP, item STRING")
    had = ListState("STRING")
    recalled = BroadcastListState("STRING")
    told = Counter()

    @bought.process_element
    def buy(self, e: Any, ctx: Any) -> None:
        if e.item in self.recalled.get():
            self.say(ctx, f"do not use {e.item}")
        else:
            self.had.add(e.item)

    @recalls.process_element
    def recall(self, e: Any, ctx: Any) -> None:
        self.recalled.add(e.item)

        def tell(key: str, had: Any) -> None:
            mine = had.get()
            if e.item in mine:
                self.told.inc()
                self.say(ctx, f"bring back {mine.count(e.item)} {e.item}")
                had.update(item for item in mine if item != e.item)

        ctx.apply_to_keyed_state(self.had, tell)


contract(
    "a broadcast change that visits lists",
    Recalled(),
    {"bought": TIMED, "recalls": {"time": "t"}},
    [
        Send(
            "bought",
            [
                {"k": k, "t": t, "item": item}
                for k, t, item in (
                    text.split() for text in ("a 1s x", "a 2s y", "a 3s x", "b 4s y", "b 6s x", "c 5s x")
                )
            ],
        ),
        Send("recalls", {"t": "5s", "item": "x"}),
        Watermark("5s"),
        Send("recalls", [{"t": "7s", "item": "y"}, {"t": "8s", "item": "x"}]),
    ],
    log("""
        a bring back 2 x
        a bring back 1 y
        b do not use x
        b bring back 1 y
        c do not use x
        """),
    counts={"told": 3},
)


class BuildUntil(Saying):
    """The build side until event time has come to ten seconds, then both; what waits then comes before later timers."""

    probe = Input(ITEM)
    build = Input(ITEM)
    table = ListState("BIGINT")

    def select_inputs(self, ctx: Any) -> Any:
        begun = ctx.current_watermark is not None and ctx.current_watermark >= datetime.fromtimestamp(10, UTC)
        return InputSelection.ALL if begun else InputSelection.of("build")

    @build.process_element
    def on_build(self, e: Any, ctx: Any) -> None:
        self.table.add(e.v)
        ctx.register_event_time_timer(f"{e.v}", e.t + timedelta(seconds=2))

    @probe.process_element
    def on_probe(self, e: Any, ctx: Any) -> None:
        self.say(ctx, f"{e.v} with {self.table.get()}")

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.say(ctx, f"timer of {timer.name}")


contract(
    "the build side until the watermark has come to a time",
    BuildUntil(),
    {"probe": TIMED, "build": TIMED},
    [
        Send("probe", items("a 1s 10", "b 2s 12")),
        Send("build", items("a 5s 1", "a 9s 2")),
        Watermark("6s"),
        Send("probe", items("a 8s 11")),
        Watermark("9s"),
        Send("build", items("a 10s 3", "a 12s 4")),
        Watermark("10500ms"),
        Watermark("11s"),
        Send("probe", items("a 12s 13", "a 13s 14")),
    ],
    log("""
        a timer of 1
        a 10 with [1, 2, 3]
        a 11 with [1, 2, 3]
        a timer of 2
        a 13 with [1, 2, 3]
        a timer of 3
        a 14 with [1, 2, 3, 4]
        a timer of 4
        b 12 with []
        """),
)
