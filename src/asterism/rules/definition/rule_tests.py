"""The tests of a rule, as they are written beside it. ``docs/rules/trying.md`` describes the format; queries ignore them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asterism.errors import PatternProcessorError

MAX_TESTS = 100
MAX_EVENTS = 1000
"""The maximum number of events of a test, and of expected matches."""
MAX_WORDS = 20_000
"""The maximum number of characters of events that are written as literals."""
MAX_COLUMNS = 200
_MAX_NAME = 200
_HINT = '{"name": "...", "events": "a1 b2", "matches": ["a1 b2"]}'
_FIELDS = ("name", "events", "matches", "timedOut", "columns", "literals")
COLUMNS_OF_LITERALS = ("kind", "value", "key", "time")

ExpectedMatch = str | tuple[int, ...] | Mapping[str, Any]
"""A match: its events as literals, the numbers of its events (from 1), or its measures or its events by stage."""


@dataclass(frozen=True, slots=True)
class RuleTest:
    """:param events: literals, or JSON objects
    :param timed_out: the expected timed-out partial matches; None: they are not compared
    :param columns: the Spark types of columns
    :param literals: the columns that the parts of literals mean: kind, value, key and time
    """

    name: str
    events: str | tuple[Mapping[str, Any], ...]
    matches: tuple[ExpectedMatch, ...]
    timed_out: tuple[ExpectedMatch, ...] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    literals: Mapping[str, str] = field(default_factory=dict)


def read_tests(value: Any) -> tuple[RuleTest, ...]:
    """Read the field ``tests`` of a rule, which is not trusted.

    :raises PatternProcessorError: it is not a list of tests, or a bound is exceeded

    >>> read_tests([{"name": "pair", "events": "a1 b2", "matches": [[1, 2]]}])[0].matches
    ((1, 2),)
    """
    if value is None:
        return ()
    _bounded(value, "tests", MAX_TESTS, "a list of tests")
    tests = tuple(_test_from(test, number) for number, test in enumerate(value, 1))
    names = [test.name for test in tests]
    for name in names:
        if names.count(name) > 1:
            raise PatternProcessorError(f"two tests have the name {name!r:.60}")
    return tests


def _test_from(value: Any, number: int) -> RuleTest:
    where = f"test {number}"
    if not isinstance(value, Mapping):
        raise PatternProcessorError(f"{where} must be an object", hint=_HINT)
    unknown = [name for name in value if name not in _FIELDS]
    if unknown:
        raise PatternProcessorError(f"{where} has no field {unknown[0]!r:.60}", f"Fields: {', '.join(_FIELDS)}")
    missing = [name for name in ("name", "events", "matches") if name not in value]
    if missing:
        raise PatternProcessorError(f"{where} needs {missing[0]!r}", hint=_HINT)
    name = value["name"]
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        raise PatternProcessorError(
            f"the name of {where} must be a string of 1 to {_MAX_NAME:,} printable characters, not {name!r:.60}"
        )
    timed_out = value.get("timedOut")
    return RuleTest(
        name,
        _events_from(value["events"], where),
        _matches_from(value["matches"], f"the matches of {where}"),
        None if timed_out is None else _matches_from(timed_out, f"timedOut of {where}"),
        _names_from(value.get("columns"), f"the columns of {where}", MAX_COLUMNS, ()),
        _names_from(value.get("literals"), f"the literals of {where}", len(COLUMNS_OF_LITERALS), COLUMNS_OF_LITERALS),
    )


def _events_from(value: Any, where: str) -> str | tuple[Mapping[str, Any], ...]:
    what = f"the events of {where}"
    if isinstance(value, str):
        if len(value) > MAX_WORDS:
            raise PatternProcessorError(f"{what} have {len(value):,} characters (limit {MAX_WORDS:,})")
        words = len(value.split())
        if words > MAX_EVENTS:
            raise PatternProcessorError(f"{what} are too many: {words:,} (limit {MAX_EVENTS:,})")
        return value
    _bounded(value, what, MAX_EVENTS, 'literals, "a1 b2", or a list of objects')
    for event in value:
        if not isinstance(event, Mapping):
            raise PatternProcessorError(f"{what} must be objects, not {event!r:.60}")
        if len(event) > MAX_COLUMNS:
            raise PatternProcessorError(f"{what} have {len(event):,} columns (limit {MAX_COLUMNS:,})")
    return tuple(dict(event) for event in value)


def _matches_from(value: Any, what: str) -> tuple[ExpectedMatch, ...]:
    _bounded(value, what, MAX_EVENTS, 'a list, ["a1 b2"]')
    return tuple(_match_from(expected, what) for expected in value)


def _match_from(value: Any, what: str) -> ExpectedMatch:
    if isinstance(value, str):
        if len(value) > MAX_WORDS:
            raise PatternProcessorError(f"{what} are too long: {len(value):,} characters (limit {MAX_WORDS:,})")
        return value
    if isinstance(value, Mapping):
        if len(value) > MAX_COLUMNS:
            raise PatternProcessorError(f"{what} have {len(value):,} columns (limit {MAX_COLUMNS:,})")
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        _bounded(value, what, MAX_EVENTS, "lists of numbers")
        if all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in value):
            return tuple(value)
    raise PatternProcessorError(
        f"{what} must be literals, numbers of events (from 1), or objects, not {value!r:.60}",
        hint='"a1 b2", [1, 2], {"measure": 5}, or {"stage": "a1"}',
    )


def _names_from(value: Any, what: str, most: int, known: Sequence[str]) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > most:
        raise PatternProcessorError(f"{what} must be an object with at most {most:,} fields, not {value!r:.60}")
    for name, text in value.items():
        if known and name not in known:
            raise PatternProcessorError(f"{what} have no field {name!r:.60}", f"Fields: {', '.join(known)}")
        if not isinstance(text, str) or not 1 <= len(text) <= _MAX_NAME or not (text + name).isprintable():
            raise PatternProcessorError(f"{what} must be strings of 1 to {_MAX_NAME:,} characters, not {text!r:.60}")
    return dict(value)


def _bounded(value: Any, what: str, most: int, expected: str) -> None:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise PatternProcessorError(f"{what} must be {expected}, not {value!r:.60}")
    if len(value) > most:
        raise PatternProcessorError(f"{what} are too many: {len(value):,} (limit {most:,})")
