"""Compares two savepoints."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism.arguments import expect_string
from asterism.errors import StateError
from asterism.savepoints.differences import (
    OperatorDifferences,
    SavepointDifferences,
    TableDifferences,
    of_operators,
    of_queries,
    of_sources,
)
from asterism.savepoints.key_groups import KEY_GROUP, KEY_HASH, POSITION, STATE, THE_KEY
from asterism.savepoints.manifest import ROWS
from asterism.spark.savepoints.creating import PARQUET
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.restoring import StoredOperator, StoredSavepoint
from asterism.spark.session.settings import expect_session, settings
from asterism.text.printable import quoted_name

_NAME, _CONTENT, _COUNT = "name", "content", "count"


def diff_savepoints(spark: SparkSession, before: str, after: str) -> SavepointDifferences:
    """What distinguishes two savepoints: the query and its positions, and for each operator the definition, watermarks, rules,
    and how many keys were added and removed or have another state.

    The savepoints may have different numbers of key groups, which change no state.

    :param before, after: the folders that :func:`create_savepoint` has written
    :return: the differences; falsy if there are none. ``to_dict()`` has them as JSON.
    :raises StateError: one of them is no savepoint

    docs/savepoints.md has an example.
    """
    expect_session(spark, "diff_savepoints")
    for location in (before, after):
        expect_string(StateError, location, "the savepoint must be a location", '"/savepoints/carts"')
    stored = [StoredSavepoint.of(StoredFolder.of(spark, location)) for location in (before, after)]
    manifests = stored[0].manifest, stored[1].manifest
    count = max(len(savepoint.operators) for savepoint in stored)
    with settings(spark, PARQUET):
        operators = [
            _of_operators(spark, number, *(dict(enumerate(savepoint.operators)).get(number) for savepoint in stored))
            for number in range(count)
        ]
    return SavepointDifferences(of_queries(*manifests), of_sources(*manifests), operators)


def _of_operators(
    spark: SparkSession, number: int, before: StoredOperator | None, after: StoredOperator | None
) -> OperatorDifferences:
    both = [before, after]
    parts = [None if each is None else each.part for each in both]
    rules = [None if each is None else each.rules for each in both]
    differences = of_operators(number, parts[0], parts[1], rules)
    names = list(dict.fromkeys(name for each in both if each is not None for name in each.counts))
    return replace(differences, tables=[_of_tables(spark, name, both) for name in names])


def _of_tables(spark: SparkSession, name: str, both: list[StoredOperator | None]) -> TableDifferences:
    """The differences of the rows of a table."""
    frames = []
    for each in both:
        if each is None or name not in each.counts:
            frames.append(spark.createDataFrame([], f"{_NAME} string, {_CONTENT} string, {_COUNT} bigint"))
        else:
            frames.append(_counted(spark.read.parquet(f"{each.folder.location}/{name}"), keyed=name == ROWS))
    joined = frames[0].alias("b").join(frames[1].alias("a"), _NAME, "full_outer")
    before, after = F.coalesce(f"b.{_COUNT}", F.lit(0)), F.coalesce(f"a.{_COUNT}", F.lit(0))
    both_have = (before > 0) & (after > 0)
    found = joined.agg(
        F.sum(before).alias("before"),
        F.sum(after).alias("after"),
        F.sum(F.greatest(after - before, F.lit(0))).alias("added"),
        F.sum(F.greatest(before - after, F.lit(0))).alias("removed"),
        F.sum((both_have & (F.col(f"b.{_CONTENT}") != F.col(f"a.{_CONTENT}"))).cast("int")).alias("changed"),
    ).first()
    assert found is not None
    return TableDifferences(name, *(int(value or 0) for value in found))


def _counted(rows: DataFrame, *, keyed: bool) -> DataFrame:
    """For each key one row with what identifies its state; for each distinct event or entry how often it occurs."""
    # JSON has all types, also maps, which cannot be compared.
    if keyed:
        row = rows.select(
            F.to_json(F.struct(THE_KEY, KEY_HASH)).alias(_NAME), F.sha2(F.to_json(STATE), 256).alias(_CONTENT)
        )
        return row.groupBy(_NAME).agg(
            F.concat_ws(" ", F.sort_array(F.collect_list(_CONTENT))).alias(_CONTENT), F.lit(1).alias(_COUNT)
        )
    kept = [F.col(quoted_name(name)) for name in rows.columns if name not in (KEY_GROUP, POSITION)]
    row = rows.select(F.sha2(F.to_json(F.struct(*kept)), 256).alias(_NAME))
    return row.groupBy(_NAME).agg(F.lit("").alias(_CONTENT), F.count("*").alias(_COUNT))
