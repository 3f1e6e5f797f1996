"""The child process in which the console runs backtests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism.cli.rules.backtest import history_table
from asterism.columns.time import time_text
from asterism.console.found_matches import write_matches
from asterism.console.samples import SampleSettings
from asterism.console.worker import Handler, OnProgress, run
from asterism.patterns.semantics import Semantics
from asterism.rules.checking.backtest import BacktestMatch, BacktestReport, BacktestRule
from asterism.rules.definition.processor import PatternProcessor
from asterism.text.printable import event_text, one_line

EXAMPLES = 20
"""Maximum number of examples: of added matches, and of removed ones."""
MAX_EVENT = 1_000
"""Maximum length of an event in an example."""


class BacktestHandler:
    """Runs backtests over the history of the console."""

    def __init__(self, settings: SampleSettings) -> None:
        self.settings = settings

    def __call__(self, request: Mapping[str, Any], on_progress: OnProgress) -> Any:
        from asterism.cep import CEP
        from asterism.rules.publishing.lookup_watch import lookups_of
        from asterism.streams.keyed_stream import KeyedStream

        settings = self.settings
        on_progress({"stage": "reading the history"})
        events = history_table([Path(path) for path in settings.history], settings.time)
        on_progress({"stage": "matching"})
        against = None if request["against"] is None else [request["against"]]
        report = CEP.backtest(
            KeyedStream(events, key=settings.keys, time=settings.time),
            [request["rule"]],
            against,
            lookups=lookups_of(settings.lookups),
            semantics=Semantics(settings.semantics),
            examples=EXAMPLES,
            label=request.get("label"),
        )
        found = report_of(report)
        if request.get("file") is not None:
            on_progress({"stage": "writing the matches"})
            holds = self._holds(request, events, report.matches)
            found["listed"] = write_matches(Path(request["file"]), report.matches, holds)
            found["ofMatches"] = report.matches.num_rows
        return found

    def _holds(self, request: Mapping[str, Any], events: pa.Table, matches: pa.Table) -> Sequence[bool] | None:
        """For each match whether it has a labelled event; None: there is no label, or no match."""
        from asterism.streams.evidence import labelled_events, marked, spans_of

        settings = self.settings
        if request.get("label") is None or not matches.num_rows:
            return None
        assert settings.time is not None
        labelled = labelled_events(events, request["label"], settings.keys, settings.time)
        new = PatternProcessor.from_dict(request["rule"])
        old = None if request["against"] is None else PatternProcessor.from_dict(request["against"])
        spans = spans_of(matches, settings.time, events.schema)
        return [bool(holds) for holds in marked(spans, new, old, labelled)]


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
        "label": report.label,
        "labelled": report.labelled,
        "rule": rule.to_dict(compared=report.compared, labelled=report.label is not None),
        "daily": [[day.isoformat(), *counts] for day, *counts in _daily(rule)],
        "examples": [_example(match) for match in rule.examples],
    }


def _daily(rule: BacktestRule) -> list[tuple[date, int, int]]:
    """The days with matches, with those of the new and of the old side."""
    new, old = ({} if run is None else run.daily for run in (rule.new, rule.old))
    return [(day, new.get(day, 0), old.get(day, 0)) for day in sorted({*new, *old})]


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
    return BacktestHandler(SampleSettings(**setup))


if __name__ == "__main__":
    run(handler_of)
