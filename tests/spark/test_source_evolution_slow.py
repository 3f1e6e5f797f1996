"""Named sources with several operators in one query, and with rules: each is restarted with another source."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from asterism import CEP, KeyedStream, TumblingWindows, run, window
from asterism.discovery import FilePatternProcessorDiscovererFactory
from asterism.rules.definition.processor import PatternProcessor
from asterism.spark.host.evolution import control_offsets
from asterism.spark.host.versions import SOURCE_EVOLUTION, SOURCE_NAME
from tests.spark.streams import FUNNEL, STRICT, Collect, events, write_file
from tests.spark.test_source_evolution import united

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not hasattr(DataStreamReader, "name"), reason="this version of Spark does not name sources"),
]


Events = Callable[[str], KeyedStream]
"""By the prefix of the names of their sources."""


def side_by_side(events: Events, folder: Path) -> DataFrame:
    """The matches of two patterns over the same files, which each reads from sources of its own: Spark wants that."""
    found = []
    for name, pattern in (("funnel", FUNNEL), ("strict", STRICT)):
        stream = events(name)
        stream.df.sparkSession.conf.set(SOURCE_NAME, name)
        found.append(
            CEP.pattern(stream, pattern, key_groups=2).matches.select(F.lit(name).alias("pattern"), "match_id")
        )
    stream.df.sparkSession.conf.unset(SOURCE_NAME)
    return found[0].union(found[1])


def chain(events: Events, folder: Path) -> DataFrame:
    matches = CEP.pattern(events(""), FUNNEL, key_groups=2).select("match_time", "LAST(b.price) AS price")
    windows = TumblingWindows.of(timedelta(minutes=1))
    counts = window(KeyedStream(matches, key="user", time="match_time"), windows, key_groups=2)
    return counts.aggregate("count(*) AS n", "sum(price) AS total").select("user", "window_start", "n", "total")


def rules(events: Events, folder: Path) -> DataFrame:
    file = folder / "rules.json"
    written = [PatternProcessor("funnel", 1, FUNNEL), PatternProcessor("strict", 1, STRICT, key=("kind",))]
    file.write_text(json.dumps([rule.to_dict() for rule in written]))
    factory = FilePatternProcessorDiscovererFactory(file)
    found = CEP.pattern_processors(events(""), factory, key_groups=2, store=str(folder / "store"))
    return found.output("matches").select("match_id")


QUERIES: dict[str, tuple[Callable[[Events, Path], DataFrame], int]] = {
    "side_by_side": (side_by_side, 2), "chain": (chain, 2), "rules": (rules, 1),
}  # fmt: skip
"""Each with the number of its operators."""


@pytest.mark.parametrize("kind", QUERIES)
def test_a_source_is_added(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    query, operators = QUERIES[kind]
    table, checkpoint, sink = events(240, users=6), str(tmp_path / "checkpoint"), Collect()
    spark.conf.set(SOURCE_EVOLUTION, "true")
    try:
        begin = 0
        for number, sources in enumerate(["a", "ab"]):
            for name in sources:
                write_file(table.slice(begin, 80), tmp_path / name, number)
                begin += 80
            result = query(partial(united, spark, tmp_path, sources), tmp_path)
            run(result, sink, checkpoint=checkpoint, drain=number == 1)
        assert len(control_offsets(spark, checkpoint)) == operators
    finally:
        spark.conf.unset(SOURCE_EVOLUTION)
        spark.conf.unset(SOURCE_NAME)
    expected = Collect()
    replayed = KeyedStream(spark.createDataFrame(table), key="user", time="ts")
    run(query(lambda prefix: replayed, tmp_path), expected)
    assert sorted(map(str, sink.rows)) == sorted(map(str, expected.rows))
    assert len({row.get("pattern") for row in sink.rows}) == (2 if kind == "side_by_side" else 1)
