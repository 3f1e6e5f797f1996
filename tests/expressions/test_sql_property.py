"""SQL conditions evaluated here give what Spark's own ``expr()`` gives on the same rows: types, values, NULL and failures."""

from __future__ import annotations

import inspect
import logging
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism.expressions.functions import FUNCTIONS, UNIT_FIRST
from tests.expressions.sql_expressions import Comparison, Expressions, changed, table
from tests.kit import FACTOR, examples

pytestmark = pytest.mark.spark

EXPRESSIONS = examples(30, usual=45)
ZONES = ["Europe/Madrid", "America/New_York", "UTC"]
NOT_EXACT = {
    "exp", "expm1", "ln", "log", "log10", "log2", "log1p", "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan",
    "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt", "pow", "power", "hypot",
}  # fmt: skip
"""Java computes these in another way; the last digit may differ."""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """It evaluates without generating code, which takes most of the time of so many expressions."""
    with evaluating(spark, compiled=False):
        yield spark


@contextmanager
def evaluating(spark: SparkSession, *, compiled: bool) -> Iterator[None]:
    names = ["spark.sql.session.timeZone", "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"]
    before = {name: spark.conf.get(name) for name in names}
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")
    logging.disable(logging.CRITICAL)  # each failure that is meant would be logged
    yield
    logging.disable(logging.NOTSET)
    for name, value in before.items():
        spark.conf.set(name, value or "")


def compared(
    session: SparkSession, seed: int, zone: str, make: str, count: int = EXPRESSIONS, tolerance: int = 0
) -> Comparison:
    """Compare so many random expressions, made by a method of :class:`Expressions`."""
    session.conf.set("spark.sql.session.timeZone", zone)
    rng = random.Random(seed)
    comparison = Comparison(session, table(rng, zone))
    expressions = Expressions(rng)
    texts = [getattr(expressions, make)(rng.choice([1, 2, 3, 3])) for _ in range(count)]
    comparison.compare(texts, errors_to_try=8, tolerance=tolerance)
    assert not comparison.differences, "\n".join(sorted(comparison.differences, key=len)[:10])
    return comparison


@settings(max_examples=2 * FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32), st.sampled_from(ZONES))
def test_random_expressions(session: SparkSession, seed: int, zone: str) -> None:
    """What is refused here is a small part, so that the comparison means something."""
    comparison = compared(session, seed, zone, "any")
    assert comparison.agreed > 0.6 * EXPRESSIONS


@settings(max_examples=FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("make", ["like", "regex", "quoted_text"])
def test_random_patterns_and_texts(session: SparkSession, make: str, seed: int) -> None:
    """LIKE and RLIKE with any pattern that is accepted, and texts with escapes."""
    assert compared(session, seed, "UTC", make).agreed > 0.2 * EXPRESSIONS


@settings(max_examples=FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_operators_bind_as_in_spark(session: SparkSession, seed: int) -> None:
    """Expressions without brackets; where the order of binding is not sure, they are refused."""
    assert compared(session, seed, "UTC", "without_brackets").agreed > 0.1 * EXPRESSIONS


@settings(max_examples=FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_what_spark_refuses_is_not_taken(session: SparkSession, seed: int) -> None:
    """Expressions with a word too many, too few, or another: what is taken means the same to Spark."""
    comparison = compared(session, seed, "UTC", "mutated")
    assert comparison.agreed + comparison.refused > 0.8 * EXPRESSIONS


@pytest.mark.parametrize("count", range(6))
def test_functions_take_as_many_arguments_as_in_spark(session: SparkSession, count: int) -> None:
    """Whatever they are: a function that takes that many here takes them there."""
    wrong = []
    for name in sorted(set(FUNCTIONS) - changed(session)):
        try:
            inspect.signature(FUNCTIONS[name].build).bind("UTC", *range(count))
        except TypeError:
            continue
        if name in ("map", "named_struct") and count % 2:
            continue  # they take pairs, which is checked when they are translated
        arguments = ", ".join(["NULL"] * count)
        if name in UNIT_FIRST and count == 3:
            arguments = "DAY, NULL, NULL"
        try:
            session.range(1).select(F.expr(f"{name}({arguments})"))
        except PySparkException as problem:
            if "WRONG_NUM_ARGS" in str(problem) or "PARSE" in str(problem):
                wrong.append(f"{name}({arguments})")
    assert not wrong


def test_mathematical_functions_are_right_up_to_the_last_digits(session: SparkSession) -> None:
    compared(session, 1, "UTC", "not_exact", 60, tolerance=4)


def test_every_function_is_among_the_random_expressions() -> None:
    """And nothing but those, for they would be refused."""
    expressions = Expressions(random.Random(3))
    keywords = {"in", "cast", "try_cast", "extract", "decimal", "and", "or", "not", "when", "then", "else", "between"}
    called, expected = set[str](), set(FUNCTIONS) - NOT_EXACT - keywords
    for _ in range(40_000):
        if called - keywords >= expected:
            break
        text = re.sub(r"'(?:[^'\\]|\\.|'')*'", "''", expressions.any(4))
        called.update(name.lower() for name in re.findall(r"\b([A-Za-z]\w*)\(", text))
    assert called - keywords == expected
