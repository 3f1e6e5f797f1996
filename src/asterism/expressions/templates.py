"""Parses expressions that differ only in their numbers once.

Rules are often made from a few templates: ``amount >= 10 AND kind = 'buy'``, ``amount >= 12 AND kind = 'buy'``. Parsing takes
most of the time to bind a condition. So the syntax tree of an expression is kept, and used again for an expression with the same
text but other numbers, by replacing the literals in the tree. The conjuncts with such literals are translated anew.

Only the digits of a number may differ, as ``10`` and ``7``, or ``1.5`` and ``20.25``. A number must be an operand of one of a few
operators, where the parser does not look at its value.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlglot import exp

from asterism.expressions.names import Scope, has_aggregate
from asterism.expressions.parsing import MAX_TEXT, conjuncts
from asterism.expressions.values import Sql

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
