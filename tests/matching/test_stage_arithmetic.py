"""Arithmetic in conditions over stages: what fits, what fails, and what is not evaluated, as in Spark.

The same conditions go through a pattern, a MATCH_RECOGNIZE clause, the interpreter of a trace and, in the last test, Spark.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from asterism import Pattern
from asterism.errors import EvaluationFailedError, ExpressionError, InvalidEventError
from asterism.expressions.types import name_of
from asterism.testing import PatternHarness, RowPatternHarness
from asterism.trace import What, trace
from tests.kit import FACTOR

FAILS = "fails"
LONGEST, SHORTEST = 2**63 - 1, -(2**63)
TYPES = {
    "y": pa.int8(),
    "h": pa.int16(),
    "i": pa.int32(),
    "l": pa.int64(),
    "low": pa.int64(),
    "m": pa.decimal128(9, 2),
    "w": pa.decimal128(18, 6),
    "d": pa.float64(),
    "z": pa.int64(),
    "n": pa.int64(),
}
SCHEMA = pa.schema([("kind", pa.string()), ("ts", pa.int64()), *TYPES.items()])
STAGE: list[dict[str, Any]] = [
    {
        "y": 1, "h": 200, "i": 1, "l": LONGEST, "low": -5, "m": Decimal("4999.99"), "w": Decimal("0.000001"),
        "d": 0.5, "z": 0, "n": None,
    },
    {
        "y": 1, "h": 2, "i": 2, "l": -3, "low": -5, "m": Decimal("5000.01"), "w": Decimal("0.000002"),
        "d": 0.5, "z": 0, "n": None,
    },
    {
        "y": -128, "h": 300, "i": 2**31 - 1, "l": LONGEST, "low": SHORTEST, "m": Decimal("5000.00"),
        "w": Decimal("0.000002"), "d": 2.5, "z": 0, "n": None,
    },
]  # fmt: skip
EVENT: dict[str, Any] = {
    "y": 127, "h": 200, "i": 1, "l": 1, "low": -1, "m": Decimal("0.01"), "w": Decimal("0.5"), "d": 1.5, "z": 0, "n": None,
}  # fmt: skip

CONDITIONS: dict[str, bool | str | None] = {
    # FILTER
    "SUM(a.l) FILTER (WHERE a.l < 0) = -3": True,
    "COUNT(a.*) FILTER (WHERE a.y > 0) = 2": True,
    "MAX(a.d) FILTER (WHERE a.i > 1 OR a.y IS NULL) > 2": True,
    "AVG(a.m) FILTER (WHERE a.h > 1000) IS NULL": True,
    # 64 bits
    "LAST(a.l) + l < 0": FAILS,
    "LAST(a.l) + l > 0": FAILS,
    "LAST(a.l) + 0 > 0": True,
    "LAST(a.low) - l > 0": FAILS,
    "LAST(a.low) + l < 0": True,
    "LAST(a.l) * 2 > 0": FAILS,
    "LAST(a.l) * l > 0": True,
    "LAST(a.low) * low > 0": FAILS,
    "LAST(a.low) * l < 0": True,
    "LAST(a.l) * z = 0": True,
    "3037000500 * (LAST(a.l) * 0 + 3037000500) > 0": FAILS,
    "3037000499 * (LAST(a.l) * 0 + 3037000499) > 0": True,
    "- LAST(a.low) > 0": FAILS,
    "abs(LAST(a.low)) > 0": FAILS,
    "abs(LAST(a.l)) > 0": True,
    "abs(low + LAST(a.z)) = 1": True,
    "SUM(a.l) > l": FAILS,
    "SUM(a.low) + l < 0": FAILS,
    "SUM(a.i) = 2147483650 AND i = 1": True,
    "SUM(a.i) * LAST(a.l) > i": FAILS,
    # narrower integers have their own limits
    "LAST(a.i) + i > 0": FAILS,
    "LAST(a.i) + l > 0": True,
    "LAST(a.i) - i > 0": True,
    "LAST(a.h) * h > 0": FAILS,
    "LAST(a.h) * i = 300": True,
    "FIRST(a.y) + y > 0": FAILS,
    "FIRST(a.y) + h = 201": True,
    "- LAST(a.y) > y": FAILS,
    "abs(LAST(a.y)) > y": FAILS,
    "CAST(LAST(a.y) AS INT) - y = -255": True,
    # what is not evaluated does not fail
    "LAST(a.z) = 0 OR LAST(a.l) + l < 0": True,
    "LAST(a.z) <> 0 AND LAST(a.l) + l < 0": False,
    "LAST(a.l) + l < 0 OR LAST(a.z) = 0": FAILS,
    "LAST(a.n) = 0 OR LAST(a.l) + l < 0": FAILS,
    "LAST(a.n) = 0 AND LAST(a.l) + l < 0": FAILS,
    "LAST(a.n) > LAST(a.l) + l": None,
    "LAST(a.l) + l > LAST(a.n)": FAILS,
    "LAST(a.n) + (LAST(a.l) + l) > 0": None,
    "CASE WHEN LAST(a.z) = 0 THEN TRUE ELSE LAST(a.l) + l > 0 END": True,
    "CASE WHEN LAST(a.z) = 1 THEN LAST(a.l) + l > 0 ELSE i = 1 END": True,
    "CASE WHEN LAST(a.l) + l > 0 THEN TRUE ELSE TRUE END": FAILS,
    "coalesce(LAST(a.z), LAST(a.l) + l) = 0": True,
    "coalesce(LAST(a.n), LAST(a.l) + l) = 0": FAILS,
    "(LAST(a.l) + l) IS NULL": FAILS,
    "(LAST(a.l) + l) <=> LAST(a.n)": FAILS,
    "LAST(a.l) + l IN (1, 2)": FAILS,
    "NOT (LAST(a.l) + l > 0)": FAILS,
    "greatest(LAST(a.n), LAST(a.l) + l) > 0": FAILS,
    # division
    "1 / LAST(a.z) > 0": FAILS,
    "LAST(a.n) / LAST(a.z) > 0": None,
    "LAST(a.z) / LAST(a.n) > 0": None,
    "(LAST(a.l) + l) / LAST(a.n) > 0": None,
    "LAST(a.z) <> 0 AND 1 / LAST(a.z) > 0": False,
    "LAST(a.z) = 0 OR 1 / LAST(a.z) > 0": True,
    "coalesce(LAST(a.i), 1 / LAST(a.z)) > 0": True,
    "CASE WHEN LAST(a.z) <> 0 THEN 1 / LAST(a.z) > 0 ELSE d = 1.5D END": True,
    "try_divide(1, LAST(a.z)) IS NULL AND i = 1": True,
    # decimals
    "SUM(a.m) = 15000.00 AND m > 0": True,
    "SUM(a.m) + m = 15000.01": True,
    "SUM(a.m) > 14999.9999999 AND SUM(a.m) < 15000.0000001": True,
    "SUM(a.m) * 1.1 = 16500 AND m > 0": True,
    "m + SUM(a.m) * m = 150.01": True,
    "SUM(a.w) = 0.000005": True,
    "SUM(a.w) + w = 0.500005": True,
    "AVG(a.m) = 5000": True,
    "AVG(a.w) = 0.0000016667": True,
    "SUM(a.w) BETWEEN 0.000004 AND w": True,
    "SUM(a.m) IN (1, 2, 3, 4, 15000)": True,
    "coalesce(SUM(a.m), 0) - 15000 = 0": True,
    "CASE WHEN i = 1 THEN SUM(a.m) ELSE 0 END = 15000": True,
    "greatest(SUM(a.m), 20000) = 20000": True,
    "- SUM(a.m) = -15000": True,
    "abs(m - SUM(a.m)) = 14999.99": True,
    "SUM(a.m) > d": True,
    "CAST(SUM(a.m) AS DOUBLE) / 2 = 7500": True,
    "SUM(a.m) > LAST(a.i)": False,
    "SUM(a.m) <=> NULL": False,
    "SUM(a.m) IS NOT NULL AND m > 0": True,
    "LAST(a.m) * LAST(a.m) * m = 250000": True,
    # mathematical functions of several events
    "sqrt(LAST(a.d) + d) = 2": True,
    "sqrt(d - LAST(a.d)) <=> double('nan')": True,
    "isnull(ln(LAST(a.d) - d)) AND i = 1": False,
    "ln(d - LAST(a.d)) IS NULL": True,
    "log10(LAST(a.h) * i + 700) = 3": True,
    "abs(log2(LAST(a.d) + d + 4) - 3) < 1e-9": True,
    "log(LAST(a.z) - i, 2) IS NULL": True,
    "abs(log(LAST(a.d) + d, 64) - 3) < 1e-9": True,
    "log1p(LAST(a.z) * i) = 0 AND expm1(LAST(a.z) * i) = 0": True,
    "abs(exp(LAST(a.d) - d) - e()) < 1e-9": True,
    "exp(LAST(a.l) * i) = double('inf')": True,
    "pow(LAST(a.d) - d, l) = 1": True,
    "pow(LAST(a.d) - d - 1, double('nan')) <=> double('nan')": True,
    "abs(sin(LAST(a.z) * i + pi() / 6) - 0.5) < 1e-9": True,
    "abs(cos(LAST(a.z) * i + pi() / 3) - 0.5) < 1e-9": True,
    "abs(tan(LAST(a.z) * i + pi() / 4) - 1) < 1e-9": True,
    "sin(LAST(a.d) + double('inf')) <=> d + double('nan')": True,
    "abs(asin(LAST(a.d) - d) - pi() / 2) < 1e-9 AND acos(LAST(a.d) - d) = 0": True,
    "acos(LAST(a.d) + d) <=> double('nan')": True,
    "abs(atan(LAST(a.d) - d) - pi() / 4) < 1e-9": True,
    "abs(atan2(LAST(a.d) - d, d - LAST(a.d)) - 3 * pi() / 4) < 1e-9": True,
    "sinh(LAST(a.z) * d) = 0 AND cosh(LAST(a.z) * d) = 1 AND tanh(LAST(a.z) * d) = 0": True,
    "cbrt(LAST(a.d) * 10 + d + 0.5) = 3": True,
    "hypot(LAST(a.d) + d - 1, d + d + i) = 5": True,
    "degrees(LAST(a.z) * d + pi()) = 180 AND radians(LAST(a.z) * d + 180) = pi()": True,
    "sign(d - LAST(a.d)) = -1 AND rint(LAST(a.d) + d + 0.5) = 4": True,
    "floor(d - LAST(a.d) - 0.5) = -2 AND ceil(d - LAST(a.d) - 0.5) = -1": True,
    "floor((d + LAST(a.d)) * 1e300) > 0": FAILS,
    "floor(d - LAST(a.d) + double('nan')) = 0": True,
    "round(d - LAST(a.d) - 0.5D) = -2 AND bround(LAST(a.d) + d + 0.5D) = 4": True,
    "round(LAST(a.d) * 0.402D, 2) = 1.01D AND bround(d * LAST(a.d), 1) = 3.8D": True,
    "round(LAST(a.d) * d * 4, -1) = 20D AND bround(LAST(a.d) * d * 4, -1) = 20D": True,
    "shiftleft(LAST(a.i), 1) = -2 AND i = 1": True,
    "floor(LAST(a.d) + d) > 3.5 AND floor(LAST(a.d) + d) + i = 5": True,
    "ceil(LAST(a.d) + d + 0.25) IN (1, 2, 3, 4, 5)": True,
    "floor(LAST(a.d) + d) * l + LAST(a.l) > 0": FAILS,
    "sqrt(SUM(a.i) + d) > m": True,
    "sign(m - LAST(a.m)) = -1": True,
    "round(AVG(a.d), 1) = 1.2D AND sqrt(LAST(a.i) * l) > 46340": True,
    "sqrt(LAST(a.l) + l) > 0": FAILS,
    "ln(1 / LAST(a.z)) > 0": FAILS,
    "LAST(a.z) = 0 OR floor(1 / LAST(a.z)) > 0": True,
    "coalesce(ln(LAST(a.z) * d), -1) = -1": True,
    "greatest(hypot(LAST(a.d), d), 1) BETWEEN 2.9 AND 2.92": True,
    "pow(LAST(a.n) + i, 2) IS NULL AND atan2(LAST(a.d) * d, LAST(a.n) + d) IS NULL": True,
    # the distance of two places in kilometres, by haversines
    "2 * 6371 * asin(sqrt(pow(sin(radians(d - LAST(a.d)) / 2), 2) + cos(radians(d)) * cos(radians(LAST(a.d)))"
    " * pow(sin(radians(d * 3 - LAST(a.d)) / 2), 2))) BETWEEN 248.4 AND 248.7": True,
}


def events() -> list[dict[str, Any]]:
    stage = [{"kind": "a", "ts": at, **row} for at, row in enumerate(STAGE, 1)]
    return [*stage, {"kind": "b", "ts": len(STAGE) + 1, **EVENT}]


def of_pattern(condition: str) -> bool | str:
    harness = PatternHarness(_pattern(condition), SCHEMA)
    try:
        return bool(harness.send(events()).end().matches)
    except (EvaluationFailedError, InvalidEventError):
        return FAILS


def _pattern(condition: str) -> Pattern:
    stage = Pattern.begin("a").where("kind = 'a'").times(len(STAGE)).consecutive()
    return stage.next("b").where("kind = 'b'").where(condition)


def of_clause(condition: str) -> bool | str:
    define = f"a AS kind = 'a', b AS kind = 'b' AND ({condition})"
    clause = f"ORDER BY ts MEASURES b.i AS i PATTERN (a{{{len(STAGE)}}} b) DEFINE {define}"
    try:
        return bool(RowPatternHarness(clause, SCHEMA).send(events()).end().matches)
    except (EvaluationFailedError, InvalidEventError):
        return FAILS


def of_trace(condition: str) -> bool | str:
    try:
        found = trace(_pattern(condition), pa.Table.from_pylist(events(), SCHEMA), time="ts")
    except (EvaluationFailedError, InvalidEventError):
        return FAILS
    return any(step.what is What.MATCHED for step in found.steps)


@pytest.mark.parametrize("number", range(len(CONDITIONS)), ids=[*CONDITIONS])
def test_patterns_clauses_and_traces_agree_with_spark(number: int) -> None:
    """A pattern with each condition, and a clause or a trace; ``make test-all`` has both."""
    condition = [*CONDITIONS][number]
    expected = CONDITIONS[condition] or False
    assert of_pattern(condition) == expected
    if FACTOR > 1 or number % 2:
        assert of_clause(condition) == expected
    if FACTOR > 1 or not number % 2:
        assert of_trace(condition) == expected


def test_spark_says_so(spark: SparkSession) -> None:
    """Over one row, with the events of the stage as columns and subqueries. Spark computes literal rows without a job."""
    names = [*TYPES, *(f"first_{name}" for name in TYPES), *(f"last_{name}" for name in TYPES)]
    values = [row[name] for row in (EVENT, STAGE[0], STAGE[-1]) for name in TYPES]
    literals = [_literal(value, kind) for value, kind in zip(values, [*TYPES.values()] * 3, strict=True)]
    spark.sql(f"SELECT * FROM VALUES ({', '.join(literals)}) AS t({', '.join(names)})").createOrReplaceTempView(
        "event_row"
    )
    rows = [", ".join(_literal(row[name], kind) for name, kind in TYPES.items()) for row in STAGE]
    rows_text = ", ".join(f"({row})" for row in rows)
    spark.sql(f"SELECT * FROM VALUES {rows_text} AS t({', '.join(TYPES)})").createOrReplaceTempView("stage_rows")

    def written(text: str) -> str:
        text = re.sub(r"(FIRST|LAST)\(a\.(\w+)\)", lambda found: f"{found[1].lower()}_{found[2]}", text)
        aggregate = r"(?:SUM|AVG|MAX|COUNT)\(a\.(?:\w+|\*)\)(?: FILTER \(WHERE [^()]+\))?"
        return re.sub(aggregate, lambda call: f"(SELECT {call[0].replace('a.', '')} FROM stage_rows)", text)

    fitting = [text for text, expected in CONDITIONS.items() if expected != FAILS]
    selected = ", ".join(f"({written(text)}) AS c{number}" for number, text in enumerate(fitting))
    # Otherwise it computes what two conditions have in common first, even if neither needs it.
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    try:
        answers = spark.sql(f"SELECT {selected} FROM event_row").collect()[0]
        assert dict(zip(fitting, answers, strict=True)) == {text: CONDITIONS[text] for text in fitting}
        for text, expected in CONDITIONS.items():
            if expected == FAILS:
                with pytest.raises((PySparkException, Py4JJavaError), match=r"OVERFLOW|DIVIDE_BY_ZERO"):
                    spark.sql(f"SELECT ({written(text)}) AS c FROM event_row").collect()
    finally:
        spark.conf.unset("spark.sql.subexpressionElimination.enabled")


def _literal(value: Any, kind: pa.DataType) -> str:
    return f"CAST({'NULL' if value is None else repr(str(value))} AS {name_of(kind)})"


@pytest.mark.parametrize(
    "condition",
    ["SUM(CAST(a.m AS DECIMAL(30,2))) > 1"],
)
def test_what_would_not_be_exact_is_refused(condition: str) -> None:
    with pytest.raises(ExpressionError) as error:
        of_pattern(condition)
    assert "CAST" in str(error.value)


def test_a_failure_names_the_stage_and_the_key() -> None:
    harness = PatternHarness(_pattern("LAST(a.l) + l < 0"), SCHEMA, keys=["i"])
    rows = [row | {"i": 7} for row in events()]
    with pytest.raises(EvaluationFailedError) as error:
        harness.send(rows).end()
    assert 'stage "b"' in str(error.value)
    assert "i=7" in str(error.value)
