"""What a user reads when measures, columns, state or a function of a pattern are wrong: the text of every error, as a whole.

See ``tests/patterns/test_pattern_texts.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism.columns.time import END_OF_TIME
from asterism.matching.binding import BoundPattern
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.matching.page import Page
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.conditions import ConditionContext, Event, IterativeCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import AfterMatchSkipStrategy
from tests.expressions.test_sql_texts import SCHEMA
from tests.kit import Golden, Provocation
from tests.patterns.test_pattern_texts import begin, fails


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


def divides(event: Event, context: ConditionContext) -> bool:
    return bool(1 / event.price > 1)


def asking(function: Callable[[Event, ConditionContext], Any], columns: Sequence[str] | None = None) -> Provocation:
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


TEXTS: dict[str, Provocation] = {
    "compiler_too_many_states": lambda: BoundPattern.of_pattern(begin().times(30_000), SCHEMA),
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
    "measure_named_as_key_in_spark": measuring("LAST(a.price) AS USER"),
    "measures_equal_in_spark": measuring("LAST(a.price) AS p", "LAST(b.price) AS P"),
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
    "state_between_two_releases": lambda: GroupHeader.from_bytes(
        patched(GroupHeader.new(b"x", 1, 1, 0).to_bytes(), 3), b"x"
    ),
    "state_not_ours": lambda: GroupHeader.from_bytes(b"something else", b"x"),
    "state_too_short": lambda: GroupHeader.from_bytes(b"abc", b"x"),
    "state_of_another_kind": lambda: Page.from_bytes(GroupHeader.new(b"x", 1, 1, 0).to_bytes(), SCHEMA, SCHEMA),
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
