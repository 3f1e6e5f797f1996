"""The examples with rules find what their data say."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.end_to_end.programs import run_program

pytestmark = pytest.mark.spark


def matched(found: DataFrame, column: str) -> list[tuple[object, ...]]:
    """Minute, rule, version, key, and a column of the events."""
    rows = found.selectExpr("minute(end_time)", "processor_id", "processor_version", "key[0]", f"events.event.{column}")
    return [tuple(row) for row in rows.collect()]


def test_a_rule_is_added_while_it_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_program("rules_sqlite", spark, tmp_path, monkeypatch)["found"]
    assert matched(found, "amount") == [
        (2, "small, then large", 1, "ann", [1.5, 650.5]),
        (6, "small, then large", 1, "cid", [1.25, 900.5]),
        (7, "many large ones", 1, "east", [310.25, 420.0, 330.0]),
    ]
    assert ">many large ones, east<" in (tmp_path / "rules_sqlite.svg").read_text(encoding="utf-8")


def test_rules_on_postgresql(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setenv("RULES_URL", database)
    found = run_program("rules_postgresql", spark, tmp_path, monkeypatch)["found"]
    # The view of bob belongs to the first version, which has been replaced. When fay fills her cart, "wanted" is disabled.
    assert matched(found, "customer") == [
        (2, "interested", 1, "ann", ["ann", "ann"]),
        (6, "wanted", 1, "lamp", ["dora", "eve"]),
        (8, "interested", 2, "dora", ["dora", "dora"]),
    ]
    assert ">wanted, lamp<" in (tmp_path / "rules_postgresql.svg").read_text(encoding="utf-8")


def test_alerts_of_sigma_rules(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The streams of Spark have the alerts of the live engines."""
    alerts = {}
    for option in ("--live", "--spark"):
        (tmp_path / option).mkdir()
        monkeypatch.setattr("sys.argv", ["sigma_alerts.py", option])
        found = run_program("sigma_alerts", spark, tmp_path / option, monkeypatch)["found"]
        alerts[option] = sorted(alert[1:] for alert in found.alerts())
    assert alerts["--spark"] == alerts["--live"]
    assert len(alerts["--live"]) > 20
