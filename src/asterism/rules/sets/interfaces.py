"""Interfaces for the discovery of pattern processors: discoverers, their factories and their manager, with helpers for
discoverers.

Source: FLIP-200, ``PatternProcessorManager``, ``PatternProcessorDiscoverer`` and related interfaces.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from asterism.arguments import described, hint_of_duration
from asterism.errors import AsterismError, PatternProcessorError
from asterism.expressions.routines.user_functions import Purpose, UserFunctions, checked
from asterism.patterns.semantics import Semantics
from asterism.rules.definition.processor import (
    MAX_ID,
    MAX_PROCESSORS,
    PatternProcessor,
    Slot,
    fits,
    in_shadow_template,
    is_name,
    with_place,
)
from asterism.rules.definition.rule_templates import MAX_TOTAL, ExpandedRule, expanded, is_shadow_template, is_template
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.kill_list import name_for
from asterism.text.printable import one_line

MAX_INTERVAL = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class RefusedProcessor:
    """A processor that a discoverer found and that cannot be used. The last valid version of this id stays in force.

    :param id: the id of the processor or, if it cannot be read, a name for the item
    :param place: where it was found: a file, a row, an address
    :param unidentified: whether the id is unknown. The item may then be any processor in force, so a list that contains it
        removes none.
    :param changed_by: who made this version, if the source records it
    :param shadow: whether it is a shadow; None: unknown
    """

    id: str
    error: AsterismError
    version: int | None = None
    place: str | None = None
    unidentified: bool = False
    changed_by: str | None = None
    shadow: bool | None = False

    @property
    def name(self) -> str:
        """The name in a kill list: the id; for a shadow, ``id@version``."""
        return name_for(self.id, self.version if self.shadow else None)

    def __str__(self) -> str:
        """Format the refusal as one line, for logs."""
        named = self.id if self.version is None else f"{self.id} version {self.version}"
        lines = [line for line in str(self.error).splitlines() if line.strip(" ^")]
        why = "; ".join(line.strip() for line in lines)
        return one_line(": ".join(part for part in (self.place, named, why) if part), 1000)


Discovered = PatternProcessor | RefusedProcessor


def slots_of(discovered: Discovered) -> list[Slot]:
    """The slots that *discovered* has, or may have, in a set."""
    return [(discovered.id, shadow) for shadow in (False, True) if discovered.shadow in (None, shadow)]


class PatternProcessorManager(ABC):
    """Handles updates and provides the newest set of processors."""

    @abstractmethod
    def on_pattern_processors_updated(self, pattern_processors: Sequence[Discovered]) -> None:
        """Handle a complete list: a processor whose id is not in it is removed, unless the list has an *unidentified* item. The
        same applies to shadows.
        """

    @abstractmethod
    def current_pattern_processors(self) -> Sequence[PatternProcessor]: ...

    def current_status(self) -> Status | None:
        """The status of the query's processors; None: this manager has none."""
        return None

    def columns(self) -> tuple[pa.Schema, Semantics] | None:
        """What rules are checked with: the columns of the events and the lookups, and the semantics; None: unknown."""
        return None

    def udfs(self) -> UserFunctions:
        """The functions in Python that the query lists for its rules."""
        return checked(None, Purpose.RULES)

    def on_poll_begun(self) -> None:  # noqa: B027 - a manager may ignore it
        """A poll has begun. One of the other calls ends it; if none comes, the source does not respond."""

    def on_nothing_changed(self) -> None:  # noqa: B027 - a manager may ignore it
        """A poll has succeeded without a change, so discovery is not interrupted (any more)."""

    def on_discovery_failed(self, error: Exception) -> None:  # noqa: B027 - a manager may ignore it
        """Discovery is interrupted, and the last set stays in force."""


class PatternProcessorDiscoverer(ABC):
    """Finds pattern processors and notifies the manager of changes. It runs on Spark's driver, in a separate process that
    shares nothing with the program that started the query.
    """

    @abstractmethod
    def initial_pattern_processors(self) -> Sequence[Discovered]:
        """The processors with which the query starts. If this method raises an error, the set of the checkpoint stays in
        force.
        """

    @abstractmethod
    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        """Watch for changes until :meth:`close`.

        Call ``manager.on_pattern_processors_updated`` after a change, and ``manager.on_discovery_failed`` if the state of the
        source cannot be determined. If the discoverer calls ``manager.on_poll_begun`` and the poll does not return, discovery
        is considered interrupted. The method runs in a separate thread. If it raises an error, the discoverer is closed and
        replaced after some seconds; if it returns, discovery has ended and the last set stays in force.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Stop watching."""


class PatternProcessorDiscovererFactory(ABC):
    """Creates the discoverer in the process in which it runs. The factory is sent there, so it must be picklable."""

    @abstractmethod
    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer: ...


def checked_interval(interval: timedelta) -> timedelta:
    """Return *interval* if it is a valid polling interval.

    :raises PatternProcessorError: it is not a timedelta, not positive, or longer than a year

    >>> checked_interval(timedelta(seconds=5))
    datetime.timedelta(seconds=5)
    """
    if not isinstance(interval, timedelta):
        raise PatternProcessorError(
            f"an interval must be a timedelta, not {interval!r:.60}",
            hint=hint_of_duration(interval, "timedelta(seconds=5)"),
        )
    if not timedelta(0) < interval <= MAX_INTERVAL:
        raise PatternProcessorError(
            f"an interval must be positive and at most {MAX_INTERVAL.days} days, not {interval}"
        )
    return interval


class PeriodicPatternProcessorDiscoverer(PatternProcessorDiscoverer):
    """Polls at an interval (FLIP-200: ``AbstractPeriodicPatternProcessorDiscoverer``).

    :param interval: the time between two polls; it doubles after each failure, up to *max_interval*
    :raises PatternProcessorError: an interval is not a positive timedelta
    """

    def __init__(
        self,
        initial: Sequence[Discovered] = (),
        interval: timedelta = timedelta(seconds=1),
        max_interval: timedelta = timedelta(minutes=1),
    ) -> None:
        self._initial, self.interval = list(initial), checked_interval(interval)
        self.max_interval = max(interval, checked_interval(max_interval))
        self._closed = threading.Event()

    @abstractmethod
    def check_pattern_processor_update(self) -> bool:
        """Whether anything has changed since the last call of :meth:`latest_pattern_processors`."""

    @abstractmethod
    def latest_pattern_processors(self) -> Sequence[Discovered]:
        """All current processors."""

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        return self._initial

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        wait = self.interval
        changed = False
        while not self._closed.wait(wait.total_seconds()):
            try:
                manager.on_poll_begun()
                # If the manager failed to handle a change, it is passed again.
                changed = self.check_pattern_processor_update() or changed
                if changed:
                    manager.on_pattern_processors_updated(self.latest_pattern_processors())
                    changed = False
                else:
                    manager.on_nothing_changed()
                wait = self.interval
            except Exception as error:
                manager.on_discovery_failed(error)
                wait = min(2 * wait, self.max_interval)

    def close(self) -> None:
        self._closed.set()


@dataclass(slots=True)
class ProcessorRegistry:
    """The classes that rules may name. Nothing is ever imported by name.

    :param factories: for FLIP-200's own form (className, constructorParams): maps a class name to a function that creates a
        processor from the parameters, or to a subclass of :class:`PatternProcessor`
    """

    factories: dict[str, Callable[..., PatternProcessor]] = field(default_factory=dict)

    def register(self, class_name: str, factory: Callable[..., PatternProcessor]) -> None:
        self.factories[class_name] = factory

    def create(self, class_name: str, parameters: Sequence[Any]) -> PatternProcessor:
        """:raises PatternProcessorError: the name is not registered, or the parameters do not fit"""
        factory = self.factories.get(class_name)
        if factory is None:
            raise PatternProcessorError(
                f"the class {class_name!r:.120} is not registered",
                f"Registered: {', '.join(sorted(self.factories)) or 'none'}",
                "registry.register(name, factory)",
            )
        try:
            made = factory(*parameters)
            if not isinstance(made, PatternProcessor):
                raise PatternProcessorError(
                    f"{class_name} returned an object of type {type(made).__name__}, not a PatternProcessor"
                )
            return with_place(made, made.place)
        except AsterismError:
            raise
        except Exception as error:
            raise PatternProcessorError(f"{class_name} failed", described(error)) from error


def processors_from(
    items: Sequence[Any],
    place: str | None = None,
    make: Callable[[Any, str, str | None], Discovered | None] | None = None,
    parameters: Sequence[Mapping[str, str | None]] | None = None,
) -> list[Discovered]:
    """Convert each of *items* (JSON objects) independently to a processor or a refusal; a template gives one for each of its
    rows. Of items with equal ids, only the first is accepted, and the first shadow, unless they are versions that come into force
    in turn.

    An item with ``"enabled": false`` is not in the set.

    :param place: where the items were found
    :param make: the function that converts an item; by default :func:`processor_from`
    :param parameters: the rows of templates without rows, from a table
    """
    make = make or processor_from
    discovered: list[Discovered] = []
    count = size = 0
    for number, item in enumerate(items, 1):
        rules = expanded(item, parameters) if is_template(item) else [ExpandedRule(f"#{number}", item)]
        count, size = count + len(rules), size + sum(rule.size for rule in rules)
        if count > MAX_PROCESSORS or size > MAX_TOTAL:
            many = f"more than {MAX_PROCESSORS:,} processors"
            error = PatternProcessorError(
                many if count > MAX_PROCESSORS else "the rules of the templates are too large"
            )
            discovered.append(RefusedProcessor("…", error, place=place, unidentified=True))
            break
        for rule in rules:
            processor: Discovered | None
            if rule.error is None:
                processor = make(rule.item, rule.id, place)
            else:
                unknown, name = not rule.identified, _as_id(rule.id)
                processor = RefusedProcessor(name, rule.error, place=place, unidentified=unknown, shadow=rule.shadow)
            if isinstance(processor, PatternProcessor) and is_shadow_template(item):
                processor = in_shadow_template(processor)
            discovered += [] if processor is None else [processor]
    return without_duplicates(discovered)


def processor_from(item: Any, name: str, place: str | None = None) -> Discovered | None:
    """A processor, the reason why *item* is not one, or None if it is disabled. *name*: for an item without an id."""
    fields = item if isinstance(item, Mapping) else {}
    version = fields.get("version")
    given_id = fields["id"] if isinstance(fields.get("id"), str) else ""
    try:
        item, enabled = without_flag(item)
        return with_place(PatternProcessor.from_dict(item), place) if enabled else None
    except AsterismError as error:
        if given_id:
            name = _as_id(given_id)
        if isinstance(version, bool) or not isinstance(version, int):
            version = None
        by = fields.get("changedBy")
        by = by if is_name(by) else None
        return RefusedProcessor(name, error, version, place, not given_id, by, is_shadow(fields))


def _as_id(given: str) -> str:
    """The id as it is, if a processor can have it."""
    return given if len(given) <= MAX_ID and given.isprintable() else one_line(given, MAX_ID)


def is_shadow(item: Any) -> bool | None:
    """Whether the JSON form of a processor, which may be invalid, is that of a shadow; None: unknown.

    >>> [is_shadow(item) for item in ({"id": "a", "shadow": True}, {"id": "a"}, {"id": "a", "shadow": "yes"}, "a")]
    [True, False, None, None]
    """
    if not isinstance(item, Mapping):
        return None
    value = item.get("shadow")
    return False if value is None else value if isinstance(value, bool) else None


def promoted_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON form of a shadow as the version in force.

    :raises PatternProcessorError: it is disabled

    >>> promoted_item({"id": "a", "version": 2, "shadow": True})
    {'id': 'a', 'version': 2}
    """
    if not without_flag(item)[1]:
        raise PatternProcessorError("the shadow is disabled", hint="enable it first, so that it has partial matches")
    return {name: value for name, value in item.items() if name != "shadow"}


def without_flag(item: Any) -> tuple[Any, bool]:
    """Return the item without the field ``enabled``, and the value of that field.

    :raises PatternProcessorError: the value is not a Boolean

    >>> without_flag({"id": "a", "enabled": False})
    ({'id': 'a'}, False)
    """
    if not isinstance(item, Mapping) or "enabled" not in item:
        return item, True
    if not isinstance(item["enabled"], bool):
        raise PatternProcessorError("enabled must be true or false")
    return {name: value for name, value in item.items() if name != "enabled"}, item["enabled"]


def without_duplicates(discovered: Iterable[Discovered]) -> list[Discovered]:
    """Refuse the processors with the id of an earlier one, unless they are versions that come into force in turn
    (:func:`~asterism.rules.definition.processor.fits`); and in the same way for shadows.

    Accepted processors come first, so that a refused one cannot replace an accepted one with its id.
    """
    accepted: dict[Slot, list[PatternProcessor]] = {}
    return good_first(
        unless_duplicate(processor, accepted) if isinstance(processor, PatternProcessor) else processor
        for processor in discovered
    )


def unless_duplicate(processor: PatternProcessor, accepted: dict[Slot, list[PatternProcessor]]) -> Discovered:
    """Accept the processor, or refuse it, because one of those that were *accepted* has its id."""
    others = accepted.setdefault(processor.slot, [])
    if not fits(processor, others):
        return duplicate(processor, others, others[0].place)
    others.append(processor)
    return processor


def duplicate(processor: PatternProcessor, others: Sequence[PatternProcessor], place: str | None) -> RefusedProcessor:
    """Refuse *processor*, because *others* have its id, the first of them at *place*, and it does not follow them in time."""
    where = None if place in (None, processor.place) else f"The other is in {place}."
    hint = None
    if others and processor.version not in {other.version for other in others}:
        hint = "several versions of a rule need timestamps, a later one for each higher version"
    problem = f"two {'shadows' if processor.shadow else 'processors'} have the id {processor.id!r:.60}"
    return refusal(processor, PatternProcessorError(problem, where, hint))


def refusal(processor: PatternProcessor, error: AsterismError) -> RefusedProcessor:
    return RefusedProcessor(
        processor.id, error, processor.version, processor.place, changed_by=processor.changed_by, shadow=processor.shadow
    )  # fmt: skip


def good_first(discovered: Iterable[Discovered]) -> list[Discovered]:
    return sorted(discovered, key=lambda processor: isinstance(processor, RefusedProcessor))
