"""The parts of conditions of joins that Spark computes: those that read one side."""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism.errors import UnsupportedSyntaxError
from asterism.joins.conditions import JoinConditions
from asterism.operators.multiple_input import Wire

ORDERS = Wire(pa.schema({"id": "int64", "x": "int64", "name": "string", "xs": pa.list_(pa.int64())}), ["id"], "x")
PAYMENTS = Wire(pa.schema({"id": "int64", "x": "int64", "name": "string"}), ["id"], "x")


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("x > p_x", [], []),
        ("f(x) > p_x", ["f(x)"], []),
        ("f(x) > g(p_x) + 1", ["f(x)"], ["g(p_x) + 1"]),
        ("f(x, p_x) > 1", [], []),
        ("f(g(x), g(p_x)) > 1", ["g(x)"], ["g(p_x)"]),
        ("x <> 0 AND p_x <> 0 AND f(1 / x) > 1 AND f(1 / p_x) > 1 AND name = 'a'", ["x <> 0 AND f(1 / x) > 1"],
         ["p_x <> 0 AND f(1 / p_x) > 1"]),
        ("x = 1 OR f(p_name) OR x = p_x OR f(name)", ["x = 1 OR f(name)"], ["f(p_name)"]),
        ("x = p_x AND (f(x) OR x = 2)", ["(f(x) OR x = 2)"], []),
        ("exists(xs, p_x -> f(p_x, x)) AND x = p_x", ["exists(xs, p_x -> f(p_x, x))"], []),
        ("f() > 1 AND x = p_x", ["f() > 1"], []),
        ("f(id) > P_X", ["f(id)"], []),
        ("f(`P_x`) > x", [], ["f(`P_x`)"]),
        ("f(s.p_x) > x", ["f(s.p_x) > x"], []),
    ],
)  # fmt: skip
def test_parts_of_each_side(text: str, left: list[str], right: list[str]) -> None:
    parts = JoinConditions({"right": text}, {"right": "p_"}).parts_for_spark({"left": ORDERS, "right": PAYMENTS})
    assert [[part.sql for part in parts.get(name, [])] for name in ("left", "right")] == [left, right]


def test_many_inputs() -> None:
    """A condition reads the inputs before its own, and no part of one of which the result may have no row."""
    wires, prefixes = {"a": ORDERS, "b": PAYMENTS, "c": PAYMENTS}, {"b": "b_", "c": "c_"}
    conditions = JoinConditions({"b": "f(b_x) > f(x)", "c": "f(c_x) > f(x) AND b_x > 1"}, prefixes, ["b"])
    parts = conditions.parts_for_spark(wires)
    assert {name: [part.sql for part in of_input] for name, of_input in parts.items()} == {
        "a": ["f(x)", "f(x)"],
        "b": ["f(b_x)"],
        "c": ["f(c_x)"],
    }
    with pytest.raises(UnsupportedSyntaxError, match="a result may have no row of it") as raised:
        JoinConditions({"c": "x = c_x AND f(b_x) > 1"}, prefixes, ["b"]).parts_for_spark(wires)
    assert raised.value.position == len("x = c_x AND ")
