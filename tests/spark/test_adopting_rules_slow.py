"""A version of a rule adopts the partial matches of the former one while its query runs on Spark, and after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import PatternProcessor
from asterism.discovery import status_of
from tests.kit import until
from tests.spark.rules import Watch, at, e, found, rule

pytestmark = pytest.mark.spark


CLAUSE = (
    "PARTITION BY user MEASURES COUNT(*) AS n ALL ROWS PER MATCH PATTERN (A B{}) WITHIN INTERVAL '60' SECOND "
    "DEFINE A AS kind = 'a', B AS kind = 'b'{}"
)
EQL = 'sequence by user with maxspan=60s [any where kind == "a"] [any where kind == "b"{}]'


def in_eql(version: int, more: str, **fields: object) -> PatternProcessor:
    document = {"id": "eql", "version": version, "eql": EQL.format(more), **fields}
    return PatternProcessor.from_dict(document)


def test_clauses_at_once_and_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """The search of a clause goes on, also after a restart, and that of a rule in EQL."""
    query = Watch(spark, tmp_path)
    names = ["changed", "timed", "dropped"]
    first = [PatternProcessor(name, 1, sql=CLAUSE.format("", "")) for name in names]
    query.rules(*first, in_eql(1, ""))
    query.events(e(1, "a"), e(4, "x", "bob"))
    query.once()
    with_c = CLAUSE.format(" C", ", C AS kind = 'c'")
    query.rules(
        PatternProcessor("changed", 2, sql=with_c, adopt=1),
        first[1],
        PatternProcessor("timed", 2, sql=with_c, adopt=True, timestamp=at(10)),
        PatternProcessor("dropped", 2, sql=CLAUSE.format("", "")),
        in_eql(2, ' or kind == "x"', adopt=True),
    )
    query.events(e(8, "a", "bob"))
    query.once()
    query.events(e(12, "b"), e(13, "b", "bob"), e(14, "c"), e(15, "c", "bob"), e(30, "x"))
    query.once()
    rows = query.sinks["matches"].rows
    assert found(row for row in rows if row["processor_id"] != "eql") == sorted(
        [("dropped", 2, ("bob",), text) for text in ("a8", "b13")]
        + [
            (name, 2, (user,), text)
            for name in ("changed", "timed")
            for user, texts in (("ann", ("a1", "b12", "c14")), ("bob", ("a8", "b13", "c15")))
            for text in texts
        ]
    )
    assert sorted((r["processor_version"], r["key"][0]) for r in rows if r["processor_id"] == "eql") == [
        (2, "ann"),
        (2, "bob"),
    ]
    until(lambda: {r.id: r.adopted for r in status_of(str(query.checkpoint)).rules if r.version == 2}["timed"] == 2)


def test_at_once_and_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """One rule changes its pattern, one waits for its time, and one does not adopt."""
    query = Watch(spark, tmp_path)
    names = ["changed", "timed", "dropped"]
    query.rules(*(rule(name, 1, "a", "b") for name in names))
    query.events(e(1, "a"), e(2, "a", "bob"), e(4, "x"))
    query.once()
    query.rules(
        rule("changed", 2, "a", "b", "c", adopt=1),
        rule("timed", 1, "a", "b"),
        rule("timed", 2, "a", "b", "c", adopt=True, timestamp=at(10)),
        rule("dropped", 2, "a", "b"),
    )
    query.events(e(5, "b", "bob"), e(6, "c", "bob"), e(8, "x"), e(9, "a", "eve"))
    query.once()
    query.events(e(12, "b"), e(13, "b", "eve"), e(14, "c"), e(15, "c", "eve"), e(30, "x"))
    query.once()
    assert found(query.sinks["matches"].rows) == [
        ("changed", 2, ("ann",), "a1 b12 c14"),
        ("changed", 2, ("bob",), "a2 b5 c6"),
        ("changed", 2, ("eve",), "a9 b13 c15"),
        ("dropped", 2, ("eve",), "a9 b13"),
        ("timed", 1, ("bob",), "a2 b5"),
        ("timed", 2, ("ann",), "a1 b12 c14"),
        ("timed", 2, ("eve",), "a9 b13 c15"),
    ]

    def adopted() -> dict[tuple[str, int | None], tuple[int, int]]:
        return {(r.id, r.version): (r.adopted, r.not_adopted) for r in status_of(str(query.checkpoint)).rules}

    until(lambda: adopted().get(("timed", 2)) == (2, 0))
    assert adopted()["changed", 2] == (2, 0)
