"""A backtest finds what a bounded job finds, and compares the matches of two sets of rules."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, Backtest, KeyedStream, Pattern, PatternProcessor
from asterism.cli.main import main
from asterism.errors import AsterismError

pytestmark = pytest.mark.spark

DAY = 86_400
EVENTS = [
    (1, "ann", 7, "a"), (2, "bob", 7, "b"), (3, "ann", 8, "c"), (4, "ann", 8, "b"), (5, "cy", 9, "a"), (20, "cy", 9, "b"),
    (DAY + 21, "bob", 8, "a"), (DAY + 22, "bob", 8, "b"), (DAY + 30, "bob", 8, "a"),
]  # fmt: skip
CLAUSE = "PARTITION BY item ORDER BY ts MEASURES LAST(user) AS u PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
ALL_ROWS = "ALL ROWS PER MATCH " + CLAUSE[CLAUSE.index("PATTERN") :]
SECOND = timedelta(seconds=1)


def chain(*kinds: str, strict: bool = False) -> Pattern:
    pattern = Pattern.begin(kinds[0]).where(f"kind = '{kinds[0]}'")
    for kind in kinds[1:]:
        pattern = (pattern.next(kind) if strict else pattern.followed_by(kind)).where(f"kind = '{kind}'")
    return pattern.within(10 * SECOND)


RULES = [
    PatternProcessor("by user", 2, chain("a", "b"), timed_out=True),
    PatternProcessor("by item", 3, chain("a", "b", strict=True), key=("item",), select=("LAST(b.user) AS u",)),
    PatternProcessor("later", 1, chain("a", "b"), key=(), timestamp=datetime(2100, 1, 1, tzinfo=UTC)),
    PatternProcessor("in sql", 2, sql=CLAUSE),
    PatternProcessor("all rows", 1, sql=ALL_ROWS),
]
OTHERS = [
    PatternProcessor("by user", 1, chain("a", "b", strict=True)),
    RULES[1],
    PatternProcessor("in sql", 1, chain("a", "b"), key=("item",)),
    PatternProcessor("all rows", 0, sql=ALL_ROWS),
    PatternProcessor("gone", 1, chain("a")),
]


def table(spark: SparkSession, events: list[Any] = EVENTS) -> DataFrame:
    rows = [(None if second is None else datetime.fromtimestamp(second, UTC), *rest) for second, *rest in events]
    return spark.createDataFrame(rows, "ts TIMESTAMP, user STRING, item BIGINT, kind STRING").coalesce(1)


def ran(spark: SparkSession, *sides: Any, events: list[Any] = EVENTS, **options: Any) -> Backtest:
    return CEP.backtest(KeyedStream(table(spark, events), key="user", time="ts"), *sides, key_groups=4, **options)


def keep(to: list[Any], rows: DataFrame, batch: int) -> None:
    to.extend(rows.collect())


def row(report: Backtest, id: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = report.summary.to_pylist()
    return next(one for one in found if one["id"] == id)


@pytest.fixture(scope="module")
def compared(spark: SparkSession) -> Backtest:
    return ran(spark, RULES, OTHERS)


def test_two_versions_are_compared_match_by_match(compared: Backtest) -> None:
    report = compared
    found = {one.id: (one.added, one.removed, one.kept) for one in report.rules}
    assert found == {
        "by user": (1, 0, 1),  # without strict contiguity, one more; the other has the same events
        "by item": (0, 0, 2),  # the same rule on both sides
        "later": (2, 0, 0),
        "in sql": (1, 0, 2),  # a graph on the other side: by times
        "all rows": (0, 0, 4),  # another version of the same clause; each row is a match
        "gone": (0, 4, 0),
    }
    rows = report.matches.select("id", "difference", "processor_version").collect()
    assert Counter((one.id, one.difference) for one in rows)["by user", "kept"] == 1
    assert {one.processor_version for one in rows if one.id == "by user"} == {2}
    (example,) = next(one for one in report.rules if one.id == "by user").examples
    assert (example.difference, example.key) == ("added", ("ann",))
    assert [(stage, event["kind"]) for stage, event in example.events] == [("a", "a"), ("b", "b")]
    gone = next(one for one in report.rules if one.id == "gone")
    assert [one.difference for one in gone.examples] == ["removed"] * 3
    assert (report.events, report.days, report.first) == (9, 2, datetime.fromtimestamp(1, UTC))
    assert (row(report, "in sql")["matches_per_day"], row(report, "in sql")["most_in_a_day"]) == (1.5, 2)
    assert "by user   1 -> 2" in str(report)


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = KeyedStream(table(spark), time="ts")
    for arguments, message in (
        ({"rules": 5}, "these are not rules: 5"),
        ({"rules": [5]}, "this is not a rule: 5"),
        ({"rules": tmp_path / "none.json"}, "cannot be read"),
        ({"rules": [], "examples": 1001}, "examples must be between 0 and 1,000"),
        ({"rules": [], "against": b""}, "these are not rules"),
    ):
        with pytest.raises(AsterismError, match=message):
            CEP.backtest(stream, **arguments)
    (tmp_path / "events").mkdir()
    streaming = spark.readStream.schema("ts TIMESTAMP").json(str(tmp_path / "events"))
    with pytest.raises(AsterismError, match="a backtest needs a table"):
        CEP.backtest(KeyedStream(streaming, time="ts"), [])


# ---------------------------------------------------------------------- the command


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, rules in (("new", RULES), ("old", OTHERS)):
        (tmp_path / f"{name}.json").write_text(json.dumps([rule.to_dict() for rule in rules]), encoding="utf-8")
    for name, events in (("first", EVENTS[:4]), ("second", EVENTS[4:])):
        lines = [
            f"{datetime.fromtimestamp(second, UTC).isoformat()},{','.join(map(str, rest))}" for second, *rest in events
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["ts,user,item,kind", *lines]) + "\n", encoding="utf-8")
    return tmp_path


def command(files: Path, rules: str, *arguments: object) -> Result:
    given = ["--input", files / "first.csv", "--input", files / "second.csv", "--key", "user", "--time", "ts"]
    words = ["rules", "backtest", files / rules, *given, *arguments]
    return CliRunner().invoke(main, [str(word) for word in words])
