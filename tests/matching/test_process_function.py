"""Match functions with outputs of their own, and functions that are opened and closed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism import (
    Counter,
    Gauge,
    Histogram,
    IterativeCondition,
    MatchContext,
    OpenContext,
    Output,
    Pattern,
    PatternProcessFunction,
    ValueState,
)
from asterism.errors import EvaluationFailedError, OperatorError, StreamDefinitionError, UserFunctionError
from asterism.testing import EVENTS, PatternHarness, check_independence
from asterism.trace import trace

PAID = Pattern.begin("order").where("kind = 'o'").followed_by("pay").where("kind = 'p'").within(timedelta(seconds=10))
STREAM = "ann.o1@1s bob.o2@2s ann.p300@3s bob.p5@4s eve.o9@5s ann.o7@6s bob.x0@30s"


class Payments(PatternProcessFunction):
    large = Output("match_id STRING, amount DOUBLE")
    unpaid = Output("user STRING, since TIMESTAMP, value DOUBLE")
    seen = Counter()
    biggest = Gauge("max")
    amounts = Histogram([10, 100])

    def process_matches(self, matches: pa.Table, ctx: MatchContext) -> pa.Table:
        self.seen.inc(matches.num_rows)
        amounts = [match["pay"][0]["value"] for match in matches.to_pylist()]
        for id, amount in zip(matches["match_id"].to_pylist(), amounts, strict=True):
            self.amounts.update(amount)
            if amount > 100:
                self.large.collect(match_id=id, amount=amount)
        self.biggest.set(max(amounts))
        return pa.table({"user": matches["key"], "amount": pa.array(amounts)})

    def process_timed_out_matches(self, matches: pa.Table, ctx: MatchContext) -> None:
        rows = [
            {"since": match["start_time"], "user": match["key"], "value": match["order"][0]["value"]}
            for match in matches.to_pylist()
        ]
        self.unpaid.collect_batch(pa.Table.from_pylist(rows))


PROCESS: dict[str, Any] = {"process": Payments(), "schema": "user STRING, amount DOUBLE"}


def test_one_function_fills_several_outputs() -> None:
    harness = PatternHarness(PAID, **PROCESS).send(STREAM).end()
    assert sorted((row["user"], row["amount"]) for row in harness.processed) == [("ann", 300.0), ("bob", 5.0)]
    assert [row["amount"] for row in harness.rows("large")] == [300.0]
    assert sorted(row["user"] for row in harness.rows("unpaid")) == ["ann", "eve"]
    assert harness.matches == ["ann.o1 ann.p300", "bob.o2 bob.p5"], "the usual outputs remain"
    (large,) = harness.rows("large")
    assert large["match_id"] in harness.output("matches")["match_id"].to_pylist()
    assert (harness.metrics["seen"], harness.gauges) == (2, {"biggest": 300.0})
    assert harness.histograms["amounts"].buckets == {10: 1, 100: 1}


def test_outputs_do_not_depend_on_batches_restarts_and_key_groups() -> None:
    harness = check_independence(PAID, STREAM, **PROCESS)
    assert len(harness.rows("unpaid")) == 2


def test_outputs_do_not_depend_on_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    import asterism.matching.matcher as module

    whole = PatternHarness(PAID, **PROCESS).send(STREAM).end()
    monkeypatch.setattr(module, "SLICE", 1)
    sliced = PatternHarness(PAID, **PROCESS).send(STREAM).end()
    for output in ("large", "unpaid", "processed"):
        assert sorted(map(str, sliced.rows(output))) == sorted(map(str, whole.rows(output)))


def test_a_function_may_have_no_main_output() -> None:
    class Ids(PatternProcessFunction):
        ids = Output("id STRING")

        def process_matches(self, matches: pa.Table, ctx: MatchContext) -> None:
            self.ids.collect_batch(pa.table({"id": matches["match_id"]}))

    harness = PatternHarness(PAID, process=Ids()).send(STREAM).end()
    assert len(harness.rows("ids")) == 2
    assert harness.timed_out == ["eve.o9", "ann.o7"]


def test_what_a_failed_call_has_emitted_is_discarded() -> None:
    failing = [True]

    class Fails(PatternProcessFunction):
        ids = Output("id STRING")
        calls = Counter()

        def process_matches(self, matches: pa.Table, ctx: MatchContext) -> None:
            self.calls.inc()
            self.ids.collect(id="x")
            if failing:
                failing.clear()
                raise ValueError("no")

    harness = PatternHarness(Pattern.begin("a"), process=Fails()).send("a1@1s")
    with pytest.raises(UserFunctionError, match="process_matches failed"):
        harness.advance_watermark("1s")
    harness.advance_watermark("1s").end()
    assert harness.rows("ids") == [{"id": "x"}]
    assert harness.metrics["calls"] == 1


def function(of: Callable[[PatternProcessFunction, pa.Table], Any], **declared: Any) -> PatternProcessFunction:
    made = {"process_matches": lambda self, matches, ctx: of(self, matches), **declared}
    made_by: Any = type("Made", (PatternProcessFunction,), made)
    for name, value in declared.items():
        if hasattr(value, "__set_name__"):
            value.__set_name__(made_by, name)
    return made_by()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("of", "columns", "error", "message"),
    [
        (lambda self, matches: matches, None, OperatorError, "returned rows, but there is no main output"),
        (lambda self, matches: None, "n INT", EvaluationFailedError, "must return a pyarrow.Table with the columns n"),
        (lambda self, matches: self.out.collect(z=1), None, OperatorError, "has no column 'z'"),
        (lambda self, matches: self.out.collect(n="x"), None, OperatorError, "a row does not fit the output"),
        (lambda self, matches: 1 / 0, None, UserFunctionError, "process_matches failed"),
    ],
)
def test_what_does_not_fit_is_refused(of: Any, columns: str | None, error: type[Exception], message: str) -> None:
    process = function(of, out=Output("n BIGINT"))
    with pytest.raises(error, match=message):
        PatternHarness(Pattern.begin("a"), process=process, schema=columns).send("a1").end()


def test_rows_are_not_returned_for_timeouts() -> None:
    process = function(lambda self, matches: None, process_timed_out_matches=lambda self, matches, ctx: matches)
    with pytest.raises(UserFunctionError, match="which no output has"):
        PatternHarness(PAID, process=process).send("ann.o1@1s").end()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"open": Output("n INT")}, 'declares "open", which is a method of every match function'),
        ({"state": ValueState("INT")}, 'declares "state", but a match function has no ValueState'),
    ],
)
def test_declarations_are_checked_with_the_class(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(StreamDefinitionError, match=message):
        type("Wrong", (PatternProcessFunction,), {"process_matches": lambda self, matches, ctx: None, **declared})


@pytest.mark.parametrize(
    "declared", [{"late": Output("n INT")}, {"timed_out": Output("n INT")}, {"late_elements": Counter()}]
)
def test_usual_names_are_taken(declared: dict[str, Any]) -> None:
    with pytest.raises(StreamDefinitionError, match="which a query has anyway"):
        PatternHarness(PAID, process=function(lambda self, matches: None, **declared))


def test_an_output_is_used_only_for_matches() -> None:
    kept: list[Any] = []

    def keep(self: Any, matches: pa.Table) -> None:
        kept.append(self)

    harness = PatternHarness(Pattern.begin("a"), process=function(keep, out=Output("n BIGINT"))).send("a1").end()
    assert harness.rows("out") == []
    with pytest.raises(OperatorError, match="only while the function processes matches"):
        kept[0].out.collect(n=1)


# ---------------------------------------------------------------------- open and close

LOG: list[str] = []


class Rich:
    def open(self, context: OpenContext) -> None:
        self.columns = context.schema.names  # used by each call
        self.connection = lambda: None  # cannot be pickled
        LOG.append("open")

    def close(self) -> None:
        LOG.append("close")


class IsA(Rich):
    def __call__(self, events: pa.Table) -> pa.ChunkedArray:
        assert self.columns == EVENTS.names
        return pc.equal(events["kind"], "a")


class IsB(Rich):
    def __call__(self, event: Any, context: Any) -> bool:
        assert self.columns == EVENTS.names
        return bool(event.kind == "b")


class Counted(Rich):
    def __call__(self, matches: pa.Table) -> pa.Table:
        assert self.columns == EVENTS.names
        return pa.table({"n": pa.array([1] * matches.num_rows)})


class Opened(Rich, PatternProcessFunction):
    seen = Counter()

    def process_matches(self, matches: pa.Table, ctx: MatchContext) -> None:
        assert self.columns == EVENTS.names
        self.seen.inc()


@pytest.fixture(autouse=True)
def log() -> list[str]:
    LOG.clear()
    return LOG


CASES: dict[str, tuple[Pattern, dict[str, Any]]] = {
    "batches": (Pattern.begin("a").where(IsA()), {}),
    "events": (Pattern.begin("b").where(IterativeCondition(IsB())), {}),
    "matches": (Pattern.begin("any"), {"process": Counted(), "schema": "n BIGINT"}),
    "outputs": (Pattern.begin("any"), {"process": Opened()}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_function_is_opened_once_and_closed_once(case: str, log: list[str]) -> None:
    pattern, options = CASES[case]
    harness = PatternHarness(pattern, key_groups=3, **options)
    assert log == []
    harness.send("ann.a1@1s bob.b2@2s").send("eve.a3@3s eve.b4@4s").advance_watermark()
    assert log == ["open"]
    assert pickle.loads(pickle.dumps(harness.operator)).fingerprint == harness.operator.fingerprint
    harness.end().close()
    assert log == ["open", "close"]
    check_independence(pattern, "ann.a1@1s bob.b2@2s eve.a3@3s eve.b4@4s", **options)
    assert log.count("open") == log.count("close") > 1


def test_a_function_that_is_not_called_is_not_opened(log: list[str]) -> None:
    PatternHarness(PAID, process=Opened()).send("ann.o1@1s").end()
    assert log == []


def test_one_function_in_two_stages_is_opened_once(log: list[str]) -> None:
    is_a = IsA()
    harness = PatternHarness(Pattern.begin("a").where(is_a).next("b").where(is_a)).send("a1 a2").end()
    assert (harness.matches, log) == (["a1 a2"], ["open", "close"])


def test_it_is_closed_after_a_failure(log: list[str]) -> None:
    class Fails(IsA):
        def __call__(self, events: pa.Table) -> pa.ChunkedArray:
            raise ValueError("no")

    harness = PatternHarness(Pattern.begin("a").where(Fails()))
    with pytest.raises(EvaluationFailedError, match="condition Fails failed"):
        harness.send("a1")
    assert log == ["open", "close"]


def test_close_alone_and_open_alone() -> None:
    calls: list[str] = []

    class OnlyClose:
        def __call__(self, events: pa.Table) -> pa.ChunkedArray:
            return pc.equal(events["kind"], "a")

        def close(self) -> None:
            calls.append("close")

    class OnlyOpen(OnlyClose):
        close = None  # type: ignore[assignment]

        def open(self, context: OpenContext) -> None:
            calls.append("open")

    assert PatternHarness(Pattern.begin("a").where(OnlyClose())).send("a1").end().matches == ["a1"]
    assert PatternHarness(Pattern.begin("a").where(OnlyOpen())).send("a1").end().matches == ["a1"]
    assert calls == ["close", "open"]


@pytest.mark.parametrize("method", ["open", "close"])
def test_what_cannot_be_opened_or_closed_fails(method: str) -> None:
    def fails(self: Any, *context: Any) -> None:
        raise ConnectionError("no route")

    wrong = type("Wrong", (IsA,), {method: fails})()
    with pytest.raises(UserFunctionError, match=rf"Wrong\.{method} failed\n  ConnectionError: no route"):
        PatternHarness(Pattern.begin("a").where(wrong)).send("a1").end()


def test_open_takes_the_context() -> None:
    wrong = type("Wrong", (IsA,), {"open": lambda self: None})()
    with pytest.raises(StreamDefinitionError, match=r"Wrong\.open cannot be called"):
        PatternHarness(Pattern.begin("a").where(wrong))


def test_a_trace_opens_and_closes_conditions(log: list[str]) -> None:
    def is_a(events: pa.Table) -> pa.ChunkedArray:
        return pc.equal(events["kind"], "a")

    class Is(Rich):
        def __call__(self, event: Any, context: Any) -> bool:
            return bool(event.kind == "b" and self.columns)

    class All(Rich):
        def __call__(self, events: pa.Table) -> pa.ChunkedArray:
            return is_a(events) if self.columns else None

    traced = trace(
        Pattern.begin("a").where(All()).next("b").where(IterativeCondition(Is())),
        [{"kind": k} for k in "ab"],
        time=None,
    )
    assert len(traced.matches) == 1
    assert sorted(log) == ["close", "close", "open", "open"]
