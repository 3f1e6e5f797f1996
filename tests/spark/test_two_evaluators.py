"""Conditions that Spark evaluates, in the filter, have the result of the operator, whatever the settings of the session are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern, match_recognize
from asterism.errors import EvaluationFailedError
from asterism.matching.binding import BoundPattern
from asterism.spark.host.column_types import arrow_schema
from asterism.spark.session.settings import of_expressions, settings
from tests.spark.streams import Collect

pytestmark = pytest.mark.spark

ROWS = r"""
    SELECT * FROM VALUES
        (1000L, 'u', 'a1', 1, 1.23BD), (2000L, 'u', 'ab', 2, 4.56BD), (3000L, 'u', 's', NULL, 7.89BD),
        (4000L, 'u', '\\d', 2147483647, 1234567890123456789.12BD), (5000L, 'u', 'x', 5, NULL)
    AS t(ts, user, s, v, d)
"""
SETTINGS = [
    {"spark.sql.parser.escapedStringLiterals": "true"},
    {"spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    {"spark.sql.ansi.enabled": "false"},
    {"spark.sql.decimalOperations.allowPrecisionLoss": "false", "spark.sql.chunkBase64String.enabled": "false"},
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
    "try_divide(d, 3.000000000000000001) > 1",
    "CAST(try_divide(d, 3) AS STRING) LIKE '%6667'",
    "coalesce(d, 1) / 3.000000000000000001 > 0.41",
    "v > 1e0",
    "v * 1e0 = 5",
    "concat(s, v) = 'a11'",
    "TRY_CAST(s AS INT) IS NULL",
    r"split(s, '\\d')[0] = 'a'",
    r"regexp_replace(s, '([a-b])', '\\$$1') = '$a1'",
    "format_string('%s%%', base64(s)) = 'YTE=%'",
    "length(base64(lpad(s, 60))) = 82",
    "like(s, 'a_') AND X'61' = left(binary(s), 1)",
    "v >>> 1 = 2 OR v >> 1 = 1",
    "exists(array(v, 2), X -> x > 4 AND x < 100)",
    "to_json(struct(s, v, d AS n)) = '{\"s\":\"x\",\"v\":5}' AND get_json_object(to_json(struct(v)), '$.v') = '5'",
    "aggregate(transform(sequence(1, 3), (x, i) -> x * i), 0, (t, x) -> t + x, t -> t % 7) = coalesce(v, 0) - 1",
]


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS)


@pytest.mark.parametrize(
    "changed", SETTINGS, ids=lambda values: next(iter(values), "defaults").removeprefix("spark.sql.")
)
def test_spark_and_the_operator_agree(spark: SparkSession, df: DataFrame, changed: dict[str, str | None]) -> None:
    schema = arrow_schema(spark, df.schema)
    rows = df.orderBy("ts").toArrow().cast(schema)
    with settings(spark, changed), of_expressions(spark):
        values = df.select("ts", *(F.expr(f"coalesce({text}, FALSE)") for text in CONDITIONS)).orderBy("ts")
    with settings(spark, changed):
        of_spark = [list(row)[1:] for row in values.collect()]
    for number, text in enumerate(CONDITIONS):
        bound = BoundPattern.of_pattern(Pattern.begin("a").where(text), schema)
        in_operator = bound.prepare(rows, None)[0].to_pylist()
        assert [bool(bit) for bit in in_operator] == [row[number] for row in of_spark], text


@pytest.mark.parametrize(
    ("changed", "text", "found"),
    [
        ({"spark.sql.parser.escapedStringLiterals": "true"}, r"s RLIKE '\\d'", [1000]),
        ({"spark.sql.ansi.doubleQuotedIdentifiers": "true"}, 'upper(s) = "S"', [3000]),
        (  # which are read when the filter is analyzed
            {
                "spark.sql.timestampType": "TIMESTAMP_NTZ",
                "spark.sql.function.concatBinaryAsString": "true",
                "spark.sql.function.eltOutputAsString": "true",
            },
            "typeof(TIMESTAMP'2024-01-31 12:00:00') = 'timestamp' AND length(concat(X'C3A4', binary(s))) = 4"
            " AND length(elt(1, X'C3A4', binary(s))) = 2",
            [1000, 2000, 4000],
        ),
        (  # which are read when it is evaluated
            {"spark.sql.jsonGenerator.ignoreNullFields": "false", "spark.sql.legacy.timeParserPolicy": "LEGACY"},
            "to_json(struct(s, v)) = '{\"s\":\"s\"}' OR try_to_date(concat('2024-1-', v), 'yyyy-MM-dd') IS NULL AND v = 1",
            [1000, 3000],
        ),
    ],
)
def test_filters_do_not_depend_on_settings(
    spark: SparkSession, df: DataFrame, changed: dict[str, str | None], text: str, found: list[int]
) -> None:
    clause = f"PARTITION BY user ORDER BY ts MEASURES A.ts AS ts PATTERN (A) DEFINE A AS {text}"
    with settings(spark, changed):
        pattern = CEP.pattern(KeyedStream(df, key="user", time="ts"), Pattern.begin("a").where(text))
        assert sorted(row.ts for row in pattern.select("a.ts AS ts").collect()) == found
        assert sorted(row.ts for row in match_recognize(df, clause).matches.collect()) == found


def test_an_event_that_fails_fails_a_stream(spark: SparkSession, df: DataFrame, tmp_path: Path) -> None:
    check_failure(spark, df, tmp_path, ["matches", "late"])


def check_failure(spark: SparkSession, df: DataFrame, tmp_path: Path, outputs: list[str]) -> None:
    df.select("ts", "user", "v").coalesce(1).write.parquet(str(tmp_path / "in"))
    with settings(spark, {"spark.sql.ansi.enabled": "false"}):
        arriving = spark.readStream.schema("ts BIGINT, user STRING, v INT").parquet(str(tmp_path / "in"))
        pattern = Pattern.begin("a").where("v + 1 > 0")
        found = CEP.pattern(KeyedStream(arriving, key="user", time="ts"), pattern, key_groups=1)
        with pytest.raises((PySparkException, EvaluationFailedError), match=r"(?i)overflow"):
            found.run({output: Collect() for output in outputs}, checkpoint=str(tmp_path / "state"))


def test_a_filter_with_a_function_that_spark_lacks_is_left_out(df: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions of Spark lack some functions, which the operator has."""
    monkeypatch.setattr(BoundPattern, "relevance_sql", lambda _: "of_a_later_version(s) = 1")
    found = CEP.pattern(KeyedStream(df, key="user", time="ts"), Pattern.begin("a").where("s = 'ab'")).select("a.v AS v")
    assert [row.v for row in found.collect()] == [2]
