"""A process that tries to be the first to write a file, or claims a store of rules: one of two that do it at the same time.

``python -m tests.servers.claimant ROOT SETTINGS``, with Hadoop's settings as JSON. Each line of its input is a way and a path;
its answer is ``won``, or why not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from asterism.files.hadoop import HadoopFiles
from asterism.rules.sets.set_store import FolderStore

ME = uuid4().hex
SPARK = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
SPARK_ON_S3 = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


def create(jvm: Any, system: Any, path: Any, configuration: Any) -> Any:
    """Hadoop's file that is not overwritten."""
    return system.create(path, False)


def conditional(jvm: Any, system: Any, path: Any, configuration: Any) -> Any:
    """A conditional write of S3A: ``If-None-Match: *``."""
    builder = system.createFile(path).create().overwrite(True)
    return builder.opt("fs.option.create.conditional.overwrite", True).build()


def spark(jvm: Any, system: Any, path: Any, configuration: Any) -> Any:
    """A file of Spark's logs of offsets and commits, with Spark's default class."""
    return _manager(jvm, system, SPARK, path, configuration).createAtomic(path, False)


def spark_on_s3(jvm: Any, system: Any, path: Any, configuration: Any) -> Any:
    """The same with the class of ``spark-hadoop-cloud``."""
    return _manager(jvm, system, SPARK_ON_S3, path, configuration).createAtomic(path, False)


def _manager(jvm: Any, system: Any, name: str, path: Any, configuration: Any) -> Any:
    """With the folder, which Spark has made before."""
    system.mkdirs(path.getParent())
    made = jvm
    for part in name.split("."):
        made = getattr(made, part)
    return made(path.getParent(), configuration)


WAYS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    function.__name__: function for function in (create, conditional, spark, spark_on_s3)
}


class Claimant:
    def __init__(self, root: str, settings: dict[str, str]) -> None:
        self.root, self.settings = root, settings
        self.files = HadoopFiles(root, settings)

    def answer(self, way: str, path: str) -> str:
        if way == "claim":
            FolderStore(self.root + path, self.settings).claim(ME)
            return "won"
        if way == "owner":
            return "won" if FolderStore(self.root + path, self.settings).belongs_to(ME) else "another"
        with self.files._calls(path) as (jvm, system, at):
            try:
                stream = WAYS[way](jvm, system, at, system.getConf())
                stream.write(ME.encode())
                stream.close()
            except Exception as error:
                thrown = getattr(error, "java_exception", None)
                if thrown is None:
                    raise
                return str(thrown.getClass().getSimpleName())
        return "won"


def main() -> None:
    claimant = Claimant(sys.argv[1], json.loads(sys.argv[2]))
    for line in sys.stdin:
        way, path = line.split()
        try:
            answer = claimant.answer(way, path)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}".replace("\n", " ")
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
