"""Functions over Arrow arrays, called by DuckDB, for what DuckDB lacks or computes differently from Spark.

Constants are also passed as arrays, with the same value in every row. DuckDB removes rows that contain a null.
"""

from __future__ import annotations

import decimal
import functools
import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints
from asterism.columns.time import DAY, EPOCH
from asterism.columns.time_zones import zone_of

if TYPE_CHECKING:
    import duckdb


_FARTHEST = 2**63 - 2 * DAY
"""Microseconds from 1970 to which the offset of a time zone can still be added."""


_ROUTINES: dict[str, tuple[Callable[..., pa.Array], list[Any], str, bool]] = {}
"""By name."""


class Registered(Protocol):
    """A function of the user, as :class:`asterism.expressions.routines.user_functions.UserFunction`."""

    name: str
    entry: Any
    """of :data:`asterism.expressions.functions.FUNCTIONS`"""

    @property
    def duckdb_result(self) -> str: ...

    def __call__(self, setup: pa.ChunkedArray, *columns: pa.ChunkedArray) -> pa.Array: ...


USER_FUNCTIONS: dict[str, Registered] = {}
"""The functions that queries list and tests hand over, by the names under which DuckDB calls them, which are never used again:
see :mod:`asterism.expressions.routines.user_functions`.
"""
_CALL = re.compile(r"\b(\w+)\(")

_Routine = TypeVar("_Routine", bound=Callable[..., pa.Array])

_ARROW = {
    "VARCHAR": pa.string(), "BLOB": pa.binary(), "BOOLEAN": pa.bool_(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(), "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "VARCHAR[]": pa.list_(pa.string()),
    "INTEGER[]": pa.list_(pa.int32()), "FLOAT": pa.float32(), "FLOAT[]": pa.list_(pa.float32()),
    "MAP(VARCHAR, VARCHAR)": pa.map_(pa.string(), pa.string()),
}  # fmt: skip
"""The Arrow types of the results of routines."""


def routine(result: str, *parameters: Any, nulls: bool = False) -> Callable[[_Routine], _Routine]:
    """Register a function over Arrow arrays with DuckDB, under its name, with DuckDB's types of its result and parameters.

    :param nulls: whether it is also called for rows that contain a null, and may return nulls
    """

    def add(function: _Routine) -> _Routine:
        _ROUTINES[function.__name__] = function, list(parameters), result, nulls
        return function

    return add


def register(connection: duckdb.DuckDBPyConnection, query: str, registered: set[str]) -> None:
    """Register the routines that *query* calls with DuckDB. Each takes a quarter of a millisecond, and most queries call none.

    :param registered: the names of those that are registered, to which others are added
    """
    names = {name for name in _CALL.findall(query) if name in _ROUTINES or name in USER_FUNCTIONS} - registered
    if not names:
        return
    from duckdb.func import FunctionNullHandling, PythonUDFType

    for name in names:
        parameters: list[Any] | None
        if name in USER_FUNCTIONS:
            function = USER_FUNCTIONS[name]
            call, parameters, result, nulls = _of_any_types(function), None, function.duckdb_result, True
        else:
            routine_function, parameters, result, nulls = _ROUTINES[name]
            call = _unless_empty(routine_function, result)
        connection.create_function(
            name,
            call,
            parameters,
            result,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL if nulls else FunctionNullHandling.DEFAULT,
        )
        registered.add(name)


def _of_any_types(function: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """A function of which DuckDB sees that it takes any number of arguments of any types."""

    def call(*arrays: pa.ChunkedArray) -> pa.Array:
        return function(*arrays)

    return call


def _unless_empty(function: Callable[..., pa.Array], result: str) -> Callable[..., pa.Array]:
    """Handle empty arrays: if all rows contain a null, not even the constants are passed."""
    empty = pa.array([], _ARROW[result])

    @functools.wraps(function)
    def call(*arrays: pa.ChunkedArray) -> pa.Array:
        return function(*arrays) if len(arrays[0]) else empty

    return call


def constant(array: pa.ChunkedArray) -> Any:
    """The value of an argument that is the same in all rows."""
    return array[0].as_py()


def each(array: pa.ChunkedArray, function: Callable[[Any], Any], data_type: pa.DataType) -> pa.Array:
    """Call *function* once for each distinct value that is not null."""
    encoded = array.combine_chunks().dictionary_encode()
    return pa.array([function(value) for value in encoded.dictionary.to_pylist()], data_type).take(encoded.indices)


def each_row(arrays: Sequence[pa.ChunkedArray], function: Callable[..., Any], data_type: pa.DataType) -> pa.Array:
    """Call *function* once for each distinct row."""
    call = functools.cache(function)
    return pa.array([call(*row) for row in zip(*(array.to_pylist() for array in arrays), strict=True)], data_type)


# ---------------------------------------------------------------------------------------------------- texts


@routine("VARCHAR", "VARCHAR")
def upper_case(strings: pa.ChunkedArray) -> pa.Array:
    """Convert by the full mapping of Unicode: ``ß`` becomes two letters."""
    if pc.all(pc.string_is_ascii(strings)).as_py() is not False:
        return pc.ascii_upper(strings).combine_chunks()
    return each(strings, str.upper, pa.string())


@routine("VARCHAR", "VARCHAR")
def lower_case(strings: pa.ChunkedArray) -> pa.Array:
    if pc.all(pc.string_is_ascii(strings)).as_py() is not False:
        return pc.ascii_lower(strings).combine_chunks()
    return each(strings, str.lower, pa.string())


@routine("VARCHAR", "VARCHAR")
def reversed_string(strings: pa.ChunkedArray) -> pa.Array:
    """Reverse the code points, even if several form one character."""
    return each(strings, lambda string: string[::-1], pa.string())


# ---------------------------------------------------------------------------------------------------- numbers


@routine("DOUBLE", "DOUBLE", "INTEGER", "BOOLEAN")
def rounded(values: pa.ChunkedArray, digits: pa.ChunkedArray, even: pa.ChunkedArray) -> pa.Array:
    """Round the shortest decimal that is this double, halves away from zero, or to the nearest *even* digit.

    >>> rounded(*(pa.chunked_array([[value]]) for value in (1.005, 2, False)))[0].as_py()
    1.01
    """
    x = values.to_numpy()
    places, to_even = int(constant(digits)), bool(constant(even))
    with np.errstate(all="ignore"):
        unit = 10.0 ** abs(places)
        scaled = x * unit if places >= 0 else x / unit
        near = np.rint(scaled)
        result = (
            near / unit if places >= 0 else near * unit
        ) + 0.0  # removes the sign of a negative zero, as in decimals
        # If a product is far enough from halfway between two results, its rounding error does not matter.
        clear = (np.abs(np.abs(scaled - near) - 0.5) > 1e-6) & (np.abs(scaled) < 1e9)
    mode = decimal.ROUND_HALF_EVEN if to_even else decimal.ROUND_HALF_UP
    for at in np.flatnonzero(~clear & np.isfinite(x)).tolist():
        exact = decimal.Decimal(repr(float(x[at])))
        if -exact.as_tuple().exponent > places:  # type: ignore[operator]
            exact = exact.quantize(decimal.Decimal(1).scaleb(-places), mode, _EXACT)
        result[at] = float(exact) + 0.0
    result[~np.isfinite(x)] = x[~np.isfinite(x)]
    return pa.array(result)


_EXACT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP, Emax=9999, Emin=-9999)
_QUOTIENT_SCALE = decimal.Decimal(1).scaleb(-39)  # Spark divides to 39 places, then rounds to the scale of the type


@routine("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "INTEGER", "INTEGER")
def decimal_result(
    operators: pa.ChunkedArray,
    left: pa.ChunkedArray,
    right: pa.ChunkedArray,
    precision: pa.ChunkedArray,
    scale: pa.ChunkedArray,
) -> pa.Array:
    """Arithmetic on decimals of any size, passed and returned as strings."""
    return _decimal_results(operators, left, right, precision, scale, attempted=False)


@routine("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "INTEGER", "INTEGER", nulls=True)
def try_decimal_result(
    operators: pa.ChunkedArray,
    left: pa.ChunkedArray,
    right: pa.ChunkedArray,
    precision: pa.ChunkedArray,
    scale: pa.ChunkedArray,
) -> pa.Array:
    """:func:`decimal_result`; null where it does not fit."""
    return _decimal_results(operators, left, right, precision, scale, attempted=True)


def _decimal_results(
    operators: pa.ChunkedArray,
    left: pa.ChunkedArray,
    right: pa.ChunkedArray,
    precision: pa.ChunkedArray,
    scale: pa.ChunkedArray,
    *,
    attempted: bool,
) -> pa.Array:
    operate = _OPERATORS[constant(operators)]
    digits, unit = constant(precision), decimal.Decimal(1).scaleb(-constant(scale))
    answers: list[str | None] = []
    for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True):
        try:
            fits = a is not None and b is not None
            answers.append(_fitted(operate(decimal.Decimal(a), decimal.Decimal(b)), digits, unit) if fits else None)
        except OverflowError:
            if not attempted:
                raise
            answers.append(None)
    return pa.array(answers, pa.string())


def _quotient(a: decimal.Decimal, b: decimal.Decimal) -> decimal.Decimal:
    return _EXACT.divide(a, b).quantize(_QUOTIENT_SCALE, context=_EXACT)


def _positive_remainder(a: decimal.Decimal, b: decimal.Decimal) -> decimal.Decimal:
    rest = _EXACT.remainder(a, b)
    return _EXACT.remainder(_EXACT.add(rest, b), b) if rest < 0 else rest


_OPERATORS: dict[str, Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal]] = {
    "+": _EXACT.add,
    "-": _EXACT.subtract,
    "*": _EXACT.multiply,
    "/": _quotient,
    "%": _EXACT.remainder,
    "PMOD": _positive_remainder,
}


def _fitted(exact: decimal.Decimal, digits: int, unit: decimal.Decimal) -> str:
    answer = exact.quantize(unit, context=_EXACT)
    if len(answer.as_tuple().digits) > digits and answer != 0:
        raise OverflowError(f"{exact:f} does not fit into {digits} digits")
    return f"{answer:f}"


DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
_LAST_OF_TWO_BYTES = "\uffff"


def read_decimal(string: str, digits: int, scale: int) -> str:
    """Parse a decimal; ValueError or OverflowError if it is not a decimal in Spark."""
    stripped = string.strip(CONTROL)
    # Java takes the digits of all scripts here, if they are one unit of UTF-16.
    if not DECIMAL.fullmatch(stripped) or max(stripped) > _LAST_OF_TWO_BYTES:
        raise ValueError(f"{string!r} is not a valid DECIMAL")
    exact = decimal.Decimal(stripped)
    if exact.adjusted() > digits and exact != 0:
        raise OverflowError(f"{string} does not fit into {digits} digits")
    return _fitted(exact, digits, decimal.Decimal(1).scaleb(-scale))


@routine("VARCHAR", "VARCHAR", "INTEGER", "INTEGER")
def string_to_decimal(strings: pa.ChunkedArray, precision: pa.ChunkedArray, scale: pa.ChunkedArray) -> pa.Array:
    digits, places = constant(precision), constant(scale)
    return each(strings, lambda string: read_decimal(string, digits, places), pa.string())


@routine("VARCHAR", "DOUBLE", "INTEGER", "INTEGER")
def double_to_decimal(values: pa.ChunkedArray, precision: pa.ChunkedArray, scale: pa.ChunkedArray) -> pa.Array:
    """Convert the shortest decimal that is this double."""
    fit = _fitting(constant(precision), constant(scale))
    return pa.array([fit(value) for value in values.to_pylist()], pa.string())


@routine("VARCHAR", "DOUBLE", "INTEGER", "INTEGER", nulls=True)
def try_double_to_decimal(values: pa.ChunkedArray, precision: pa.ChunkedArray, scale: pa.ChunkedArray) -> pa.Array:
    """:func:`double_to_decimal`; null where it does not fit."""
    fit = _fitting(constant(precision), constant(scale))

    def tried(value: float | None) -> str | None:
        try:
            return fit(value) if value is not None and np.isfinite(value) else None
        except OverflowError:
            return None

    return pa.array([tried(value) for value in values.to_pylist()], pa.string())


def _fitting(digits: int, scale: int) -> Callable[[float], str]:
    unit = decimal.Decimal(1).scaleb(-scale)

    def fit(value: float) -> str:
        exact = decimal.Decimal(repr(value))
        if exact.adjusted() > digits:
            raise OverflowError(f"{value} does not fit into {digits} digits")
        return _fitted(exact, digits, unit)

    return fit


# ---------------------------------------------------------------------------------------------------- time zones


def _micros(times: pa.ChunkedArray) -> Ints:
    values: Ints = times.cast(pa.int64()).to_numpy()
    if len(values) and max(abs(int(values.min())), abs(int(values.max()))) > _FARTHEST:
        raise OverflowError("Timestamp microseconds out of range")  # the message of DuckDB
    return values


def _moments(values: Ints) -> pa.Array:
    return pa.array(values).cast(pa.timestamp("us"))


@routine("TIMESTAMP", "VARCHAR", "TIMESTAMP")
def local_time(zones: pa.ChunkedArray, times: pa.ChunkedArray) -> pa.Array:
    """The local times of a time zone at points in time."""
    values = _micros(times)
    return _moments(values + zone_of(constant(zones)).at_instant(values))


@routine("TIMESTAMP", "VARCHAR", "TIMESTAMP")
def instant(zones: pa.ChunkedArray, times: pa.ChunkedArray) -> pa.Array:
    """The points in time of local times in a time zone."""
    values = _micros(times)
    return _moments(values - zone_of(constant(zones)).at_local_time(values))


@routine("TIMESTAMP", "VARCHAR", "TIMESTAMP", "TIMESTAMP")
def instant_near(zones: pa.ChunkedArray, times: pa.ChunkedArray, near: pa.ChunkedArray) -> pa.Array:
    """:func:`instant`; a local time that occurs twice gets the offset that applies at the time *near*."""
    values, zone = _micros(times), zone_of(constant(zones))
    kept = values - zone.at_instant(_micros(near))
    same = zone.at_instant(kept) == values - kept
    return _moments(np.where(same, kept, values - zone.at_local_time(values)))


@routine("BIGINT", "TIMESTAMP", "TIMESTAMP")
def months_between_times(starts: pa.ChunkedArray, ends: pa.ChunkedArray) -> pa.Array:
    """Whole months between two local times, counted as in Java (``ChronoUnit.MONTHS.between``)."""
    start, end = _micros(starts), _micros(ends)
    first, last = start // DAY, end // DAY
    # An incomplete last day does not count.
    last = last - ((last > first) & (end % DAY < start % DAY)) + ((last < first) & (end % DAY > start % DAY))

    def packed(days: Ints) -> Ints:
        dates = days.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        number: Ints = months.astype(np.int64) * 32 + (dates - months.astype("datetime64[D]")).astype(np.int64)
        return number

    apart = packed(last) - packed(first)
    return pa.array(np.where(apart < 0, -(-apart // 32), apart // 32))


# ---------------------------------------------------------------------------------------------------- dates from texts

CONTROL = "".join(map(chr, range(33))) + "\x7f"
"""The characters that Spark trims at both ends of a string that is cast to another type."""
_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?(Z|[+-]\d{1,2}:\d{1,2})?)?)?)?",
    re.ASCII,
)


def _day_number(sign: str, year: str, month: str | None, day: str | None) -> int:
    number = int(year) * (-1 if sign == "-" else 1)
    cycles, rest = divmod(number - 2000, 400)
    day_of_text = date(2000 + rest, int(month or 1), int(day or 1))
    return day_of_text.toordinal() - EPOCH.toordinal() + cycles * 146_097


def read_date(string: str) -> int:
    """Days since 1970; ValueError if the string is not a date in Spark."""
    match = _DATE.fullmatch(string.strip(CONTROL))
    if match is not None:
        try:
            number = _day_number(*match.groups())
        except ValueError:
            number = 2**31
        if -(2**31) < number < 2**31:
            return number
    raise ValueError(f"{string!r} is not a valid DATE")


def read_timestamp(string: str, zone: str | None) -> int:
    """Microseconds since 1970 of a timestamp with or without an offset; of its local time if *zone* is None.

    Spark accepts more formats, such as names of time zones; those are rejected.
    """
    match = _TIMESTAMP.fullmatch(string.strip(CONTROL))
    problem = f"{string!r} is not a TIMESTAMP of the form yyyy-MM-dd HH:mm:ss[.ffffff][Z|+hh:mm]"
    if match is None:
        raise ValueError(problem)
    *day, hour, minute, second, fraction, offset = match.groups()
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(problem)
    try:
        micros = _day_number(*day) * DAY + (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    except ValueError:
        raise ValueError(problem) from None
    micros += int((fraction or "").ljust(6, "0")[:6])
    if abs(micros) >= _FARTHEST:
        raise ValueError(problem)
    if zone is None:
        return micros
    if offset is None:
        return micros - int(zone_of(zone).at_local_time(np.array([micros]))[0])
    if offset == "Z":
        return micros
    off_hours, off_minutes = (int(part) for part in offset[1:].split(":"))
    ahead = off_hours * 60 + off_minutes
    if off_minutes > 59 or ahead > 18 * 60:
        raise ValueError(problem)
    return micros - ahead * 60_000_000 * (-1 if offset[0] == "-" else 1)


@routine("DATE", "VARCHAR")
def string_to_date(strings: pa.ChunkedArray) -> pa.Array:
    return each(strings, read_date, pa.int32()).cast(pa.date32())


@routine("TIMESTAMP", "VARCHAR")
def string_to_local_time(strings: pa.ChunkedArray) -> pa.Array:
    return each(strings, lambda string: read_timestamp(string, None), pa.int64()).cast(pa.timestamp("us"))


@routine("TIMESTAMP", "VARCHAR", "VARCHAR")
def string_to_instant(zones: pa.ChunkedArray, strings: pa.ChunkedArray) -> pa.Array:
    zone = constant(zones)
    return each(strings, lambda string: read_timestamp(string, zone), pa.int64()).cast(pa.timestamp("us"))
