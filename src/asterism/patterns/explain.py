"""A pattern as text: its stages, then its automaton."""

from __future__ import annotations

from collections.abc import Iterator

from asterism.errors import printable
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import Condition
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import Contiguity, PatternSequence, Stage
from asterism.patterns.warnings import costs, diagnose
from asterism.patterns.wording import (
    condition_text,
    quantifier_words,
    skip_words,
    stage_words,
    whole_words,
    window_words,
)
from asterism.text.printable import duration

MAX_STATES = 200
"""Maximum number of printed states: more than a person reads, less than a terminal can hold."""


def explain(pattern: PatternSequence, semantics: Semantics = Semantics.DEFAULT) -> str:
    """See :meth:`asterism.patterns.pattern.Pattern.explain`."""
    nfa = compile_pattern(pattern, semantics)
    warnings = [printable(f"warning: {warning}") for warning in diagnose(pattern)]
    warnings += [printable(f"note: {note}") for note in costs(pattern)]
    return "\n".join(
        [describe(pattern), *warnings, "", f"automaton ({semantics.value} semantics)", nfa.explain(limit=MAX_STATES)]
    )


def describe(pattern: PatternSequence) -> str:
    """The stages, windows and skip strategy of a pattern, which may be incomplete.

    >>> print(describe(PatternSequence.begin("a").where("x > 1").followed_by("b").one_or_more().until("y = 2")))
    1. begin "a": once
         where x > 1
    2. followed by "b": 1 or more times, relaxed
         any event
         until y = 2
    after a match: NO_SKIP: nothing is discarded
    """
    lines = list(_chain(pattern, ""))
    window = window_words(pattern)
    if window is not None:
        lines.append(f"window: {window} from first to last event")
    lines += whole_words(pattern)
    lines.append(f"after a match: {skip_words(pattern)}")
    return "\n".join(lines)


def _chain(pattern: PatternSequence, prefix: str) -> Iterator[str]:
    indent = "   " * prefix.count(".")
    for number, stage in enumerate(pattern.stages, 1):
        place = f"{prefix}{number}"
        often = "" if stage.contiguity.negated else f": {quantifier_words(stage.quantifier)}"
        yield f"{indent}{place}. {stage_words(stage, number == 1, pattern.combination)}{often}"
        if stage.group is not None:
            yield from _chain(stage.group, place + ".")
        yield from (f"{indent}{' ' * len(place)}  {line}" for line in _details(stage))


def _details(stage: Stage) -> Iterator[str]:
    if stage.condition is not None:
        yield from _condition("where", stage.condition)
    elif stage.group is None:
        yield "  any event"
    if stage.until is not None:
        yield from _condition("until", stage.until)
    inclusive = ", inclusive" if stage.inclusive else ""
    if stage.contiguity is Contiguity.NOT_BEFORE:
        time = f"within {duration(stage.window)}" if stage.window is not None else "at any time"
        yield f"  {time} before the match{inclusive}"
    elif stage.window is not None:
        yield f"  within {duration(stage.window)} of the first event of the match{inclusive}"
    if stage.gap_window is not None:
        yield f"  within {duration(stage.gap_window)} of the event before{inclusive}"


def _condition(word: str, condition: Condition) -> Iterator[str]:
    first, *rest = condition_text(condition).splitlines() or [""]
    yield f"  {word} {first}"
    yield from (f"  {' ' * len(word)} {line}" for line in rest)
