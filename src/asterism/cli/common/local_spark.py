"""A local Spark session for a command, and the files of events that it reads."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from asterism.cli.common.terminal import first_paragraph, status_line
from asterism.errors import StreamDefinitionError
from asterism.text.printable import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# ---------------------------------------------------------------------- the session


@contextmanager
def local_spark(settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """The active Spark session; if there is none, a local one with further *settings*, which is stopped on exit."""
    from pyspark.sql import SparkSession

    import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter, so it comes before the session

    spark = SparkSession.getActiveSession()
    is_new = spark is None
    if spark is None:
        builder = SparkSession.builder.master("local[*]").appName("asterism")
        for key, value in {**_SETTINGS, **(settings or {})}.items():
            builder = builder.config(key, value)
        with status_line("starting Spark"), _quiet_stderr():
            spark = builder.getOrCreate()
    try:
        with _no_logging():
            yield spark
    finally:
        if is_new:
            spark.stop()


_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "OFF",  # the command itself reports errors
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary folder. It must be deleted after the Spark session: state stores still write after a query ends."""
    with tempfile.TemporaryDirectory(prefix="asterism-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _no_logging() -> Iterator[None]:
    """Disable logging, since PySpark logs errors as long JSON before it raises them."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Redirect stderr of the processes that are started here, since the JVM and Spark's workers write many messages. If the
    start fails, these messages are part of the error.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as captured:
        original = os.dup(2)
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except Exception as error:
            captured.seek(0)
            written = captured.read().decode(errors="replace").strip()
            detail = "\n".join([*written.splitlines()[-5:], first_paragraph(str(error))])
            hint = "Spark needs Java 17 or later, on the PATH or in JAVA_HOME"
            raise StreamDefinitionError("Spark did not start", detail, hint) from error
        finally:
            os.dup2(original, 2)
            os.close(original)


# ---------------------------------------------------------------------- files of events

READ_OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}, "json": {}, "parquet": {}}


@dataclass(frozen=True)
class Files:
    """Files of one format, as a glob pattern for Spark, which is the only way to read a single file as a stream."""

    glob: str
    format: str
    options: dict[str, str]


def files_to_read(path: Path) -> Files:
    """The file, or the files in the folder, and their format."""
    from asterism.columns.event_files import FORMATS, files_of

    kind, files = files_of(path)
    folder = path if path.is_dir() else path.parent
    ends = sorted(end for end in FORMATS if any(file.name.endswith(end) for file in files))
    wanted = "*{" + ",".join(ends) + "}" if path.is_dir() else "{" + _escaped(path.name) + "}"
    return Files(f"{_escaped(str(folder.absolute()))}/{wanted}", kind, READ_OPTIONS[kind])


def _escaped(name: str) -> str:
    return re.sub(r"([][*?{},\\])", r"\\\1", name)


def read_batch(spark: SparkSession, files: Files) -> DataFrame:
    return spark.read.format(files.format).options(**files.options).load(files.glob)


def read_stream(spark: SparkSession, files: Files, schema: StructType, files_per_batch: int | None = None) -> DataFrame:
    reader = spark.readStream.format(files.format).options(**files.options).schema(schema)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(files.glob)


def with_event_time(df: DataFrame, column: str | None) -> DataFrame:
    """Convert the event-time column to a type of a keyed stream: inferred schemas may have strings, dates or INT."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if column is None or column not in df.columns:
        return df
    kind = df.schema[column].dataType
    quoted = F.col(quoted_name(column))
    if isinstance(kind, T.StringType | T.DateType):
        return df.withColumn(column, F.to_timestamp(quoted))
    if isinstance(kind, T.IntegerType):
        return df.withColumn(column, quoted.cast("long"))
    return df
