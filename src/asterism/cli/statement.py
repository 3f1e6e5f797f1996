"""The command ``asterism sql``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from asterism.cli.common.local_spark import files_to_read, local_spark, read_batch, read_stream, temporary_folder
from asterism.cli.common.results import limit_option, out_option, show_or_write
from asterism.cli.common.terminal import (
    MATCHING,
    errors_explained,
    max_out_of_orderness_option,
    spark_option,
    status_line,
    watermark_by_option,
)
from asterism.cli.match import PartsSink
from asterism.row_patterns.clause.clause import DialectName

if TYPE_CHECKING:
    import pyarrow as pa


class _TableFile(click.ParamType[tuple[str, Path]]):
    """The name of a table and a file: events=events.csv."""

    name = "name=file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        if isinstance(value, tuple):
            return value
        name, _, path = value.partition("=")
        if not name or not path:
            self.fail(f"{value!r} is not a table: write its name and its file, as in events=events.csv", param, ctx)
        if not Path(path).exists():
            self.fail(f"there is no file or folder {path!r}", param, ctx)
        return name, Path(path)


@click.command(name="sql")
@click.argument("statement")
@click.option(
    "--table",
    "tables",
    multiple=True,
    type=_TableFile(),
    help="A table: its name, and a .csv (with a header), .jsonl or .parquet file, or a folder of such files. Can be repeated.",
)
@spark_option
@click.option(
    "--stream", is_flag=True, help="Read the tables as streams, on Spark, and end them after the existing files."
)
@max_out_of_orderness_option
@watermark_by_option
@click.option(
    "--dialect",
    type=click.Choice(get_args(DialectName)),
    default="standard",
    show_default=True,
    help="flink: statements of Flink SQL with Flink's defaults and answers.",
)
@out_option
@limit_option
def sql(
    statement: str,
    tables: tuple[tuple[str, Path], ...],
    spark: bool,
    stream: bool,
    out: Path | None,
    limit: int,
    **options: Any,
) -> None:
    """Run a statement of Spark SQL, in which tables can be followed by MATCH_RECOGNIZE, on files.

    Without --spark, a statement is a query, and DuckDB executes what is around the clauses.

    \b
    asterism sql "SELECT * FROM trades MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
      MEASURES A.ts AS began PATTERN (A B+) DEFINE B AS price > PREV(price))" --table trades=trades.parquet
    """
    with errors_explained():
        with status_line(MATCHING):
            if spark or stream:
                rows = _rows_on_spark(statement, dict(tables), stream, options)
            else:
                from asterism.streams.sql import sql as result_of

                named: dict[str, Any] = dict(tables)
                rows = result_of(statement, None, **options, **named)
        what = f"{rows.num_rows:,} {'row' if rows.num_rows == 1 else 'rows'}"
        show_or_write(rows, rows, what, out, limit)


def _rows_on_spark(statement: str, tables: Mapping[str, Path], stream: bool, options: Mapping[str, Any]) -> pa.Table:
    """The rows of the statement on Spark. A stream is run to its end."""
    files = {name: files_to_read(path) for name, path in tables.items()}
    with temporary_folder() as work, local_spark() as spark:
        from asterism.spark.api.running import run
        from asterism.spark.api.statements import sql as result_of
        from asterism.spark.session.settings import new_key_groups

        frames: dict[str, Any] = {}
        for name, source in files.items():
            batch = read_batch(spark, source)
            frames[name] = read_stream(spark, source, batch.schema) if stream else batch
        rows = result_of(statement, spark, key_groups=new_key_groups(spark), drain=True, **options, **frames)
        if not rows.isStreaming:
            return rows.toArrow()
        sink = PartsSink(work / "rows")
        run(rows, sink, checkpoint=str(work / "checkpoint"))
        return sink.read(spark, rows.schema).toArrow()
