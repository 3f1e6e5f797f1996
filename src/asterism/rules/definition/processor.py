"""Pattern processors: a pattern, the key of its events and the output of its matches, as data that can change.

A pattern is a :class:`~asterism.patterns.pattern.Pattern`, or the text of a MATCH_RECOGNIZE clause, which also has the key and
the measures.

Source: FLIP-200, ``PatternProcessor``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Protocol, Self, TypeVar

from asterism.arguments import expect
from asterism.columns.time import EPOCH
from asterism.errors import PatternProcessorError
from asterism.patterns.json_writing import graph_of
from asterism.patterns.pattern import Pattern
from asterism.rules.definition.rule_origins import RuleOrigin
from asterism.rules.definition.rule_tests import read_tests
from asterism.text.strict_json import MAX_BYTES

MAX_PROCESSORS = 10_000
MAX_ID = 200
MAX_KEYS = 16
MAX_MEASURES = 100
MAX_STRING = 10_000
MAX_SQL = 50_000
MAX_LIMIT = 10**9
MAX_LABELS = 20
MAX_LABEL_NAME = 100
MAX_LABEL = 1_000
MAX_NAME = 200
"""The maximum length of the name of a person or program that changed a processor."""
MAX_SUPPRESS = timedelta(days=3_650)
DURATION_UNITS = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
}
_DURATION = re.compile(r"([0-9]{1,15}) +(" + "|".join(DURATION_UNITS) + ")s?")
_ADOPT_HINT = "true: the partial matches of the version that it replaces"
_SUPPRESS_HINT = '{"for": "1 hour"}'
_KINDS: dict[str, tuple[type, str]] = {
    "key": (list, "a list"),
    "select": (list, "a list"),
    "function": (str, "a text"),
    "timedOut": (bool, "true or false"),
    "shadow": (bool, "true or false"),
    "labels": (dict, "an object of strings"),
}
_FIELDS = (
    "id", "version", "timestamp", "key", "pattern", "sql", "select", "function", "timedOut", "maxPartialMatches", "suppress",
    "expires", "shadow", "labels", "changedBy", "changedAt", "comment", "tests", "sigma", "eql", "adopt",
)  # fmt: skip
_NOT_DEFINING = ("labels", "expires", "shadow", "adopt")
"""The fields of the JSON form that can change without a new version."""
_INSTEAD = {
    "pattern": "write either a graph or a clause",
    "key": "PARTITION BY, in the clause",
    "select": "MEASURES, in the clause",
    "function": "MEASURES, in the clause",
    "timedOut": None,
}
"""The fields that a processor with *sql* cannot have, and what to write instead."""
ANY_VERSION = -1
"""The value of *adopt*: the partial matches of whatever version is replaced."""
_OF_SIGMA = ("pattern", "sql", "key", "select", "function", "timedOut")
"""The fields that a processor with a Sigma rule cannot have."""
Slot = tuple[str, bool]
"""The slot of a processor in a set: its id, and whether it is a shadow. A slot has at most one processor."""
RuleName = tuple[str, int, int]
"""The name of a rule in state and in metrics: id, version, and the set that added it."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PatternProcessor:
    """One rule.

    :param id: its name, up to 200 characters; ids are distinct within a set, except that there may be a shadow with the id
    :param version: an integer from 0; another version of the same id replaces the processor and drops its partial matches
    :param pattern: the pattern to match; None if there is *sql*
    :param timestamp: the event time from which the processor is in force; None, or a time that has passed: for all events after
        the watermark with which the micro-batch that adds it begins. A datetime without a time zone is in UTC. Several versions
        may wait, and come into force in turn.
    :param key: SQL expressions over an event that group the events for this pattern (FLIP-200: ``KeySelector``); None: the
        key of the stream or, if it has none, one key for all events. If all of them are NULL, the key of the event is that of
        the stream.
    :param select: measures of a match, such as ``LAST(b.price) AS last``
    :param function: the name of a function of the query that computes one row for each match
    :param timed_out: whether timed-out partial matches are also written
    :param max_partial_matches: the maximum number of partial matches per key, up to a billion; the limit of the query also
        applies. A processor that exceeds it is disabled, see docs/limits.md. With *sql*: the maximum number of rows of a key
        with which the search waits for more.
    :param place: where the processor was found (a file, a table, an address), shown if it is refused; None: unknown. Equality
        ignores it, because equal processors may be found in different places.
    :param sql: instead of *pattern*, the inside of a MATCH_RECOGNIZE clause, up to 50,000 characters. PARTITION BY is the key
        and MEASURES are the measures, so *key*, *select*, *function* and *timed_out* cannot be given.
    :param suppress: after a match, for how long, in event time, further matches of the same key are not emitted: whole
        milliseconds, up to ten years. The next emitted match carries the number of suppressed ones. None: all matches are
        emitted.
    :param expires: the event time from which the processor is no longer in force, after *timestamp*: its partial matches then
        end as if it were removed. It can change without a new version. None: it does not expire.
    :param labels: texts for readers of the matches, such as ``{"owner": "payments", "severity": "high"}``: up
        to 20, with names of 1 to 100 printable characters and values of up to 1,000 characters. They can change without a new
        version, and the partial matches then continue.
    :param changed_by: who made this version, for the history: up to 200 printable characters. Like *place*, it is not part of
        the processor, and equality ignores it. None: unknown.
    :param adopt: whether it continues with the partial matches of the version that it replaces: True, or the only version of
        which it does. What cannot continue is dropped and counted, as in a changed savepoint. None: all are dropped. It can
        change without a new version, and has no effect once the version is in force. With *sql*, the search goes on at the first
        undecided row of the version before.
    :param shadow: whether it runs beside the version in force, with a separate output. A shadow becomes the version in force,
        with its partial matches, when the same version is no longer a shadow.
    :raises PatternProcessorError: a field is out of bounds

    >>> PatternProcessor("pair", 1, Pattern.begin("a").where("x > 1").next("b"), key=("user",)).version
    1
    >>> PatternProcessor("rise", 1, sql="PARTITION BY item PATTERN (A B) DEFINE B AS price > PREV(price)").sql[:17]
    'PARTITION BY item'
    """

    id: str
    version: int
    pattern: Pattern | None = None
    timestamp: datetime | None = None
    key: tuple[str, ...] | None = None
    select: tuple[str, ...] = ()
    function: str | None = None
    timed_out: bool = False
    max_partial_matches: int | None = None
    place: str | None = field(default=None, compare=False, repr=False)
    sql: str | None = None
    suppress: timedelta | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    expires: datetime | None = None
    changed_by: str | None = field(default=None, compare=False, repr=False)
    shadow: bool = False
    adopt: int | None = None
    _is_data: bool = field(default=False, init=False, compare=False, repr=False)
    """Whether the pattern was read from JSON, and so can be written unchanged."""
    _text: str | None = field(default=None, init=False, compare=False, repr=False)
    """The cached value of :attr:`text`."""
    _of_shadow_template: bool = field(default=False, init=False, compare=False, repr=False)
    _origin: RuleOrigin | None = field(default=None, init=False, compare=False, repr=False)

    def __init_subclass__(cls) -> None:
        hint = "pass the values to super().__init__(id, version, pattern); or write a function that returns a PatternProcessor"
        for each in fields(PatternProcessor):
            if each.name in vars(cls):
                problem = f"the class {cls.__name__} cannot override the field {each.name!r}"
                raise PatternProcessorError(problem, hint=hint)

        def refuse(self: PatternProcessor, name: str, value: object) -> None:
            raise PatternProcessorError(
                f"{cls.__name__} cannot set {name!r:.100}, because a PatternProcessor is immutable", hint=hint
            )

        # The method of a frozen class with slots fails with a TypeError in subclasses.
        cls.__setattr__ = refuse  # type: ignore[assignment, method-assign]

    def __hash__(self) -> int:
        # Ids are distinct within a set, and hashing a pattern takes as long as writing it.
        return hash((self.id, self.version))

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not 1 <= len(self.id) <= MAX_ID or not self.id.isprintable():
            raise PatternProcessorError(
                f"an id must be a string of 1 to {MAX_ID:,} printable characters, not {self.id!r:.60}"
            )
        check_version(self.version)
        if self.sql is not None:
            self._check_sql()
        elif not isinstance(self.pattern, Pattern):
            raise PatternProcessorError(f"a pattern must be a Pattern, not {self.pattern!r:.60}")
        for name, what, time, unbounded in (
            ("timestamp", "a timestamp", self.timestamp, "in force at once, as with Long.MIN_VALUE in FLIP-200"),
            ("expires", "expires", self.expires, "in force until it is replaced or removed"),
        ):
            if time is not None and not isinstance(time, datetime):
                raise PatternProcessorError(
                    f"{what} must be a datetime, not {time!r:.60}",
                    hint=f"{name}=datetime(2026, 1, 31, 12, tzinfo=UTC); None: {unbounded}",
                )
            if time is not None and time.tzinfo is None:
                object.__setattr__(self, name, time.replace(tzinfo=UTC))
        if self.timestamp is not None and self.expires is not None and self.expires <= self.timestamp:
            raise PatternProcessorError(
                "expires must be after timestamp",
                "The processor would never be in force.",
                '"enabled": false, to store it without using it',
            )
        texts: tuple[tuple[str, Any, int], ...] = (
            ("key", () if self.key is None else self.key, MAX_KEYS),
            ("select", self.select, MAX_MEASURES),
        )
        expect(PatternProcessorError, self.timed_out, bool, "timed_out must be True or False")
        expect(PatternProcessorError, self.shadow, bool, "shadow must be True or False")
        object.__setattr__(self, "adopt", _checked_adopt(self.adopt, self.version))
        for name, value, limit in texts:
            if isinstance(value, str) or not isinstance(value, Sequence) or not all(_is_string(text) for text in value):
                raise PatternProcessorError(
                    f"{name} must be a list of SQL strings of 1 to {MAX_STRING:,} characters",
                    hint=f"{name}=[{value!r:.60}]" if isinstance(value, str) and value else None,
                )
            if len(value) > limit:
                raise PatternProcessorError(f"{name} has {len(value):,} expressions (limit {limit:,})")
            object.__setattr__(self, name, None if name == "key" and self.key is None else tuple(value))
        if self.function is not None and not (_is_string(self.function) and self.function.isprintable()):
            raise PatternProcessorError(
                f"the name of a function must consist of printable characters, not {self.function!r:.60}"
            )
        most = self.max_partial_matches
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_LIMIT):
            raise PatternProcessorError(
                f"maxPartialMatches must be an integer from 1 to {MAX_LIMIT:,}, not {most!r:.60}"
            )
        _check_suppress(self.suppress)
        object.__setattr__(self, "labels", _checked_labels(self.labels))
        if self.changed_by is not None and not is_name(self.changed_by):
            raise PatternProcessorError(
                f"changedBy must be a string of 1 to {MAX_NAME:,} printable characters, not {self.changed_by!r:.60}"
            )
        if self.select and self.function is not None:
            raise PatternProcessorError("a processor can have measures (select) or a function, not both")

    def _check_sql(self) -> None:
        if not _is_string(self.sql, MAX_SQL):
            raise PatternProcessorError(f"sql must be a string of 1 to {MAX_SQL:,} characters")
        given = (self.pattern, self.key, self.select or None, self.function, self.timed_out or None)
        for name, value in zip(_INSTEAD, given, strict=True):
            if value is not None:
                raise PatternProcessorError(f"a processor with sql cannot have {name!r}", hint=_INSTEAD[name])

    @property
    def slot(self) -> Slot:
        """The slot, which is distinct within a set."""
        return self.id, self.shadow

    @property
    def of_shadow_template(self) -> bool:
        """Whether it is a rule of a template that is a shadow. If its version is in force, there is no shadow of it."""
        return self._of_shadow_template

    @property
    def origin(self) -> RuleOrigin | None:
        """What it was translated from; None: it is as its author wrote it, or that is not known."""
        return self._origin

    @property
    def effective_from(self) -> int | None:
        """The *timestamp* in microseconds."""
        return None if self.timestamp is None else (self.timestamp - EPOCH) // timedelta(microseconds=1)

    @property
    def effective_until(self) -> int | None:
        """*expires* in microseconds."""
        return None if self.expires is None else (self.expires - EPOCH) // timedelta(microseconds=1)

    @property
    def suppress_micros(self) -> int | None:
        """*suppress* in microseconds."""
        return None if self.suppress is None else self.suppress // timedelta(microseconds=1)

    @property
    def text(self) -> str:
        """The JSON form as a string, which identifies the processor in sets and in state; equal processors have equal
        strings.

        :raises PatternError: the pattern cannot be written as JSON

        >>> PatternProcessor("a", 1, Pattern.begin("x")).text[:20]
        '{"id":"a","pattern":'
        """
        if self._text is None:
            object.__setattr__(self, "_text", canonical_text(self.to_dict()))
        assert self._text is not None
        return self._text

    @property
    def definition(self) -> str:
        """The :attr:`text` without the parts that can change within a version: the labels, *expires* and *shadow*.

        >>> rule = PatternProcessor("a", 1, Pattern.begin("x"))
        >>> PatternProcessor("a", 1, Pattern.begin("x"), labels={"owner": "ann"}).definition == rule.text
        True
        """
        if not self.labels and self.expires is None and not self.shadow and self.adopt is None:
            return self.text
        json_form = json.loads(self.text)
        return canonical_text({name: value for name, value in json_form.items() if name not in _NOT_DEFINING})

    def has_definition_of(self, other: PatternProcessor) -> bool:
        """Whether the two are equal apart from the parts that can change within a version."""
        # Comparing patterns takes time. Texts may differ because an earlier release has written one of them.
        if self is other or (self.version == other.version and self.text == other.text):
            return True
        return self.version == other.version and defining(self) == defining(other)

    def as_data(self) -> PatternProcessor:
        """The processor after a round trip through JSON: each condition is a single SQL string.

        :raises PatternError: the pattern cannot be written as JSON
        :raises PatternProcessorError: the processor is too large

        >>> PatternProcessor("a", 1, Pattern.begin("x").where("y > 1").where("z")).as_data().pattern.stages[0].condition
        SqlCondition(text='(y > 1) AND (z)')
        """
        data = self
        if not self._is_data and self.pattern is not None:
            data = with_origin(_read(replace(self, pattern=_as_data(self.pattern))), self._origin)
        if len(data.text) > MAX_BYTES:
            raise PatternProcessorError(
                f"the processor is too large: {len(data.text):,} characters of JSON (limit {MAX_BYTES:,})"
            )
        return data

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, which is the same for equal processors: the timestamp is converted to UTC.

        :raises PatternError: the pattern cannot be written as JSON
        """
        pattern = self.pattern if self.pattern is None or self._is_data else _as_data(self.pattern)
        json_form = {
            "id": self.id,
            "version": self.version,
            "timestamp": None if self.timestamp is None else _in_utc(self.timestamp).isoformat(),
            "key": None if self.key is None else list(self.key),
            "pattern": None if pattern is None else graph_of(pattern),
            "sql": self.sql,
            "select": list(self.select) or None,
            "function": self.function,
            "timedOut": self.timed_out or None,
            "maxPartialMatches": self.max_partial_matches,
            "suppress": None if self.suppress is None else {"for": _duration_text(self.suppress)},
            "expires": None if self.expires is None else _in_utc(self.expires).isoformat(),
            "shadow": self.shadow or None,
            "labels": dict(self.labels) or None,
            "adopt": True if self.adopt == ANY_VERSION else self.adopt,
        }
        return {name: value for name, value in json_form.items() if value is not None}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Create a processor from its JSON form, which is not trusted. Its tests, ``changedAt`` and ``comment`` are checked, but
        are not part of it.

        :raises PatternProcessorError: a field is missing, unknown or of another type
        :raises PatternError: the pattern is invalid
        """
        if not isinstance(fields, Mapping):
            raise PatternProcessorError(
                "a processor must be an object", hint='{"id": "...", "version": 1, "pattern": {...}}'
            )
        unknown = [name for name in fields if name not in _FIELDS]
        if unknown:
            raise _unknown_field(unknown[0])
        for missing in missing_fields(fields):
            raise PatternProcessorError(f"a processor needs {missing}")
        for name, (kind, what) in _KINDS.items():
            if fields.get(name) is not None and not isinstance(fields[name], kind):
                raise PatternProcessorError(f"{name} must be {what}")
        read_tests(fields.get("tests"))
        point_in_time(fields.get("changedAt"), "changedAt")
        if fields.get("comment") is not None and not _is_string(fields["comment"], MAX_LABEL):
            raise PatternProcessorError(f"comment must be a string of 1 to {MAX_LABEL:,} characters")
        origin = None
        if fields.get("sigma") is not None:
            fields, origin = _with_sigma(fields)
        if fields.get("eql") is not None:
            fields, origin = _with_eql(fields), RuleOrigin(eql=str(fields["eql"]))
        pattern, sql = fields.get("pattern"), fields.get("sql")
        if not isinstance(pattern, Mapping | str) and (pattern is not None or sql is None):
            raise PatternProcessorError("pattern must be a pattern graph")
        key = fields.get("key")
        processor = cls(
            id=fields["id"],
            version=fields["version"],
            pattern=None if pattern is None else Pattern.from_json(pattern),
            timestamp=point_in_time(fields.get("timestamp"), "timestamp"),
            key=None if key is None else tuple(key),
            select=tuple(fields.get("select") or ()),
            function=fields.get("function"),
            timed_out=bool(fields.get("timedOut")),
            max_partial_matches=fields.get("maxPartialMatches"),
            sql=sql,
            suppress=_suppress(fields.get("suppress")),
            labels=fields.get("labels") or {},
            expires=point_in_time(fields.get("expires"), "expires"),
            changed_by=fields.get("changedBy"),
            shadow=bool(fields.get("shadow")),
            adopt=_adopt_field(fields.get("adopt")),
        )
        return with_origin(_read(processor), origin)


def _with_sigma(fields: Mapping[str, Any]) -> tuple[dict[str, Any], RuleOrigin]:
    """The JSON form of a rule whose pattern and labels are given as a Sigma rule."""
    from asterism.sigma.collection import translated_text

    taken = [name for name in _OF_SIGMA if fields.get(name) not in (None, False)]
    if taken:
        raise PatternProcessorError(f"a processor with sigma cannot have {taken[0]!r}")
    text = fields["sigma"]
    if not _is_string(text, MAX_SQL):
        raise PatternProcessorError(f"sigma must be a string of 1 to {MAX_SQL:,} characters")
    rule = translated_text(text, fields["id"] if isinstance(fields.get("id"), str) else None)
    key = None if rule.key is None else list(rule.key)
    suppress = None if rule.suppress is None else {"for": _duration_text(rule.suppress)}
    labels = fields.get("labels")
    written = {
        "pattern": None if rule.pattern is None else graph_of(_as_data(rule.pattern)),
        "sql": rule.sql,
        "key": key,
        "suppress": fields.get("suppress") or suppress,
        "labels": {**rule.labels, **(labels or {})},
    }
    return {**fields, **written}, RuleOrigin(fields=rule.fields)


def _with_eql(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON form of a rule whose pattern is given as a query in EQL."""
    from asterism.elastic.rules import clause_of_rule

    taken = [
        name for name in ("pattern", "sql", "key", "function", "timedOut") if fields.get(name) not in (None, False)
    ]
    if taken:
        raise PatternProcessorError(f"a processor with eql cannot have {taken[0]!r}")
    if not _is_string(fields["eql"], MAX_SQL):
        raise PatternProcessorError(f"eql must be a string of 1 to {MAX_SQL:,} characters")
    measures = fields.get("select") or ()
    if len(measures) > MAX_MEASURES or not all(map(_is_string, measures)):
        raise PatternProcessorError(
            f"select must be a list of up to {MAX_MEASURES:,} SQL strings of 1 to {MAX_STRING:,} characters"
        )
    return {**fields, "select": None, "sql": clause_of_rule(fields["eql"], measures)}


_P = TypeVar("_P", bound=PatternProcessor)


def _read(processor: _P) -> _P:
    """Mark *processor* as one whose pattern was read from JSON."""
    object.__setattr__(processor, "_is_data", True)
    return processor


def with_origin(processor: _P, origin: RuleOrigin | None) -> _P:
    """Note what *processor* was translated from."""
    object.__setattr__(processor, "_origin", origin)
    return processor


def in_shadow_template(processor: PatternProcessor) -> PatternProcessor:
    """Mark *processor* as a rule of a template that is a shadow."""
    object.__setattr__(processor, "_of_shadow_template", True)
    return processor


def _as_data(pattern: Pattern) -> Pattern:
    """The pattern after a round trip through JSON."""
    return Pattern.from_json(json.dumps(graph_of(pattern), ensure_ascii=False))


def canonical_text(fields: Mapping[str, Any]) -> str:
    """Write JSON such that equal objects have equal strings."""
    return json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def from_text(text: str) -> PatternProcessor:
    """The processor with this :attr:`PatternProcessor.text`, which it keeps: earlier releases may write it differently."""
    processor = PatternProcessor.from_dict(json.loads(text))
    object.__setattr__(processor, "_text", text)
    return processor


def with_place(processor: PatternProcessor, place: str | None) -> PatternProcessor:
    """A copy of *processor* with this *place* and only the fields that are stored.

    An instance of a user-defined subclass becomes a plain :class:`PatternProcessor`: the subclass may have another
    constructor, and processors from the store, which are compared with it, are not instances of the subclass.
    """
    if type(processor) is PatternProcessor and processor.place == place:
        return processor
    values = {each.name: getattr(processor, each.name) for each in fields(PatternProcessor) if each.init}
    copied = PatternProcessor(**values | {"place": place})
    if type(processor) is PatternProcessor:
        for name in ("_is_data", "_text", "_of_shadow_template", "_origin"):
            object.__setattr__(copied, name, getattr(processor, name))
    return copied


class InSlot(Protocol):
    @property
    def slot(self) -> Slot: ...


_S = TypeVar("_S", bound=InSlot)


def by_slot(versions: Iterable[_S]) -> dict[Slot, list[_S]]:
    """Versions of rules by their slots, in the same order."""
    grouped: dict[Slot, list[_S]] = {}
    for version in versions:
        grouped.setdefault(version.slot, []).append(version)
    return grouped


class RuleVersion(Protocol):
    """A version of a rule, and the event time from which it is in force."""

    @property
    def version(self) -> Any: ...
    @property
    def timestamp(self) -> datetime | None: ...


def fits(new: RuleVersion, others: Iterable[RuleVersion]) -> bool:
    """Whether *new* and *others*, versions of a rule, can be in a set together: they come into force one after the other, the
    lowest version first, and only that version may lack a timestamp.
    """
    for other in others:
        low, high = sorted((new, other), key=attrgetter("version"))
        if low.version == high.version or high.timestamp is None:
            return False
        if low.timestamp is not None and low.timestamp >= high.timestamp:
            return False
    return True


def as_in_force(processor: PatternProcessor) -> PatternProcessor:
    """*processor* as if it were in force at any time, to try it: without its timestamp and expiry, and not as a shadow."""
    if processor.timestamp is None and processor.expires is None and not processor.shadow:
        return processor
    return with_origin(replace(processor, timestamp=None, expires=None, shadow=False), processor.origin)


def defining(processor: PatternProcessor) -> PatternProcessor:
    """*processor* without the parts that can change within a version."""
    return replace(processor, labels={}, expires=None, shadow=False, adopt=None)


def _checked_adopt(value: Any, version: int) -> int | None:
    """The version whose partial matches are adopted; ANY_VERSION: any; None: of none."""
    if value is None or value is False:
        return None
    if value is True or (isinstance(value, int) and value == ANY_VERSION):
        return ANY_VERSION
    try:
        check_version(value)
    except PatternProcessorError:
        raise _wrong_adopt(value) from None
    if value == version:
        raise PatternProcessorError("a version cannot adopt its own partial matches", hint=_ADOPT_HINT)
    return int(value)


def _adopt_field(value: Any) -> Any:
    if value == ANY_VERSION:
        raise _wrong_adopt(value)
    return value


def _wrong_adopt(value: Any) -> PatternProcessorError:
    return PatternProcessorError(f"adopt must be true or a version, not {value!r:.60}", hint=_ADOPT_HINT)


def check_version(version: Any) -> None:
    """:raises PatternProcessorError: this is not a version"""
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**31:
        raise PatternProcessorError(f"a version must be an integer from 0 to {2**31 - 1}, not {version!r:.60}")


def missing_fields(fields: Mapping[str, Any]) -> list[str]:
    """The required fields of the JSON form that are missing, as they are named in messages."""
    missing = [repr(name) for name in ("id", "version") if name not in fields]
    has_pattern = "pattern" in fields or any(fields.get(name) is not None for name in ("sql", "sigma", "eql"))
    return missing if has_pattern else [*missing, "'pattern', 'sql', 'sigma' or 'eql'"]


def _unknown_field(name: Any) -> PatternProcessorError:
    known = {field.lower(): field for field in (*_FIELDS, "enabled") if field != name}
    close = difflib.get_close_matches(str(name).lower(), known, n=1)
    hint = f"did you mean {known[close[0]]!r}?" if close else None
    return PatternProcessorError(f"a processor has no field {name!r:.60}", f"Fields: {', '.join(known.values())}", hint)


def is_name(value: Any) -> bool:
    """Whether *value* can be the name of who changed a processor."""
    return _is_string(value, MAX_NAME) and value.isprintable()


def _is_string(value: Any, limit: int = MAX_STRING) -> bool:
    """Whether *value* is a string of bounded length that can be encoded, which excludes unpaired surrogates."""
    try:
        return isinstance(value, str) and 0 < len(value) <= limit and bool(value.encode())
    except UnicodeEncodeError:
        return False


def _check_suppress(span: Any) -> None:
    expect(PatternProcessorError, span, timedelta | None, "suppress must be a timedelta", "timedelta(hours=1)")
    if span is None:
        return
    if span <= timedelta(0) or span > MAX_SUPPRESS or span % timedelta(milliseconds=1):
        raise PatternProcessorError(
            f"the time to suppress matches must be whole milliseconds, more than 0 and up to {MAX_SUPPRESS.days:,} days, not "
            f"{span}"
        )


def _suppress(value: Any) -> timedelta | None:
    """Parse ``{"for": "1 hour"}``."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise PatternProcessorError("suppress must be an object", hint=_SUPPRESS_HINT)
    for name in value:
        if name not in ("for", "by"):
            raise PatternProcessorError(f"suppress has no field {name!r:.60}", "Fields: for, by", _SUPPRESS_HINT)
    if value.get("by") not in (None, "key"):
        raise PatternProcessorError(
            "suppress: by must be 'key'",
            "Matches are suppressed by the key of the rule, not by measures or other columns.",
            "remove it, and give the rule the key by which matches are to be suppressed",
        )
    text = value.get("for")
    try:
        number, unit = duration_of(text)
        return number * DURATION_UNITS[unit]
    except ValueError:
        problem = "suppress needs 'for'" if text is None else f"suppress: for is not a duration: {text!r:.60}"
        units = ", ".join(map("{}s".format, DURATION_UNITS))
        raise PatternProcessorError(
            problem, f"A duration is a whole number and a unit: {units}.", _SUPPRESS_HINT
        ) from None
    except OverflowError:
        raise PatternProcessorError(f"suppress: for is out of range: {text!r:.60}") from None


def duration_of(text: Any) -> tuple[int, str]:
    """The number and the unit of a duration.

    :raises ValueError: it is not a duration

    >>> duration_of("10 minutes")
    (10, 'minute')
    """
    matched = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if matched is None:
        raise ValueError("not a duration")
    return int(matched[1]), matched[2]


def _duration_text(value: timedelta) -> str:
    name, unit = next((name, unit) for name, unit in DURATION_UNITS.items() if not value % unit)
    number = value // unit
    return f"{number} {name}{'s' * (number != 1)}"


def _checked_labels(labels: Any) -> dict[str, str]:
    """A copy in the order of the names, so that equal labels are written equally."""
    expect(PatternProcessorError, labels, Mapping, "labels must be a map of strings", '{"owner": "payments"}')
    if len(labels) > MAX_LABELS:
        raise PatternProcessorError(f"there are {len(labels):,} labels (limit {MAX_LABELS:,})")
    for name, value in labels.items():
        if not _is_string(name, MAX_LABEL_NAME) or not name.isprintable():
            raise PatternProcessorError(
                f"the name of a label must be a string of 1 to {MAX_LABEL_NAME:,} printable characters, not {name!r:.60}"
            )
        if value != "" and not _is_string(value, MAX_LABEL):
            problem = f"the label {name!r:.60} must be a string of up to {MAX_LABEL:,} characters"
            hint = "write numbers and true or false in quotation marks" if isinstance(value, int | float) else None
            raise PatternProcessorError(problem, hint=hint)
    return dict(sorted(labels.items()))


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:  # within hours of the first or last supported year
        return time


def point_in_time(value: Any, name: str) -> datetime | None:
    """Parse ISO 8601 (without a zone: UTC) or milliseconds since the epoch. The lowest number of FLIP-200 means that there is no
    timestamp.

    :param name: the name of the field, for messages
    :raises PatternProcessorError: it is neither
    """
    if value is None or (isinstance(value, int) and value <= -(2**63)):
        return None
    try:
        moment = timestamp_of(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    except (ValueError, OverflowError):
        raise PatternProcessorError(
            f"{name} is not a point in time: {value!r:.60}", hint='"2026-01-31T12:00:00Z", or milliseconds since 1970'
        ) from None


def timestamp_of(value: Any) -> datetime:
    """Parse ISO 8601 or milliseconds since the epoch, with a ValueError or an OverflowError if it is neither."""
    if isinstance(value, int) and not isinstance(value, bool):
        return EPOCH + timedelta(milliseconds=value)
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    raise ValueError("not a point in time")
