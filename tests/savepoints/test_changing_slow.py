"""A query on Spark that continues with another pattern."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    CEP,
    KeyedStream,
    Pattern,
    change_savepoint,
    create_savepoint,
    plan_savepoint,
    restore_savepoint,
)
from asterism.cli.main import main
from asterism.errors import StateError
from tests.savepoints.test_savepoints_slow import AB, SECOND, Query, parts

pytestmark = pytest.mark.spark


NEW = Pattern.begin("first").where("kind = 'a' AND v < 99").followed_by("b").where("kind = 'b'").within(30 * SECOND)


def query(spark: SparkSession, folder: Path, of: Pattern) -> Query:
    def make(df: DataFrame, options: dict[str, Any]) -> tuple[Any, list[str]]:
        events = KeyedStream(df, key="user", time="ts", max_out_of_orderness=3 * SECOND)
        return CEP.pattern(events, of, **options), ["matches", "timed_out"]

    return Query(spark, folder, make)


def test_a_query_continues_with_another_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """The stage is renamed, and its condition is another one that decides the same. Events wait for the watermark meanwhile."""
    whole, old, changed = (
        query(spark, tmp_path / name, of) for name, of in (("whole", NEW), ("old", AB), ("changed", NEW))
    )
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        (old if number < 3 else changed).write(number, rows)
    whole.run("checkpoint", drain=True)
    old.run("checkpoint", drain=False, key_groups=3)
    savepoint, target = str(tmp_path / "savepoint"), str(tmp_path / "new")
    create_savepoint(spark, str(old.folder / "checkpoint"), savepoint)

    renamed = {"a": "first"}
    assert plan_savepoint(spark, savepoint, NEW).dropped > 0  # the stage "a" was removed
    plan = plan_savepoint(spark, savepoint, NEW, renamed=renamed)
    assert {(part.what, part.outcome) for part in plan.counts} == {
        ("partial matches", "continues"),
        ("events that wait", "continues"),
    }
    with pytest.raises(StateError, match="drops"):
        change_savepoint(spark, savepoint, target, NEW)
    assert not Path(target).exists()
    assert change_savepoint(spark, savepoint, target, NEW, renamed=renamed) == plan

    # The names of the files that were read are in the checkpoint, so the folder remains.
    for number, rows in enumerate(parts()[3:], start=3):
        old.write(number, rows)
    changed.folder = old.folder
    before = old.rows()
    restore_savepoint(spark, target, str(old.folder / "second"), key_groups=5, tasks=2)
    for output in before:
        (old.folder / output).rename(tmp_path / f"former {output}")
    changed.run("second", drain=True)
    for output, rows in whole.rows().items():
        after = changed.rows()[output]
        assert after
        assert sum(after.values()) + sum(before[output].values()) == sum(rows.values())
        assert not after - rows

    file = tmp_path / "pattern.json"
    file.write_text(NEW.to_json())
    arguments = ["savepoint", "plan", savepoint, str(file), "--json"]
    shown = json.loads(CliRunner().invoke(main, arguments, catch_exceptions=False).output)
    assert shown["dropped"] == sum(part["count"] for part in shown["parts"] if part["outcome"] == "dropped") > 0
