"""A few of the faults of ``make nemesis``, in one life of a query whose rules change."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.nemesis.life import ALL, ERROR, KILL, SELF, Fault, Life
from tests.nemesis.replay import check, insert, kept_operator, write


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
