"""The child process in which the console runs backtests. The first one starts Spark, which then keeps running."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asterism.cli.common.local_spark import files_to_read, local_spark
from asterism.cli.common.terminal import first_paragraph
from asterism.cli.rules.backtest import history_frame
from asterism.columns.time import time_text
from asterism.console.samples import SampleSettings
from asterism.console.worker import Handler, OnProgress, run
from asterism.errors import AsterismError, PatternProcessorError, error_in
from asterism.patterns.semantics import Semantics
from asterism.rules.checking.backtest import BacktestMatch, BacktestReport
from asterism.text.printable import event_text, one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = 20
"""Maximum number of examples: of added matches, and of removed ones."""
POLL = 0.5
"""Seconds between two checks of Spark's progress."""
MAX_EVENT = 1_000
"""Maximum length of an event in an example."""


class BacktestHandler:
    """Runs backtests in one Spark session."""

    def __init__(self, settings: SampleSettings) -> None:
        self.settings = settings
        self._stack = ExitStack()
        self._spark: SparkSession | None = None

    def __call__(self, request: Mapping[str, Any], on_progress: OnProgress) -> Any:
        if self._spark is None:
            on_progress({"stage": "starting Spark"})
            self._spark = self._stack.enter_context(local_spark())
        on_progress({"stage": "reading the history"})
        ended = threading.Event()
        watch = threading.Thread(target=_watch, args=(self._spark, on_progress, ended), daemon=True)
        watch.start()
        try:
            return self._report(self._spark, request)
        except AsterismError:
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
                raise
            raise error_in(error) or PatternProcessorError(first_paragraph(str(error))) from error
        finally:
            ended.set()
            watch.join()

    def close(self) -> None:
        self._stack.close()

    def _report(self, spark: SparkSession, request: Mapping[str, Any]) -> dict[str, Any]:
        from asterism.cep import CEP
        from asterism.discovery.sources.lookup_sources import lookups_of
        from asterism.streams.keyed_stream import KeyedStream

        settings = self.settings
        events = history_frame(spark, [files_to_read(Path(path)) for path in settings.history], settings.time)
        against = None if request["against"] is None else [request["against"]]
        report = CEP.backtest(
            KeyedStream(events, key=settings.keys, time=settings.time),
            [request["rule"]],
            against,
            lookups=lookups_of(settings.lookups),
            semantics=Semantics(settings.semantics),
            examples=EXAMPLES,
        )
        return report_of(report)


def _watch(spark: SparkSession, on_progress: OnProgress, ended: threading.Event) -> None:
    """Report how many tasks of Spark's current stages are complete."""
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(POLL):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        tasks = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
        if tasks:
            done, total = (sum(numbers) for numbers in zip(*tasks, strict=True))
            on_progress({"stage": "matching", "done": done, "total": total})


def report_of(report: BacktestReport) -> dict[str, Any]:
    """The report of one rule as JSON."""
    [rule] = report.rules
    return {
        "compared": report.compared,
        "events": report.events,
        "late": report.late,
        "first": None if report.first is None else str(report.first.replace(tzinfo=None)),
        "last": None if report.last is None else str(report.last.replace(tzinfo=None)),
        "days": report.days,
        "rule": rule.to_dict(compared=report.compared),
        "examples": [_example(match) for match in rule.examples],
    }


def _example(match: BacktestMatch) -> dict[str, Any]:
    return {
        "difference": match.difference,
        "version": match.version,
        "key": match.key,
        "start": time_text(match.start_time),
        "end": time_text(match.end_time),
        "events": [[stage, one_line(event_text(event), MAX_EVENT)] for stage, event in match.events],
        "moreEvents": match.more_events,
        "measures": dict(match.measures or {}),
    }


def handler_of(setup: Mapping[str, Any]) -> Handler:
    handler = BacktestHandler(SampleSettings(**setup))
    atexit.register(handler.close)
    return handler


if __name__ == "__main__":
    run(handler_of)
