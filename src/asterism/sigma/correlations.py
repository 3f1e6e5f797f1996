"""Sigma correlations as patterns and MATCH_RECOGNIZE clauses.

There are two kinds of conditions. One that further events cannot make false again (a lower bound of a count or a sum, rules that
have all matched) is *reached*: each event opens a window of the timespan, and the window matches with the first event that
reaches the condition. Any other one (an upper bound, an average, ``not``) is known only when a window is *over*: windows follow
one another, each begins with the first event after the one before, and matches when the timespan has passed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from asterism.errors import PatternProcessorError
from asterism.patterns.pattern import Pattern
from asterism.sigma.conditions import column_of
from asterism.text.printable import quoted_name
from asterism.text.sql import number_literal

if TYPE_CHECKING:
    from sigma.correlations import SigmaCorrelationCondition, SigmaCorrelationRule

MAX_TIMESPAN = timedelta(days=3_650)
MAX_COUNT = 10_000
"""The maximum number of events in a match of ``event_count``."""
MAX_RULES = 50
"""The maximum number of rules to which a correlation refers."""
ONE_PARTITION = "'all'"
WINDOW = "W"
"""The variable of the events of the (first) window."""
_OPERATORS = {"LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "EQ": "=", "NEQ": "<>"}
_LOWER = ("GT", "GTE")
_TEXT_OR_COLUMN = re.compile(r"'(?:[^'\\]|\\.|'')*'|(`(?:[^`]|``)+`(?:\.`(?:[^`]|``)+`)*)", re.S)


@dataclass(frozen=True, slots=True)
class ReferencedRule:
    """A detection rule to which a correlation refers.

    :param reference: as the correlation writes it
    :param names: all by which aliases may name it
    """

    reference: str
    names: tuple[str, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class CorrelationPattern:
    """What a correlation becomes. *suppress* is set if further matches of an episode are to be suppressed."""

    pattern: Pattern | None = None
    sql: str | None = None
    key: tuple[str, ...] | None = None
    suppress: timedelta | None = None


def bounds_of(section: dict[str, Any]) -> list[tuple[str, float]]:
    """The bounds of the ``condition`` of a correlation. pySigma reads only one of them.

    >>> bounds_of({"gt": 5, "lte": 10, "field": "x"})
    [('GT', 5), ('LTE', 10)]
    """
    bounds: list[tuple[str, float]] = []
    for name, value in section.items():
        if name.upper() in _OPERATORS:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise PatternProcessorError(f"{name} of the condition must be a number, not {value!r:.60}")
            bounds.append((name.upper(), value))
    return bounds


def of_variable(variable: str, condition: str) -> str:
    """A condition over the events of a pattern variable. All columns of a translated condition are quoted.

    >>> of_variable("W", "LOWER(`a`.`b`) = '`c`' AND `d` IS NULL")
    "LOWER(W.`a`.`b`) = '`c`' AND W.`d` IS NULL"
    """
    return _TEXT_OR_COLUMN.sub(lambda found: f"{variable}.{found[0]}" if found[1] else found[0], condition)


class CorrelationTranslator:
    """
    :param bounds: of the condition, which is not an extended one
    :param rules: those to which the correlation refers, in its order
    :param report: ``"episode"`` or ``"each"``
    """

    def __init__(
        self,
        rule: SigmaCorrelationRule,
        bounds: Sequence[tuple[str, float]],
        rules: Sequence[ReferencedRule],
        report: str = "episode",
    ) -> None:
        self.rule, self.bounds, self.rules, self.report = rule, bounds, rules, report
        self.kind = rule.type.name.lower()
        if rule.timespan.seconds > MAX_TIMESPAN.total_seconds():
            raise PatternProcessorError(
                f"the timespan {rule.timespan.spec!r:.60} is longer than {MAX_TIMESPAN.days:,} days"
            )
        self.seconds: int = rule.timespan.seconds
        self.timespan = timedelta(seconds=self.seconds)
        if len(rules) > MAX_RULES:
            raise PatternProcessorError(f"the correlation refers to {len(rules):,} rules (limit {MAX_RULES})")
        self.groups = [self._group(name) for name in rule.group_by or ()]
        self.conditions = [self._condition(referenced) for referenced in rules]
        """Those of the rules, of events that have all fields of the group."""
        distinct = list(dict.fromkeys(self.conditions))
        self.relevant = distinct[0] if len(distinct) == 1 else f"({' OR '.join(distinct)})"

    @property
    def extended(self) -> bool:
        """Whether the condition is a text over the names of rules."""
        from sigma.correlations import SigmaExtendedCorrelationCondition

        return isinstance(self.rule.condition, SigmaExtendedCorrelationCondition)

    @property
    def condition_of(self) -> dict[str, str]:
        """The conditions of the rules by the references to them."""
        return dict(zip((rule.reference for rule in self.rules), self.conditions, strict=True))

    def pattern(self) -> CorrelationPattern:
        """:raises PatternProcessorError: the correlation cannot be expressed"""
        if self.kind == "temporal_ordered":
            return self._sequence(self.steps())
        if self.kind == "event_count" and self.only_lower:
            return self._event_count()
        value, condition, reached = self.reaching()
        return self._reached(value, condition) if reached else self._over(value, condition)

    @property
    def only_lower(self) -> bool:
        """Whether the condition has only lower bounds."""
        return all(operator in _LOWER for operator, _ in self.bounds)

    def reaching(self, window: str = "") -> tuple[str, str, bool]:
        """The value that the condition compares, the condition, and whether further events cannot make it false again.

        :param window: the variable of the events of the window; if empty, all events that satisfy a rule are in it
        """
        if self.extended:
            conditions = self.condition_of
            condition, reached = self.presence(lambda reference: f"{self._flag(conditions[reference], window)} = 1")
            value = " + ".join(self._flag(text, window) for text in dict.fromkeys(self.conditions))
            return value, condition, reached
        value = self._value(window)
        reached = self.only_lower and self.kind in ("event_count", "value_count", "value_sum", "temporal")
        return value, self.compared(value), reached

    def compared(self, value: str) -> str:
        """The condition that *value* is within the bounds."""
        return " AND ".join(
            f"{value} {_OPERATORS[operator]} {number_literal(bound)}" for operator, bound in self.bounds
        )

    def steps(self) -> list[str]:
        """The conditions of a temporal_ordered correlation, in its order."""
        if self.extended:
            return self._extended_steps()
        self.check_all_needed(len(self.rules))
        return self.conditions

    def check_all_needed(self, rules: int) -> None:
        """:raises PatternProcessorError: the condition of a temporal_ordered correlation is not that all of its rules match"""
        if any((operator, bound) != ("GTE", rules) for operator, bound in self.bounds):
            raise PatternProcessorError(
                "temporal_ordered needs all of its rules, so its condition cannot be another count",
                hint=f"remove the condition, or write gte: {rules}",
            )

    # ------------------------------------------------------------------ groups

    def _field(self, name: str, *, variable: str = "") -> str:
        """A field of the group or of the condition: the column, or for an alias that of the rule that the event satisfies."""
        columns = [self._column(referenced, name, variable) for referenced in self.rules] or [
            variable + column_of(name)
        ]
        if len(set(columns)) == 1:
            return columns[0]
        if variable:
            raise PatternProcessorError(f"the alias {name!r:.100} cannot be a field of the condition")
        # The columns may be of different types.
        branches = [
            f"WHEN {rule.sql} THEN CAST({column} AS STRING)" for rule, column in zip(self.rules, columns, strict=True)
        ]
        return f"CASE {' '.join(branches)} END"

    def _column(self, referenced: ReferencedRule, name: str, variable: str) -> str:
        alias = self.rule.aliases.aliases.get(name)
        field = name
        if alias is not None:
            mapping = {reference.reference.lower(): field for reference, field in alias.mapping.items()}
            field = next((mapping[known] for known in referenced.names if known in mapping), name)
        return variable + column_of(field)

    def _group(self, name: str) -> str:
        return self._field(name)

    def _condition(self, referenced: ReferencedRule) -> str:
        present = [f"{self._column(referenced, name, '')} IS NOT NULL" for name in self.rule.group_by or ()]
        return f"({' AND '.join([referenced.sql, *present])})" if present else referenced.sql

    # ------------------------------------------------------------------ graphs

    def _graph(self, pattern: Pattern) -> CorrelationPattern:
        return CorrelationPattern(
            pattern.within(self.timespan, inclusive=True), key=tuple(self.groups), suppress=self.suppress
        )

    @property
    def suppress(self) -> timedelta | None:
        """The time for which matches are suppressed after a reported one."""
        return self.timespan if self.report == "episode" else None

    def least_count(self, limit: int, counted: str) -> int:
        """The smallest count that satisfies an event_count with lower bounds.

        :raises PatternProcessorError: it is over *limit*
        """
        counts = [math.floor(bound) + 1 if operator == "GT" else math.ceil(bound) for operator, bound in self.bounds]
        count = max(1, *counts)
        if count > limit:
            raise PatternProcessorError(f"event_count of {count:,} {counted} (limit {limit:,})")
        return count

    def _event_count(self) -> CorrelationPattern:
        count = self.least_count(MAX_COUNT, "events")
        event = Pattern.begin("event").where(self.relevant)
        return self._graph(event if count == 1 else event.times(count))

    def _sequence(self, conditions: Sequence[str]) -> CorrelationPattern:
        pattern = Pattern.begin("rule_1").where(conditions[0])
        for number, condition in enumerate(conditions[1:], 2):
            pattern = pattern.followed_by(f"rule_{number}").where(condition)
        return self._graph(pattern)

    # ------------------------------------------------------------------ clauses

    def _value(self, window: str) -> str:
        """The value that the condition compares, over the events of a window."""
        if self.kind == "event_count":
            return f"COUNT({window or WINDOW}.*)"
        if self.kind == "temporal":
            return " + ".join(self._flag(text, window) for text in dict.fromkeys(self.conditions))
        condition: SigmaCorrelationCondition = self.rule.condition  # type: ignore[assignment]
        fields = condition.fieldref if isinstance(condition.fieldref, list) else [condition.fieldref]
        columns = [self._field(str(field), variable=f"{window or WINDOW}.") for field in fields]
        if self.kind == "value_count":
            if len(columns) > 1:
                texts = [
                    f"CONCAT(LENGTH(CAST({column} AS STRING)), ':', CAST({column} AS STRING))" for column in columns
                ]
                return f"COUNT(DISTINCT CONCAT({', '.join(texts)}))"
            return f"COUNT(DISTINCT {columns[0]})"
        if len(columns) > 1:
            raise PatternProcessorError(f"{self.kind} needs one field, not {len(columns)}")
        number = f"TRY_CAST({columns[0]} AS DOUBLE)"
        if self.kind == "value_percentile":
            percentile = condition.percentile
            if percentile is None or not 0 <= percentile <= 100:
                raise PatternProcessorError("value_percentile needs a percentile from 0 to 100", hint="percentile: 95")
            return f"PERCENTILE({number}, {number_literal(percentile / 100)})"
        calls = {"value_sum": "SUM({})", "value_avg": "AVG({})", "value_median": "PERCENTILE({}, 0.5D)"}
        return calls[self.kind].format(number)

    @staticmethod
    def _flag(condition: str, window: str) -> str:
        """1 if an event of the window satisfies a condition, else 0."""
        if window:
            condition = of_variable(window, condition)
        return f"MAX(CASE WHEN {condition} THEN 1 ELSE 0 END)"

    def presence(self, flag_of: Callable[[str], str]) -> tuple[str, bool]:
        """The extended condition of a temporal correlation, and whether it has no ``not``.

        :param flag_of: the condition that a rule to which it refers has matched
        """
        return self._presence(self.rule.condition.parsed, flag_of)  # type: ignore[union-attr]

    def _presence(self, node: Any, flag_of: Callable[[str], str]) -> tuple[str, bool]:
        from sigma.correlations import CorrelationConditionAND, CorrelationConditionNOT, SigmaRuleReference

        if isinstance(node, SigmaRuleReference):
            return flag_of(node.reference), True
        parts = [self._presence(part, flag_of) for part in node.args]
        reached = all(positive for _, positive in parts)
        if isinstance(node, CorrelationConditionNOT):
            return f"NOT ({parts[0][0]})", False
        word = " AND " if isinstance(node, CorrelationConditionAND) else " OR "
        return f"({word.join(text for text, _ in parts)})", reached

    @property
    def _partition(self) -> str:
        names = self.rule.group_by or ()
        keys = [f"{group} AS {quoted_name(name)}" for group, name in zip(self.groups, names, strict=True)]
        return ", ".join(keys) or ONE_PARTITION

    def clause(
        self,
        skip: str,
        pattern: str,
        variables: Sequence[tuple[str, str]],
        value: str,
        *,
        seconds: int | None = None,
        subsets: str = f"{WINDOW} = (E, L)",
    ) -> str:
        """The MATCH_RECOGNIZE clause. *seconds* are the maximum length of a match: by default, the timespan."""
        return "\n".join(
            [
                f"PARTITION BY {self._partition}",
                f"MEASURES {value} AS value, COUNT({WINDOW}.*) AS events",
                "ALL ROWS PER MATCH",
                f"AFTER MATCH SKIP {skip}",
                f"PATTERN ({pattern})",
                f"WITHIN INTERVAL '{seconds or self.seconds}' SECOND",
                f"SUBSET {subsets}",
                "DEFINE " + ",\n  ".join(f"{name} AS {condition}" for name, condition in variables),
            ]
        )

    def _reached(self, value: str, condition: str) -> CorrelationPattern:
        variables = [
            ("E", self.relevant),
            ("X", f"NOT COALESCE({self.relevant}, FALSE)"),
            ("L", f"{self.relevant} AND {condition}"),
        ]
        clause = self.clause("TO NEXT ROW", "{- (E X*?)*? -} L", variables, value)
        return CorrelationPattern(sql=clause, suppress=self.suppress)

    def _over(self, value: str, condition: str) -> CorrelationPattern:
        # The second alternative takes the windows that do not satisfy the condition, and excludes all of their rows.
        variables = [
            *((name, self.relevant) for name in ("E", "G", "M", "R")),
            ("X", f"NOT COALESCE({self.relevant}, FALSE)"),
            ("L", f"{self.relevant} AND {condition}"),
        ]
        pattern = "{- (E X*?)*? -} L {- Y*? -} [^R] | {- (G X*?)*? M X* -} [^Z]"
        return CorrelationPattern(sql=self.clause("PAST LAST ROW", pattern, variables, value))

    def _extended_steps(self) -> list[str]:
        """Those in the order in which the condition names its rules; each is a rule or alternatives of rules."""
        return [self.alternatives(part, self.condition_of.__getitem__) for part in self.parts_in_order()]

    def parts_in_order(self) -> list[Any]:
        """The parts of the condition of a temporal_ordered, between its ``and``."""
        from sigma.correlations import CorrelationConditionAND

        parts: list[Any] = []
        waiting = [self.rule.condition.parsed]  # type: ignore[union-attr]
        while waiting:
            part = waiting.pop(0)
            if isinstance(part, CorrelationConditionAND):
                waiting = [*part.args, *waiting]
            else:
                parts.append(part)
        return parts

    def alternatives(self, node: Any, condition_of: Callable[[str], str]) -> str:
        """The condition of a rule, or of alternatives of rules.

        :param condition_of: that of a rule to which the condition refers
        """
        from sigma.correlations import CorrelationConditionOR, SigmaRuleReference

        if isinstance(node, SigmaRuleReference):
            return condition_of(node.reference)
        if not isinstance(node, CorrelationConditionOR):
            raise PatternProcessorError(
                "the condition of temporal_ordered must be a sequence of rules, or of alternatives of rules",
                "With not, or with sequences as alternatives, it is not specified which events come in which order.",
                "a and (b or c); or a correlation for each alternative; or temporal, whose condition may have not",
            )
        return f"({' OR '.join(self.alternatives(part, condition_of) for part in node.args)})"
