"""Reads conditions, in the SQL for DuckDB, as trees of tests of texts, for :mod:`asterism.rules.binding.text_index`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from asterism.expressions.regex import regex, required, shortest
from asterism.expressions.values import UnsupportedError

_TEXT = r"(?P<lower>lower_case\()?c(?P<column>\d+)(?(lower)\))"
_LITERAL = r"'(?:[^']|'')*'"
_CALL = re.compile(rf"(?P<what>contains|starts_with|suffix)\({_TEXT}, (?P<literal>{_LITERAL})\)")
_EQUAL = re.compile(rf"\({_TEXT} = (?P<literal>{_LITERAL})\)")
_IN = re.compile(rf"\({_TEXT} IN \((?P<literals>{_LITERAL}(?:, {_LITERAL})*)\)\)")
_SAME = re.compile(rf"\({_TEXT} = (?(lower)lower_case\(c(?P<lowered>\d+)\)|c(?P<other>\d+))\)")
_LIKE = re.compile(rf"\({_TEXT} LIKE (?P<literal>{_LITERAL}) ESCAPE '\\'\)")
_MATCHES = re.compile(rf"regexp_matches\(c(?P<column>\d+), (?P<literal>{_LITERAL})\)")
_CODE = re.compile(r"\\x\{([0-9a-f]+)\}")
_NULL = re.compile(r"\(c(?P<column>\d+) IS (?P<not>NOT )?NULL\)")
_LITERALS = re.compile(_LITERAL)
_TOKENS = re.compile(rf"{_LITERAL}|\"[^\"]*\"|[()]| AND | OR |, FALSE\)|[^'\"()]+?(?=[()'\"]| AND | OR |, FALSE\)|$)")
_NOT = "(NOT COALESCE("
_HARMLESS = re.compile(r"[\w\s(),=<>.]*")
"""What remains of a condition without its constants: no arithmetic, which may overflow."""
MIN_LENGTH = 100
"""The least length of the matches of a regular expression for which texts are tested for it."""
_FUNCTIONS = re.compile(r"(\w+)\(")
_CANNOT_FAIL = {
    "COALESCE", "contains", "lower_case", "regexp_full_match", "regexp_matches", "regexp_replace", "starts_with", "suffix",
    "lower", "CAST",
}  # fmt: skip
"""Functions that do not fail. Casts that may fail contain a call of ``error``."""


class TextTest(NamedTuple):
    """A test of the texts of a column.

    :param what: ``contains``, ``starts_with`` or ``suffix``, of one of *literals*; ``=`` for a text that is one of them;
        ``length`` for at least *number* bytes; ``null``; ``same`` for the text of the column *number*; ``regex`` for a
        regular expression
    """

    what: str
    column: int
    lower: bool = False
    literals: tuple[str, ...] = ()
    number: int = 0


CONSTANTS = frozenset({"contains", "starts_with", "suffix", "=", "length"})
"""The tests that are answered for all conditions together."""
PATTERNS = frozenset({"regex"})
"""The tests that are only answered for events that may satisfy a condition with them."""


class ConditionNode(NamedTuple):
    """A part of a condition: a test; AND, OR or NOT of others; or ``?``, which is not known."""

    operator: str
    parts: tuple[ConditionNode, ...] = ()
    test: int = -1


UNKNOWN = ConditionNode("?")


class ConditionParser:
    """Reads the SQL that conditions are translated to.

    :param strings: which columns are texts
    """

    def __init__(self, tests: dict[TextTest, int], strings: Sequence[bool]) -> None:
        self.tests, self.strings = tests, strings
        self.text, self.at = "", 0

    def parse(self, text: str) -> ConditionNode:
        """The condition; if it may fail for an event, nothing of it is known, so that it is evaluated for all events."""
        rest = _LITERALS.sub("", text)
        if _HARMLESS.fullmatch(rest) is None or not set(_FUNCTIONS.findall(rest)) <= _CANNOT_FAIL:
            return UNKNOWN
        self.text, self.at = text, 0
        node = self._node()
        return node if self.at == len(text) else UNKNOWN

    def _test(self, test: TextTest) -> ConditionNode:
        if test.what != "null" and not self.strings[test.column]:
            return UNKNOWN
        return ConditionNode("test", test=self.tests.setdefault(test, len(self.tests)))

    def _possible(self, tests: Sequence[TextTest]) -> ConditionNode:
        """A test that a text can satisfy only if it satisfies the others."""
        return ConditionNode("AND", tuple(map(self._test, tests)))

    def _node(self) -> ConditionNode:
        if matched := _CALL.match(self.text, self.at):
            literal = _value(matched["literal"])
            if literal:
                self.at = matched.end()
                return self._test(TextTest(matched["what"], int(matched["column"]), bool(matched["lower"]), (literal,)))
        for pattern in (_EQUAL, _IN):
            if matched := pattern.match(self.text, self.at):
                self.at = matched.end()
                literals = tuple(map(_value, _LITERALS.findall(matched[0])))
                return self._test(TextTest("=", int(matched["column"]), bool(matched["lower"]), literals))
        for pattern, tests_of in ((_LIKE, _tests_of_like), (_MATCHES, _tests_of_regex)):
            if matched := pattern.match(self.text, self.at):
                self.at = matched.end()
                return self._possible(tests_of(matched))
        if matched := _SAME.match(self.text, self.at):
            self.at = matched.end()
            column, other = int(matched["column"]), int(matched["lowered"] or matched["other"])
            if self.strings[other]:
                return self._test(TextTest("same", column, bool(matched["lower"]), number=other))
            return UNKNOWN
        if matched := _NULL.match(self.text, self.at):
            self.at = matched.end()
            node = self._test(TextTest("null", int(matched["column"]), False, ()))
            return ConditionNode("NOT", (node,)) if matched["not"] else node
        if self.text.startswith(_NOT, self.at):
            before = self.at
            self.at += len(_NOT)
            inner = self._node()
            if self.text.startswith(", FALSE))", self.at):
                self.at += len(", FALSE))")
                return ConditionNode("NOT", (inner,))
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
                return ConditionNode(operator.strip(), tuple(parts))
            self.at = before
        return self._opaque()

    def _opaque(self) -> ConditionNode:
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
        return UNKNOWN


def _value(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _tests_of_like(matched: re.Match[str]) -> list[TextTest]:
    """LIKE a pattern, as a regular expression for RE2, after the tests that each such text satisfies."""
    column, lower, pattern = int(matched["column"]), bool(matched["lower"]), _value(matched["literal"])
    parts = re.findall(r"\\.|.", pattern, flags=re.DOTALL)
    runs = [""]
    for part in parts:
        if part in ("%", "_"):
            runs.append("")
        else:
            runs[-1] += part[-1]
    whats = ["starts_with", *["contains"] * (len(runs) - 2), "suffix"] if len(runs) > 1 else ["="]
    tests = [TextTest(what, column, lower, (run,)) for what, run in zip(whats, runs, strict=True) if run]
    if len(tests) == 1 and "_" not in parts:
        return tests
    expression = "".join({"%": ".*", "_": "."}.get(part) or f"\\x{{{ord(part[-1]):x}}}" for part in parts)
    return [*tests, TextTest("regex", column, lower, (f"(?s)\\A{expression}\\z",))]


def _tests_of_regex(matched: re.Match[str]) -> list[TextTest]:
    """A match of a regular expression, after the tests that each text with such a match satisfies."""
    column, pattern = int(matched["column"]), _value(matched["literal"])
    test = TextTest("regex", column, literals=(pattern,))
    # Before the constants are written as characters, a backslash is one of the pattern.
    written = _CODE.sub(lambda code: "\\" + chr(int(code[1], 16)), pattern.replace(r"\z", "$"))
    try:
        whole = regex(written).whole
    except UnsupportedError:
        return [test]
    length = shortest(whole)
    tests = [TextTest("length", column, number=length)] if length >= MIN_LENGTH else []
    return [*(TextTest("contains", column, True, texts) for texts in required(whole)), *tests, test]
