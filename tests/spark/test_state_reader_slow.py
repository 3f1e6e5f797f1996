"""The state of MATCH_RECOGNIZE, of a query that runs, and of elements that wait."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from asterism import (
    CEP,
    AggregateFunction,
    AggregatingState,
    BroadcastInput,
    BroadcastListState,
    BroadcastMapState,
    BroadcastStream,
    CountTrigger,
    EventTimeTrigger,
    FilePatternProcessorDiscovererFactory,
    Input,
    InputSelection,
    KeyedStream,
    ListState,
    MapState,
    Output,
    Pattern,
    PatternProcessor,
    ProcessWindowFunction,
    StateReader,
    StreamOperator,
    TumblingWindows,
    ValueState,
    connect,
    match_recognize,
    read_state,
    window,
)
from asterism.cli.main import main
from asterism.columns.schemas import schema_of
from asterism.errors import StateError
from tests.spark import test_state_reader
from tests.spark.streams import write_file
from tests.spark.test_state_reader import (
    EVENTS,
    MINUTE,
    UNPAID,
    Place,
    at,
    nothing,
    rows,
)
from tests.upgrade.checkpoints import archive_of, query_of, restore

pytestmark = pytest.mark.spark
place = test_state_reader.place
MICROSECOND = timedelta(microseconds=1)


class Gate(StreamOperator):
    """Elements wait until they are selected."""

    events = Input(EVENTS)
    keys = Input("ts TIMESTAMP, user STRING")
    opened = ValueState("BOOLEAN")
    nothing = Output("user STRING")

    @events.process_element
    def on_event(self, e: Any, ctx: Any) -> None: ...

    @keys.process_element
    def on_key(self, e: Any, ctx: Any) -> None:
        self.opened.update(True)

    def select_inputs(self, ctx: Any) -> InputSelection:
        return InputSelection.ALL if self.opened.value() else InputSelection.of("keys")


CLAUSE = """PARTITION BY user ORDER BY ts MEASURES A.price AS price PATTERN (A B) WITHIN INTERVAL '10' MINUTE
            DEFINE A AS kind = 'cart', B AS kind = 'buy'"""


class Accounts(StreamOperator):
    """Everything that can be in the state of an operator."""

    events = Input(EVENTS)
    limits = BroadcastInput("name STRING, price DOUBLE")
    total = ValueState("DOUBLE", ttl=timedelta(hours=1))
    kinds = ListState("STRING")
    last = MapState("STRING", "STRUCT<price: DOUBLE, at: TIMESTAMP>")
    limit = BroadcastMapState("STRING", "DOUBLE")
    names = BroadcastListState("STRING")
    nothing = Output("user STRING")

    @limits.process_element
    def on_limit(self, e: Any, ctx: Any) -> None:
        self.limit.put(e.name, e.price)
        self.names.add(e.name)

    @events.process_element
    def on_event(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0.0) + e.price)
        self.kinds.add(e.kind)
        self.last.put(e.kind, {"price": e.price, "at": e.ts})
        ctx.register_event_time_timer("close", e.ts + 10 * MINUTE)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None: ...


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return {"total": 0.0, "n": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"total": accumulator["total"] + value, "n": accumulator["n"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["total"] / accumulator["n"]


class Means(ProcessWindowFunction):
    """The mean of the totals of the firings of a key, and the totals of a window so far."""

    mean = AggregatingState("STRUCT<total: DOUBLE, n: BIGINT>", Mean())
    totals = ListState("DOUBLE", ttl=timedelta(hours=1))

    def process(self, elements: pa.Table, window: Any, ctx: Any) -> Any:
        [total] = elements.column("total").to_pylist()
        ctx.global_state(self.mean).add(total)
        ctx.window_state(self.totals).add(total)
        return {"mean": ctx.global_state(self.mean).get()}


def test_elements_that_wait_to_be_selected(place: Place) -> None:
    keys = KeyedStream(place.read("keys", "ts TIMESTAMP, user STRING", [(at(0), "bob"), (at(9), "ann")]), "user", "ts")
    state = place.run(connect(Gate(), events=place.events, keys=keys, key_groups=3), "nothing")
    assert [(row["key"]["user"], row["time"]) for row in rows(state.waiting_events("events"))] == [
        ("ann", at(0)),
        ("ann", at(2)),
        ("ann", at(3)),
        ("eve", at(9)),
    ]
    with pytest.raises(StateError, match="the operator has several inputs"):
        state.waiting_events()


def test_match_recognize(place: Place) -> None:
    state = place.run(match_recognize(place.events.df, CLAUSE, max_out_of_orderness=2 * MINUTE), "matches")
    [found] = rows(state.partial_matches(events=True))
    accepted = found.pop("accepted")
    nothing_known = {"rule": None, "version": None, "stage": None, "waits_for": None}
    times = {"since": at(3), "deadline": at(13), "events": 1}
    assert found == {"key": {"user": "ann"}, **nothing_known, **times}
    assert [(row["time"], row["event"]["price"]) for row in accepted] == [(at(3), 4.0)]


def test_a_running_query(place: Place) -> None:
    """The state after a micro-batch can be read while later ones are processed."""
    stream = CEP.pattern(place.events, UNPAID, key_groups=2)
    query = stream.run(nothing("matches"), checkpoint=place.checkpoint, trigger={"processingTime": "0 seconds"})
    assert query is not None
    try:
        query.processAllAvailable()
        assert place.state().partial_matches().count() == 2
        later = pa.table([[at(8)], ["joe"], ["cart"], [7.0]], schema=schema_of(EVENTS))
        write_file(later, place.folder / "events", 1)
        query.processAllAvailable()
        assert [row["key"]["user"] for row in rows(place.state().waiting_events())] == ["eve", "joe"]
        assert read_state(place.spark, place.checkpoint, batch_id=0).partial_matches().count() == 2
    finally:
        query.stop()


def test_the_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.run(CEP.pattern(place.events, UNPAID, key_groups=2), "matches")
    monkeypatch.setenv("COLUMNS", "120")
    shown = CliRunner().invoke(main, ["state", place.checkpoint, "--top", "1"])
    assert shown.exit_code == 0, shown.output
    assert "pattern after micro-batch" in shown.output
    assert "2 partial matches, 1 waiting in events" in shown.output
    assert "2025-01-01 12:10:00" in shown.output
    printed = CliRunner().invoke(main, ["state", place.checkpoint, "--json"])
    found = json.loads(printed.output)
    assert (found["kind"], found["totals"], found["waiting_events"]) == (
        "pattern",
        {"partial_matches": 2},
        {"events": 1},
    )
    assert found["heaviest_keys"][0]["key"] == {"user": "ann"}
    assert found["deadlines"][0]["deadline"] == "2025-01-01T12:10:00+00:00"
    wrong = CliRunner().invoke(main, ["state", str(place.folder / "nowhere")])
    assert (wrong.exit_code, "there is no state of Asterism in" in wrong.output) == (2, True)


def test_windows(place: Place) -> None:
    trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
    stream = window(place.events, TumblingWindows.of(4 * MINUTE), trigger=trigger, allowed_lateness=5 * MINUTE)
    how: dict[str, Any] = {"aggregate": ["sum(price) AS total"], "process": Means(), "schema": "mean DOUBLE"}
    state = place.run(stream, "results", **how)

    def one(user: str, begin: int, firings: int, elements: int) -> dict[str, Any]:
        times = {"window_start": at(begin), "window_end": at(begin + 4), "kept_until": at(begin + 9)}
        return {"key": {"user": user}, **times, "firings": firings, "elements": elements}

    assert rows(state.windows()) == [one("ann", 0, 2, 3), one("bob", 0, 1, 1), one("bob", 4, 0, 1)]
    assert rows(state.heaviest_keys(1)) == [{"key": {"user": "ann"}, "windows": 1, "elements": 3}]
    assert [row["kept_until"] for row in state.deadlines().toArrow().to_pylist()] == [at(9), at(9), at(13)]
    assert [row["time"] for row in rows(state.waiting_events())] == [at(9)]
    assert (state.states, state.keyed_states) == ({"mean": "value", "totals": "list"}, ["mean", "totals"])
    ann, bob = {"user": "ann"}, {"user": "bob"}
    assert rows(state.state("mean")) == [
        {"key": ann, "value": {"total": 12.0, "n": 2}},
        {"key": bob, "value": {"total": 2.0, "n": 1}},
    ]
    assert rows(state.state("totals")) == rows(state.window_state("mean")) == []
    window_totals = rows(state.window_state("totals"))
    assert {row.pop("window_start") for row in window_totals} == {at(0)}
    assert {row.pop("window_end") for row in window_totals} == {at(4)}
    assert [(row["key"], row["position"], row["value"]) for row in window_totals] == [
        (ann, 0, 4.0), (ann, 1, 8.0), (bob, 0, 2.0)
    ]  # fmt: skip
    assert all(row["expires"] > at(60) for row in window_totals)
    with pytest.raises(
        StateError, match=r"the window function has no state of windows 'mea'(.|\n)*It has: mean, totals"
    ):
        state.window_state("mea")
    shown = CliRunner().invoke(main, ["state", place.checkpoint, "--json"])
    assert json.loads(shown.output)["totals"] == {
        "mean": 2, "totals": 0, "mean_of_windows": 0, "totals_of_windows": 3, "windows": 3
    }  # fmt: skip


def test_an_operator(place: Place) -> None:
    limits = BroadcastStream(place.read("limits", "name STRING, price DOUBLE", [("low", 1.0), ("high", 9.0)]))
    state = place.run(connect(Accounts(), events=place.events, limits=limits, key_groups=3), "nothing")
    assert state.states == {"total": "value", "kinds": "list", "last": "map", "limit": "map", "names": "list"}
    ann, bob = {"user": "ann"}, {"user": "bob"}
    assert rows(state.state("total")) == [
        {"key": ann, "value": 8.0, "expires": at(63) - MICROSECOND},
        {"key": bob, "value": 7.0, "expires": at(64) - MICROSECOND},
    ]
    kinds = [(row["key"]["user"], row["position"], row["value"]) for row in rows(state.state("kinds"))]
    assert kinds == [("ann", 0, "cart"), ("ann", 1, "view"), ("ann", 2, "cart"), ("bob", 0, "cart"), ("bob", 1, "buy")]
    assert {"key": ann, "map_key": "cart", "value": {"price": 4.0, "at": at(3)}} in rows(state.state("last"))
    assert rows(state.broadcast("limit")) == [{"map_key": "high", "value": 9.0}, {"map_key": "low", "value": 1.0}]
    assert rows(state.broadcast("names")) == [{"position": 0, "value": "low"}, {"position": 1, "value": "high"}]
    assert [(row["key"], row["name"], row["time"], row["domain"]) for row in rows(state.timers())] == [
        (ann, "close", at(13), "event time"),
        (bob, "close", at(14), "event time"),
    ]
    event = {"ts": at(9), "user": "eve", "kind": "cart", "price": 6.0}
    assert rows(state.waiting_events("events")) == [{"key": {"user": "eve"}, "time": at(9), "event": event}]
    heaviest = state.heaviest_keys().toArrow().to_pylist()
    assert heaviest == [{"key": ann, "entries": 6, "timers": 1}, {"key": bob, "entries": 5, "timers": 1}]
    assert rows(place.state(Accounts).state("total")) == rows(state.state("total"))
    with pytest.raises(StateError, match=r"Accounts has no keyed state 'limit'(.|\n)*Hint: broadcast"):
        state.state("limit")

    class Changed(Accounts):
        total = ValueState("BIGINT")

    with pytest.raises(StateError, match='the state "total" of Changed does not have the type'):
        place.state(Changed)


def test_rules(place: Place) -> None:
    by_kind = PatternProcessor(
        "kinds", 2, Pattern.begin("a").next("b").where("kind = 'x'").within(MINUTE), key=("kind",)
    )
    clause = PatternProcessor("clause", 1, sql=CLAUSE.replace("PARTITION BY user ORDER BY ts", ""))
    (place.folder / "rules.json").write_text(
        json.dumps([one.to_dict() for one in (PatternProcessor("unpaid", 1, UNPAID), by_kind, clause)])
    )
    factory = FilePatternProcessorDiscovererFactory(place.folder / "rules.json")
    state = place.run(CEP.pattern_processors(place.events, factory, key_groups=3), "matches")
    found = [
        (row["key"], row["rule"], row["version"], row["stage"], row["since"], row["deadline"], row["events"])
        for row in rows(state.partial_matches())
    ]
    assert found == [
        (["ann"], "clause", 1, None, at(3), at(13), 1),
        (["ann"], "unpaid", 1, "cart", at(0), at(10), 1),
        (["ann"], "unpaid", 1, "cart", at(3), at(13), 1),
    ]
    keys = [(row["key"], row["rule"], row["partial_matches"]) for row in state.heaviest_keys().toArrow().to_pylist()]
    assert keys == [(["ann"], "unpaid", 2), (["ann"], "clause", 1)]
    accepted = [row["accepted"] for row in rows(state.partial_matches(events=True)) if row["rule"] == "unpaid"]
    assert accepted[0][0]["event"]["kind"] == "cart"
    assert {tuple(row["key"]) for row in rows(state.waiting_events())} == {("eve",), ("cart",)}


def test_state_of_an_earlier_release(spark: SparkSession, tmp_path: Path) -> None:
    """It has no names and types, except with rules: what can be told is told, and the operator tells the rest."""
    places = {}
    for kind in ("pattern", "operator", "window", "rules"):
        query = query_of(kind, tmp_path / kind)
        restore(query, archive_of("0.1.0", kind))
        places[kind] = query

    def state(kind: str, operator: Any = None) -> StateReader:
        return read_state(spark, str(places[kind].checkpoint), operator)

    unknown = rows(state("pattern").partial_matches())
    assert unknown
    assert {row["stage"] for row in unknown} <= {"0", "1"}
    assert all(row["key"] is None and row["since"] is not None for row in unknown)
    stream = CEP.pattern(places["pattern"].events(spark), places["pattern"].pattern, key_groups=2)
    known = rows(state("pattern", stream).partial_matches(events=True))
    assert sorted(row["since"] for row in known) == sorted(row["since"] for row in unknown)
    assert {row["stage"] for row in known} == {"a"}
    assert all(row["key"]["user"] == one["event"]["user"] for row in known for one in row["accepted"])
    assert all(row["deadline"] == row["since"] + MINUTE for row in known)

    from tests.contracts.ledger import Ledger

    of_class = state("operator", Ledger)
    assert all(row["key"] is None and row["value"] is not None for row in rows(of_class.state("balance")))
    assert of_class.state("ids").count() > 3
    assert of_class.broadcast("fee").count() > 0
    assert of_class.timers().count() == of_class.state("balance").count()
    with pytest.raises(StateError, match="there is no state with windows, or it is unknown"):
        state("window").windows()
    assert rows(state("window").key_groups())

    found = rows(state("rules").partial_matches())
    assert all(row["rule"] is not None and row["stage"] is not None and row["key"] is not None for row in found)
    assert all(row["deadline"] > row["since"] for row in found)
