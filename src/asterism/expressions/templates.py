"""Two ways around the parser, which takes most of the time to bind a condition: :func:`resolved` and :func:`quick_condition`.

Rules are often made from a few templates: ``amount >= 10 AND kind = 'buy'``, ``amount >= 12 AND kind = 'buy'``. So the syntax
tree of an expression is kept, and used again for an expression with the same text but other numbers, by replacing the literals in
the tree. The conjuncts with such literals are translated anew.

Only the digits of a number may differ, as ``10`` and ``7``, or ``1.5`` and ``20.25``. A number must be an operand of one of a few
operators, where the parser does not look at its value.

Conditions on texts, as the rules of Sigma are written, are read directly: AND, OR and NOT COALESCE(..., FALSE) of
``contains``, ``startswith``, ``endswith``, ``=``, ``LIKE`` and ``IN`` with literals, and IS NULL. The value is the one that the
parser and the translation give.

See docs/decisions/0146.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Generic, TypeVar

from sqlglot import exp

from asterism.errors import ColumnNotFoundError
from asterism.expressions import operators
from asterism.expressions.computed_columns import is_computed
from asterism.expressions.functions import FUNCTIONS, like
from asterism.expressions.names import Scope, has_aggregate
from asterism.expressions.parsing import MAX_TEXT, conjuncts
from asterism.expressions.types import STRING, type_of_column
from asterism.expressions.values import Cost, Sql, UnsupportedError, boolean_constant, limited, string_constant

MAX_TEMPLATES = 2_000
MAX_NUMBERS = 100
MAX_VALUES = 500
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)", re.ASCII)
_OPERATORS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Between, exp.In, exp.Neg, exp.Add, exp.Sub, exp.Mul,
)  # fmt: skip
_Outline = tuple[Scope, str, tuple[str, ...]]
"""The scope, the time zone, and the text between the numbers."""


@dataclass(slots=True)
class Resolved:
    """A resolved expression as its top-level conjuncts, those that read only the current event and the others."""

    tree: exp.Expr
    replaced: bool
    """whether it is the tree of another expression, with its numbers replaced. Positions in it are wrong."""
    pure: Sequence[exp.Expr]
    iterative: Sequence[exp.Expr]
    values: dict[int, Sql]
    """translated conjuncts, by their places in *pure*"""
    numbers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """of the other conjuncts, if the numbers are replaced: their numbers"""
    known: dict[tuple[int, tuple[str, ...]], Sql] = field(default_factory=dict)
    """translated conjuncts with numbers, by their places and numbers"""

    def value(self, place: int) -> Sql | None:
        """The translation of a conjunct of *pure* that was translated before."""
        if place in self.values:
            return self.values[place]
        return self.known.get((place, self.numbers[place])) if place in self.numbers else None

    def keep(self, place: int, value: Sql) -> None:
        if not self.replaced:
            self.values[place] = value
        elif place in self.numbers:
            while len(self.known) >= MAX_VALUES:
                del self.known[next(iter(self.known))]
            self.known[place, self.numbers[place]] = value

    @classmethod
    def of(cls, scope: Scope, text: str) -> Resolved:
        """:raises ExpressionError: the expression cannot be parsed, or a name is unknown"""
        tree = scope.resolve(scope.parse(text), text)
        parts = conjuncts(tree)
        return cls(
            tree,
            False,
            [part for part in parts if not has_aggregate(part)],
            [part for part in parts if has_aggregate(part)],
            {},
        )


@dataclass(frozen=True, slots=True)
class _Template:
    """An expression and those of its literals whose numbers may differ, with their places among the numbers of the text."""

    of: Resolved
    literals: tuple[exp.Expr, ...]
    places: tuple[int, ...]
    numbers: tuple[str, ...]
    """the numbers of the text, of which the others must be the same"""
    places_of: dict[int, list[int]]
    """for each conjunct with such literals their places"""

    def fits(self, numbers: Sequence[str]) -> bool:
        return all(
            (_is_plain(new) and ("." in new) == ("." in old)) if place in self.places else new == old
            for place, (new, old) in enumerate(zip(numbers, self.numbers, strict=True))
        )


@contextmanager
def resolved(scope: Scope, zone: str, text: str) -> Iterator[Resolved]:
    """An expression, which must not be used after the block.

    :raises ExpressionError: it cannot be parsed, or a name is unknown
    """
    parts = _NUMBER.split(text)  # every second one is a number
    numbers = parts[1::2]
    outline = scope, zone, tuple(parts[::2])
    with _LOCK:
        template = _TEMPLATES.get(outline)
        if template is not None and len(text) <= MAX_TEXT and template.fits(numbers):
            for literal, place in zip(template.literals, template.places, strict=True):
                literal.set("this", numbers[place])
            template.of.numbers = {
                at: tuple(numbers[place] for place in places) for at, places in template.places_of.items()
            }
            yield template.of
            return
    parsed = Resolved.of(scope, text)
    yield parsed
    if len(numbers) <= MAX_NUMBERS:
        # In place of one that does not fit: it may be of the only expression with a 0, and would not fit the next ones either.
        with _LOCK:
            while len(_TEMPLATES) >= MAX_TEMPLATES:
                del _TEMPLATES[next(iter(_TEMPLATES))]
            _TEMPLATES[outline] = _template(parsed, parts)


_LOCK = threading.RLock()
_TEMPLATES: dict[_Outline, _Template] = {}


def _template(parsed: Resolved, parts: Sequence[str]) -> _Template:
    """The template of an expression with a text of these *parts*."""
    by_place: dict[tuple[int, int], list[exp.Expr]] = {}
    for node in parsed.tree.find_all(exp.Literal):
        end = node.meta.get("end", -1) - _has_suffix(node)
        by_place.setdefault((node.meta.get("start", -1), end), []).append(node)
    literals, places, begin = [], [], 0
    for at, part in enumerate(parts):
        if at % 2:
            nodes = by_place.get((begin, begin + len(part) - 1), [])
            if len(nodes) == 1 and not nodes[0].is_string and nodes[0].this == part and _may_differ(nodes[0]):
                literals.append(nodes[0])
                places.append(at // 2)
        begin += len(part)
    differing = {id(literal) for literal in literals}
    fixed = {
        at: value
        for at, value in parsed.values.items()
        if differing.isdisjoint(id(node) for node in parsed.pure[at].find_all(exp.Literal))
    }
    place_of = {id(literal): place for literal, place in zip(literals, places, strict=True)}
    places_of = {
        at: [place_of[id(node)] for node in part.find_all(exp.Literal) if id(node) in place_of]
        for at, part in enumerate(parsed.pure)
        if at not in fixed
    }
    of = replace(parsed, replaced=True, values=fixed, known={})
    return _Template(of, tuple(literals), tuple(places), tuple(parts[1::2]), places_of)


def _may_differ(literal: exp.Expr) -> bool:
    above = literal.parent.parent if _has_suffix(literal) and literal.parent is not None else literal.parent
    return _is_plain(str(literal.this)) and isinstance(above, _OPERATORS)


def _has_suffix(literal: exp.Expr) -> bool:
    """Whether it has a letter for its type, as in 5L, which is part of the token."""
    return isinstance(literal.parent, exp.Cast) and "called" not in literal.parent.meta


def _is_plain(number: str) -> bool:
    """Whether a number cannot be anything else together with what follows it, as in 0x1F."""
    return number[0] != "0" or number[1:2] == "."


# ---------------------------------------------------------------------------------------------------- conditions on texts

MAX_CALLS = 2_000
"""The maximum number of calls of which the value is kept, for other constants."""
MAX_DEPTH = 20
"""The maximum nesting of a condition that is read without the parser."""
MAX_CONDITION = 100_000
"""The maximum number of characters of such a condition, which costs time in proportion to its texts."""
_COLUMN = r"`(?P<column>\w+)`"
_TEXT = rf"(?P<lower>LOWER\()?CAST\({_COLUMN} AS STRING\)(?(lower)\))"
_LITERAL = r"'(?:[^'\\\0$\ud800-\udfff]|\$(?!\{)|\\[\\'])*'"
_CALL = re.compile(rf"(?P<function>CONTAINS|STARTSWITH|ENDSWITH)\({_TEXT}, (?P<literal>{_LITERAL})\)")
_EQUAL = re.compile(rf"{_TEXT} = (?P<literal>{_LITERAL})")
_LIKE = re.compile(rf"{_TEXT} LIKE (?P<literal>{_LITERAL})")
_IN = re.compile(rf"{_TEXT} IN \((?P<literals>{_LITERAL}(?:, {_LITERAL})*)\)")
_NULL = re.compile(rf"{_COLUMN} IS (?P<not>NOT )?NULL")
_LITERALS = re.compile(_LITERAL)
_ESCAPED = re.compile(r"\\(.)")
NOT_COALESCE, OR_FALSE = "NOT COALESCE(", ", FALSE)"


class OtherFormError(Exception):
    """A condition has another form than those that are read without the parser."""


Read = TypeVar("Read")


class QuickReader(ABC, Generic[Read]):
    """Reads a condition without the parser, from its begin on."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def several(self, depth: int) -> Read:
        """Conditions with one operator between them.

        :raises OtherFormError: they have another form, or are nested too deeply
        """
        if depth > MAX_DEPTH:
            raise OtherFormError
        parts, operator = [self.one(depth)], ""
        while word := next((word for word in (" AND ", " OR ") if self.text.startswith(word, self.at)), ""):
            if operator not in ("", word):
                raise OtherFormError
            operator = word
            self.at += len(word)
            parts.append(self.one(depth))
        return self.joined(operator.strip(), parts) if operator else parts[0]

    @abstractmethod
    def one(self, depth: int) -> Read:
        """A condition without an operator around it."""

    @abstractmethod
    def joined(self, operator: str, parts: Sequence[Read]) -> Read:
        """Several conditions with AND or OR between them."""

    def take(self, word: str) -> bool:
        """Whether the text goes on with *word*, which is read."""
        taken = self.text.startswith(word, self.at)
        self.at += len(word) * taken
        return taken

    def expect(self, word: str) -> None:
        if not self.take(word):
            raise OtherFormError


def unescaped(literal: str) -> str:
    """The text of a literal in quotes, whose escapes are of a quote or a backslash."""
    return _ESCAPED.sub(r"\1", literal[1:-1])


def quick_condition(scope: Scope, zone: str, text: str) -> Sql | None:
    """The value of a condition that cannot fail and takes time in proportion to its texts; None if it has another form.

    :raises ColumnNotFoundError: it is too long for the parser, and a column does not exist
    """
    if len(text) > MAX_CONDITION or any(map(is_computed, scope.schema.names)):
        return None
    reader = _ConditionReader(scope, zone, text)
    try:
        value = reader.several(0)
    except (OtherFormError, UnsupportedError):
        return None
    if reader.at < len(text):
        return None
    # The conjuncts of a condition are translated one by one, whatever the parentheses around them.
    parts = list(_conjuncts(value))
    return (
        value
        if value.operation is None or len(parts) <= len(value.operation.operands)
        else operators.conjunction(parts)
    )


def is_long_condition(text: str) -> bool:
    """Whether the parser would refuse a condition for its length, and :func:`quick_condition` reads it over columns of texts."""
    if not MAX_TEXT < len(text) <= MAX_CONDITION:
        return False
    reader = _ConditionReader(None, "UTC", text)
    with suppress(OtherFormError, UnsupportedError):
        reader.several(0)
        return reader.at == len(text)
    return False


def _conjuncts(value: Sql) -> Iterator[Sql]:
    if value.operation is None or value.operation.name != "AND":
        yield value
    else:
        for operand in value.operation.operands:
            yield from _conjuncts(operand)


class _ConditionReader(QuickReader[Sql]):
    """
    :param scope: None: any name is a column of texts
    """

    def __init__(self, scope: Scope | None, zone: str, text: str) -> None:
        super().__init__(text)
        self.scope, self.zone = scope, zone
        self.columns: dict[str, Sql] = {}

    def joined(self, operator: str, parts: Sequence[Sql]) -> Sql:
        return limited((operators.conjunction if operator == "AND" else operators.disjunction)(parts))

    def one(self, depth: int) -> Sql:
        if self.take("("):
            value = self.several(depth + 1)
            self.expect(")")
            return value
        if self.take(NOT_COALESCE):
            value = self.several(depth + 1)
            self.expect(OR_FALSE)
            return limited(operators.negation(FUNCTIONS["coalesce"](self.zone, [value, boolean_constant(False)])))
        if found := _CALL.match(self.text, self.at):
            self.at = found.end()
            return self._called(found, _constant(found["literal"]))
        if found := _EQUAL.match(self.text, self.at):
            self.at = found.end()
            return limited(operators.compare("=", self._text(found), _constant(found["literal"]), self.zone))
        # Long conditions have no LIKE, which can take more time than in proportion to its texts.
        if len(self.text) <= MAX_TEXT and (written := _LIKE.match(self.text, self.at)):
            self.at = written.end()
            return limited(like(self.zone, self._text(written), _constant(written["literal"]), None, fold=False))
        if found := _IN.match(self.text, self.at):
            self.at = found.end()
            choices = [_constant(literal) for literal in _LITERALS.findall(found["literals"])]
            return limited(operators.is_in(self._text(found), choices, self.zone))
        if found := _NULL.match(self.text, self.at):
            self.at = found.end()
            return limited(operators.is_null(self._column(found["column"]), negated=bool(found["not"])))
        raise OtherFormError

    def _called(self, call: re.Match[str], constant: Sql) -> Sql:
        """A call, of which all but the text of the constant is that of another call with the same value."""
        function, value = call["function"].lower(), self._text(call)
        if value.text in constant.text:  # it would be counted as a part of the value
            return FUNCTIONS[function](self.zone, [value, constant])
        known = _call_template(function, self.zone, self._column(call["column"]).text, bool(call["lower"]))
        return limited(replace(known.value, text=f"{known.before}{constant.text}{known.after}"))

    def _text(self, found: re.Match[str]) -> Sql:
        value = self._column(found["column"])
        return _lowered(value.text, self.zone) if found["lower"] else value

    def _column(self, name: str) -> Sql:
        """The value of a column of texts."""
        if self.scope is None:
            return _column_of_texts("c0")
        if name not in self.columns:
            schema = self.scope.schema
            number = schema.get_field_index(name)
            if number < 0 and len(self.text) > MAX_TEXT:  # the parser would not come to the name
                raise ColumnNotFoundError.from_missing_and_available(name, schema.names, f"in: {self.text[:100]}")
            if number < 0 or type_of_column(schema.field(number), self.zone) != STRING:
                raise OtherFormError
            self.columns[name] = _column_of_texts(f"c{number}")
        return self.columns[name]


def _column_of_texts(text: str) -> Sql:
    return Sql(text, STRING, size=Cost(growth=1), strict=True)


@lru_cache(MAX_CALLS)
def _lowered(column: str, zone: str) -> Sql:
    return FUNCTIONS["lower"](zone, [_column_of_texts(column)])


@dataclass(frozen=True, slots=True)
class _CallTemplate:
    """A call with any constant: its text before and after the constant."""

    value: Sql
    before: str
    after: str


@lru_cache(MAX_CALLS)
def _call_template(function: str, zone: str, column: str, lower: bool) -> _CallTemplate:
    constant = string_constant("?")
    value = FUNCTIONS[function](zone, [_lowered(column, zone) if lower else _column_of_texts(column), constant])
    before, _, after = value.text.partition(constant.text)
    return _CallTemplate(value, before, after)


def _constant(literal: str) -> Sql:
    return limited(string_constant(unescaped(literal)))
