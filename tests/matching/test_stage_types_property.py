"""The type of an expression over the events of a stage is that of the same expression over two rows side by side."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import ExpressionError
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.translation import Translator
from asterism.expressions.types import BIGINT, BOOLEAN, DATE, DAYS, DOUBLE, INT, SMALLINT, TIME
from asterism.matching.condition_programs import StageTranslator
from tests.expressions.sql_expressions import Expressions
from tests.matching.test_stage_conditions_property import pairs, split

EXPRESSIONS = 20  # of one example


def over_a_stage(text: str, schema: pa.Schema, zone: str) -> pa.DataType | str:
    """Its type, or why it has none."""
    try:
        tree = Scope(schema, ("a", "z")).resolve(parse(text), text)
        return without_names(StageTranslator(schema, zone, text).translate(tree).type)
    except ExpressionError as error:
        return error.message


def over_a_row(text: str, schema: pa.Schema, zone: str) -> pa.DataType | str:
    try:
        return without_names(Translator(schema, zone, text).translate(Scope(schema).resolve(parse(text), text)).type)
    except ExpressionError as error:
        return error.message


def without_names(data_type: pa.DataType) -> pa.DataType:
    """``struct(x)`` names its field after the column, which has another name over a stage."""
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(str(n), without_names(field.type)) for n, field in enumerate(data_type)])
    if pa.types.is_list(data_type):
        return pa.list_(without_names(data_type.value_type))
    if pa.types.is_map(data_type):
        return pa.map_(without_names(data_type.key_type), without_names(data_type.item_type))
    return data_type


@given(st.integers(0, 2**32), st.sampled_from(["UTC", "Europe/Madrid"]))
def test_types_over_a_stage_are_those_over_its_event(seed: int, zone: str) -> None:
    """Both ways also refuse the same, for the same reason."""
    rng = random.Random(seed)
    _, events, beside = pairs(rng, zone, 1)
    expressions = Expressions(rng)
    for _ in range(EXPRESSIONS):
        text, row_text = split(rng, expressions.any(rng.choice([1, 2, 3])))
        types = over_a_stage(text, events.schema, zone), over_a_row(row_text, beside.schema, zone)
        refused = [reason for reason in types if isinstance(reason, str)]
        if any("times as large as" in reason or "too many elements" in reason for reason in refused):
            continue  # the size of an aggregate is counted anew
        if refused and "struct(" in text:
            continue  # the names of its fields are those of the columns, which differ
        assert types[0] == types[1], text


SCHEMA = pa.schema(
    [
        ("h", SMALLINT),
        ("i", INT),
        ("d", DOUBLE),
        ("m", pa.decimal128(10, 2)),
        ("day", DATE),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LAST(a.i) + h", INT),
        ("LAST(a.h) * LAST(a.h)", SMALLINT),
        ("SUM(a.h) + 1", BIGINT),
        ("AVG(a.i)", DOUBLE),
        ("SUM(a.m)", pa.decimal128(20, 2)),
        ("AVG(a.m)", pa.decimal128(14, 6)),
        ("COUNT(a.*)", BIGINT),
        ("MAX(a.m) + i", pa.decimal128(13, 2)),
        ("m * LAST(a.h)", pa.decimal128(16, 2)),
        ("day - LAST(a.day)", DAYS),
        ("day + (day - LAST(a.day))", DATE),
        ("at - LAST(a.day)", TIME),
        ("LAST(a.day) + INTERVAL 1 HOUR", pa.timestamp("us", "UTC")),
        ("coalesce(LAST(a.h), i, 2.5)", pa.decimal128(11, 1)),
        ("LAST(a.i) > d", BOOLEAN),
    ],
)
def test_types_over_a_stage(text: str, expected: pa.DataType) -> None:
    assert over_a_stage(text, SCHEMA, "UTC") == expected
