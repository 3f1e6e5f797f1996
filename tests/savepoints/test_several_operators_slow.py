"""A query with several operators continues from a savepoint with the rows of one that was never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    KeyedStream,
    TumblingWindows,
    create_savepoint,
    interval_join,
    read_savepoint,
    read_state,
    rescale_checkpoint,
    restore_savepoint,
    window,
)
from asterism.errors import StateError
from tests.savepoints.test_savepoints_slow import AB, SECOND, Query, parts

pytestmark = pytest.mark.spark


def of_chain(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
    """Windows over the matches of a pattern."""
    events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
    pattern = CEP.pattern(events, AB, drain=options.get("drain", False), key_groups=options.get("key_groups", 3))
    matches = pattern.select("b.v AS v", "match_time AS ts")
    return window(KeyedStream(matches, "user", "ts"), TumblingWindows.of(20 * SECOND), **options), ["results"]


def side_by_side(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
    """A join of the matches of two patterns."""
    drain, groups = options.get("drain", False), options.get("key_groups", 3)
    events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
    left = CEP.pattern(events, AB, drain=drain, key_groups=groups).select("a.v AS v", "match_time AS ts")
    second = KeyedStream(df.where("v % 2 = 0"), key="user", time="ts", max_out_of_orderness=3 * SECOND)
    right = CEP.pattern(second, AB, drain=drain, key_groups=groups).select("b.v AS w", "match_time AS ts")
    bounds = (-30 * SECOND, 30 * SECOND)
    join = interval_join(
        KeyedStream(left, "user", "ts"), KeyedStream(right, "user", "ts"), bounds, how="full", prefix="r_", **options
    )
    return join, ["results"]


@pytest.mark.parametrize("make", [of_chain, side_by_side])
def test_several_operators_continue(spark: SparkSession, tmp_path: Path, make: Any) -> None:
    whole, moved = Query(spark, tmp_path / "whole", make), Query(spark, tmp_path / "moved", make)
    savepoint = str(tmp_path / "savepoint")
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        moved.write(number, rows)
        if number == 1:
            moved.run("first", drain=False, key_groups=3)
            create_savepoint(spark, str(moved.folder / "first"), savepoint)
            with pytest.raises(StateError, match=r"has [23] operators"):
                read_savepoint(spark, savepoint)
            states = (
                read_state(spark, str(moved.folder / "first"), operator_id=1),
                read_savepoint(spark, savepoint, operator_id=1),
            )
            matches = [sorted(map(str, state.partial_matches(events=True).collect())) for state in states]
            assert matches[0] == matches[1] != []
            restore_savepoint(spark, savepoint, str(moved.folder / "second"), key_groups=8, tasks=2)
        elif number == 3:
            moved.run("second", drain=False, key_groups=8)
            rescale_checkpoint(spark, str(moved.folder / "second"), tasks=1, key_groups=2)
    moved.run("second", drain=True, key_groups=2)
    whole.run("checkpoint", drain=True)
    assert moved.rows() == whole.rows()
    assert all(moved.rows().values())
