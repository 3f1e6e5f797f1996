"""The metrics of queries, as the parser of Prometheus reads them."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from asterism import CEP, export_metrics, monitor
from asterism.discovery.rest import prometheus
from asterism.rules.sets.rule_counts import MATCHES, SHADOW_MATCHES, metric
from asterism.rules.sets.set_store import FolderStore
from asterism.spark.progress.rule_progress import count
from asterism.spark.watching import progress as query_progress
from tests.kit import ROOT, until
from tests.spark.progress import QUERY, RUN, WrittenQuery, WrittenSession, of_rules, progress
from tests.spark.streams import FUNNEL, Collect, events, stream_of, write_files

OTHER = "00000000-0000-0000-0000-000000000001"


def samples(text: str) -> dict[str, float]:
    """By name and labels, without what all names begin with."""
    return {
        " ".join(
            [one.name.removeprefix("asterism_"), *(f"{key}={value}" for key, value in one.labels.items())]
        ): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_how_far_a_source_is_behind() -> None:
    """As Spark's source for Kafka has it in the progress; other sources have other metrics, or none."""
    behind = {"avgOffsetsBehindLatest": "7.5", "maxOffsetsBehindLatest": "1200", "minOffsetsBehindLatest": "0"}
    assert query_progress.lags_of(progress(behind=behind)) == {"files": (7.5, 1200, 0)}
    assert query_progress.lags_of(progress(behind={**behind, "minOffsetsBehindLatest": "none"})) == {}
    assert query_progress.lags_of(progress(behind={"maxOffsetsBehindLatest": "1"})) == {}
    session = WrittenSession()
    exporter = export_metrics(session)
    session.send(progress(behind=behind))
    numbers = samples(exporter.text())
    assert {name: numbers[name] for name in numbers if "behind" in name} == {
        "query_offsets_behind_latest_avg query=carts source=files": 7.5,
        "query_offsets_behind_latest_max query=carts source=files": 1200,
        "query_offsets_behind_latest_min query=carts source=files": 0,
    }
    view = str(monitor(WrittenQuery([progress(behind=behind)])))
    assert "files: 1,200 records of a partition not read yet, at least 0, on average 8" in view


def test_how_far_partitions_are_behind() -> None:
    behind = {f'/behind ["events", {{"shard": "{shard}"}}]': 1_500_000 for shard in ("a", "x" * 500, "x" * 501)}
    session = WrittenSession()
    exporter = export_metrics(session)
    session.send(progress(observed={"asterism_watermark": {"micros": 0, "behind": json.dumps(behind)}}))
    numbers = {name: value for name, value in samples(exporter.text()).items() if "partition_behind" in name}
    assert (
        numbers.pop("query_partition_behind_seconds input=events operator=asterism partition=shard=a query=carts")
        == 1.5
    )
    ((name, _),) = numbers.items()  # a series must not occur twice
    assert len(name) < 500


def test_numbers_of_a_query() -> None:
    session = WrittenSession()
    exporter = export_metrics(session)
    assert exporter.port is None
    time = {"watermark": "1970-01-01T00:01:40.000Z"}
    session.send(progress(0), progress(1, rows=20, event_time=time))
    assert samples(exporter.text()) == {
        "query_input_rows_per_second query=carts": 40,
        "query_processed_rows_per_second query=carts": 50,
        "query_micro_batch_seconds query=carts": 2,
        "query_last_trigger_timestamp_seconds query=carts": 1_769_860_801,
        "query_watermark_timestamp_seconds query=carts": 100,
        "query_state_rows query=carts": 1234,
        "query_state_bytes query=carts": 5_600_000,
        "query_micro_batches_total query=carts": 2,
        "query_input_rows_total query=carts": 120,
        "operator_counts_total count=matches operator=asterism query=carts": 6,
        "operator_counts_total count=timed_out operator=asterism query=carts": 2,
        "operator_counts_total count=late_elements operator=asterism query=carts": 4,
        "operator_counts_total count=partial_matches_dropped operator=asterism query=carts": 0,
        "queries_ended_total outcome=failed": 0,
        "queries_ended_total outcome=finished": 0,
    }
    session.listeners[0].onQueryIdle(SimpleNamespace(id=QUERY, runId=RUN, timestamp="1970-01-01T00:03:20.000Z"))
    assert samples(exporter.text())["query_last_trigger_timestamp_seconds query=carts"] == 200
    exporter.close()
    exporter.close()
    assert session.listeners == []


def test_gauges_and_histograms() -> None:
    """Histograms are added up; a gauge has the last value that was set."""
    session = WrittenSession()
    exporter = export_metrics(session)

    def seconds(*values: float) -> dict[str, Any]:
        buckets = [{"le": le, "count": sum(value <= le for value in values)} for le in (0.5, 10.0)]
        edges = {"min": min(values, default=None), "max": max(values, default=None)}
        return {"count": len(values), "sum": sum(values), "buckets": buckets, **edges}

    for number, (waiting, values) in enumerate([(3.0, (0.5, 2.0)), (1.5, (20.0,)), (None, ())]):
        observed = {"asterism": {"sold": 1, "waiting": waiting, "seconds": seconds(*values)}}
        session.send(progress(number, observed=observed))
    found = {key: value for key, value in samples(exporter.text()).items() if key.startswith("operator")}
    histogram = "histogram=seconds operator=asterism query=carts"
    assert found == {
        "operator_counts_total count=sold operator=asterism query=carts": 3,
        "operator_gauge gauge=waiting operator=asterism query=carts": 1.5,
        f"operator_histogram_bucket {histogram.replace('histogram=seconds', 'histogram=seconds le=0.5', 1)}": 1,
        f"operator_histogram_bucket {histogram.replace('histogram=seconds', 'histogram=seconds le=10.0', 1)}": 2,
        f"operator_histogram_bucket {histogram.replace('histogram=seconds', 'histogram=seconds le=+Inf', 1)}": 3,
        f"operator_histogram_count {histogram}": 3,
        f"operator_histogram_sum {histogram}": 22.5,
    }
    exporter.close()


def test_queries_that_have_ended_are_dropped() -> None:
    session = WrittenSession()
    exporter = export_metrics(session)
    session.send(progress(name='a "b"\n'), progress(name=None, query=OTHER, run=OTHER))
    assert {key for key in samples(exporter.text()) if key.startswith("query_state_rows")} == {
        'query_state_rows query=a "b"\n',
        f"query_state_rows query={OTHER}",
    }
    session.end(RUN, "it failed")
    session.end(OTHER)
    assert samples(exporter.text()) == {
        "queries_ended_total outcome=failed": 1,
        "queries_ended_total outcome=finished": 1,
    }
    exporter.close()


def test_the_number_of_queries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_progress, "MAX_QUERIES", 2)
    session = WrittenSession()
    exporter = export_metrics(session)
    runs = [OTHER[:-1] + str(number) for number in range(3)]
    session.send(*[progress(name=f"q{run[-1]}", query=run, run=run) for run in (*runs[:2], runs[0], runs[2])])
    found = samples(exporter.text())
    assert [key for key in found if key.startswith("query_state_rows")] == [
        f"query_state_rows query=q{n}" for n in "02"
    ]
    # A run that replaces another one before Spark says that that has ended has its series.
    session.send(progress(name="q2", rows=5, query=runs[2], run=RUN))
    assert samples(exporter.text())["query_input_rows_total query=q2"] == 5
    exporter.close()


def test_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_VERSIONS", 1)
    session: Any = WrittenSession()
    exporter = export_metrics(session)
    store = FolderStore(str(tmp_path))
    store.claim("owner")
    counted = count(session, SimpleNamespace(runId=RUN, recentProgress=[], isActive=True), "asterism", store)  # type: ignore[arg-type] # a query, as far as it is used
    shadow = {metric(SHADOW_MATCHES, ("a", 1, 1)): 4}
    rules = shadow | {metric(MATCHES, (name, 1, 1)): matches for name, matches in (("a", 5), ("b", 2), ("c", 1))}
    session.send(progress(query=OTHER, observed=of_rules(rules), discovery="valid"))
    found = samples(exporter.text())
    assert {key: value for key, value in found.items() if key.startswith("rule_matches")} == {
        "rule_matches_total query=carts rule=a version=1": 5,
        "rule_matches_total query=carts rule=(others) version=": 3,
    }
    assert found["rule_shadow_matches_total query=carts rule=a version=1"] == 4
    assert found["rule_partial_matches query=carts rule=a version=1"] == 0
    assert found["query_rules_valid query=carts"] == 1
    assert found["operator_counts_total count=matches operator=asterism query=carts"] == 7
    session.end(RUN)
    assert counted.ended.is_set()
    assert "carts" not in exporter.text()
    exporter.close()


def test_alerts_in_the_documentation_use_these_metrics() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(groups:.*?)```", page, re.DOTALL)
    session = WrittenSession()
    exporter = export_metrics(session)
    session.send(progress(observed=of_rules()))
    known = set(re.findall(r"^# TYPE (\w+)", exporter.text(), re.MULTILINE))
    exporter.close()
    rules = yaml.safe_load(block)["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
    for rule in rules:
        names = re.findall(r"asterism_\w+", rule["expr"])
        assert names, rule["alert"]
        assert set(names) <= known, rule["alert"]


FUNNEL_MATCHES = "operator_counts_total count=matches operator=asterism query=funnel"


def matches_of(query: Any) -> int:
    return sum(progress.observedMetrics["asterism"].matches for progress in query.recentProgress)


@pytest.mark.spark
def test_a_query_is_shown_and_scraped(spark: SparkSession, tmp_path: Path) -> None:
    write_files(events(200), tmp_path / "in", [100])
    exporter = export_metrics(spark, port=0)
    try:
        stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=2)
        query = stream.run(
            {"matches": Collect()},
            checkpoint=str(tmp_path / "cp"),
            trigger={"processingTime": "0 seconds"},
            name="funnel",
        )
        assert query is not None
        try:
            query.processAllAvailable()
            # Spark reports its micro-batches later.
            until(lambda: samples(exporter.text()).get("query_input_rows_total query=funnel") == 200, query)
            until(lambda: samples(exporter.text())[FUNNEL_MATCHES] == matches_of(query), query)
            until(lambda: "asterism_query_watermark_timestamp_seconds{" in exporter.text(), query)
            with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as answer:
                found = samples(answer.read().decode())
            shown = str(monitor(query))
        finally:
            query.stop()
        assert found["query_input_rows_total query=funnel"] == 200
        matches = matches_of(query)
        assert found[FUNNEL_MATCHES] == matches > 0
        assert f"({matches:,}), timed_out" in shown
        assert "behind the clock" in shown
        until(lambda: "funnel" not in exporter.text())
    finally:
        exporter.close()
