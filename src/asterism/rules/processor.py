"""Pattern processors: a pattern, how events are grouped for it, and what to do with its matches; data, that can change.

Source: FLIP-200, ``PatternProcessor``, ``PatternProcessorManager``, ``PatternProcessorDiscoverer`` and their kin.
"""

from __future__ import annotations

import difflib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from asterism.arguments import described, expect
from asterism.columns.time import EPOCH
from asterism.errors import AsterismError, PatternProcessorError
from asterism.patterns.json_graph import graph_of
from asterism.patterns.pattern import Pattern
from asterism.text.printable import one_line

MAX_PROCESSORS = 10_000
MAX_ID = 200
MAX_KEYS = 16
MAX_MEASURES = 100
MAX_TEXT = 10_000
MAX_LIMIT = 10**9
MAX_INTERVAL = timedelta(days=365)
_KINDS: dict[str, tuple[type, str]] = {
    "key": (list, "a list"),
    "select": (list, "a list"),
    "function": (str, "a text"),
    "timedOut": (bool, "true or false"),
}
_FIELDS = ("id", "version", "timestamp", "key", "pattern", "select", "function", "timedOut", "maxPartialMatches")


@dataclass(frozen=True, slots=True)
class PatternProcessor:
    """One rule.

    :param id: its name, up to 200 characters; a set has it once
    :param version: a number from 0; another one under the same id replaces the processor and drops its partial matches
    :param pattern: what to look for
    :param timestamp: the event time at which it comes into effect; None: with the micro-batch that brings it. A datetime
        without a zone is in UTC.
    :param key: SQL expressions over an event that group the events for this pattern (FLIP-200: ``KeySelector``); None: the
        stream's own key, or, where it has none, one key for all
    :param select: measures of a match, ``LAST(b.price) AS last``
    :param function: the name of a function that the query knows, which makes a row of each match
    :param timed_out: give out timed-out partial matches too
    :param max_partial_matches: how many partial matches a key may have, up to a billion; the query's own limit holds as well.
        Over it the processor is disabled, see docs/limits.md
    :param place: where it was found (a file, a table, an address), for those who read why it was refused; None: unknown. It
        is no part of the processor: equal ones may be found in different places.
    :raises PatternProcessorError: a field is out of bounds

    >>> PatternProcessor("pair", 1, Pattern.begin("a").where("x > 1").next("b"), key=("user",)).version
    1
    """

    id: str
    version: int
    pattern: Pattern
    timestamp: datetime | None = None
    key: tuple[str, ...] | None = None
    select: tuple[str, ...] = ()
    function: str | None = None
    timed_out: bool = False
    max_partial_matches: int | None = None
    place: str | None = field(default=None, compare=False, repr=False)
    _is_data: bool = field(default=False, init=False, compare=False, repr=False)
    """Was the pattern read from JSON? Then it can be written as it is."""
    _text: str | None = field(default=None, init=False, compare=False, repr=False)
    """What :attr:`text` is, once it has been asked for."""

    def __hash__(self) -> int:
        # A set has an id once; to hash a pattern takes as long as to write it.
        return hash((self.id, self.version))

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not 1 <= len(self.id) <= MAX_ID or not self.id.isprintable():
            raise PatternProcessorError(f"an id is a text of 1 to {MAX_ID} printable characters, not {self.id!r:.60}")
        if isinstance(self.version, bool) or not isinstance(self.version, int) or not 0 <= self.version < 2**31:
            raise PatternProcessorError(f"a version is an integer from 0 to {2**31 - 1}, not {self.version!r:.60}")
        if not isinstance(self.pattern, Pattern):
            raise PatternProcessorError(f"a pattern is a Pattern, not {self.pattern!r:.60}")
        if self.timestamp is not None and not isinstance(self.timestamp, datetime):
            raise PatternProcessorError(f"a timestamp is a datetime, not {self.timestamp!r:.60}")
        if self.timestamp is not None and self.timestamp.tzinfo is None:
            object.__setattr__(self, "timestamp", self.timestamp.replace(tzinfo=UTC))
        texts: tuple[tuple[str, Any, int], ...] = (
            ("key", () if self.key is None else self.key, MAX_KEYS),
            ("select", self.select, MAX_MEASURES),
        )
        expect(PatternProcessorError, self.timed_out, bool, "timed_out is True or False")
        for name, value, limit in texts:
            if isinstance(value, str) or not isinstance(value, Sequence) or not all(_is_text(text) for text in value):
                raise PatternProcessorError(f"{name} is a list of SQL texts of up to {MAX_TEXT} characters")
            if len(value) > limit:
                raise PatternProcessorError(f"{name} has {len(value)} expressions (limit {limit})")
            object.__setattr__(self, name, None if name == "key" and self.key is None else tuple(value))
        if self.function is not None and not (_is_text(self.function) and self.function.isprintable()):
            raise PatternProcessorError(f"a function has a name in printable characters, not {self.function!r:.60}")
        most = self.max_partial_matches
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_LIMIT):
            raise PatternProcessorError(f"maxPartialMatches is an integer from 1 to {MAX_LIMIT}, not {most!r:.60}")
        if self.select and self.function is not None:
            raise PatternProcessorError("a processor has measures (select) or a function, not both")

    @property
    def effective_from(self) -> int | None:
        """*timestamp* in microseconds."""
        return None if self.timestamp is None else (self.timestamp - EPOCH) // timedelta(microseconds=1)

    @property
    def text(self) -> str:
        """Its JSON form as text, by which it is known in sets and in state; the same for processors that are equal.

        :raises PatternError: the pattern cannot be written as JSON
        """
        if self._text is None:
            object.__setattr__(self, "_text", canonical_text(self.to_dict()))
        assert self._text is not None
        return self._text

    def as_data(self) -> PatternProcessor:
        """As it comes back when it has been written as JSON and read again.

        :raises PatternError: the pattern cannot be written as JSON
        """
        return self if self._is_data else _read(replace(self, pattern=Pattern.from_json(_pattern_text(self.pattern))))

    def to_dict(self) -> dict[str, Any]:
        """Its JSON form, the same for processors that are equal: the timestamp is in UTC, in whatever zone it was given.

        :raises PatternError: the pattern cannot be written as JSON
        """
        pattern = self.as_data().pattern
        found: dict[str, Any] = {"id": self.id, "version": self.version}
        if self.timestamp is not None:
            found["timestamp"] = _in_utc(self.timestamp).isoformat()
        if self.key is not None:
            found["key"] = list(self.key)
        found["pattern"] = graph_of(pattern)
        if self.select:
            found["select"] = list(self.select)
        if self.function is not None:
            found["function"] = self.function
        if self.timed_out:
            found["timedOut"] = True
        if self.max_partial_matches is not None:
            found["maxPartialMatches"] = self.max_partial_matches
        return found

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """A processor from its JSON form, which is not trusted.

        :raises PatternProcessorError: a field is missing, unknown or of another type
        :raises PatternError: the pattern is wrong
        """
        if not isinstance(fields, Mapping):
            raise PatternProcessorError(
                "a processor is an object", hint='{"id": "...", "version": 1, "pattern": {...}}'
            )
        unknown = [name for name in fields if name not in _FIELDS]
        if unknown:
            raise _unknown_field(unknown[0])
        missing = [name for name in ("id", "version", "pattern") if name not in fields]
        if missing:
            raise PatternProcessorError(f"a processor needs {missing[0]!r}")
        for name, (kind, what) in _KINDS.items():
            if fields.get(name) is not None and not isinstance(fields[name], kind):
                raise PatternProcessorError(f"{name} must be {what}")
        pattern = fields["pattern"]
        if not isinstance(pattern, Mapping | str):
            raise PatternProcessorError("pattern must be a pattern graph")
        key = fields.get("key")
        found = cls(
            id=fields["id"],
            version=fields["version"],
            pattern=Pattern.from_json(pattern),
            timestamp=_timestamp(fields.get("timestamp")),
            key=None if key is None else tuple(key),
            select=tuple(fields.get("select") or ()),
            function=fields.get("function"),
            timed_out=bool(fields.get("timedOut")),
            max_partial_matches=fields.get("maxPartialMatches"),
        )
        return _read(found)


_P = TypeVar("_P", bound=PatternProcessor)


def _read(processor: _P) -> _P:
    """*processor*, whose pattern has been read from JSON."""
    object.__setattr__(processor, "_is_data", True)
    return processor


def _pattern_text(pattern: Pattern) -> str:
    return json.dumps(graph_of(pattern), ensure_ascii=False)


def canonical_text(fields: Mapping[str, Any]) -> str:
    """JSON, the same for objects that are equal."""
    return json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def from_text(text: str) -> PatternProcessor:
    """What :attr:`PatternProcessor.text` was. It keeps that text: an earlier release may have written another one."""
    found = PatternProcessor.from_dict(json.loads(text))
    object.__setattr__(found, "_text", text)
    return found


def found_at(processor: PatternProcessor, place: str | None) -> PatternProcessor:
    """*processor*, found at *place*, with the fields that are stored, and no others.

    One of a class of the user's own becomes like any other: such a class may have another constructor, and what comes back
    from the store, to be compared with what is found again, is not of that class.
    """
    if type(processor) is PatternProcessor and processor.place == place:
        return processor
    values = {each.name: getattr(processor, each.name) for each in fields(PatternProcessor) if each.init}
    found = PatternProcessor(**values | {"place": place})
    if type(processor) is PatternProcessor and processor._is_data:
        _read(found)
    return found


def _unknown_field(name: Any) -> PatternProcessorError:
    known = {field.lower(): field for field in (*_FIELDS, "enabled") if field != name}
    close = difflib.get_close_matches(str(name).lower(), known, n=1)
    hint = f"did you mean {known[close[0]]!r}?" if close else None
    return PatternProcessorError(f"a processor has no field {name!r:.60}", f"Fields: {', '.join(known.values())}", hint)


def _is_text(value: Any) -> bool:
    """Bounded, and made of characters: half of a surrogate pair could not be written anywhere."""
    try:
        return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and bool(value.encode())
    except UnicodeEncodeError:
        return False


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:  # within hours of the first or the last year that there is
        return time


def _timestamp(value: Any) -> datetime | None:
    """ISO 8601, or milliseconds since the epoch. FLIP-200's lowest number means: at once."""
    if value is None or (isinstance(value, int) and value <= -(2**63)):
        return None
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return EPOCH + timedelta(milliseconds=value)
        if isinstance(value, str):
            return datetime.fromisoformat(value)
    except (ValueError, OverflowError):
        pass
    raise PatternProcessorError(
        f"timestamp is not a point in time: {value!r:.60}", hint='"2026-01-31T12:00:00Z", or milliseconds since 1970'
    )


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
