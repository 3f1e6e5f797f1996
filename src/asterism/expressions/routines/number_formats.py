"""Numbers read from texts and written as texts by a format such as ``$9,999.99S``: to_number and to_char."""

from __future__ import annotations

import decimal
import functools
import re
import unicodedata
from dataclasses import dataclass

import pyarrow as pa

from asterism.expressions.udfs import constant, each, routine

_TOKEN = re.compile(r"[09]+|[.D]|[,G]|\$|S|MI|PR")
_ORDER = ({"<"}, {"MI", "S"}, {"$"}, {"digits"}, {"."}, {"digits"}, {"$"}, {"MI", "S", ">"})
"""What a format may consist of, in this order."""
_CONTEXT = decimal.Context(prec=100)
MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Digits:
    """Groups of digits between thousands separators; of each the number of digits, and whether there must be as many."""

    groups: tuple[tuple[int, bool], ...]

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.groups)


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A format of numbers."""

    tokens: tuple[str | Digits, ...]
    precision: int
    scale: int


@functools.lru_cache(maxsize=1000)
def number_format(text: str) -> NumberFormat:
    """Parse a format; :class:`ValueError` if it is not one of Spark.

    >>> number_format("$9,999.99S").precision
    6
    """
    tokens: list[str | Digits] = []
    at, upper = 0, text.upper()
    while at < len(upper):
        match = _TOKEN.match(upper, at)
        if match is None:
            raise ValueError(f"{upper[at]!r} cannot be in a format of numbers")
        at = match.end()
        token = {"D": ".", "G": ","}.get(match.group(), match.group())
        if token == "PR":
            tokens = ["<", *tokens, ">"]
        elif token[0] in "09,":
            _add_digits(tokens, token)
        else:
            tokens.append(token)
    point = tokens.index(".") if "." in tokens else len(tokens)
    fraction = tokens[point:]
    digits = [token for token in tokens if isinstance(token, Digits)]
    if not digits:
        raise ValueError("a format of numbers needs digits: 0 or 9")
    if any(not count for token in digits for count, _ in token.groups) or any(
        len(token.groups) > 1 for token in fraction if isinstance(token, Digits)
    ):
        raise ValueError("a thousands separator needs digits before the decimal point on both sides")
    if "$" in tokens and tokens.index("$") > min(at for at, token in enumerate(tokens) if isinstance(token, Digits)):
        raise ValueError("$ comes before the digits")
    expected = 0
    for allowed in _ORDER:
        if expected < len(tokens):
            token_ = tokens[expected]
            expected += ("digits" if isinstance(token_, Digits) else token_) in allowed
    if expected < len(tokens):
        raise ValueError(
            "the order in a format of numbers is S or MI, $, digits, a decimal point, digits, and S, MI or PR"
        )
    precision = sum(token.count for token in digits)
    if precision > MAX_DIGITS:
        raise ValueError(f"a format of numbers has at most {MAX_DIGITS} digits")
    return NumberFormat(tuple(tokens), precision, sum(token.count for token in fraction if isinstance(token, Digits)))


def _add_digits(tokens: list[str | Digits], token: str) -> None:
    """Add digits, or a thousands separator, to the digits before."""
    before: tuple[tuple[int, bool], ...] = ()
    if tokens and isinstance(tokens[-1], Digits):
        before = tokens[-1].groups
        tokens.pop()
    if token == ",":
        tokens.append(Digits((*(before or ((0, False),)), (0, False))))
        return
    exact = token[0] == "0" and "." not in tokens
    tokens.append(Digits((*before[:-1], (len(token), exact))))


# ---------------------------------------------------------------------------------------------------- from texts


def _is_space(character: str) -> bool:
    """As Java's ``Character.isWhitespace``."""
    return character in "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f" or (
        unicodedata.category(character)[0] == "Z" and character not in "\u00a0\u2007\u202f"
    )


def _is_digit(character: str) -> bool:
    return character <= "\uffff" and character.isdecimal()


class _MismatchError(Exception):
    """The text does not have the format."""


class _NumberReader:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.before = self.after = ""
        self.fraction = self.negative = self.opened = self.closed = False

    @property
    def character(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, token: str | Digits) -> None:
        if isinstance(token, Digits):
            self._take_digits(token)
            return
        character = self.character
        if not character:
            return
        match token:
            case "$" if character != "$":
                raise _MismatchError
            case ">" if character == ">" and not self.opened:
                raise _MismatchError
        if character not in {"S": "+-", "MI": "-"}.get(token, token):
            return
        self.at += 1
        self.fraction |= token == "."
        self.opened |= token == "<"
        self.closed |= token == ">"
        if character in "->":
            self.negative = not self.negative

    def _take_digits(self, token: Digits) -> None:
        sizes = [0]
        while self.character and (_is_space(self.character) or _is_digit(self.character) or self.character == ","):
            if self.character == ",":
                sizes.append(0)
            elif _is_digit(self.character):
                sizes[-1] += 1
                if self.fraction:
                    self.after += self.character
                else:
                    self.before += self.character
            self.at += 1
        if len(sizes) > len(token.groups):
            raise _MismatchError
        # The last groups are compared, so that leading ones may be missing.
        sizes = [0] * (len(token.groups) - len(sizes)) + sizes
        for size, (count, exact) in zip(sizes, token.groups, strict=True):
            if size > count or (exact and size != count):
                raise _MismatchError


def _read(text: str, form: NumberFormat) -> str:
    reader = _NumberReader(text)
    for token in form.tokens:
        reader.take(token)
    if reader.at < len(text) or reader.opened != reader.closed or not (reader.before or reader.after):
        raise _MismatchError
    if len(reader.after) > form.scale:
        raise _MismatchError
    number = decimal.Decimal(f"{'-' * reader.negative}{reader.before or '0'}.{reader.after or '0'}")
    return f"{number.quantize(decimal.Decimal(1).scaleb(-form.scale), context=_CONTEXT):f}"


@routine("VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN", nulls=True)
def read_number(strings: pa.ChunkedArray, formats: pa.ChunkedArray, tried: pa.ChunkedArray) -> pa.Array:
    """The number as a string; an error for a string of another format, or null if it is only tried."""
    written, only_tried = constant(formats), constant(tried)
    form = number_format(written)

    def read(string: str) -> str | None:
        try:
            return _read(string, form)
        except _MismatchError:
            if only_tried:
                return None
            raise ValueError(f"{string!r:.60} does not have the format {written!r}") from None

    return each(strings, read, pa.string())


# ---------------------------------------------------------------------------------------------------- as texts


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def written_number(decimals: pa.ChunkedArray, formats: pa.ChunkedArray) -> pa.Array:
    """A decimal in a format; number signs if it has more digits than that."""
    form = number_format(constant(formats))
    return each(decimals, lambda text: _write(decimal.Decimal(text), form), pa.string())


def _write(value: decimal.Decimal, form: NumberFormat) -> str:
    negative = value < 0
    before, _, after = f"{abs(value):f}".partition(".")
    before, after = before.lstrip("0"), after.rstrip("0")
    wholes = form.precision - form.scale
    if len(before) > wholes or len(after) > form.scale:
        before, after = "#" * wholes, "#" * form.scale
    before, after = before.rjust(wholes), after.ljust(form.scale, "0")
    result = ""
    fraction = False
    for token in form.tokens:
        match token:
            case Digits():
                if fraction:
                    result += after
                else:
                    result = _with_groups(result, token, before)
            case ".":
                result = (result[:-1] + "0" if result.endswith(" ") else result) + "."
                fraction = True
            case "$":
                result += "$"
            case "<":
                result += "<" if negative else ""
            case "S":
                result = _with_sign(_without_lone_point(result), "-" if negative else "+")
            case "MI":
                result = _with_sign(_without_lone_point(result), "-") if negative else result + " "
            case _:
                result = _without_lone_point(result)
                result = _with_sign(result, ">") if negative else result + "  "
    result = _without_lone_point(result)
    return "0" if result in ("", "+", "-") else result


def _with_groups(result: str, token: Digits, digits: str) -> str:
    at = 0
    for number, (count, exact) in enumerate(token.groups):
        if number:
            result = result + "," if result[-1:].isdigit() else _with_space(result)
        for digit in digits[at : at + count]:
            result = result + (digit if digit != " " else "0") if exact or digit != " " else _with_space(result)
        at += count
    return result


def _with_space(result: str) -> str:
    """A space before the sign at the end."""
    kept = result.rstrip("+-<")
    return kept + " " + result[len(kept) :]


def _with_sign(result: str, sign: str) -> str:
    """A sign before the spaces at the end."""
    kept = result.rstrip(" ")
    return kept + sign + result[len(kept) :]


def _without_lone_point(result: str) -> str:
    """A space instead of a decimal point without digits behind it."""
    at = result.find(".")
    return result[:at] + " " + result[at + 1 :] if at >= 0 and result[at + 1 : at + 2] in ("", " ") else result
