"""Rules that are tried on events: matches, keys and traces."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism.columns.schemas import schema_of
from asterism.console import samples as module
from asterism.console.samples import Samples, SampleSettings, events_in, with_columns_of
from asterism.console.worker import WorkerProcess
from asterism.errors import AsterismError, StreamDefinitionError
from tests.console.kit import COLUMNS, EVENTS, graph, rule

SETTINGS = SampleSettings(COLUMNS, time="ts")
JSON_LINES = "\n".join(
    json.dumps(dict(zip(EVENTS.splitlines()[0].split(","), line.split(","), strict=True)))
    for line in EVENTS.splitlines()[1:]
)


def tried(item: dict[str, Any], events: str = EVENTS, key: Any = None, settings: SampleSettings = SETTINGS) -> Any:
    return Samples(settings).answer({"do": "sample", "rule": item, "events": events, "key": key})


@pytest.mark.parametrize("text", [EVENTS, JSON_LINES, f"[{JSON_LINES.replace(chr(10), ',')}]"])
def test_events_are_csv_or_json(text: str) -> None:
    table = events_in(text, schema_of(COLUMNS), "ts")
    assert table.schema.field("ts").type == pa.timestamp("us", "UTC")
    assert table.column("price").to_pylist() == [1.0, 2.0, 3.0, 4.0]
    assert events_in('{"a": 1}\n\n{"a": null, "b": "x"}', None, None).to_pylist() == [
        {"a": 1, "b": None}, {"a": None, "b": "x"},
    ]  # fmt: skip
    # A column that no event has is NULL.
    schema = schema_of(COLUMNS)
    assert with_columns_of(events_in("user\nann\n", schema, None), schema).column("price").to_pylist() == [None]


def test_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 3)
    monkeypatch.setattr(module, "MAX_COLUMNS", 3)
    monkeypatch.setattr(module, "MAX_TEXT", 100)
    for text, message in [
        ("a\n1\n2\n3\n4\n", "4 events"), ('{"a": 1}\n' * 4, "4 events"), (f"[{'{},' * 4}{{}}]", "events"),
        ("a,b,c,d\n1,2,3,4\n", "4 columns"), ('{"a":1,"b":1,"c":1,"d":1}', "4 columns"), ("a\n" + "1" * 100, "102 characters"),
        ("a,a\n1,2\n", "same name"), ("a\n", "no events"), ("[]", "no events"), ("a,b\n1\n", "cannot be read"),
        ('{"a": {"b": [1, {"c": 2}]}}\n{"a": 5}', "cannot be read"),
    ]:  # fmt: skip
        with pytest.raises(AsterismError, match=message):
            events_in(text, None, None)


def test_matches_are_found_with_their_events() -> None:
    for item, events in (
        (rule(), [["A", 1], ["B", 3]]),
        (graph(select=["second.price AS price"]), [["first", 1], ["second", 3]]),
    ):
        found = tried(item)
        assert found["matches"] == [
            {
                "key": ["ann"], "start": "2026-01-31 12:00:01", "end": "2026-01-31 12:00:03", "time": "2026-01-31 12:00:03",
                "events": events, "measures": {"price": "3.0"}, "suppressed": 0,
            }
        ]  # fmt: skip
        assert found["keys"] == [
            {"key": ["ann"], "events": 2, "matches": 1}, {"key": ["bob"], "events": 2, "matches": 0},
        ]  # fmt: skip
        assert found["columns"][0] == ["ts", "TIMESTAMP"]
        assert found["rows"][0] == ["2026-01-31 12:00:01", "ann", "a", "1.0"]


def test_rules_read_lookups(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("name,most\nann,2\nbob,1\n")
    settings = replace(SETTINGS, lookups=(("users", str(tmp_path / "users.csv"), "name=user"),))
    schema = Samples(settings).schema()
    assert schema is not None
    assert schema.names[-1] == "users"
    item = graph(condition="price < users.most", select=["first.users.most AS most"])
    found = tried(item, settings=settings)
    assert [one["measures"] for one in found["matches"]] == [{"most": "2"}]
    assert found["trace"]["lines"]
    # A sample can have the values itself.
    lines = [json.loads(line) | {"users": {"name": "x", "most": 1}} for line in JSON_LINES.splitlines()]
    assert tried(item, "\n".join(map(json.dumps, lines)), settings=settings)["matches"] == []
    wrong = replace(SETTINGS, lookups=(("users", str(tmp_path / "nosuch.csv"), "name=user"),))
    with pytest.raises(AsterismError, match="nosuch"):
        Samples(wrong).schema()


def test_the_trace_is_of_the_chosen_key() -> None:
    for item in (rule(), graph()):
        assert tried(item)["trace"]["key"] == ["ann"]
        trace = tried(item, key=["bob"])["trace"]
        assert trace["key"] == ["bob"]
        text = "\n".join(line for _, line in trace["lines"])
        assert "kind = 'b' is false (kind='c')" in text
        assert tried(item, key=["nobody"])["trace"]["key"] == ["ann"]


def test_keys_are_expressions() -> None:
    found = tried(graph(key=["upper(user)", "length(user)"]))
    assert found["key"] == ["upper(user)", "length(user)"]
    assert [one["key"] for one in found["keys"]] == [["ANN", "3"], ["BOB", "3"]]
    assert found["matches"][0]["key"] == found["trace"]["key"] == ["ANN", "3"]
    assert tried(graph(key=[]))["keys"] == [{"key": [], "events": 4, "matches": 2}]
    without_key = {name: value for name, value in graph().items() if name != "key"}
    assert tried(without_key, settings=SampleSettings(COLUMNS, time="ts", keys=("user",)))["matches"][0]["key"] == [
        "ann"
    ]


def test_a_rule_is_tried_as_if_it_were_in_force() -> None:
    assert len(tried(rule(timestamp="2099-01-01", expires="2099-01-02"))["matches"]) == 1
    events = EVENTS + "2026-01-31 12:00:05,ann,a,5\n2026-01-31 12:00:06,ann,b,6\n"
    assert len(tried(rule(), events)["matches"]) == 2
    found = tried(rule(suppress={"for": "1 hour"}), events)
    assert (len(found["matches"]), found["suppressed"]) == (1, 1)
    assert "suppressed" not in tried(rule(), events)
    assert len(tried(rule(shadow=True))["matches"]) == len(tried(graph(shadow=True))["matches"]) == 1
    assert len(tried(graph(function="nosuch"))["matches"]) == 1


def test_timed_out_partial_matches_are_shown() -> None:
    item = graph(timedOut=True)
    item["pattern"]["window"] = {"type": "FIRST_AND_LAST", "time": {"unit": "SECONDS", "size": 1}}
    found = tried(item)
    assert found["matches"] == []
    assert [one["events"] for one in found["timedOut"]] == [[["first", 1]], [["first", 2]]]


def test_failures_are_told() -> None:
    error = tried(graph(condition="kind = 'a' AND 1 / (price - 1) > 0"))["error"]
    assert error["message"] == 'the pattern processor "graph" version 1 failed'
    assert "division by zero" in error["detail"].lower()
    with pytest.raises(AsterismError, match="nosuch"):
        tried(graph(key=["nosuch"]))
    assert "nosuch" in tried(graph(condition="nosuch = 1"))["error"]["message"]


def test_columns_that_a_sample_lacks_are_named() -> None:
    """They are NULL, so that a rule may find matches over several keys, or none."""
    events = EVENTS.replace("user", "usr").replace("price", "amount")
    assert tried(rule(), events)["missing"] == [
        "No event has user, which the rule reads: it is NULL. Did you mean user by usr?",
        "No event has price, which the rule reads: it is NULL.",
    ]
    item = {name: value for name, value in graph().items() if name != "key"}
    assert tried(item, events.replace("kind", "k"), settings=replace(SETTINGS, keys=("user",)))["missing"] == [
        "No event has user, which the rule reads: it is NULL. Did you mean user by usr?",
        "No event has kind, which the rule reads: it is NULL.",
    ]
    assert tried(rule())["missing"] == []
    assert tried(rule(), settings=replace(SETTINGS, columns=None))["missing"] == [], "the columns are not known"


@pytest.fixture
def history(tmp_path: Path) -> SampleSettings:
    (tmp_path / "events.csv").write_text(EVENTS.replace("12:00:01", "12:30:00"))
    return SampleSettings(None, (str(tmp_path / "events.csv"),), (), "ts")


def test_events_are_taken_from_the_history(history: SampleSettings) -> None:
    samples = Samples(history)
    found = samples.answer({"do": "events", "rule": None, "key": None, "limit": 2})
    assert (found["events"], found["of"]) == (2, 4)
    assert json.loads(found["text"].splitlines()[0]) == {
        "ts": "2026-01-31 12:00:02",
        "user": "bob",
        "kind": "a",
        "price": 2,
    }
    found = samples.answer({"do": "events", "rule": graph(key=["upper(user)"]), "key": ["ANN"], "limit": 9})
    assert found["events"] == 2
    assert len(tried(graph(), found["text"], settings=history)["rows"]) == 2
    assert samples.answer({"do": "events", "rule": rule(), "key": ["nobody"], "limit": 9})["events"] == 0


@pytest.mark.parametrize("unit", [None, 1])
def test_events_around_a_match_of_a_rule_without_a_key(tmp_path: Path, unit: int | None) -> None:
    """Also of integer times, which have different numbers of digits."""

    def moment(n: int) -> Any:
        return n * 7 if unit else f"2026-01-{1 + n // 24:02} {n % 24:02}:00:00{'.5' * (n % 2)}"

    rows = [{"ts": moment(n), "user": f"u{n % 3}", "n": n} for n in range(400)]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, rows)))
    samples = Samples(SampleSettings(None, (str(tmp_path / "events.jsonl"),), (), "ts"))
    item = {"id": "r", "version": 1, "sql": "PATTERN (A B) DEFINE A AS n = 150, B AS true"}
    around = [str(moment(n)) for n in (150, 151)]
    request = {"do": "events", "rule": item, "key": [], "limit": 100, "around": around}
    if unit:
        request["rule"] = item = graph(key=[], condition="n = 150")
        item["pattern"]["nodes"][1]["condition"]["expression"] = "n = 151"
    events = samples.answer(request)
    numbers = [json.loads(line)["n"] for line in events["text"].splitlines()]
    assert numbers == list(range(72, 172))
    found = samples.answer({"do": "sample", "rule": item, "events": events["text"], "key": []})
    assert [[event for _, event in match["events"]] for match in found["matches"]] == [[79, 80]]
    assert found["trace"]["key"] == []
    with pytest.raises(AsterismError, match="event 1"):
        samples.answer(request | {"around": ["soon", "later"]})


def test_the_rows_of_a_clause_with_other_alphabets() -> None:
    """Some letters become longer in upper case."""
    measures = "'ŉßİ measures' || A.kind AS price, B.price AS `ŉmeasures`"
    sql = f"PARTITION BY user ORDER BY ts MEASURES {measures} PATTERN (A B) DEFINE A AS kind <> 'ŉ'"
    text = module._with_all_rows(sql)
    assert text is not None
    assert text.startswith("PARTITION BY user ORDER BY ts ALL ROWS PER MATCH PATTERN (A B)")
    assert tried(rule(sql=sql))["matches"][0]["events"] == [["A", 1], ["B", 3]]


def test_a_large_history_is_not_read(history: SampleSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 10)
    with pytest.raises(StreamDefinitionError, match="too large to take events"):
        Samples(history).history()


def test_rules_are_tried_in_another_process(history: SampleSettings) -> None:
    worker = WorkerProcess("asterism.console.sample_worker", asdict(history))
    try:
        schema = worker.ask({"do": "schema"}, timeout=120)
        assert isinstance(schema, str)
        request = {"do": "sample", "rule": graph(), "events": EVENTS, "key": None}
        assert worker.ask(request, timeout=300)["matches"][0]["events"] == [["first", 1], ["second", 3]]
        with pytest.raises(AsterismError, match="nosuch"):
            worker.ask(request | {"rule": graph(key=["nosuch"])}, timeout=120)
    finally:
        worker.close()
