"""Which of the processors that a discoverer found come into the next set: a function without threads and files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from asterism.arguments import described
from asterism.errors import AsterismError, PatternProcessorError, VersionConflictError
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor, Slot, fits
from asterism.rules.sets.interfaces import Discovered, RefusedProcessor, duplicate, slots_of
from asterism.rules.sets.kill_list import is_named
from asterism.rules.sets.sets import ProcessorSet, next_versions
from asterism.rules.sets.used_versions import UsedVersions

MAX_WAITING = 100
"""How many versions of a rule may wait for their timestamps before another one."""
Check = Callable[[PatternProcessor, bool], AsterismError | None]
"""The reason why a query cannot use a processor; the second argument is whether the set before has it."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """
    :param listed: the versions of the next set, those of a rule in the order in which they come into force
    """

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

    def forget_others(self, found: Iterable[Discovered]) -> None:
        """Forget the results of all processors that are not among *found*."""
        texts = {item.text for item in found if isinstance(item, PatternProcessor)}
        self._errors = {text: error for text, error in self._errors.items() if text in texts}


def accept(
    before: ProcessorSet,
    discovered: Sequence[Discovered],
    left_out: Collection[str],
    used: UsedVersions,
    check: Check,
    event_time: Callable[[], int],
) -> Acceptance:
    """What of the processors that were discovered comes into the set after *before*. For each name, the last refusal counts.

    :param left_out: the names of killed processors, and of those that this run leaves out; these are not checked, and stay
    :param used: the versions that were ever accepted
    :param check: the reason why a query cannot use a processor
    :param event_time: the event time that all key groups have reached, in microseconds; it is only needed for a rule with many
        versions
    """
    known: dict[Slot, list[PatternProcessor]] = {}
    for one in before.listed:
        known.setdefault(one.slot, []).append(one)
    accepted: dict[Slot, list[PatternProcessor]] = {}
    unusable: dict[Slot, set[int]] = {}
    """Versions of the set before that stay, because what has taken their place cannot be used."""
    unknown: set[Slot] = set()
    """Slots of which all versions of the set before stay, because it is not known which of them cannot be used."""
    order: dict[Slot, None] = {}
    refused: dict[str, RefusedProcessor] = {}
    definitions = {(one.id, one.version): one for one in before.all_processors}
    for item in discovered:
        if isinstance(item, PatternProcessor) and not fits(item, accepted.get(item.slot, ())):
            item = duplicate(item, accepted[item.slot], accepted[item.slot][0].place)
        elif isinstance(item, PatternProcessor) and not is_named(item, left_out):
            same = definitions.get((item.id, item.version))
            error = _conflict(item, same) or check(item, same is not None)
            if error is None and same is None:
                others = accepted.get(item.slot, ())
                error = used.check(item) or _check_waiting(before, item, others, event_time)
            if error is None:
                accepted.setdefault(item.slot, []).append(item)
                order[item.slot] = None
                continue
            item = refusal(item, error)
        # One that is left out stays in the set as killed. A newer version is checked when it is allowed again.
        if isinstance(item, RefusedProcessor):
            refused[item.name] = item
        for slot in slots_of(item):
            if slot in known:
                order[slot] = None
                if item.version in {one.version for one in known[slot]}:
                    unusable.setdefault(slot, set()).add(item.version)
                else:
                    unknown.add(slot)
    if any(isinstance(item, RefusedProcessor) and item.unidentified for item in discovered):
        # The item may be any of the missing processors.
        order, unknown = dict.fromkeys([*known, *order]), {*known}
    after: dict[Slot, list[PatternProcessor]] = {}
    for slot in order:
        own, former = accepted.get(slot, []), known.get(slot, [])
        all_stay = slot in unknown and {one.version for one in own} <= {one.version for one in former}
        kept = [one for one in former if all_stay or one.version in unusable.get(slot, ())]
        after[slot] = _in_turn(own, kept)
    for (id, shadow), versions in [*after.items()]:
        in_force = {one.version for one in after.get((id, False), ())} if shadow else set()
        for one in [one for one in versions if one.version in in_force]:
            versions.remove(one)
            if one in accepted.get(one.slot, ()) and not one.of_shadow_template:
                wrong = _refused_shadow(one)
                refused[wrong.name] = wrong
    return Acceptance([one for versions in after.values() for one in versions], list(refused.values()))


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
    """The reason why *new* cannot wait for its time, too.

    :param others: versions of the rule that come into force, too
    """
    former = sum(one.processor.slot == new.slot for one in before.earlier)
    if new.timestamp is None or former + len(others) < MAX_WAITING:
        return None
    _, earlier, _ = next_versions(before, _in_turn([*others, new], ()), event_time())
    if sum(one.processor.timestamp is not None for one in earlier) < MAX_WAITING:
        return None
    return PatternProcessorError(
        f"{MAX_WAITING} earlier versions wait for their timestamps",
        "All of them come into force in turn.",
        "publish the version again when event time has reached the first of them; or publish one without a timestamp, "
        "which withdraws them",
    )


def _in_turn(accepted: Sequence[PatternProcessor], kept: Iterable[PatternProcessor]) -> list[PatternProcessor]:
    """Versions of a rule in the order in which they come into force: those that were *accepted*, and those that are *kept* as far
    as they fit.
    """
    found = list(accepted)
    for one in kept:
        if fits(one, found):
            found.append(one)
    return sorted(found, key=attrgetter("version"))


def _refused_shadow(one: PatternProcessor) -> RefusedProcessor:
    error = PatternProcessorError(
        f"version {one.version} is in force, so it cannot be a shadow, too",
        hint="remove the shadow, or raise its version",
    )
    return refusal(one, error)


def refusal(one: PatternProcessor, error: AsterismError) -> RefusedProcessor:
    return RefusedProcessor(one.id, error, one.version, one.place, changed_by=one.changed_by, shadow=one.shadow)


def as_error(error: Exception) -> AsterismError:
    """Wrap any exception, so that a failing rule does not affect others."""
    if isinstance(error, AsterismError):
        return error
    return PatternProcessorError("the pattern processor cannot be used", described(error))
