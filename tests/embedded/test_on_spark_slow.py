"""All cases, and more random patterns, on both hosts."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.embedded.cases import CASES, CLAUSES, JOINS, WINDOWS
from tests.embedded.rule_cases import RULE_CASES
from tests.embedded.statement_cases import STATEMENTS
from tests.embedded.test_on_spark import (
    AT_ONCE,
    check,
    check_clause,
    check_join,
    check_rules,
    check_statement,
    check_window,
    compare,
)

pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")


@pytest.mark.parametrize("name", sorted(CASES.keys() - set(AT_ONCE)))
def test_cases(spark: SparkSession, name: str) -> None:
    check(spark, name)


@pytest.mark.parametrize("name", CLAUSES)
def test_clauses(spark: SparkSession, name: str) -> None:
    check_clause(spark, name)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(spark: SparkSession, name: str) -> None:
    check_window(spark, name)


@pytest.mark.parametrize("name", JOINS)
def test_joins(spark: SparkSession, name: str) -> None:
    check_join(spark, name)


def test_random_patterns(spark: SparkSession) -> None:
    compare(spark, 8)


@pytest.mark.parametrize("name", RULE_CASES)
def test_rules(spark: SparkSession, name: str) -> None:
    check_rules(spark, name)


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(spark: SparkSession, name: str) -> None:
    check_statement(spark, name)
