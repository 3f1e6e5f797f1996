"""The contracts one step after the other, and rows without a key over many partitions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism.operators.state.state_store import batch_from_bytes
from asterism.spark.host.stateful import Use
from asterism.streams.data_streams import DataStream
from asterism.streams.operators import connect
from asterism.testing import StreamOperatorHarness
from tests.contracts import test_spark
from tests.contracts.contracts import CONTRACTS, Instances
from tests.contracts.test_spark import check, check_streams, connected
from tests.contracts.test_tables import instances_of_table

pytestmark = pytest.mark.spark
hosted = test_spark.hosted


@pytest.mark.usefixtures("hosted")
def test_contracts_on_streams_one_step_after_the_other(spark: SparkSession, tmp_path: Path) -> None:
    check_streams(spark, tmp_path, key_groups=1, pages=1, files=1)


def test_elements_without_a_key_are_distributed(spark: SparkSession, tmp_path: Path) -> None:
    """Over a table, and over a stream that is started anew. The elements of an instance are the same in both."""
    query = "SELECT timestamp_seconds(id) AS t, id AS v, map('a', 1) AS more, 'x' AS unread FROM range({}, {})"
    parts = [spark.sql(query.format(20 * number, 20 * number + 20)) for number in range(2)]
    table = connect(Instances(), items=DataStream(parts[0].union(parts[1]), time="t"), key_groups=4)
    expected = sorted(row.n for row in table.output("counts").collect())
    assert sum(expected) == 40
    assert len(expected) == 4
    assert instances_of_table(parts[0].union(parts[1]).toArrow()) == expected
    found: dict[str, list[Any]] = {"values": [], "counts": []}
    sinks = {name: (lambda rows, _, name=name: found[name].extend(rows.collect())) for name in found}
    for part, drain in zip(parts, (False, True), strict=True):
        part.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema(part.schema).parquet(str(tmp_path / "in"))
        instances = connect(Instances(), items=DataStream(stream, time="t"), key_groups=4)
        instances.run(sinks, checkpoint=str(tmp_path / "cp"), drain=drain)
    assert sorted(row.v for row in found["values"]) == list(range(40))
    assert sorted(row.n for row in found["counts"]) == expected


def test_contracts_in_batch(spark: SparkSession) -> None:
    """All in one query; that of a user is a part of it."""
    contracts = [contract for contract in CONTRACTS if contract.batch]
    results = []
    for number, contract in enumerate(contracts):
        stream = connected(spark, contract, key_groups=2, pages=3)
        results.append(
            stream._hosted._results(Use(drain=False)).select(F.lit(number).alias("contract"), "output", "chunk")
        )
    rows = reduce(DataFrame.unionByName, results).collect()
    for number, contract in enumerate(contracts):
        schemas = StreamOperatorHarness(contract.operator, contract.inputs).streams.output_schemas
        outputs: dict[str, list[Any]] = {name: [] for name in schemas}
        for row in rows:
            if row.contract == number:
                outputs[row.output] += batch_from_bytes(bytes(row.chunk), schemas[row.output]).to_pylist()
        check(contract, contract.batch if isinstance(contract.batch, Mapping) else contract.expected, outputs)
