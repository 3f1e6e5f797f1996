"""Patterns of dates and times, as of Java's ``DateTimeFormatter``: those whose result does not depend on a locale.

See https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import NamedTuple

from asterism.columns.time import DAY, EPOCH

_MAX_PATTERN = 200  # characters
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SECOND = 1_000_000


class Token(NamedTuple):
    """A run of one letter, or a text: a literal, ``[`` or ``]``."""

    letter: str
    length: int
    text: str = ""


class TimePatternError(ValueError):
    """A pattern that is invalid, or not supported."""


def _tokens(pattern: str) -> Iterator[Token]:
    if len(pattern) > _MAX_PATTERN:
        raise TimePatternError(f"a pattern has at most {_MAX_PATTERN} characters")
    for match in re.finditer(r"([A-Za-z])\1*|'((?:[^']|'')*)'|([^A-Za-z'])|(.)", pattern, re.DOTALL):
        letter, quoted, other, wrong = match.groups()
        if wrong:
            raise TimePatternError("a quote in the pattern is not closed")
        if letter:
            yield Token(letter, len(match.group()))
        elif quoted is not None:
            yield Token("", 0, quoted.replace("''", "'") or "'")
        elif other in "[]":
            yield Token(other, 0)
        elif other in "#{}":
            raise TimePatternError(f"{other} is not supported in a pattern")
        else:
            yield Token("", 0, other)


def _unsupported(token: Token, use: str) -> TimePatternError:
    return TimePatternError(f"{token.letter * token.length} is not supported {use}")


# ---------------------------------------------------------------------------------------------------- formatting


class LocalTime(NamedTuple):
    """A local time: its date, the microseconds since midnight, and the seconds that it is ahead of UTC."""

    day: date
    micros: int
    ahead: int

    @property
    def hour(self) -> int:
        return self.micros // (3600 * _SECOND)


def _offset(ahead: int, colon: str, zero: str, *, short: bool = False) -> str:
    if ahead == 0 and zero:
        return zero
    hours, rest = divmod(abs(ahead), 3600)
    minutes = rest // 60
    sign = "-" if ahead < 0 else "+"
    return f"{sign}{hours:02}" + ("" if short and not minutes else f"{colon}{minutes:02}")


def _digits(number: Callable[[LocalTime], int], most: int = 2) -> Callable[[int], Callable[[LocalTime], str] | None]:
    return lambda count: (lambda moment: f"{number(moment):0{count}}") if count <= most else None


def _year(count: int) -> Callable[[LocalTime], str] | None:
    if count == 2:
        return lambda moment: f"{moment.day.year % 100:02}"
    return (lambda moment: f"{moment.day.year:0{count}}") if count <= 6 else None


def _month(count: int) -> Callable[[LocalTime], str] | None:
    if count > 4:
        return None
    if count < 3:
        return lambda moment: f"{moment.day.month:0{count}}"
    return lambda moment: _MONTHS[moment.day.month - 1][: 3 if count == 3 else None]


def _quarter(count: int) -> Callable[[LocalTime], str] | None:
    if count > 3:
        return None
    return lambda moment: ("Q" if count == 3 else "0" * (count - 1)) + str((moment.day.month + 2) // 3)


def _named_day(count: int) -> Callable[[LocalTime], str] | None:
    return (lambda moment: _DAYS[moment.day.weekday()][: 3 if count < 4 else None]) if count < 5 else None


def _fraction(count: int) -> Callable[[LocalTime], str] | None:
    return (lambda moment: f"{moment.micros % _SECOND:06}000"[:count]) if count <= 9 else None


def _ahead(zero: str) -> Callable[[int], Callable[[LocalTime], str] | None]:
    """An offset of X or x."""

    def part(count: int) -> Callable[[LocalTime], str] | None:
        colon = ":" if count == 3 else ""
        none = zero or ("+00" if count == 1 else f"+00{colon}00")
        return (lambda moment: _offset(moment.ahead, colon, none, short=count == 1)) if count <= 3 else None

    return part


_WRITTEN: dict[str, Callable[[int], Callable[[LocalTime], str] | None]] = {
    "y": _year,
    "M": _month,
    "L": _month,
    "d": _digits(lambda moment: moment.day.day),
    "D": _digits(lambda moment: moment.day.timetuple().tm_yday, 3),
    "Q": _quarter,
    "q": _quarter,
    "E": _named_day,
    "a": lambda count: (lambda moment: "PM" if moment.hour >= 12 else "AM") if count == 1 else None,
    "H": _digits(lambda moment: moment.hour),
    "k": _digits(lambda moment: moment.hour or 24),
    "K": _digits(lambda moment: moment.hour % 12),
    "h": _digits(lambda moment: moment.hour % 12 or 12),
    "m": _digits(lambda moment: moment.micros // (60 * _SECOND) % 60),
    "s": _digits(lambda moment: moment.micros // _SECOND % 60),
    "S": _fraction,
    "X": _ahead("Z"),
    "x": _ahead(""),
    "Z": lambda count: (lambda moment: _offset(moment.ahead, "", "")) if count <= 3 else None,
}
"""The parts of a pattern by their letter and its count; None: it is not supported."""


@functools.lru_cache(256)
def writer(pattern: str) -> Callable[[int, int], str]:
    """The function that formats a local time, in microseconds since 1970, that is some seconds ahead of UTC.

    >>> writer("yyyy-MM-dd'T'HH:mm XXX")(0, 3600)
    '1970-01-01T00:00 +01:00'

    :raises TimePatternError: the pattern is not supported
    """
    parts: list[str | Callable[[LocalTime], str]] = []
    depth = 0
    for token in _tokens(pattern):
        if token.letter in ("[", "]"):
            depth += 1 if token.letter == "[" else -1
            if depth < 0:
                raise TimePatternError("a ] in the pattern has no [")
        elif token.letter:
            part_of = _WRITTEN.get(token.letter)
            part = None if part_of is None else part_of(token.length)
            if part is None:
                raise _unsupported(token, "in a pattern")
            parts.append(part)
        else:
            parts.append(token.text)
    if depth:
        raise TimePatternError("a [ in the pattern is not closed")

    def write(local: int, ahead: int) -> str:
        days, micros = divmod(local, DAY)
        moment = LocalTime(date.fromordinal(days + EPOCH.toordinal()), micros, ahead)
        return "".join(part if isinstance(part, str) else part(moment) for part in parts)

    return write


# ---------------------------------------------------------------------------------------------------- parsing

_NAMES = {name[:length].lower(): number for number, name in enumerate(_MONTHS, 1) for length in (3, None)}
_NUMBERS = {"M": (2, 1, 12), "L": (2, 1, 12), "d": (2, 1, 31), "H": (2, 0, 23), "k": (2, 1, 24), "K": (2, 0, 11), "h": (2, 1, 12),
            "m": (2, 0, 59), "s": (2, 0, 59)}  # fmt: skip
"""The digits of the padded form of a number, and its least and largest value."""
_OFFSETS = {
    "X": (r"[zZ]|[+-][0-9]{2}(?:[0-9]{2})?", r"[zZ]|[+-][0-9]{4}", r"[zZ]|[+-][0-9]{2}:[0-9]{2}"),
    "x": (r"[+-][0-9]{2}(?:[0-9]{2})?", r"[+-][0-9]{4}", r"[+-][0-9]{2}:[0-9]{2}"),
    "Z": (r"[+-][0-9]{4}",) * 3,
}


def _expression(token: Token, following: Token | None) -> str:
    """The regular expression for a part of a pattern. As in Java, a number takes as many digits as it can."""
    letter, count = token.letter, token.length
    if letter == "y" and count in (1, 2, 4):
        if count == 4:
            return r"\+[0-9]{5,10}|-[0-9]{4,10}|[0-9]{4}"
        text = "[0-9]{2}" if count == 2 else "-?[0-9]{1,10}+"
    elif letter in "ML" and count in (3, 4):
        return "|".join(name[: 3 if count == 3 else None] for name in _MONTHS)
    elif letter in _NUMBERS and count <= 2:
        text = "[0-9]{2}" if count == 2 else "[0-9]{1,19}+"
    elif letter == "S" and count <= 9:
        text = f"[0-9]{{1,{count}}}+"
    elif letter == "a" and count == 1:
        return "am|pm"
    elif letter in _OFFSETS and count <= 3:
        return _OFFSETS[letter][count - 1]
    else:
        raise _unsupported(token, "in a pattern that reads texts")
    if text.endswith("+") and following is not None and following.letter not in ("", "[", "]"):
        raise TimePatternError(f"{letter * count} must be followed by a separator in a pattern that reads texts")
    return text


@functools.lru_cache(256)
def reader(pattern: str) -> Callable[[str], tuple[int, int | None]]:
    """The function that reads a text: the local time, in microseconds since 1970, and its offset in seconds, if it has one.

    >>> reader("d.M.yyyy[ HH:mm]")("2.1.1970")
    (86400000000, None)

    The function raises ValueError if the text does not have this form.

    :raises TimePatternError: the pattern is not supported
    """
    parts: list[str] = []
    seen: list[str] = []
    depth = 0
    tokens = list(_tokens(pattern))
    for token, following in zip(tokens, [*tokens, None][1:], strict=True):
        letter = "M" if token.letter == "L" else token.letter
        if letter == "[":
            parts.append("(?>(?:")
            depth += 1
        elif letter == "]":
            parts.append(")?)")
            depth -= 1
        elif letter:
            name = "offset" if letter in _OFFSETS else letter
            if name in seen:
                raise TimePatternError(f"{letter} occurs twice in the pattern")
            seen.append(name)
            parts.append(f"(?P<{name}>{_expression(token, following)})")
        else:
            parts.append(re.escape(token.text))
        if depth < 0:
            raise TimePatternError("a ] in the pattern has no [")
    if depth:
        raise TimePatternError("a [ in the pattern is not closed")
    hours = [letter for letter in "HkKh" if letter in seen]
    if len(hours) > 1 or ("a" in seen and not hours):
        raise TimePatternError("a pattern has one of H, k, K and h; a needs one of them")
    expression = re.compile("".join(parts), re.IGNORECASE | re.DOTALL)
    two_digits = any(token == Token("y", 2) for token in tokens)

    def read(text: str) -> tuple[int, int | None]:
        match = expression.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} does not have the form {pattern}")
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        numbers = {letter: _number(letter, value) for letter, value in found.items() if letter in _NUMBERS}
        year = int(found.get("y", "1970")) + (2000 if two_digits and "y" in found else 0)
        days = _days(year, numbers.get("M", 1), numbers.get("d", 1))
        seconds = _hour(numbers, found.get("a")) * 3600 + numbers.get("m", 0) * 60 + numbers.get("s", 0)
        micros = days * DAY + seconds * _SECOND + int(found.get("S", "").ljust(6, "0")[:6])
        return micros, _seconds_ahead(found["offset"]) if "offset" in found else None

    return read


def _number(letter: str, text: str) -> int:
    if text.lower() in _NAMES:
        return _NAMES[text.lower()]
    _, least, largest = _NUMBERS[letter]
    number = int(text)
    if not least <= number <= largest:
        raise ValueError(f"{text} is out of range")
    return number


def _hour(numbers: dict[str, int], half: str | None) -> int:
    hour = numbers.get("H", numbers.get("k", 0) % 24)
    if "K" in numbers or "h" in numbers:
        return numbers.get("K", numbers.get("h", 0)) % 12 + (12 if half is not None and half.lower() == "pm" else 0)
    if half is not None and (hour >= 12) != (half.lower() == "pm"):
        raise ValueError(f"{half} does not fit the hour")
    return hour


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970, of any year."""
    cycles, rest = divmod(year - 2000, 400)
    return date(2000 + rest, month, day).toordinal() - EPOCH.toordinal() + cycles * 146_097


def _seconds_ahead(text: str) -> int:
    if text in "zZ":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        raise ValueError(f"{text} is no offset")
    return (hours * 3600 + minutes * 60) * (-1 if text[0] == "-" else 1)
