"""Lookup tables change between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from asterism import (
    CEP,
    Lookup,
    Pattern,
    PatternProcessor,
    read_state,
)
from asterism.errors import CheckpointMismatchError
from asterism.rules.sets.set_store import STORE
from tests.spark.rules import INTERVAL, Watch, e
from tests.spark.test_lookups import IN_SQL, TOTAL, found

pytestmark = pytest.mark.spark


def test_lookups_change_between_two_runs(spark: SparkSession, tmp_path: Path) -> None:
    columns = "customer STRING, max DOUBLE"

    def lookup(name: str, schema: str, *rows: tuple[Any, ...]) -> Lookup:
        names = [part.split()[0] for part in schema.split(", ")]
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows), ""]))
        return Lookup(path, key="customer", on="user", schema=schema, interval=INTERVAL)

    query = Watch(spark, tmp_path, delay=1, lookups={"limits": lookup("limits", columns, ("ann", 5), ("bob", 50))})
    query.rules(TOTAL, IN_SQL)
    query.events(e(1, "a", "bob", x=40), e(2, "a", "ann", x=6))  # the second one waits for the watermark
    query.once()
    assert found(query) == []

    # One is added, which takes the first place, and another one has more columns.
    known = lookup("known", "customer STRING", ("bob",))
    wider = lookup("limits", columns + ", most DOUBLE", ("ann", 5, 8), ("bob", 50, 70))
    query.options["lookups"] = {"known": known, "limits": wider}
    most = PatternProcessor(
        "most", 1, Pattern.begin("a").where("kind = 'a' AND x > limits.most AND known.customer IS NOT NULL")
    )
    query.rules(TOTAL, IN_SQL, most)
    query.events(e(3, "b", "bob", x=20), e(4, "a", "bob", x=60), e(5, "a", "bob", x=71), e(9, "tick"))
    query.once()
    expected = [
        ("most", 5, 5, None),
        ("sql", 2, 2, "5.0"),
        ("sql", 4, 4, "50.0"),
        ("sql", 5, 5, "50.0"),
        ("total", 1, 3, "50.0"),
    ]
    assert found(query) == expected

    state = read_state(spark, str(query.checkpoint)).partial_matches(events=True).collect()
    assert {list(one.event.asDict())[-1] for row in state for one in row.accepted or ()} <= {"limits"}

    # A rule reads it.
    query.options["lookups"] = {"limits": wider}
    with pytest.raises(
        CheckpointMismatchError, match=r"(?s)the lookup known was removed, and rules read it.*most version 1"
    ):
        query.once()
    # What writeStream starts is refused by its processes.
    stream = CEP.pattern_processors(
        query.stream.stream, query.factory, store=f"{query.checkpoint}/{STORE}", key_groups=4, lookups={"limits": wider}
    )
    writer = stream.output("matches").writeStream.format("noop").option("checkpointLocation", str(query.checkpoint))
    refused = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="the lookup known was removed, and rules read it"):
        refused.awaitTermination()
    # Without the rule, it can be removed.
    query.options["lookups"] = {"known": known, "limits": wider}
    query.rules(TOTAL, IN_SQL)
    query.events(e(11, "a", "ann", x=4), e(19, "tick"))
    query.once()
    query.options["lookups"] = {"limits": wider}
    query.events(e(21, "b", "ann", x=3), e(29, "tick"))
    query.once()
    assert found(query) == sorted([*expected, ("total", 2, 21, "5.0"), ("total", 11, 21, "5.0")])
    assert query.status.lookups.keys() == {"limits"}
