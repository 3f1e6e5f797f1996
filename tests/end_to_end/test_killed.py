"""Killed with -9 in a sink: no query loses or doubles anything.

One program runs a query of each kind: see ``victim.py``. Other kinds and points are in
``test_killed_slow.py``; points at random, in ``make nemesis``.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import tests.contracts.ledger
import tests.end_to_end.victim
from asterism.errors import StateError
from tests.end_to_end.victim import (
    COMMITTED,
    FILES,
    NEW_KEY,
    SINK,
    held,
    query_of,
    sinks,
)
from tests.kit import ROOT, spawned
from tests.nemesis.queries import QUERIES, Query, WindowQuery
from tests.nemesis.replay import check, history, keep_operator, kept_operator

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
for module in (tests.contracts.ledger, tests.end_to_end.victim):
    cloudpickle.register_pickle_by_value(module)


KINDS = ["rules"]


@dataclass(frozen=True)
class Moment:
    """What was there when a query was killed: the last micro-batch that was begun, the last that was committed, and by output
    the micro-batches that have been written.
    """

    begun: int
    committed: int
    written: dict[str, set[int]]

    @classmethod
    def of(cls, query: Query) -> Moment:
        logs = {name: _numbers(query.checkpoint / name, "[0-9]*") for name in ("offsets", "commits")}
        written = {output: _numbers(query.folder / "out" / output, "*.parquet") for output in query.outputs}
        return cls(max(logs["offsets"]), max(logs["commits"]), written)


def _numbers(folder: Path, files: str) -> set[int]:
    return {int(path.stem) for path in folder.glob(files)}


@dataclass
class Lives:
    folder: Path
    points: tuple[str, ...]
    kinds: list[str]
    log: str = ""
    moments: dict[tuple[str, str], Moment] = field(default_factory=dict)


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    return lives_of(KINDS, (SINK,), tmp_path_factory.mktemp("killed"))


def lives_of(kinds: list[str], points: tuple[str, ...], folder: Path, *, new_key: bool = False) -> Lives:
    """One after the other, each killed at another point; the first one perhaps also when a rule brings a new key."""
    found = Lives(folder, points, kinds)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    for point in found.points:
        more = [NEW_KEY] if new_key and point == SINK else []
        with (folder / "stderr").open("wb") as log:
            victim = spawned(
                [sys.executable, "-m", "tests.end_to_end.victim", str(folder), point, *kinds, *more],
                env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            status = victim.wait(timeout=1000)
        log_text = (folder / "stderr").read_text()
        assert status == -9, log_text[-3000:]
        found.log += log_text
        for kind in kinds:
            assert held(folder / kind, point).exists(), kind
            found.moments[point, kind] = Moment.of(query_of(kind, folder))
    for kind in kinds:
        for mark in (folder / kind).glob("hold at *"):
            mark.unlink()  # those that go on are not held
    return found


def check_moments(lives: Lives) -> None:
    """Every query was at the point, and had come further than the time before."""
    for kind in lives.kinds:
        for life, point in enumerate(lives.points, 1):
            moment, outputs = lives.moments[point, kind], QUERIES[kind].outputs
            assert moment.begun == moment.committed + (point != COMMITTED), (kind, point)
            assert moment.committed >= FILES * life - 1 - (point != COMMITTED), (kind, point)
            for output in outputs:
                held = point == SINK and output == outputs[0]
                assert (moment.committed + 1 in moment.written[output]) == held, (kind, point, output)


def test_where_they_were_killed(lives: Lives) -> None:
    check_moments(lives)


def failing(df: DataFrame, batch_id: int) -> None:
    raise RuntimeError("the sink fails")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_or_doubled(spark: SparkSession, lives: Lives, kind: str) -> None:
    check_rows(spark, lives, kind)


def check_rows(spark: SparkSession, lives: Lives, kind: str) -> None:
    """By the micro-batch and by id, compared with a replay of all events in memory. After the kills, another definition is
    refused, and does no harm; then a sink fails when the others have written.
    """
    other, query = query_of(kind, lives.folder), query_of(kind, lives.folder)
    other.key_groups += 1
    if isinstance(other, WindowQuery):
        other.trigger = other.trigger.discarding()
        other.key_groups = query.key_groups
    with pytest.raises(
        StateError, match=r"the checkpoint (cannot be continued: the trigger changed|was created with 2 key groups)"
    ):
        other.run(spark, sinks(other))
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.run(spark, sinks(query) | {query.outputs[-1]: failing})
    with keep_operator(query.folder):
        query.run(spark, sinks(query))
    verdict = check(query, kept_operator(query.folder), query.folder)
    assert not verdict.differences, verdict.tell()
    assert all(verdict.rows[output] > 0 for output in query.ids), verdict.rows
    for source in query.sources:
        read = Counter(Path(path).name for batch in history(query) for path in batch.files[source])
        assert read == {f"{number:05}.parquet": 1 for number in range(FILES * len(lives.points))}
    if kind == "operator":
        moves = sum(pq.read_metadata(path).num_rows for path in (query.folder / "moves").glob("*.parquet"))
        assert verdict.rows["booked"] == moves
