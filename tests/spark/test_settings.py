"""The settings of a session that a query gets, and that are put back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import CEP
from asterism.errors import StreamDefinitionError
from asterism.spark.host.query_settings import start
from asterism.spark.session.settings import (
    check_worker_memory,
    checkpoint_files,
    new_key_groups,
    resolved,
    stateful_tasks,
)
from tests.spark.streams import FUNNEL, Collect, batch_matches, events, ids, stream_of, write_files

pytestmark = pytest.mark.spark

CLASS = "spark.sql.streaming.checkpointFileManagerClass"
COMPRESSION = "spark.sql.streaming.stateStore.compression.codec"
BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@pytest.fixture
def default_session(spark: SparkSession) -> SparkSession:
    """A session without the class, which the one of the tests sets."""
    session = spark.newSession()
    session.conf.unset(CLASS)
    return session


@pytest.mark.parametrize("checkpoint", ["/data/checkpoint", "checkpoint", "file:/data/checkpoint", "file:///data"])
def test_files_of_a_local_checkpoint_are_written_without_processes(
    default_session: SparkSession, checkpoint: str
) -> None:
    assert checkpoint_files(default_session, checkpoint) == {CLASS: BY_FILE_SYSTEM}


@pytest.mark.parametrize("checkpoint", ["hdfs://namenode/checkpoint", "dbfs:/checkpoint"])
def test_other_file_systems_keep_the_class_of_spark(default_session: SparkSession, checkpoint: str) -> None:
    assert checkpoint_files(default_session, checkpoint) == {}


def test_a_message_says_that_files_on_s3_are_renamed(
    default_session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the class that does not rename them is not on the class path; with it, see tests/cluster/test_storages_slow.py."""
    assert checkpoint_files(default_session, "s3a://bucket/checkpoint") == {}
    assert "spark-hadoop-cloud" in capsys.readouterr().err
    default_session.conf.set(CLASS, "com.example.Manager")
    assert checkpoint_files(default_session, "s3a://bucket/checkpoint") == {}
    assert capsys.readouterr().err == ""


def test_a_path_is_in_the_default_file_system(default_session: SparkSession, tmp_path: Path) -> None:
    default_session.conf.set("fs.defaultFS", "viewfs://everything/")
    default_session.conf.set("fs.viewfs.mounttable.everything.link./data", f"file:{tmp_path}")
    assert checkpoint_files(default_session, "/data/checkpoint") == {}
    assert resolved(default_session, "/data/checkpoint") == "viewfs://everything/data/checkpoint"
    assert checkpoint_files(default_session, f"file:{tmp_path}/checkpoint") == {CLASS: BY_FILE_SYSTEM}


def test_a_relative_checkpoint_is_where_spark_has_it(
    default_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for Python, if the program has changed its working directory."""
    before = Path.cwd()  # of Spark's JVM, too
    monkeypatch.chdir(tmp_path)
    assert resolved(default_session, "states/cp") == str(before / "states" / "cp")
    for location in ("/data/cp", "file:/data/cp", "hdfs://namenode/cp", "s3a://bucket/cp"):
        assert resolved(default_session, location) == location


def test_the_class_of_the_session_is_kept(default_session: SparkSession) -> None:
    default_session.conf.set(CLASS, "com.example.Manager")
    assert checkpoint_files(default_session, "/data/checkpoint") == {}


def test_a_run_puts_the_settings_back(default_session: SparkSession, tmp_path: Path) -> None:
    table, found = events(50), Collect()
    write_files(table, tmp_path / "in", [])
    stream = CEP.pattern(stream_of(default_session, tmp_path / "in"), FUNNEL, key_groups=2)
    stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"), drain=True)
    assert default_session.conf.get(CLASS, None) is None
    assert default_session.conf.get(COMPRESSION, None) is None
    assert ids(found.rows) == batch_matches(default_session, table, FUNNEL)


def processes_of(spark: SparkSession, action: Callable[[], object], path: Path) -> list[str]:
    """The commands of the processes that the JVM starts during *action*, as its flight recorder counts them."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    file = jvm.java.nio.file.Path.of(str(path), gateway.new_array(jvm.java.lang.String, 0))
    recording = jvm.jdk.jfr.Recording()
    recording.enable("jdk.ProcessStart")
    recording.start()
    try:
        action()
    finally:
        recording.stop()
    recording.dump(file)
    return [event.getString("command") for event in jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(file)]


def fake_session(**conf: str) -> Any:
    class Conf:
        def get(self, key: str, default: str | None = None) -> str | None:
            return conf.get(key.removeprefix("spark.").replace(".", "_"), default)

    return SimpleNamespace(conf=Conf(), sparkContext=SimpleNamespace(defaultParallelism=2))


@pytest.mark.parametrize(
    ("memory", "conf", "refused"),
    [
        (None, {}, False),
        ("2g", {"master": "local[2]"}, True),
        ("4g", {"master": "local[2]"}, False),
        ("512m", {"master": "spark://host:7077"}, True),
        ("2048", {"master": "yarn"}, False),
        ("8G", {"executor_cores": "4"}, False),
        ("4gb", {"executor_cores": "4"}, True),
        ("much", {}, False),  # Spark refuses it
    ],
)
def test_workers_need_address_space(memory: str | None, conf: dict[str, str], refused: bool) -> None:
    session = fake_session(**conf) if memory is None else fake_session(executor_pyspark_memory=memory, **conf)
    if not refused:
        check_worker_memory(session)
        return
    with pytest.raises(StreamDefinitionError, match=f"spark.executor.pyspark.memory={memory}\n  Spark divides it"):
        check_worker_memory(session)


@pytest.mark.parametrize(
    ("conf", "parallelism", "groups", "tasks"),
    [
        ({"spark.master": "local[2]"}, 2, 8, 2),
        ({"spark.master": "local[64]"}, 64, 64, 64),
        ({}, 6, 32, 32),  # a small cluster may grow
        ({}, 200, 200, 200),
        ({"spark.executor.instances": "50", "spark.executor.cores": "8"}, 2, 400, 400),  # none has registered yet
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "100"}, 2, 100, 100),
        ({"spark.dynamicAllocation.maxExecutors": "100"}, 2, 32, 32),
        ({"spark.cores.max": "48"}, 2, 48, 48),
        ({"spark.cores.max": "2147483647"}, 2, 1024, 1024),
        ({"spark.default.parallelism": "1000"}, 1000, 32, 32),
        ({"spark.sql.shuffle.partitions": "8"}, 200, 32, 8),
        ({"spark.sql.shuffle.partitions": "64"}, 200, 200, 64),
        ({"spark.sql.shuffle.partitions": "2000"}, 64, 64, 64),  # for queries over tables
    ],
)
def test_a_new_query_uses_all_cores(conf: dict[str, str], parallelism: int, groups: int, tasks: int) -> None:
    conf = {"spark.master": "yarn", "spark.sql.shuffle.partitions": "200", **conf}
    spark: Any = SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(defaultParallelism=parallelism))
    assert (new_key_groups(spark), stateful_tasks(spark, new_key_groups(spark))) == (groups, tasks)


BUSY = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."


def query(error: str | None, progress: object = None) -> Any:
    """As a query of Spark that has created its sources, or ended before."""
    return SimpleNamespace(
        isActive=error is None, status={"message": ""}, exception=lambda: error, lastProgress=progress, id="an id"
    )


@pytest.mark.parametrize(
    ("queries", "starts"),
    [
        ([query(None)], 1),
        ([query(BUSY), query(None)], 2),
        ([query(BUSY), query(BUSY), query(BUSY)], 3),
        ([query("another error")], 1),
        ([query(BUSY, progress={"batchId": 0})], 1),  # of a source in its first micro-batch
    ],
)
def test_a_query_is_started_again_if_the_machine_was_too_busy(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], queries: list[Any], starts: int
) -> None:
    started = iter(queries)
    last = start(spark, lambda: next(started), key_groups=2, checkpoint=None, in_parts=False)
    assert last is queries[-1]
    assert next(started, None) is None
    assert capsys.readouterr().err.count("the query is started again") == starts - 1
