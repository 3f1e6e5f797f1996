"""The metrics of live engines, as the parser of Prometheus reads them: names and meaning are those of queries on Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream, Pattern, PatternProcessor, export_metrics
from asterism.errors import InvalidEventError, StateError
from asterism.live.engine import LiveEngine
from tests.live.driver import killed
from tests.live.test_failures import event

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("price", pa.float64()), ("shard", pa.int64())])
PAIRS = Pattern.begin("a").followed_by("b").where("price < LAST(a.price)").within(timedelta(seconds=10))


def opened(folder: Path | None = None, **options: Any) -> LiveEngine:
    stream: Any = KeyedStream(SCHEMA, key="user", time="ts")
    return CEP.pattern(stream, PAIRS).open(folder, outputs=["matches", "late"], **options)


def samples(text: str) -> dict[str, float]:
    """By name and labels, without the prefix and the label of the query."""
    return {
        " ".join(
            [
                sample.name.removeprefix("asterism_"),
                *(f"{key}={value}" for key, value in sample.labels.items() if key != "query"),
            ]
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_numbers(tmp_path: Path) -> None:
    exporter = None
    with opened(tmp_path, snapshot_every=2) as engine:
        exporter = export_metrics({"pairs": engine})
        assert "query_last_trigger_timestamp_seconds" not in samples(exporter.text())
        engine.process([event(1), event(2)], watermark=2000)
        engine.process([event(3), event(1)])
        with pytest.raises(InvalidEventError):
            engine.process({"user": "ann", "ts": "noon"})
        engine.snapshot()
        numbers = samples(exporter.text())
        expected = {
            "query_input_rows_total": 4,
            "query_micro_batches_total": 2,
            "query_watermark_timestamp_seconds": 2.999,
            "operator_counts_total count=matches operator=asterism": 1,
            "operator_counts_total count=late_elements operator=asterism": 1,
            "live_call_seconds_count": 2,
            "live_failed_calls_total": 1,
            "live_failed_snapshots_total": 0,
            "live_events_since_snapshot": 0,
            "queries_ended_total outcome=finished": 0,
        }
        assert {name: numbers[name] for name in expected} == expected
        assert numbers["live_snapshots_total"] >= 1
        assert numbers["query_state_bytes"] > 0 < numbers["query_state_rows"]
        assert numbers["live_call_seconds_bucket le=+Inf"] == 2
        assert numbers["query_last_trigger_timestamp_seconds"] <= numbers["live_last_snapshot_timestamp_seconds"]
        assert 0 < numbers["query_micro_batch_seconds"] < 60
        engine.process(event(4))
        assert samples(exporter.text())["live_events_since_snapshot"] == 1
    assert samples(exporter.text()) == {
        "queries_ended_total outcome=failed": 0,
        "queries_ended_total outcome=finished": 1,
    }
    exporter.close()


def test_counters_do_not_go_back(tmp_path: Path) -> None:
    """They begin when the engine is opened; a call that is taken back comes again, and counts once."""
    with opened(tmp_path) as engine:
        engine.process([event(1), event(2)])
    engine = opened(tmp_path)
    exporter = export_metrics({"pairs": engine})
    assert samples(exporter.text())["query_input_rows_total"] == 0
    engine.process([event(3), event(4)], watermark=4000)
    before = samples(exporter.text())
    engine._withdraw(engine.progress["batchId"])
    assert engine.progress["numInputRows"] == 2
    engine.process([event(3), event(4)], watermark=4000)
    counters = {name: value for name, value in before.items() if name.startswith(("query_input_rows_t", "operator"))}
    after = samples(exporter.text())
    assert {name: after[name] for name in counters} == counters
    assert counters["query_input_rows_total"] == 2
    killed(engine)
    assert samples(exporter.text())["queries_ended_total outcome=failed"] == 1


def test_snapshots_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(tmp_path)
    exporter = export_metrics({"pairs": engine})
    engine.process(event(1))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(engine._folder, "_commit", full)
        with pytest.raises(StateError):
            engine.snapshot()
    numbers = samples(exporter.text())
    assert (numbers["live_failed_snapshots_total"], numbers["live_snapshots_total"]) == (1, 0)
    assert "live_last_snapshot_timestamp_seconds" not in numbers
    engine.close()


def test_partitions_that_are_behind() -> None:
    stream: Any = KeyedStream(SCHEMA, key="user", time="ts", watermark_by=["shard"])
    with CEP.pattern(stream, PAIRS).open() as engine:
        engine.process([{**event(1), "shard": 1}, {**event(3), "shard": 2}])
        numbers = samples(export_metrics({"pairs": engine}).text())
    assert numbers["query_partition_behind_seconds input=events operator=asterism partition=shard=1"] == 2


def test_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([PatternProcessor("falling", 3, PAIRS).to_dict()]), encoding="utf-8")
    stream: Any = KeyedStream(SCHEMA, key="user", time="ts")
    with CEP.pattern_processors(stream, FilePatternProcessorDiscovererFactory(path)).open(tmp_path / "state") as engine:
        engine.process([event(1), event(2)], watermark=2000)
        engine.snapshot()
        numbers = samples(export_metrics({"pairs": engine}).text())
    assert numbers["query_rules_valid"] == 1
    assert numbers["query_rules state=in force"] == 1
    assert numbers["query_rules state=refused"] == 0
    assert numbers["rule_matches_total rule=falling version=3"] == 1
    assert numbers["rule_events_total rule=falling version=3"] == 2


def test_metrics_are_served_while_calls_go_on() -> None:
    """Any thread reads them, without waiting for a call."""
    with opened() as engine:
        exporter = export_metrics({"pairs": engine}, port=0)
        with engine._lock, urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as answer:
            assert samples(answer.read().decode())["query_input_rows_total"] == 0

        def calls() -> None:
            for number in range(50):
                engine.process(event(number))

        thread = threading.Thread(target=calls)
        thread.start()
        rows = [samples(exporter.text())["query_input_rows_total"] for _ in range(20)]
        thread.join()
        exporter.close()
        assert rows == sorted(rows)
        assert samples(exporter.text())["query_input_rows_total"] == 50


def test_metrics_of_live_engines_need_no_spark() -> None:
    program = (
        "import sys; from tests.live.test_metrics import export_metrics, opened, event; engine = opened();"
        "engine.process(event(1)); export_metrics({'a': engine}).text(); print('pyspark' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == "False"
