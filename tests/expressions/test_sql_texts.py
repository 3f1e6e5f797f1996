"""What a user reads when an expression of SQL is wrong: the text of every error, as a whole.

Most are conditions of a pattern, some are measures. See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism.expressions.types import TIME_ZONE
from asterism.matching.binding import BoundPattern
from tests.kit import Golden, Provocation
from tests.patterns.test_pattern_texts import begin

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("ts", pa.int64()),
        ("price", pa.float64()),
        ("volume", pa.int64()),
        ("status", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


def bound(text: str) -> Provocation:
    """A condition of the second stage of a pattern of stages a and b."""
    return lambda: BoundPattern.of_pattern(begin().followed_by("b").where(text), SCHEMA)


CONDITIONS: dict[str, str] = {
    "sql_unexpected_token": "price > 1 2",
    "sql_lambda": "lambda row: row.price > 3",
    "sql_lambda_that_is_called": "(lambda price: price > 3)(price)",
    "sql_method_of_python": "status.startswith('a')",
    "sql_column_of_pyspark": "F.col('price') > 3",
    "sql_double_ampersand": "price > 3 && volume > 1",
    "sql_double_asterisk": "price ** 2 > 3",
    "sql_choice_of_python": "price > 3 if volume else 2",
    "sql_is_none": "status is not None",
    "sql_filter_of_last": "LAST(a.price) FILTER (WHERE a.price > 1) > 2",
    "sql_filter_of_other_stage": "COUNT(a.*) FILTER (WHERE b.price > 1) > 2",
    "sql_filter_without_where": "SUM(a.price) FILTER (a.price > 1) > 2",
    "sql_incomplete": "price >",
    "sql_bracket_not_closed": "price > (1 + 2",
    "sql_string_not_closed": "status = 'open",
    "sql_empty": "",
    "sql_two_expressions": "price > 1; price < 2",
    "sql_second_line": "price > 1\nAND AND price < 2",
    "sql_has_a_name": "price > 1 AS expensive",
    "sql_too_long": "price > 1 AND " * 2000 + "price > 1",
    "sql_too_deep": "(" * 101 + "price > 1" + ")" * 101,
    "sql_not_too_often": "NOT " * 200 + "price > 1",
    "sql_program_too_deep": "LAST(a.price) > " + "+".join(f"({n} * LAST(a.price)" for n in range(70)) + ")" * 70,
    "sql_unknown_column": "prize > 1",
    "sql_unknown_column_unlike_any": "zzz > 1",
    "sql_text_without_quotes": "lower(user) = bob",
    "sql_unknown_column_of_stage": "price > LAST(a.prize)",
    "sql_quoted_column_in_other_case": "`PRICE` > 1",
    "sql_unknown_stage": "price > LAST(c.price)",
    "sql_stage_in_other_case": "price > LAST(A.price)",
    "sql_field_of_no_stage": "user.name = 'x'",
    "sql_three_part_name": "price > LAST(x.a.price)",
    "sql_unknown_function": "price > frobnicate(volume)",
    "sql_function_of_duckdb": "strftime(at, '%Y-%m') = '2026-01'",
    "sql_operator_in_spark": "regexp_matches(status, '^o')",
    "sql_function_misspelled": "substrng(status, 1, 2) = 'ok'",
    "sql_function_of_other_type": "status = 'x' AND substring(price, 1, 2) = 'ok'",
    "sql_repetition_without_end": "repeat(repeat(status, 1000), 1000) = 'ok'",
    "sql_pattern_from_column": "status LIKE user",
    "sql_pattern_ends_with_escape": r"status LIKE 'a\\'",
    "sql_regular_expression_of_java": r"status RLIKE 'a(?=b)'",
    "sql_regular_expression_unbalanced": "status RLIKE 'a(b'",
    "sql_time_of_evaluation": "at > now() - INTERVAL 1 DAY",
    "sql_time_of_evaluation_without_brackets": "at > current_timestamp",
    "sql_text_that_is_no_time": "at > '2024-13-01'",
    "sql_type_unknown_here": "CAST(price AS BINARY) IS NULL",
    "sql_double_as_text": "concat(price, '%') = '1%'",
    "sql_list_with_list": "tags = tags",
    "sql_element_of_text": "status[0] = 'o'",
    "sql_field_of_number": "LAST(a.price.cents) = 1",
    "sql_between_symmetric": "price BETWEEN SYMMETRIC 2 AND 1",
    "sql_written_out_too_long": "CASE " * 30 + "price" + " WHEN 1 THEN 2 WHEN 2 THEN 3 WHEN 3 THEN 4 END" * 30 + " = 5",
    "sql_months_as_value": "(at + INTERVAL 1 MONTH) > at AND INTERVAL 1 MONTH",
    "sql_random": "rand() > 0.5",
    "sql_bars_next_to_plus": "status || volume + 1 = 'ok2'",
    "sql_bitwise": "volume & 1 | 2 = 3",
    "sql_comparison_of_comparison": "price < 1 = TRUE",
    "sql_shift": "volume << 1 & 2 = 2",
    "sql_format_by_locale": "date_format(at, 'zzzz') = 'x'",
    "sql_format_without_separator": "to_date(status, 'dMyyyy') IS NULL",
    "sql_format_from_column": "date_format(at, status) = 'x'",
    "sql_unknown_zone_of_function": "from_utc_timestamp(at, 'Madrid') > at",
    "sql_day_of_week_misspelled": "next_day(at, 'mondey') > at",
    "sql_subquery": "price > (SELECT max(price) FROM events)",
    "sql_in_subquery": "price IN (SELECT price FROM events)",
    "sql_exists": "EXISTS (SELECT 1)",
    "sql_statement": "DROP TABLE events",
    "sql_select": "SELECT 1",
    "sql_setting": "name = 'a ${env:HOME}'",
    "sql_text_next_to_predicate": "NOT 2 * price IN (1, 2) || name IS NULL",
    "sql_window_function": "row_number() OVER (ORDER BY price) = 1",
    "sql_aggregate_over_window": "SUM(a.price) OVER (ORDER BY ts) > 1",
    "sql_star": "* > 1",
    "sql_stage_star": "a.* > 1",
    "sql_aggregate_of_constant": "SUM(1) > 1",
    "sql_prev_of_stage": "PREV(a.price) > 1",
    "sql_prev_of_itself": "PREV(price, 0) > 1",
    "sql_prev_far": "PREV(price, 101) > 1",
    "sql_prev_of_constant": "PREV(1) > 1",
    "sql_sum_of_star": "SUM(a.*) > 1",
    "sql_aggregate_of_two_stages": "SUM(a.price + b.price) > 1",
    "sql_aggregate_of_stage_and_event": "SUM(a.price + price) > 1",
    "sql_aggregate_in_aggregate": "SUM(a.price + LAST(a.price)) > 1",
    "sql_count_distinct": "COUNT(DISTINCT a.price) > 1",
    "sql_not_boolean": "price",
    "sql_not_boolean_number": "price + 1",
    "sql_not_boolean_text": "'yes'",
    "sql_not_boolean_over_stage": "LAST(a.price)",
    "sql_and_with_number": "price > 1 AND volume",
    "sql_and_with_number_over_stage": "LAST(a.price) > 1 OR LAST(a.volume)",
    "sql_number_with_text": "price > LAST(a.status)",
    "sql_text_with_number_now": "status > 1",
    "sql_number_with_boolean": "LAST(a.price) = TRUE",
    "sql_sum_of_text": "SUM(a.status) > 1",
    "sql_average_of_time": "AVG(a.at) > 1",
    "sql_text_plus_number": "LAST(a.status) + 1 > 2",
    "sql_negative_text": "-LAST(a.status) > 2",
    "sql_time_plus_number": "at > LAST(a.at) + 5",
    "sql_number_plus_interval": "ts > LAST(a.ts) + INTERVAL 5 SECONDS",
    "sql_interval_of_column": "at < LAST(a.at) + INTERVAL volume SECONDS",
    "sql_list_of_stage": "LAST(a.tags) = tags",
    "sql_unknown_over_stages": "nothing(LAST(a.status), status) = 1",
    "sql_try_divide_of_three": "try_divide(LAST(a.price), 1, 2) > 3",
    "sql_wrong_number_of_arguments": "abs(price, 1) > 1",
    "sql_cast_to_unknown": "CAST(price AS money2) > 1",
}


def in_zone(zone: str) -> Provocation:
    return lambda: BoundPattern.of_pattern(begin().where("hour(at) = 3"), SCHEMA.with_metadata({TIME_ZONE: zone}))


TEXTS: dict[str, Provocation] = {name: bound(text) for name, text in CONDITIONS.items()} | {
    "sql_unknown_zone": in_zone("Mars/Olympus_Mons")
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
