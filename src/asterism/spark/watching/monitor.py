"""The view of a running query in a notebook."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from asterism.arguments import shown
from asterism.columns.time import EPOCH
from asterism.errors import MissingPackageError, StreamDefinitionError
from asterism.operators.histograms import HistogramStatistics
from asterism.operators.state.partition_watermarks import partition_text
from asterism.rules.sets.discovery_status import VALID
from asterism.rules.sets.rule_counts import RuleCounts, VersionCounts
from asterism.spark.progress.rule_progress import counts_of_query, groups_in
from asterism.spark.watching.progress import (
    QueryTotals,
    discovery_of,
    has_rules,
    input_rate,
    input_rows,
    lags_of,
    newest_of,
    numbers_of_operators,
    processed_rate,
    seconds_of,
    state_bytes,
    state_rows,
    time_of,
)
from asterism.text.html_table import html_table
from asterism.text.printable import duration, one_line
from asterism.text.svg import BLUE, FAINT, PAD, PURPLE, Canvas
from asterism.text.view import View

MAX_BATCHES, MAX_RULES = 60, 20
"""How many micro-batches the drawing has, and how many rules the table: those with the most matches."""
MAX_TEXT, MAX_LINES = 1_000, 10
_FALLS_BEHIND = 3
"""The number of slow micro-batches in a row after which a query is said to fall behind."""
_WIDTH, _HEIGHT = 420.0, 60.0
_ERROR = re.compile(r"asterism\.errors\.(\w+: [^\n]*(?:\n  (?!File |\s)[^\n]*)*)")
"""An error of Asterism in a text with stack traces: the message, with its detail and hint."""


def monitor(query: Any) -> QueryMonitor:
    """Show a running query: its rates, watermark, state, counts and rules. Notebooks show the result; elsewhere, print it.

    :param query: the StreamingQuery that ``run(..., trigger=...)`` or ``writeStream.start()`` has returned, active or not, also
        on Spark Connect
    :return: a view that reads the progress of the query whenever it is shown
    :raises StreamDefinitionError: *query* is not a streaming query

    The numbers are those of the last micro-batch, the drawing has the last 60. Example:
    ``asterism.monitor(query).live(seconds=60)``.
    """
    if not all(hasattr(type(query), name) for name in ("recentProgress", "exception")):
        hint = (
            "run(..., trigger={...}) returns the query; without a trigger, run returns None when all data is processed"
        )
        raise StreamDefinitionError(f"a monitor needs a StreamingQuery, not {shown(query)}", hint=hint)
    return QueryMonitor(query)


@dataclass(frozen=True, repr=False)
class QueryMonitor(View):
    """A view of a streaming query. Created by :func:`asterism.monitor`.

    :ivar query: the query
    """

    query: Any

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """The view as text."""
        facts, rules, _ = self._read()
        width = max(len(name) for name, _ in facts)
        between = "\n" + " " * (width + 2)
        lines = [f"{name:{width}}  {text.replace(chr(10), between)}" for name, text in facts]
        if rules:
            cells = [_RULE_COLUMNS, *rules]
            widths = [max(len(row[column]) for row in cells) for column in range(len(_RULE_COLUMNS))]
            lines.append("")
            lines += [
                "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts, rules, batches = self._read()
        parts = [_table([], facts)]
        if len(batches) > 1:
            parts.append(rates_svg(batches))
        if rules:
            parts.append(_table(_RULE_COLUMNS, rules))
        return "".join(parts)

    def live(self, seconds: float = 60.0, interval: float = 1.0) -> None:
        """Update the view in a notebook until the query ends. To stop earlier, interrupt the cell.

        :param seconds: for how long, at most
        :param interval: seconds between two updates
        :raises StreamDefinitionError: IPython is not installed, or a number is not positive
        """
        for name, value in (("seconds", seconds), ("interval", interval)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise StreamDefinitionError(
                    f"{name} must be a positive number, not {shown(value)}", hint=f"live({name}=5)"
                )
        self._show(_display(), seconds, interval)

    def _show(self, display: Callable[..., Any], seconds: float, interval: float) -> None:
        end = time.monotonic() + seconds
        handle = display(self, display_id=True)
        try:
            is_active = self.query.isActive
            while is_active and time.monotonic() < end:
                time.sleep(min(interval, max(0.0, end - time.monotonic())))
                # Checked before the view is read, so that the last view is that of the end.
                is_active = self.query.isActive
                handle.update(self)
        except KeyboardInterrupt:
            pass  # the way to stop earlier

    def _read(self) -> tuple[list[tuple[str, str]], list[tuple[str, ...]], Sequence[StreamingQueryProgress]]:
        """The facts as (name, text), the rules as rows of a table, and the micro-batches of the drawing."""
        try:
            batches = self.query.recentProgress
            name = self.query.name or str(self.query.id)
            status, problem = _status(self.query), _problem(self.query)
        except Exception as error:  # the session may have ended, which must not make a notebook fail
            return [("status", f"the query cannot be reached: {_first_line(str(error))}")], [], []
        facts = [("query", one_line(name, MAX_TEXT)), ("status", status)]
        if problem:
            facts.append(("error", problem))
        if not batches:
            return [*facts, ("micro-batch", "none has been completed")], [], []
        rules = _rules(batches)
        return [*facts, *_facts(batches)], rules, batches[-MAX_BATCHES:]


def _facts(batches: Sequence[StreamingQueryProgress]) -> list[tuple[str, str]]:
    last = batches[-1]
    totals = QueryTotals(last, time_of(last))
    for progress in batches:
        totals.add(progress)
    watermark = totals.watermark
    facts = [
        ("micro-batch", f"{last.batchId}, began {_time(time_of(last))}, took {seconds_of(last):,.1f} s"),
        ("input", f"{input_rows(last):,} rows, {_rate(input_rate(last))}"),
        ("processed", _processed(batches)),
        ("watermark", "not in the progress of this query" if watermark is None else _watermark(last, watermark)),
        ("state", f"{state_rows(last):,} rows, {state_bytes(last) / 1_000_000:,.1f} MB"),
    ]
    for source, (average, most, least) in lags_of(last).items():
        text = f"{source}: {most:,.0f} records of a partition not read yet, at least {least:,.0f}, on average {average:,.0f}"
        facts.append(("behind", one_line(text, MAX_TEXT)))
    for name, partition, micros in (each for partitions in totals.behind.values() for each in partitions):
        distance = _distance(timedelta(microseconds=micros), "the fastest partition")
        facts.append(("held back", one_line(f"by {partition_text(partition)} of {name}, {distance}", MAX_TEXT)))
    numbers = numbers_of_operators(last)
    for operator, values in numbers.items():
        counts = {name: value for name, value in values.items() if isinstance(value, int)}
        texts = [f"{name} {value:,} ({totals.numbers[operator][name]:,})" for name, value in counts.items()]
        facts.append((operator, one_line(", ".join(texts), MAX_TEXT) or "no counts"))
    for operator, values in numbers.items():
        texts = [f"{name} {value:,.6g}" for name, value in values.items() if isinstance(value, float)]
        facts += [(operator, one_line(", ".join(texts), MAX_TEXT))] if texts else []
    for operator, values in numbers.items():
        texts = [f"{n} {_distribution(v)}" for n, v in values.items() if isinstance(v, HistogramStatistics)]
        facts += [(operator, one_line(text, MAX_TEXT)) for text in texts]
    if totals.numbers:
        facts.append(("", f"in the micro-batch (in parentheses: since micro-batch {batches[0].batchId})"))
    if any(has_rules(progress) for progress in batches):
        discovery = discovery_of(last)
        text = discovery if discovery == VALID else f"{discovery}: the rules may not be up to date"
        facts.append(("rules", one_line(text, MAX_TEXT)))
    return facts


def _distribution(values: HistogramStatistics) -> str:
    """The values of a histogram."""
    if values.min is None or values.max is None or values.mean is None:
        return "no values"
    return f"{values.count:,} values from {values.min:,.6g} to {values.max:,.6g}, mean {values.mean:,.6g}"


_RULE_COLUMNS = ("rule", "version", "matches", "timed out", "partial matches", "errors", "last match", "state")


def _rules(batches: Sequence[StreamingQueryProgress]) -> list[tuple[str, ...]]:
    """The rules with the most matches: their counts in all runs if this process has them, otherwise in these micro-batches."""
    counts = counts_of_query(str(batches[-1].id))
    is_whole = counts is not None or batches[0].batchId == 0
    if counts is None:
        counts = RuleCounts()
        for progress in batches:
            counts.add(str(progress.id), progress.batchId, groups_in(progress))
    versions = sorted(counts.versions.items(), key=lambda item: (item[1].disabled <= 0, -item[1].matches, item[0]))
    rows = [_rule(name, version, rule_counts, is_whole) for (name, version), rule_counts in versions[:MAX_RULES]]
    if len(versions) > MAX_RULES:
        rest = [rule_counts for _, rule_counts in versions[MAX_RULES:]]
        more = [f"({len(rest):,} more)", "", f"{sum(rule_counts.matches for rule_counts in rest):,}"]
        rows.append((*more, *[""] * (len(_RULE_COLUMNS) - len(more))))
    return rows


def _rule(name: str, version: int, counts: VersionCounts, is_whole: bool) -> tuple[str, ...]:
    last = counts.last_match
    state = "" if counts.disabled <= 0 else f"disabled in {counts.disabled:,} key groups: {counts.error or ''}"
    return (
        one_line(name, 60),
        str(version),
        f"{counts.matches:,}",
        f"{counts.timed_out:,}",
        # The progress has the changes of this number, not the number.
        f"{counts.partial_matches:,}" if is_whole else "?",
        f"{counts.errors:,}",
        "" if last is None else _time(EPOCH + timedelta(microseconds=last)),
        one_line(state, MAX_TEXT),
    )


def rates_svg(batches: Sequence[StreamingQueryProgress]) -> str:
    """Rows per second over micro-batches: those that arrived, and those that were processed."""
    series = [
        ("input", PURPLE, [input_rate(progress) for progress in batches]),
        ("processed", BLUE, [processed_rate(progress) for progress in batches]),
    ]
    known = [value for *_, values in series for value in values if value is not None]
    most = max(known, default=0.0)
    canvas = Canvas()
    top = 30.0
    canvas.text(PAD, 18, f"rows per second, up to {most:,.0f}", 11, fill=FAINT)
    left = PAD + _WIDTH - 130
    for name, color, values in series:
        canvas.rect(left, 11, 10, 4, fill=color)
        canvas.text(left + 14, 18, name, 11)
        left += 60
        points = [
            (PAD + _WIDTH * at / max(len(values) - 1, 1), top + _HEIGHT * (1 - value / (most or 1.0)))
            for at, value in enumerate(values)
            if value is not None
        ]
        if len(points) > 1:
            canvas.line(points, color, corner=0)
        for x, y in points[-1:]:
            canvas.add("circle", cx=x, cy=y, r=3, fill=color)
    first, last = batches[0].batchId, batches[-1].batchId
    canvas.text(PAD, top + _HEIGHT + 18, f"micro-batches {first} to {last}", 11, fill=FAINT)
    return canvas.written(_WIDTH + 2 * PAD, top + _HEIGHT + 28, f"rows per second in micro-batches {first} to {last}")


def plain_error(text: str) -> str:
    """The error in the message of a failed query, which has stack traces of both languages."""
    errors = _ERROR.findall(text)
    if errors:
        return "\n".join(one_line(line, MAX_TEXT) for line in errors[-1].splitlines()[:MAX_LINES])
    return _first_line(text)


def _first_line(text: str) -> str:
    return one_line(next((line for line in text.splitlines() if line.strip()), "no message"), MAX_TEXT)


def _problem(query: Any) -> str | None:
    """The reason why the query has failed, if it has."""
    if query.isActive:
        return None
    error = query.exception()
    return None if error is None else plain_error(str(error))


def _status(query: Any) -> str:
    if not query.isActive:
        return "ended"
    return one_line(f"active: {query.status.get('message', '')}", MAX_TEXT)


def _processed(batches: Sequence[StreamingQueryProgress]) -> str:
    """One slow micro-batch may follow a pause. Several in a row say that the query falls behind."""
    rates = [(input_rate(batch), processed_rate(batch)) for batch in batches[-_FALLS_BEHIND:]]
    slower = [None not in pair and pair[1] < pair[0] for pair in rates]  # type: ignore[operator]
    behind = len(slower) == _FALLS_BEHIND and all(slower)
    words = f", slower than the input in {_FALLS_BEHIND} micro-batches in a row" if behind else ""
    return _rate(rates[-1][1]) + words


def _rate(value: float | None) -> str:
    return "no rate" if value is None else f"{value:,.0f} rows/s"


def _time(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _watermark(last: StreamingQueryProgress, watermark: datetime) -> str:
    newest = newest_of(last)
    distances = [] if newest is None else [_distance(newest - watermark, "the newest event")]
    return ", ".join([_time(watermark), *distances, _distance(time_of(last) - watermark, "the clock")])


def _distance(value: timedelta, what: str) -> str:
    whole = timedelta(seconds=round(abs(value).total_seconds()))
    largest = " ".join(duration(whole).split()[:4])  # the two largest units
    return f"{largest} {'ahead of' if value < timedelta(0) else 'behind'} {what}"


def _display() -> Callable[..., Any]:
    try:
        module: Any = import_module("IPython.display")
    except ImportError:
        raise MissingPackageError(
            "a live view needs IPython, which is not installed",
            hint="print(asterism.monitor(query)) shows the query once",
        ) from None
    display: Callable[..., Any] = module.display
    return display


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return html_table(head, rows, style="text-align:left;white-space:pre-line")
