"""The demo finds what is in the log, and draws it."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import Pattern, timeline
from examples import ssh_attacks as demo

pytestmark = pytest.mark.spark

PATTERNS = Path(demo.__file__).parent / "patterns"
ATTACK = ("24.151.103.17", 649, 147, 945, "elastic_user_0")
"""Address, first failure, number of failures, and the login"""


def log_of(spark: SparkSession, folder: Path, parts: int) -> DataFrame:
    """The log as a stream, which has so many *parts* in a micro-batch."""
    demo.cut_log(folder)
    return spark.readStream.schema(demo.COLUMNS).option("maxFilesPerTrigger", parts).csv(str(folder), header=True)


def test_cutting_the_log_loses_nothing(tmp_path: Path) -> None:
    demo.cut_log(tmp_path / "log")
    parts = [(tmp_path / "log" / f"{number}.csv").read_text().splitlines() for number in range(12)]
    header, *lines = demo.LOG.read_text().splitlines()
    assert {part[0] for part in parts} == {header}
    assert [line for part in parts for line in part[1:]] == lines


def test_the_guessed_password_is_found_part_by_part(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_guessed(log_of(spark, tmp_path / "log", 6), tmp_path / "found", capsys, [1, 1])


def check_guessed(log: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str], counts: list[int]) -> None:
    found = demo.find(log.where("event IN ('failed', 'accepted')"), demo.GUESSED, tmp_path)
    rows = found.selectExpr("ip", "fails[0].event_id", "size(fails)", "login[0].event_id", "login[0].user")
    assert [tuple(row) for row in rows.collect()] == [ATTACK]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"micro-batch 0: {counts[0]} found so far"
    assert printed[-1] == f"micro-batch {len(counts) - 1}: {counts[-1]} found so far"
    picture = timeline(found, "ip").to_svg()
    assert picture.count("<title>fails: ") == 147


def test_the_json_form_of_the_open_session_is_the_same_pattern() -> None:
    assert Pattern.from_json((PATTERNS / "left_open.json").read_bytes()) == demo.LEFT_OPEN
