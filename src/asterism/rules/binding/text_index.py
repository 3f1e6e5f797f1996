"""An index of tests of texts: of hundreds of conditions, such as those of Sigma, it finds the few that an event can satisfy.

The tests ``contains``, ``starts_with``, ``suffix``, ``=`` and ``IN`` of a column with constants are answered for all conditions
together: all constants are searched in each distinct text once (Aho-Corasick). AND, OR and NOT are then operations on masks of
events. What is not such a test is assumed to be possible: a condition with such a part is evaluated for the events that remain.

See docs/decisions/0139.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.caches import keep, recent
from asterism.columns.arrays import Mask, one_chunk
from asterism.columns.groups import mask_of
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.udfs import lower_case

MIN_CONDITIONS = 32
"""With fewer conditions, the index is not faster than evaluating all of them."""
MAX_INDEXES = 8

_TEXT = r"(?P<lower>lower_case\()?c(?P<column>\d+)(?(lower)\))"
_LITERAL = r"'(?:[^']|'')*'"
_CALL = re.compile(rf"(?P<what>contains|starts_with|suffix)\({_TEXT}, (?P<literal>{_LITERAL})\)")
_EQUAL = re.compile(rf"\({_TEXT} = (?P<literal>{_LITERAL})\)")
_IN = re.compile(rf"\({_TEXT} IN \((?P<literals>{_LITERAL}(?:, {_LITERAL})*)\)\)")
_NULL = re.compile(r"\(c(?P<column>\d+) IS (?P<not>NOT )?NULL\)")
_LITERALS = re.compile(_LITERAL)
_TOKENS = re.compile(rf"{_LITERAL}|\"[^\"]*\"|[()]| AND | OR |, FALSE\)|[^'\"()]+?(?=[()'\"]| AND | OR |, FALSE\)|$)")
_NOT = "(NOT COALESCE("
_HARMLESS = re.compile(r"[\w\s(),=<>.]*")
"""What remains of a condition without its constants: no arithmetic, which may overflow."""
_FUNCTIONS = re.compile(r"(\w+)\(")
_CANNOT_FAIL = {
    "COALESCE", "contains", "lower_case", "regexp_full_match", "regexp_matches", "regexp_replace", "starts_with", "suffix",
    "lower", "CAST",
}  # fmt: skip
"""Functions that do not fail. Casts that may fail contain a call of ``error``."""


class _TextTest(NamedTuple):
    """A test of the texts of a column. *what* is the function, ``=`` for a text that is one of *literals*, or ``null``."""

    what: str
    column: int
    lower: bool
    literals: tuple[str, ...]


class _ConditionNode(NamedTuple):
    """A part of a condition: a test; AND, OR or NOT of others; or ``?``, which is not known."""

    operator: str
    parts: tuple[_ConditionNode, ...] = ()
    test: int = -1


_UNKNOWN = _ConditionNode("?")


class _ConditionParser:
    """Reads the SQL that conditions are translated to.

    :param strings: which columns are texts
    """

    def __init__(self, tests: dict[_TextTest, int], strings: Sequence[bool]) -> None:
        self.tests, self.strings = tests, strings
        self.text, self.at = "", 0

    def parse(self, text: str) -> _ConditionNode:
        """The condition; if it may fail for an event, nothing of it is known, so that it is evaluated for all events."""
        rest = _LITERALS.sub("", text)
        if _HARMLESS.fullmatch(rest) is None or not set(_FUNCTIONS.findall(rest)) <= _CANNOT_FAIL:
            return _UNKNOWN
        self.text, self.at = text, 0
        node = self._node()
        return node if self.at == len(text) else _UNKNOWN

    def _test(self, test: _TextTest) -> _ConditionNode:
        if test.what != "null" and not self.strings[test.column]:
            return _UNKNOWN
        return _ConditionNode("test", test=self.tests.setdefault(test, len(self.tests)))

    def _node(self) -> _ConditionNode:
        if found := _CALL.match(self.text, self.at):
            literal = _value(found["literal"])
            if literal:
                self.at = found.end()
                return self._test(_TextTest(found["what"], int(found["column"]), bool(found["lower"]), (literal,)))
        for pattern in (_EQUAL, _IN):
            if found := pattern.match(self.text, self.at):
                self.at = found.end()
                literals = tuple(map(_value, _LITERALS.findall(found[0])))
                return self._test(_TextTest("=", int(found["column"]), bool(found["lower"]), literals))
        if found := _NULL.match(self.text, self.at):
            self.at = found.end()
            node = self._test(_TextTest("null", int(found["column"]), False, ()))
            return _ConditionNode("NOT", (node,)) if found["not"] else node
        if self.text.startswith(_NOT, self.at):
            before = self.at
            self.at += len(_NOT)
            inner = self._node()
            if self.text.startswith(", FALSE))", self.at):
                self.at += len(", FALSE))")
                return _ConditionNode("NOT", (inner,))
            self.at = before
            return self._opaque()
        if self.text.startswith("(", self.at):
            before = self.at
            self.at += 1
            parts, operator = [self._node()], ""
            while (
                word := next((w for w in (" AND ", " OR ") if self.text.startswith(w, self.at)), "")
            ) and operator in ("", word):
                operator = word
                self.at += len(word)
                parts.append(self._node())
            if operator and self.text.startswith(")", self.at):
                self.at += 1
                return _ConditionNode(operator.strip(), tuple(parts))
            self.at = before
        return self._opaque()

    def _opaque(self) -> _ConditionNode:
        """Skip a part up to the end of the operand."""
        depth = 0
        while self.at < len(self.text):
            token = _TOKENS.match(self.text, self.at)
            if token is None:
                self.at = len(self.text) + 1
                break
            word = token[0]
            if depth == 0 and word in (")", " AND ", " OR ", ", FALSE)"):
                break
            if word == ", FALSE)":
                depth -= 1
            depth += (word == "(") - (word == ")")
            self.at = token.end()
        return _UNKNOWN


def _value(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


@dataclass
class _TestedColumn:
    """The tests of a column, of its texts as they are or in lower case."""

    equal: dict[str, list[int]] = field(default_factory=dict)
    patterns: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each constant that is searched, its tests by their functions."""
    search: Any = None
    by_pattern: list[dict[str, int]] = field(default_factory=list)


class TextIndex:
    """
    :param expressions: the conditions
    :raises ImportError: ahocorasick-rs is not installed
    """

    def __init__(self, expressions: Vectorized) -> None:
        import ahocorasick_rs

        self._expressions = expressions
        tests: dict[_TextTest, int] = {}
        parser = _ConditionParser(tests, [pa.types.is_string(each.type) for each in expressions.schema])
        self.nodes = [parser.parse(text) for text in expressions.texts]
        self.exact = [not _has_unknown(node) for node in self.nodes]
        self._nulls: dict[int, int] = {}
        self._columns: dict[tuple[int, bool], _TestedColumn] = {}
        for test, number in tests.items():
            if test.what == "null":
                self._nulls[number] = test.column
                continue
            column = self._columns.setdefault((test.column, test.lower), _TestedColumn())
            for literal in test.literals:
                if test.what == "=":
                    column.equal.setdefault(literal, []).append(number)
                else:
                    column.patterns.setdefault(literal, {})[test.what] = number
        for column in self._columns.values():
            column.by_pattern = list(column.patterns.values())
            if column.patterns:
                column.search = ahocorasick_rs.AhoCorasick(list(column.patterns))

    def masks(self, events: pa.Table) -> list[Mask]:
        """For each condition, the events that satisfy it."""
        rows, names = events.num_rows, self._expressions.schema.names
        nothing, everything = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
        tests: dict[int, Mask] = {}
        for number, at in self._nulls.items():
            tests[number] = events.column(names[at]).is_null().to_numpy()
        for (at, lower), column in self._columns.items():
            _test_column(column, events.column(names[at]), lower, tests)
        masks = []
        waiting: list[int] = []
        for number, node in enumerate(self.nodes):
            mask = _mask(node, tests, possible=True)
            masks.append(nothing if mask is False else everything if mask is True else mask)
            if not self.exact[number] and mask is not False and masks[-1].any():
                waiting.append(number)
        if waiting:
            some = np.logical_or.reduce([masks[number] for number in waiting])
            chosen = Vectorized(self._expressions.schema)
            for number in waiting:
                chosen.adopt(self._expressions, number)
            selected = events if some.all() else events.filter(pa.array(some))
            places = [chosen.texts.index(self._expressions.texts[number]) for number in waiting]
            values = chosen.evaluate(selected)
            for number, place in zip(waiting, places, strict=True):
                mask = np.zeros(rows, np.bool_)
                mask[some] = mask_of(values[place])
                masks[number] = mask
        return masks


def _has_unknown(node: _ConditionNode) -> bool:
    return node.operator == "?" or any(map(_has_unknown, node.parts))


def _mask(node: _ConditionNode, tests: dict[int, Mask], *, possible: bool) -> Mask | bool:
    """The events that satisfy *node*, where what is not known is *possible*. True and False stand for all and none."""
    match node.operator:
        case "test":
            return tests.get(node.test, False)
        case "NOT":
            inner = _mask(node.parts[0], tests, possible=not possible)
            return not inner if isinstance(inner, bool) else ~inner
        case "?":
            return possible
    decides = node.operator == "OR"
    result: Mask | bool = not decides
    for part in node.parts:
        mask = _mask(part, tests, possible=possible)
        if mask is decides:
            return decides
        if isinstance(mask, bool):
            continue
        if isinstance(result, bool):
            result = mask
        else:
            result = result | mask if decides else result & mask
            if not decides and not result.any():
                return False
    return result


def _test_column(column: _TestedColumn, values: pa.ChunkedArray, lower: bool, tests: dict[int, Mask]) -> None:
    """Add the events that satisfy the tests of a column to *tests*; a test that no event satisfies is not added."""
    encoded = pc.dictionary_encode(lower_case(values) if lower else one_chunk(values))
    found: dict[int, list[int]] = {}
    for place, text in enumerate(encoded.dictionary.to_pylist()):
        for number in column.equal.get(text, ()):
            found.setdefault(number, []).append(place)
        if column.search is None:
            continue
        for pattern, start, end in column.search.find_matches_as_indexes(text, overlapping=True):
            for what, number in column.by_pattern[pattern].items():
                if what == "contains" or (start == 0 if what == "starts_with" else end == len(text)):
                    found.setdefault(number, []).append(place)
    if not found:
        return
    size = len(encoded.dictionary)
    places = pc.fill_null(encoded.indices, size).to_numpy(zero_copy_only=False)
    for number, some in found.items():
        of_values = np.zeros(size + 1, np.bool_)
        of_values[some] = True
        tests[number] = of_values[places]


_INDEXES: dict[tuple[str, ...], TextIndex] = {}


def text_index(expressions: Vectorized) -> TextIndex | None:
    """The index of many conditions; None if they are few, or the package that it needs is not installed."""
    if len(expressions.texts) < MIN_CONDITIONS:
        return None
    key = (*expressions.schema.names, *map(str, expressions.schema.types), *expressions.texts)
    index = recent(_INDEXES, key)
    if index is None:
        try:
            index = keep(_INDEXES, MAX_INDEXES, key, TextIndex(expressions))
        except ImportError:
            return None
    return index
