"""A Sigma rule as its author wrote it: in words, as a drawing, and as names for the variables of its clause.

Only the YAML is read, so pySigma is needed for nothing but its values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from asterism.row_patterns.wording import VariableWords
from asterism.sigma.documents import SigmaDocument, documents_of
from asterism.text.diagram import (
    BOX,
    MAX_DEPTH,
    Box,
    Branches,
    Diagram,
    DiagramRows,
    Frame,
    Line,
    Note,
    Part,
    Repeated,
    Style,
    condition_lines,
)
from asterism.text.printable import one_line
from asterism.text.svg import FAINT, MAX_TITLE, MONO, PALE_RED, RED

MAX_SELECTIONS = 20
"""The maximum number of selections of a rule that are drawn, and of rules of a correlation."""
MAX_TESTS, MAX_TEST = 5, 46
"""The maximum number of lines of a selection in a drawing, and of characters of one."""
MAX_NESTED = 4
_NEGATED = Style(RED, PALE_RED, "5 3")
_TEXT = re.compile(
    r"(?:LOWER\()?CAST\((?P<column>(?:`(?:[^`]|``)+`\.?)+) AS STRING\)\)? "
    r"(?:= (?P<text>'(?:[^'\\]|\\.|'')*')|IN \((?P<texts>'(?:[^'\\]|\\.|'')*'(?:, '(?:[^'\\]|\\.|'')*')*)\))"
    r"|(?P<call>CONTAINS|STARTSWITH|ENDSWITH)\((?:LOWER\()?CAST\((?P<of>(?:`(?:[^`]|``)+`\.?)+) AS STRING\)\)?, "
    r"(?P<part>'(?:[^'\\]|\\.|'')*')\)"
    r"|TRY_CAST\((?P<number>(?:`(?:[^`]|``)+`\.?)+) AS DOUBLE\)",
    re.DOTALL,
)
_VARIABLES = {
    "X": "",
    "Y": "",
    "Z": "",
    "E": "event",
    "G": "event",
    "M": "last event",
    "L": "last event",
    "R": "later event",
}


@dataclass(frozen=True, slots=True)
class SigmaSource:
    """The documents of a rule: itself, and those to which it refers.

    :param rule: the one that has matches
    """

    documents: Sequence[SigmaDocument]
    rule: SigmaDocument

    @classmethod
    def of(cls, text: str, id: str | None = None) -> SigmaSource:
        """
        :param id: that of the rule; None: the last one to which no other one refers
        :raises PatternProcessorError: the text cannot be read
        """
        documents = [document for document in documents_of(text, "sigma") if document.kind != "filter"]
        chosen = [document for document in documents if id is not None and document.id == id]
        referred = {name.lower() for document in documents for name in _references(document)}
        unreferred = [document for document in documents if not referred.intersection(map(str.lower, document.names))]
        return cls(documents, (chosen or unreferred or documents)[-1])

    def referred(self, name: str) -> SigmaDocument | None:
        known = name.lower()
        return next((document for document in self.documents if known in map(str.lower, document.names)), None)


def _references(document: SigmaDocument) -> list[str]:
    rules = _section(document, "correlation").get("rules")
    return [rules] if isinstance(rules, str) else [str(rule) for rule in rules or ()]


def _section(document: SigmaDocument, name: str) -> Mapping[str, Any]:
    section = document.value.get(name)
    return section if isinstance(section, Mapping) else {}


def in_sigma(text: str) -> str:
    r"""A text with SQL that was translated from Sigma, with the tests of fields as Sigma writes them.

    >>> print(in_sigma(r"ENDSWITH(LOWER(CAST(`Image` AS STRING)), '\\cmd.exe') is false, TRY_CAST(`n` AS DOUBLE) = 3 is true"))
    Image|endswith: '\cmd.exe' is false, n = 3 is true
    >>> print(in_sigma(r"LOWER(CAST(`a` AS STRING)) IN ('x', '\\y') AND CAST(`b` AS STRING) = 'z'"))
    a: 'x', '\y' AND b: 'z'
    """

    def written(test: re.Match[str]) -> str:
        if test["number"]:
            return _field(test["number"])
        if test["text"] or test["texts"]:
            return f"{_field(test['column'])}: {_value(test['text'] or test['texts'])}"
        return f"{_field(test['of'])}|{test['call'].lower()}: {_value(test['part'])}"

    return _TEXT.sub(written, text)


def _field(column: str) -> str:
    return column.replace("``", "\0").replace("`", "").replace("\0", "`")


def _value(literal: str) -> str:
    return literal.replace("\\\\", "\\")


# ---------------------------------------------------------------------- words


def rule_words(source: SigmaSource) -> str:
    """A rule in words."""
    return "\n".join(_words_of(source, source.rule, 0))


def _words_of(source: SigmaSource, document: SigmaDocument, depth: int) -> Iterator[str]:
    before = "  " * depth
    name = one_line(_name_of(document), 100)
    if document.kind != "correlation":
        yield f"{before}{name}: {one_line(_condition_of(document), 200)}"
        for selection, tests in list(_selections(document))[:MAX_SELECTIONS]:
            yield f"{before}  {selection}: {one_line('; '.join(tests), 300)}"
        return
    yield f"{before}{name}: {_correlation_text(document)}"
    for reference in _references(document)[:MAX_SELECTIONS]:
        referred = source.referred(reference)
        if referred is None or depth == MAX_NESTED:
            yield f"{before}  {one_line(reference, 100)}"
        else:
            yield from _words_of(source, referred, depth + 1)


def _correlation_text(document: SigmaDocument) -> str:
    section = _section(document, "correlation")
    words = str(section.get("type"))
    condition = section.get("condition")
    if condition is not None:
        words += f" with {_bounds_text(condition)}"
    groups = section.get("group-by")
    by = [groups] if isinstance(groups, str) else groups or ()
    if by:
        words += f", by {', '.join(map(str, by))}"
    return one_line(f"{words}, within {section.get('timespan')}", 300)


def _bounds_text(condition: Any) -> str:
    if not isinstance(condition, Mapping):
        return str(condition)
    return " and ".join(f"{name}: {value}" for name, value in condition.items())


def _name_of(document: SigmaDocument) -> str:
    value = document.value
    return str(value.get("title") or value.get("name") or value.get("id") or "a rule")


def _condition_of(document: SigmaDocument) -> str:
    condition = _section(document, "detection").get("condition")
    return " or ".join(map(str, condition)) if isinstance(condition, list) else str(condition)


def _selections(document: SigmaDocument) -> Iterator[tuple[str, list[str]]]:
    """Each selection with its tests."""
    for name, value in _section(document, "detection").items():
        if name not in ("condition", "timeframe"):
            yield str(name), [*_tests(value)]


def _tests(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for field, wanted in value.items():
            values = wanted if isinstance(wanted, list) else [wanted]
            yield f"{field}: {', '.join('null' if each is None else str(each) for each in values)}"
    elif isinstance(value, list):
        for at, alternative in enumerate(value):
            tests = " and ".join(_tests(alternative))
            yield f"or {tests}" if at else tests
    else:
        yield "null" if value is None else str(value)


# ---------------------------------------------------------------------- drawing


def rule_svg(source: SigmaSource) -> str:
    """The drawing of a rule. A detection has its selections, those below ``not`` in red; a correlation has its rules."""
    rule = source.rule
    diagram = Diagram(DiagramRows([_part(source, rule, 0)]))
    if rule.kind == "correlation":
        section = _section(rule, "correlation")
        diagram.window(one_line(f"within {section.get('timespan')}", 60))
        words = _correlation_text(rule)
        diagram.legend((None, one_line(words, 100), words))
    return diagram.to_svg(f"Sigma rule: {one_line(_name_of(rule), MAX_TITLE)}")


def _part(source: SigmaSource, document: SigmaDocument, depth: int) -> Part:
    if document.kind == "correlation":
        return _correlation_part(source, document, depth)
    if depth:
        return Box(_name_of(document), condition_lines(_condition_of(document)), title=_name_of(document))
    layout = _DetectionLayout(dict(_selections(document)))
    conditions = _section(document, "detection").get("condition")
    texts = conditions if isinstance(conditions, list) else [conditions]
    parts = [layout.part(_tree(str(text)), 0) for text in texts[:MAX_SELECTIONS]]
    return parts[0] if len(parts) == 1 else Branches(parts, all_occur=False)


def _tree(condition: str) -> Any:
    """The condition as pySigma parses it, with the names of selections."""
    from sigma.conditions import SigmaCondition

    return SigmaCondition(condition, None).parse(False)  # type: ignore[arg-type]


@dataclass(slots=True)
class _DetectionLayout:
    """Makes the parts of a condition: bars if all parts of it must be true, thin lines if one suffices, red below ``not``.

    :param left: the number of selections that may still be drawn
    """

    selections: Mapping[str, Sequence[str]]
    left: int = MAX_SELECTIONS

    def part(self, node: Any, depth: int, style: Style = BOX) -> Part:
        from sigma.conditions import ConditionAND, ConditionIdentifier, ConditionNOT, ConditionOR, ConditionSelector

        match node:
            case ConditionIdentifier():
                return self._box(node.identifier, style)
            case ConditionSelector():
                boxes = self._some(self._chosen(node.pattern), lambda name: self._box(name, style))
                return self._branches(boxes, node.cond_class is ConditionAND)
            case ConditionNOT() if depth < MAX_DEPTH:
                is_negated = style is _NEGATED
                inner = self.part(node.args[0], depth + 1, BOX if is_negated else _NEGATED)
                return inner if isinstance(inner, Box) else Frame(inner, "not", style=BOX if is_negated else _NEGATED)
            case ConditionAND() | ConditionOR() if depth < MAX_DEPTH:
                parts = self._some(node.args, lambda inner: self.part(inner, depth + 1, style))
                return self._branches(parts, isinstance(node, ConditionAND))
        return Note("…")

    def _chosen(self, pattern: str) -> list[str]:
        """The selections that a pattern such as ``selection_*`` names."""
        if pattern == "them":
            return [name for name in self.selections if not name.startswith("_")]
        return [name for name in self.selections if fnmatchcase(name, pattern)]

    def _some(self, values: Sequence[Any], make: Callable[[Any], Part]) -> list[Part]:
        """The parts of the first values, and a note about the others."""
        parts: list[Part] = []
        for number, value in enumerate(values):
            if self.left <= 0:
                return [*parts, Note(f"… and {len(values) - number:,} more")]
            parts.append(make(value))
        return parts

    @staticmethod
    def _branches(parts: Sequence[Part], all_occur: bool) -> Part:
        return parts[0] if len(parts) == 1 else Branches(parts, all_occur=all_occur) if parts else Note("…")

    def _box(self, name: str, style: Style) -> Part:
        self.left -= 1
        tests = self.selections.get(name, ())
        lines = [Line(one_line(test, MAX_TEST), font=MONO, title=test[:MAX_TITLE]) for test in tests[:MAX_TESTS]]
        if len(tests) > MAX_TESTS:
            lines.append(Line(f"… and {len(tests) - MAX_TESTS:,} more", FAINT))
        return Box(name, lines, style)


def _correlation_part(source: SigmaSource, document: SigmaDocument, depth: int) -> Part:
    section = _section(document, "correlation")
    kind, references = str(section.get("type")), _references(document)
    parts: list[Part] = []
    for reference in references[:MAX_SELECTIONS]:
        referred = source.referred(reference)
        if referred is None or depth >= MAX_NESTED:
            parts.append(Note(one_line(reference, 60)))
        else:
            parts.append(_part(source, referred, depth + 1))
    if len(references) > MAX_SELECTIONS:
        parts.append(Note(f"… and {len(references) - MAX_SELECTIONS:,} more"))
    inner: Part
    if not parts:
        inner = Note("no rules")
    elif kind == "temporal_ordered":
        inner = DiagramRows(parts)
    else:
        inner = parts[0] if len(parts) == 1 else Branches(parts, all_occur=kind == "temporal")
    condition = section.get("condition")
    if kind == "event_count" and condition is not None:
        bounds = _bounds_text(condition)
        inner = inner if isinstance(inner, Box | Note | Frame) else Frame(inner)
        inner = Repeated(inner, one_line(bounds, 40), f"event_count with {bounds}"[:MAX_TITLE], loop=True)
    elif kind not in ("temporal", "temporal_ordered") or condition is not None:
        inner = Frame(inner, lines=condition_lines(f"{kind} {_bounds_text(condition)}"))
    if not depth:
        return inner
    return Frame(inner, one_line(_name_of(document), 60), [Line(one_line(_correlation_text(document), 90), FAINT)])


# ---------------------------------------------------------------------- variables


def variable_words(names: Sequence[str]) -> VariableWords:
    """The names of the variables of a correlation's clause.

    >>> variable_words(["E", "X2", "S2_1", "L"]).names
    {'E': 'event', 'X2': '', 'S2_1': 'rule 1', 'L': 'last event'}
    """
    known: dict[str, str] = {}
    for name in names:
        letter, number = name[:1], name[1:]
        if letter == "S":
            known[name] = f"rule {number.rpartition('_')[2]}"
        elif letter == "R" and number:
            known[name] = f"rule {number}"
        elif letter in _VARIABLES:
            known[name] = _VARIABLES[letter]
    return VariableWords(known)
