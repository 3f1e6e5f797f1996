"""The state of MATCH_RECOGNIZE, of a query that runs, and of elements that wait."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from asterism import (
    CEP,
    Input,
    InputSelection,
    KeyedStream,
    Output,
    StreamOperator,
    ValueState,
    connect,
    match_recognize,
    read_state,
)
from asterism.cli.main import main
from asterism.columns.schemas import schema_of
from asterism.errors import StateError
from tests.spark import test_state_reader
from tests.spark.streams import write_file
from tests.spark.test_state_reader import CLAUSE, EVENTS, MINUTE, UNPAID, Place, at, nothing, rows

pytestmark = pytest.mark.spark
place = test_state_reader.place


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
