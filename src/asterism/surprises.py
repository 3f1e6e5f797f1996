"""Where a pattern surely does not mean what it says: parts that have no effect, and patterns that can never match.

Flink CEP has these surprises, and they are kept: ``docs/differences_from_flink.md`` tells them with examples. What is said here
follows from the pattern alone, whatever the events are; where only some events would surprise, nothing is said.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from sqlglot import exp

from asterism.conditions import AndCondition, Condition, NotCondition, OrCondition, SqlCondition
from asterism.errors import ExpressionError, PatternWarning
from asterism.expressions import AGGREGATES, conjuncts, parse
from asterism.pattern import Contiguity, Pattern, QuantifierKind, SkipKind, Stage
from asterism.words import printable

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class Surprise:
    """What a pattern says and surely does not mean."""

    stage: str
    message: str
    detail: str
    hint: str
    never: bool
    """The pattern can never match; otherwise the stage has less effect than it says."""

    def __str__(self) -> str:
        return "\n".join([self.message, "  " + self.detail, "  Hint: " + self.hint])


def surprises(pattern: Pattern) -> list[Surprise]:
    """What is surprising about a pattern that compiles.

    >>> unsold = Pattern.begin("a").not_followed_by("sold").where("kind = 'sold'").followed_by("any")
    >>> [found] = surprises(unsold)
    >>> print(found)
    not_followed_by("sold") has no effect
      Every event that it forbids fits the last stage, "any", which takes it: that is a match.
      Hint: exclude it there: followed_by("any").where("NOT (...)")
    """
    found = [*_conditions(pattern), *_chains(pattern.stages, is_pattern=True), *_skip(pattern)]
    return list({(one.stage, one.message): one for one in found}.values())


def warn(pattern: Pattern) -> None:
    """Warn of what is surprising, at the line outside of this package that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    for surprise in surprises(pattern):
        warnings.warn(printable(str(surprise)), PatternWarning, stacklevel=level)


# ---------------------------------------------------------------------- chains of stages


def _chains(stages: Sequence[Stage], *, is_pattern: bool) -> Iterator[Surprise]:
    for at, stage in enumerate(stages):
        before = stages[at - 1] if at else None
        after = stages[at + 1] if at + 1 < len(stages) else None
        if stage.group is not None:
            yield from _chains(stage.group.stages, is_pattern=False)
        elif stage.contiguity is Contiguity.NOT_NEXT and stage.condition is None:
            yield Surprise(
                stage.name,
                f'after not_next("{stage.name}") nothing can match',
                "It has no condition, so it forbids every event; that none comes is never known to it.",
                f'say which event is forbidden: not_next("{stage.name}").where("..."); '
                "for silence, end the pattern with not_followed_by(...).within(...)",
                never=True,
            )
        elif stage.contiguity.negated and before is not None and _is_ended(before, stage):
            yield _ended_loop(before, stage)
        elif stage.contiguity is Contiguity.NOT_FOLLOW and after is not None and before is not None:
            last = is_pattern and at + 2 == len(stages)
            yield from _spent_not(before, stage, after, last)
        if stage.quantifier.greedy and stage.until is None and after is not None:
            yield from _greedy(stage, after)


def _is_ended(loop: Stage, forbidden: Stage) -> bool:
    """Is every event that a loop could take, and need not take, forbidden by what follows?

    A relaxed loop that has skipped an event may go on: it is not asked any more.
    """
    said = loop.quantifier
    may_go_on = (said.kind is QuantifierKind.LOOPING or said.at_least < said.at_most) and not said.greedy
    return (
        may_go_on
        and said.inner is Contiguity.STRICT
        and loop.group is None
        and loop.until is None
        and _implies(loop, forbidden)
    )


def _ended_loop(loop: Stage, forbidden: Stage) -> Surprise:
    verb = "not_next" if forbidden.contiguity is Contiguity.NOT_NEXT else "not_followed_by"
    least = loop.quantifier.at_least
    return Surprise(
        forbidden.name,
        f'the loop "{loop.name}" never takes more than {least} event{"s" * (least > 1)}',
        f'Every further event fits {verb}("{forbidden.name}"), which ends the partial match even while the loop goes on.',
        f'for the longest run make the loop greedy: .greedy().{verb}("{forbidden.name}")',
        never=False,
    )


def _spent_not(before: Stage, forbidden: Stage, after: Stage, last: bool) -> Iterator[Surprise]:
    """``a not_followed_by(n) z``, with stages that occur once."""
    if not (_is_plain(before) and _is_plain(after)):
        return
    if after.contiguity is Contiguity.STRICT and last:
        yield Surprise(
            forbidden.name,
            f'not_followed_by("{forbidden.name}") has no effect',
            f'Nothing can come between "{before.name}" and the very next event, which next("{after.name}") asks for.',
            f'followed_by("{after.name}"), or leave the stage out',
            never=False,
        )
    elif after.contiguity is Contiguity.SKIP_TILL_NEXT and last and _implies(forbidden, after):
        yield Surprise(
            forbidden.name,
            f'not_followed_by("{forbidden.name}") has no effect',
            f'Every event that it forbids fits the last stage, "{after.name}", which takes it: that is a match.',
            f'exclude it there: followed_by("{after.name}").where("NOT (...)")',
            never=False,
        )
    elif not last and _implies(after, forbidden):
        yield Surprise(
            forbidden.name,
            f'stage "{after.name}" can take no event',
            f'Every event that fits it is forbidden by not_followed_by("{forbidden.name}") before it.',
            f'exclude from not_followed_by("{forbidden.name}") what "{after.name}" is to take',
            never=True,
        )


def _is_plain(stage: Stage) -> bool:
    """Exactly one event."""
    said = stage.quantifier
    once = said.kind is QuantifierKind.SINGLE and not said.optional
    return once and stage.group is None and not stage.contiguity.negated


def _greedy(loop: Stage, after: Stage) -> Iterator[Surprise]:
    takes_more = loop.quantifier.kind is QuantifierKind.LOOPING or loop.quantifier.at_least < loop.quantifier.at_most
    if takes_more and _is_plain(after) and _implies(after, loop):
        yield Surprise(
            after.name,
            f'stage "{after.name}" can take no event',
            f'The greedy loop "{loop.name}" before it takes every event that fits it, and gives none back.',
            f'narrow the condition of "{loop.name}", or say where the loop ends: until(...)',
            never=True,
        )


def _skip(pattern: Pattern) -> Iterator[Surprise]:
    first, skip = pattern.stages[0], pattern.skip
    if first.name != skip.stage or first.group is not None or first.quantifier.optional:
        return
    if skip.kind is SkipKind.SKIP_TO_FIRST or first.quantifier.kind is QuantifierKind.SINGLE:
        thrown = skip.throw_on_miss
        then = "that is an error" if thrown else "nothing is discarded"
        yield Surprise(
            first.name,
            f'the first match ends the query: it cannot skip to its own first event, of stage "{first.name}"'
            if thrown
            else f'{skip.kind.value} "{first.name}" discards nothing',
            f"Where a match is to skip to the event that it begins with, {then}.",
            "AfterMatchSkipStrategy.skip_to_next() discards what began with the same event",
            never=False,
        )


# ---------------------------------------------------------------------- what follows from what


def _implies(one: Stage, other: Stage) -> bool:
    """Does each event that fits *one* fit *other*, as far as the texts tell?"""
    return _parts(other.condition) <= _parts(one.condition)


def _parts(condition: Condition | None) -> frozenset[Any]:
    """What must hold, part by part."""
    if condition is None:
        return frozenset()
    if isinstance(condition, AndCondition):
        return _parts(condition.left) | _parts(condition.right)
    if isinstance(condition, SqlCondition):
        tree = _tree(condition)
        if tree is not None:
            return frozenset(part.sql("spark") for part in conjuncts(tree))
    function = getattr(condition, "function", None)
    return frozenset([repr(condition) if function is None else (type(condition).__name__, id(function))])


def _tree(condition: SqlCondition) -> exp.Expr | None:
    try:
        tree = parse(condition.text)
    except ExpressionError:
        return None  # it is told where the pattern meets a schema
    return None if isinstance(tree, exp.Alias) else tree


# ---------------------------------------------------------------------- conditions over events that are not there


def _conditions(pattern: Pattern, looping: bool = False, later: frozenset[str] = frozenset()) -> Iterator[Surprise]:
    """Conditions that cannot hold, because a stage of which they speak has no event yet.

    :param looping: the pattern is a group that repeats: then what comes later may have come before
    :param later: the stages that follow the group
    """
    names = [frozenset(_names(stage)) for stage in pattern.stages]
    for at, stage in enumerate(pattern.stages):
        following = frozenset().union(later, *names[at + 1 :]) if not looping else frozenset()
        if stage.group is not None:
            repeats = stage.quantifier.kind is QuantifierKind.LOOPING or stage.quantifier.at_most > 1
            yield from _conditions(stage.group, looping or repeats, following)
            continue
        empty = following | {stage.name}
        if stage.condition is not None and True not in _values_of(stage.condition, empty):
            yield _never_true(stage, empty)
        if stage.until is not None and following and True not in _values_of(stage.until, following):
            yield Surprise(
                stage.name,
                f'until of stage "{stage.name}" never ends the loop',
                f"It reads events of {_quoted(_mentioned(stage.until, following))}, of which there is none yet: that is NULL.",
                "read stages that come before, or the current event",
                never=False,
            )


def _never_true(stage: Stage, empty: frozenset[str]) -> Surprise:
    assert stage.condition is not None
    mentioned = _mentioned(stage.condition, empty)
    own = stage.name in mentioned and not stage.contiguity.negated
    says = f"It reads events of {_quoted(mentioned)}, of which there is none" + (" at first" if own else " yet")
    if stage.contiguity.negated:
        message = f'stage "{stage.name}" forbids nothing: its condition is never TRUE'
        hint = "read the current event, or stages that come before"
    else:
        message = f'stage "{stage.name}" can take no event: its condition is never TRUE'
        hint = "read stages that come before"
    if own:
        hint = f'say what holds for the first event: "... OR COUNT({stage.name}.*) = 0", or coalesce(LAST({stage.name}.x), ...)'
    return Surprise(stage.name, message, says + ", so that it is NULL.", hint, never=not stage.contiguity.negated)


def _quoted(names: Sequence[str]) -> str:
    return " and ".join(f'"{name}"' for name in names)


def _names(stage: Stage) -> Iterator[str]:
    if stage.group is None:
        yield stage.name
    else:
        yield from (atom.name for atom in stage.group.atoms())


def _mentioned(condition: Condition, stages: frozenset[str]) -> list[str]:
    match condition:
        case AndCondition(left, right) | OrCondition(left, right):
            return sorted({*_mentioned(left, stages), *_mentioned(right, stages)})
        case NotCondition(inner):
            return _mentioned(inner, stages)
        case SqlCondition():
            tree = _tree(condition)
            columns = [] if tree is None else tree.find_all(exp.Column)
            return sorted({column.table for column in columns} & stages)
    return []


Truth = frozenset[bool | None]
"""What a condition can be, where the events are not known: TRUE, FALSE, NULL."""
_ANY: Truth = frozenset({True, False, None})
_NULL: Truth = frozenset({None})
_STRICT = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.RegexpLike, exp.Add, exp.Sub, exp.Mul, exp.Div,
    exp.Mod, exp.Neg, exp.Abs,
)  # fmt: skip
"""What is NULL if one of its operands is."""


def _values_of(condition: Condition, empty: frozenset[str]) -> Truth:
    match condition:
        case AndCondition(left, right):
            return _and(_holds(left, empty), _holds(right, empty))
        case OrCondition(left, right):
            return _not(_and(_not(_holds(left, empty)), _not(_holds(right, empty))))
        case NotCondition(inner):
            return _not(_holds(inner, empty))
        case SqlCondition():
            tree = _tree(condition)
            return _ANY if tree is None else _truth(tree, empty)
    return _ANY


def _holds(condition: Condition, empty: frozenset[str]) -> Truth:
    """A condition that is NULL does not hold."""
    return frozenset(bool(value) for value in _values_of(condition, empty))


def _truth(node: exp.Expr, empty: frozenset[str]) -> Truth:
    """What *node* can be where the stages *empty* have no event."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return reduce(_and, (_truth(part, empty) for part in node.flatten()))
    if isinstance(node, exp.Or):
        return _not(reduce(_and, (_not(_truth(part, empty)) for part in node.flatten())))
    if isinstance(node, exp.Not):
        return _not(_truth(node.this, empty))
    if isinstance(node, exp.Boolean):
        return frozenset({bool(node.this)})
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null) and _is_null(node.this, empty):
        return frozenset({True})
    return _NULL if _is_null(node, empty) else _ANY


def _is_null(node: exp.Expr, empty: frozenset[str]) -> bool:
    """Is it NULL for sure?"""
    node = node.unnest()
    if isinstance(node, exp.Null):
        return True
    if isinstance(node, exp.Column):
        return node.table in empty
    if type(node) in AGGREGATES and not isinstance(node, exp.Count):
        columns = list(node.find_all(exp.Column))
        return bool(columns) and all(column.table in empty for column in columns)
    if isinstance(node, exp.Between):
        return _is_null(node.this, empty)
    if isinstance(node, exp.In):
        return _is_null(node.this, empty)
    if isinstance(node, exp.Cast):
        return _is_null(node.this, empty)
    if type(node) in _STRICT:
        return any(_is_null(part, empty) for part in node.iter_expressions())
    return False


def _not(values: Truth) -> Truth:
    return frozenset(None if value is None else not value for value in values)


def _and(left: Truth, right: Truth) -> Truth:
    return frozenset(
        False if one is False or other is False else None if one is None or other is None else True
        for one in left
        for other in right
    )
