"""The demo finds what is in the log, and draws it."""

import csv
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, timeline
from examples import ssh_attacks as demo

pytestmark = pytest.mark.spark

PATTERNS = Path(demo.__file__).parent / "patterns"
LINES = list(csv.DictReader(demo.LOG.read_text(encoding="utf-8").splitlines()))
ATTACK = ("24.151.103.17", 649, 147, 945, "elastic_user_0")
"""Address, first failure, number of failures, and the login"""


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    folder = tmp_path_factory.mktemp("demo") / "log"
    demo.cut_log(folder)
    return spark.readStream.schema(demo.COLUMNS).option("maxFilesPerTrigger", 1).csv(str(folder), header=True)


def test_cutting_the_log_loses_nothing(tmp_path: Path) -> None:
    demo.cut_log(tmp_path / "log")
    parts = [(tmp_path / "log" / f"{number}.csv").read_text().splitlines() for number in range(12)]
    header, *lines = demo.LOG.read_text().splitlines()
    assert {part[0] for part in parts} == {header}
    assert [line for part in parts for line in part[1:]] == lines


def test_the_guessed_password_is_found_part_by_part(
    log: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = demo.find(log.where("event IN ('failed', 'accepted')"), demo.GUESSED, tmp_path)
    rows = found.selectExpr("ip", "fails[0].event_id", "size(fails)", "login[0].event_id", "login[0].user")
    assert [tuple(row) for row in rows.collect()] == [ATTACK]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "micro-batch 0: 0 found so far"
    assert printed[-1] == "micro-batch 11: 1 found so far"
    picture = timeline(found, "ip").to_svg()
    assert picture.count("<title>fails: ") == 147


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


def test_the_json_form_of_the_open_session_is_the_same_pattern() -> None:
    assert Pattern.from_json((PATTERNS / "left_open.json").read_bytes()) == demo.LEFT_OPEN
