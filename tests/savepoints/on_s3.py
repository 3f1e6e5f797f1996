"""Forgets a customer in the checkpoint of a query in S3: ``python -m tests.savepoints.on_s3 FOLDER`` writes found.json there.

A program of its own, because the session of the tests does not have the jars of S3A.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyarrow import fs
from pyspark.sql import SparkSession

from asterism import forget_keys, remove_former_state
from tests.nemesis.victim import session
from tests.savepoints.test_savepoints_slow import Query, of_pattern, parts
from tests.savepoints.test_writing_slow import FORGOTTEN, files_with, with_name
from tests.servers.s3 import BUCKET, S3

FOUND = "found.json"


class OnS3(Query):
    """Its checkpoints are in the bucket, its events and results in *folder*."""

    def place_of(self, checkpoint: str) -> str:
        return f"s3a://{BUCKET}/{checkpoint}"


def forget(spark: SparkSession, server: S3, folder: Path) -> None:
    query = OnS3(spark, folder, of_pattern)
    checkpoint = query.place_of("checkpoint")

    def mentions(copy: str) -> list[str]:
        """The objects of the bucket that contain the customer."""
        fs.copy_files(BUCKET, str(folder / copy), source_filesystem=server.files())
        return files_with(FORGOTTEN, folder / copy)

    for number in (0, 1):
        query.write(number, with_name(parts()[number]))
    query.run("checkpoint", drain=False, key_groups=2)
    before = mentions("before")
    changes = forget_keys(spark, checkpoint, [{"user": FORGOTTEN}])
    meanwhile = mentions("meanwhile")
    removed = remove_former_state(spark, checkpoint)
    after = mentions("after")
    query.write(2, parts()[2])
    query.run("checkpoint", drain=True)
    users = {row.user for row in spark.read.parquet(str(folder / "timed_out")).select("user").collect()}
    found = {
        "before": before, "keys": changes.removed["keys"], "meanwhile": meanwhile, "after": after, "users": len(users),
        "former": list(changes.former_files), "removed": removed, "objects": files_with("", folder / "after"),
    }  # fmt: skip
    (folder / FOUND).write_text(json.dumps(found))


def main(folder: Path) -> None:
    server = S3()
    server.start()
    try:
        plain = {"spark.sql.streaming.stateStore.rocksdb.compression": "no"}
        spark = session(server.spark | plain)
        forget(spark, server, folder)
        spark.stop()
    finally:
        server.remove()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
