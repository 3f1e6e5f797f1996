"""What a user reads when something is wrong: the text of every error, as a whole.

Each entry of the tables below provokes one error; ``golden/<name>.txt`` holds the name of its type and its text. To
write the files anew: ``ASTERISM_REWRITE=1 pytest tests/errors``, then read the difference.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism.cli.event_files import read_events
from asterism.columns.time import END_OF_TIME
from asterism.errors import AsterismError
from asterism.expressions.types import TIME_ZONE
from asterism.matching.binding import BoundPattern
from asterism.matching.operator import EVENTS, CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.matching.page import Page
from asterism.operators.key_group import GroupHeader
from asterism.operators.operator import Arrival, Now
from asterism.operators.state_store import MemoryStore
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import Condition, Context, Event, IterativeCondition, as_condition
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import AfterMatchSkipStrategy, WithinType
from asterism.testing import match
from asterism.trace.report import trace
from tests.errors.conftest import Golden

Json = dict[str, Any]
Provocation = Callable[[], object]

SECOND = timedelta(seconds=1)
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

# ---------------------------------------------------------------------------------------------------- patterns


def begin(stage: str = "a") -> Pattern:
    return Pattern.begin(stage)


def group() -> Pattern:
    return begin("b").next("c")


PATTERNS: dict[str, Provocation] = {
    "pattern_name_empty": lambda: begin(""),
    "pattern_name_with_colon": lambda: begin("a:b"),
    "pattern_where_on_group": lambda: begin().next(group()).where("price > 1"),
    "pattern_or_on_group": lambda: begin().next(group()).or_("price > 1"),
    "pattern_subtype_on_group": lambda: begin().next(group()).subtype("card"),
    "pattern_subtype_without_name": lambda: begin().subtype(column="status"),
    "pattern_until_twice": lambda: begin().one_or_more().until("price > 1").until("price > 2"),
    "pattern_until_without_loop": lambda: begin().until("price > 1"),
    "pattern_until_on_times": lambda: begin().times(3).until("price > 1"),
    "pattern_times_zero": lambda: begin().times(0),
    "pattern_times_negative": lambda: begin().times(-1),
    "pattern_times_zero_to_zero": lambda: begin().times(0, 0),
    "pattern_times_backwards": lambda: begin().times(3, 2),
    "pattern_times_or_more_zero": lambda: begin().times_or_more(0),
    "pattern_two_quantifiers": lambda: begin().times(2).one_or_more(),
    "pattern_quantifier_on_not": lambda: begin().not_next("b").times(2),
    "pattern_optional_not": lambda: begin().not_followed_by("b").optional(),
    "pattern_optional_twice": lambda: begin().optional().optional(),
    "pattern_optional_after_greedy": lambda: begin().one_or_more().greedy().followed_by("b").optional(),
    "pattern_greedy_not": lambda: begin().not_followed_by("b").greedy(),
    "pattern_greedy_group": lambda: begin().next(group()).one_or_more().greedy(),
    "pattern_greedy_single": lambda: begin().greedy(),
    "pattern_consecutive_single": lambda: begin().consecutive(),
    "pattern_allow_combinations_single": lambda: begin().allow_combinations(),
    "pattern_consecutive_and_combinations": lambda: begin().one_or_more().consecutive().allow_combinations(),
    "pattern_window_negative": lambda: begin().within(-SECOND),
    "pattern_repetition_window_negative": lambda: begin().times(2, within=-SECOND),
    "pattern_gap_larger_than_window": lambda: compile_pattern(
        begin().followed_by("b").within(SECOND).within(2 * SECOND, WithinType.PREVIOUS_AND_CURRENT)
    ),
    "pattern_repetition_gap_larger_than_window": lambda: compile_pattern(
        begin().times(3, within=2 * SECOND).within(SECOND)
    ),
    "pattern_not_after_optional": lambda: begin().next("b").optional().not_followed_by("c"),
    "pattern_not_followed_by_group": lambda: begin().not_followed_by(group()),  # type: ignore[arg-type]
    "pattern_not_next_group": lambda: begin().not_next(group()),  # type: ignore[arg-type]
    "pattern_same_name_twice": lambda: begin().next("a").validate(),
    "pattern_same_name_in_group": lambda: begin("b").next(group()).validate(),
    "pattern_absence_without_window": lambda: begin().not_followed_by("b").validate(),
    "pattern_skip_to_unknown": lambda: begin().skip_strategy(AfterMatchSkipStrategy.skip_to_first("z")).validate(),
    "pattern_skip_into_group": lambda: (
        begin().next(group()).skip_strategy(AfterMatchSkipStrategy.skip_to_last("b")).validate()
    ),
    "pattern_stage_of_other_type": lambda: begin().next(5),  # type: ignore[arg-type]
    "pattern_stage_with_half_a_character": lambda: begin("a\ud800"),
    "pattern_stage_with_a_line_break": lambda: begin("a\nERROR\x1b[2J").optional().optional(),
    "pattern_times_of_text": lambda: begin().times("2"),  # type: ignore[arg-type]
    "pattern_within_a_number": lambda: begin().within(5),  # type: ignore[arg-type]
    "pattern_within_of_unknown_kind": lambda: begin().within(SECOND, "FIRST_AND_LAST"),  # type: ignore[arg-type]
    "pattern_within_too_long": lambda: begin().within(timedelta.max),
    "pattern_skip_is_text": lambda: begin().skip_strategy("SKIP_PAST_LAST_EVENT"),  # type: ignore[arg-type]
    "pattern_skip_without_brackets": lambda: Pattern.begin("a", AfterMatchSkipStrategy.skip_to_next),  # type: ignore[arg-type]
    "pattern_skip_without_stage": lambda: begin().skip_strategy(AfterMatchSkipStrategy.skip_to_first),  # type: ignore[arg-type]
    "pattern_skip_to_number": lambda: AfterMatchSkipStrategy.skip_to_last(5),  # type: ignore[arg-type]
    "pattern_drawn_as_unknown": lambda: begin().to_svg("picture"),  # type: ignore[arg-type]
    "pattern_same_name_in_match": lambda: match(begin().next("a"), "a1"),
    "pattern_is_text": lambda: match("a b", "a1"),  # type: ignore[arg-type]
    "semantics_is_text": lambda: match(begin(), "a1", semantics="flink"),
    "kit_events_of_other_type": lambda: match(begin(), 5),  # type: ignore[arg-type]
    "kit_keys_are_text": lambda: match(begin(), "a1", keys="key"),
    "pattern_condition_of_other_type": lambda: begin().where(3),  # type: ignore[arg-type]
    "condition_of_other_type": lambda: as_condition(None),  # type: ignore[arg-type]
    "iterative_condition_of_other_type": lambda: IterativeCondition("price > 1"),  # type: ignore[arg-type]
    "pattern_groups_too_deep": lambda: reduce(lambda inside, _: Pattern.begin(inside), range(51), begin()),
    "pattern_conditions_too_deep": lambda: reduce(lambda pattern, _: pattern.where("price > 1"), range(102), begin()),
}

# ---------------------------------------------------------------------------------------------------- the compiler

COMPILER: dict[str, Provocation] = {
    "compiler_absence_last_in_group": lambda: compile_pattern(
        begin().next(begin("b").not_followed_by("c")).followed_by("d").within(SECOND)
    ),
    "compiler_absence_with_window_elsewhere": lambda: compile_pattern(begin().within(SECOND).not_followed_by("b")),
    "compiler_repetition_window_of_group": lambda: compile_pattern(begin().next(group()).times(2, within=SECOND)),
    "compiler_window_in_group": lambda: compile_pattern(begin().next(begin("b").next("c").within(SECOND))),
    "compiler_endless_group": lambda: compile_pattern(
        begin().next(Pattern.begin("b").optional().next("c").optional()).one_or_more()
    ),
    "compiler_too_many_states": lambda: BoundPattern.of_pattern(begin().times(30_000), SCHEMA),
    "compiler_too_many_forbidden": lambda: compile_pattern(
        reduce(lambda pattern, n: pattern.not_followed_by(f"n{n}"), range(1000), begin()).followed_by("b").times(1, 200)
    ),
}

# ---------------------------------------------------------------------------------------------------- JSON


def node(name: str, **fields: Any) -> Json:
    return {"name": name, "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}} | fields


def graph(*nodes: Any, edges: Sequence[Any] | None = None, **fields: Any) -> Json:
    if edges is None:
        names = [node["name"] for node in nodes]
        edges = [edge(source, target) for source, target in pairwise(names)]
    return {"name": "root", "type": "COMPOSITE", "nodes": list(nodes), "edges": edges} | fields


def edge(source: str, target: str, kind: str = "STRICT") -> Json:
    return {"source": source, "target": target, "type": kind}


def quantified(*properties: str, **fields: Any) -> Json:
    return graph(node("a", quantifier={"properties": list(properties)} | fields))


def windowed(window: Any) -> Json:
    return graph(node("a", window=window))


def nested(depth: int) -> Json:
    inner = node("a")
    for level in range(depth):
        inner = graph(inner) | {"name": f"g{level}", "quantifier": {"properties": ["SINGLE"]}}
    return graph(inner)


def time(unit: Any = "SECONDS", size: Any = 1) -> Json:
    return {"unit": unit, "size": size}


DOCUMENTS: dict[str, Any] = {
    "json_too_large": '"' + "x" * 1_000_000 + '"',
    "json_not_json": '{"name": ',
    "json_too_deep": "[" * 100_000,
    "json_root_is_list": "[]",
    "json_root_is_atomic": node("a"),
    "json_groups_too_deep": nested(60),
    "json_no_nodes": graph(),
    "json_nodes_no_list": graph() | {"nodes": "a"},
    "json_node_without_name": graph(node("a"), {"type": "ATOMIC"}, edges=[]),
    "json_node_is_text": graph("a", edges=[]),
    "json_two_nodes_of_one_name": graph(node("a"), node("a"), edges=[]),
    "json_edges_no_list": graph(node("a")) | {"edges": 3},
    "json_edge_is_text": graph(node("a"), node("b"), edges=["a->b"]),
    "json_edge_to_unknown_node": graph(node("a"), node("b"), edges=[edge("a", "c")]),
    "json_edge_to_list": graph(node("a"), node("b"), edges=[edge("a", ["b"])]),  # type: ignore[arg-type]
    "json_edge_of_unknown_type": graph(node("a"), node("b"), edges=[edge("a", "b", "NEXT")]),
    "json_edge_without_type": graph(node("a"), node("b"), edges=[{"source": "a", "target": "b"}]),
    "json_two_edges_leave": graph(node("a"), node("b"), node("c"), edges=[edge("a", "b"), edge("a", "c")]),
    "json_two_edges_enter": graph(node("a"), node("b"), node("c"), edges=[edge("a", "c"), edge("b", "c")]),
    "json_two_chains": graph(node("a"), node("b"), edges=[]),
    "json_circle": graph(node("a"), node("b"), edges=[edge("a", "b"), edge("b", "a")]),
    "json_chain_and_circle": graph(node("a"), node("b"), node("c"), edges=[edge("b", "c"), edge("c", "b")]),
    "json_name_with_colon": graph(node("a:1")),
    "json_group_with_condition": graph(
        graph(node("a"))
        | {"name": "g", "condition": {"type": "SQL", "expression": "TRUE"}, "quantifier": {"properties": ["SINGLE"]}}
    ),
    "json_unknown_node_type": graph(node("a", type="ATOM")),
    "json_not_edge_to_group": graph(
        node("a"),
        graph(node("b")) | {"name": "g", "quantifier": {"properties": ["SINGLE"]}},
        edges=[edge("a", "g", "NOT_NEXT")],
    ),
    "json_condition_of_unknown_type": graph(
        node("a", condition={"type": "CLASS", "className": "com.example.Condition"})
    ),
    "json_condition_is_text": graph(node("a", condition="price > 1")),
    "json_condition_without_expression": graph(node("a", condition={"type": "SQL"})),
    "json_condition_blank": graph(node("a", condition={"type": "SQL", "expression": "  "})),
    "json_no_quantifier": graph({"name": "a", "type": "ATOMIC"}),
    "json_quantifier_without_properties": graph(node("a", quantifier={})),
    "json_unknown_property": quantified("SINGLE", "LAZY"),
    "json_property_is_list": graph(node("a", quantifier={"properties": [["SINGLE"]]})),
    "json_no_kind": quantified("OPTIONAL"),
    "json_two_kinds": quantified("LOOPING", "TIMES", times={"from": 1, "to": 2}),
    "json_unknown_consuming_strategy": quantified("LOOPING", consumingStrategy="RELAXED"),
    "json_negated_consuming_strategy": quantified("LOOPING", consumingStrategy="NOT_NEXT"),
    "json_times_missing": quantified("TIMES"),
    "json_times_no_object": quantified("TIMES", times=3),
    "json_times_from_no_integer": quantified("TIMES", times={"from": "1", "to": 2}),
    "json_times_from_boolean": quantified("TIMES", times={"from": True, "to": 2}),
    "json_times_to_missing": quantified("TIMES", times={"from": 1}),
    "json_times_backwards": quantified("TIMES", times={"from": 3, "to": 2}),
    "json_until_without_loop": quantified("SINGLE", untilCondition={"type": "SQL", "expression": "TRUE"}),
    "json_window_no_object": windowed(5),
    "json_window_of_unknown_type": windowed({"type": "FIRST", "time": time()}),
    "json_window_without_time": windowed({"type": "FIRST_AND_LAST"}),
    "json_window_of_unknown_unit": windowed({"type": "FIRST_AND_LAST", "time": time(unit="YEARS")}),
    "json_window_size_no_integer": windowed({"type": "FIRST_AND_LAST", "time": time(size=1.5)}),
    "json_window_too_long": windowed({"type": "FIRST_AND_LAST", "time": time("DAYS", 10**12)}),
    "json_window_negative": windowed({"type": "FIRST_AND_LAST", "time": time(size=-1)}),
    "json_windows_of_one_type": windowed(2 * [{"type": "FIRST_AND_LAST", "time": time()}]),
    "json_skip_of_unknown_type": graph(node("a"), afterMatchStrategy={"type": "SKIP"}),
    "json_skip_is_text": graph(node("a"), afterMatchStrategy="NO_SKIP"),
    "json_skip_without_stage": graph(node("a"), afterMatchStrategy={"type": "SKIP_TO_FIRST"}),
    "json_skip_to_unknown": graph(node("a"), afterMatchStrategy={"type": "SKIP_TO_LAST", "patternName": "z"}),
    "json_unknown_unit_is_list": windowed({"type": "FIRST_AND_LAST", "time": time(unit=["SECONDS"])}),
    "json_empty": "",
    "json_blank": b" \n ",
    "json_byte_order_mark": "\ufeff{}",
    "json_utf_8_with_byte_order_mark": b"\xef\xbb\xbf{}",
    "json_utf_16": "{}".encode("utf-16"),
    "json_latin_1": '{"type": "COMPOSITE",\n "name": "café"}'.encode("latin-1"),
    "json_name_twice": '{"type": "COMPOSITE", "nodes": [{"name": "a",\n "name": "b"}]}',
    "json_nan": '{"version": NaN}',
    "json_integer_too_large": '{"version": ' + "1" * 5000 + "}",
    "json_field_name_too_long": '{"' + "x" * 300 + '": 1}',
    "json_root_name_is_number": graph(node("a")) | {"name": 1},
    "json_unknown_version": graph(node("a"), version=2),
    "json_unknown_field": graph(node("a", attributes={})),
    "json_field_misspelt": quantified("LOOPING", untilcondition={"type": "SQL", "expression": "TRUE"}),
    "json_half_a_character": graph(node("\ud800")),
    "json_node_without_type": graph(node("a", type=None)),
    "json_condition_in_aviator": graph(node("a", condition={"type": "AVIATOR", "expression": "price > 1"})),
    "json_until_condition_in_groovy": quantified("LOOPING", untilCondition={"type": "GROOVY", "expression": "price"}),
    "json_condition_without_type": graph(node("a", condition={"expression": "price > 1"})),
    "json_condition_in_unknown_language": graph(node("a", condition={"type": "PYTHON", "expression": "True"})),
    "json_too_many_stages": quantified("TIMES", times={"from": 1, "to": 1_000_000_000}),
    "json_time_no_object": windowed({"type": "FIRST_AND_LAST", "time": 5}),
    "json_skip_to_number": graph(node("a"), afterMatchStrategy={"type": "SKIP_TO_LAST", "patternName": 1}),
    "json_throw_on_miss_is_text": graph(
        node("a"), afterMatchStrategy={"type": "SKIP_TO_LAST", "patternName": "a", "throwOnMiss": "yes"}
    ),
    "json_throw_on_miss_of_nothing": graph(node("a"), afterMatchStrategy={"type": "NO_SKIP", "throwOnMiss": True}),
    "json_skip_of_group_unknown": graph(
        graph(node("b"), afterMatchStrategy={"type": "SKIP"}) | {"name": "g", "quantifier": {"properties": ["SINGLE"]}}
    ),
    "json_root_quantifier_unknown": graph(node("a"), quantifier={"properties": ["ONCE"]}),
    "json_not_edge_to_loop": graph(
        node("a"), node("b", quantifier={"properties": ["LOOPING"]}), edges=[edge("a", "b", "NOT_NEXT")]
    ),
    "json_absence_without_window": graph(node("a"), node("b"), edges=[edge("a", "b", "NOT_FOLLOW")]),
}


def reading(document: Any) -> Provocation:
    return lambda: Pattern.from_json(document)


@dataclass(frozen=True, slots=True)
class OtherCondition(Condition):
    """One that the library may have tomorrow."""


def alternating(times: int) -> Pattern:
    pattern = begin().where("price > 0")
    for _ in range(times):
        pattern = pattern.where("price > 1").or_("price > 2")
    return pattern


WRITING: dict[str, Provocation] = {
    "write_condition_in_python": lambda: begin().where(fails).to_json(),
    "write_condition_partly_in_python": lambda: begin().where("price > 1").where(lambda events: None).to_json(),
    "write_until_condition_in_python": lambda: begin().one_or_more().until(fails).to_json(),
    "write_condition_of_unknown_kind": lambda: begin().where(OtherCondition()).to_json(),
    "write_condition_that_does_not_parse": lambda: begin().where("price >").where("price < 9").to_json(),
    "write_condition_that_closes_brackets": lambda: begin().where("price > 1) OR (TRUE").where("price < 9").to_json(),
    "write_condition_with_a_name": lambda: begin().where("price > 1 AS high").where("price < 9").to_json(),
    "write_condition_with_semicolon": lambda: begin().where("price > 1;").where("price < 9").to_json(),
    "write_condition_blank": lambda: begin().where(" ").to_json(),
    "write_conditions_too_deep": lambda: alternating(40).to_json(),
    "write_group_named_as_stage": lambda: begin("(b)").next(begin("b")).to_json(),
    "write_too_many_stages": lambda: begin().times(30_000).to_json(),
    "write_absence_without_window": lambda: begin().not_followed_by("b").to_json(),
}


# ---------------------------------------------------------------------------------------------------- expressions


def bound(text: str) -> Provocation:
    """A condition of the second stage of a pattern of stages a and b."""
    return lambda: BoundPattern.of_pattern(begin().followed_by("b").where(text), SCHEMA)


CONDITIONS: dict[str, str] = {
    "sql_unexpected_token": "price > 1 2",
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
    "sql_unknown_column_of_stage": "price > LAST(a.prize)",
    "sql_quoted_column_in_other_case": "`PRICE` > 1",
    "sql_unknown_stage": "price > LAST(c.price)",
    "sql_stage_in_other_case": "price > LAST(A.price)",
    "sql_field_of_no_stage": "user.name = 'x'",
    "sql_three_part_name": "price > LAST(x.a.price)",
    "sql_unknown_function": "price > frobnicate(volume)",
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
    "sql_shift": "volume << 1 = 2",
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
    "sql_aggregate_without_stage": "SUM(price) > 1",
    "sql_count_star": "COUNT(*) > 1",
    "sql_aggregate_of_constant": "SUM(1) > 1",
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
    "sql_interval_in_months": "at < MAX(a.at) + INTERVAL 1 MONTH",
    "sql_interval_of_column": "at < LAST(a.at) + INTERVAL volume SECONDS",
    "sql_list_of_stage": "LAST(a.tags) = tags",
    "sql_like_over_stages": "concat(LAST(a.status), status) LIKE 'o%'",
    "sql_modulo_over_stage": "SUM(a.volume) % 2 = 0",
    "sql_modulo_that_can_fail": "10 % LAST(a.volume) = 0",
    "sql_cast_that_can_fail_over_stage": "CAST(LAST(a.status) AS INT) = 1",
    "sql_upper_over_stages": "UPPER(MAX(a.status)) = 'OK'",
    "sql_try_divide_of_three": "try_divide(LAST(a.price), 1, 2) > 3",
    "sql_wrong_number_of_arguments": "abs(price, 1) > 1",
    "sql_cast_to_unknown": "CAST(price AS money2) > 1",
}


def in_zone(zone: str) -> Provocation:
    return lambda: BoundPattern.of_pattern(begin().where("hour(at) = 3"), SCHEMA.with_metadata({TIME_ZONE: zone}))


# ---------------------------------------------------------------------------------------------------- the operator


def operator(
    pattern: Pattern | None = None,
    *,
    keys: Sequence[str] = ("user",),
    time: str | None = "ts",
    schema: pa.Schema = SCHEMA,
    semantics: Semantics = Semantics.DEFAULT,
    order_by: Sequence[str] = (),
    **outputs: Any,
) -> CepOperator:
    specs = {
        name: value if isinstance(value, OutputSpec) else OutputSpec(OutputKind.MATCHES, tuple(value))
        for name, value in outputs.items()
    }
    return CepOperator(
        pattern or begin().followed_by("b"),
        schema,
        keys=keys,
        time=time,
        outputs=specs or {"matches": OutputSpec(OutputKind.MATCHES)},
        semantics=semantics,
        order_by=order_by,
    )


def measuring(*measures: str) -> Provocation:
    return lambda: operator(matches=measures)


def events(*rows: tuple[Any, ...]) -> pa.Table:
    """Events (user, ts, price) of one key or several."""
    columns = {field.name: [None] * len(rows) for field in SCHEMA}
    for number, name in enumerate(("user", "ts", "price")):
        columns[name] = [row[number] for row in rows]
    return pa.table(columns, schema=SCHEMA)


def limited(**options: Any) -> CepOperator:
    outputs = {"matches": OutputSpec(OutputKind.MATCHES)}
    pattern = begin().where("price > 0").followed_by("b").where("price < 0")
    return CepOperator(pattern, SCHEMA, keys=["user"], time="ts", outputs=outputs, **options)


def running(pattern: Pattern | CepOperator, *rows: tuple[Any, ...], **arguments: Any) -> Provocation:
    """Feed events (user, ts, price), then the end of time."""

    def run() -> None:
        cep = pattern if isinstance(pattern, CepOperator) else operator(pattern, **arguments)
        store = MemoryStore()
        cep.process(store, [Arrival(EVENTS, cep.prepare(EVENTS, events(*rows)))], Now())
        cep.process(store, [], Now(END_OF_TIME))

    return run


def fails(_: pa.Table) -> Any:
    raise KeyError("color")


def divides(event: Event, context: Context) -> bool:
    return bool(1 / event.price > 1)


def asking(function: Callable[[Event, Context], Any], columns: Sequence[str] | None = None) -> Provocation:
    """A per-event condition on the second event of a key."""
    pattern = begin().followed_by("b").where(IterativeCondition(function, columns))
    return running(pattern, ("u", 1, 1.0), ("v", 1, 0.0), ("v", 2, 0.0))


def skipping(skip: AfterMatchSkipStrategy) -> Pattern:
    return begin().next("x").where("price < 0").optional().next("b").where("price > 1").skip_strategy(skip)


def state_of_another_query() -> None:
    store = MemoryStore()
    cep = operator()
    cep.process(store, [Arrival(EVENTS, cep.prepare(EVENTS, events(("u", 1, 1.0))))], Now())
    operator(begin().followed_by("c")).process(store, [], Now())


def patched(value: bytes, layout: int) -> bytes:
    return value[:4] + layout.to_bytes(2, "little") + value[6:]


OPERATOR: dict[str, Provocation] = {
    "measure_bare_event_column": measuring("price AS p"),
    "measure_bare_event_column_in_expression": measuring("LAST(b.price) - price AS change"),
    "measure_unknown_column": measuring("matchtime AS t"),
    "measure_unknown_stage": measuring("LAST(z.price) AS p"),
    "measure_unknown_column_of_stage": measuring("LAST(a.prize) AS p"),
    "measure_sum_of_text": measuring("SUM(a.status) AS s"),
    "measure_without_name_after_as": measuring("LAST(a.price) AS"),
    "measure_syntax": measuring("LAST(a.price) + AS p"),
    "measure_twice": measuring("LAST(a.price) AS p", "LAST(b.price) AS p"),
    "measure_named_as_key": measuring("LAST(a.price) AS user"),
    "measure_type_mismatch": measuring("LAST(a.status) + 1 AS s"),
    "output_stage_named_as_key": lambda: operator(begin("user")),
    "output_stage_named_as_time": lambda: operator(begin("start_time")),
    "output_late_with_measures": lambda: operator(late=OutputSpec(OutputKind.LATE, ("LAST(a.price) AS p",))),
    "output_late_with_function": lambda: operator(late=OutputSpec(OutputKind.LATE, function=lambda table: table)),
    "output_function_fails": running(
        begin(),
        ("u", 1, 1.0),
        matches=OutputSpec(OutputKind.MATCHES, function=fails, function_schema=pa.schema([("x", pa.int64())])),
    ),
    "output_function_returns_other": running(
        begin(),
        ("u", 1, 1.0),
        matches=OutputSpec(
            OutputKind.MATCHES,
            function=lambda table: table.select(["user"]),
            function_schema=pa.schema([("x", pa.int64())]),
        ),
    ),
    "output_function_returns_other_type": running(
        begin(),
        ("u", 1, 1.0),
        matches=OutputSpec(
            OutputKind.MATCHES,
            function=lambda table: pa.table({"x": ["many"] * table.num_rows}),
            function_schema=pa.schema([("x", pa.int64())]),
        ),
    ),
    "time_column_of_wrong_type": lambda: operator(time="price"),
    "time_column_is_text": lambda: operator(time="status"),
    "time_column_unknown": lambda: operator(time="tss"),
    "key_column_unknown": lambda: operator(keys=["usr"]),
    "order_column_unknown": lambda: operator(order_by=["-volum"]),
    "event_time_null": running(begin(), ("u", None, 1.0), ("u", 2, 1.0)),
    "no_pages": lambda: CepOperator(begin(), SCHEMA, time="ts", outputs={"m": OutputSpec(OutputKind.MATCHES)}, pages=0),
    "more_pages_than_can_be_numbered": lambda: CepOperator(
        begin(), SCHEMA, time="ts", outputs={"m": OutputSpec(OutputKind.MATCHES)}, pages=257
    ),
    "event_time_out_of_range": running(begin(), ("u", 1_732_000_000_000_000_000, 1.0)),
    "event_column_missing": lambda: operator(begin().where("price > 1")).prepare(
        EVENTS, events(("u", 1, 1.0)).drop_columns(["ts"])
    ),
    "division_by_zero_names_the_key": running(
        begin().followed_by("b").where("1 / LAST(a.price) > 1"),
        ("u", 1, 1.0),
        ("v", 1, 0.0),
        ("v", 2, 1.0),
        ("u", 3, 1.0),
    ),
    "division_by_zero_now": running(begin().where("1 / price > 1"), ("u", 1, 0.0)),
    "integer_overflow_now": running(begin().where("ts * 9223372036854775807 > 1"), ("u", 2, 0.0)),
    "text_is_no_number_now": running(begin().where("price > 'high'"), ("u", 2, 0.0)),
    "cast_fails_now": running(begin().where("CAST(user AS INT) > 1"), ("u", 2, 0.0)),
    "division_by_zero_in_measure": running(begin(), ("u", 1, 0.0), matches=("1 / LAST(a.price) AS inverse",)),
    "skip_to_first_missed": running(
        skipping(AfterMatchSkipStrategy.skip_to_first("x", throw_on_miss=True)), ("u", 1, 0.0), ("u", 2, 2.0)
    ),
    "skip_to_last_missed": running(
        skipping(AfterMatchSkipStrategy.skip_to_last("x", throw_on_miss=True)), ("u", 1, 0.0), ("u", 2, 2.0)
    ),
    "skip_to_own_first": running(
        skipping(AfterMatchSkipStrategy.skip_to_first("a", throw_on_miss=True)), ("u", 1, 0.0), ("u", 2, 2.0)
    ),
    "python_condition_fails": running(begin().where(fails), ("u", 1, 0.0)),
    "python_condition_returns_one": running(begin().where(lambda table: True), ("u", 1, 0.0), ("u", 2, 0.0)),
    "python_condition_returns_numbers": running(begin().where(lambda table: table.column("price")), ("u", 1, 0.0)),
    "python_condition_returns_too_few": running(
        begin().where(lambda table: np.array([True])), ("u", 1, 0.0), ("u", 2, 0.0)
    ),
    "python_condition_returns_none": running(begin().where(lambda table: None), ("u", 1, 0.0)),
    "iterative_condition_fails": asking(divides),
    "iterative_condition_returns_none": asking(lambda event, context: None),
    "iterative_condition_returns_number": asking(lambda event, context: event.ts),
    "iterative_condition_asks_unknown_stage": asking(lambda event, context: not context.events_for_pattern("z")),
    "iterative_condition_reads_unknown_column": asking(lambda event, context: event.prize > 1),
    "iterative_condition_reads_other_column": asking(lambda event, context: event["price"] > 1, ["user", "ts"]),
    "iterative_condition_of_unknown_column": asking(divides, ["prize"]),
    "limit_exceeded": running(limited(max_partial_matches=2), *(("u", n, 1.0) for n in range(5)), ("v", 9, 1.0)),
    "limit_of_zero": lambda: limited(max_partial_matches=0),
    "limit_with_unknown_policy": lambda: limited(max_partial_matches=1, on_limit="ignore"),
    "state_of_another_query": state_of_another_query,
    "state_of_newer_layout": lambda: GroupHeader.from_bytes(
        patched(GroupHeader.new(b"x", 1, 1, 0).to_bytes(), 7), b"x"
    ),
    "state_not_ours": lambda: GroupHeader.from_bytes(b"something else", b"x"),
    "state_too_short": lambda: GroupHeader.from_bytes(b"abc", b"x"),
    "state_of_another_kind": lambda: Page.from_bytes(GroupHeader.new(b"x", 1, 1, 0).to_bytes(), SCHEMA, SCHEMA),
}

# ---------------------------------------------------------------------------------------------------- the test kit


def sending(events: Any, **options: Any) -> Provocation:
    return lambda: match(begin().next("b"), events, **options)


KIT: dict[str, Provocation] = {
    "kit_not_an_event": sending("a1 b2c"),
    "kit_brackets_without_a_column": sending("a1 b2(ann)"),
    "kit_unknown_column_in_word": sending("a1(prize=2)"),
    "kit_value_of_other_type": sending("a1.5"),
    "kit_not_a_time": sending("a1@soon"),
    "kit_unknown_column": sending([{"ts": 1, "prize": 2}], schema=SCHEMA),
    "kit_value_does_not_fit": sending([{"ts": 1, "price": "much"}], schema=SCHEMA),
    "kit_bar_in_processing_time": sending("a1 | b2", time=None),
    "kit_sent_after_the_end": lambda: match(begin(), "a1").send("a2"),
}

# ---------------------------------------------------------------------------------------------------- trace


def tracing(**options: Any) -> Provocation:
    events = [{"user": f"user{number}", "visits": number, "ts": number} for number in range(20)]
    return lambda: trace(begin().next("b"), options.pop("events", events), **{"time": "ts"} | options)


TRACE: dict[str, Provocation] = {
    "trace_unknown_key": tracing(key={"user": "user99"}),
    "trace_unknown_key_of_several_columns": tracing(key={"user": "user9", "visits": 8}),
    "trace_key_of_other_type": tracing(key={"visits": "many"}),
    "trace_unknown_key_column": tracing(key={"usr": "user1"}),
    "trace_unknown_time_column": tracing(time="at"),
    "trace_no_events": tracing(events=SCHEMA.empty_table()),
    "trace_negative_out_of_orderness": tracing(max_out_of_orderness=-SECOND),
    "trace_file_of_unknown_format": lambda: read_events(Path("events.xml")),
}

# ---------------------------------------------------------------------------------------------------- the tests

TABLE: dict[str, Provocation] = (
    PATTERNS
    | COMPILER
    | {name: reading(document) for name, document in DOCUMENTS.items()}
    | WRITING
    | {name: bound(text) for name, text in CONDITIONS.items()}
    | {"sql_unknown_zone": in_zone("Mars/Olympus_Mons")}
    | OPERATOR
    | KIT
    | TRACE
)


def provoked(name: str) -> Exception:
    with pytest.raises(AsterismError) as caught:
        TABLE[name]()
    return caught.value


@pytest.mark.parametrize("name", TABLE)
def test_error_text(name: str, golden: Golden) -> None:
    """The whole text, and the type, which a program can catch; an error of a worker reads the same on the driver."""
    error = provoked(name)
    text = f"{type(error).__name__}\n{error}"
    golden.check(name, text)
    again = pickle.loads(pickle.dumps(error))
    assert f"{type(again).__name__}\n{again}" == text


def test_no_golden_file_is_left_over(golden: Golden) -> None:
    """Each file belongs to an entry of the table."""
    assert golden.names() <= set(TABLE)
