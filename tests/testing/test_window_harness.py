"""The harness of windows: its words, its comparisons, and every transcript of tests/windows once more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import (
    CountTrigger,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    ProcessingTimeTrigger,
    SessionWindows,
    SlidingWindows,
    Trigger,
    TriggerResult,
    TumblingWindows,
)
from asterism.errors import InvalidEventError, StreamDefinitionError
from asterism.testing import EVENTS, WindowFiring, WindowHarness, assert_firings, check_window_independence
from tests.windows import transcripts
from tests.windows.driver import ROW, SCHEMA, is_dynamic, session_texts, values_of

TEN = TumblingWindows.of(timedelta(seconds=10))
EARLY = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))


@pytest.mark.parametrize(
    "case", [case for case in transcripts.cases() if not is_dynamic(case)][::4], ids=lambda one: one.name
)
def test_transcripts_of_the_operator(case: transcripts.Case) -> None:
    harness = WindowHarness(
        case.window,
        case.trigger,
        SCHEMA,
        process=values_of,
        schema=ROW,
        allowed_lateness=timedelta(milliseconds=case.lateness),
        evictor=case.evict,
        in_order=case.in_order,
        keys=["k"] if case.keyed else [],
        time="t" if case.event else None,
        closing=case.closing,
        on_time=case.on_time,
        session_ids=case.session_ids,
    )
    sessions = session_texts(case) if case.session_ids else {}
    for step in case.steps:
        before, late, unfired = len(harness.found()), len(harness.rows("late")), harness.unfired
        match step.action:
            case "in":
                harness.send([{"k": one.key, "t": one.time, "v": one.value} for one in step.elements])
            case "watermark":
                harness.advance_watermark(timedelta(milliseconds=step.time))
            case "processing_time":
                harness.advance_processing_time(timedelta(milliseconds=step.time))
            case "end":
                harness.end()
        found = [
            transcripts.firing_text(
                one.key[0] if one.key else "*",
                *((time // 1000) if time is not None else transcripts.END for time in (one.start, one.end)),
                one.number, one.kind, one.is_last, row["values"],
                (sessions[row["session_id"]], [sessions[old] for old in row["replaces"]]) if sessions else None,
            )
            for one, row in list(zip(harness.found(), harness.results, strict=True))[before:]
        ]  # fmt: skip
        found += [transcripts.late_text(row["k"], row["v"], row["t"]) for row in harness.rows("late")[late:]]
        found += [f"unfired {harness.unfired - unfired}"] if harness.unfired > unfired else []
        assert sorted(found) == sorted(step.expected)


def test_a_transcript_may_say_how_many_elements_never_fired() -> None:
    steps = "in a1@1s a2@2s a3@3s\nfires [0s,10s): a1 a2\nwatermark 10s\nunfired "
    harness = WindowHarness(TEN, CountTrigger.at_least(2), in_order=False)
    harness.play(steps + "1")
    with pytest.raises(
        AssertionError, match=r'step 2, "watermark 10s": 1 missing, 1 unexpected\n  - unfired 3\n  . unfired 1'
    ):
        harness.again().play(steps + "3")
    with pytest.raises(InvalidEventError, match="not a step: 'unfired many'"):
        harness.again().play(steps + "many")


def test_a_transcript_of_keys_and_late_elements() -> None:
    harness = WindowHarness(
        SlidingWindows.of(timedelta(seconds=10), timedelta(seconds=5)),
        EARLY,
        in_order=False,
        allowed_lateness=timedelta(seconds=5),
    ).play("""
        in ann.a1@6s bob.b2@7s
        in ann.a3@8s                       -- two windows have two elements now
        fires ann [0s,10s) #1 early: a1 a3
        fires ann [5,15) #1 early: a1 a3

        watermark 10s
        fires ann [0s,10s) #2 on_time: a1 a3
        fires bob [0s,10s) on_time: b2
        in ann.a4@9s
        fires ann [0s,10s) #3 late: a1 a3 a4
        watermark 15s
        fires ann [5s,15s) on_time: a1 a3 a4
        fires bob [00:05,00:15)
        in ann.a5@1s
        late ann.a5
        end
    """)
    assert harness.is_empty
    assert harness.late == ["ann.a5"]


def test_contents() -> None:
    sums = WindowHarness(TEN, aggregate=["sum(value) AS total", "min(kind) AS first"])
    assert sums.send("a1 b2").end().firings == ["[0s,10s) #1 on_time!: total=3 first=a"]
    assert sums.again(aggregate="max(value) AS v").send("null.a1 a(value=null)").end().firings[0].endswith(": v=1")
    schema = pa.schema([field for field in EVENTS if field.name != "kind"])  # a column of the firing
    added = sums.again(
        columns=schema, aggregate=None, reduce=lambda one, two: two | {"value": one["value"] + two["value"]}
    )
    rows = [{"ts": datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC), "value": second} for second in (1, 2)]
    assert added.send(rows).end().results[0]["value"] == 3
    last = WindowHarness(GlobalWindows(), CountTrigger.at_least(2), evictor=Evictor.count(1), in_order=False)
    assert last.send("ann.a1 ann.b2 ann.c3").firings == ["ann global #1 early: b2"]


def test_processing_time() -> None:
    harness = WindowHarness(TEN, ProcessingTimeTrigger.after_end_of_window(), time=None)
    harness.play("""
        in a1
        processing_time 9s
        in a2
        processing_time 10s
        fires [0s,10s) on_time!: a1 a2
    """)


def test_firings_are_compared_by_what_is_said() -> None:
    one = WindowFiring(("ann",), 0, 10_000_000, 2, "on_time", False, "a1 b2")
    assert one.text() == "ann [0s,10s) #2 on_time: a1 b2"
    for expected in ("[0,10)", "ann [0s,10s)", "[0s,10s) #2", "[0s,10s) on_time", "ann [0,10) #2 on_time:  a1  b2"):
        assert one.fits(expected)
    for expected in ("bob [0,10)", "[0,11)", "global", "[0,10) #1", "[0,10) late", "[0,10)!", "[0,10): a1", "[0,10):"):
        assert not one.fits(expected)
    with pytest.raises(StreamDefinitionError, match=r"not a firing: '0 to 10'"):
        one.fits("0 to 10")


def test_the_most_precise_expectation_is_compared_first() -> None:
    harness = WindowHarness(TEN, EARLY, in_order=False).send("a1@1s a2@2s a3@3s").end()
    assert_firings(harness, ["[0s,10s)", "[0s,10s) #1 early: a1 a2"])
    with pytest.raises(AssertionError) as raised:
        assert_firings(harness, ["[0s,10s) #1 early: a1 a2", "[0s,10s) #3"])
    assert str(raised.value).splitlines() == [
        "firings: 1 missing, 1 unexpected",
        "    [0s,10s) #1 early: a1 a2",
        "  - [0s,10s) #3",
        "  + [0s,10s) #2 on_time!: a1 a2 a3",
    ]


@pytest.mark.parametrize("line", ["on a1@1s", "fires [0s,10s): a1", "watermarks 10s", "end now", "in a1@3s\nfires a1"])
def test_lines_that_are_no_step(line: str) -> None:
    with pytest.raises((InvalidEventError, StreamDefinitionError), match=r"is not a step|not a firing"):
        WindowHarness(TEN).play(line)


class Second(Trigger):
    """Fires with every second element of the process, whatever its window."""

    def __init__(self) -> None:
        self.seen = 0

    def on_element(self, element: Any, window: Any, ctx: Any) -> TriggerResult:
        self.seen += 1
        return TriggerResult.CONTINUE if self.seen % 2 else TriggerResult.FIRE


def test_a_trigger_that_keeps_state_of_its_own_is_found() -> None:
    with pytest.raises(AssertionError, match="a firing depends on how the elements arrive"):
        check_window_independence(TEN, Second(), "ann.a1 bob.a2 ann.a3")


def test_sessions_are_independent_of_batches() -> None:
    gap = SessionWindows.with_gap(timedelta(seconds=3))
    late = {"allowed_lateness": timedelta(seconds=4), "aggregate": "count(*) AS n"}
    whole = check_window_independence(gap, EARLY, "ann.a1@1s ann.a2@5s ann.a3@3s |6s bob.a4@4s ann.a5@1s |end", **late)
    assert whole.metrics["late"] == 0
    assert isinstance(whole.output("firings"), pa.Table)


def test_columns_are_those_of_the_elements_and_a_schema_that_of_process() -> None:
    """As in ``run``; a schema alone is likely meant to be the columns."""
    columns = "ts TIMESTAMP, user STRING"
    harness = WindowHarness(TEN, None, columns, process=lambda rows, window: {"n": rows.num_rows}, schema="n INT")
    assert [
        row["n"] for row in harness.send([{"ts": datetime(1970, 1, 1, tzinfo=UTC), "user": "ann"}]).end().results
    ] == [1]
    with pytest.raises(StreamDefinitionError, match=r"there is no process(.|\n)*Hint: columns=") as caught:
        WindowHarness(TEN, schema=columns)
    assert caught.value.code == "STREAM_DEFINITION"
