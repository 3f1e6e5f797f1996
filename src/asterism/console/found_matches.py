"""All matches of a backtest: a file that the process of the backtest writes, and the console reads in pages and for downloads."""

from __future__ import annotations

import io
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
MAX_PAGE = 200
MAX_MEASURES = 100
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^-?[0-9.]+([eE][-+]?[0-9]+)?$"
_FIXED = ("difference", "version", "key", "start", "end", "true")


def write_matches(file: Path, matches: pa.Table, holds: Sequence[bool] | None) -> int:
    """Write the matches of one rule, and return how many.

    :param matches: those of a backtest
    :param holds: for each match whether it has a labelled event; None: there is no label
    """
    if holds is not None:
        matches = matches.append_column("__true", pa.array(holds, pa.bool_()))
    matches = matches.sort_by([("start_time", "ascending"), ("end_time", "ascending")]).slice(0, MAX_MATCHES)
    names = [name for name in matches.column_names if name != "events"]
    rows = matches.select(names).to_pylist(maps_as_pydicts="lossy")
    measures = list(dict.fromkeys(name for row in rows for name in row["measures"] or {}))[:MAX_MEASURES]
    columns = {name: f"{name}_" if name.rstrip("_") in _FIXED else name for name in measures}
    table = pa.table(
        {
            "difference": pa.array([row["difference"] for row in rows], pa.string()),
            "version": pa.array([row["processor_version"] for row in rows], pa.int64()),
            "key": pa.array([list(row["key"]) for row in rows], pa.list_(pa.string())),
            "start": pa.array([time_text(row["start_time"]) for row in rows], pa.string()),
            "end": pa.array([time_text(row["end_time"]) for row in rows], pa.string()),
            "true": pa.array([row.get("__true") for row in rows], pa.bool_()),
            **{
                column: pa.array([(row["measures"] or {}).get(name) for row in rows], pa.string())
                for name, column in columns.items()
            },
        }
    )
    partial = file.with_suffix(".partial")
    pq.write_table(table, partial)
    partial.replace(file)
    return int(table.num_rows)


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
        {name: row[name] for name in _FIXED} | {"measures": {_measure_of(name): row[name] for name in measures}}
        for row in table.slice(start, count).to_pylist()
    ]
    return {"matches": rows, "of": table.num_rows}


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
