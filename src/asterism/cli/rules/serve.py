"""The command ``asterism rules serve``."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from asterism.cli.common.terminal import errors_explained, semantics_option, table_option, time_option
from asterism.cli.rules.backtest import lookup_option


@click.command()
@click.argument("source")
@table_option
@click.option("--port", type=click.IntRange(0, 65535), default=8474, show_default=True, help="0: a free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--token-file",
    "tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The tokens and their rights, in JSON or YAML. Without it, everyone on this machine has all rights, and --host must "
    "be a loopback address.",
)
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A PEM file with the certificate chain, for HTTPS; required if --host is not a loopback address.",
)
@click.option(
    "--private-key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file with its key, if the key is not in the same file.",
)
@click.option("--checkpoint", help="The checkpoint or the store of a query, whose status is shown.")
@click.option(
    "--history",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Events for samples and backtests: files as for `asterism match`; can be repeated.",
)
@click.option(
    "--schema",
    help="The columns of the events, as Spark's DDL: 'ip STRING, price DOUBLE, ts TIMESTAMP'. Default: those of the history.",
)
@click.option(
    "--key", "keys", multiple=True, help="Key column of the stream, for rules without a key; can be repeated."
)
@time_option
@lookup_option
@semantics_option("The semantics: those of the library, or exactly those of Flink.")
def serve(source: str, **options: Any) -> None:
    """Serve a page in the browser, and an HTTP endpoint, to see, try and change rules while no query runs.

    Queries that read SOURCE find the changes. They can also read the rules from the endpoint, at /processors.

    \b
    asterism rules serve sqlite:///rules.db --history history/ --time ts --checkpoint /data/checkpoint
    """
    with errors_explained():
        _serve(source, **options)


def _serve(
    source: str,
    *,
    history: Sequence[Path],
    schema: str | None,
    keys: tuple[str, ...],
    time: str | None,
    lookups: tuple[tuple[str, str, str], ...],
    semantics: str,
    **options: Any,
) -> None:
    from asterism.console.samples import SampleSettings
    from asterism.console.server import ConsoleOptions, ConsoleServer

    files = tuple(str(path.absolute()) for path in history)
    server = ConsoleServer(
        ConsoleOptions(
            source,
            samples=SampleSettings(schema, files, keys, time, semantics, lookups),
            backtest_worker="asterism.cli.rules.backtest_worker",
            source_token=os.environ.get("ASTERISM_TOKEN"),
            **options,
        )
    )
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    for name in ("asterism.console", "asterism.discovery"):
        logging.getLogger(name).setLevel(logging.INFO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *arguments: server.close())

    def on_listening(address: str) -> None:
        click.echo(f"console on {address}")
        if options["tokens"] is None:
            click.echo("There are no tokens: everyone on this machine can change the rules.")
        sys.stdout.flush()

    server.run(on_listening)
