"""A local Spark session for a command."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asterism.cli.common.terminal import first_paragraph, stderr
from asterism.errors import StreamDefinitionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ---------------------------------------------------------------------- Spark


@contextmanager
def local_spark(settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """The active Spark session; if there is none, a local one with further *settings*, which is stopped on exit."""
    from pyspark.sql import SparkSession

    import asterism.spark  # noqa: F401 - makes Spark's workers use this interpreter, so it comes before the session

    spark = SparkSession.getActiveSession()
    ours = spark is None
    if spark is None:
        if stderr().is_terminal:
            click.echo("starting Spark", err=True)
        builder = SparkSession.builder.master("local[*]").appName("asterism")
        for key, value in {**_SETTINGS, **(settings or {})}.items():
            builder = builder.config(key, value)
        with _quiet_stderr():
            spark = builder.getOrCreate()
    try:
        with _no_logging():
            yield spark
    finally:
        if ours:
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
    with tempfile.TemporaryFile() as elsewhere:
        ours = os.dup(2)
        os.dup2(elsewhere.fileno(), 2)
        try:
            yield
        except Exception as error:
            elsewhere.seek(0)
            written = elsewhere.read().decode(errors="replace").strip()
            detail = "\n".join([*written.splitlines()[-5:], first_paragraph(str(error))])
            hint = "Spark needs Java 17 or later, on the PATH or in JAVA_HOME"
            raise StreamDefinitionError("Spark did not start", detail, hint) from error
        finally:
            os.dup2(ours, 2)
            os.close(ours)
