"""The demo finds sessions that were left open, and its JSON form asks the same of the whole log."""

import csv
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, timeline
from examples import ssh_attacks as demo
from tests.end_to_end.test_demo import ATTACK, PATTERNS, check_guessed, log_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return log_of(spark, tmp_path_factory.mktemp("demo") / "log", 1)


def test_the_guessed_password_is_found_part_by_part(
    log: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_guessed(log, tmp_path, capsys, [0] * 11 + [1])


LINES = list(csv.DictReader(demo.LOG.read_text(encoding="utf-8").splitlines()))


def test_sessions_left_open_are_found(log: DataFrame, tmp_path: Path) -> None:
    found = demo.find(log, demo.LEFT_OPEN, tmp_path)
    rows = found.selectExpr("CAST(login[0].event_id AS STRING)").collect()
    assert [event_id for (event_id,) in rows] == left_open()
    assert len(rows) == 7
    assert ">95.93.96.191<" in timeline(found, "ip", end="match_time").to_svg()


def left_open() -> list[str]:
    """By hand: every login without an end of its connection within 8 hours, if the log goes on for that long."""
    found = []
    for login in LINES:
        if login["event"] != "accepted" or at(LINES[-1]) < at(login) + timedelta(hours=8):
            continue
        ends = [
            at(line)
            for line in LINES
            if line["event"] in ("disconnected", "closed")
            and (line["ip"], line["port"]) == (login["ip"], login["port"])
            and int(line["event_id"]) > int(login["event_id"])
        ]
        if not ends or min(ends) - at(login) >= timedelta(hours=8):
            found.append(login["event_id"])
    return found


def at(line: dict[str, str]) -> datetime:
    return datetime.fromisoformat(line["ts"])


def test_the_json_form_asks_the_same_of_the_whole_log(spark: SparkSession) -> None:
    pattern = Pattern.from_json((PATTERNS / "brute_force.json").read_bytes())
    lines = spark.read.schema(demo.COLUMNS).csv(str(demo.LOG), header=True)
    found = CEP.pattern(KeyedStream(lines, "ip", time="ts", order_by=["event_id"]), pattern)
    rows = found.select("FIRST(fails.event_id)", "COUNT(fails.*)", "login.event_id", "login.user")
    assert [tuple(row) for row in rows.collect()] == [ATTACK]
