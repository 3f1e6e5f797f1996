"""EQL over DataFrames."""

from __future__ import annotations

from pyspark.sql import SparkSession

from asterism import eql
from tests.elastic.kit import CASES, EVENTS


def test_pipes_and_sequences_are_those_over_tables(spark: SparkSession) -> None:
    df = spark.createDataFrame(EVENTS)
    for query in (
        "any where true | unique event.category",
        "any where true | tail 1",
        "any where true | sort size | head 2",
    ):
        assert [row["n"] for row in eql(query, df, time="n").select("n").collect()] == CASES[query], query
    for query in (
        "sequence [process where true] [network where true]",
        "sequence [process where true] by ip [file where true] by substring(ip, 0, 8)",
        "sequence [any where true] [any where true] | tail 1",
    ):
        expected = eql(query, EVENTS, time="n").select(["sequence", "event_number", "n"]).to_pylist()
        found = eql(query, df, time="n").select("sequence", "event_number", "n").collect()
        assert [row.asDict() for row in found] == expected, query
        assert expected
