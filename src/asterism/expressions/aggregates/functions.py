"""The aggregate functions: their usage, their partial aggregates, and the computation of their results.

Most are *incremental*: the state of a group is a row of *partials*, made by the cells of
:mod:`asterism.expressions.aggregates.accumulators`. The others (percentiles, lists, DISTINCT) need the elements themselves.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import Ints, filled, from_numpy, one_chunk
from asterism.errors import EvaluationFailedError
from asterism.expressions.aggregates.accumulators import (
    LONG_DIGITS,
    Cell,
    Count,
    ExactSum,
    Extreme,
    FirstOrLast,
    FloatingSum,
    Moments,
    sort_keys,
    taken,
    where_valid,
)
from asterism.expressions.aggregates.hyperloglog import Sketch, estimate, estimated
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import MAX_OFFSET, columns_of
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOATS,
    INTEGERS,
    MAX_DIGITS,
    NULL,
    STRING,
    duckdb_type,
    is_decimal,
    is_nested,
    is_numeric,
    is_temporal,
    name_of,
)
from asterism.expressions.values import Sql, UnsupportedError, cast, strict

# ---------------------------------------------------------------------------------------------------- results


def _same(*columns: pa.Array) -> pa.Array:
    """The first column is the result."""
    return columns[0]


def _integer(source: str, *pieces: pa.Array) -> pa.Array:
    """The result of an :class:`ExactSum` of integers."""
    if len(pieces) == 1:
        return pieces[0]
    low, high = (filled(piece).astype(np.int64) for piece in pieces)
    if np.any(high != high.astype(np.int32)):
        raise EvaluationFailedError(
            f"{source}: the sum does not fit into BIGINT", None, "CAST the summands AS DECIMAL(20,0)"
        )
    return from_numpy((high << 32) | low, where_valid(pieces[1]))


def _decimal(source: str, data_type: pa.DataType, *pieces: pa.Array) -> pa.Array:
    """The result of an :class:`ExactSum` of decimals."""
    valid, parts = where_valid(pieces[-1]), [filled(piece).astype(np.int64) for piece in pieces]
    if len(parts) == 2:
        words = [parts[0] | (parts[1] << 32), parts[1] >> 32]
        fits = True
    else:
        words = [parts[0] | (parts[1] << 32), parts[2] | (parts[3] << 32)]
        fits = bool(np.all(parts[3] == parts[3].astype(np.int32)))
    data = np.stack(words, axis=1).tobytes()
    widest = pa.decimal128(MAX_DIGITS, data_type.scale)
    sums = pa.Array.from_buffers(widest, len(valid), [None, pa.py_buffer(data)])
    nines = (9,) * data_type.precision
    smallest, largest = (pa.scalar(Decimal((sign, nines, -data_type.scale)), widest) for sign in (1, 0))
    fits = fits and not pc.any(pc.or_(pc.greater(sums, largest), pc.less(sums, smallest))).as_py()
    if not fits:
        raise EvaluationFailedError(f"{source}: the sum does not fit into {name_of(data_type)}")
    return pc.if_else(from_numpy(valid), sums, pa.scalar(None, widest)).cast(data_type)


def _mean(total: pa.Array, n: pa.Array) -> pa.Array:
    divisors = np.maximum(filled(n), 1)
    return from_numpy(filled(total) / divisors, where_valid(total))


def _decimal_mean(source: str, total_type: pa.DataType, data_type: pa.DataType, *columns: pa.Array) -> pa.Array:
    total, n = _decimal(source, total_type, *columns[:-1]), columns[-1]
    sides = "'/', CAST(c0 AS VARCHAR), CAST(c1 AS VARCHAR)"
    quotient = f"decimal_result({sides}, {data_type.precision}, {data_type.scale})"
    value = Sql(f"CAST({quotient} AS {duckdb_type(data_type)})", data_type)
    table = pa.table({"total": total, "n": n})
    division = Vectorized(table.schema)
    division.add_value(value, source)
    return one_chunk(division.evaluate(table)[0])


def _variance(sample: bool, root: bool, n: pa.Array, origin: pa.Array, total: pa.Array, squares: pa.Array) -> pa.Array:
    count, sums, spread = (filled(column) for column in (n, total, squares))
    divisors = count - sample
    with np.errstate(all="ignore"):
        # If the sum of squares overflows a DOUBLE, so does the term to be subtracted from it.
        around = np.where(np.isinf(spread) & np.isfinite(sums), spread, spread - sums * (sums / np.maximum(count, 1)))
        variance = np.where(around < 0, 0.0, around) / np.maximum(divisors, 1)
        return from_numpy(np.sqrt(variance) if root else variance, divisors > 0)


# ---------------------------------------------------------------------------------------------------- functions of rows


def folded(
    cells: Sequence[Cell],
    finish: Callable[..., pa.Array],
    groups: Ints,
    arguments: Sequence[pa.Array],
    count: int,
) -> pa.Array:
    """Compute an incremental function from kept rows."""
    return finish(*(column for cell in cells for column in cell.fold(groups, count, arguments, None)))


def _in_order(groups: Ints, rows: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """(the rows ordered by group; where each group begins; the size of each group)"""
    sizes = np.bincount(groups[rows], minlength=count)
    return rows[np.argsort(groups[rows], kind="stable")], np.cumsum(sizes) - sizes, sizes


def _listed(groups: Ints, arguments: Sequence[pa.Array], count: int) -> pa.Array:
    rows, starts, _ = _in_order(groups, np.flatnonzero(where_valid(arguments[0])), count)
    offsets = np.append(starts, len(rows)).astype(np.int32)
    return pa.ListArray.from_arrays(from_numpy(offsets), arguments[0].take(from_numpy(rows)))


def _nth(last: bool, known: bool, offset: int, groups: Ints, arguments: Sequence[pa.Array], count: int) -> pa.Array:
    """The value with this offset from the first or last element."""
    there = np.flatnonzero(where_valid(arguments[0])) if known else np.arange(len(groups))
    rows, starts, sizes = _in_order(groups, there, count)
    at = np.where(sizes > offset, starts + (sizes - 1 - offset if last else offset), -1)
    return taken(arguments[0].take(from_numpy(rows)), at)


def _sorted(groups: Ints, column: pa.Array, count: int) -> tuple[pa.Array, Ints, Ints]:
    """:func:`_in_order` for the values that are not NULL, in ascending order."""
    rows = np.flatnonzero(where_valid(column))
    rows, starts, sizes = _in_order(groups, rows[np.argsort(sort_keys(column)[rows], kind="stable")], count)
    return column.take(from_numpy(rows)), starts, sizes


def _percentile(share: float, groups: Ints, arguments: Sequence[pa.Array], count: int) -> pa.Array:
    """Interpolate linearly between the two nearest values."""
    column, starts, sizes = _sorted(groups, arguments[0].cast(DOUBLE, safe=False), count)
    values = np.append(filled(column), 0.0)  # a dummy value for empty groups
    place = share * np.maximum(sizes - 1, 0)
    low, high = np.floor(place), np.ceil(place)
    at = [np.where(sizes > 0, starts + side.astype(np.int64), -1) for side in (low, high)]
    below, above = values[at[0]], values[at[1]]
    with np.errstate(invalid="ignore"):
        between = np.where(below == above, below, below + (place - low) * (above - below))
        return from_numpy(np.where(low == high, below, between), sizes > 0)


def _nearest(share: float, groups: Ints, arguments: Sequence[pa.Array], count: int) -> pa.Array:
    """The smallest value whose cumulative share is at least *share*."""
    column, starts, sizes = _sorted(groups, arguments[0], count)
    rank = np.maximum(np.ceil(share * sizes).astype(np.int64), 1)
    return taken(column, np.where(sizes > 0, starts + rank - 1, -1))


@dataclass(frozen=True, slots=True)
class Made:
    """How a function is computed from its arguments."""

    type: pa.DataType
    values: tuple[Sql, ...]
    cells: tuple[Cell, ...] = ()
    finish: Callable[..., pa.Array] = _same
    of_rows: Callable[..., pa.Array] | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """The context of a call."""

    source: str
    vectorized: Vectorized
    type_of: Callable[[Sql], pa.DataType]
    ignore_nulls: bool | None
    whole: bool
    """whether all elements of a group are available at once, as the events of a match are"""

    @property
    def zone(self) -> str:
        return self.vectorized.zone

    def constant(self, value: Sql, what: str) -> Any:
        if columns_of(value.text):
            raise UnsupportedError(f"{what} cannot depend on the elements")
        return self.vectorized.constant(value).as_py()

    def share(self, value: Sql) -> float:
        if not is_numeric(value.type):
            raise UnsupportedError(f"the percentage must be a single number, not {name_of(value.type)}")
        share = self.constant(value, "the percentage")
        if share is None or not 0 <= share <= 1:
            raise UnsupportedError("the percentage must be between 0 and 1")
        return float(share)


@dataclass(frozen=True, slots=True)
class SqlAggregate:
    """The usage and notes of a function; *build* makes its computation from the arguments."""

    usage: str
    note: str
    build: Callable[..., Made]
    of_rows: bool = False
    """whether it needs the elements themselves"""
    distinct: bool = False
    """whether it always reads each distinct value only once"""
    takes_nulls: bool = False
    """whether it accepts IGNORE NULLS"""
    ordered: bool = False
    """whether its result depends on the order of the elements, which ORDER BY can change"""

    def make(self, site: Site, star: bool, values: Sequence[Sql]) -> Made:
        name = self.usage.partition("(")[0]
        if star and name != "count":
            raise UnsupportedError("* is supported only in COUNT")
        try:
            inspect.signature(self.build).bind(site, *values)
        except TypeError:
            raise UnsupportedError(f"wrong number of arguments: {len(values):,}", self.usage) from None
        if name == "count" and not star and not values:
            raise UnsupportedError("wrong number of arguments: 0", self.usage)
        return self.build(site, *values)


def _count(site: Site, *values: Sql) -> Made:
    return Made(BIGINT, values, (Count(),))


def _count_if(site: Site, condition: Sql) -> Made:
    return Made(BIGINT, (_truth(condition, site),), (Count(true=True),))


def _truth(value: Sql, site: Site) -> Sql:
    if value.type not in (BOOLEAN, NULL):
        raise UnsupportedError(f"a condition is needed, not {name_of(value.type)}")
    return cast(value, BOOLEAN, site.zone)


def _number(value: Sql, site: Site) -> Sql:
    if not is_numeric(value.type) and value.type != NULL:
        raise UnsupportedError(f"a number is needed, not {name_of(value.type)}", "CAST it")
    return cast(value, DOUBLE, site.zone) if value.type == NULL else value


def _double(value: Sql, site: Site) -> Sql:
    """A number to be read as DOUBLE. A type that Arrow converts as Spark does is not cast: plain columns are read as is."""
    value = _number(value, site)
    return cast(value, DOUBLE, site.zone) if is_decimal(value.type) else value


def _exact_sum(data_type: pa.DataType) -> ExactSum:
    if is_decimal(data_type):
        return ExactSum(2 if data_type.precision <= LONG_DIGITS else 4)
    return ExactSum(2 if data_type == BIGINT else 1)


def _wider(data_type: pa.DataType, whole: int, scale: int) -> pa.DataType:
    """A decimal type with more digits, up to the maximum."""
    return pa.decimal128(min(data_type.precision + whole, MAX_DIGITS), min(data_type.scale + scale, MAX_DIGITS))


def _sum(site: Site, value: Sql) -> Made:
    value = _number(value, site)
    if value.type in FLOATS:
        return Made(DOUBLE, (value,), (FloatingSum(),))
    cell = _exact_sum(value.type)
    if is_decimal(value.type):
        kind = _wider(value.type, 10, 0)
        return Made(kind, (value,), (cell,), partial(_decimal, site.source, kind))
    return Made(BIGINT, (value,), (cell,), partial(_integer, site.source))


def _avg(site: Site, value: Sql) -> Made:
    value = _number(value, site)
    if not is_decimal(value.type):
        return Made(DOUBLE, (value,), (FloatingSum(), Count()), _mean)
    total, kind = _wider(value.type, 10, 0), _wider(value.type, 4, 4)
    finish = partial(_decimal_mean, site.source, total, kind)
    return Made(kind, (value,), (_exact_sum(value.type), Count()), finish)


def orderable(value: Sql) -> Sql:
    """:raises UnsupportedError: values of this type have no order"""
    if is_nested(value.type):
        raise UnsupportedError(f"{name_of(value.type)} is not supported", "compare its elements or fields")
    return value


def _extreme(largest: bool, site: Site, value: Sql) -> Made:
    kind = site.type_of(orderable(value))
    return Made(kind, (value,), (Extreme(kind, largest),))


def _truths(largest: bool, site: Site, condition: Sql) -> Made:
    """``bool_and`` is the minimum and ``bool_or`` the maximum, because FALSE is less than TRUE."""
    return _extreme(largest, site, _truth(condition, site))


def _extreme_by(largest: bool, site: Site, value: Sql, by: Sql) -> Made:
    kind, order = site.type_of(value), site.type_of(orderable(by))
    return Made(kind, (value, by), (Extreme(kind, largest, order),))


def _first_or_last(last: bool, site: Site, value: Sql, second: Sql | None = None) -> Made:
    known, kind = bool(site.ignore_nulls), site.type_of(value)
    if site.whole and second is not None and second.type in INTEGERS:
        offset = site.constant(second, "the offset")
        if offset is None or not 0 <= offset <= MAX_OFFSET:
            raise UnsupportedError(f"the offset must be between 0 and {MAX_OFFSET:,}")
        return Made(kind, (value,), of_rows=partial(_nth, last, known, offset))
    if second is not None:
        if second.type != BOOLEAN or site.ignore_nulls is not None:
            raise UnsupportedError("IGNORE NULLS and the argument TRUE cannot be combined")
        known = bool(site.constant(second, "whether NULL is ignored"))
    return Made(kind, (value,), (FirstOrLast(kind, last, known),))


def _spread(sample: bool, root: bool, site: Site, value: Sql) -> Made:
    return Made(DOUBLE, (_double(value, site),), (Moments(),), partial(_variance, sample, root))


def _approx_count_distinct(site: Site, value: Sql, error: Sql | None = None) -> Made:
    deviation = 0.05
    if error is not None:
        if not is_numeric(error.type):
            raise UnsupportedError(f"the error must be a number, not {name_of(error.type)}")
        deviation = float(site.constant(error, "the error") or 0)
    # The same number of registers as in Spark.
    bits = math.ceil(2 * math.log2(1.106 / deviation)) if 0 < deviation < 1 else 0
    if not 4 <= bits <= 18:
        raise UnsupportedError("the error must be between 0.0022 and 0.39")
    value = orderable(value)
    if value.type in (STRING, BINARY) or (is_decimal(value.type) and value.type.precision > LONG_DIGITS):
        text = value if value.type in (STRING, BINARY) else cast(value, STRING, site.zone)
        value = strict("CAST((md5_number_lower({0}) >> 1) AS BIGINT)", BIGINT, text)
    if site.whole:
        return Made(BIGINT, (value,), of_rows=partial(estimated, bits))
    return Made(BIGINT, (value,), (Sketch(bits),), partial(estimate, bits))


def _collected(site: Site, value: Sql) -> Made:
    return Made(pa.list_(site.type_of(value)), (value,), of_rows=_listed)


def _exact_percentile(site: Site, value: Sql, share: Sql) -> Made:
    return Made(DOUBLE, (_double(value, site),), of_rows=partial(_percentile, site.share(share)))


def _median(site: Site, value: Sql) -> Made:
    return Made(DOUBLE, (_double(value, site),), of_rows=partial(_percentile, 0.5))


def _approx_percentile(site: Site, value: Sql, share: Sql, accuracy: Sql | None = None) -> Made:
    if not (is_numeric(value.type) or is_temporal(value.type)):
        raise UnsupportedError(f"a number, a date or a time is needed, not {name_of(value.type)}", "CAST it")
    if accuracy is not None and (
        accuracy.type not in INTEGERS or not 0 < (site.constant(accuracy, "the accuracy") or 0) < 2**31
    ):
        raise UnsupportedError("the accuracy must be an integer above 0")
    return Made(site.type_of(value), (value,), of_rows=partial(_nearest, site.share(share)))


_ORDER = "in order of arrival"
_ROWS = "the elements are kept"

FUNCTIONS: Mapping[str, SqlAggregate] = {
    name: function
    for names, function in (
        (("count",), SqlAggregate("count(*), count(a, ...)", "elements of which no argument is NULL", _count)),
        (("count_if",), SqlAggregate("count_if(condition)", "elements for which it is TRUE", _count_if)),
        (("sum",), SqlAggregate("sum(x)", "fails if it does not fit; of FLOAT and DOUBLE " + _ORDER, _sum)),
        (("avg", "mean"), SqlAggregate("avg(x)", "a DOUBLE, or a DECIMAL for a DECIMAL", _avg)),
        (("min",), SqlAggregate("min(a)", "not for arrays, maps and structs", partial(_extreme, False))),
        (("max",), SqlAggregate("max(a)", "likewise; NaN is the largest number", partial(_extreme, True))),
        (("min_by",), SqlAggregate("min_by(a, b)", "the last of equals", partial(_extreme_by, False))),
        (("max_by",), SqlAggregate("max_by(a, b)", "likewise", partial(_extreme_by, True))),
        (
            ("first", "first_value", "any_value"),
            SqlAggregate(
                "first(a) [IGNORE NULLS]", _ORDER, partial(_first_or_last, False), takes_nulls=True, ordered=True
            ),
        ),
        (
            ("last", "last_value"),
            SqlAggregate(
                "last(a) [IGNORE NULLS]", _ORDER, partial(_first_or_last, True), takes_nulls=True, ordered=True
            ),
        ),
        (("bool_and", "every"), SqlAggregate("bool_and(condition)", "", partial(_truths, False))),
        (("bool_or", "some", "any"), SqlAggregate("bool_or(condition)", "", partial(_truths, True))),
        (
            ("stddev", "stddev_samp", "std"),
            SqlAggregate("stddev(x)", "of a sample; NULL of one number", partial(_spread, True, True)),
        ),
        (("stddev_pop",), SqlAggregate("stddev_pop(x)", "", partial(_spread, False, True))),
        (
            ("variance", "var_samp"),
            SqlAggregate("variance(x)", "of a sample; NULL of one number", partial(_spread, True, False)),
        ),
        (("var_pop",), SqlAggregate("var_pop(x)", "", partial(_spread, False, False))),
        (
            ("approx_count_distinct",),
            SqlAggregate(
                "approx_count_distinct(a[, error])",
                "by a HyperLogLog sketch, with a standard error of 5 % unless another is given (of 0.22 % to 39 %); other "
                "than Spark's by as much",
                _approx_count_distinct,
            ),
        ),
        (
            ("collect_list", "array_agg"),
            SqlAggregate("collect_list(a)", f"{_ORDER}; {_ROWS}", _collected, of_rows=True, ordered=True),
        ),
        (
            ("collect_set",),
            SqlAggregate("collect_set(a)", f"{_ORDER}; {_ROWS}", _collected, of_rows=True, distinct=True, ordered=True),
        ),
        (("percentile",), SqlAggregate("percentile(x, p)", f"exact; {_ROWS}", _exact_percentile, of_rows=True)),
        (
            ("percentile_approx", "approx_percentile"),
            SqlAggregate(
                "percentile_approx(x, p[, accuracy])",
                f"one of the values, exact whatever the accuracy; NaN is the largest number, unlike Spark's; {_ROWS}",
                _approx_percentile,
                of_rows=True,
            ),
        ),
        (("median",), SqlAggregate("median(x)", f"as percentile(x, 0.5); {_ROWS}", _median, of_rows=True)),
    )
    for name in names
}
"""The functions by name, in lower case; aliases share an entry. All accept DISTINCT, for which the elements are kept, and
FILTER (WHERE ...).
"""
