"""All matches of a backtest: a file that the process of the backtest writes, and the console reads in pages and for downloads."""

from __future__ import annotations

import bisect
import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from asterism.columns.time import time_text

MAX_MATCHES = 200_000
"""Matches in a file; of more, the first ones by time."""
MAX_BYTES = 50_000_000
"""Bytes of the matches in a file."""
MAX_PAGE = 200
MAX_MEASURES = 100
MAX_CELL = 300
"""Characters of a measure in a page."""
_ROWS_AT_ONCE = 5_000
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^-?[0-9.]+([eE][-+]?[0-9]+)?$"
_TYPES_OF_FIXED: Mapping[str, pa.DataType] = {
    "difference": pa.string(),
    "version": pa.int64(),
    "key": pa.list_(pa.string()),
    "start": pa.string(),
    "end": pa.string(),
    "true": pa.bool_(),
}
_FIXED = tuple(_TYPES_OF_FIXED)


def write_matches(file: Path, matches: pa.Table, holds: Sequence[bool] | None) -> int:
    """Write the matches of one rule, and return how many: the first ones by time that fit into the limits.

    :param matches: those of a backtest
    :param holds: for each match whether it has a labelled event; None: there is no label
    """
    matches = matches.select([name for name in matches.column_names if name != "events"])
    if holds is not None:
        matches = matches.append_column("__true", pa.array(holds, pa.bool_()))
    matches = matches.sort_by([("start_time", "ascending"), ("end_time", "ascending")]).slice(0, MAX_MATCHES)
    measures = _names_of_measures(matches.column("measures"))
    columns = {name: f"{name}_" if name.rstrip("_") in _FIXED else name for name in measures}
    schema = pa.schema({**_TYPES_OF_FIXED, **dict.fromkeys(columns.values(), pa.string())})
    partial = file.with_suffix(".partial")
    written, room = 0, MAX_BYTES
    with pq.ParquetWriter(partial, schema) as writer:
        for batch in matches.to_batches(max_chunksize=_ROWS_AT_ONCE):
            rows = [_row(row, columns) for row in batch.to_pylist(maps_as_pydicts="lossy")]
            sizes = list(itertools.accumulate(map(_size, rows)))
            fitting = bisect.bisect_right(sizes, room)
            writer.write_table(pa.Table.from_pylist(rows[:fitting], schema))
            written += fitting
            if fitting < len(rows):
                break
            room -= sizes[-1]
    partial.replace(file)
    return written


def _names_of_measures(measures: pa.ChunkedArray) -> list[str]:
    """The names in the order of their first appearance."""
    names: dict[str, None] = {}
    for chunk in measures.chunks:
        names |= dict.fromkeys(pc.unique(chunk.keys).to_pylist())
    return list(names)[:MAX_MEASURES]


def _row(match: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row of the file.

    :param columns: the names of the columns of measures
    """
    measures = match["measures"] or {}
    return {
        "difference": match["difference"],
        "version": match["processor_version"],
        "key": list(match["key"]),
        "start": time_text(match["start_time"]),
        "end": time_text(match["end_time"]),
        "true": match.get("__true"),
        **{column: measures.get(name) for name, column in columns.items()},
    }


def _size(row: Mapping[str, Any]) -> int:
    """The size of a row in bytes, with a few for each value."""
    texts = [*row["key"], *row.values()]
    return sum(8 + (len(text.encode()) if isinstance(text, str) else 0) for text in texts)


def page_of(file: Path, wanted: Mapping[str, Any], start: int, count: int) -> dict[str, Any]:
    """Some matches.

    :param wanted: the values of columns that they must have
    :param start: how many matches come before
    """
    table = pq.read_table(file)
    for name, value in wanted.items():
        table = table.filter(pc.equal(table.column(name), pa.scalar(value)))
    measures = [name for name in table.column_names if name not in _FIXED]
    rows = [
        {name: row[name] for name in _FIXED} | {"measures": {_measure_of(name): _cut(row[name]) for name in measures}}
        for row in table.slice(start, count).to_pylist()
    ]
    return {"matches": rows, "of": table.num_rows}


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def _measure_of(column: str) -> str:
    """The name of the measure in a column."""
    return column[:-1] if column.rstrip("_") in _FIXED else column


def csv_of(file: Path) -> bytes:
    """All matches as CSV. A key of several values is a JSON list.

    Texts come from events, perhaps of an attacker: a text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    table = pq.read_table(file)
    keys = [key[0] if len(key) == 1 else json.dumps(key) for key in table.column("key").to_pylist()]
    table = table.set_column(table.column_names.index("key"), "key", pa.array(keys, pa.string()))
    for at, column in enumerate(table.columns):
        if pa.types.is_string(column.type):
            quoted = pc.replace_substring_regex(column, _FORMULA, r"'\0")
            numbers = pc.match_substring_regex(column, _NUMBER)
            table = table.set_column(at, table.column_names[at], pc.if_else(numbers, column, quoted))
    table = table.rename_columns([re.sub(_FORMULA, r"'\g<0>", name) for name in table.column_names])
    out = io.BytesIO()
    pyarrow.csv.write_csv(table, out)
    return out.getvalue()
