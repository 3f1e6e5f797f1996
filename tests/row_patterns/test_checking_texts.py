"""What a user reads when a clause does not fit its input, or has no meaning: the text of every error, as a whole."""

from __future__ import annotations

import pytest

from asterism.row_patterns.clause.clause import InputTable
from tests.kit import Golden, Provocation
from tests.row_patterns.test_checking import SCHEMA, TRIPS, checked, over

CONDITIONS = {
    "unknown_variable": "Bb.price > 1",
    "unknown_variable_of_field": "other.point.x > 1",
    "unknown_column": "prize > 1",
    "text_without_quotes": "name = bob",
    "unknown_column_of_variable": "A.prize > 1",
    "unknown_field": "A.point.y > 1",
    "on_second_line": "price > 1\n    AND prize > 2",
    "not_boolean": "price",
    "types_do_not_match": "price > tags",
    "final_in_define": "FINAL LAST(price) > 1",
    "final_inside_prev": "PREV(FINAL LAST(price)) > 1",
    "final_of_column": "FINAL price > 1",
    "final_as_function": "RUNNING(LAST(price)) > 1",
    "running_prev": "RUNNING PREV(price) > 1",
    "running_classifier": "RUNNING CLASSIFIER() = 'A'",
    "prev_in_prev": "PREV(PREV(price)) > 1",
    "last_in_first": "FIRST(LAST(price)) > 1",
    "prev_in_last": "LAST(PREV(price)) > 1",
    "sum_in_sum": "SUM(SUM(price)) > 1",
    "last_in_sum": "SUM(LAST(price)) > 1",
    "sum_in_last": "LAST(SUM(price)) > 1",
    "running_sum_in_prev": "PREV(RUNNING SUM(price)) > 1",
    "two_variables": "SUM(A.price + B.price) > 1",
    "variable_and_all_rows": "LAST(A.price + price) > 1",
    "classifier_of_other_rows": "COUNT(A.price, CLASSIFIER()) > 1",
    "offset_is_column": "PREV(price, volume) > 1",
    "offset_is_negative": "PREV(price, -1) > 1",
    "offset_is_null": "NEXT(price, NULL) > 1",
    "offset_too_large": "LAST(price, 100000) > 1",
    "offset_of_int": "FIRST(price, 2147483647) > 1",
    "window_function": "row_number() OVER (ORDER BY ts) > 1",
    "lambda": "exists(tags, 'x')",
    "equal_arrays": "tags = array_agg(name)",
    "navigation_without_column": "LAST(1) > 1",
    "prev_without_argument": "PREV() > 1",
    "classifier_of_unknown": "CLASSIFIER(X) = 'A'",
    "classifier_of_column": "CLASSIFIER(A.price) = 'A'",
    "match_number_with_argument": "MATCH_NUMBER(1) = 1",
    "distinct_in_last": "LAST(DISTINCT price) > 1",
    "ignore_nulls_of_first": "FIRST(price) IGNORE NULLS > 1",
    "filter_of_prev": "PREV(price) FILTER (WHERE price > 1) > 1",
    "star_of_variable": "A.* > 1",
    "star_in_last": "LAST(*) > 1",
    "star_in_sum": "SUM(A.*) > 1",
    "order_by_of_last": "LAST(price ORDER BY ts) > 1",
    "order_by_other_variable": "array_agg(A.price ORDER BY B.price)[0] > 1",
    "within_group": "array_agg(price) WITHIN GROUP (ORDER BY price)[0] > 1",
    "lag": "LAG(price) > 1",
    "subquery_in": "price IN (SELECT price FROM t)",
    "match_proctime": "MATCH_PROCTIME() > ts",
    "match_proctime_in_aggregate": "MAX(MATCH_PROCTIME()) > ts",
    "match_timeout": "MATCH_TIMEOUT()",
    "match_timeout_in_aggregate": "COUNT(MATCH_TIMEOUT()) > 1",
    "match_rowtime_in_aggregate": "MAX(MATCH_ROWTIME()) > ts",
    "arbitrary": "ARBITRARY(price) > 1",
    "double_quotes": '"b".price > 1',
    "unknown_function": "FRST(price) > 1",
    "subquery": "price > (SELECT 1)",
    "clock": "ts < now()",
    "implicit_name": "price > 1 C AS TRUE",
    "incomplete": "price >",
    "sum_of_text": "SUM(name) > 1",
    "name_of_table": "ticks.price > 1",
    "variable_alone": "COUNT(B) > 1",
    "classifier_without_parentheses": "CLASSIFIER = 'A'",
    "string_in_last": 'LAST("price") > 1',
    "unknown_function_like_no_other": "xyzzy(price) > 1",
    "too_many_leaves": " + ".join(f"PREV(price, {n})" for n in range(102)) + " > 1",
    "far_away": "price > 0 AND " * 30 + "prize > 1",
}
CLAUSES = {
    "defined_twice": "PATTERN (A B) DEFINE B AS TRUE, b AS FALSE",
    "defined_but_unused": "PATTERN (A B) DEFINE C AS TRUE",
    "subset_defined": "PATTERN (A B) SUBSET U = (A, B) DEFINE U AS TRUE",
    "subset_named_as_variable": "PATTERN (A B) SUBSET A = (A, B)",
    "subset_twice": "PATTERN (A B) SUBSET U = (A), U = (B)",
    "subset_of_subset": "PATTERN (A B) SUBSET U = (A), V = (U, B)",
    "subset_of_unknown": "PATTERN (A B) SUBSET U = (A, C)",
    "skip_to_unknown": "AFTER MATCH SKIP TO LAST C PATTERN (A B)",
    "skip_to_row_that_does_not_come": "AFTER MATCH SKIP TO LAST B PATTERN (A [^B])",
    "negation_first": "PATTERN ([^A] B)",
    "negation_after_optional": "PATTERN ((A? | B*) [^C] D)",
    "gap_first": "PATTERN ({- X*? -} [^A] B)",
    "timeouts_without_within": "ORDER BY ts MEASURES 1 AS x ONE ROW PER MATCH SHOW TIMEOUT MATCHES PATTERN (A B)",
    "match_timeout_with_argument": "MEASURES MATCH_TIMEOUT(1) AS t PATTERN (A)",
    "exclusion_with_unmatched_rows": "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {- B -})",
    "too_many_repetitions": "PATTERN (A (B{100} C){1000})",
    "huge_repetitions": "PATTERN (" + "(" * 40 + "A" + "){1000000}" * 40 + ")",
    "permute_of_twenty": "PATTERN (PERMUTE(" + ", ".join(f"V{n}" for n in range(20)) + "))",
    "too_many_variables": "PATTERN (" + " ".join(f"V{n}" for n in range(201)) + ")",
    "too_many_measures": "MEASURES " + ", ".join(f"{n} AS m{n}" for n in range(501)) + " PATTERN (A)",
    "measure_without_as": "MEASURES A.price p, 1 AS q PATTERN (A)",
    "measures_of_one_name": "MEASURES 1 AS x, 2 AS X PATTERN (A)",
    "measure_named_as_column": "MEASURES 1 AS price ALL ROWS PER MATCH PATTERN (A)",
    "measure_named_later": "MEASURES m + 1 AS n, COUNT(*) AS m PATTERN (A)",
    "measure_in_aggregate": "MEASURES COUNT(*) AS n, SUM(n) AS m PATTERN (A)",
    "measure_in_define": "MEASURES COUNT(*) AS n PATTERN (A) DEFINE A AS n < 3",
    "measure_of_other_type": "MEASURES CLASSIFIER() AS n, n + INTERVAL '1' DAY AS m PATTERN (A)",
    "measure_named_as_key": "PARTITION BY name MEASURES 1 AS name PATTERN (A)",
    "misspelled_measures": "ORDER BY ts MESURES price AS p PATTERN (A)",
    "misspelled_order": "PARTITION BY name ODER BY ts PATTERN (A)",
    "partition_by_variable": "PARTITION BY A.name PATTERN (A)",
    "partition_by_aggregate": "PARTITION BY SUM(price) PATTERN (A)",
    "partition_by_list": "PARTITION BY tags PATTERN (A)",
    "partition_by_unknown": "PARTITION BY nme PATTERN (A)",
    "order_by_navigation": "ORDER BY PREV(price) PATTERN (A)",
    "order_by_struct": "ORDER BY point PATTERN (A)",
    "rowtime_without_order": "MEASURES MATCH_ROWTIME() AS t PATTERN (A)",
    "match_proctime_with_argument": "MEASURES MATCH_PROCTIME(ts) AS t PATTERN (A)",
    "match_proctime_with_final": "MEASURES FINAL MATCH_PROCTIME() AS t PATTERN (A)",
    "partition_by_match_proctime": "PARTITION BY MATCH_PROCTIME() PATTERN (A)",
    "no_columns": "ORDER BY ts PATTERN (A B)",
    "within_without_order": "PATTERN (A B) WITHIN INTERVAL '1' HOUR",
    "within_of_text": "ORDER BY name PATTERN (A B) WITHIN INTERVAL '1' HOUR",
    "within_months": "ORDER BY ts PATTERN (A B) WITHIN INTERVAL '1' MONTH",
    "within_two_units": "ORDER BY ts PATTERN (A B) WITHIN INTERVAL '1:75' HOUR TO MINUTE",
    "within_number": "ORDER BY ts PATTERN (A B) WITHIN 5",
    "within_nothing": "ORDER BY ts PATTERN (A B) WITHIN INTERVAL '0' SECOND",
    "within_column": "ORDER BY ts PATTERN (A B) WITHIN INTERVAL volume HOUR",
}
TABLES = {
    "table_unknown": ("ORDER BY trisp.ts PATTERN (A)", TRIPS),
    "table_of_no_column": ("ORDER BY trips.tss PATTERN (A)", TRIPS),
    "table_or_variable_unknown": ("MEASURES x.price AS p PATTERN (A)", TRIPS),
    "table_star": ("MEASURES COUNT(trips.*) AS n PATTERN (A)", TRIPS),
    "table_of_outer_query": ("PATTERN (A) DEFINE A AS price > cars.speed", InputTable(("cars",), outer=True)),
    "column_of_several_tables": ("PARTITION BY price PATTERN (A)", *(
        InputTable((name,), (("price", f"{name}.price"),)) for name in ("l", "r")
    )),
}  # fmt: skip
TEXTS: dict[str, Provocation] = {
    name: lambda text=text: checked(text)  # type: ignore[misc]  # mypy does not know the default
    for name, text in (
        {name: f"ORDER BY ts PATTERN (A B) DEFINE B AS {text}" for name, text in CONDITIONS.items()} | CLAUSES
    ).items()
} | {
    name: lambda given=given: over(*given, schema=SCHEMA.remove(2) if len(given) > 2 else SCHEMA)  # type: ignore[misc]
    for name, given in TABLES.items()
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
