"""Partitions of an input: idle after a pause of the query, other columns, too many."""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.errors import LimitExceededError
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.key_group import KeyGroupOperator
from asterism.operators.state.partition_watermarks import MAX_PARTITIONS
from tests.operators.partitioned_query import SECOND, PartitionedQuery, with_partitions

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
MILLISECOND = 1000


def operator() -> KeyGroupOperator:
    outputs = {"matches": OutputSpec(OutputKind.MATCHES, measures=("a.id AS event",))}
    return CepOperator(Pattern.begin("a"), SCHEMA, keys=["id"], time="ts", outputs=outputs)


def events(*rows: tuple[str | int | None, int]) -> pa.Table:
    """(partition, seconds)"""
    partitions, seconds = zip(*rows, strict=True)
    times = pa.array([second * SECOND for second in seconds], pa.timestamp("us", "UTC"))
    ids = pa.array(range(len(rows)), pa.int64())
    return pa.table([ids, times, pa.array(partitions)], names=["id", "ts", "partition"])


def test_a_pause_of_the_query_does_not_make_partitions_idle() -> None:
    query = PartitionedQuery(with_partitions(operator(), 10 * SECOND), ["id"])
    query.micro_batch(events(("a", 100), ("b", 5)))
    query.restart()
    query.now = 1000 * SECOND
    query.micro_batch(events(("a", 200)))
    assert query.watermark == 5 * SECOND - MILLISECOND
    query.at(1010 * SECOND)
    assert query.watermark == 200 * SECOND - MILLISECOND
    query.micro_batch(events(("b", 20)))  # late, and active again
    query.micro_batch(events(("a", 300)))
    assert query.watermark == 200 * SECOND - MILLISECOND


def test_the_argument_can_be_added_changed_and_removed() -> None:
    query = PartitionedQuery(operator(), ["id"])
    query.micro_batch(events(("a", 10)))
    query.restart(with_partitions(operator()))
    query.micro_batch(events(("a", 20), ("b", 5)))
    assert query.watermark == 10 * SECOND - MILLISECOND  # it never decreases
    query.micro_batch(events(("b", 15)))
    assert query.watermark == 15 * SECOND - MILLISECOND
    query.restart(with_partitions(operator(), columns=("shard",)))
    query.micro_batch(events(("c", 30)))  # those of other columns are forgotten
    assert query.watermark == 30 * SECOND - MILLISECOND
    query.restart(operator())
    query.micro_batch(events(("d", 40)))
    assert query.watermark == 40 * SECOND - MILLISECOND
    assert not query.header().partitions


def test_a_null_is_a_partition() -> None:
    query = PartitionedQuery(with_partitions(operator()), ["id"])
    query.micro_batch(events((None, 10), ("a", 20)))
    assert query.watermark == 10 * SECOND - MILLISECOND


def test_too_many_partitions() -> None:
    query = PartitionedQuery(with_partitions(operator()), ["id"])
    with pytest.raises(LimitExceededError, match="more than 10,000 partitions"):
        query.micro_batch(events(*((number, 1) for number in range(MAX_PARTITIONS + 1))))
    query.micro_batch(events(*((number, 1) for number in range(MAX_PARTITIONS))))
    with pytest.raises(LimitExceededError, match="more than 10,000 partitions"):
        query.micro_batch(events((-1, 1)))


def test_idle_partitions_are_forgotten_when_there_would_be_too_many() -> None:
    query = PartitionedQuery(with_partitions(operator(), 10 * SECOND), ["id"])
    query.micro_batch(events(*((number, 50 + number) for number in range(MAX_PARTITIONS))))
    query.at(10 * SECOND)
    query.micro_batch(events((-1, 1), (5, 100_000)))
    assert query.header().partitions[0].names == ['["5"]', '["9999"]', '["-1"]']  # and the latest
    assert query.watermark == (50 + MAX_PARTITIONS - 1) * SECOND - MILLISECOND  # it never decreases
    query.micro_batch(events((-1, 200_000)))
    assert query.watermark == 100_000 * SECOND - MILLISECOND


def test_a_name_is_bounded() -> None:
    query = PartitionedQuery(with_partitions(operator()), ["id"])
    with pytest.raises(LimitExceededError, match="the name of a partition has more than 1,000 characters"):
        query.micro_batch(events(("x" * 1000, 1)))


def test_the_slowest_partitions_are_reported() -> None:
    query = PartitionedQuery(with_partitions(operator(), 10 * SECOND), ["id"])
    query.micro_batch(events(*((str(number), 100 - number) for number in range(9))))
    query.now = 9 * SECOND
    query.micro_batch(events(*((str(number), 100 - number) for number in range(7))))
    assert list(query.behind["events"].items())[:2] == [
        ('{"partition": "8"}', 8 * SECOND),
        ('{"partition": "7"}', 7 * SECOND),
    ]
    assert len(query.behind["events"]) == 5
    query.at(10 * SECOND)  # 7 and 8 are idle
    assert next(iter(query.behind["events"])) == '{"partition": "6"}'
