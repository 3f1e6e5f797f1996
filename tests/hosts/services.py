"""Servers on a host of their own: ``python -m tests.hosts.services kafka FOLDER`` or ``s3 FOLDER``

When a server can be used, the settings with which Spark reaches it are in *FOLDER*. The broker has the events of *FOLDER* as a
topic. The objects of S3 are copied to *FOLDER* when there is the file :data:`COPY`, which is then gone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyarrow import fs

from tests.hosts.queries import BROKER, PARTITIONS, TOPIC, TopicQuery
from tests.servers.jars import jars
from tests.servers.kafka import Broker
from tests.servers.s3 import BUCKET, S3

SETTINGS = "settings.json"
COPY, OBJECTS = "copy", "objects"


def serve_topic(folder: Path) -> None:
    broker = Broker(host="kafka")
    broker.start()
    broker.create_topic(TOPIC, PARTITIONS)
    broker.send(TOPIC, TopicQuery(folder, 0).records(folder / TOPIC))
    _tell(folder, {"spark.jars": ",".join(map(str, jars("kafka"))), BROKER: broker.address})
    while True:
        time.sleep(60)


def serve_objects(folder: Path) -> None:
    server = S3(host="s3")
    server.start()
    _tell(folder, server.spark)
    while True:
        if (folder / COPY).exists():
            fs.copy_files(BUCKET, str(folder / OBJECTS), source_filesystem=server.files())
            (folder / COPY).unlink()
        time.sleep(0.1)


def _tell(folder: Path, settings: Mapping[str, str]) -> None:
    new = folder / "settings.new"
    new.write_text(json.dumps(settings))
    new.replace(folder / SETTINGS)


if __name__ == "__main__":
    {"kafka": serve_topic, "s3": serve_objects}[sys.argv[1]](Path(sys.argv[2]))
