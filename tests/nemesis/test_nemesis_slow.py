"""A few of the faults of ``make nemesis``, in lives of a query whose rules change: in a folder, in HDFS, and in S3."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.discovery.servers import or_skipped
from tests.nemesis.life import ALL, ERROR, KILL, SELF, STORED, Fault, Life
from tests.nemesis.replay import check, insert, kept_operator, write
from tests.nemesis.storages import STORAGES


@pytest.mark.spark
def test_a_life_with_faults(tmp_path: Path) -> None:
    """A worker is killed with its state changed and not kept; the sink fails when it has written; the store fails in the
    middle of a write; everything is killed when an offset is written. Rules change meanwhile. What a checker that replays the
    offset log finds is nothing; and it finds what is then taken away, added or changed.
    """
    faults = [
        Fault(0, "state.call.after", 2, KILL, SELF),
        Fault(1, "batch.end", 1, ERROR, SELF),
        Fault(2, "store.move.before", 1, KILL, SELF),
        Fault(3, "file.offset", 1, KILL, ALL),
    ]
    life = Life(tmp_path, "rules", 11, faults, patience=400)
    verdict = life.run()
    assert not verdict.differences, verdict.tell()
    assert [outcome.hit and outcome.recovered for outcome in life.outcomes] == [True] * 4
    assert life.starts == 2
    assert life.never_passed == set()
    assert verdict.rows["matches"] > 20

    tables = {int(path.stem): pq.read_table(path) for path in (tmp_path / "out" / "matches").glob("*.parquet")}
    last = max(number for number, table in tables.items() if table.num_rows)
    write(tmp_path, "matches", last, tables[last].slice(1))
    insert(tmp_path, "matches", ["an id that nobody has made"])
    found = check(life.query, kept_operator(tmp_path), tmp_path)
    wrong = [(number, output, len(missing), len(more)) for number, output, missing, more in found.differences]
    assert wrong == [(last, "matches", 1, 0), (-1, "matches by id", 0, 1)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("where", "harms"), [("hdfs", ["name_node"]), ("s3", ["throttled", "broken"])], ids=["hdfs", "s3"]
)
def test_a_life_in_a_storage(tmp_path: Path, where: str, harms: list[str]) -> None:
    """Checkpoint and store of rules are in a storage, whose name node is killed, or that refuses and fails requests; a worker
    is killed in the middle of a micro-batch, and everything when an offset is written.
    """
    faults = [Fault(n, STORED, 1, "storage", harm, 5.0) for n, harm in enumerate(harms)]
    faults += [Fault(8, "state.call.after", 2, KILL, SELF), Fault(9, "file.offset", 1, KILL, ALL)]
    with or_skipped():
        storage = STORAGES[where]()
    try:
        life = Life(tmp_path, "rules", 12, faults, patience=400, storage=storage)
        verdict = life.run()
    finally:
        storage.remove()
    assert not verdict.differences, verdict.tell()
    assert [outcome.hit and outcome.recovered for outcome in life.outcomes] == [True] * len(faults)
    assert verdict.rows["matches"] > 0
