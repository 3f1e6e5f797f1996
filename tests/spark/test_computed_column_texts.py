"""What a user reads when neither this library nor Spark can evaluate a part of an expression."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern, as_of_join, match_recognize, multi_join
from tests.kit import Golden

pytestmark = pytest.mark.spark

CONDITIONS = {
    "unknown_function": "kind = 'a' AND nope(x) > 1",
    "unknown_function_in_a_lambda": "exists(xs, y -> nope(y))",
    "unknown_column": "prise > 1 AND sha2(kind, 256) > 'a'",
    "unknown_column_in_a_lambda": "exists(xs, y -> y > prise)",
    "unknown_stage": "sha2(kind, 256) > LAST(c.kind)",
    "not_deterministic": "exists(xs, y -> y > 1) AND dice(x) > 1",
    "function_of_the_time": "exists(xs, y -> y > 1) AND now() > ts",
    "literal_of_the_time": "exists(xs, y -> y > 1) AND ts > TIMESTAMP 'yesterday'",
    "aggregate": "x > 1 AND regr_slope(x, x) > 1",
    "window": "sha2(kind, 256) = 'a' AND row_number() OVER (ORDER BY ts) > 1",
    "generator": "explode(xs) > 1",
    "subquery": "x = (SELECT max(id) FROM range(3)) AND sha2(kind, 256) > 'a'",
    "types": "transform(x, y -> y) IS NOT NULL",
    "arguments": "LAST(a.x) = 1 AND sha2(kind) > 'a'",
    "syntax": "exists(xs, y -> y > ) AND x > 1",
    "not_boolean": "sha2(kind, 256)",
    "type_that_cannot_be_passed": "make_ym_interval(x, 1) > LAST(make_ym_interval(a.x, 1))",
    "type_without_comparison": "parse_json(kind) = LAST(parse_json(a.kind))",
    "collation": "LAST(a.kind COLLATE UNICODE_CI) = kind",
    "of_two_stages": "twice(a.x + b.x) > 1",
    "of_an_aggregate": "twice(LAST(a.x)) > 1",
}


KEYS: dict[str, object] = {
    "key_unknown_function": "nope(kind)",
    "key_unknown_column": ["user", "upper(kond)"],
    "key_not_deterministic": "dice(x) + 1",
    "key_function_of_the_time": "kind || now()",
    "key_aggregate": "max(kind)",
    "key_generator": "explode(xs)",
    "key_subquery": "x + (SELECT 1)",
    "key_window": "row_number() OVER (ORDER BY x)",
    "key_syntax": "lower(kind",
    "key_syntax_of_spark": "kind = 1 +",
    "key_types": "x + xs",
    "key_of_several": "kind, user",
    "key_without_equality": "x / 2",
    "key_collation": "kind COLLATE UNICODE_CI",
    "key_named_as_a_column": "lower(kind) AS User",
    "key_with_a_reserved_name": "lower(kind) AS __asterism_kind",
    "key_twice": ["lower(kind)", "LOWER(kind)"],
    "key_word": "usr",
}


JOINS = {
    "join_unknown_function": "kind = 'a' AND nope(other_x) > 1",
    "join_unknown_column": "kind = 'a' AND twice(other_kond) > 1",
    "join_not_deterministic": "dice(x) > other_x",
    "join_function_of_both_sides": "twice(x + other_x) > 1",
    "join_type_that_cannot_be_passed": "make_ym_interval(x, 1) > make_ym_interval(other_x, 1)",
    "join_types_of_a_side": "kind = 'a' AND sha2(other_xs, 256) > 'a'",
}

CLAUSES = {
    "clause_unknown_function": "kind = 'a' AND nope(x) > 1",
    "clause_of_two_rows": "twice(x + LAST(A.x)) > 1",
    "clause_of_a_row_before": "x > 1 AND twice(LAST(A.x)) > 1",
}


MEASURES = {
    "unknown_function": "round(nope(a.x, LAST(b.x))) AS n",
    "unknown_column": "twice(a.x) + a.prise AS n",
    "unknown_column_in_an_aggregate": "twice(SUM(a.prise)) AS n",
    "unknown_stage": "twice(c.x) AS n",
    "not_deterministic": "dice(LAST(a.x)) + twice(b.x) AS n",
    "function_of_the_time": "twice(a.x) || now() AS n",
    "aggregate_of_spark": "twice(a.x) + regr_slope(a.x, b.x) AS n",
    "types": "twice(a.x) + a.xs AS n",
    "type_that_is_not_computed": "a.v AS n",
    "syntax": "twice(a.x) + ) AS n",
}


def test_texts(spark: SparkSession, golden: Golden, capfd: pytest.CaptureFixture[str]) -> None:
    """What PySpark logs about errors that become others is not shown."""
    spark.udf.register("dice", F.udf(lambda x: x, "bigint").asNondeterministic())
    spark.udf.register("twice", lambda x: 2 * x, "bigint")
    df = spark.sql("SELECT timestamp_seconds(1) AS ts, 'u' AS user, 'a' AS kind, 1L AS x, array(1L) AS xs")
    stream = KeyedStream(df, "user", "ts")
    for name, text in CONDITIONS.items():
        golden.error(name, partial(CEP.pattern, stream, Pattern.begin("a").next("b").where(text)))
    for name, text in CLAUSES.items():
        clause = f"PARTITION BY user ORDER BY ts MEASURES A.x AS x PATTERN (A B) DEFINE B AS {text}"
        golden.error(name, partial(match_recognize, df, clause))
    for name, key in KEYS.items():
        golden.error(name, partial(KeyedStream, df, key, "ts"))
    for name, text in JOINS.items():
        golden.error(name, partial(as_of_join, stream, stream, on=text, prefix="other_"))
    between = {("a", "b"): (timedelta(0), timedelta(1)), ("a", "c"): (timedelta(0), timedelta(1))}
    options: dict[str, Any] = {
        "how": {"b": "left"},
        "on": {"c": "x = 1 AND twice(b_x) > c_x"},
        "prefix": {"b": "b_", "c": "c_"},
    }
    inputs = dict.fromkeys("abc", stream)
    golden.error("join_input_without_a_row", partial(multi_join, inputs, between, **options))
    outputs = {f"{where}_{name}": text for where in ("measure", "clause_measure") for name, text in MEASURES.items()}
    with_variant = df.selectExpr("*", "parse_json('1') AS v")
    matches = CEP.pattern(KeyedStream(with_variant, "user", "ts"), Pattern.begin("a").next("b"))
    for name, text in outputs.items():
        clause = f"PARTITION BY user ORDER BY ts MEASURES {text} PATTERN (a b)"
        golden.error(
            name,
            partial(matches.select, text)
            if name.startswith("measure_")
            else partial(match_recognize, with_variant, clause),
        )
    assert golden.names() == {*CONDITIONS, *CLAUSES, *KEYS, *JOINS, *outputs, "join_input_without_a_row"}
    assert "SQLQueryContextLogger" not in capfd.readouterr().err


def test_a_function_of_the_session_that_raises(spark: SparkSession) -> None:
    """Spark names the function, the line in it and its error."""

    def broken(x: int) -> int:
        raise ValueError(f"no answer for {x}")

    spark.udf.register("broken", broken, "bigint")
    df = spark.sql("SELECT timestamp_seconds(1) AS ts, 'u' AS user, 1L AS x")
    matches = CEP.pattern(KeyedStream(df, "user", "ts"), Pattern.begin("a").where("broken(x) > 1")).select("a.x AS x")
    with pytest.raises(Exception, match="ValueError: no answer for 1"):
        matches.collect()
