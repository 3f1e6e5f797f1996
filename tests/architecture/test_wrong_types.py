"""Arguments of wrong types raise errors of Asterism with readable messages.

Every public function, constructor and method that defines something, or drives a test, is called with values of wrong types in
each of its parameters, one at a time. What accepts one must work with it: a result is used. In `make test`, each parameter gets a
third of the values, and the next one the next third.
"""

from __future__ import annotations

import inspect
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import asterism
import asterism.discovery
import asterism.sinks
import asterism.sources
import asterism.testing
from asterism import (
    CEP,
    AfterMatchSkipStrategy,
    AggregateFunction,
    AggregatingState,
    All,
    Batch,
    BroadcastInput,
    BroadcastListState,
    BroadcastMapState,
    BroadcastValueState,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    CumulativeWindows,
    DeltaTrigger,
    EventTimeTrigger,
    Evictor,
    FilePatternProcessorDiscovererFactory,
    Fold,
    Gauge,
    GlobalWindows,
    Histogram,
    HttpPatternProcessorDiscovererFactory,
    Input,
    InputSelection,
    IterativeCondition,
    KafkaPatternProcessorDiscovererFactory,
    KeyedStream,
    ListState,
    LiveEngine,
    Lookup,
    MapState,
    MatchRecognize,
    NamedCondition,
    NeverTrigger,
    Output,
    Pattern,
    PatternProcessor,
    ProcessingTimeTrigger,
    PurgingTrigger,
    ReducingState,
    RegisteredCondition,
    Semantics,
    Sequence,
    SessionWindows,
    SigmaPatternProcessorDiscovererFactory,
    SlidingWindows,
    SqlPatternProcessorDiscovererFactory,
    StreamOperator,
    TumblingWindows,
    UrlPatternProcessorDiscovererFactory,
    ValueState,
)
from asterism import Any as AnyTrigger
from asterism.discovery import FileLookupSource, KafkaLookupSource, SqlLookupSource, create_pattern_processor_table
from asterism.discovery.sources.lookup_sources import source_of
from asterism.errors import AsterismError, StateError
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import NotCondition, SqlCondition
from asterism.rules.publishing.lookup_watch import defined_lookups
from asterism.testing import (
    End,
    JoinHarness,
    Literals,
    OperatorHarness,
    PatternHarness,
    ProcessingTime,
    RowPatternHarness,
    Send,
    StreamOperatorHarness,
    Watermark,
    WindowHarness,
    assert_firings,
    assert_matches,
    check_independence,
    check_operator_independence,
    check_window_independence,
    match,
    table_of,
)
from asterism.windows.evictors import BuiltInEvictor
from asterism.windows.trigger_table import trigger_table_of
from asterism.windows.triggers import OnceTrigger, UntilTrigger
from asterism.windows.user_functions import called
from tests.kit import FACTOR
from tests.spark.progress import WrittenQuery, WrittenSession, progress

SECOND = timedelta(seconds=1)
WRONG: list[Any] = [
    None,
    True,
    5,
    -1,
    0,
    2.5,
    float("nan"),
    10**20,
    "text",
    "",
    "\ud800",
    b"bytes",
    [],
    [5],
    ["text"],
    {},
    {"a": 5},
    {5: "a"},
    (),
    SECOND,
    datetime(2026, 1, 1),
    datetime.max,
    object(),
    object,
    len,
    AfterMatchSkipStrategy.no_skip,
    Pattern.begin("z"),
    Semantics,
    pa.schema([]),
    Path("there/is/none"),
]
"""One of these is right in many places."""
THIRDS = cycle(WRONG[number::3] for number in range(3))


@dataclass(frozen=True)
class Call:
    """A call that works, by the names of all of its parameters that a user would say."""

    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    use: Callable[[Any], object] = repr

    def wrong(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in self.arguments:
            for value in next(THIRDS) if FACTOR == 1 else WRONG:
                yield name, self.arguments | {name: value}


def use_pattern(pattern: Any) -> object:
    pattern = pattern if isinstance(pattern, Pattern) else Pattern.begin("a").where(pattern)
    hash(pattern)
    compile_pattern(pattern)
    return pattern.to_json(), pattern.to_svg(), repr(pattern)


def use_skip(skip: AfterMatchSkipStrategy) -> object:
    return use_pattern(Pattern.begin("a", skip))


def use_trigger(trigger: Any) -> object:
    return repr(trigger), trigger_table_of(trigger), trigger.discarding()


class Counts(StreamOperator):
    """Counts."""

    clicks = Input("user STRING, at TIMESTAMP")
    names = Output("user STRING")

    @clicks.process_element
    def click(self, click: Any, ctx: Any) -> None:
        self.names.collect(user=click.user)


class Longest(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return int(max(value, accumulator))

    def get_result(self, accumulator: int) -> int:
        return accumulator


def window_harness() -> WindowHarness:
    return WindowHarness(asterism.TumblingWindows.of(SECOND))


def harness() -> PatternHarness:
    return PatternHarness(Pattern.begin("a").where("kind = 'a'").next("b"))


def operator_harness() -> StreamOperatorHarness:
    return StreamOperatorHarness(Counts(), {"clicks": {"key": "user", "time": "at"}})


def of_pattern(name: str, start: Pattern | None = None, /, **arguments: Any) -> Call:
    def called(**changed: Any) -> Any:
        return getattr(start or Pattern.begin("a").where("x > 1"), name)(**changed)

    return Call(called, arguments, use_pattern)


def of_condition(name: str) -> Call:
    return Call(getattr(SqlCondition("x"), name), {"other": "y"}, use_pattern)


def of_harness(name: str, make: Callable[[], Any] = harness, /, **arguments: Any) -> Call:
    def called(**changed: Any) -> Any:
        return getattr(make(), name)(**changed)

    return Call(called, arguments)


def live_engine() -> LiveEngine:
    stream: Any = KeyedStream(asterism.testing.EVENTS, key="key", time="ts")
    return CEP.pattern(stream, Pattern.begin("a")).open()


def opened(**arguments: Any) -> str:
    stream: Any = KeyedStream(asterism.testing.EVENTS, key="key", time="ts")
    with CEP.pattern(stream, Pattern.begin("a")).open(**arguments) as engine:
        return repr(engine.finish())


def taken_over(folder: Any, target: Any, second: Any, store: Any = None) -> Any:
    stream: Any = KeyedStream(asterism.testing.EVENTS, key="key", time="ts")
    with suppress(StateError), CEP.pattern(stream, Pattern.begin("a")).open("live") as engine:  # of the call before
        engine.advance_watermark(datetime(2026, 1, 1))
    for name in ("savepoint", "other"):
        shutil.rmtree(name, ignore_errors=True)
    asterism.create_live_savepoint(folder, target, store=store)
    return asterism.restore_live_savepoint(target, second, store=store)


def streamed(batches: Any) -> list[Any]:
    return list(live_engine().stream(batches))


def of_batch(**arguments: Any) -> list[Any]:
    return streamed([Batch(**arguments)])


LOOP = Pattern.begin("a").one_or_more()
COUNTS: dict[str, Any] = {"operator": Counts(), "inputs": {"clicks": {"key": "user", "time": "at"}}}
JOIN: dict[str, Any] = {
    "left": {"key": "id", "time": "ts", "columns": "id BIGINT, ts TIMESTAMP, x INT"},
    "right": {"key": "id", "time": "ts", "columns": "id BIGINT, ts TIMESTAMP"},
    "prefix": "other_",
}
HARNESS: dict[str, Any] = {
    "pattern": Pattern.begin("a"),
    "columns": asterism.testing.EVENTS,
    "keys": ["key"],
    "time": "ts",
    "semantics": Semantics.DEFAULT,
    "select": ["COUNT(a.*) AS n"],
    "order_by": ["value"],
    "literals": Literals(),
    "outputs": None,
    "pages": 1,
    "key_groups": 1,
    "max_partial_matches": 10,
    "udfs": {"risk": (len, "int")},
    "on_limit": "error",
}
LITERALS: dict[str, Any] = {
    "kind": "kind", "value": "value", "key": "key", "time": "ts", "step": SECOND, "timed_by_value": False, "label": None,
}  # fmt: skip
OPERATOR_CONTENTS: dict[str, dict[str, Any]] = {
    "fold": {"fold": Fold("n INT", {"n": 0}, lambda total, element: total)},
    "reduce": {"reduce": max, "late_output": True, "in_order": True},
    "function": {"function": lambda rows, window: {"n": 1}, "output": "n INT"},
}
HARNESS_CONTENTS: dict[str, dict[str, Any]] = {
    "fold": {"fold": Fold("n INT", {"n": 0}, lambda total, element: total)},
    "reduce": {"reduce": max},
    "process": {"process": lambda rows, window: {"n": 1}, "schema": "n INT"},
}
NUMBERS = pa.schema({"ts": pa.timestamp("us", "UTC"), "n": pa.int64()})
CLAUSE = "ORDER BY ts MEASURES value AS v PATTERN (A)"
TABLE = table_of([{"kind": "a"}], asterism.testing.EVENTS)


def use_literals(literals: Literals) -> object:
    return match(Pattern.begin("x"), "a1 ann.b2(value=3)", literals=literals).matches


def state_of_status(place: Any) -> str:
    """The folder of the test has no query, which is the error that a path gives."""
    if place != ".":
        return asterism.discovery.status_of(place).state
    with pytest.raises(StateError):
        asterism.discovery.status_of(place)
    return ""


def changes_in_history(place: Any) -> int:
    """See :func:`state_of_status`."""
    if place != ".":
        return len(asterism.discovery.history_of(place))
    with pytest.raises(StateError):
        asterism.discovery.history_of(place)
    return 0


def waited(place: Any, versions: Any, timeout: Any) -> str:
    """No version is waited for, so that the state is only read."""
    if place != "." or versions != {} or timeout != timedelta():
        return asterism.discovery.wait_for(place, versions, timeout=timeout).state
    with pytest.raises(StateError):
        asterism.discovery.wait_for(place, versions, timeout=timeout)
    return ""


MATCHES = pa.table(
    {"user": ["ann"], "start_time": [datetime(2026, 1, 1)], "end_time": [datetime(2026, 1, 2)]},
)


CALLS: dict[str, Call] = {
    "monitor": Call(asterism.monitor, {"query": WrittenQuery([progress()])}),
    "export_metrics": Call(
        asterism.export_metrics,
        {"queries": WrittenSession(), "port": 0, "host": "127.0.0.1"},
        lambda exporter: exporter.close(),
    ),
    "SqlSink": Call(asterism.sinks.SqlSink, {"url": "sqlite:///alarms.db", "table": "alarms", "key": "match_id"}, repr),
    **{
        kind.__name__: Call(
            kind, {"table": "lake.visits", "name": "results", "key": ["session_id"], "order_by": "firing"}, repr
        )
        for kind in (asterism.sinks.DeltaSink, asterism.sinks.IcebergSink)
    },
    "FileSink": Call(asterism.sinks.FileSink, {"path": "/data/matches", "format": "parquet"}, repr),
    "KafkaSink": Call(
        asterism.sinks.KafkaSink,
        {
            "servers": "broker1:9092",
            "topic": "attacks",
            "key": "match_id",
            "header": "match_id",
            "value": "avro",
            "options": {"kafka.acks": "all"},
        },
        repr,
    ),
    "Pattern": Call(Pattern, {"stages": Pattern.begin("a").stages, "skip": AfterMatchSkipStrategy()}, use_pattern),
    "Pattern.begin": Call(Pattern.begin, {"stage": "a", "skip": AfterMatchSkipStrategy()}, use_pattern),
    **{
        f"Pattern.{name}": of_pattern(name, stage="b")
        for name in ("next", "followed_by", "followed_by_any", "not_next")
    },
    "Pattern.any_of": Call(
        lambda one, other: Pattern.any_of(one, other).skip_strategy(AfterMatchSkipStrategy()),
        {"one": "a", "other": Pattern.begin("b")},
        use_pattern,
    ),
    "Pattern.in_any_order": Call(
        lambda one, other, consecutive: Pattern.in_any_order(one, other, consecutive=consecutive),
        {"one": "a", "other": Pattern.begin("b"), "consecutive": True},
        use_pattern,
    ),
    "Pattern.begin_without": Call(
        lambda stage: Pattern.begin_without(stage).followed_by("a"), {"stage": "x"}, use_pattern
    ),
    "Pattern.greedy": of_pattern("greedy", LOOP, give_back=True),
    "Pattern.subset": Call(
        lambda name, stage: Pattern.begin("a").subset(name, stage), {"name": "u", "stage": "a"}, use_pattern
    ),
    "Pattern.not_followed_by": Call(
        lambda stage: Pattern.begin("a").not_followed_by(stage).within(SECOND), {"stage": "b"}, use_pattern
    ),
    "Pattern.where": of_pattern("where", condition="y > 1"),
    "Pattern.or_": of_pattern("or_", condition="y > 1"),
    "Pattern.until": of_pattern("until", LOOP, condition="y > 1"),
    "Pattern.subtype": Call(
        lambda name, other, column: Pattern.begin("a").subtype(name, other, column=column),
        {"name": "card", "other": "cash", "column": "kind"},
        use_pattern,
    ),
    "Pattern.times": of_pattern("times", at_least=2, at_most=3, within=SECOND),
    "Pattern.times_or_more": of_pattern("times_or_more", at_least=2, within=SECOND),
    "Pattern.one_or_more": of_pattern("one_or_more", within=SECOND),
    "Pattern.within": of_pattern(
        "within", duration=SECOND, within_type=asterism.WithinType.FIRST_AND_LAST, inclusive=True
    ),
    "Pattern.skip_strategy": of_pattern("skip_strategy", skip=AfterMatchSkipStrategy()),
    "Pattern.from_json": Call(Pattern.from_json, {"source": Pattern.begin("a").to_json()}, use_pattern),
    "Pattern.explain": Call(Pattern.begin("a").explain, {"semantics": Semantics.DEFAULT}),
    "Pattern.save": Call(Pattern.begin("a").save, {"path": str(Path(tempfile.gettempdir(), "view.svg"))}),
    "Pattern.to_svg": Call(Pattern.begin("a").to_svg, {"what": "stages", "semantics": Semantics.DEFAULT}),
    "AfterMatchSkipStrategy": Call(
        AfterMatchSkipStrategy,
        {"kind": AfterMatchSkipStrategy.skip_to_first("a").kind, "stage": "a", "throw_on_miss": False},
        use_skip,
    ),
    **{
        f"AfterMatchSkipStrategy.{name}": Call(
            getattr(AfterMatchSkipStrategy, name), {"stage": "a", "throw_on_miss": False}, use_skip
        )
        for name in ("skip_to_first", "skip_to_last")
    },
    "IterativeCondition": Call(
        IterativeCondition, {"function": len, "columns": ["x"]}, lambda c: repr(Pattern.begin("a").where(c))
    ),
    **{f"IterativeCondition.{name}": of_condition(name) for name in ("and_", "or_")},
    "SqlCondition": Call(SqlCondition, {"text": "x > 1"}, use_pattern),
    "NotCondition": Call(NotCondition, {"condition": SqlCondition("x > 1")}, use_pattern),
    "NamedCondition": Call(NamedCondition, {"name": "near", "arguments": (5, "a")}, use_pattern),
    "RegisteredCondition": Call(
        RegisteredCondition,
        {"function": len, "arguments": {"limit": float}},
        lambda made: made.call(NamedCondition("near", (5,))),
    ),
    "PatternProcessor": Call(
        PatternProcessor,
        {
            "id": "a",
            "version": 1,
            "pattern": Pattern.begin("a"),
            "timestamp": None,
            "key": ("user",),
            "select": ("a.x AS x",),
            "function": None,
            "timed_out": False,
            "labels": {"owner": "ann"},
            "suppress": timedelta(hours=1),
            "expires": None,
            "place": None,
        },
        lambda processor: (processor.to_dict(), hash(processor)),
    ),
    "PatternProcessor.from_dict": Call(
        PatternProcessor.from_dict, {"fields": PatternProcessor("a", 1, Pattern.begin("a")).to_dict()}
    ),
    "FilePatternProcessorDiscovererFactory": Call(
        FilePatternProcessorDiscovererFactory, {"path": "rules.json", "interval": SECOND}
    ),
    "SigmaPatternProcessorDiscovererFactory": Call(
        SigmaPatternProcessorDiscovererFactory,
        {
            "path": "sigma",
            "pipeline": [],
            "keyword_columns": ["message"],
            "report": "each",
            "time": "ts",
            "interval": SECOND,
        },
    ),
    "Lookup": Call(
        Lookup,
        {
            "source": pa.table({"id": ["a"], "max": [1.0]}),
            "key": "id",
            "on": "x",
            "schema": "id STRING, max DOUBLE",
            "table": None,
            "interval": SECOND,
        },
        lambda lookup: defined_lookups({"limits": lookup}, pa.schema([("x", pa.string())]), source_of),
    ),
    "FileLookupSource": Call(FileLookupSource, {"path": "limits.csv"}, repr),
    "SqlLookupSource": Call(SqlLookupSource, {"url": "sqlite:///a.db", "table": "limits", "connect_args": {}}, repr),
    "KafkaLookupSource": Call(
        KafkaLookupSource, {"servers": "127.0.0.1:9", "topic": "limits", "options": {"client.id": "a"}}, repr
    ),
    "KafkaPatternProcessorDiscovererFactory": Call(
        KafkaPatternProcessorDiscovererFactory,
        {"servers": "127.0.0.1:9", "topic": "rules", "interval": SECOND, "options": {"client.id": "a"}},
        repr,
    ),
    "UrlPatternProcessorDiscovererFactory": Call(
        UrlPatternProcessorDiscovererFactory, {"url": "http://127.0.0.1:9/rules", "interval": SECOND}
    ),
    "HttpPatternProcessorDiscovererFactory": Call(
        HttpPatternProcessorDiscovererFactory,
        {
            "port": 8080,
            "token": 40 * "t",
            "state": "state",
            "host": "127.0.0.1",
            "certificate": None,
            "private_key": None,
        },
    ),
    "SqlPatternProcessorDiscovererFactory": Call(
        SqlPatternProcessorDiscovererFactory,
        {"url": "sqlite:///rules.db", "table": "rules", "interval": SECOND, "registry": None, "connect_args": None},
    ),
    "create_pattern_processor_table": Call(
        create_pattern_processor_table, {"url": "sqlite:///rules.db", "table": "rules"}
    ),
    "TumblingWindows.of": Call(TumblingWindows.of, {"size": SECOND, "offset": timedelta(0), "zone": None}),
    "TumblingWindows.of_months": Call(TumblingWindows.of_months, {"months": 1, "offset": timedelta(0), "zone": None}),
    "SlidingWindows.of": Call(
        SlidingWindows.of, {"size": 2 * SECOND, "slide": SECOND, "offset": timedelta(0), "zone": None}
    ),
    "SlidingWindows.of_months": Call(
        SlidingWindows.of_months, {"months": 2, "slide": 1, "offset": timedelta(0), "zone": None}
    ),
    "SessionWindows.with_gap": Call(SessionWindows.with_gap, {"gap": SECOND}),
    "SessionWindows.with_dynamic_gap": Call(SessionWindows.with_dynamic_gap, {"gap": "INTERVAL 1 SECOND"}),
    "TumblingWindows": Call(TumblingWindows, {"size": SECOND, "slide": SECOND, "offset": timedelta(0), "zone": None}),
    "TumblingWindows, months": Call(TumblingWindows, {"size": 1, "slide": 1, "offset": timedelta(0), "zone": None}),
    "SlidingWindows": Call(SlidingWindows, {"size": 2 * SECOND, "slide": SECOND, "offset": timedelta(0), "zone": None}),
    "SessionWindows": Call(SessionWindows, {"gap": SECOND}),
    "CumulativeWindows.of": Call(
        CumulativeWindows.of, {"size": 2 * SECOND, "step": SECOND, "offset": timedelta(0), "zone": None}
    ),
    "CumulativeWindows": Call(
        CumulativeWindows, {"size": 2 * SECOND, "step": SECOND, "offset": timedelta(0), "zone": None}
    ),
    "Evictor.count": Call(Evictor.count, {"elements": 2, "after": False}),
    "Evictor.time": Call(Evictor.time, {"length": SECOND, "after": False}),
    "Evictor.delta": Call(Evictor.delta, {"threshold": 1.0, "delta": "x", "after": False}),
    **{
        f"Evictor {kind}": Call(
            BuiltInEvictor, {"kind": kind, "keep": 2, "threshold": 1.0, "distance": "x", "after": False}
        )
        for kind in ("count", "time", "delta")
    },
    "Fold": Call(Fold, {"accumulator": "n INT", "initial": {"n": 0}, "add": max, "merge": None}),
    "Trigger.until": Call(CountTrigger.at_least(2).until, {"end": CountTrigger.at_least(2)}, use_trigger),
    "UntilTrigger": Call(
        UntilTrigger,
        {"trigger": CountTrigger.at_least(2), "end": CountTrigger.at_least(2), "mode": None},
        use_trigger,
    ),
    "OnceTrigger": Call(OnceTrigger, {"trigger": CountTrigger.at_least(2), "mode": None}, use_trigger),
    "CountTrigger.at_least": Call(CountTrigger.at_least, {"count": 2}),
    "CountTrigger": Call(CountTrigger, {"count": 2, "mode": None}, use_trigger),
    **{
        f"{kind.__name__}.after_first_element": Call(kind.after_first_element, {"delay": SECOND}, use_trigger)
        for kind in (EventTimeTrigger, ProcessingTimeTrigger)
    },
    **{
        f"{kind.__name__}.with_early_trigger": Call(
            kind.after_end_of_window().with_early_trigger, {"trigger": CountTrigger.at_least(2)}, use_trigger
        )
        for kind in (EventTimeTrigger, ProcessingTimeTrigger)
    },
    "EventTimeTrigger.with_late_trigger": Call(
        EventTimeTrigger.after_end_of_window().with_late_trigger, {"trigger": CountTrigger.at_least(2)}, use_trigger
    ),
    "EventTimeTrigger": Call(EventTimeTrigger, {"delay": None, "early": None, "late": None, "mode": None}, use_trigger),
    "ProcessingTimeTrigger": Call(ProcessingTimeTrigger, {"delay": None, "early": None, "mode": None}, use_trigger),
    **{
        f"{kind.__name__}{name}": Call(make, {"interval": SECOND}, use_trigger)
        for kind in (ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger)
        for name, make in (("", kind), (".of", kind.of))
    },
    **{
        f"DeltaTrigger{name}": Call(make, {"threshold": 1.0, "delta": "x"}, use_trigger)
        for name, make in (("", DeltaTrigger), (".of", DeltaTrigger.of))
    },
    **{
        f"PurgingTrigger{name}": Call(make, {"trigger": CountTrigger.at_least(2)}, use_trigger)
        for name, make in (("", PurgingTrigger), (".of", PurgingTrigger.of))
    },
    **{
        kind.__name__: Call(
            lambda one, other, kind=kind: kind(one, other),
            {"one": CountTrigger.at_least(2), "other": EventTimeTrigger.after_end_of_window()},
            use_trigger,
        )
        for kind in (All, AnyTrigger, Sequence)
    },
    "NeverTrigger": Call(NeverTrigger, {"mode": None}, use_trigger),
    "GlobalWindows": Call(GlobalWindows),
    "InputSelection.of": Call(lambda **names: InputSelection.of(*names.values()), {"one": "a", "other": "b"}),
    "Input": Call(Input, {"columns": "x BIGINT"}),
    "BroadcastInput": Call(BroadcastInput, {"columns": "x BIGINT"}),
    "Output": Call(Output, {"columns": "x BIGINT"}),
    "Gauge": Call(Gauge, {"aggregate": "max"}),
    "Histogram": Call(Histogram, {"buckets": [1, 2]}),
    "ValueState": Call(ValueState, {"type": "BIGINT", "ttl": SECOND}),
    "ListState": Call(ListState, {"type": "BIGINT", "ttl": SECOND}),
    "MapState": Call(MapState, {"key_type": "STRING", "type": "BIGINT", "ttl": SECOND}),
    "ReducingState": Call(ReducingState, {"type": "BIGINT", "function": max, "ttl": SECOND}),
    "AggregatingState": Call(
        AggregatingState,
        {"type": "BIGINT", "function": Longest(), "ttl": SECOND, "update_type": "on_read_and_write"},
    ),
    "BroadcastValueState": Call(BroadcastValueState, {"type": "BIGINT"}),
    "BroadcastListState": Call(BroadcastListState, {"type": "BIGINT"}),
    "BroadcastMapState": Call(BroadcastMapState, {"key_type": "STRING", "type": "BIGINT"}),
    # the test kit
    "Literals": Call(Literals, LITERALS, use_literals),
    "Literals.parse": of_harness("parse", Literals, text="a1", columns=asterism.testing.EVENTS, after=0),
    "Literals.micros": of_harness("micros", Literals, time="1s"),
    "Literals.text": of_harness("text", Literals, event={"kind": "a"}),
    "Literals.time_text": of_harness("time_text", Literals, micros=5),
    "table_of": Call(table_of, {"events": [{"kind": "a"}], "columns": asterism.testing.EVENTS}),
    "match": Call(match, {**HARNESS, "events": "a1"}),
    "MatchRecognize": Call(MatchRecognize, {"text": CLAUSE, "dialect": "flink"}, lambda made: made.explain()),
    "RowPatternHarness": Call(
        RowPatternHarness,
        {
            "clause": CLAUSE,
            "columns": asterism.testing.EVENTS,
            "literals": Literals(),
            "pages": 1,
            "key_groups": 1,
            "max_rows": 10,
            "on_limit": "drop",
            "udfs": {"risk": (len, "int")},
        },
        lambda made: made.send("a1").end().matches,
    ),
    "PatternHarness": Call(PatternHarness, HARNESS, lambda made: made.send("a1").end().matches),
    "PatternHarness, process": Call(
        partial(PatternHarness, Pattern.begin("a")),
        {"process": lambda matches: {"n": 1}, "schema": "n INT"},
        lambda made: made.processed,
    ),
    "PatternHarness.send": of_harness("send", events="a1"),
    "PatternHarness.parts": of_harness("parts", events="a1"),
    "PatternHarness.deliver": of_harness("deliver", parts=[TABLE, 5]),
    "PatternHarness.times": of_harness("times", events=TABLE),
    "PatternHarness.advance_watermark": of_harness("advance_watermark", to="5s"),
    "PatternHarness.advance_processing_time": of_harness("advance_processing_time", to="5s"),
    "PatternHarness.by_stage": of_harness("by_stage", output="matches"),
    "PatternHarness.found": of_harness("found", output="matches"),
    "OperatorHarness.restore": of_harness("restore", snapshot=harness().snapshot()),
    "assert_matches": Call(
        assert_matches, {"actual": ["a1"], "expected": ["a1"], "output": "matches", "in_any_order": False}
    ),
    "assert_matches of a harness": Call(
        assert_matches, {"actual": match(Pattern.begin("a"), "a1"), "expected": ["a1"], "output": "matches"}
    ),
    "check_independence": Call(
        check_independence, {"pattern": Pattern.begin("a"), "events": "a1 a2", "cuts": 1, "seed": 0}
    ),
    "pattern_json_schema": Call(asterism.pattern_json_schema),
    "eql": Call(
        asterism.eql,
        {
            "query": "any where true",
            "events": TABLE,
            "time": "ts",
            "category": "kind",
            "max_out_of_orderness": SECOND,
            "idle_after": None,
            "watermark_by": (),
            "key_groups": None,
        },
    ),
    "timeline": Call(
        asterism.timeline,
        {"matches": MATCHES, "key": "user", "start": "start_time", "end": "end_time"},
    ),
    "draw": Call(
        asterism.draw,
        {
            "windows": asterism.TumblingWindows.of(SECOND),
            "trigger": asterism.CountTrigger.at_least(2),
            "steps": "in 1@3",
            "lateness": SECOND,
            "evictor": asterism.Evictor.count(2),
            "value": "v",
            "closing": "drop",
            "on_time": "fire_if_non_empty",
        },
    ),
    "WindowOperator": Call(
        asterism.WindowOperator,
        {
            "windows": asterism.TumblingWindows.of(SECOND),
            "schema": asterism.testing.EVENTS,
            "keys": ["key"],
            "time": "ts",
            "trigger": asterism.CountTrigger.at_least(2),
            "lateness": SECOND,
            "measures": ["count(*) AS n"],
            "evictor": asterism.Evictor.count(2),
            "pages": 1,
            "closing": "drop",
            "on_time": "fire_if_non_empty",
            "session_ids": False,
        },
    ),
    **{
        f"WindowOperator, {name}": Call(
            partial(asterism.WindowOperator, TumblingWindows.of(SECOND), NUMBERS, time="ts"), arguments
        )
        for name, arguments in OPERATOR_CONTENTS.items()
    },
    "status_of": Call(state_of_status, {"place": "."}),
    "history_of": Call(changes_in_history, {"place": "."}),
    "wait_for": Call(waited, {"place": ".", "versions": {}, "timeout": timedelta()}),
    "OperatorHarness": Call(OperatorHarness, {"operator": harness().cep, "keys": ["key"], "key_groups": 1}),
    "OperatorHarness.feed": of_harness("feed", events=TABLE, name="events"),
    "OperatorHarness.feed_watermark": of_harness("feed_watermark", operator_harness, watermark=5, name="clicks"),
    "OperatorHarness.move": of_harness("move", watermark=5, processing_time=5),
    "OperatorHarness.tick": of_harness("tick", processing_time=5),
    "OperatorHarness.output": of_harness("output", name="matches"),
    "OperatorHarness.rows": of_harness("rows", name="matches"),
    "StreamOperatorHarness": Call(StreamOperatorHarness, {**COUNTS, "key_groups": 1, "pages": 1}),
    "StreamOperatorHarness.send": of_harness(
        "send", operator_harness, input="clicks", rows={"user": "ann", "at": "1s"}
    ),
    "StreamOperatorHarness.table": of_harness(
        "table", operator_harness, input="clicks", rows={"user": "ann", "at": "1s"}
    ),
    "StreamOperatorHarness.advance_watermark": of_harness(
        "advance_watermark", operator_harness, input="clicks", to="1s"
    ),
    "StreamOperatorHarness.advance_processing_time": of_harness("advance_processing_time", operator_harness, to="1s"),
    "StreamOperatorHarness.end": of_harness("end", operator_harness, input="clicks"),
    "StreamOperatorHarness.play": of_harness("play", operator_harness, steps=[ProcessingTime("1s")]),
    "JoinHarness.interval_join": Call(
        JoinHarness.interval_join,
        {
            **JOIN,
            "between": (SECOND, SECOND),
            "lower_exclusive": False,
            "upper_exclusive": False,
            "how": "left",
            "on": "x > 5",
            "key_groups": 1,
            "pages": 1,
        },
    ),
    "JoinHarness.as_of_join": Call(
        JoinHarness.as_of_join, {**JOIN, "tolerance": SECOND, "how": "left", "on": "x > 5", "key_groups": 1, "pages": 1}
    ),
    "JoinHarness.window_join": Call(
        JoinHarness.window_join,
        {**JOIN, "windows": TumblingWindows.of(SECOND), "how": "left", "on": "x > 5", "key_groups": 1, "pages": 1},
    ),
    "register_function": Call(asterism.register_function, {"name": "counts", "operator": Counts}),
    "JoinHarness.multi_join": Call(
        JoinHarness.multi_join,
        {
            "inputs": {"orders": JOIN["left"], "payments": JOIN["right"]},
            "between": {("orders", "payments"): (SECOND, SECOND)},
            "how": {"payments": "left"},
            "on": {"payments": "x > 5"},
            "prefix": {"payments": "paid_"},
            "max_rows": 9,
            "key_groups": 1,
            "pages": 1,
        },
    ),
    "JoinHarness.late": of_harness("late", lambda: JoinHarness.as_of_join(**JOIN), side="left"),
    "Send": Call(
        Send, {"input": "clicks", "rows": {"user": "ann", "at": "1s"}}, lambda step: operator_harness().play([step])
    ),
    "Watermark": Call(Watermark, {"to": "1s", "input": "clicks"}, lambda step: operator_harness().play([step])),
    "ProcessingTime": Call(ProcessingTime, {"to": "1s"}, lambda step: operator_harness().play([step])),
    "End": Call(End, {"input": "clicks"}, lambda step: operator_harness().play([step])),
    "WindowHarness": Call(
        WindowHarness,
        {
            "windows": asterism.TumblingWindows.of(SECOND),
            "trigger": asterism.CountTrigger.at_least(2),
            "columns": asterism.testing.EVENTS,
            "aggregate": ["count(*) AS n"],
            "allowed_lateness": SECOND,
            "evictor": asterism.Evictor.count(2),
            "in_order": False,
            "keys": ["key"],
            "time": "ts",
            "literals": Literals(),
            "pages": 1,
            "key_groups": 1,
            "closing": "drop",
            "on_time": "fire_if_non_empty",
            "session_ids": False,
            "udfs": {"risk": (len, "int")},
        },
        lambda made: made.send("a1").end().firings,
    ),
    **{
        f"WindowHarness, {name}": Call(partial(WindowHarness, TumblingWindows.of(SECOND), None, NUMBERS), arguments)
        for name, arguments in HARNESS_CONTENTS.items()
    },
    "PatternStream.open": Call(
        opened,
        {
            "folder": "live",
            "outputs": ["matches"],
            "select": {"matches": ["a.kind AS kind"]},
            "process": None,
            "schema": None,
            "sinks": {"matches": lambda rows, number: None},
            "snapshot_every": SECOND,
        },
    ),
    "create_live_savepoint": Call(taken_over, {"folder": "live", "target": "savepoint", "second": "other"}),
    "restore_live_savepoint": Call(taken_over, {"folder": "live", "target": "savepoint", "second": "other"}),
    "LiveEngine.process": of_harness(
        "process", live_engine, events=TABLE.slice(0, 0), input="events", position=5, watermark=datetime(2026, 1, 1)
    ),
    "LiveEngine.advance_watermark": of_harness(
        "advance_watermark", live_engine, to=datetime(2026, 1, 1), input="events"
    ),
    "LiveEngine.advance_processing_time": of_harness("advance_processing_time", live_engine, to=datetime(2026, 1, 1)),
    "LiveEngine.finish": of_harness("finish", live_engine, input="events"),
    "LiveEngine.stream": Call(streamed, {"batches": [TABLE.slice(0, 0)]}),
    "Batch": Call(
        of_batch,
        {"events": TABLE.slice(0, 0), "position": 5, "watermark": datetime(2026, 1, 1), "input": "events"},
    ),
    "WindowHarness.play": of_harness("play", window_harness, transcript="in a1"),
    "assert_firings": Call(assert_firings, {"harness": window_harness(), "expected": []}),
    "check_window_independence": Call(
        check_window_independence,
        {"windows": asterism.TumblingWindows.of(SECOND), "trigger": None, "events": "a1 a2", "cuts": 1, "seed": 0},
    ),
    "check_operator_independence": Call(
        check_operator_independence,
        {**COUNTS, "steps": [Send("clicks", {"user": "ann", "at": "1s"})], "cuts": 1, "seed": 0, "spread": [(2, 1)]},
    ),
}


ELSEWHERE = {
    "made and used by operators and triggers while they run, which tests/windows and tests/operators look at": {
        "Context", "Counter", "Element", "MatchContext", "OpenContext", "StreamOperator", "TimeSpan", "Timer", "Trigger",
        "TriggerContext",
        "TriggerResult",
    },
    "on Spark: tests/spark/test_wrong_types.py": {
        "BroadcastStream", "CEP", "DataStream", "KeyedStream", "OperatorStream", "PatternProcessorStream", "PatternStream",
        "RowPatternStream", "JoinedStream", "MultiJoinedStream", "Side", "WindowedStream", "as_of_join", "connect",
        "interval_join", "multi_join",
        "change_checkpoint", "change_savepoint", "create_savepoint", "plan_savepoint", "SavepointWriter", "forget_keys",
        "remove_former_state", "undo_change", "bootstrap_savepoint", "diff_savepoints",
        "match_recognize", "multi_broadcast_join", "read_savepoint", "read_state", "rescale_checkpoint",
        "restore_savepoint", "run", "sql", "window", "window_join",
    },
    "on Spark: tests/kafka/test_dead_letters.py": {"KafkaEvents", "dead_letters", "kafka_events"},
    "to be derived from": {
        "AggregateFunction", "PatternProcessFunction", "ProcessWindowFunction", "WindowContext",
        "PatternProcessorDiscoverer", "PatternProcessorDiscovererFactory", "PatternProcessorManager",
        "LookupSource", "PeriodicPatternProcessorDiscoverer", "ProcessorRegistry", "RefusedProcessor", "Windows",
    },
    "what comes out": {
        "Backtest", "Finding", "SavepointChanges", "SavepointPlan", "Snapshot", "StateReader", "WindowFiring",
    },
}  # fmt: skip
"""What is public and not called here."""


def test_all_that_is_public_is_called() -> None:
    elsewhere = set().union(*ELSEWHERE.values())
    called = {name.partition(" ")[0] for name in CALLS}
    missing = []
    for module in (asterism, asterism.testing, asterism.discovery, asterism.sinks, asterism.sources):
        for name in dir(module) if module is asterism else module.__all__:
            thing = getattr(module, name)
            if name in elsewhere or not callable(thing) or (isinstance(thing, type) and issubclass(thing, Enum)):
                continue
            if not any(one == name or one.startswith(name + ".") for one in called):
                missing.append(name)
    for kind in (Pattern, AfterMatchSkipStrategy, Literals, OperatorHarness, PatternHarness, StreamOperatorHarness):
        for name, method in inspect.getmembers(kind, inspect.isroutine):
            if name.startswith("_"):
                continue
            takes = [
                each for each in inspect.signature(method).parameters.values() if each.name not in ("self", "changes")
            ]
            owners = [each.__name__ for each in kind.__mro__]
            if takes and not called & {f"{owner}.{name}" for owner in owners}:
                missing.append(f"{kind.__name__}.{name}")
    assert missing == []


def test_every_option_is_called() -> None:
    """Those that a function has as keywords of a TypedDict."""
    called: dict[str, set[str]] = defaultdict(set)
    known: dict[str, set[str]] = {}
    for name, call in CALLS.items():
        name = name.partition(",")[0]
        called[name] |= call.arguments.keys()
        function = call.function.__init__ if isinstance(call.function, type) else call.function  # type: ignore[misc]
        function = inspect.unwrap(function)
        for parameter in inspect.signature(function).parameters.values() if inspect.isroutine(function) else ():
            options = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
            if options is not None:
                known[name] = {*function.__globals__[options[1]].__annotations__}
    assert len(known) > 3
    assert {name: options - called[name] for name, options in known.items() if options - called[name]} == {}


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"WindowHarness\(\) got an unexpected keyword argument 'evict'. Did you mean 'evictor'"
    ):
        WindowHarness(TumblingWindows.of(SECOND), evict=None)  # type: ignore[call-arg]


def test_calls_that_are_right_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = []
    for name, call in CALLS.items():
        chdir_new(name, tmp_path, monkeypatch)
        try:
            call.use(call.function(**call.arguments))
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error!s:.200}")
    assert failed == []


def test_wrong_types_give_errors_of_asterism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = []
    for name, call in CALLS.items():
        chdir_new(name, tmp_path, monkeypatch)
        for parameter, arguments in call.wrong():
            try:
                call.use(call.function(**arguments))
            except AsterismError as error:
                str(error).encode("utf-8", "surrogatepass")
            except AssertionError:
                if not name.startswith(("assert_", "check_")):
                    raw.append(f"{name}: {parameter}={arguments[parameter]!r:.80}: AssertionError")
            except Exception as error:
                raw.append(f"{name}: {parameter}={arguments[parameter]!r:.80}: {type(error).__name__}: {error!s:.80}")
    assert raw == []


def chdir_new(name: str, parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call has a folder of its own."""
    folder = parent / name
    folder.mkdir()
    monkeypatch.chdir(folder)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def fails(*arguments: Any) -> Any:
    raise UnspeakableError


def test_an_exception_of_a_function_need_not_have_a_text() -> None:
    text = r"UnspeakableError \(its message could not be computed\)"
    with pytest.raises(AsterismError, match=text):
        match(Pattern.begin("a").where(IterativeCondition(fails)), "a1")
    with pytest.raises(AsterismError, match=text):
        match(Pattern.begin("a").where(fails), "a1")
    with pytest.raises(AsterismError, match=text):
        called("the window function", fails)
