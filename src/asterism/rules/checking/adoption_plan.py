"""What a version of a rule adopts of another one, before anything happens, by the stages of partial matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from asterism.changes.automata import AutomatonChange, StoredAutomaton
from asterism.changes.partial_matches import PARTIAL
from asterism.changes.plan import CONTINUES, DROPPED, PlanPart, described
from asterism.errors import AsterismError
from asterism.matching.stored_matches import CHANGE, described_automaton, described_edges
from asterism.patterns.automaton import Nfa
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.automaton import AT_START, compiled_pattern
from asterism.row_patterns.operator import parts_of
from asterism.rules.binding.clauses import clause_of
from asterism.rules.definition.processor import ANY_VERSION, PatternProcessor
from asterism.rules.matching.adoption import OTHER_FORM
from asterism.rules.matching.changed_searches import AGAIN, SEARCHES

_SHOWN = 5


def adopted_version(new: PatternProcessor, versions: Iterable[PatternProcessor]) -> PatternProcessor | None:
    """The version that *new* would replace, and adopt: the one that it names, or the highest lower one; None: it is not known."""
    of_id = [each for each in versions if each.id == new.id]
    if new.adopt != ANY_VERSION:
        return next((each for each in of_id if each.version == new.adopt), None)
    lower = [each for each in of_id if each.version < new.version and (new.shadow or not each.shadow)]
    return max(lower, key=lambda each: each.version, default=None)


def adoption_parts(new: PatternProcessor, old: PatternProcessor, semantics: Semantics) -> Sequence[PlanPart]:
    """What becomes of partial matches of *old*, by the stage of their last event; or of its searches, as far as the columns of
    the events do not matter.
    """
    if (new.pattern is None) != (old.pattern is None):
        return [PlanPart(PARTIAL, "", "", DROPPED, OTHER_FORM)]
    if new.pattern is None:
        return [_searches(new, old)]
    if None not in (new.key, old.key) and new.key != old.key:  # without one it is that of the stream
        return [PlanPart(PARTIAL, "", "", DROPPED, "it groups the events by another key")]
    try:
        before, after = (compile_pattern(each.pattern, semantics) for each in (old, new) if each.pattern is not None)
    except AsterismError:
        return [PlanPart(PARTIAL, "", "", DROPPED, "the former version cannot be used any more")]
    return AutomatonChange(_stored(before), _stored(after), {}).fates(PARTIAL)


def adoption_text(new: PatternProcessor, old: PatternProcessor, semantics: Semantics) -> str:
    """The parts as a sentence."""
    parts = adoption_parts(new, old, semantics)
    dropped = [part for part in parts if part.outcome == DROPPED]
    what = f"the {'partial matches' if parts[0].what == PARTIAL else 'undecided searches'} of version {old.version}"
    if not dropped:
        return f"adopts {what}"
    shown = "; ".join(described(part).removeprefix(part.what).strip(": ") for part in dropped[:_SHOWN])
    more = f"; and {len(dropped) - _SHOWN} more" if len(dropped) > _SHOWN else ""
    none = len(dropped) == len(parts)
    return f"{'adopts none of' if none else 'adopts'} {what}{': ' if none else ', not those '}{shown}{more}"


def _searches(new: PatternProcessor, old: PatternProcessor) -> PlanPart:
    try:
        before, after = (clause_of(each).clause for each in (old, new))
        is_anchored = bool((compiled_pattern(after).edges[:, 1] & AT_START).any())
    except AsterismError:
        return PlanPart(SEARCHES, "", "", DROPPED, "the former version cannot be used any more")
    parts = parts_of(before), parts_of(after)
    for name in ("PARTITION BY", "ORDER BY"):
        if parts[0][name] != parts[1][name]:
            return PlanPart(SEARCHES, "", "", DROPPED, f"{name} changed")
    if is_anchored and parts[0]["PATTERN"] != parts[1]["PATTERN"]:
        return PlanPart(SEARCHES, "", "", DROPPED, "the new pattern begins with ^")
    return PlanPart(SEARCHES, "", "", CONTINUES, AGAIN)


def _stored(nfa: Nfa) -> StoredAutomaton:
    return StoredAutomaton.of_details({**described_automaton(nfa), CHANGE: described_edges(nfa)})
