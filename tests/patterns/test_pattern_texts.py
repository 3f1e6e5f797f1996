"""What a user reads when a pattern is wrong, as Python or as JSON: the text of every error, as a whole.

Each entry of the tables below provokes one error; ``golden/pattern/<name>.txt`` holds the name of its type and its text. To
write the files anew: ``ASTERISM_REWRITE=1 pytest tests/patterns``, then read the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import Condition, IterativeCondition, as_condition
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import AfterMatchSkipStrategy, WithinType
from tests.kit import Golden, Provocation

Json = dict[str, Any]

SECOND = timedelta(seconds=1)

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
    "pattern_within_a_text": lambda: begin().within("10 minutes"),  # type: ignore[arg-type]
    "pattern_within_of_unknown_kind": lambda: begin().within(SECOND, "FIRST_AND_LAST"),  # type: ignore[arg-type]
    "pattern_within_too_long": lambda: begin().within(timedelta.max),
    "pattern_skip_is_text": lambda: begin().skip_strategy("SKIP_PAST_LAST_EVENT"),  # type: ignore[arg-type]
    "pattern_skip_without_brackets": lambda: Pattern.begin("a", AfterMatchSkipStrategy.skip_to_next),  # type: ignore[arg-type]
    "pattern_skip_without_stage": lambda: begin().skip_strategy(AfterMatchSkipStrategy.skip_to_first),  # type: ignore[arg-type]
    "pattern_skip_to_number": lambda: AfterMatchSkipStrategy.skip_to_last(5),  # type: ignore[arg-type]
    "pattern_drawn_as_unknown": lambda: begin().to_svg("picture"),  # type: ignore[arg-type]
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
    "compiler_gap_window_of_group": lambda: compile_pattern(
        begin().next(group()).within(SECOND, WithinType.PREVIOUS_AND_CURRENT)
    ),
    "compiler_window_in_group": lambda: compile_pattern(begin().next(begin("b").next("c").within(SECOND))),
    "compiler_endless_group": lambda: compile_pattern(
        begin().next(Pattern.begin("b").optional().next("c").optional()).one_or_more()
    ),
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


def combined(kind: str, count: int, **fields: Any) -> Json:
    """A group of *count* alternatives, or elements in any order."""
    nodes = [node(f"e{number}") for number in range(count)]
    once = {"name": "g", "type": "COMPOSITE", "quantifier": {"properties": ["SINGLE"]}}
    return once | {"combination": {"type": kind} | fields, "nodes": nodes}


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
    "json_condition_of_unknown_type": graph(node("a", condition={"type": "MVEL", "expression": "price > 1"})),
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
    "json_combination_of_the_whole": graph(node("a"), node("b"), edges=[], combination={"type": "ANY_OF"}),
    "json_combination_is_text": graph(combined("ANY_OF", 2) | {"combination": "ANY_OF"}),
    "json_combination_unknown": graph(combined("ONE_OF", 2)),
    "json_combination_field_unknown": graph(combined("ANY_OF", 2, consecutive=True)),
    "json_combination_with_edges": graph(combined("ANY_OF", 2) | {"edges": [edge("e0", "e1")]}),
    "json_alternatives_with_contiguity": graph(combined("ANY_OF", 2, consumingStrategy="STRICT")),
    "json_any_order_with_unknown_contiguity": graph(combined("IN_ANY_ORDER", 2, consumingStrategy="SKIP_TILL_ANY")),
    "json_alternatives_too_few": graph(combined("ANY_OF", 1)),
    "json_alternatives_too_many": graph(combined("ANY_OF", 101)),
    "json_any_order_too_many": graph(combined("IN_ANY_ORDER", 9)),
    "json_any_order_too_many_states": graph(
        combined("IN_ANY_ORDER", 8) | {"quantifier": {"properties": ["TIMES"], "times": {"from": 20, "to": 20}}}
    ),
    "json_alternative_optional": graph(
        combined("ANY_OF", 2) | {"nodes": [node("a"), node("b", quantifier={"properties": ["SINGLE", "OPTIONAL"]})]}
    ),
    "json_group_longest": graph(combined("ANY_OF", 2) | {"quantifier": {"properties": ["LOOPING", "LONGEST"]}}),
    "json_two_ways_to_take": quantified("LOOPING", "LONGEST", "RELUCTANT"),
    "json_longest_once": quantified("SINGLE", "LONGEST"),
    "json_absence_before_a_later_stage": graph(
        node("a"), node("b"), node("c"), edges=[edge("a", "b"), edge("b", "c", "NOT_BEFORE")]
    ),
    "json_absence_before_in_group": graph(
        graph(node("a"), node("b"), edges=[edge("a", "b", "NOT_BEFORE")])
        | {"name": "g", "quantifier": {"properties": ["SINGLE"]}}
    ),
    "json_absence_of_group": graph(combined("ANY_OF", 2), node("b"), edges=[edge("g", "b", "NOT_BEFORE")]),
    "json_absence_before_often": graph(
        node("a", quantifier={"properties": ["LOOPING"]}), node("b"), edges=[edge("a", "b", "NOT_BEFORE")]
    ),
    "json_first_event_is_text": graph(node("a"), startsWithFirstEvent="yes"),
    "json_first_event_of_group": graph(combined("ANY_OF", 2) | {"startsWithFirstEvent": True}),
    "json_last_event_after_longest": graph(
        node("a", quantifier={"properties": ["LOOPING", "LONGEST"]}), endsWithLastEvent=True
    ),
    "json_subsets_no_list": graph(node("a"), subsets={"u": ["a"]}),
    "json_subset_is_text": graph(node("a"), subsets=["u"]),
    "json_subset_without_stages": graph(node("a"), subsets=[{"name": "u", "stages": []}]),
    "json_subset_of_unknown_stage": graph(node("a"), subsets=[{"name": "u", "stages": ["b"]}]),
    "json_subset_named_as_stage": graph(node("a"), subsets=[{"name": "a", "stages": ["a"]}]),
    "json_subset_with_colon": graph(node("a"), subsets=[{"name": ":match", "stages": ["a"]}]),
    "json_inclusive_is_number": windowed({"type": "FIRST_AND_LAST", "time": time(), "inclusive": 1}),
    "json_one_window_inclusive": windowed(
        [
            {"type": "FIRST_AND_LAST", "time": time(), "inclusive": True},
            {"type": "PREVIOUS_AND_CURRENT", "time": time()},
        ]
    ),
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


def fails(_: pa.Table) -> Any:
    raise KeyError("color")


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
    "write_too_many_orders": lambda: (
        begin().next(Pattern.in_any_order(*[begin(f"e{n}").times(30) for n in range(8)])).to_json()
    ),
    "write_absence_without_window": lambda: begin().not_followed_by("b").to_json(),
}

# ---------------------------------------------------------------------------------------------------- the tests


def subclass_of_iterative_condition() -> object:
    class Cheaper(IterativeCondition):
        def __init__(self, limit: float) -> None:
            self.limit = limit

    return Cheaper


PATTERNS["iterative_condition_subclass"] = subclass_of_iterative_condition


TEXTS: dict[str, Provocation] = (
    PATTERNS
    | COMPILER
    | {name: reading(document) for name, document in DOCUMENTS.items()}
    | WRITING
    | {"iterative_condition_subclass": subclass_of_iterative_condition}
)


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
