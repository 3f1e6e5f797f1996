"""W1 over a topic of Kafka: ``python -m benchmarks.kafka --size M``.

The events are in two topics of eight partitions, as JSON and as Avro; all events of a user are in one partition. A broker on the
same machine serves them. Each run is a stream, available now, in some micro-batches and the drain. In one process, alternating:

* ``read``: Spark reads the topic of JSON, and drops the records;
* ``json floor``, ``avro floor``: and parses them, by ``from_json`` or ``from_avro``;
* ``json``, ``avro``: the pattern over ``kafka_events``, with a watermark for each partition.

One JSON line per run on standard output, with the records per second of the micro-batches after the first one. The matches are
compared with the known ones; others make the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream
from asterism.sources import kafka_events
from benchmarks import harness, streaming
from benchmarks.gen_data import SIZES
from benchmarks.workloads import COLUMNS, DISORDER, KEY, TIME, WORKLOADS
from tests.servers.jars import jars
from tests.servers.kafka import Broker

READ, JSON_FLOOR, AVRO_FLOOR, JSON, AVRO = MODES = ("read", "json floor", "avro floor", "json", "avro")
WORKLOAD = WORKLOADS["W1"]
SCHEMA = "event_time BIGINT, user_id BIGINT, item_id BIGINT, kind STRING, amount DOUBLE"
_TYPES = {"kind": "string", "amount": "double"}
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "event",
        "fields": [{"name": name, "type": _TYPES.get(name, "long")} for name in COLUMNS],
    }
)


def fill(spark: SparkSession, broker: Broker, files: Path, partitions: int) -> dict[str, int]:
    """Write the events to the topics, each partition in order of arrival; returns the mean size of a value."""
    from pyspark.sql.avro.functions import to_avro

    events = F.struct(*COLUMNS)
    sizes = {}
    for topic, value in ((JSON, F.to_json(events).cast("binary")), (AVRO, to_avro(events, AVRO_SCHEMA))):
        broker.create_topic(topic, partitions)
        for file in sorted(files.glob("part-*.parquet")):
            records = spark.read.parquet(str(file)).coalesce(1)
            partition = (F.col(KEY) % partitions).cast("int").alias("partition")
            records = records.select(F.col(KEY).cast("string").alias("key"), value.alias("value"), partition)
            writer = records.write.format("kafka").option("kafka.bootstrap.servers", broker.address)
            writer.option("topic", topic).option("kafka.linger.ms", 20).option("kafka.batch.size", 200_000).save()
        sizes[topic] = round(records.agg(F.avg(F.length("value"))).collect()[0][0])
    return sizes


def event_of(mode: str) -> str | Column:
    from pyspark.sql.avro.functions import from_avro

    return SCHEMA if mode.startswith(JSON) else from_avro("value", AVRO_SCHEMA, {"mode": "PERMISSIVE"})


def floor(records: DataFrame, mode: str) -> DataFrame:
    if mode == READ:
        return records.select("value")
    event = event_of(mode)
    parsed = F.from_json(F.col("value").cast("string"), event) if isinstance(event, str) else event
    return records.select(parsed.alias("event")).select("event.*")


def measured(
    spark: SparkSession, broker: Broker, mode: str, progress: streaming.Progress, args: argparse.Namespace
) -> dict[str, Any]:
    collected: dict[int, pa.Table] = {}

    def sink(matches: DataFrame, batch_id: int) -> None:
        collected[batch_id] = matches.toArrow()

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", AVRO if mode in (AVRO, AVRO_FLOOR) else JSON)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", -(-SIZES[args.size][0] // args.batches))
        .option("minPartitions", args.cores)
        .load()
    )
    with tempfile.TemporaryDirectory(prefix="asterism-benchmark-") as scratch:
        begin = time.perf_counter()
        if mode in (JSON, AVRO):
            events = kafka_events(records, event_of(mode), time=TIME).events
            by = ["topic", "partition"]
            stream = KeyedStream(events, KEY, TIME, max_out_of_orderness=DISORDER, watermark_by=by)
            found = CEP.pattern(stream, WORKLOAD.pattern, key_groups=args.key_groups)
            found.run({"matches": sink}, checkpoint=scratch, select={"matches": WORKLOAD.measures or ()})
        else:
            writer = floor(records, mode).writeStream.format("noop").option("checkpointLocation", scratch)
            writer.trigger(availableNow=True).start().awaitTermination()
        seconds = time.perf_counter() - begin
    run = streaming.StreamRun(seconds, progress.take(), pa.table({}))
    record = {"mode": mode, **run.figures(), "records": sum(batch.events for batch in run.batches)}
    if collected:
        times = WORKLOAD.times(pa.concat_tables(collected.values()))
        expected = harness.expected(args.size, WORKLOAD.name)
        record["ok"] = (len(times), harness.checksum(WORKLOAD.tag, times)) == expected
    return record


def main(arguments: list[str] | None = None) -> int:
    cli = harness.command_line("kafka", "Measure a pattern over a topic of Kafka.")
    cli.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    cli.add_argument("--runs", type=int, default=2, help="rounds after the warm-up")
    cli.add_argument("--cores", type=int, default=2)
    cli.add_argument("--partitions", type=int, default=8, help="of the topics")
    cli.add_argument("--batches", type=int, default=4, help="micro-batches that bring events")
    cli.add_argument("--key-groups", type=int, help="of asterism")
    cli.add_argument("--memory", default="6g", help="heap of the JVM")
    args = cli.parse_args(arguments)

    data = harness.data_folder(args.size, args.data)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, jars('kafka')))} pyspark-shell"
    spark = harness.session(args.cores, args.memory)
    broker = Broker()
    ok = True
    try:
        broker.start()
        begin = time.perf_counter()
        sizes = fill(spark, broker, data / "parquet", args.partitions)
        print(json.dumps({"value bytes": sizes, "seconds to fill": round(time.perf_counter() - begin, 1)}), flush=True)
        with streaming.listening(spark) as progress:
            for number in range(args.runs + 1):
                for mode in args.modes:
                    record = measured(spark, broker, mode, progress, args)
                    ok = ok and record.get("ok", True) and record["records"] == SIZES[args.size][0]
                    print(json.dumps({"round": number, **record}), flush=True)
    finally:
        spark.stop()
        broker.remove()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
