"""The rows of results on the terminal and in files."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.terminal import print_table

if TYPE_CHECKING:
    import pyarrow as pa

_WRITTEN = (".csv", ".jsonl", ".parquet")
_AT_ONCE = 10_000
"""Rows that are converted together."""


def _out_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in _WRITTEN:
        raise click.BadParameter(f"the name must end in {', '.join(_WRITTEN)}", ctx, param)
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {value.absolute().parent}", ctx, param)
    return value


out_option = click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_out_file,
    help="Write the rows to this .csv, .jsonl or .parquet file instead of printing them.",
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="The maximum number of rows to show."
)


def in_order(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows sorted by those of the *columns* that they have. NULL is first, as in Spark."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [name for name in columns if name in rows.column_names]
    if not names:
        return rows
    # Where NULL is placed is an option of a sort in some versions of pyarrow, and of a key in others.
    keys = {name: column for at, name in enumerate(names) for name, column in (
        (f"valid{at}", pc.is_valid(rows.column(name))), (f"value{at}", rows.column(name))
    )}  # fmt: skip
    return rows.take(pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]))


def show_or_write(
    rows: pa.Table, shown_rows: pa.Table, what: str, out: Path | None, limit: int, *, hidden: Sequence[str] = ()
) -> None:
    """Write the *rows* to a file, or show the first of *shown_rows*. Then print their number, *what*."""
    if out is not None:
        _write(rows, out)
        click.echo(f"{what} written to {out}")
    else:
        values = shown_rows.slice(0, limit).to_pylist(maps_as_pydicts="lossy")
        print_table(shown_rows.column_names, ([shown(value, hidden) for value in row.values()] for row in values))
        click.echo(what + (f", the first {limit:,} are shown" if rows.num_rows > limit else ""))


def _write(rows: pa.Table, out: Path) -> None:
    """Write one file, in the formats in which Spark writes. CSV has no lists of events; they are written as JSON."""
    if out.suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(rows, out)
        return
    with out.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(_json_lines(rows) if out.suffix == ".jsonl" else _csv_lines(rows))


def _json_lines(rows: pa.Table) -> Iterator[str]:
    for row in _rows(rows):
        yield _json(row) + "\n"


def _csv_lines(rows: pa.Table) -> Iterator[str]:
    yield ",".join(map(_csv_field, rows.column_names)) + "\n"
    for row in _rows(rows):
        yield ",".join(_csv_field(value) for value in row.values()) + "\n"


def _rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(max_chunksize=_AT_ONCE):
        yield from batch.to_pylist(maps_as_pydicts="lossy")


def _csv_field(value: Any) -> str:
    """A field. An empty one is NULL, and a quoted empty one an empty string.

    >>> [_csv_field(value) for value in (None, "", "a,b", True, {"x": None, "y": 1})]
    ['', '""', '"a,b"', 'true', '"{""y"":1}"']
    """
    if value is None:
        return ""
    text = value if isinstance(value, str) else _json(value).removeprefix('"').removesuffix('"')
    needs_quotes = not text or text != text.strip() or any(sign in text for sign in ',"\n\r')
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text


def _json(value: Any) -> str:
    """A value as JSON, without the fields that are NULL, and with all digits of decimals.

    >>> _json({"n": Decimal("1.50"), "at": datetime(2026, 1, 31), "none": None})
    '{"n":1.50,"at":"2026-01-31T00:00:00.000"}'
    """
    match value:
        case dict():
            fields = (f"{json.dumps(name)}:{_json(part)}" for name, part in value.items() if part is not None)
            return "{" + ",".join(fields) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case datetime():
            text = value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
            return json.dumps(text.replace("+00:00", "Z"))
        case date() | timedelta():
            return json.dumps(str(value))
        case Decimal():
            return f"{value:f}"
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case float() if not math.isfinite(value):
            return json.dumps(str(value))
        case _:
            return json.dumps(value, ensure_ascii=False)


def shown(value: Any, keys: Sequence[str] = ()) -> str:
    """A value as the string in a table cell. A list of events is shown as its first event, the number of the others, and its last
    event, without key columns.

    >>> shown([{"ip": "10.0.0.1", "n": n, "user": None} for n in range(5)], keys=["ip"])
    'n=0\\n(3 more)\\nn=4'
    """
    if value is None:
        return ""
    if isinstance(value, list):
        events = [shown(event, keys) for event in value]
        return "\n".join(events if len(events) <= 3 else [events[0], f"({len(events) - 2} more)", events[-1]])
    if isinstance(value, dict):
        return " ".join(
            f"{name}={shown(part)}" for name, part in value.items() if part is not None and name not in keys
        )
    # The session's time zone is UTC; the offset is omitted.
    return str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)
