"""Conditions that Spark evaluates, in the filter, have the result of the operator, whatever the settings of the session are."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Pattern, match_recognize
from asterism.errors import error_in
from asterism.spark.settings import settings

ROWS = """
    SELECT * FROM VALUES
        (1000L, 'u', 'a1', 1, 1.23BD), (2000L, 'u', 'ab', 2, 4.56BD), (3000L, 'u', 's', NULL, 7.89BD),
        (4000L, 'u', '\\\\d', 2147483647, 12345678901234567890123456789012345678BD), (5000L, 'u', 'x', 5, NULL)
    AS t(ts, user, s, v, d)
"""
SETTINGS = [
    {"spark.sql.parser.escapedStringLiterals": "true"},
    {"spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    {"spark.sql.ansi.enabled": "false"},
    {"spark.sql.decimalOperations.allowPrecisionLoss": "false"},
    {"spark.sql.parser.quotedRegexColumnNames": "true"},
    {"spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true", "spark.sql.legacy.sizeOfNull": "true"},
    {},
]
CONDITIONS = [
    r"s RLIKE '\\d'",
    r"s RLIKE '\d'",
    r"s = '\\d'",
    '''s = "s"''',
    "`s` LIKE 'a%'",
    "v = '1'",
    "coalesce(v, 0) % 2 = 1",
    "try_add(v, 1) > 0",
    "try_divide(d, 3.000000000000000001BD) > 1",
    "CAST(try_divide(d, 3) AS STRING) LIKE '%666667'",
    "try_multiply(d, 1.000000000000000001BD) > 1",
    "v > 1e0",
    "typeof(1e0) = 'double'",
    "concat(s, v) = 'a11'",
    "TRY_CAST(s AS INT) IS NULL",
    "s IN ('a1', 5)",
]


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS)


def times(stream: KeyedStream, pattern: Pattern) -> list[int] | str:
    try:
        return sorted(row.ts for row in CEP.pattern(stream, pattern).select("a.ts AS ts").collect())
    except Exception as error:
        return type(error_in(error) or error).__name__


@pytest.mark.parametrize(
    "changed", SETTINGS, ids=lambda values: next(iter(values), "defaults").removeprefix("spark.sql.")
)
def test_a_filter_of_spark_and_the_operator_agree(spark: SparkSession, df: DataFrame, changed: dict[str, str]) -> None:
    stream = KeyedStream(df, key="user", time="ts")
    for text in CONDITIONS:
        only_sql = Pattern.begin("a").where(text)
        in_operator = times(stream, only_sql.where(lambda batch: [True] * len(batch)))
        with settings(spark, changed):
            of_filter = times(stream, only_sql)
            clause = f"PARTITION BY user ORDER BY ts MEASURES A.ts AS ts PATTERN (A) DEFINE A AS {text}"
            of_clause = sorted(row.ts for row in match_recognize(df, clause).matches.collect())
        assert of_filter == in_operator == of_clause, text
