"""Checks of the arguments of public functions: an argument of a wrong type is refused with a hint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from types import UnionType
from typing import Any, ParamSpec, TypeVar

from asterism.errors import AsterismError, UnknownOutputError

P = ParamSpec("P")
R = TypeVar("R")


def shown(value: Any) -> str:
    """The representation of a value in a message, of bounded length.

    >>> shown("x" * 100), shown(dict)
    ("'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 'dict')
    """
    name = getattr(value, "__qualname__", None)
    if callable(value) and isinstance(name, str):
        return name
    try:
        return f"{value!r:.60}"
    except Exception:  # the repr of a user class may fail
        return f"a {type(value).__name__}"


def function_name(function: object) -> str:
    """The name of a user function in a message; of an object that can be called, that of its class.

    >>> function_name(shown)
    'shown'
    """
    return getattr(function, "__qualname__", type(function).__name__)


def described(error: BaseException) -> str:
    """The class and the message of an exception of a user function.

    >>> described(ValueError("no price"))
    'ValueError: no price'
    """
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the str of a user exception may fail
        return f"{type(error).__name__} (its message could not be computed)"


def expect(error: type[AsterismError], value: Any, kind: type | UnionType, what: str, hint: str | None = None) -> None:
    """Refuse a *value* that is not of *kind*; a bool is not a number.

    :param what: the argument and its type, as in "a window must be a timedelta"
    :param hint: what could be written instead; a timedelta in it becomes that of *value*, see :func:`hint_of_duration`

    >>> expect(AsterismError, "5", int, "key_groups must be an integer", "key_groups=5")
    Traceback (most recent call last):
    ...
    asterism.errors.AsterismError: [ASTERISM_ERROR] key_groups must be an integer, not '5'
      Hint: key_groups=5
    """
    if not isinstance(value, kind) or (isinstance(value, bool) and not _takes_bool(kind)):
        raise error(f"{what}, not {shown(value)}", hint=None if hint is None else hint_of_duration(value, hint))


_UNITS = {
    "microseconds": "us|microseconds?",
    "milliseconds": "ms|millis|milliseconds?",
    "seconds": "s|secs?|seconds?",
    "minutes": "m|mins?|minutes?",
    "hours": "h|hrs?|hours?",
    "days": "d|days?",
    "weeks": "w|weeks?",
}
_DURATION = re.compile(
    r"\s*(?:INTERVAL\s+)?'?(\d{1,9}(?:\.\d{1,6})?)'?\s*(?:"
    + "|".join(f"(?P<{unit}>{spelled})" for unit, spelled in _UNITS.items())
    + r")\s*",
    re.IGNORECASE,
)


def hint_of_duration(value: object, hint: str) -> str:
    """A hint whose first timedelta is the duration that *value* spells in another way; a number is in seconds.

    >>> hint_of_duration("10 minutes", "ttl=timedelta(hours=1)"), hint_of_duration(30, "timedelta(minutes=5)")
    ('ttl=timedelta(minutes=10)', 'timedelta(seconds=30)')
    >>> hint_of_duration("soon", "timedelta(minutes=5)")
    'timedelta(minutes=5)'
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10**9:
        meant = f"timedelta(seconds={value})"
    elif isinstance(value, str) and (spelled := _DURATION.fullmatch(value)) is not None:
        meant = f"timedelta({spelled.lastgroup}={spelled[1].lstrip('0') or '0'})"
    else:
        return hint
    return re.sub(r"timedelta\([^()]*\)", meant, hint, count=1)


def _takes_bool(kind: type | UnionType) -> bool:
    return bool in getattr(kind, "__args__", (kind,))


def expect_string(error: type[AsterismError], value: Any, what: str, hint: str | None = None) -> None:
    """Refuse a value that is not a string, or that cannot be encoded as UTF-8."""
    expect(error, value, str, what, hint)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise error(f"{what}; {shown(value)} contains an unpaired surrogate") from None


def expect_strings(error: type[AsterismError], value: Any, what: str, hint: str | None = None) -> None:
    """Refuse a value that is not a list of strings; a single string is not a list, although it is iterable."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise error(f"{what}, not {shown(value)}", hint=hint)
    for text in value:
        expect_string(error, text, what, hint)


def expect_number(
    error: type[AsterismError], value: Any, what: str, *, least: int, most: int | None = None, hint: str | None = None
) -> None:
    """Refuse a value that is not an integer from *least* to *most*."""
    expect(error, value, int, f"{what} must be an integer", hint)
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most:,}"
        raise error(f"{what} must be {bounds}, not {shown(value)}", hint=hint)


def expect_outputs(names: Iterable[Any], known: Iterable[str]) -> None:
    """Refuse a name that is not one of the *known* outputs.

    >>> expect_outputs(["match"], ["matches", "late"])
    Traceback (most recent call last):
    ...
    asterism.errors.UnknownOutputError: [UNKNOWN_OUTPUT] there is no output 'match'
      Outputs: matches, late
    """
    known = list(known)
    for name in names:
        if name not in known:
            raise UnknownOutputError(f"there is no output {shown(name)}", f"Outputs: {', '.join(known) or 'none'}")


def expect_options(function: str, given: Iterable[str], options: type) -> None:
    """Refuse a keyword that is not a key of *options*, the TypedDict of the options of a function.

    :raises TypeError: as for a function without options

    >>> from typing import TypedDict
    >>> expect_options("window", {"evict": 5}, TypedDict("WindowOptions", {"evictor": int}))
    Traceback (most recent call last):
    ...
    TypeError: window() got an unexpected keyword argument 'evict'. Did you mean 'evictor'?
    """
    for name in given:
        if name not in options.__annotations__:
            similar = get_close_matches(name, options.__annotations__, n=1)
            hint = f". Did you mean {similar[0]!r}?" if similar else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def also_named(
    former: str, name: str, error: type[AsterismError], *, unless: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept the keyword *former*, which an earlier release had, for the parameter *name* of a function.

    :param unless: with this argument, the keyword is a parameter of its own

    >>> @also_named("schema", "columns", AsterismError)
    ... def used(columns=""):
    ...     return columns
    >>> used(schema="id BIGINT")
    'id BIGINT'
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            if former in options and (unless is None or options.get(unless) is None):
                if name in options:
                    raise error(f"{name} and {former} are given", f"{former} is the former name of {name}.", f"{name}=")
                options[name] = options.pop(former)
            return function(*args, **options)

        return call

    return decorate
