"""The settings of a session that queries need. Most are set only while a query starts, because a started query keeps them."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from asterism.arguments import expect
from asterism.errors import StateError, StreamDefinitionError
from asterism.files.file_systems import is_path
from asterism.spark.session.pipelines import is_pipeline

PARTITIONS = "spark.sql.shuffle.partitions"
"""For a stateful operator, the number of tasks. A checkpoint keeps the number of its first run."""
EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
DEFAULT_KEY_GROUPS = 32
"""The number of key groups of a query that a user starts, and the least one of a run on a cluster."""
_MAX_NEW_KEY_GROUPS = 1024
"""For a cluster that may have more cores, the user chooses the number."""
_GROUPS_PER_TASK = 4
_DEFAULT_PARTITIONS = 200
_STATE_STORE = {
    # transformWithState requires RocksDB.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A commit writes only changes.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_BY_STREAM = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_S3A = "s3a:"
_STATE_COMPRESSION = "spark.sql.streaming.stateStore.compression.codec"
_HADOOP = "spark.hadoop."
_LOCAL, _NOWHERE = "file:", "asterism-no-such-file"
_DEFAULT_ROOTS: WeakKeyDictionary[SparkSession, str] = WeakKeyDictionary()
_CORES: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()
_ARROW_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ARROW_DEFAULTS = {_ARROW_RECORDS: "10000", _ARROW_BYTES: "67108864b"}
_NO_LIMIT = 2**31 - 1
_EXPRESSIONS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.chunkBase64String.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.function.concatBinaryAsString": "false",
    "spark.sql.function.eltOutputAsString": "false",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""The settings that give a meaning to expressions, with the defaults of Spark 4."""
_LEGACY = "spark.sql.legacy."
_READ_LATER = re.compile(
    r"\b(to_json|from_json|date_format|from_unixtime|(to_)?unix_timestamp|(try_)?to_(date|timestamp(_ltz|_ntz)?)|to_(var)?char)\s*\(",
    re.IGNORECASE,
)
"""Functions that read settings not when they are analyzed, but for the first row: those of JSON, and of patterns of times."""
_replaced: set[str] = set()
"""The settings that are replaced at the moment; only one thread at a time can replace some."""
_WORKER_MEMORY = "spark.executor.pyspark.memory"
LEAST_WORKER_MEMORY = 2**31
"""In bytes, of a Python worker. With less, its libraries cannot be loaded; small queries have used 2.3 GB."""
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LOCK = threading.RLock()


def expect_session(spark: Any, user: str, hint: str | None = None) -> None:
    """
    :param user: what needs a session, for messages
    :raises StateError: it is no Spark session, in a classic session or over Spark Connect
    """
    if is_remote():  # whose class has no base in common with the other one
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        if isinstance(spark, RemoteSession):
            return
    expect(StateError, spark, SparkSession, f"{user} needs a SparkSession", hint)


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str | None]) -> Iterator[None]:
    """Set *values* inside the block, and restore the previous ones after it. Only one thread at a time can be inside.

    :param values: None stands for Spark's default
    """
    with _LOCK:
        before = {key: spark.conf.get(key, None) for key in values}
        try:
            _set(spark, values)
            yield
        finally:
            _set(spark, before)


def _set(spark: SparkSession, values: Mapping[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@contextmanager
def of_expressions(spark: SparkSession) -> Iterator[None]:
    """Inside the block, Spark understands an expression as this library does, whatever the settings of the session are. An
    expression keeps the settings with which it was analyzed. See docs/decisions/0092.

    :raises StreamDefinitionError: Spark Connect, which analyzes all expressions of a query together when the query runs, has
        other settings
    """
    others: dict[str, str | None] = {}
    for key, value in _EXPRESSIONS.items():
        if (current := spark.conf.get(key, value)) != value:
            others[key] = value
            if is_remote():
                raise StreamDefinitionError(
                    f"expressions have another meaning with the setting {key}={current}",
                    "With Spark Connect, all expressions of a query have the settings of the session.",
                    f'spark.conf.set("{key}", "{value}")',
                )
    if not is_remote():
        explicit = getattr(spark.conf, "getAll", {})  # Spark 3.5 cannot list them
        others |= {key: None for key in explicit if key.startswith(_LEGACY)}
    if not others:
        yield
        return
    with settings(spark, others):
        _replaced.update(others)
        try:
            yield
        finally:
            _replaced.clear()


def filter_or_none(text: str | None) -> str | None:
    """The text of a filter, inside of :func:`of_expressions`; None if the settings of the session are others than those here, and
    the filter has a function that may read them when the query runs.
    """
    return None if text is not None and _replaced and _READ_LATER.search(text) else text


_ERROR_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def errors_not_logged() -> Iterator[None]:
    """Inside the block, PySpark does not log the errors of this thread that it raises, with their stack traces."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Spark 3.5 does not log them
        yield
        return
    thread = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = [PySparkLogger.getLogger(name) for name in _ERROR_LOGGERS]
    for logger in loggers:
        logger.addFilter(of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(of_others)


def configure_state_store(spark: SparkSession) -> None:
    """Select the state store. This remains set, because outputs that are DataFrames are started by the user.

    :raises StreamDefinitionError: the pipeline that this session defines, which nothing can set there, has another state store
    """
    if is_pipeline(spark):
        missing = {key: value for key, value in _STATE_STORE.items() if spark.conf.get(key, None) != value}
        if missing:
            lines = ", ".join(f"{key}: {json.dumps(value)}" for key, value in missing.items())
            raise StreamDefinitionError(
                "the configuration of the pipeline lacks the state store of Asterism's operators",
                "A function of a pipeline cannot set it.",
                f"in the pipeline spec, under configuration: {lines}",
            )
        return
    for key, value in _STATE_STORE.items():
        spark.conf.set(key, value)


def arrow_batches(spark: SparkSession) -> dict[str, str]:
    """The settings with which Spark sends rows to Python.

    To keep to the maximum size of a batch, Spark determines the size of the batch before each row, in every column. This takes
    half of the time of the transfer. A maximum number of rows limits a batch well enough, because chunks are small. Settings
    other than Spark's defaults are respected.
    """
    with _LOCK:
        defaults = all(spark.conf.get(key) == value for key, value in _ARROW_DEFAULTS.items())
        records = int(spark.conf.get(_ARROW_RECORDS) or 0)
    if defaults:
        return {_ARROW_RECORDS: "1000", _ARROW_BYTES: str(_NO_LIMIT)}
    # For Spark, zero or a negative number is no limit; its sources in Python accept only positive ones.
    return {} if records > 0 else {_ARROW_RECORDS: str(_NO_LIMIT)}


def check_arrow_batches(spark: SparkSession) -> None:
    """:raises StreamDefinitionError: a query that the user starts could not read sources in Python"""
    with _LOCK:
        records = spark.conf.get(_ARROW_RECORDS, None)
    if records is not None and int(records) <= 0:
        raise StreamDefinitionError(
            f"writeStream cannot start this DataFrame with {_ARROW_RECORDS}={records}",
            "Spark's sources in Python need a positive number.",
            f'use run(...); or spark.conf.set("{_ARROW_RECORDS}", "{_NO_LIMIT}"), which is no limit either',
        )


def checkpoint_files(spark: SparkSession, checkpoint: str) -> dict[str, str]:
    """The setting with which Spark writes the files of a checkpoint.

    On a local file system, Spark's default starts some 40 processes in each micro-batch (``readlink``, ``chmod``), unless
    Hadoop's native library is installed. That takes a tenth of a second. The other class renames files in the same way.

    On S3, a renamed file is copied and deleted, with some 15 requests, and one that replaces another is missing in between.
    The class of ``spark-hadoop-cloud`` writes a file by one request, so it is set where it is on the class path, and a message on
    standard error says so where it is not. On other file systems, and if the session sets a class, nothing is set.
    """
    if spark.conf.get(_CHECKPOINT_FILES, None) is not None:
        return {}
    if checkpoint.startswith(_S3A):
        if _has_class(spark, _BY_STREAM):
            return {_CHECKPOINT_FILES: _BY_STREAM}
        sys.stderr.write(_renamed_on_s3(checkpoint))
        return {}
    return {_CHECKPOINT_FILES: _BY_FILE_SYSTEM} if is_local(spark, checkpoint) else {}


def _renamed_on_s3(checkpoint: str) -> str:
    return (
        f"asterism: the checkpoint {checkpoint} is on S3, which cannot rename: Spark copies and deletes each of its files, and "
        "one that replaces another is missing in between. Add org.apache.spark:spark-hadoop-cloud to spark.jars.packages, whose "
        "checkpoint file manager writes each file by one request.\n"
    )


def _has_class(spark: SparkSession, name: str) -> bool:
    """Whether Spark finds a class, which has no static method of this name."""
    try:
        with errors_not_logged():
            spark.sql(f"SELECT reflect('{name}', 'asterism')").schema  # noqa: B018 - on Spark Connect, the first call
    except AnalysisException as error:
        return "UNEXPECTED_STATIC_METHOD" in str(error)
    return False


def state_compression(spark: SparkSession) -> dict[str, str]:
    """The setting with which Spark compresses the changes of state, unless the session has one.

    The pages of one micro-batch are similar. Spark's default, LZ4 in blocks of 32 KB, uses little of this; with Zstandard, they
    have a third of the bytes. A checkpoint keeps the setting of its first run.
    """
    return {} if spark.conf.get(_STATE_COMPRESSION, None) is not None else {_STATE_COMPRESSION: "zstd"}


def check_worker_memory(spark: SparkSession) -> None:
    """
    :raises StreamDefinitionError: ``spark.executor.pyspark.memory``, if it is set, leaves a Python worker too little. It
        limits the address space of a worker, which compiled libraries use much of without using as much memory.
    """
    wanted = spark.conf.get(_WORKER_MEMORY, None)
    parsed = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", wanted or "", re.IGNORECASE)
    if parsed is None:
        return
    each = int(parsed[1]) * _UNITS[parsed[2].lower() or "m"] // _cores_of_worker_memory(spark)
    if each < LEAST_WORKER_MEMORY:
        raise StreamDefinitionError(
            f"the Python workers of this session have too little memory: {_WORKER_MEMORY}={wanted}",
            f"Spark divides it by the cores of an executor: {each / 2**30:.2g} GB of address space for each worker.",
            "3 GB or more for each core of an executor, when the session is created; or leave the setting out",
        )


def _cores_of_worker_memory(spark: SparkSession) -> int:
    cores = spark.conf.get("spark.executor.cores", None)
    if cores is not None:
        return int(cores)
    return _cores(spark) if (spark.conf.get("spark.master", "") or "").startswith("local") else 1


def is_local(spark: SparkSession, location: str) -> bool:
    """Whether a path or URI is in a local file system. Driver and executors may have different ones, or a shared mount."""
    return (_default_root(spark) if is_path(location) else location).startswith(_LOCAL)


def resolved(spark: SparkSession, location: str) -> str:
    """A location as all processes of a query understand it. In a local file system that is an absolute path; a relative one
    begins in the working directory that this program had when Spark was started. In another default file system
    (``spark.hadoop.fs.defaultFS``) it is a URI, since processes other than Spark's take a path for a local one.
    """
    if not is_path(location):
        return location
    if not is_local(spark, location):
        return _default_root(spark) + location if location.startswith("/") else _qualified(spark, location)
    if is_remote() or Path(location).is_absolute():
        return location
    jvm = spark._jvm
    assert jvm is not None
    return str(Path(jvm.java.lang.System.getProperty("user.dir"), location))


def _default_root(spark: SparkSession) -> str:
    """The URI of the root of the default file system, such as ``hdfs://namenode:9000``; empty: it is unknown."""
    if spark not in _DEFAULT_ROOTS:
        _DEFAULT_ROOTS[spark] = _qualified(spark, "").removesuffix("/")
    return _DEFAULT_ROOTS[spark]


def _qualified(spark: SparkSession, path: str) -> str:
    """A path as a URI; as it is if Spark does not tell."""
    try:
        # Of a single path, Spark would look whether a sink has written it, and log that it is not there, with a stack trace.
        spark.read.text([f"{path}/{_NOWHERE}"] * 2).schema  # noqa: B018 - on Spark Connect, the schema is the first call
    except AnalysisException as error:  # the message has the path with the scheme
        return str((error.getMessageParameters() or {}).get("path", path)).removesuffix(f"/{_NOWHERE}")
    return path


def hadoop_settings(spark: SparkSession) -> dict[str, str]:
    """Hadoop's settings that the session has in addition to those of its files: ``spark.hadoop.fs.s3a.endpoint`` and so on."""
    explicit = getattr(spark.conf, "getAll", None)
    if explicit is None:  # Spark 3.5 cannot list those of a session
        explicit = {} if is_remote() else dict(spark.sparkContext.getConf().getAll())
    return {name.removeprefix(_HADOOP): value for name, value in explicit.items() if name.startswith((_HADOOP, "fs."))}


def stateful_tasks(spark: SparkSession, key_groups: int) -> int:
    """The number of tasks for the key groups of a new checkpoint.

    Each task has a state store and a Python process, which cost some 50 ms per micro-batch, so tasks without key groups only
    add cost. Unless the session sets another number than Spark's default, there are as many tasks as a local session has
    cores; on a cluster, which can grow, there are as many as key groups. See docs/decisions/0034.
    """
    wanted = tasks_of_session(spark)
    if wanted == _DEFAULT_PARTITIONS:
        wanted = _cores(spark) if _is_in_one_process(spark) else key_groups
    return min(wanted, key_groups)


def new_key_groups(spark: SparkSession) -> int:
    """The number of key groups for a new checkpoint: at least as many as the cluster has cores, or will have.

    Each key group costs 1 to 2 ms per micro-batch, and more of them than tasks divide the work no further, because Spark keeps
    the number of tasks of a checkpoint. But the events and the results of a key group in a micro-batch must fit into memory.
    See docs/decisions/0086.
    """
    is_local, tasks = _is_in_one_process(spark), tasks_of_session(spark)
    cores = _cores(spark) if is_local else _cores_of_cluster(spark)
    if tasks == _DEFAULT_PARTITIONS and is_local:
        tasks = cores
    elif (
        tasks == _DEFAULT_PARTITIONS or tasks > DEFAULT_KEY_GROUPS
    ):  # a number for queries over tables may be far too large
        tasks = max(DEFAULT_KEY_GROUPS, cores)
    return max(tasks, min(_GROUPS_PER_TASK * tasks, DEFAULT_KEY_GROUPS))


def _is_in_one_process(spark: SparkSession) -> bool:
    return (spark.conf.get("spark.master", "") or "").startswith("local")


def _cores_of_cluster(spark: SparkSession) -> int:
    """The cores that the executors of a cluster have, or may have according to the configuration."""

    def number(name: str, default: int) -> int:
        value = spark.conf.get(name, None)
        return int(value) if value is not None and value.isdecimal() else default

    each = number("spark.executor.cores", 1)
    dynamic = (spark.conf.get("spark.dynamicAllocation.enabled", "false") or "").lower() == "true"
    most = number("spark.dynamicAllocation.maxExecutors", 0) if dynamic else number("spark.executor.instances", 0)
    # A parallelism that the user sets does not say how many cores there are.
    now = _cores(spark) if spark.conf.get("spark.default.parallelism", None) is None else 0
    return min(max(now, most * each, number("spark.cores.max", 0)), _MAX_NEW_KEY_GROUPS)


def tasks_of_session(spark: SparkSession) -> int:
    """The number of stateful tasks of a new query, if nothing else is set when it starts."""
    with _LOCK:  # not while another thread starts a query with another number
        return int(spark.conf.get(PARTITIONS) or _DEFAULT_PARTITIONS)


def _cores(spark: SparkSession) -> int:
    if not is_remote():
        return spark.sparkContext.defaultParallelism
    if spark not in _CORES:  # Spark Connect has no such property; a range has as many partitions
        _CORES[spark] = spark.range(100_000).select(F.spark_partition_id()).distinct().count()
    return _CORES[spark]
