"""Human-readable descriptions of patterns, shared by :mod:`asterism.patterns.explain`, the drawing and the trace."""

from __future__ import annotations

import re
from datetime import timedelta

from asterism.arguments import function_name
from asterism.errors import printable
from asterism.patterns.conditions import (
    AbsentBeforeCondition,
    AndCondition,
    Condition,
    FirstEventCondition,
    NamedCondition,
    NotCondition,
    OrCondition,
    SqlCondition,
)
from asterism.patterns.sequence import (
    Combining,
    Contiguity,
    PatternSequence,
    Quantifier,
    QuantifierKind,
    SkipKind,
    Stage,
    Taking,
    exclusive,
)
from asterism.text.printable import duration

CONTIGUITY = {
    Contiguity.STRICT: "next",
    Contiguity.SKIP_TILL_NEXT: "followed by",
    Contiguity.SKIP_TILL_ANY: "followed by any",
    Contiguity.NOT_NEXT: "not next",
    Contiguity.NOT_FOLLOW: "not followed by",
    Contiguity.NOT_BEFORE: "begin without",
}
"""The contiguity between two stages."""

INNER = {
    Contiguity.STRICT: "consecutive",
    Contiguity.SKIP_TILL_NEXT: "relaxed",
    Contiguity.SKIP_TILL_ANY: "combinations",
}
"""The contiguity between repetitions."""

SKIP = {
    SkipKind.NO_SKIP: "nothing is discarded",
    SkipKind.SKIP_TO_NEXT: "partial matches that began with the same event are discarded",
    SkipKind.SKIP_PAST_LAST_EVENT: "partial matches that began up to its last event are discarded",
    SkipKind.SKIP_TO_FIRST: "partial matches that began before its first event of {stage} are discarded",
    SkipKind.SKIP_TO_LAST: "partial matches that began before its last event of {stage} are discarded",
    SkipKind.FIRST_MATCH_ONLY: "all further matches of the key are discarded",
}

TAKING = {
    Taking.ALL: "",
    Taking.GREEDY: "greedy",
    Taking.GIVING_BACK: "greedy, gives back",
    Taking.LONGEST: "longest",
    Taking.RELUCTANT: "reluctant",
}
"""How many events a loop accepts."""


def condition_text(condition: Condition) -> str:
    """A condition as text.

    >>> condition_text(OrCondition(SqlCondition("x > 1"), NotCondition(SqlCondition("y = 2"))))
    'x > 1 OR NOT (y = 2)'
    """
    match condition:
        case SqlCondition(text):
            return printable(text.strip())
        case AndCondition() | OrCondition():
            word = "AND" if isinstance(condition, AndCondition) else "OR"
            return f" {word} ".join(_operand_text(part) for part in operands(condition))
        case NotCondition(inner):
            return f"NOT ({condition_text(inner)})"
        case NamedCondition(name, arguments):
            return printable(f"{name}({', '.join(map(repr, arguments))})")
        case FirstEventCondition():
            return "first event of the key"
        case AbsentBeforeCondition(stage):
            return f"no {printable(stage)} before"
    function = getattr(condition, "function", None)
    if function is None:
        return type(condition).__name__
    return "Python " + printable(function_name(function))


def _operand_text(condition: Condition) -> str:
    text = condition_text(condition)
    if isinstance(condition, AndCondition | OrCondition) or re.search(r"\b(AND|OR)\b", text, flags=re.IGNORECASE):
        return f"({text})"
    return text


def operands(condition: AndCondition | OrCondition) -> list[Condition]:
    """The operands of a chain of one connective: ``where`` after ``where`` nests to the left, as deep as the chain is long."""
    parts: list[Condition] = []
    at: Condition = condition
    while isinstance(at, AndCondition | OrCondition) and type(at) is type(condition):
        parts.append(at.right)
        at = at.left
    return [at, *reversed(parts)]


def count_text(quantifier: Quantifier) -> str:
    """The quantifier in a few characters; empty: once.

    >>> a = PatternSequence.begin("a")
    >>> [count_text(p.stages[0].quantifier) for p in (a, a.times(2, 4).optional(), a.one_or_more(), a.optional())]
    ['', '2..4 or 0', '1+', '?']
    """
    match quantifier.kind:
        case QuantifierKind.SINGLE:
            return "?" if quantifier.optional else ""
        case QuantifierKind.LOOPING:
            often = f"{quantifier.at_least}+"
        case QuantifierKind.TIMES:
            low, high = quantifier.at_least, quantifier.at_most
            often = str(low) if low == high else f"{low}..{high}"
    return f"{often} or 0" if quantifier.optional else often


def repeats(quantifier: Quantifier) -> bool:
    """Whether it can occur more than once."""
    return quantifier.kind is QuantifierKind.LOOPING or quantifier.at_most > 1


def quantifier_words(quantifier: Quantifier) -> str:
    """
    >>> from datetime import timedelta
    >>> loop = PatternSequence.begin("a").times_or_more(3, within=timedelta(seconds=5)).consecutive()
    >>> quantifier_words(loop.stages[0].quantifier)
    '3 or more times, consecutive, less than 5 s apart'
    """
    low, high = quantifier.at_least, quantifier.at_most
    if quantifier.kind is QuantifierKind.SINGLE or (quantifier.kind is QuantifierKind.TIMES and high == 1):
        often = "once"
    elif quantifier.kind is QuantifierKind.LOOPING:
        often = f"{low} or more times"
    else:
        often = f"{low} times" if low == high else f"{low} to {high} times"
    if quantifier.optional:
        often += " or not at all"
    return ", ".join([often, *loop_words(quantifier)])


def loop_words(quantifier: Quantifier) -> list[str]:
    """The description of repetitions."""
    words = [INNER[quantifier.inner]] if repeats(quantifier) else []
    if quantifier.taking is not Taking.ALL:
        words.append(TAKING[quantifier.taking])
    if quantifier.gap is not None:
        words.append(f"less than {duration(quantifier.gap)} apart")
    return words


def stage_words(stage: Stage, first: bool, combination: Combining = Combining.SEQUENCE) -> str:
    """The contiguity and name of a stage: ``followed by "b"``; for the *first* of a chain, ``begin``.

    :param combination: of the chain or group that the stage is in

    >>> pattern = PatternSequence.begin("a").followed_by(PatternSequence.any_of("b", "c"))
    >>> stage_words(pattern.stages[1], False)
    'followed by one of (b | c)'
    """
    if combination is not Combining.SEQUENCE:
        follows = "alternative" if combination is Combining.ANY_OF else "element"
    else:
        follows = "begin" if first and not stage.contiguity.negated else CONTIGUITY[stage.contiguity]
    name = printable(stage.name)
    if stage.group is None:
        return f'{follows} "{name}"'
    kind, order = group_words(stage.group)
    return f"{follows} {kind} {name}{order}"


def group_words(group: PatternSequence) -> tuple[str, str]:
    """How the elements of a group belong together: the words before and after them."""
    match group.combination:
        case Combining.SEQUENCE:
            return "group", ""
        case Combining.ANY_OF:
            return "one of", ""
    strict = group.stages[0].contiguity is Contiguity.STRICT
    return "all of", " in any order" + (", consecutive" if strict else "")


def window_words(pattern: PatternSequence) -> str | None:
    """The smallest window from first to last event, without those of groups.

    >>> from datetime import timedelta
    >>> window_words(PatternSequence.begin("a").next("b").within(timedelta(minutes=5), inclusive=True))
    'at most 5 min'
    """
    bounded = [s for s in pattern.stages if s.window is not None and s.contiguity is not Contiguity.NOT_BEFORE]
    smallest = min(bounded, key=lambda stage: exclusive(stage, stage.window) or timedelta.max, default=None)
    if smallest is None or smallest.window is None:
        return None
    return ("at most " if smallest.inclusive else "less than ") + duration(smallest.window)


def whole_words(pattern: PatternSequence) -> list[str]:
    """What applies to the pattern as a whole, except for its window and skip strategy."""
    words = ["begins with the first event of the key"] if pattern.from_first else []
    words += ["ends with the last event of the key"] if pattern.to_last else []
    return words + [f'subset "{printable(name)}": {printable(", ".join(stages))}' for name, stages in pattern.subsets]


def skip_words(pattern: PatternSequence) -> str:
    skip = pattern.skip
    words = f"{skip.kind.value}: " + SKIP[skip.kind].format(stage=f'"{printable(skip.stage or "")}"')
    return words + (", and the match must have such an event" if skip.throw_on_miss else "")
