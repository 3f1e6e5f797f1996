"""A query as its author wrote it: in words, as a drawing, and as names for the variables of its clause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.elastic.parsing import literal, parse
from asterism.elastic.sequences import sequence_clause
from asterism.row_patterns.wording import VariableWords
from asterism.text.diagram import Box, Branches, Diagram, DiagramRows, Part, Repeated, Style, condition_lines
from asterism.text.printable import duration, one_line
from asterism.text.svg import FAINT, MAX_TITLE, PALE_RED, RED

_ABSENT = Style(RED, PALE_RED, "5 3")
_NAME = r"(?:\w+\.)?`(?:[^`]|``)+`(?:\.`(?:[^`]|``)+`)*"
_TEXT = r"'(?:[^'\\]|\\.)*'"
_TEST = re.compile(
    rf"LOWER\((?P<folded>{_NAME})\) (?P<how>=|LIKE|IN) \(?(?P<texts>{_TEXT}(?:, {_TEXT})*)\)?"
    rf"|(?P<compared>{_NAME}) (?P<operator>=|<>|LIKE) (?P<text>{_TEXT})"
    rf"|(?P<listed>{_NAME}) IN \((?P<values>{_TEXT}(?:, {_TEXT})*)\)"
    rf"|(?P<tested>{_NAME}) IS (?P<is_not>NOT )?NULL"
    rf"|(?P<field>{_NAME})(?P<equals> (?:=|<>|<=>) )?"
)
"""A test of a field in the SQL that :mod:`conditions` writes, or a field."""
_OPERATORS = {"=": "==", "<>": "!=", "<=>": "==", "LIKE": "like"}
_VARIABLE = re.compile(r"^s(\d+)_\w+(?=\.)", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _DrawnStep:
    """An event, and how often it occurs in a row. *number* is that of its first occurrence; 0 if it is absent."""

    step: syntax.EqlStep
    number: int
    runs: int

    @property
    def name(self) -> str:
        if self.step.absent:
            return "no event"
        last = self.number + self.runs - 1
        return f"event {self.number}" if self.runs == 1 else f"events {self.number} to {last}"


def query_words(text: str) -> str:
    """A query in words.

    :raises ExpressionError: it is invalid

    >>> print(query_words("sequence by user with maxspan=5m [any where a == 1] with runs=2 [any where b == 1]"))
    a sequence by user, within 5 min from the first to the last event
      events 1 to 2: any where a == 1
      event 3: any where b == 1
    """
    query = parse(text)
    of = query.of
    if isinstance(of, syntax.EqlEventQuery):
        return f"each event: {_text_of(of, text)}"
    words = [f"a {_kind_of(of)}{_by_text(of)}"]
    if isinstance(of, syntax.EqlSequence) and of.maxspan is not None:
        words[0] += f", within {duration(of.maxspan)} from the first to the last event"
    words += [f"  {drawn.name}: {_step_text(drawn.step, text)}" for drawn in _drawn_steps(of)]
    if isinstance(of, syntax.EqlSequence) and of.until is not None:
        words.append(f"  until {_step_text(of.until, text)}")
    return "\n".join(words)


def query_svg(text: str) -> str:
    """The drawing of a query: a box for each event, red if it must not occur.

    :raises ExpressionError: the query is invalid
    """
    query = parse(text)
    of, until = query.of, None
    if isinstance(of, syntax.EqlEventQuery):
        parts: list[Part] = [Box("event", condition_lines(_text_of(of, text)))]
    elif isinstance(of, syntax.EqlSample):
        boxes = [_part(drawn, text) for drawn in _drawn_steps(of)]
        parts = [Branches(boxes, all_occur=True)]
    else:
        parts, until = [_part(drawn, text) for drawn in _drawn_steps(of)], of.until
    diagram = Diagram(DiagramRows(parts))
    if isinstance(of, syntax.EqlSequence) and of.maxspan is not None:
        diagram.window(f"within {duration(of.maxspan)}")
    if not isinstance(of, syntax.EqlEventQuery) and of.by:
        by = _by_text(of).strip()
        diagram.legend((None, one_line(by, 100), by))
    if until is not None:
        words = f"ends with {_step_text(until, text)}"
        diagram.legend((_ABSENT, one_line(words, 100), words))
    return diagram.to_svg(f"EQL: {one_line(text, MAX_TITLE)}")


def in_eql(text: str) -> str:
    r"""A text with SQL that was translated from EQL, with the tests of fields as EQL writes them.

    >>> print(in_eql(r"LOWER(`process`.`name`) LIKE 'c:\\\\%' is false (`process`.`name`='cmd'), `pid` = s1_0.`ppid` is true"))
    process.name : "c:\\*" is false (process.name='cmd'), pid == event_1.ppid is true
    >>> print(in_eql("LOWER(`a`) IN ('x', 'y') AND `b` IN ('z') AND `c` IS NOT NULL AND NOT (`d` <> 'it\\'s')"))
    a in~ ("x", "y") AND b in ("z") AND c != null AND NOT (d != "it's")
    """
    return _TEST.sub(_written, text)


def _written(test: re.Match[str]) -> str:
    if test["folded"]:
        values = _values(test["texts"], wildcards=test["how"] == "LIKE")
        return (
            f"{_field(test['folded'])} in~ ({values})"
            if test["how"] == "IN"
            else f"{_field(test['folded'])} : {values}"
        )
    if test["compared"]:
        operator = test["operator"]
        values = _values(test["text"], wildcards=operator == "LIKE")
        return f"{_field(test['compared'])} {_OPERATORS[operator]} {values}"
    if test["listed"]:
        return f"{_field(test['listed'])} in ({_values(test['values'])})"
    if test["tested"]:
        return f"{_field(test['tested'])} {'!=' if test['is_not'] else '=='} null"
    equals = (test["equals"] or "").strip()
    return _field(test["field"]) + (f" {_OPERATORS[equals]} " if equals else "")


def _field(column: str) -> str:
    """The name of a field, before which a variable is an event of the sequence."""
    name = column.replace("``", "\0").replace("`", "").replace("\0", "`")
    return _VARIABLE.sub(r"event_\1", name)


def _values(texts: str, *, wildcards: bool = False) -> str:
    """Texts of SQL as those of EQL."""
    values = [text[1:-1] for text in re.findall(_TEXT, texts)]
    unescaped = [_ESCAPED.sub(r"\1", value) for value in values]
    if wildcards:
        unescaped = [re.sub(r"\\(.)|[%_]", _wildcard, value, flags=re.DOTALL) for value in unescaped]
    return ", ".join(map(literal, unescaped))


def _wildcard(part: re.Match[str]) -> str:
    return part[1] or {"%": "*", "_": "?"}[part[0]]


def variable_words(text: str) -> VariableWords:
    """The names of the events for the variables of the clause of a rule.

    :raises ExpressionError: the query is invalid
    """
    query = parse(text)
    if not isinstance(query.of, syntax.EqlSequence):
        return VariableWords({"EVENT": "event"})
    sequence, writer = query.of, ConditionWriter(text)
    clause = sequence_clause(sequence, writer)
    names = {}
    for name in clause.definitions:
        number = name[1:].partition("_")[0]
        of = clause.folded.get(name)
        words = f"event {number}" if of is None else f"events {of[0]} to {of[-1]}"
        names[name.upper()] = words if name.startswith("s") else ""
    unwanted = [(step, "is the absent event") for step in sequence.steps if step.absent]
    if sequence.until is not None:
        unwanted.append((sequence.until, "ends the sequence, until"))
    reasons = {}
    for step, what in unwanted:
        written = f"NOT COALESCE({writer.event(step.query)}, FALSE)"
        reasons[written] = f"{what} {_step_text(step, text)}"
    return VariableWords(names, reasons)


def _drawn_steps(of: syntax.EqlSequence | syntax.EqlSample) -> Iterator[_DrawnStep]:
    number = 0
    # The events of `with runs` are the same node.
    for _, same in groupby(of.steps, key=id):
        steps = list(same)
        is_absent = steps[0].absent
        yield _DrawnStep(steps[0], 0 if is_absent else number + 1, len(steps))
        number += 0 if is_absent else len(steps)


def _part(drawn: _DrawnStep, text: str) -> Part:
    lines = condition_lines(_text_of(drawn.step.query, text))
    keys = _keys_text(drawn.step.by)
    if keys:
        lines += condition_lines(f"by {keys}", FAINT)
    options: dict[str, Any] = {"style": _ABSENT} if drawn.step.absent else {}
    box = Box(drawn.name, lines, **options)
    if drawn.runs == 1:
        return box
    return Repeated(box, str(drawn.runs), f"{drawn.runs} times", loop=True)


def _kind_of(of: syntax.EqlSequence | syntax.EqlSample) -> str:
    return "sequence" if isinstance(of, syntax.EqlSequence) else "sample"


def _text_of(query: syntax.EqlEventQuery, text: str) -> str:
    return " ".join(text[query.start : query.end].split())


def _step_text(step: syntax.EqlStep, text: str) -> str:
    keys = _keys_text(step.by)
    return _text_of(step.query, text) + (f" by {keys}" if keys else "")


def _by_text(of: syntax.EqlSequence | syntax.EqlSample) -> str:
    keys = _keys_text(of.by)
    return f" by {keys}" if keys else ""


def _keys_text(keys: tuple[syntax.EqlNode, ...]) -> str:
    """Keys are fields, as a rule; an expression is only named."""
    return ", ".join(
        ("?" if node.optional else "") + node.name if isinstance(node, syntax.EqlFieldName) else "an expression"
        for node in keys
    )
