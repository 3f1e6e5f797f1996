"""Random expressions give what Spark gives with generated code, and in time zones with odd rules."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.expressions.test_sql_property import ZONES, compared, evaluating

pytestmark = pytest.mark.spark
ODD = ["Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "+05:30", "Pacific/Apia", "Africa/Casablanca"]
MAKE = ["any", "like", "regex", "quoted_text", "without_brackets", "mutated"]


@pytest.fixture(scope="module", params=["interpreted", "compiled"])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    with evaluating(spark, compiled=request.param == "compiled"):
        yield spark


@pytest.mark.parametrize("zone", ODD)
def test_random_expressions(session: SparkSession, zone: str) -> None:
    compared(session, random.randrange(2**32), zone, "any")


@pytest.mark.parametrize("make", MAKE)
def test_kinds_of_expressions(session: SparkSession, make: str) -> None:
    seed = random.randrange(2**32)
    compared(session, seed, random.choice(ZONES), make)
