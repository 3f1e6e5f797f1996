"""Numbers and texts formatted as by Java's ``Formatter`` and ``DecimalFormat``, in English."""

from __future__ import annotations

import decimal
import functools
import math
import re
from dataclasses import dataclass

import pyarrow as pa

from asterism.expressions.udfs import constant, each, routine

_CONTEXT = decimal.Context(prec=1000, Emax=9999, Emin=-9999)
_SPECIFIER = re.compile(r"%(?:([0-9]+)\$|(<))?([-#+ 0,(]*)([1-9][0-9]*)?(?:\.([0-9]+))?([A-Za-z%])")
_FLAGS = {
    "s": "-",
    "b": "-",
    "c": "-",
    "d": "-+ 0,(",
    "x": "-#0",
    "o": "-#0",
    "f": "-+ 0,(",
    "e": "-+ 0(",
    "%": "-",
    "n": "",
}
"""The conversions, with their flags."""
_PRECISE = "sbfe"
"""The conversions that take a precision."""
MAX_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Specifier:
    """A placeholder of a format, such as ``%,8.2f``."""

    written: str
    index: int | None
    """the number of its argument, from 1; 0 for that of the placeholder before; None for the next one"""
    flags: str
    width: int
    precision: int | None
    conversion: str
    """in lower case"""
    upper: bool


def specifiers(text: str) -> list[str | Specifier]:
    """The parts of a format; :class:`ValueError` if Java refuses it, or a conversion that is not supported.

    >>> [part if isinstance(part, str) else part.written for part in specifiers("%s: %5.1f m")]
    ['%s', ': ', '%5.1f', ' m']
    """
    parts: list[str | Specifier] = []
    at = 0
    while at < len(text):
        if text[at] != "%":
            end = text.find("%", at)
            end = len(text) if end < 0 else end
            parts.append(text[at:end])
            at = end
            continue
        match = _SPECIFIER.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 10]!r} is not a placeholder; write %% for the character")
        parts.append(_specifier(match))
        at = match.end()
    return parts


def _specifier(match: re.Match[str]) -> Specifier:
    written, (index, before, flags, width, precision, letter) = match.group(), match.groups()
    conversion = letter.lower()
    if conversion not in _FLAGS or (letter != conversion and conversion in "dofn"):
        raise ValueError(f"{written} is not supported: {', '.join('%' + name for name in _FLAGS)}")
    wrong = set(flags) - set(_FLAGS[conversion])
    if wrong or len(set(flags)) < len(flags) or {"-", "0"} <= set(flags) or {"+", " "} <= set(flags):
        raise ValueError(f"the flags of {written} do not fit")
    if (precision is not None and conversion not in _PRECISE) or (not width and set(flags) & {"-", "0"}):
        raise ValueError(f"{written} has no width, or a precision that does not fit")
    if index is not None and (len(index) > 4 or not int(index)):
        raise ValueError(f"the arguments of {written} are numbered from 1")
    if conversion == "n" and (width or index or before):
        raise ValueError(f"{written} takes no width")
    if any(len(number or "") > 4 or int(number or 0) > MAX_WIDTH for number in (width, precision)):
        raise ValueError(f"{written}: a width is at most {MAX_WIDTH:,}")
    number = 0 if before else None if index is None else int(index)
    digits = None if precision is None else int(precision)
    return Specifier(written, number, flags, int(width or 0), digits, conversion, letter != conversion)


@functools.lru_cache(maxsize=1000)
def _read(written: str) -> Specifier:
    (part,) = specifiers(written)
    assert isinstance(part, Specifier)
    return part


def justified(text: str, specifier: Specifier) -> str:
    """In upper case if it is to be, and with spaces up to the width, in units of UTF-16."""
    text = text.upper() if specifier.upper else text
    missing = specifier.width - len(text.encode("utf-16-le")) // 2
    return text + " " * missing if "-" in specifier.flags else " " * missing + text


def _cut(text: str, specifier: Specifier) -> str:
    if specifier.precision is None:
        return text
    units = text.encode("utf-16-le")[: 2 * specifier.precision]
    return units.decode("utf-16-le", "surrogatepass").encode(errors="replace").decode()


def _signed(digits: str, negative: bool, specifier: Specifier, rest: str = "") -> str:
    """With its sign, thousands separators and zeros; *rest* is an exponent."""
    whole, point, fraction = digits.partition(".")
    if "," in specifier.flags:
        whole = f"{int(whole):,}"
    sign = ("(" if "(" in specifier.flags else "-") if negative else "+" if "+" in specifier.flags else ""
    sign = sign or (" " if " " in specifier.flags and not negative else "")
    end = ")" if sign == "(" else ""
    text = whole + point + fraction
    if "0" in specifier.flags:
        text = text.rjust(specifier.width - len(rest) - len(end) - len(sign), "0")
    return sign + text + rest + end


@routine("VARCHAR", "VARCHAR", "VARCHAR", nulls=True)
def formatted_text(values: pa.ChunkedArray, written: pa.ChunkedArray) -> pa.Array:
    specifier = _read(constant(written))
    none = justified(_cut("false" if specifier.conversion == "b" else "null", specifier), specifier)
    shown = each(values, lambda value: justified(_cut(value, specifier), specifier), pa.string())
    return shown.fill_null(none)


@routine("VARCHAR", "BIGINT", "VARCHAR", "INTEGER", nulls=True)
def formatted_integer(values: pa.ChunkedArray, written: pa.ChunkedArray, bits: pa.ChunkedArray) -> pa.Array:
    specifier, size = _read(constant(written)), constant(bits)

    def show(value: int) -> str:
        match specifier.conversion:
            case "c":
                if not 0 <= value <= 0x10FFFF:
                    raise ValueError(f"{value} is not a code point")
                return justified(chr(value).encode("utf-8", "replace").decode(), specifier)
            case "d":
                return justified(_signed(str(abs(value)), value < 0, specifier), specifier)
        digits = f"{value % 2**size:{specifier.conversion}}"
        prefix = ("0x" if specifier.conversion == "x" else "0") if "#" in specifier.flags else ""
        digits = digits.rjust(specifier.width - len(prefix), "0") if "0" in specifier.flags else digits
        return justified(prefix + digits, specifier)

    return each(values, show, pa.string()).fill_null(justified("null", specifier))


@routine("VARCHAR", "DOUBLE", "VARCHAR", nulls=True)
def formatted_double(values: pa.ChunkedArray, written: pa.ChunkedArray) -> pa.Array:
    specifier = _read(constant(written))

    def show(value: float) -> str:
        if math.isnan(value):
            return justified("NaN", specifier)
        negative = math.copysign(1, value) < 0
        if math.isinf(value):
            sign = _signed("0", negative, _unpadded(specifier))
            return justified(sign.replace("0", "Infinity"), specifier)
        return justified(_shown_double(abs(value), negative, specifier), specifier)

    return each(values, show, pa.string()).fill_null(justified(_cut("null", specifier), specifier))


def _unpadded(specifier: Specifier) -> Specifier:
    flags = specifier.flags.replace("0", "")
    return Specifier(specifier.written, None, flags, 0, None, specifier.conversion, upper=False)


def _shortest(value: float) -> decimal.Decimal:
    """The decimal with the fewest digits that is this double; of two digits, in Java, if one would do."""
    shortest = decimal.Decimal(repr(value))
    if abs(shortest) < decimal.Decimal("1e-320") and len(shortest.normalize().as_tuple().digits) == 1:
        return decimal.Decimal(f"{value:.1e}")
    return shortest


def _shown_double(value: float, negative: bool, specifier: Specifier) -> str:
    """Rounded as a decimal, halves up."""
    places = 6 if specifier.precision is None else specifier.precision
    exact = _shortest(value)
    if specifier.conversion == "f":
        rounded = exact.quantize(decimal.Decimal(1).scaleb(-places), decimal.ROUND_HALF_UP, _CONTEXT)
        return _signed(f"{rounded:f}", negative, specifier)
    exponent = exact.adjusted() if exact else 0
    mantissa = exact.scaleb(-exponent, _CONTEXT).quantize(
        decimal.Decimal(1).scaleb(-places), decimal.ROUND_HALF_UP, _CONTEXT
    )
    if mantissa >= 10:
        exponent += 1
        mantissa = (mantissa / 10).quantize(decimal.Decimal(1).scaleb(-places), context=_CONTEXT)
    return _signed(f"{mantissa:f}", negative, specifier, f"e{exponent:+03d}")


# ---------------------------------------------------------------------------------------------------- format_number


@routine("VARCHAR", "VARCHAR", "INTEGER")
def grouped_decimal(decimals: pa.ChunkedArray, places: pa.ChunkedArray) -> pa.Array:
    """With thousands separators, rounded to so many places, halves to the even digit."""
    unit = decimal.Decimal(1).scaleb(-constant(places))

    def show(text: str) -> str:
        return f"{decimal.Decimal(text).quantize(unit, decimal.ROUND_HALF_EVEN, _CONTEXT):,f}"

    return each(decimals, show, pa.string())


@routine("VARCHAR", "DOUBLE", "INTEGER")
def grouped_double(values: pa.ChunkedArray, places: pa.ChunkedArray) -> pa.Array:
    """The same for the shortest decimal that is a double; if it is halfway, its exact value decides."""
    unit = decimal.Decimal(1).scaleb(-constant(places))

    def show(value: float) -> str:
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "∞" if value > 0 else "-∞"
        shortest = _shortest(value)
        lower = shortest.quantize(unit, decimal.ROUND_DOWN, _CONTEXT)
        exact = decimal.Decimal(value) if abs(shortest - lower) * 2 == unit else shortest
        return f"{exact.quantize(unit, decimal.ROUND_HALF_EVEN, _CONTEXT):,f}"

    return each(values, show, pa.string())
