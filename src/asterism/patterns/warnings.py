"""Warnings about patterns that are certainly not intended: parts without effect, and patterns that can never match. Also notes
about what a pattern costs on a stream.

Flink CEP behaves in the same way, see ``docs/differences_from_flink.md``. A warning depends on the pattern alone. There is none
if the behaviour is surprising only for some events.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

from sqlglot import exp

from asterism.errors import PACKAGE_FOLDER, ExpressionError, PatternWarning, printable
from asterism.expressions.functions import FUNCTIONS
from asterism.expressions.parsing import AGGREGATES, Previous, conjuncts, parse, sql_of
from asterism.patterns.conditions import AndCondition, Condition, NotCondition, OrCondition, SqlCondition, leaves_of
from asterism.patterns.sequence import Combining, Contiguity, PatternSequence, QuantifierKind, SkipKind, Stage, Taking


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A part of a pattern that is certainly not intended."""

    stage: str
    message: str
    detail: str
    hint: str

    def __str__(self) -> str:
        return "\n".join([self.message, "  " + self.detail, "  Hint: " + self.hint])


def diagnose(pattern: PatternSequence) -> list[Diagnostic]:
    """The diagnostics of a pattern that compiles.

    >>> unsold = PatternSequence.begin("a").not_followed_by("sold").where("kind = 'sold'").followed_by("any")
    >>> [found] = diagnose(unsold)
    >>> print(found)
    not_followed_by("sold") has no effect
      Every event that it forbids matches the last stage, "any", and completes the match.
      Hint: exclude these events there: followed_by("any").where("NOT (...)")
    """
    problems = [
        *_conditions(pattern),
        *_chains(pattern.stages, is_pattern=True),
        *_skip(pattern),
        *_parts_of_runs(pattern),
    ]
    return list({(problem.stage, problem.message): problem for problem in problems}.values())


def costs(pattern: PatternSequence) -> list[Diagnostic]:
    """What a pattern stores for each key of a stream without a bound, and which matches can be late. This may be intended.

    >>> [found] = costs(PatternSequence.begin_without("x").where("kind = 'x'").followed_by("a"))
    >>> print(found)
    begin_without("x") has no time bound
      A stream stores the last event of "x" of each key forever.
      Hint: bound the time before a match: begin_without("x").where("...").within(...)
    """
    return [*_remembered(pattern), *_decided_late(pattern), *_absent_after_loop(pattern)]


def warn(pattern: PatternSequence) -> None:
    """Warn about a pattern, at the calling line outside of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        level, frame = level + 1, frame.f_back
    for diagnostic in diagnose(pattern):
        warnings.warn(printable(str(diagnostic)), PatternWarning, stacklevel=level)


# ---------------------------------------------------------------------- chains of stages


def _chains(stages: Sequence[Stage], *, is_pattern: bool, ends: bool = True) -> Iterator[Diagnostic]:
    """*ends*: whether the match may end with the last of the *stages*."""
    for at, stage in enumerate(stages):
        before = stages[at - 1] if at else None
        after = stages[at + 1] if at + 1 < len(stages) else None
        may_end = ends and _may_be_left_out(stages[at + 1 :])
        if stage.group is not None:
            # Neither alternatives nor elements in any order follow one another as they are written.
            is_chain = stage.group.combination is Combining.SEQUENCE
            for chain in [stage.group.stages] if is_chain else [(element,) for element in stage.group.stages]:
                yield from _chains(chain, is_pattern=False, ends=may_end)
        elif stage.contiguity is Contiguity.NOT_NEXT and not _parts(stage.condition):
            yield Diagnostic(
                stage.name,
                f'after not_next("{stage.name}") nothing can match',
                ("It has no condition" if stage.condition is None else "Its condition is always TRUE")
                + ", so it forbids every event; it cannot detect that no event follows.",
                f'add a condition for the forbidden event: not_next("{stage.name}").where("..."); '
                "to detect that no event follows, end the pattern with not_followed_by(...).within(...)",
            )
        elif stage.contiguity is Contiguity.NOT_NEXT and before is not None:
            yield from _not_next_after_loop(before, stage)
        elif stage.contiguity is Contiguity.NOT_FOLLOW and before is not None:
            waits = is_pattern and after is None and (stage.window is not None or stage.gap_window is not None)
            if waits or not may_end:  # otherwise the accepted event is a match
                yield from _not_followed_by_after_loop(before, stage)
            if after is not None:
                last = is_pattern and at + 2 == len(stages)
                yield from _spent_not(before, stage, after, last, ends and _may_be_left_out(stages[at + 2 :]))
        if stage.quantifier.greedy and stage.until is None and after is not None:
            # If a NOT stage precedes an omitted loop, the next stage may accept the events of the loop.
            left_out = stage.quantifier.optional and any(
                earlier.contiguity is Contiguity.NOT_FOLLOW for earlier in stages[:at]
            )
            if not left_out:
                yield from _greedy(stage, after)


def _not_next_after_loop(loop: Stage, forbidden: Stage) -> Iterator[Diagnostic]:
    """A loop whose optional events the next stage forbids. A relaxed loop that has skipped an event may continue."""
    quantifier = loop.quantifier
    strict = quantifier.inner is Contiguity.STRICT and loop.group is None and loop.until is None
    if _takes_more(loop) and not quantifier.greedy and strict and _implies(loop, forbidden):
        yield Diagnostic(
            forbidden.name,
            _no_more_than(loop, quantifier.at_least),
            f'Every further event matches not_next("{forbidden.name}"), which ends the partial match even if the loop '
            "can continue.",
            f'to match the longest run, make the loop greedy: .greedy().not_next("{forbidden.name}")',
        )


def _not_followed_by_after_loop(loop: Stage, forbidden: Stage) -> Iterator[Diagnostic]:
    """A loop whose events after the first are forbidden, unless a relaxed ``times(1, n)`` has skipped an event."""
    quantifier = loop.quantifier
    if loop.group is not None or not _implies(loop, forbidden):
        return
    restrictive = (
        quantifier.kind is QuantifierKind.LOOPING or quantifier.inner is Contiguity.STRICT or quantifier.at_least > 1
    )
    if restrictive and (quantifier.kind is QuantifierKind.LOOPING or quantifier.at_most > 1):
        never = quantifier.at_least > 1
        verb = f'not_followed_by("{forbidden.name}")'
        yield Diagnostic(
            forbidden.name,
            f'stage "{loop.name}" cannot take a second event' if never else _no_more_than(loop, 1),
            f"Every further event matches {verb}, which ends the partial match even if the loop can continue, greedy or not.",
            f'add a stage for the last event, with the same condition: .next("last").where("...").{verb}',
        )


def _no_more_than(loop: Stage, count: int) -> str:
    return f'the loop "{loop.name}" never takes more than {count:,} event{"s" * (count > 1)}'


def _spent_not(before: Stage, forbidden: Stage, after: Stage, last: bool, ends: bool) -> Iterator[Diagnostic]:
    """``a not_followed_by(n) z``. *last*: *after* is the last stage of the pattern; *ends*: a match may end with *after*."""
    first = _first(after)
    plain = _is_plain(before) and _is_plain(after)
    if plain and after.contiguity is Contiguity.STRICT and last:
        yield Diagnostic(
            forbidden.name,
            f'not_followed_by("{forbidden.name}") has no effect',
            f'No event can lie between "{before.name}" and the very next event, which next("{after.name}") requires.',
            f'use followed_by("{after.name}"), or remove the stage',
        )
    elif plain and after.contiguity is Contiguity.SKIP_TILL_NEXT and last and _implies(forbidden, after):
        yield Diagnostic(
            forbidden.name,
            f'not_followed_by("{forbidden.name}") has no effect',
            f'Every event that it forbids matches the last stage, "{after.name}", and completes the match.',
            f'exclude these events there: followed_by("{after.name}").where("NOT (...)")',
        )
    elif first is not None and _implies(first, forbidden):
        hint = f'exclude the events of "{first.name}" from not_followed_by("{forbidden.name}")'
        if not ends or _least(after) > 1:
            yield Diagnostic(
                forbidden.name,
                f'stage "{first.name}" cannot take any event',
                f'Every event that matches it is forbidden by not_followed_by("{forbidden.name}") before it.',
                hint,
            )
        elif after.group is None and _takes_more(after):
            yield Diagnostic(
                forbidden.name,
                _no_more_than(after, 1),
                f'Every event that matches it is forbidden by not_followed_by("{forbidden.name}") before it: '
                "the first event completes the match and ends the loop.",
                hint,
            )


def _is_plain(stage: Stage) -> bool:
    """Whether it is exactly one event."""
    quantifier = stage.quantifier
    once = quantifier.kind is QuantifierKind.SINGLE and not quantifier.optional
    return once and stage.group is None and not stage.contiguity.negated


def _takes_more(stage: Stage) -> bool:
    """Whether it may accept more events than its minimum."""
    return stage.quantifier.kind is QuantifierKind.LOOPING or stage.quantifier.at_least < stage.quantifier.at_most


def _may_be_left_out(stages: Sequence[Stage]) -> bool:
    return all(stage.quantifier.optional or stage.contiguity is Contiguity.NOT_FOLLOW for stage in stages)


def _first(stage: Stage) -> Stage | None:
    """The stage, here or inside of groups, that accepts the first event, if it is always the same."""
    while stage.group is not None and not stage.quantifier.optional:
        if stage.group.combination is not Combining.SEQUENCE:
            return None
        stage = stage.group.stages[0]
    return None if stage.quantifier.optional or stage.contiguity.negated else stage


def _least(stage: Stage) -> int:
    """The minimum number of events."""
    if stage.quantifier.optional or stage.contiguity.negated:
        return 0
    if stage.group is None:
        return stage.quantifier.at_least
    of_elements = min if stage.group.combination is Combining.ANY_OF else sum
    return stage.quantifier.at_least * of_elements(map(_least, stage.group.stages))


def _greedy(loop: Stage, after: Stage) -> Iterator[Diagnostic]:
    first = _first(after)
    if _takes_more(loop) and first is not None and _implies(first, loop):
        yield Diagnostic(
            first.name,
            f'stage "{first.name}" cannot take any event',
            f'The greedy loop "{loop.name}" before it takes every event that matches it, and there is no backtracking.',
            f'narrow the condition of "{loop.name}", or end the loop with until(...)',
        )


def _skip(pattern: PatternSequence) -> Iterator[Diagnostic]:
    first, skip = _first_of(pattern), pattern.skip
    target = next((stage for stage in pattern.atoms() if stage.name == skip.stage), None)
    if target is not None and target.contiguity.negated:
        yield Diagnostic(
            target.name,
            f'{skip.kind.value} "{target.name}" '
            + ("fails at the first match" if skip.throw_on_miss else "discards nothing"),
            "A match has no event of a stage that must not occur.",
            "name a stage that takes events, or use AfterMatchSkipStrategy.skip_past_last_event()",
        )
        return
    if first.name != skip.stage or first.group is not None or first.quantifier.optional:
        return
    if skip.kind is SkipKind.SKIP_TO_FIRST or first.quantifier.kind is QuantifierKind.SINGLE:
        thrown = skip.throw_on_miss
        then = "the query fails" if thrown else "nothing is discarded"
        yield Diagnostic(
            first.name,
            f'the first match fails the query: it cannot skip to its own first event, of stage "{first.name}"'
            if thrown
            else f'{skip.kind.value} "{first.name}" discards nothing',
            f"If a match skips to the event with which it begins, {then}.",
            "AfterMatchSkipStrategy.skip_to_next() discards partial matches that began with the same event",
        )


def _first_of(pattern: PatternSequence) -> Stage:
    """The first stage of a match."""
    return next(stage for stage in pattern.stages if stage.contiguity is not Contiguity.NOT_BEFORE)


def _parts_of_runs(pattern: PatternSequence) -> Iterator[Diagnostic]:
    """The longest loop as the whole pattern, which also begins with each later event of a run."""
    first = _first_of(pattern)
    overlaps = pattern.skip.kind in (SkipKind.NO_SKIP, SkipKind.SKIP_TO_NEXT) and not pattern.from_first
    if first is pattern.stages[-1] and first.quantifier.taking is Taking.LONGEST and _takes_more(first) and overlaps:
        yield Diagnostic(
            first.name,
            f'a run of the longest loop "{first.name}" gives several matches',
            "A match can begin with each event of a run, and overlapping matches are not discarded.",
            "add the skip strategy AfterMatchSkipStrategy.skip_past_last_event()",
        )


# ---------------------------------------------------------------------- costs on a stream


def _remembered(pattern: PatternSequence) -> Iterator[Diagnostic]:
    """What is stored for each key forever."""
    first = _first_of(pattern)
    absence = pattern.stages[0]
    if absence.contiguity is Contiguity.NOT_BEFORE and absence.window is None:
        yield Diagnostic(
            absence.name,
            f'begin_without("{absence.name}") has no time bound',
            f'A stream stores the last event of "{absence.name}" of each key forever.',
            f'bound the time before a match: begin_without("{absence.name}").where("...").within(...)',
        )
    if pattern.from_first:
        message, what = "starts_with_first_event() depends on all earlier events of a key", "each key"
        yield Diagnostic(first.name, message, f"A stream stores {what} forever.", "bound the number of keys")
    if pattern.skip.kind is SkipKind.FIRST_MATCH_ONLY:
        message, what = "first_match_only() depends on all earlier matches of a key", "each key that had its match"
        yield Diagnostic(first.name, message, f"A stream stores {what} forever.", "bound the number of keys")
    for stage in pattern.atoms():
        trees = [*_trees(stage.condition), *_trees(stage.until)]
        if any(tree.find(Previous) is not None for tree in trees):
            yield Diagnostic(
                stage.name,
                f'stage "{stage.name}" reads earlier events of the key by PREV',
                "Events that satisfy no condition cannot be skipped in advance, and a stream stores the last events of each key "
                "forever.",
                "LAST(stage.column) reads the events of the match",
            )
            break


def _decided_late(pattern: PatternSequence) -> Iterator[Diagnostic]:
    """Matches that may wait until the end of the input."""
    last = pattern.stages[-1]
    if pattern.to_last:
        yield Diagnostic(
            last.name,
            "ends_with_last_event() is decided at the end of the input",
            "A stream emits these matches when the query is drained.",
            "detect that no event follows for some time by not_followed_by(...).within(...)",
        )
    if pattern.effective_window is not None:
        return
    waits = last.quantifier.inner is not Contiguity.STRICT and last.until is None and last.gap_window is None
    if last.quantifier.taking is Taking.LONGEST and waits and last.quantifier.gap is None:
        yield Diagnostic(
            last.name,
            f'the longest loop "{last.name}" may be complete only at the end of the input',
            "No event ends the loop, and there is no time bound: on a stream, its matches wait until the query is drained.",
            "add consecutive(), until(...) or within(...)",
        )
    giving_back = next((loop for loop in pattern.atoms() if loop.quantifier.taking is Taking.GIVING_BACK), None)
    if giving_back is not None and _may_wait(pattern):
        yield Diagnostic(
            giving_back.name,
            f'matches of the loop "{giving_back.name}", which gives back, may wait until the end of the input',
            "A match waits until no partial match with the same first event is left; without a time bound, that may never be.",
            "add within(...), or use only next(...) and consecutive()",
        )


def _absent_after_loop(pattern: PatternSequence) -> Iterator[Diagnostic]:
    """``a+ not_followed_by(x)`` at the end: as in Flink, a loop is left with the event after its last one."""
    *_, loop, absence = [None, *pattern.stages]
    if loop is None or absence is None or absence.contiguity is not Contiguity.NOT_FOLLOW or loop.group is not None:
        return
    if _takes_more(loop):
        yield Diagnostic(
            absence.name,
            f'not_followed_by("{absence.name}") after the loop "{loop.name}" needs another event',
            f'A match that ends with the newest event of "{loop.name}" is found only if another event follows that the pattern '
            "sees.",
            f'add a stage for the last event, with the same condition: .followed_by("last").where("...")'
            f'.not_followed_by("{absence.name}")',
        )


def _may_wait(pattern: PatternSequence) -> bool:
    """Whether a partial match may skip any number of events."""
    stages = pattern.stages
    if any(stage.contiguity is not Contiguity.STRICT for stage in stages[1:]):
        return True
    return any(
        (stage.group is not None and _may_wait(stage.group))
        or (_takes_more(stage) and stage.quantifier.inner is not Contiguity.STRICT)
        for stage in stages
    )


# ---------------------------------------------------------------------- what follows from what


def _implies(stage: Stage, other: Stage) -> bool:
    """Whether the SQL shows that each event that satisfies *stage* also satisfies *other*."""
    return _parts(other.condition) <= _parts(stage.condition)


def _parts(condition: Condition | None) -> frozenset[Any]:
    """The operands of AND, without those that are always TRUE."""
    if condition is None:
        return frozenset()
    if isinstance(condition, AndCondition):
        return _parts(condition.left) | _parts(condition.right)
    if isinstance(condition, SqlCondition):
        tree = _tree(condition)
        if tree is not None:
            return frozenset(sql_of(part) for part in conjuncts(tree) if _truth(part, frozenset()) != {True})
    function = getattr(condition, "function", None)
    return frozenset([repr(condition) if function is None else (type(condition).__name__, id(function))])


def _tree(condition: SqlCondition) -> exp.Expr | None:
    try:
        tree = parse(condition.text)
    except ExpressionError:
        return None  # reported when the pattern is bound to a schema
    return None if isinstance(tree, exp.Alias) else tree


def _trees(condition: Condition | None) -> list[exp.Expr]:
    """The SQL in a condition."""
    trees = [_tree(leaf) for leaf in leaves_of(condition) if isinstance(leaf, SqlCondition)]
    return [tree for tree in trees if tree is not None]


# ---------------------------------------------------------------------- conditions over events that do not exist yet


def _conditions(
    pattern: PatternSequence, later: frozenset[str] = frozenset(), round_later: frozenset[str] | None = None
) -> Iterator[Diagnostic]:
    """Conditions that cannot be satisfied, because a stage that they refer to has no event yet.

    :param later: the stages that follow the group
    :param round_later: the stages that follow in the same repetition of a repeated group: none of them has an event before a
        required stage of the first repetition; None: nothing repeats
    """
    names = [frozenset(atom.name for atom in PatternSequence((stage,)).atoms()) for stage in pattern.stages]
    for at, stage in enumerate(pattern.stages):
        # Any element may be the last one in any order. Of alternatives, only one has events in each repetition.
        in_any_order = pattern.combination is Combining.IN_ANY_ORDER
        after = frozenset[str]() if in_any_order else frozenset[str]().union(*names[at + 1 :])
        following, in_round = (later | after, None) if round_later is None else (later, round_later | after)
        if in_round is not None and (stage.quantifier.optional or pattern.combination is Combining.ANY_OF):
            in_round = frozenset()  # it may be absent in the first repetition
        if stage.group is not None:
            repeats = stage.quantifier.kind is QuantifierKind.LOOPING or stage.quantifier.at_most > 1
            inside = frozenset[str]() if in_round is None and repeats else in_round
            yield from _conditions(stage.group, following, inside)
            continue
        empty = following | {stage.name}
        if in_round is not None and not stage.contiguity.negated:
            empty |= in_round
        if stage.condition is not None and True not in _values_of(stage.condition, empty):
            yield _never_true(stage, empty)
        if stage.until is not None and following and True not in _values_of(stage.until, following):
            yield Diagnostic(
                stage.name,
                f'the until condition of stage "{stage.name}" never ends the loop',
                f"It reads events of {_quoted(_mentioned(stage.until, following))}; there are none yet, so the value is NULL.",
                "read earlier stages, or the current event",
            )


def _never_true(stage: Stage, empty: frozenset[str]) -> Diagnostic:
    assert stage.condition is not None
    mentioned = _mentioned(stage.condition, empty)
    reads_itself = stage.name in mentioned and not stage.contiguity.negated
    says = f"It reads events of {_quoted(mentioned)}; there are none" + (" at first" if reads_itself else " yet")
    detail = f"{says}, so the value is NULL." if mentioned else "It does not depend on the events."
    if stage.contiguity.negated:
        message = f'stage "{stage.name}" forbids nothing: its condition is never TRUE'
        hint = "read the current event, or earlier stages"
    else:
        message = f'stage "{stage.name}" cannot take any event: its condition is never TRUE'
        hint = "read earlier stages" if mentioned else "read the current event, or earlier stages"
    if reads_itself:
        hint = f'add a condition for the first event: "... OR COUNT({stage.name}.*) = 0", or coalesce(LAST({stage.name}.x), ...)'
    return Diagnostic(stage.name, message, detail, hint)


def _quoted(names: Sequence[str]) -> str:
    return " and ".join(f'"{name}"' for name in names)


def _mentioned(condition: Condition, stages: frozenset[str]) -> list[str]:
    return sorted({column.table for tree in _trees(condition) for column in tree.find_all(exp.Column)} & stages)


Truth = frozenset[bool | None]
"""The possible values of a condition for unknown events: TRUE, FALSE, NULL."""
_ANY: Truth = frozenset({True, False, None})
_NULL: Truth = frozenset({None})
_STRICT = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.RegexpLike, exp.Add, exp.Sub, exp.Mul, exp.Div,
    exp.Mod, exp.IntDiv, exp.Neg, exp.DPipe, exp.Cast, exp.TryCast,
)  # fmt: skip
"""Expressions that are NULL if an operand is. All functions are, except conditional ones."""
_CHOOSING = "Choices and NULL"
_COMPARED: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq, exp.NEQ: operator.ne, exp.LT: operator.lt, exp.LTE: operator.le, exp.GT: operator.gt,
    exp.GTE: operator.ge,
}  # fmt: skip


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
    """The possible truth values; a condition that is NULL is not satisfied."""
    return frozenset(bool(value) for value in _values_of(condition, empty))


def _truth(node: exp.Expr, empty: frozenset[str]) -> Truth:
    """The possible values of *node* if the stages *empty* have no event."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return reduce(_and, (_truth(part, empty) for part in node.flatten()))
    if isinstance(node, exp.Or):
        return _not(reduce(_and, (_not(_truth(part, empty)) for part in node.flatten())))
    if isinstance(node, exp.Not):
        return _not(_truth(node.this, empty))
    if isinstance(node, exp.Boolean):
        return frozenset({bool(node.this)})
    if isinstance(node, exp.Between):
        return _and(*(_compares(node.this, bound, empty) for bound in _bounds(node)))
    choices = _choices(node, empty)
    if choices is not None:
        return frozenset[bool | None]().union(*(_truth(choice, empty) for choice in choices))
    if type(node) in _COMPARED and isinstance(node.this, exp.Literal) and isinstance(node.expression, exp.Literal):
        return _compared(_COMPARED[type(node)], node.this, node.expression)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null) and _is_null(node.this, empty):
        return frozenset({True})
    return _NULL if _is_null(node, empty) else _ANY


def _is_null(node: exp.Expr, empty: frozenset[str]) -> bool:
    """Whether it is certainly NULL."""
    node = node.unnest()
    if isinstance(node, exp.Null):
        return True
    if isinstance(node, exp.Column):
        return node.table in empty
    if type(node) in AGGREGATES and not isinstance(node, exp.Count):
        columns = list(node.find_all(exp.Column))
        return bool(columns) and all(column.table in empty for column in columns)
    if isinstance(node, exp.Between):
        return _is_null(node.this, empty) or all(_is_null(bound, empty) for bound in _bounds(node))
    if isinstance(node, exp.In):
        return _is_null(node.this, empty) or (
            bool(node.expressions) and all(_is_null(each, empty) for each in node.expressions)
        )
    choices = _choices(node, empty)
    if choices is not None:
        return all(_is_null(choice, empty) for choice in choices)
    if isinstance(node, exp.Anonymous):
        function = FUNCTIONS.get(node.name.lower())
        strict = function is not None and function.group != _CHOOSING and function.strict
        return strict and any(_is_null(argument, empty) for argument in node.expressions)
    if type(node) in _STRICT:
        return any(_is_null(part, empty) for part in node.iter_expressions())
    return False


def _bounds(node: exp.Between) -> tuple[exp.Expr, exp.Expr]:
    return node.args["low"], node.args["high"]


def _choices(node: exp.Expr, empty: frozenset[str]) -> list[exp.Expr] | None:
    """The possible results of an IF or a CASE; None: it is another expression."""
    operand: exp.Expr | None = None
    if isinstance(node, exp.Case):
        operand, default = node.this, node.args.get("default") or exp.Null()
        cases = [(case.this, case.args["true"]) for case in node.args["ifs"]]
    elif isinstance(node, exp.Anonymous) and node.name.lower() == "if" and len(node.expressions) == 3:
        cases, default = [(node.expressions[0], node.expressions[1])], node.expressions[2]
    else:
        return None
    values = []
    for condition, value in cases:
        truth = _truth(condition, empty) if operand is None else _compares(operand, condition, empty)
        if True in truth:
            values.append(value)
        if truth == {True}:
            return values
    return [*values, default]


def _compares(left: exp.Expr, right: exp.Expr, empty: frozenset[str]) -> Truth:
    return _NULL if _is_null(left, empty) or _is_null(right, empty) else _ANY


def _compared(compare: Callable[[Any, Any], bool], left: exp.Literal, right: exp.Literal) -> Truth:
    if left.is_string and right.is_string:
        return frozenset({compare(left.name, right.name)})
    if left.is_string or right.is_string:
        return _ANY
    return frozenset({compare(Decimal(left.name), Decimal(right.name))})


def _not(values: Truth) -> Truth:
    return frozenset(None if value is None else not value for value in values)


def _and(left: Truth, right: Truth) -> Truth:
    return frozenset(
        False if a is False or b is False else None if a is None or b is None else True for a in left for b in right
    )
