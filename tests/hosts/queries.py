"""Queries that only hosts run, beside those of the nemesis: a statement of SQL, and a pattern over a topic of Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import sql
from asterism.spark.api.running import run
from asterism.spark.host.execution import Sink
from tests.nemesis.queries import DELAY, EVENTS, QUERIES, PatternQuery, Query, RowPatternQuery, utc
from tests.spark.streams import write_file

PARTITIONS = 2
TOPIC = "events"
BROKER = "spark.tests.broker"
"""The setting with its address."""
_FIRST_FILE = 10_000
"""The files of micro-batches are beside those of the events."""
Offsets = Mapping[str, int]
"""Of a topic: how many records of each partition have been read."""


class SqlQuery(RowPatternQuery):
    """The same clause in a statement, which drops late rows."""

    kind = "sql"
    outputs = ("matches",)  # type: ignore[assignment] # fewer than those of the clause

    def run(self, spark: SparkSession, sinks: Mapping[str, Sink], **how: Any) -> Any:
        text = f"SELECT * FROM rows MATCH_RECOGNIZE ({self.clause})"
        options: dict[str, Any] = {"max_out_of_orderness": DELAY, "key_groups": self.key_groups}
        result = sql(text, spark, rows=self.read(spark, "events", EVENTS), **options)
        return run(result, sinks["matches"], checkpoint=self.location, **how)


class TopicQuery(PatternQuery):
    """The events are the records of a topic. The events of a user are in one partition, in the order of the files."""

    kind = "kafka"

    def read(self, spark: SparkSession, source: str, schema: str) -> DataFrame:
        options = {"subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(self.size)}
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", spark.conf.get(BROKER))
        event = F.from_json(F.col("value").cast("string"), schema)
        return reader.options(**options).load().select(event.alias("event")).select("event.*")

    def records(self, folder: Path) -> list[tuple[int, bytes, bytes]]:
        """The events of the files in *folder*: (partition, key, value)."""
        paths = sorted(folder.glob("*.parquet"), key=lambda path: path.name)
        rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
        return [(_partition(row["user"]), row["user"].encode(), json.dumps(utc(row)).encode()) for row in rows]

    def as_files(self) -> None:
        """Let what the checkpoint says of the topic be what it would say of a folder with a file for each micro-batch: a replay
        reads files.
        """
        records = self.records(self.folder / TOPIC)
        partitions = {number: [record for record in records if record[0] == number] for number in range(PARTITIONS)}
        log = self.checkpoint / "sources" / "0"
        log.mkdir(parents=True, exist_ok=True)
        last: Offsets = {}
        for number, lines, offsets in _logged(self.checkpoint / "offsets"):
            rows = [
                json.loads(value)
                for partition, sent in partitions.items()
                for _, _, value in sent[last.get(str(partition), 0) : offsets[str(partition)]]
            ]
            last = offsets
            file = write_file(_table(rows, self.table_schema[TOPIC]), self.folder / TOPIC, _FIRST_FILE + number)
            entry = {"path": file.name, "batchId": number}
            (log / str(number)).write_text(f"v1\n{json.dumps(entry)}\n")
            lines[2] = json.dumps({"logOffset": number})
            (self.checkpoint / "offsets" / str(number)).write_text("\n".join(lines))


def _partition(user: str) -> int:
    return int(user.removeprefix("u")) % PARTITIONS


def _logged(folder: Path) -> Iterator[tuple[int, list[str], Offsets]]:
    for path in sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name)):
        lines = path.read_text().splitlines()
        yield int(path.name), lines, json.loads(lines[2])[TOPIC]


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = {field.name: [row[field.name] for row in rows] for field in schema}
    return pa.table(
        [pa.array(column, _as_json(schema.field(name).type)) for name, column in columns.items()], names=schema.names
    ).cast(schema)


def _as_json(type_: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(type_) else type_


HOST_QUERIES: dict[str, type[Query]] = QUERIES | {each.kind: each for each in (SqlQuery, TopicQuery)}
