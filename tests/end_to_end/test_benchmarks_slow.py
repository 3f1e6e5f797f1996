"""The benchmark must measure the right thing: its data are the same everywhere, its answers those of the definitions."""

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table
from benchmarks import gen_data, harness, joins
from benchmarks.gen_data import KINDS, Parameters
from benchmarks.row_patterns import CASES, LONG, LONG_ROWS
from benchmarks.window_queries import QUERIES
from benchmarks.workloads import WORKLOADS
from tests.reference.row_patterns import match_recognize

TINY = Parameters(events=2000, users=50, items=25)
MINUTE = 60_000

Event = tuple[int, str, float]  # time, kind, amount


# ------------------------------------------------------------------ data


def test_data_are_the_same_every_time(tmp_path: Path) -> None:
    metas = []
    for name in ("once", "again"):
        gen_data.main(["--events", "2000", "--users", "50", "--out", str(tmp_path / name)])
        metas.append(json.loads((tmp_path / name / "meta.json").read_text()))
    assert metas[0] == metas[1]
    first, second = (pq.read_table(tmp_path / name / "parquet") for name in ("once", "again"))
    assert first.equals(second)
    assert first.num_rows == TINY.events


def test_another_seed_gives_other_data() -> None:
    other = Parameters(events=2000, users=50, items=25, seed=43)
    assert not np.array_equal(gen_data.generate(TINY), gen_data.generate(other))


def test_event_times_are_unique_and_out_of_order_by_less_than_the_bound() -> None:
    times = gen_data.generate(TINY)["event_time"]
    assert len(np.unique(times)) == len(times)
    behind = np.maximum.accumulate(times) - times
    assert 0 < behind.max() < TINY.disorder_ms


def test_data_of_another_size_are_refused(tmp_path: Path) -> None:
    gen_data.main(["--events", "2000", "--users", "50", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="does not hold the data of size XS"):
        harness.data_folder("XS", tmp_path)


# ------------------------------------------------------------------ checksum


def mix(z: int) -> int:
    mask = 2**64 - 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def plain_checksum(tag: int, matches: list[tuple[int, ...]]) -> str:
    total = 0
    for match in matches:
        h = 0x9E3779B97F4A7C15 + tag
        for time in match:
            h = mix(h ^ time % 2**64)
        total += h
    return f"{total % 2**64:016x}"


@pytest.mark.parametrize("lengths", [(1,), (2,), (4,), (3, 1, 7, 2)])
def test_checksum_is_the_sum_of_splitmix64_hashes(lengths: tuple[int, ...]) -> None:
    """Of matches of any length."""
    rng = np.random.default_rng(len(lengths))
    rows = [tuple(rng.integers(-(2**63), 2**63 - 1, lengths[n % len(lengths)]).tolist()) for n in range(100)]
    assert harness.checksum(5, pa.array(rows, pa.list_(pa.int64()))) == plain_checksum(5, rows)


def test_checksum_of_no_matches_is_zero() -> None:
    assert harness.checksum(1, pa.array([], pa.list_(pa.int64()))) == "0" * 16


# ------------------------------------------------------------------ answers


def w1(events: list[Event]) -> Iterator[tuple[int, ...]]:
    fails = [time for time, kind, _ in events if kind == "login_fail"]
    for first, second, third in zip(fails, fails[1:], fails[2:], strict=False):
        ok = [time for time, kind, _ in events if kind == "login_ok" and time > third]
        if ok and ok[0] - first < 10 * MINUTE:
            yield first, second, third, ok[0]


def w2(events: list[Event]) -> Iterator[tuple[int, ...]]:
    for three in zip(events, events[1:], events[2:], strict=False):
        if [kind for _, kind, _ in three] == ["view", "cart", "buy"] and three[2][0] - three[0][0] < 60 * MINUTE:
            yield tuple(time for time, _, _ in three)


def w3(events: list[Event]) -> Iterator[tuple[int, ...]]:
    transfers = [(time, amount) for time, kind, amount in events if kind == "transfer"]
    for number, (first, amount) in enumerate(transfers):
        larger = [time for time, other in transfers[number + 1 :] if other > 10 * amount]
        if larger and larger[0] - first < 30 * MINUTE:
            yield first, larger[0]


def w4(events: list[Event]) -> Iterator[tuple[int, ...]]:
    for cart, kind, _ in events:
        if kind == "cart" and not any(k == "buy" and 0 < time - cart < 30 * MINUTE for time, k, _ in events):
            yield (cart,)


def w5(events: list[Event]) -> Iterator[tuple[int, ...]]:
    for first, kind, amount in events:
        if kind == "view" and amount >= 60:
            later = [event for event in events if 0 < event[0] - first < 10 * MINUTE]
            for last in (time for time, kind, _ in later if kind == "buy"):
                carts = [time for time, kind, amount in later if kind == "cart" and amount >= 50 and time < last]
                for size in range(1, len(carts) + 1):
                    yield from ((first, *subset, last) for subset in combinations(carts, size))


BRUTE_FORCE = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5}


def definition(name: str, records: np.ndarray[Any, Any]) -> list[tuple[int, ...]]:
    """What README.md says, event by event."""
    users = defaultdict(list)
    for event in np.sort(records, order="event_time"):
        users[event["user_id"]].append((int(event["event_time"]), KINDS[event["kind"]], float(event["amount"])))
    return sorted(match for events in users.values() for match in BRUTE_FORCE[name](events))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray[Any, Any], str]:
    folder = tmp_path_factory.mktemp("tiny")
    records = gen_data.generate(TINY)
    gen_data.write(records, folder, TINY, files=2)
    return records, str(folder / "parquet")


@pytest.mark.spark
@pytest.mark.parametrize("name", list(WORKLOADS))
def test_pattern_and_window_query_find_what_the_definition_says(
    spark: SparkSession, tiny: tuple[np.ndarray[Any, Any], str], name: str
) -> None:
    records, parquet = tiny
    expected = definition(name, records)
    assert expected
    workload, events = WORKLOADS[name], spark.read.parquet(parquet)
    found = workload.times(workload.matches(events).toArrow())
    by_hand = workload.times(QUERIES[name](events).toArrow(), as_columns=True)
    assert sorted(map(tuple, found.to_pylist())) == expected
    assert sorted(map(tuple, by_hand.to_pylist())) == expected
    if workload.clause is not None:
        by_clause = workload.times(workload.match_clause(events).matches.toArrow(), as_columns=True)
        assert sorted(map(tuple, by_clause.to_pylist())) == expected


# ------------------------------------------------------------------ row patterns over tables


@pytest.mark.parametrize("name", [name for name in CASES if name != LONG])
def test_a_row_pattern_finds_what_the_reference_finds(tiny: tuple[Any, str], name: str) -> None:
    case = CASES[name]
    rows = case.rows(Path(tiny[1]).parent)
    rows = pa.concat_tables([rows.slice(0, 400), rows.slice(rows.num_rows // 2, 400)])
    expected = match_recognize(case.clause, rows.to_pylist())
    assert expected
    found = match_table(check(read(case.clause), rows.schema), rows).to_pylist()
    assert by_content(found) == by_content(expected)


def by_content(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(list(row.values())) for row in rows)


def test_the_long_match_has_all_rows() -> None:
    case = CASES[LONG]
    rows = case.rows(Path())
    total = sum(range(1000)) * LONG_ROWS // 1000 - 999  # of B, which leaves out the first row and the last one
    assert match_table(check(read(case.clause), rows.schema), rows).to_pylist() == [
        {"begun": 0, "over": LONG_ROWS - 1, "total": total}
    ]


# ------------------------------------------------------------------ joins


def pairs_of(name: str, left: list[tuple[int, int]], right: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The event times of the rows (user, event time) that are joined."""
    mine = [(time, [other for of, other in right if of == user]) for user, time in left]
    if name == "as of":
        return [(time, max(earlier)) for time, others in mine if (earlier := [n for n in others if n <= time])]

    def joined(time: int, other: int) -> bool:
        return (
            time <= other <= time + 10 * MINUTE
            if name == "interval"
            else time // (10 * MINUTE) == other // (10 * MINUTE)
        )

    return [(time, other) for time, others in mine for other in others if joined(time, other)]


@pytest.mark.parametrize("name", joins.JOINS)
def test_answers_of_joins(name: str, tmp_path: Path) -> None:
    gen_data.main(["--events", "2000", "--users", "50", "--out", str(tmp_path)])
    join = joins.JOINS[name]
    joins.divide(tmp_path / "parquet", tmp_path / "sides", join.kinds)
    sides = [pq.read_table(tmp_path / "sides" / side) for side in (joins.LEFT, joins.RIGHT)]
    rows = [
        list(zip(*(side.column(name).to_pylist() for name in ("user_id", "event_time")), strict=True)) for side in sides
    ]
    found = pairs_of(name, rows[0], rows[1])
    assert len(found) > 20
    assert joins.expected(join, *sides) == (len(found), plain_checksum(0, found))
