"""A join of many streams, by examples: when rows come out, what the state has, and what can change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from asterism.errors import LimitExceededError, StateError
from asterism.joins.multi_operator import MultiJoinOperator
from asterism.operators.multiple_input import Wire
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.state_definition import StateDefinition
from asterism.operators.state.state_store import tables_from_bytes
from asterism.testing import JoinHarness, OperatorHarness

MINUTE = timedelta(minutes=1)
INPUTS: Mapping[str, Any] = {
    "orders": {"key": "id", "time": "ts", "columns": "id BIGINT, ts TIMESTAMP, amount INT"},
    "payments": {"key": "order_id", "time": "at", "columns": "order_id BIGINT, at TIMESTAMP, paid INT"},
    "shipments": {"key": "order_id", "time": "sent", "columns": "order_id BIGINT, sent TIMESTAMP, place STRING"},
}
BETWEEN = {("orders", "payments"): (0 * MINUTE, 10 * MINUTE), ("payments", "shipments"): (-MINUTE, 30 * MINUTE)}
Given = tuple[int | None, str, Any]


def harness_of(**options: Any) -> JoinHarness:
    return JoinHarness.multi_join(INPUTS, **{"between": BETWEEN} | options)


def send(harness: JoinHarness, *, orders: Any = (), payments: Any = (), shipments: Any = ()) -> JoinHarness:
    for name, rows in (("orders", orders), ("payments", payments), ("shipments", shipments)):
        columns = [field.name for field in harness.wires[name].schema]
        harness.send(name, [dict(zip(columns, row, strict=True)) for row in rows])
    return harness


def found(harness: JoinHarness) -> list[tuple[Any, ...]]:
    return [(row["id"], row["paid"], row["place"]) for row in harness.results]


def kept(harness: OperatorHarness) -> dict[str, int]:
    counts = dict.fromkeys(harness.operator.inputs, 0)
    schemas: Any = harness.operator.row_schemas  # type: ignore[attr-defined] # of a join
    for store in harness.stores:
        for number, page in store.pages.items():
            if number < DEFINITION_PAGE:
                for name, table in zip(schemas, tables_from_bytes(page, list(schemas.values())), strict=True):
                    counts[name] += table.num_rows
    return counts


def test_a_result_comes_out_when_the_watermark_has_passed_its_last_row() -> None:
    harness = send(
        harness_of(), orders=[(1, "1m", 5)], payments=[(1, "2m", 5), (1, "12m", 5)], shipments=[(1, "3m", "x")]
    )
    assert found(harness.advance_watermark("2m")) == []
    assert found(harness.advance_watermark("3m")) == [(1, 5, "x")]
    send(harness, shipments=[(1, "20m", "y"), (2, "20m", "z")])
    assert found(harness.end()) == [(1, 5, "x"), (1, 5, "y")]
    assert [list(row) for row in harness.results[:1]] == [["id", "ts", "amount", "at", "paid", "sent", "place"]]


def test_rows_alone_come_out_when_no_row_can_come_that_joins_them() -> None:
    harness = harness_of(how={"payments": "left", "shipments": "left"})
    send(harness, orders=[(1, "1m", 5), (2, "1m", 5), (None, "1m", 5)], payments=[(1, "2m", 5)])
    assert found(harness.advance_watermark("1m")) == [(None, None, None)]  # which equals no key
    assert found(harness.advance_watermark("10m")) == [(None, None, None)]
    assert found(harness.advance_watermark("11m"))[1:] == [(2, None, None)]
    assert found(harness.advance_watermark("31m"))[2:] == []
    assert found(harness.advance_watermark("32m"))[2:] == [(1, 5, None)]
    assert harness.end().is_empty


def test_an_inner_join_after_a_left_join_needs_its_row() -> None:
    """As in SQL: an interval around the time of no row has no rows."""
    harness = harness_of(how={"payments": "left"})
    send(
        harness,
        orders=[(1, "1m", 5), (2, "1m", 5)],
        payments=[(1, "2m", 5)],
        shipments=[(1, "3m", "x"), (2, "3m", "y")],
    )
    assert found(harness.end()) == [(1, 5, "x")]


def test_a_condition_belongs_to_the_join_of_its_input() -> None:
    harness = harness_of(
        how={"payments": "left"},
        on={"payments": "paid >= amount", "shipments": "place <> 'lost'"},
        between={("orders", name): (0 * MINUTE, 10 * MINUTE) for name in ("payments", "shipments")},
    )
    payments = [(1, "2m", 4), (1, "3m", 5), (2, "2m", 4)]
    shipments = [(1, "3m", "x"), (2, "3m", "y"), (2, "4m", "lost")]
    send(harness, orders=[(1, "1m", 5), (2, "1m", 5)], payments=payments, shipments=shipments)
    assert sorted(found(harness.end())) == [(1, 5, "x"), (2, None, "y")]


def test_the_state_has_each_row_once_until_no_row_to_come_can_join_it() -> None:
    harness = harness_of()
    send(harness, orders=[(1, "1m", 5)], payments=[(1, f"{minute}m", 5) for minute in range(1, 9)])
    harness.advance_watermark("8m")
    assert kept(harness) == {"orders": 1, "payments": 8, "shipments": 0}
    # Shipments until minute 38 can join.
    assert kept(harness.advance_watermark("38m")) == {"orders": 1, "payments": 8, "shipments": 0}
    send(harness, orders=[(1, "42m", 5)]).advance_watermark("42m")
    assert kept(harness) == {"orders": 1, "payments": 0, "shipments": 0}


def test_a_row_whose_partner_has_not_come_is_dropped() -> None:
    """An order without a payment is not kept until its shipment could come."""
    harness = send(harness_of(), orders=[(1, "1m", 5), (1, "5m", 5)], payments=[(1, "30m", 5)])
    harness.advance_watermark("12m")
    send(harness, orders=[(1, "13m", 5)]).advance_watermark("13m")
    assert kept(harness) == {"orders": 2, "payments": 0, "shipments": 0}  # those of minutes 5 and 13


def test_each_input_has_late_rows() -> None:
    harness = send(harness_of(), orders=[(1, "5m", 5)]).advance_watermark("10m")
    send(harness, orders=[(2, "10m", 5)], shipments=[(1, "9m", "x"), (1, "11m", "y")])
    assert [row["id"] for row in harness.late("orders")] == [2]
    assert [row["place"] for row in harness.late("shipments")] == ["x"]
    assert harness.late("payments") == []


def test_a_key_with_too_many_rows_is_refused() -> None:
    harness = harness_of(max_rows=3)
    with pytest.raises(LimitExceededError) as caught:
        send(harness, orders=[(7, "1m", 5)], payments=[(7, f"{n}m", 5) for n in range(1, 5)]).advance_watermark("5m")
    assert str(caught.value) == (
        "[LIMIT_EXCEEDED] a join keeps more than 3 rows of a key (max_rows)\n"
        "  Rows: orders 1, payments 4, shipments 0\n"
        "  The key: id 7\n"
        "  Hint: shorter intervals, a key with more columns, or a larger max_rows"
    )


def test_sixteen_inputs() -> None:
    names = [f"s{number}" for number in range(16)]
    side = {"key": "k", "time": "t", "columns": "k INT, t TIMESTAMP"}
    harness = JoinHarness.multi_join(
        dict.fromkeys(names, side),
        dict.fromkeys(pairwise(names), (0 * MINUTE, MINUTE)),
        how=dict.fromkeys(names[8:], "left"),
        prefix={name: name for name in names},
    )
    for number, name in enumerate(names[:12]):
        harness.send(name, [{"k": k, "t": f"{number}m"} for k in (1, 2)])
    assert [row["s15t"] for row in harness.advance_watermark("12m").results] == [None, None]


# ---------------------------------------------------------------------- changes


SCHEMA = pa.schema({"id": pa.int64(), "ts": pa.int64(), "value": pa.int64()})


def operator(**options: Any) -> MultiJoinOperator:
    wire = Wire(options.pop("schema", SCHEMA), ["id"], "ts")
    wires = {"a": Wire(SCHEMA, ["id"], "ts"), "b": wire}
    given = {"between": {("a", "b"): (0 * MINUTE, MINUTE)}, "prefix": {"b": "b_"}}
    return MultiJoinOperator(wires, **given | options)


def continued(before: OperatorHarness, after: MultiJoinOperator) -> OperatorHarness:
    snapshot = before.snapshot()
    snapshot.outputs.clear()
    snapshot.outputs.update({name: [] for name in after.output_schemas})
    return OperatorHarness(after, keys=["id"]).restore(snapshot)


def rows(*values: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], SCHEMA)


def test_conditions_and_columns_can_change_and_intervals_cannot() -> None:
    before = OperatorHarness(operator(), keys=["id"]).feed(rows((1, 0, 5)), "a")
    before.feed_watermark(1_000_000, "a").feed_watermark(1_000_000, "b")
    wide = SCHEMA.append(pa.field("more", pa.string()))
    after = continued(before, operator(schema=wide, on={"b": "b_more = 'x'"}))
    table = rows((1, 5000, 6), (1, 6000, 7)).append_column("more", pa.array(["x", "y"]))
    assert [row["b_value"] for row in after.feed(table, "b").end().rows("results")] == [6]
    with pytest.raises(StateError, match="the checkpoint cannot be continued: what is joined changed"):
        continued(before, operator(between={("a", "b"): (0 * MINUTE, 2 * MINUTE)})).feed(rows((1, 5000, 6)), "b")
    assert StateDefinition.from_bytes(operator().definition.to_bytes()).tables.keys() == {"a", "b"}
