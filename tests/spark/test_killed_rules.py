"""Rules that a person takes out of a query on Spark: of one that they have brought down, and of one that runs."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from asterism import Pattern
from asterism.cli.main import main
from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.set_store import status_of
from tests.spark.rules import Watch, e, rule

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])
AB = rule("ab", 1, "a", "b")
DIVIDES = Pattern.begin("a").where("1 / x > 0")


def raises(matches: pa.Table) -> pa.Table:
    raise RuntimeError("it cannot be made")


def cli(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["rules", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def bad(version: int, pattern: Pattern = DIVIDES, **more: str) -> PatternProcessor:
    return PatternProcessor("bad", version, pattern.within(timedelta(minutes=1)), **more)  # type: ignore[arg-type]


def test_a_query_that_a_rule_has_brought_down_starts_again_without_it(spark: SparkSession, tmp_path: Path) -> None:
    check_rule_is_left_out(spark, tmp_path, "kill")


def check_rule_is_left_out(spark: SparkSession, tmp_path: Path, how: str) -> Watch:
    """Its set is in the micro-batch that has failed, and is repeated: nothing done to the rule where it comes from helps."""
    query = Watch(spark, tmp_path, functions={"raises": raises})
    wrong = bad(1) if how == "without" else bad(1, Pattern.begin("a").where("kind = 'b'"), function="raises")
    query.rules(AB)
    query.events(e(1, "a"))
    query.once()
    query.rules(AB, wrong)
    query.events(e(2, "b"), e(3, "a"), e(4, "tick"))
    with pytest.raises(AsterismError, match='the pattern processor "bad" version 1 failed'):
        query.once()
    options = {}
    if how == "without":
        options = {"without": ["bad"]}
    else:
        output = cli("kill", str(query.checkpoint), "bad@1", "--reason", "it divides by zero")
        assert output == "bad@1 killed\n"
    started = query.stream.run(query.sinks, checkpoint=str(query.checkpoint), trigger={"availableNow": True}, **options)  # type: ignore[arg-type]
    assert started is not None
    started.awaitTermination()
    assert query.found == [("ab", 1, ("ann",), "a1 b2")]
    reason = {"bad": "excluded by run(without=...)"} if how == "without" else {"bad@1": "it divides by zero"}
    assert status_of(str(query.checkpoint)).killed == reason
    if how == "kill":
        assert "bad@1, since " in cli("killed", str(query.checkpoint))
        assert "bad@1 is admitted again" in cli("unkill", str(query.checkpoint), "bad@1")
    assert query.sinks["errors"].rows == []
    return query


def test_over_a_table_rules_are_left_out_too(spark: SparkSession, tmp_path: Path) -> None:
    query = Watch(spark, tmp_path)
    query.rules(AB, bad(1))
    query.events(e(1, "a"), e(2, "b"))
    table = spark.read.parquet(str(tmp_path / "events"))
    stream = query.stream_of(table)
    assert [row.processor_id for row in stream.output("matches", without=["bad"]).collect()] == ["ab"]
    stream.run({"matches": query.sinks["matches"]}, without=["bad@1"])
    assert query.found == [("ab", 1, ("ann",), "a1 b2")]
