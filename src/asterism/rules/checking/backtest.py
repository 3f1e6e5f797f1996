"""The result of a backtest: what rules found in a table of history, perhaps compared with what other rules found there.

Two matches of a rule are the same if they have the same key and the same events, whatever the versions and the stages. For rules
in SQL, the first and the last event count; between a graph and SQL, the times of these.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from asterism.arguments import expect_string
from asterism.columns.time import time_text
from asterism.errors import ExpressionTypeError, PatternProcessorError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.types import name_of
from asterism.text.html_table import html_table
from asterism.text.printable import event_text, one_line
from asterism.text.view import View

ADDED, REMOVED, KEPT = "added", "removed", "kept"
MAX_EVENTS = 20
"""The maximum number of events of an example."""
MAX_EXAMPLES = 1000
MAX_RULES = 200
"""The number of rules that the text of a report shows by default."""
_MAX_REASON = 1000


@dataclass(frozen=True, slots=True)
class BacktestRun:
    """What one version of a rule found.

    :ivar refused: why the rule cannot be used. Without a valid rule of this id, the version and all counts are None.
    :ivar matches: the number of rows in the output ``matches``
    :ivar keys: the number of distinct keys of these
    :ivar matches_per_day: matches divided by the number of calendar days (UTC) from the first to the last event of the history;
        None without an event time
    :ivar most_in_a_day: the largest number of matches whose last event is on the same day
    :ivar timed_out: the number of timed-out partial matches; None if the rule does not report them
    :ivar errors: the number of key groups in which the rule was disabled, because it failed or exceeded a limit
    :ivar error: the first of these errors
    :ivar true_matches: the number of matches with a labelled event of their key between their first and their last event; this
        and the next three are None without a label
    :ivar found: the number of labelled events in a match
    :ivar precision: the share of matches that are true; None without matches
    :ivar recall: the share of labelled events in a match; None without labelled events
    :ivar daily: the number of matches by the day (UTC) of their last event; empty without an event time
    """

    version: int | None = None
    refused: str | None = None
    matches: int | None = None
    keys: int | None = None
    matches_per_day: float | None = None
    most_in_a_day: int | None = None
    timed_out: int | None = None
    errors: int | None = None
    error: str | None = None
    true_matches: int | None = None
    found: int | None = None
    precision: float | None = None
    recall: float | None = None
    daily: Mapping[date, int] = field(default_factory=dict)


_TYPES = {"int | None": pa.int64(), "float | None": pa.float64(), "str | None": pa.string()}
_LABELLED = ("true_matches", "found", "precision", "recall")
"""The columns of the summary if there is a label."""
_COLUMNS = [(each.name, _TYPES[str(each.type)]) for each in fields(BacktestRun) if each.name != "daily"]
_SUMMARY = [("id", pa.string()), *(column for column in _COLUMNS if column[0] not in _LABELLED)]
_COMPARED = [
    (f"old_{name}", dict(_SUMMARY)[name])
    for name in ("version", "refused", "matches", "keys", "matches_per_day", "most_in_a_day", "timed_out", "errors")
]
_COMPARED += [(name, pa.int64()) for name in (ADDED, REMOVED, KEPT)]


@dataclass(frozen=True, slots=True)
class BacktestMatch:
    """A match as an example.

    :ivar difference: "added" or "removed"; without a comparison, "added"
    :ivar events: the first events, each with its stage, if the output of the rule has events
    """

    difference: str
    version: int
    key: tuple[str | None, ...]
    start_time: Any
    end_time: Any
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    more_events: int = 0
    measures: Mapping[str, str | None] | None = None
    result: str | None = None

    def __str__(self) -> str:
        key = ", ".join("NULL" if value is None else one_line(value, 100) for value in self.key)
        times = " to ".join(dict.fromkeys(time_text(time) for time in (self.start_time, self.end_time)))
        words = [f"key {key}" if self.key else "", times]
        words += [
            f"{one_line(name, 60)}={'NULL' if value is None else one_line(value, 100)}"
            for name, value in (self.measures or {}).items()
        ]
        words += [one_line(self.result, 500)] if self.result is not None else []
        words += [f"{one_line(stage, 60)}({one_line(event_text(event), 200)})" for stage, event in self.events]
        words += [f"{self.more_events:,} more events"] if self.more_events else []
        return "; ".join(word for word in words if word)


@dataclass(frozen=True, slots=True)
class BacktestRule:
    """The result of one rule.

    :ivar new: what the rule found; None if it exists only in the rules that were compared with
    :ivar old: what it found there; None if it does not exist there, or if nothing was compared
    :ivar added: the number of matches that only *new* has; None if nothing was compared, or if one of them was refused
    :ivar removed: the number of matches that only *old* has
    :ivar kept: the number of matches that both have
    :ivar examples: some matches that were added and some that were removed; without a comparison, some matches
    """

    id: str
    new: BacktestRun | None
    old: BacktestRun | None = None
    added: int | None = None
    removed: int | None = None
    kept: int | None = None
    examples: tuple[BacktestMatch, ...] = ()

    def to_dict(self, *, compared: bool, labelled: bool = False) -> dict[str, Any]:
        """The row of the summary. A rule that does not exist has 0 matches."""
        absent = BacktestRun(
            matches=0, keys=0, matches_per_day=0.0, most_in_a_day=0, timed_out=0, errors=0, true_matches=0, found=0
        )
        new, old = self.new or absent, self.old or absent
        row: dict[str, Any] = {"id": self.id}
        for name, _ in _schema(compared=compared, labelled=labelled)[1:]:
            if name in (ADDED, REMOVED, KEPT):
                row[name] = getattr(self, name)
            else:
                row[name] = getattr(old if name.startswith("old_") else new, name.removeprefix("old_"))
        return row


@dataclass(frozen=True)
class BacktestReport(View):
    """What rules found in a table of history. ``str`` and notebooks show it as a table.

    :ivar rules: the rules, in their order; then those that exist only in the rules that were compared with
    :ivar compared: whether there were rules to compare with
    :ivar events: the number of events
    :ivar late: the number of events without a time, which no rule sees
    :ivar first, last: the times of the first and the last event, in UTC; None if there are none
    :ivar label: the column with which matches were compared; None: none
    :ivar labelled: the number of events that have the label
    """

    rules: tuple[BacktestRule, ...]
    compared: bool
    events: int
    late: int = 0
    first: datetime | None = None
    last: datetime | None = None
    label: str | None = None
    labelled: int | None = None

    @property
    def days(self) -> int | None:
        """The number of calendar days (UTC) from the first to the last event."""
        if self.first is None or self.last is None:
            return None
        return (self.last.date() - self.first.date()).days + 1

    @property
    def refused(self) -> dict[str, str]:
        return {
            rule.id: rule.new.refused for rule in self.rules if rule.new is not None and rule.new.refused is not None
        }

    @property
    def summary(self) -> pa.Table:
        """One row for each rule. With a comparison, ``old_version``, ``old_matches`` and so on are those of the other rules, and
        ``added``, ``removed`` and ``kept`` are numbers of matches. With a label, there are also ``true_matches``, ``found``,
        ``precision`` and ``recall``.
        """
        which = {"compared": self.compared, "labelled": self.label is not None}
        return pa.Table.from_pylist([rule.to_dict(**which) for rule in self.rules], pa.schema(_schema(**which)))

    def where(self, expression: str) -> list[str]:
        """The ids of the rules for which an SQL expression over the columns of :attr:`summary` is true.

        :raises ExpressionError: the expression is invalid, is not Boolean, or names other columns
        :raises InvalidEventError: it cannot be computed, for example because of a division by zero

        >>> report = BacktestReport((BacktestRule("a", BacktestRun(1, matches=12)),), compared=False, events=50)
        >>> report.where("matches > 10 AND refused IS NULL")
        ['a']
        """
        expect_string(PatternProcessorError, expression, "an expression must be a string", '"matches > 1000"')
        check_where(expression, compared=self.compared, labelled=self.label is not None)
        rows = self.summary
        condition = _condition(expression, rows.schema)
        selected = condition.evaluate(rows)[0].to_pylist() if rows.num_rows else []
        return [rule.id for rule, holds in zip(self.rules, selected, strict=True) if holds]

    # ------------------------------------------------------------------ human-readable output

    def __str__(self) -> str:
        return self.text()

    def text(self, *, limit: int | None = MAX_RULES) -> str:
        """The report as text.

        :param limit: the maximum number of rules; None: no maximum
        """
        header, *rows = self._cells(limit)
        widths = [max(len(row[n]) for row in (header, *rows)) for n in range(len(header))]
        numbers = range(2, len(header))
        lines = [self._headline(), ""]
        for row in (header, *rows) if rows else ():
            cells = [cell.rjust(widths[n]) if n in numbers else cell.ljust(widths[n]) for n, cell in enumerate(row)]
            lines.append("  ".join(cells).rstrip())
        for headline, details in self._notes(limit):
            lines += ["", headline, *("  " + detail for detail in details)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._cells(MAX_RULES)
        parts = [f"<p>{html.escape(self._headline())}</p>", html_table(head, rows)]
        for headline, details in self._notes(MAX_RULES):
            items = "".join(f"<li>{html.escape(detail)}</li>" for detail in details)
            parts.append(f"<p>{html.escape(headline)}</p><ul>{items}</ul>")
        return "".join(parts)

    def _headline(self) -> str:
        words = [f"{len(self.rules):,} {'rule' if len(self.rules) == 1 else 'rules'} over {self.events:,} events"]
        if self.first is not None and self.last is not None:
            days = f"{self.days:,} {'day' if self.days == 1 else 'days'}"
            words.append(f"from {time_text(self.first)} to {time_text(self.last)} ({days})")
        if self.late:
            words.append(f"{self.late:,} without a time")
        if self.label is not None:
            words[-1] += f"; {self.labelled:,} with {one_line(self.label, 60)}"
        return ", ".join(words) if self.late else " ".join(words)

    def _cells(self, limit: int | None) -> list[list[str]]:
        differences = [ADDED, REMOVED, KEPT] if self.compared else []
        shares = ["true", "precision", "recall"] if self.label is not None else []
        cells = [
            [
                "rule",
                "version",
                "matches",
                *differences,
                *shares,
                "keys",
                "a day",
                "most in a day",
                "timed out",
                "errors",
            ]
        ]
        for rule in self.rules[:limit]:
            row = rule.to_dict(compared=self.compared, labelled=self.label is not None)
            runs = (rule.old, rule.new) if self.compared else (rule.new,)
            versions = list(dict.fromkeys(map(_version_text, runs)))
            good = [_text(row["true_matches"]), _share(row["precision"]), _share(row["recall"])] if shares else []
            counts = ["keys", "matches_per_day", "most_in_a_day", "timed_out", "errors"]
            found = [_text(row[name]) for name in ("matches", *differences)]
            cells.append(
                [one_line(rule.id, 60), " -> ".join(versions), *found, *good, *(_text(row[name]) for name in counts)]
            )
        return cells

    def _notes(self, limit: int | None) -> Iterator[tuple[str, list[str]]]:
        """Everything that does not fit into the table: headlines, each with its lines."""
        shown = self.rules[:limit]
        if len(shown) < len(self.rules):
            yield f"... and {len(self.rules) - len(shown):,} more rules", []
        for rule in shown:
            name = one_line(rule.id, 60)
            for run, which in ((rule.new, ""), (rule.old, "the other rules: ")):
                if run is not None and run.refused is not None:
                    yield f"{which}{name}: refused", [one_line(run.refused, _MAX_REASON)]
                if run is not None and run.errors:
                    disabled = f"disabled in {run.errors:,} key {'group' if run.errors == 1 else 'groups'}"
                    yield f"{which}{name}: {disabled}", [one_line(run.error or "", _MAX_REASON)]
            for what, total in ((ADDED, rule.added), (REMOVED, rule.removed)):
                examples = [match for match in rule.examples if match.difference == what]
                if not examples:
                    continue
                if not self.compared:
                    what, total = "matches", None if rule.new is None else rule.new.matches
                yield f"{name}: {what}, {len(examples):,} of {_text(total)}", [str(match) for match in examples]


def check_where(expression: str, *, compared: bool, labelled: bool = False) -> None:
    """Check an expression for :meth:`BacktestReport.where` before a backtest, with the same errors."""
    _condition(expression, pa.schema(_schema(compared=compared, labelled=labelled)))


def _schema(*, compared: bool, labelled: bool) -> list[tuple[str, pa.DataType]]:
    """The columns of the summary."""
    good = [column for column in _COLUMNS if labelled and column[0] in _LABELLED]
    old = [(f"old_{name}", kind) for name, kind in good]
    return [*_SUMMARY, *good, *((*_COMPARED[:-3], *old, *_COMPARED[-3:]) if compared else ())]


def _condition(expression: str, schema: pa.Schema) -> Vectorized:
    condition = Vectorized(schema)
    condition.add(Scope(schema).resolve(parse(expression), expression), expression)
    if condition.types[0] != pa.bool_():
        raise ExpressionTypeError.at(
            f"a condition must be BOOLEAN, not {name_of(condition.types[0])}", expression, hint="matches > 1000"
        )
    return condition


def _version_text(run: BacktestRun | None) -> str:
    if run is None:
        return "none"
    return "refused" if run.version is None else str(run.version)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
