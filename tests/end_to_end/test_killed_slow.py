"""Killed with -9 at each point, again and again: no query, of whatever kind, loses or doubles anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism.rules.sets.discovery_status import INTERRUPTED
from tests.end_to_end.test_killed import Lives, check_moments, check_rows, lives_of
from tests.end_to_end.victim import NEW_KEY, PASSWORD, POINTS, SINK, disguises, held, watch
from tests.nemesis.queries import QUERIES
from tests.spark.rules import Watch, e, found

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
KINDS = [kind for kind in QUERIES if kind not in ("as_of_join", "window_join")]
"""A query of each kind of operator; of the joins of two streams, one."""


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    return lives_of(KINDS, POINTS, tmp_path_factory.mktemp("killed"), new_key=True)


def test_where_they_were_killed(lives: Lives) -> None:
    check_moments(lives)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_or_doubled(spark: SparkSession, lives: Lives, kind: str) -> None:
    check_rows(spark, lives, kind)


def test_a_rule_with_a_new_key(spark: SparkSession, lives: Lives) -> None:
    """Killed before the micro-batch that brings the rule is committed. The query goes on with other cores, with another number
    of partitions, and without its rules. And the findings of the discoverer reach nobody.
    """
    folder = lives.folder / NEW_KEY
    assert held(folder, SINK).exists()
    batch = (folder / "batch").read_text()
    *_, (number, seen) = Watch(spark, folder).history()
    assert (number, len(seen)) == (2, 4)
    assert not (folder / "checkpoint" / "commits" / batch).exists()

    (folder / "rules.json").unlink()
    query = watch(spark, folder)
    with query.running():
        query.wait_for({"ab": 1, "by item": 1}, INTERRUPTED)
        query.send(e(7, "b", "fay", 11))
        progress = query.query.lastProgress  # type: ignore[union-attr]
    rows = spark.read.parquet(str(folder / "out")).drop("batch").toArrow().to_pylist()
    assert found(rows) == [
        ("ab", 1, ("ann",), "a1 b4"),
        ("ab", 1, ("bob",), "a2 b6"),
        ("by item", 1, ("11",), "a5 b7"),
        ("by item", 1, ("9",), "a3 b4"),
    ]
    # Spark keeps the number of partitions that the checkpoint was made with.
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert progress is not None
    assert progress.stateOperators[0].numShufflePartitions == 3

    for line in ("1: ab added, version - -> 1, accepted", "2: by item added, version - -> 1, accepted"):
        assert len(re.findall(rf"INFO asterism.rules.processor: \S+: pattern processors {line}\n", lives.log)) == 1
    files: dict[Path, bytes] = {path: path.read_bytes() for path in lives.folder.rglob("*") if path.is_file()}
    files[Path("stderr of all")] = lives.log.encode()
    assert {folder / "plan", folder / "progress"} < files.keys()
    assert b"StreamingRelationV2" in files[folder / "plan"]
    assert any(b"SparkListenerSQLExecutionStart" in text for text in files.values())
    for path, text in files.items():
        assert not any(secret in text for secret in disguises(PASSWORD)), path
