"""What a monitor shows of a query, without a Spark session."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asterism import monitor
from asterism.rules.sets.rule_counts import MATCHES, PARTIAL_MATCHES, error_metric, metric
from asterism.rules.sets.set_store import FolderStore
from asterism.spark.progress.rule_progress import count
from asterism.spark.watching.monitor import MAX_RULES, plain_error
from tests.spark.progress import RUN, WrittenQuery, WrittenSession, of_rules, on_connect, progress


def test_numbers_of_a_query() -> None:
    time = {"watermark": "2026-01-31T11:59:30.000Z", "max": "2026-01-31T11:59:50.000Z"}
    query = WrittenQuery([progress(4), progress(5, arrived=60.0, event_time=time)])
    assert (
        str(monitor(query))
        == """\
query        carts
status       active: Waiting for data to arrive
micro-batch  5, began 2026-01-31 12:00:05 UTC, took 2.0 s
input        100 rows, 60 rows/s
processed    50 rows/s
watermark    2026-01-31 11:59:30 UTC, 20 s behind the newest event, 35 s behind the clock
state        1,234 rows, 5.6 MB
asterism     matches 3 (6), timed_out 1 (2), late_elements 2 (4), partial_matches_dropped 0 (0)
             in the micro-batch (in parentheses: since micro-batch 4)"""
    )
    assert repr(monitor(query)) == str(monitor(query))


def test_a_query_that_falls_behind() -> None:
    batches = [progress(number, arrived=60.0) for number in range(3)]
    shown = str(monitor(WrittenQuery(batches)))
    assert "processed    50 rows/s, slower than the input in 3 micro-batches in a row" in shown
    caught_up = [progress(0, arrived=60.0), progress(1, arrived=40.0), progress(2, arrived=60.0)]
    assert "slower" not in str(monitor(WrittenQuery(caught_up)))


def test_a_query_that_has_only_begun() -> None:
    shown = str(monitor(WrittenQuery(name=None)))
    assert shown.splitlines()[0] == f"query        {WrittenQuery.id}"
    assert shown.endswith("micro-batch  none has been completed")
    first = progress(event_time={"watermark": "1970-01-01T00:00:00.000Z"}, arrived=float("nan"))
    shown = str(monitor(WrittenQuery([first])))
    assert "watermark    not in the progress of this query" in shown
    assert "input        100 rows, no rate" in shown
    assert "<svg" not in monitor(WrittenQuery([first]))._repr_html_()


RULES = of_rules(
    {
        metric(MATCHES, ("a <b>", 2, 1)): 5,
        metric(PARTIAL_MATCHES, ("a <b>", 2, 1)): 4,
    },
    {
        error_metric(("c", 1, 1), "no price", 0): 1,
        metric(MATCHES, ("a <b>", 2, 1)): 1,
    },
)


WATERMARKS = {
    "asterism_watermark": {"micros": 1_769_860_795_000_000},
    "asterism_2_watermark": {"micros": 1_769_860_799_000_000},
}


def test_partitions_that_hold_back_the_watermark() -> None:
    late = {
        "micros": 1_769_860_795_000_000,
        "behind": json.dumps({'/behind ["events", {"shard": "a", "n": null}]': 7_200_000_000}),
    }
    for observed in ({"asterism_watermark": late}, on_connect({"asterism_watermark": late})):
        # No key group was called in the last micro-batch.
        empty = progress(2, observed={"asterism_watermark": {"micros": None, "behind": None}})
        shown = str(monitor(WrittenQuery([progress(1, observed=observed), empty]))).splitlines()
        assert any(line.startswith("watermark    2026-01-31 11:59:55 UTC") for line in shown)
        assert "held back    by shard=a, n=NULL of events, 2 h behind the fastest partition" in shown


def test_states_of_rules() -> None:
    seen = RULES | WATERMARKS
    batches = [progress(0, observed=seen), progress(1, observed=seen, discovery="interrupted: the file is missing")]
    shown = str(monitor(WrittenQuery(batches))).splitlines()
    assert "watermark    2026-01-31 11:59:55 UTC, 6 s behind the clock" in shown
    assert "asterism     matches 7 (14), late_elements 0 (0)" in shown
    assert "rules        interrupted: the file is missing: the rules may not be up to date" in shown
    assert shown[-3:] == [
        "rule   version  matches  timed out  partial matches  errors  last match  state",
        "c      1        0        0          0                2                   disabled in 2 key groups: no price",
        "a <b>  2        12       0          8                0",
    ]
    # The changes before the first micro-batch that Spark still has are not known.
    shown = str(monitor(WrittenQuery([progress(5, observed=RULES, discovery="valid")]))).splitlines()
    assert "rules        valid" in shown
    assert shown[-1] == "a <b>  2        6        0          ?                0"


def test_counts_of_rules_in_all_runs(tmp_path: Path) -> None:
    """As the process that started the query knows them."""
    session: Any = WrittenSession()
    store = FolderStore(str(tmp_path))
    store.claim("owner")
    query: Any = SimpleNamespace(runId=RUN, recentProgress=[], isActive=True)
    counted = count(session, query, "asterism", store)
    for batch in range(6):
        counted.add(progress(batch, query=RUN, observed=RULES))
    shown = str(monitor(WrittenQuery([progress(5, query=RUN, observed=RULES)]))).splitlines()
    assert shown[-1] == "a <b>  2        36       0          24               0"
    counted.end(RUN, None)


def test_counts_on_spark_connect() -> None:
    classic, connect = ([progress(observed=observed)] for observed in (RULES, on_connect(RULES)))
    assert str(monitor(WrittenQuery(connect))) == str(monitor(WrittenQuery(classic)))


def test_only_some_rules_are_listed() -> None:
    rules = {metric(MATCHES, (f"rule {number}", 1, 1)): number for number in range(MAX_RULES + 3)}
    lines = str(monitor(WrittenQuery([progress(observed=of_rules(rules))]))).splitlines()
    assert [line.split()[1] for line in lines[-2:]] == ["3", "more)"]
    assert lines[-1].split()[2:] == ["3"]


def test_html_is_escaped_and_has_a_drawing() -> None:
    query = WrittenQuery([progress(number, observed=RULES, arrived=number) for number in range(5)], name="<script>")
    shown = monitor(query)._repr_html_()
    assert "<script" not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;" in shown
    assert "a &lt;b&gt;" in shown
    svg = ET.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6])
    assert [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text") if text.text and text.text.strip()] == [
        "rows per second, up to 50",
        "input",
        "processed",
        "micro-batches 0 to 4",
    ]
    ET.fromstring(f"<div>{shown}</div>")


FAILURE = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: ...
Traceback (most recent call last):
  File "/usr/lib/operator.py", line 377, in event_times
asterism.errors.InvalidEventError: the event time "ts" of 5 events is null
  An event without a time cannot be ordered.
  Hint: drop the events in which ts IS NULL, or write the late output in the same run

=== Streaming Query ===
Identifier: carts"""


def test_errors_in_plain_words() -> None:
    shown = str(monitor(WrittenQuery(isActive=False, error=RuntimeError(FAILURE))))
    assert (
        shown
        == """\
query        carts
status       ended
error        InvalidEventError: the event time "ts" of 5 events is null
             An event without a time cannot be ordered.
             Hint: drop the events in which ts IS NULL, or write the late output in the same run
micro-batch  none has been completed"""
    )
    assert plain_error("\njava.io.IOException: no space\n\tat java.base") == "java.io.IOException: no space"
    assert plain_error("") == "no message"


def test_a_session_that_has_ended() -> None:
    class Gone(WrittenQuery):
        @property
        def recentProgress(self) -> Any:
            raise RuntimeError("the JVM is gone")

        @recentProgress.setter
        def recentProgress(self, value: Any) -> None: ...

    assert str(monitor(Gone())) == "status  the query cannot be reached: the JVM is gone"


def test_a_live_view_ends_with_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    query, shown = WrittenQuery([progress(0)]), []

    class Handle:
        def update(self, view: Any) -> None:
            shown.append(str(view).splitlines()[1])
            query.isActive = len(shown) < 2

    def display(view: Any, *, display_id: bool) -> Handle:
        shown.clear()
        assert display_id
        return Handle()

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monitor(query).live(seconds=60, interval=0.001)
    assert shown == ["status       active: Waiting for data to arrive"] * 2 + ["status       ended"]
    query.isActive = True
    monitor(query).live(seconds=0.001)
    assert len(shown) == 1
