"""The command ``asterism state``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.local_spark import local_spark
from asterism.cli.common.terminal import errors_explained, print_table, status_line
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from asterism.spark.host.state_reader import StateReader

_WIDTH = 200
"""Maximum length of a value in a table."""


@click.command(name="state")
@click.argument("checkpoint")
@click.option(
    "--top", type=click.IntRange(1), default=10, show_default=True, help="The number of keys and of deadlines."
)
@click.option("--operator-id", type=click.IntRange(0), help="With several operators: Spark's number of one of them.")
@click.option(
    "--batch-id", type=click.IntRange(0), help="The state after this micro-batch. Default: the last committed one."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def state(checkpoint: str, top: int, operator_id: int | None, batch_id: int | None, as_json: bool) -> None:
    """Show what the state of a query consists of: totals, the heaviest keys, and the first deadlines.

    CHECKPOINT is the checkpoint of a query, which may be running.
    """
    with errors_explained(), local_spark() as spark, status_line("reading the state"):
        summary = _summary(spark, checkpoint, top, operator_id, batch_id)
    if as_json:
        click.echo(json.dumps(summary, default=_plain, ensure_ascii=False))
    else:
        _show(summary)


def _summary(
    spark: SparkSession, checkpoint: str, top: int, operator_id: int | None, batch_id: int | None
) -> dict[str, Any]:
    from pyspark.sql import functions as F

    from asterism.spark.host.state_reader import read_state

    reader = read_state(spark, checkpoint, operator_id=operator_id, batch_id=batch_id)
    sums = [F.count("*").alias("key_groups"), F.sum("pages").alias("pages"), F.sum("bytes").alias("bytes")]
    [totals] = _rows(reader.key_groups().agg(*sums, F.min("watermark").alias("watermark")))
    head: dict[str, Any] = {
        "kind": None if reader.kind is None else reader.kind.value,
        "operator_id": reader.operator_id,
        "batch_id": reader.batch_id,
        **totals,
        "pages": totals["pages"] or 0,
        "bytes": totals["bytes"] or 0,
    }
    if reader.kind is None:
        return head | {"heaviest_keys": [], "deadlines": []}
    return head | {
        "totals": _totals(reader),
        "waiting_events": {name: reader.waiting_events(name).count() for name in reader.inputs},
        "heaviest_keys": _rows(reader.heaviest_keys(top)),
        "deadlines": [] if reader.kind == "join" else _rows(reader.deadlines(top)),
    }


def _totals(reader: StateReader) -> dict[str, int]:
    match reader.kind:
        case "windows":
            of_keys = {name: reader.state(name).count() for name in reader.states}
            of_windows = {f"{name}_of_windows": reader.window_state(name).count() for name in reader.window_states}
            return {**of_keys, **of_windows, "windows": reader.windows().count()}
        case "join":
            name = "rows_of_the_{}_side" if reader.inputs == ["left", "right"] else "rows_of_{}"
            return {name.format(side): reader.kept_rows(side).count() for side in reader.inputs}
        case "operator":
            keyed = {name: reader.state(name).count() for name in reader.states if name in reader.keyed_states}
            broadcast = {name: reader.broadcast(name).count() for name in reader.states if name not in keyed}
            return {**keyed, **broadcast, "timers": reader.timers().count()}
    return {"partial_matches": reader.partial_matches().count()}


def _rows(df: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = df.toArrow().to_pylist(maps_as_pydicts="lossy")
    return rows


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _show(summary: Mapping[str, Any]) -> None:
    kind = summary["kind"] or "unknown state"
    click.echo(
        f"{kind} after micro-batch {summary['batch_id']}: {summary['bytes']:,} bytes, {summary['pages']:,} pages, "
        f"{summary['key_groups']} key groups; watermark {_text(summary['watermark'])}"
    )
    counts = [f"{number:,} {name.replace('_', ' ')}" for name, number in summary.get("totals", {}).items()]
    counts += [f"{number:,} waiting in {name}" for name, number in summary.get("waiting_events", {}).items()]
    if counts:
        click.echo(", ".join(counts))
    _show_rows("heaviest keys", summary["heaviest_keys"])
    _show_rows("first deadlines", summary["deadlines"])


def _show_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = {
        name.replace("_", " "): [row[name] for row in rows]
        for name in (rows[0] if rows else ())
        if any(row[name] is not None for row in rows)
    }
    numbers = [name for name, values in columns.items() if all(isinstance(value, int | None) for value in values)]
    if columns:
        cells = [map(_text, row) for row in zip(*columns.values(), strict=True)]
        print_table(list(columns), cells, title=title, numbers=numbers)


def _text(value: Any) -> str:
    """A value in a cell. A key is shown as its values."""
    match value:
        case None:
            return "-"
        case datetime():
            return value.isoformat(sep=" ").removesuffix("+00:00")
        case int():
            return f"{value:,}"
        case Mapping():
            return one_line(", ".join(map(_text_of_part, value.values())), _WIDTH)
        case list():
            return one_line(", ".join(map(_text_of_part, value)), _WIDTH)
    return one_line(str(value), _WIDTH)


def _text_of_part(value: Any) -> str:
    return "NULL" if value is None else str(value)
