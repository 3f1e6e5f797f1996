"""Reads files of events with Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from asterism.text.printable import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


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
