"""What finds pattern processors, and whom it tells: discoverers, their factories and their manager, and helpers for discoverers.

Source: FLIP-200, ``PatternProcessorManager``, ``PatternProcessorDiscoverer`` and their kin.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from asterism.arguments import described
from asterism.errors import AsterismError, PatternProcessorError
from asterism.rules.processor import MAX_ID, MAX_PROCESSORS, PatternProcessor, found_at
from asterism.text.printable import one_line

MAX_INTERVAL = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class RefusedProcessor:
    """What a discoverer found and cannot use. The last good version of this id stays in force.

    :param id: of the processor; where that cannot be read, a word for the thing that was found
    :param place: where it was found: a file, a row, an address
    :param unidentified: the id of the processor is not known, so it may be any that is in force: because of a list with such
        an item, none is removed
    """

    id: str
    error: AsterismError
    version: int | None = None
    place: str | None = None
    unidentified: bool = False

    def __str__(self) -> str:
        """In one line, for logs."""
        named = self.id if self.version is None else f"{self.id} version {self.version}"
        lines = [line for line in str(self.error).splitlines() if line.strip(" ^")]
        why = "; ".join(line.strip() for line in lines)
        return one_line(": ".join(part for part in (self.place, named, why) if part), 1000)


Discovered = PatternProcessor | RefusedProcessor


class PatternProcessorManager(ABC):
    """Handles updates, and knows the processors in force."""

    @abstractmethod
    def on_pattern_processors_updated(self, pattern_processors: Sequence[Discovered]) -> None:
        """The list is the whole truth: an id that is not in it is removed, unless an item of it is *unidentified*."""

    @abstractmethod
    def current_pattern_processors(self) -> Sequence[PatternProcessor]: ...

    def on_look_begun(self) -> None:  # noqa: B027 - a manager may ignore it
        """A look has begun. It ends with one of the other calls; where none comes, what is looked at does not answer."""

    def on_nothing_changed(self) -> None:  # noqa: B027 - a manager may ignore it
        """A look has succeeded, and has found what was found last: discovery is not interrupted, or not any more."""

    def on_discovery_failed(self, error: Exception) -> None:  # noqa: B027 - a manager may ignore it
        """Discovery is interrupted: the last set stays in force."""


class PatternProcessorDiscoverer(ABC):
    """Finds pattern processors somewhere, and tells the manager when they change. It runs on Spark's driver, in a process of its
    own: it shares nothing with the program that started the query.
    """

    @abstractmethod
    def initial_pattern_processors(self) -> Sequence[Discovered]:
        """What the query begins with. Where it raises, that is not known: the set of the checkpoint stays in force."""

    @abstractmethod
    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        """Watch, until :meth:`close`: call ``manager.on_pattern_processors_updated`` when something has changed, and
        ``manager.on_discovery_failed`` when it cannot be known. One that tells ``manager.on_look_begun`` is taken for
        interrupted where the look does not return. Runs in a thread of its own. One that raises is closed, and
        another one made, after some seconds; one that returns has ended, and its last set stays.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Stop watching."""


class PatternProcessorDiscovererFactory(ABC):
    """Makes the discoverer where it is to run; it travels there, so it must be possible to pickle it."""

    @abstractmethod
    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer: ...


def checked_interval(interval: timedelta) -> timedelta:
    """*interval*, if one can wait so long between two looks.

    :raises PatternProcessorError: it is no timedelta, or not a positive one, or longer than a year

    >>> checked_interval(timedelta(seconds=5))
    datetime.timedelta(seconds=5)
    """
    if not isinstance(interval, timedelta):
        raise PatternProcessorError(f"an interval is a timedelta, not {interval!r:.60}", hint="timedelta(seconds=5)")
    if not timedelta(0) < interval <= MAX_INTERVAL:
        raise PatternProcessorError(
            f"an interval must be positive, and at most {MAX_INTERVAL.days} days, not {interval}"
        )
    return interval


class PeriodicPatternProcessorDiscoverer(PatternProcessorDiscoverer):
    """Asks again and again (FLIP-200: ``AbstractPeriodicPatternProcessorDiscoverer``).

    :param interval: how often; after a failure twice as long each time, up to *max_interval*
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
        """Has anything changed since the last :meth:`latest_pattern_processors`?"""

    @abstractmethod
    def latest_pattern_processors(self) -> Sequence[Discovered]:
        """All processors, as they are now."""

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        return self._initial

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        wait = self.interval
        changed = False
        while not self._closed.wait(wait.total_seconds()):
            try:
                manager.on_look_begun()
                # A change that the manager could not take is handed to it again.
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
    """Names that rules may use, and what they stand for. Nothing is ever imported by name.

    :param factories: for FLIP-200's own form (className, constructorParams): class name to a function that makes a processor
        of the parameters, or a class derived from :class:`PatternProcessor`
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
                raise PatternProcessorError(f"{class_name} made a {type(made).__name__}, not a PatternProcessor")
            return found_at(made, made.place)
        except AsterismError:
            raise
        except Exception as error:
            raise PatternProcessorError(f"{class_name} failed", described(error)) from error


def processors_from(
    items: Sequence[Any],
    place: str | None = None,
    make: Callable[[Any, str, str | None], Discovered | None] | None = None,
) -> list[Discovered]:
    """Each of *items* (JSON objects) on its own: a processor, or why it is not one. Of equal ids only the first is good.

    An item may say ``"enabled": false``: then it is not in the set.

    :param place: where they were found
    :param make: what is made of each, as :func:`processor_from` does
    """
    make = make or processor_from
    found: list[Discovered] = []
    for number, item in enumerate(items):
        if number >= MAX_PROCESSORS:
            error = PatternProcessorError(f"more than {MAX_PROCESSORS} processors")
            found.append(RefusedProcessor("…", error, place=place, unidentified=True))
            break
        one = make(item, f"#{number + 1}", place)
        found += [] if one is None else [one]
    return without_duplicates(found)


def processor_from(item: Any, name: str, place: str | None = None) -> Discovered | None:
    """A processor, or why *item* is not one, or None where it is disabled. *name* is for one without an id."""
    fields = item if isinstance(item, Mapping) else {}
    version = fields.get("version")
    told = fields["id"] if isinstance(fields.get("id"), str) else ""
    try:
        item, enabled = without_flag(item)
        return found_at(PatternProcessor.from_dict(item), place) if enabled else None
    except AsterismError as error:
        if told:
            # As it is, if there can be a processor of that name.
            name = told if len(told) <= MAX_ID and told.isprintable() else one_line(told, MAX_ID)
        if isinstance(version, bool) or not isinstance(version, int):
            version = None
        return RefusedProcessor(name, error, version, place, not told)


def without_flag(item: Any) -> tuple[Any, bool]:
    """An item without what it may say in ``enabled``, and that.

    :raises PatternProcessorError: it is neither true nor false

    >>> without_flag({"id": "a", "enabled": False})
    ({'id': 'a'}, False)
    """
    if not isinstance(item, Mapping) or "enabled" not in item:
        return item, True
    if not isinstance(item["enabled"], bool):
        raise PatternProcessorError("enabled must be true or false")
    return {name: value for name, value in item.items() if name != "enabled"}, item["enabled"]


def without_duplicates(found: Iterable[Discovered]) -> list[Discovered]:
    """Of several processors with one id, those after the first are refused.

    The good ones are first: what is refused cannot take the place of a good one with its id.
    """
    kept: list[Discovered] = []
    places: dict[str, str | None] = {}
    for one in found:
        if isinstance(one, PatternProcessor):
            if one.id in places:
                one = duplicate(one, places[one.id])
            else:
                places[one.id] = one.place
        kept.append(one)
    return good_first(kept)


def duplicate(one: PatternProcessor, other: str | None) -> RefusedProcessor:
    """*one*, whose id a processor in the place *other* has already."""
    where = None if other in (None, one.place) else f"The other is in {other}."
    return RefusedProcessor(
        one.id, PatternProcessorError(f"two processors have the id {one.id!r:.60}", where), one.version, one.place
    )


def good_first(found: Iterable[Discovered]) -> list[Discovered]:
    return sorted(found, key=lambda one: isinstance(one, RefusedProcessor))
