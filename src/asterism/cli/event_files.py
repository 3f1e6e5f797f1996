"""Reads events from files without Spark: CSV with a header, JSON lines and Parquet, with the types that Spark infers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json, parquet

from asterism.cli.files import files_of
from asterism.errors import StreamDefinitionError


def read_events(path: Path, time: str | None = None) -> pa.Table:
    """The events of a file, or of the files in a folder, which must have the same format, in the order of their names.

    :param time: the event-time column, whose strings and dates are converted to timestamps
    :raises StreamDefinitionError: a file does not exist, cannot be read, or has other columns than the other files
    """
    tables = []
    kind, files = files_of(path)
    for file in files:
        try:
            tables.append(_read(file, kind))
        except (pa.ArrowException, OSError) as error:
            raise StreamDefinitionError(f"{file} cannot be read", str(error).splitlines()[0]) from None
    try:
        events = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise StreamDefinitionError(f"the files in {path} do not have the same columns", str(error)) from None
    for number, field in enumerate(events.schema):
        column = _as_in_spark(events.column(number), is_time=field.name == time)
        events = events.set_column(number, field.name, column)
    return events


def _read(file: Path, kind: str) -> pa.Table:
    match kind:
        case "csv":
            # An empty field is null; a quoted empty field is an empty string.
            options = csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
            parsing = csv.ParseOptions(newlines_in_values=True)
            return csv.read_csv(file, convert_options=options, parse_options=parsing)
        case "json":
            return json.read_json(file)
        case _:
            return parquet.read_table(file)


def _as_in_spark(column: pa.ChunkedArray, *, is_time: bool) -> pa.ChunkedArray:
    kind = column.type
    if is_time and (pa.types.is_string(kind) or pa.types.is_date(kind)):
        column = _timestamps(column)
        kind = column.type
    if is_time and pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_timestamp(kind):
        # A timestamp without a time zone is in that of the session, which is UTC for this command.
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        return column if kind.tz is not None else pc.assume_timezone(column, "UTC")
    return column


def _timestamps(column: pa.ChunkedArray) -> pa.ChunkedArray:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):  # strings without and with a time zone
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column
