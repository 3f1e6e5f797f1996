"""Which of the discovered processors come into the next set: a function without threads and files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from asterism.arguments import described
from asterism.errors import AsterismError, PatternProcessorError, VersionConflictError
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor, Slot, by_slot, fits
from asterism.rules.sets.interfaces import Discovered, RefusedProcessor, duplicate, refusal, slots_of
from asterism.rules.sets.kill_list import is_named
from asterism.rules.sets.sets import ProcessorSet, next_versions
from asterism.rules.sets.used_versions import UsedVersions

MAX_WAITING = 100
"""How many versions of a rule may wait for their timestamps before another one."""
Check = Callable[[PatternProcessor, bool], AsterismError | None]
"""The reason why a query cannot use a processor; the second argument is whether the set before has it."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """:param listed: the versions of the next set, those of a rule in the order in which they come into force"""

    listed: Sequence[PatternProcessor]
    refused: Sequence[RefusedProcessor]


class ProcessorChecks:
    """Whether a query can use processors. Each definition is tried out once."""

    def __init__(self, compiler: ProcessorCompiler) -> None:
        self._compiler = compiler
        self._errors: dict[str, AsterismError | None] = {}
        """The results, by the texts of processors."""

    def error(self, new: PatternProcessor, was_accepted: bool) -> AsterismError | None:
        """The reason why *new* cannot be used."""
        if was_accepted and self._compiler.knows(new):
            self._errors[new.text] = None  # it was valid when it was accepted, perhaps by an earlier run
        elif new.text not in self._errors:
            try:
                self._compiler.try_out(new)
                self._errors[new.text] = None
            except Exception as error:
                self._errors[new.text] = as_error(error)
        return self._errors[new.text]

    def forget_others(self, discovered: Iterable[Discovered]) -> None:
        """Forget the results of all processors that are not among *discovered*."""
        texts = {processor.text for processor in discovered if isinstance(processor, PatternProcessor)}
        self._errors = {text: error for text, error in self._errors.items() if text in texts}


def accept(
    before: ProcessorSet,
    discovered: Sequence[Discovered],
    left_out: Collection[str],
    used: UsedVersions,
    check: Check,
    event_time: Callable[[], int],
) -> Acceptance:
    """Decide which discovered processors come into the set after *before*. For each name, the last refusal counts.

    :param left_out: the names of killed processors, and of those that this run leaves out; these are not checked, and stay
    :param used: the versions that were ever accepted
    :param check: the reason why a query cannot use a processor
    :param event_time: the event time that all key groups have reached, in microseconds; it is only needed for a rule with many
        versions
    """
    known = by_slot(before.listed)
    accepted: dict[Slot, list[PatternProcessor]] = {}
    unusable: dict[Slot, set[int]] = {}
    """Versions of the set before that stay, because their replacements cannot be used."""
    unknown: set[Slot] = set()
    """Slots of which all versions of the set before stay, because it is not known which of them cannot be used."""
    order: dict[Slot, None] = {}
    refused: dict[str, RefusedProcessor] = {}
    definitions = {(processor.id, processor.version): processor for processor in before.all_processors}
    for candidate in discovered:
        if isinstance(candidate, PatternProcessor) and not fits(candidate, accepted.get(candidate.slot, ())):
            candidate = duplicate(candidate, accepted[candidate.slot], accepted[candidate.slot][0].place)
        elif isinstance(candidate, PatternProcessor) and not is_named(candidate, left_out):
            same = definitions.get((candidate.id, candidate.version))
            error = _conflict(candidate, same) or check(candidate, same is not None)
            if error is None and same is None:
                others = accepted.get(candidate.slot, ())
                error = used.check(candidate) or _check_waiting(before, candidate, others, event_time)
            if error is None:
                accepted.setdefault(candidate.slot, []).append(candidate)
                order[candidate.slot] = None
                continue
            candidate = refusal(candidate, error)
        # A rule that is left out stays in the set as killed. A newer version is checked when the rule is allowed again.
        if isinstance(candidate, RefusedProcessor):
            refused[candidate.name] = candidate
        for slot in slots_of(candidate):
            if slot in known:
                order[slot] = None
                if candidate.version in {processor.version for processor in known[slot]}:
                    unusable.setdefault(slot, set()).add(candidate.version)
                else:
                    unknown.add(slot)
    if any(isinstance(candidate, RefusedProcessor) and candidate.unidentified for candidate in discovered):
        # The unidentified rule may be any of the missing ones.
        order, unknown = dict.fromkeys([*known, *order]), {*known}
    after: dict[Slot, list[PatternProcessor]] = {}
    for slot in order:
        new, former = accepted.get(slot, []), known.get(slot, [])
        all_stay = slot in unknown and {processor.version for processor in new} <= {
            processor.version for processor in former
        }
        kept = [processor for processor in former if all_stay or processor.version in unusable.get(slot, ())]
        after[slot] = _in_turn(new, kept)
    for wrong in _remove_shadows_in_force(after, accepted):
        refused[wrong.name] = wrong
    return Acceptance([processor for versions in after.values() for processor in versions], list(refused.values()))


def _remove_shadows_in_force(
    after: Mapping[Slot, list[PatternProcessor]], accepted: Mapping[Slot, Sequence[PatternProcessor]]
) -> list[RefusedProcessor]:
    """Remove the shadows of a version that is itself in the set. Returns those of them that were accepted now, refused."""
    refused = []
    for (id, shadow), versions in after.items():
        in_force = {processor.version for processor in after.get((id, False), ())} if shadow else set()
        for processor in [processor for processor in versions if processor.version in in_force]:
            versions.remove(processor)
            if processor in accepted.get(processor.slot, ()) and not processor.of_shadow_template:
                problem = f"version {processor.version} is in force, so it cannot be a shadow, too"
                error = PatternProcessorError(problem, hint="remove the shadow, or raise its version")
                refused.append(refusal(processor, error))
    return refused


def _conflict(new: PatternProcessor, former: PatternProcessor | None) -> AsterismError | None:
    """:param former: the processor in the last set with the same id and version"""
    if former is None or new.has_definition_of(former):
        return None
    return VersionConflictError(
        f"its definition has changed, but its version has not ({new.version})",
        hint="raise the version; the partial matches of the old version are then dropped",
    )


def _check_waiting(
    before: ProcessorSet, new: PatternProcessor, others: Sequence[PatternProcessor], event_time: Callable[[], int]
) -> AsterismError | None:
    """:param others: versions of the rule that come into force, too"""
    former = sum(version.processor.slot == new.slot for version in before.earlier)
    if new.timestamp is None or former + len(others) < MAX_WAITING:
        return None
    _, earlier, _ = next_versions(before, _in_turn([*others, new], ()), event_time())
    if sum(version.processor.timestamp is not None for version in earlier) < MAX_WAITING:
        return None
    return PatternProcessorError(
        f"{MAX_WAITING} earlier versions wait for their timestamps",
        "All of them come into force in turn.",
        "publish the version again when event time has reached the first of them; or publish one without a timestamp, "
        "which withdraws them",
    )


def _in_turn(accepted: Sequence[PatternProcessor], kept: Iterable[PatternProcessor]) -> list[PatternProcessor]:
    """Versions of a rule in the order in which they come into force: the *accepted* ones, and the *kept* ones that fit."""
    versions = list(accepted)
    for processor in kept:
        if fits(processor, versions):
            versions.append(processor)
    return sorted(versions, key=attrgetter("version"))


def as_error(error: Exception) -> AsterismError:
    """Wrap any exception, so that a failing rule does not affect others."""
    if isinstance(error, AsterismError):
        return error
    return PatternProcessorError("the pattern processor cannot be used", described(error))
