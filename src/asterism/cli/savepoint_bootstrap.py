"""The command ``asterism savepoint bootstrap``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.local_spark import files_to_read, local_spark, read_batch, temporary_folder, with_event_time
from asterism.cli.common.terminal import (
    Duration,
    errors_explained,
    order_by_option,
    semantics_option,
    status_line,
    table_option,
    watermark_by_option,
)
from asterism.cli.rules.backtest import lookup_option
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from asterism.operators.sink_functions import Sink

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NOT_OF = {
    "pattern": {"lookups": "--lookup"},
    "clause": {
        "keys": "--key",
        "order_by": "--order-by",
        "measures": "--select",
        "lookups": "--lookup",
        "semantics": "--semantics",
    },
    "rules": {"measures": "--select"},
}
"""Options that do not concern one of them."""


class _Time(click.ParamType[datetime]):
    """A time in the format of ISO 8601; without a zone, it is in UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time: write it as 2026-01-01T00:00:00Z", param, ctx)
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


@click.command(name="bootstrap")
@click.argument("target")
@click.option("--pattern", type=_FILE, help="A file with a pattern in the JSON graph format.")
@click.option("--clause", type=_FILE, help="A file with a clause of MATCH_RECOGNIZE, in SQL.")
@click.option(
    "--rules", help="Rules: a file of rules, a folder of such files, or the URL of a database, topic or web server."
)
@click.option(
    "--input",
    "inputs",
    required=True,
    multiple=True,
    help="The history: files as for `asterism match`, or with --format what Spark loads; can be repeated.",
)
@click.option(
    "--format", "kind", help="The format of the inputs, such as delta or iceberg. Default: that of the files."
)
@click.option(
    "--until", type=_Time(), help="The time at which the history ends, and the streams begin. Default: its end."
)
@click.option(
    "--results",
    required=True,
    help="A folder for the results of the history: a folder of Parquet files for each output.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    help="An output of the query, such as timed_out; can be repeated. Default: matches.",
)
@click.option("--key", "keys", multiple=True, help="Key column of the stream; can be repeated. A clause has its own.")
@click.option("--time", help="Event-time column: timestamps, as such or as strings, or epoch milliseconds.")
@order_by_option
@click.option(
    "--max-out-of-orderness",
    type=Duration(),
    default="0s",
    show_default=True,
    help="That of the streams: how far an event may lie behind the latest one before it is late: 500ms, 5s, 10m, 2h, 1d.",
)
@watermark_by_option
@click.option(
    "--select", "measures", multiple=True, help="A measure of a pattern; can be repeated. Default: all events."
)
@lookup_option
@table_option
@click.option("--key-groups", type=click.IntRange(1), help="The number of key groups; queries may have another one.")
@semantics_option("The semantics: those of the library, or exactly those of Flink.")
def bootstrap(
    target: str,
    inputs: Sequence[str],
    kind: str | None,
    until: datetime | None,
    results: str,
    outputs: Sequence[str],
    **options: Any,
) -> None:
    """Make the new savepoint TARGET from a table of history: the state after it, for a pattern, a clause or rules. Any number of
    queries begin with it, by run(..., history=TARGET). The results of the history are written to files.

    The other options are those of the query.

    \b
    asterism savepoint bootstrap /savepoints/carts --pattern carts.json --input events/ --until 2026-01-01T00:00:00Z \\
      --key user --time ts --max-out-of-orderness 10s --results /results/carts
    """
    given = [name for name in ("pattern", "clause", "rules") if options[name] is not None]
    if len(given) != 1:
        raise click.UsageError("one of --pattern, --clause and --rules is needed.")
    context = click.get_current_context()
    unused = [option for name, option in _NOT_OF[given[0]].items() if _is_given(context, name)]
    if unused:
        raise click.UsageError(f"{unused[0]} does not go with --{given[0]}.")
    from asterism.sinks import FileSink
    from asterism.spark.savepoints.bootstrapping import bootstrap_savepoint

    folders = {name: f"{results.rstrip('/')}/{name}" for name in outputs or ["matches"]}
    with errors_explained(), temporary_folder() as work, local_spark() as spark:
        table = _table(spark, inputs, kind, options["time"])
        stream, more = _stream(spark.readStream.schema(table.schema).parquet(str(work)), **options)
        sinks: dict[str, Sink] = {name: FileSink(folder) for name, folder in folders.items()}
        with status_line("reading the history"):
            bootstrap_savepoint(stream, table, target, sinks, until=until, **more)
    for name, folder in folders.items():
        click.echo(f"{name} of the history: {folder}")
    click.echo(f'begin queries with run(..., history="{target}")')


def _is_given(context: click.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source not in (None, click.core.ParameterSource.DEFAULT)


def _table(spark: SparkSession, inputs: Sequence[str], kind: str | None, time: str | None) -> DataFrame:
    from pyspark.sql import DataFrame

    if kind is None:
        paths = [click.Path(exists=True, path_type=Path).convert(each, None, None) for each in inputs]
        tables = [read_batch(spark, files_to_read(path)) for path in paths]
    else:
        tables = [spark.read.format(kind).load(each) for each in inputs]
    return with_event_time(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), tables), time)


def _stream(
    events: DataFrame,
    *,
    pattern: Path | None,
    clause: Path | None,
    rules: str | None,
    table: str,
    lookups: Sequence[tuple[str, str, str]],
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """What is run on the events, of which no query reads any, and options of its ``run``."""
    from asterism.cep import CEP
    from asterism.streams.keyed_stream import KeyedStream
    from asterism.streams.row_patterns import match_recognize

    late = {name: options[name] for name in ("max_out_of_orderness", "watermark_by")}
    more = {"key_groups": options["key_groups"]}
    if clause is not None:
        return match_recognize(events, clause.read_text("utf-8"), **late, **more), {}
    time, order_by, measures = options["time"], options["order_by"], options["measures"]
    stream = KeyedStream(events, key=options["keys"], time=time, order_by=order_by, **late)
    more["semantics"] = Semantics(options["semantics"])
    if pattern is not None:
        select = {"select": {"matches": [*measures]}} if measures else {}
        return CEP.pattern(stream, Pattern.from_json(pattern.read_bytes()), **more), select
    from asterism.discovery.sources.sources import factory_of
    from asterism.rules.publishing.lookup_watch import lookups_of

    return CEP.pattern_processors(stream, factory_of(rules, table), lookups=lookups_of(lookups), **more), {}
