"""The history of a query: a table that is read before the stream, when the checkpoint is new.

A batch job computes the state after the table, and the results. They are in a folder of the checkpoint: the results are passed to
the sinks as micro-batch 0 of the query, and the state is the initial state of Spark's first micro-batch. Whatever is interrupted
is repeated, by the next start with the same history.

See docs/decisions/0134.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from asterism.errors import StateError
from asterism.files.file_systems import opened, read_whole, replace_whole
from asterism.spark import QUERY_ID
from asterism.spark.session.checkpoints import READING_HISTORY, RESTORED, SETS, begins_with_history
from asterism.spark.session.settings import hadoop_settings, settings
from asterism.streams.run_options import QueryHistory

FOLDER = "asterism_history"
"""The folder of a checkpoint with the state after its history, until its first micro-batch is complete."""


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The history of a query in its checkpoint."""

    spark: SparkSession
    checkpoint: str
    files: fs.FileSystem
    path: str

    @classmethod
    def of(cls, spark: SparkSession, checkpoint: str) -> StoredHistory:
        return cls(spark, checkpoint, *opened(checkpoint.removeprefix("file:"), hadoop_settings(spark)))

    @property
    def is_over(self) -> bool:
        """Whether the checkpoint has a complete micro-batch, after which the history is part of its state."""
        folder = fs.FileSelector(f"{self.path}/commits", allow_not_found=True)
        return any(info.base_name.isdigit() for info in self.files.get_file_info(folder))

    @property
    def key_groups(self) -> int | None:
        """The number of key groups for which the state was computed; None: it was not begun."""
        return self._document().get("key_groups")

    def prepare(
        self,
        key_groups: int,
        history: QueryHistory,
        read: Callable[[], DataFrame],
        deliver: Callable[[DataFrame, int], None],
    ) -> None:
        """Compute the state after the history, and pass on the results, unless both has been done.

        :param read: makes the rows of :data:`asterism.spark.histories.runner.HISTORY`
        :param deliver: takes results, with the number of a micro-batch
        """
        document = self._document()
        if "batches" in document:
            return
        if READING_HISTORY not in document and history.begin is not None:
            history.begin()
        read_rows = read()  # raises an error if the history does not fit, before anything says that it is being read
        self._write(RESTORED, {READING_HISTORY: True, "key_groups": key_groups})
        self._check_visible()
        query_id = json.loads(self._read("metadata") or "{}").get("id") or str(uuid.uuid4())
        self._write("metadata", {"id": query_id})
        read_rows.write.mode("overwrite").parquet(self.location)
        rows = self._rows()
        with _as_query(self.spark, query_id):
            deliver(results_of(rows), 0)
        if history.counted is not None:
            counts = rows.where("metrics IS NOT NULL").select("metrics").toLocalIterator()
            history.counted(query_id, (row.metrics for row in counts))
        self.delivered(key_groups)

    def prepare_from_savepoint(self, key_groups: int, history: QueryHistory) -> None:
        """The same for a history that a batch job has read before, whose results have been passed on.

        :raises StateError: the store of the query is that of another one
        """
        document = self._document()
        if "batches" in document:
            return
        if history.store is not None and history.clear is not None and history.begin is not None:
            history.clear(document.get(SETS) == history.store)
            self._write(RESTORED, {READING_HISTORY: True, "key_groups": key_groups, SETS: history.store})
            history.begin()
        self.delivered(key_groups)

    def _check_visible(self) -> None:
        """:raises StateError: this is a client of Spark Connect, and writes to another file system than the server reads"""
        if is_remote() and not begins_with_history(self.spark, self.checkpoint):
            raise StateError(
                f"the server does not see what this program writes to the checkpoint {self.checkpoint}",
                "Over Spark Connect, the program that starts a query with a history writes to its checkpoint.",
                "a location that both see, such as a bucket; or start the query in a classic session first",
            )

    def delivered(self, key_groups: int) -> None:
        """Note that the results are those of micro-batch 0, and that the state is not yet in the checkpoint of Spark."""
        self._write(RESTORED, {"batches": 1, "key_groups": key_groups})

    def check_unread(self) -> None:
        """Check that a query which names no history needs none.

        :raises StateError: the state after its history is not yet in the checkpoint, because no micro-batch has been completed
        """
        if self.key_groups is None:
            return
        if not self.is_over:
            raise StateError(
                f"the query with the checkpoint {self.checkpoint} has not taken over its history",
                "It ended before its first micro-batch was complete.",
                "start it with the same history=",
            )
        self.remove()

    def check_begun(self) -> None:
        """
        :raises StateError: the query has run, and without a history
        """
        if "batches" not in self._document():
            raise StateError(
                f"the checkpoint {self.checkpoint} is that of a query that began without a history",
                "Its stream would be read from the seam on, and the history not at all.",
                "leave history= out, or name another checkpoint",
            )

    @property
    def location(self) -> str:
        return f"{self.checkpoint.rstrip('/')}/{FOLDER}"

    @property
    def state(self) -> DataFrame:
        """The pages and headers of key groups."""
        return self._rows().where("page IS NOT NULL").select("key_group", "page", "timer", "value")

    def _rows(self) -> DataFrame:
        with settings(self.spark, {"spark.sql.parquet.binaryAsString": "false"}):
            return self.spark.read.parquet(self.location)

    def remove(self) -> None:
        """Remove the folder, which the query no longer needs."""
        if self.files.get_file_info(f"{self.path}/{FOLDER}").type is fs.FileType.Directory:
            self.files.delete_dir(f"{self.path}/{FOLDER}")

    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._read(RESTORED) or "{}")
        return document

    def _read(self, name: str) -> str | None:
        try:
            return read_whole(self.files, f"{self.path}/{name}").decode()
        except FileNotFoundError:
            return None

    def _write(self, name: str, document: dict[str, Any]) -> None:
        replace_whole(self.files, f"{self.path}/{name}", json.dumps(document).encode())


def results_of(rows: DataFrame) -> DataFrame:
    """The results in the rows of a history as those of an operator, without counts."""
    results = rows.where("output IS NOT NULL")
    return results.select("output", "chunk", *(F.lit(None).cast(kind).alias(name) for name, kind in _COUNTS))


@contextmanager
def _as_query(spark: SparkSession, query_id: str) -> Iterator[None]:
    """Inside the block, sinks see the id of the query, by which some recognise a repeated micro-batch."""
    if is_remote():
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(QUERY_ID)
    context.setLocalProperty(QUERY_ID, query_id)
    try:
        yield
    finally:
        context.setLocalProperty(QUERY_ID, before)  # type: ignore[arg-type] # None removes it


_COUNTS = [("metrics", "map<string, bigint>"), ("gauges", "map<string, double>")]
