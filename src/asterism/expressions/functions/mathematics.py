"""Mathematical functions on DOUBLE, and of vectors.

Each but those of vectors is an operation by its name, so that the stack machine can compute it, too. Those that DuckDB has
with the same results as the compiled functions are computed by DuckDB itself.
"""

from __future__ import annotations

import math

import pyarrow as pa

from asterism.expressions.functions.table import function, integer, number
from asterism.expressions.math_functions import MathFunction
from asterism.expressions.routines import vectors as _routines  # noqa: F401 - registers them
from asterism.expressions.types import BIGINT, DOUBLE, FLOAT, name_of
from asterism.expressions.values import Sql, UnsupportedError, made_by, strict

_GROUP = "Mathematics"
_LAST_DIGITS = "the last digits may differ, see below"


def _noted(note: str, *, exact: bool = False) -> str:
    return "; ".join(filter(None, [note, "" if exact else _LAST_DIGITS]))


def _of_one(usage: str, *others: str, sql: str = "", note: str = "", exact: bool = False) -> None:
    """Add a function of a DOUBLE. *sql*: how DuckDB computes it, if not by a routine."""
    name = usage.partition("(")[0].upper()
    template = sql or f"math_of_one({int(MathFunction[name])}, {{0}})"

    @function(_GROUP, usage, *others, note=_noted(note, exact=exact))
    def build(zone: str, x: Sql) -> Sql:
        x = number(x, zone)
        return made_by(name, strict(template, DOUBLE, x), x)


def _logarithm(usage: str, sql: str, note: str, above: int = 0) -> None:
    """Add a function that is NULL of numbers that are not larger than *above*."""
    name = usage.partition("(")[0].upper()

    @function(_GROUP, usage, note=_noted(note))
    def build(zone: str, x: Sql) -> Sql:
        x = number(x, zone)
        return made_by(name, strict(f"CASE WHEN {{0}} > {above} THEN {sql} END", DOUBLE, x, nulls=True), x)


def _constant(name: str, value: float) -> None:
    @function(_GROUP, f"{name}()")
    def build(zone: str) -> Sql:
        return Sql(f"CAST('{value!r}' AS DOUBLE)", DOUBLE, (), number=value)


_constant("pi", math.pi)
_constant("e", math.e)
_of_one("sqrt(x)", sql="sqrt({0})", note="NaN for a negative number", exact=True)
_of_one("cbrt(x)")
_of_one("exp(x)", sql="exp({0})")
_of_one("expm1(x)", note="exp(x) - 1, also near 0")
_logarithm("ln(x)", "ln({0})", "NULL where x <= 0")
_logarithm("log10(x)", "log10({0})", "NULL where x <= 0")
_logarithm("log2(x)", f"ln({{0}}) / CAST('{math.log(2)!r}' AS DOUBLE)", "NULL where x <= 0")
_logarithm(
    "log1p(x)", f"math_of_one({int(MathFunction.LOG1P)}, {{0}})", "ln(1 + x), also near 0; NULL where x <= -1", -1
)


@function(_GROUP, "log([base, ]x)", note=_noted("as ln(x), or ln(x) / ln(base); NULL where one of them is <= 0"))
def _log(zone: str, base: Sql, x: Sql | None = None) -> Sql:
    base = number(base, zone)
    if x is None:
        return made_by("LN", strict("CASE WHEN {0} > 0 THEN ln({0}) END", DOUBLE, base, nulls=True), base)
    x = number(x, zone)
    text = f"CASE WHEN {{0}} > 0 AND {{1}} > 0 THEN math_of_two({int(MathFunction.LOG)}, {{0}}, {{1}}) END"
    return made_by("LOG", strict(text, DOUBLE, base, x, nulls=True), base, x)


@function(_GROUP, "pow(x, y)", "power", note=_LAST_DIGITS)
def _pow(zone: str, x: Sql, y: Sql) -> Sql:
    # Unlike C, Java returns NaN for 1 to the power of NaN or infinity, and for -1 to the power of infinity.
    unknown = "isnan({1}) OR (abs({0}) = 1 AND isinf({1}))"
    text = f"CASE WHEN {unknown} THEN CAST('nan' AS DOUBLE) ELSE pow({{0}}, {{1}}) END"
    x, y = number(x, zone), number(y, zone)
    return made_by("POW", strict(f"CAST({text} AS DOUBLE)", DOUBLE, x, y, guarded=True), x, y)


@function(_GROUP, "hypot(x, y)", note=_noted("sqrt(x * x + y * y) without overflow"))
def _hypot(zone: str, x: Sql, y: Sql) -> Sql:
    return _of_two("HYPOT", x, y, zone)


for _usage in ("sin(x)", "cos(x)", "tan(x)", "cot(x)", "sec(x)", "csc(x)"):
    _of_one(_usage, note="of radians" if _usage == "sin(x)" else "likewise")
_of_one("asin(x)", note="NaN outside of -1 to 1")
_of_one("acos(x)", note="likewise")
_of_one("atan(x)")


@function(_GROUP, "atan2(y, x)", note=_noted("the angle of the point (x, y)"))
def _atan2(zone: str, y: Sql, x: Sql) -> Sql:
    return _of_two("ATAN2", y, x, zone)


_of_one("sinh(x)")
_of_one("cosh(x)")
_of_one("tanh(x)")
_of_one("asinh(x)", note="as Spark 4.3; earlier versions are less precise")
_of_one("acosh(x)", note="likewise")
_of_one("atanh(x)")
_of_one("radians(x)", exact=True)
_of_one("degrees(x)", exact=True)
_of_one("rint(x)", note="the nearest whole number, of two the even one; a DOUBLE", exact=True)


def _of_two(name: str, x: Sql, y: Sql, zone: str) -> Sql:
    x, y = number(x, zone), number(y, zone)
    return made_by(name, strict(f"math_of_two({int(MathFunction[name])}, {{0}}, {{1}})", DOUBLE, x, y), x, y)


@function(_GROUP, "factorial(n)", note="of 0 to 20, a BIGINT; NULL otherwise")
def _factorial(zone: str, n: Sql) -> Sql:
    text = "CASE WHEN {0} BETWEEN 0 AND 20 THEN CAST(factorial({0}) AS BIGINT) END"
    return strict(text, BIGINT, integer(n, zone), nulls=True)


@function(_GROUP, "width_bucket(x, low, high, n)", note="the number of the bucket, a BIGINT; not of intervals")
def _width_bucket(zone: str, x: Sql, low: Sql, high: Sql, n: Sql) -> Sql:
    parts = [number(x, zone), number(low, zone), number(high, zone), integer(n, zone, BIGINT)]
    return strict("width_bucket({0}, {1}, {2}, {3})", BIGINT, *parts, nulls=True)


# ---------------------------------------------------------------------------------------------------- vectors

_VECTORS = "Vectors"
_EUCLIDEAN = Sql("CAST(2 AS FLOAT)", FLOAT, ())


def _vector(value: Sql) -> Sql:
    if value.type != pa.list_(FLOAT):
        raise UnsupportedError(
            f"an ARRAY<FLOAT> is needed, not {name_of(value.type)}", "transform(array, x -> float(x))"
        )
    return value


def _of_vectors(name: str, routine: str, note: str) -> None:
    @function(_VECTORS, f"{name}(array, array)", note=note)
    def build(zone: str, a: Sql, b: Sql) -> Sql:
        return strict(f"{routine}({{0}}, {{1}})", FLOAT, _vector(a), _vector(b), raises=True, nulls=True)


_of_vectors("vector_inner_product", "inner_product", "of ARRAY<FLOAT> of the same size; NULL where an element is")
_of_vectors("vector_cosine_similarity", "cosine_similarity", "likewise; NULL of a vector of zeros")
_of_vectors("vector_l2_distance", "euclidean_distance", "likewise")


def _degree(value: Sql | None) -> Sql:
    if value is None:
        return _EUCLIDEAN
    if value.type != FLOAT:
        raise UnsupportedError(f"the degree must be a FLOAT, not {name_of(value.type)}", "2F")
    return value


@function(_VECTORS, "vector_norm(array[, degree])", note="the degree is `1F`, `2F` or `float('inf')`")
def _vector_norm(zone: str, value: Sql, degree: Sql | None = None) -> Sql:
    return strict("norm_of({0}, {1})", FLOAT, _vector(value), _degree(degree), raises=True, nulls=True)


@function(_VECTORS, "vector_normalize(array[, degree])", note="divided by its norm; NULL where that is 0")
def _normalize(zone: str, value: Sql, degree: Sql | None = None) -> Sql:
    return strict("normalized({0}, {1})", value.type, _vector(value), _degree(degree), raises=True, nulls=True)
