"""JSON objects that Arrow parses, compared with Python's parser; what is not certain is left to Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.columns import json_objects as module
from asterism.columns.json_objects import INSTANT, json_objects
from tests.reference.json_values import VALUES

FIELDS = pa.schema(
    [("ts", INSTANT), ("user", pa.string()), ("n", pa.int64()), ("m", pa.int32()), ("x", pa.float64()), ("b", pa.bool_())]
)  # fmt: skip


def objects(values: Sequence[bytes | None]) -> list[dict[str, Any] | None]:
    parsed = json_objects(pa.array(values, pa.binary()), FIELDS)
    parsed.validate(full=True)
    return parsed.to_pylist()  # type: ignore[no-any-return]


def expected(value: bytes) -> dict[str, Any]:
    """What an object certainly contains."""
    pairs = json.loads(value.decode(), object_pairs_hook=lambda pairs: pairs)
    known = [(name, each) for name, each in pairs if name in FIELDS.names]
    assert len(dict(known)) == len(known), "a column has two values"
    row = dict.fromkeys(FIELDS.names) | dict(known)
    types = {"ts": str, "user": str, "n": int, "m": int, "x": int | float, "b": bool}
    for name, kind in types.items():
        assert row[name] is None or (isinstance(row[name], kind) and isinstance(row[name], bool) == (name == "b"))
    if row["ts"] is not None:
        row["ts"] = datetime.fromisoformat(row["ts"])
        assert row["ts"].tzinfo is not None
        row["ts"] = row["ts"].astimezone(UTC)
    if row["x"] is not None:
        row["x"] = float(row["x"])
        assert math.isfinite(row["x"])
        assert row["x"] != 0 or math.copysign(1, row["x"]) == 1
    return row


@given(st.lists(VALUES, max_size=80), st.sampled_from([1, 4, 32]), st.sampled_from([3, 64]))
def test_what_is_parsed_is_what_python_parses(values: list[bytes | None], small: int, attempts: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SMALL", small)
        patch.setattr(module, "_ATTEMPTS", attempts)
        parsed = objects(values)
    assert len(parsed) == len(values)
    for value, row in zip(values, parsed, strict=True):
        if row is not None:
            assert value is not None
            assert row == expected(value)


def test_usual_values_are_parsed_also_beside_others() -> None:
    usual = [
        b'{"ts":"2025-01-01T12:00:01.5Z","user":"ann","n":9007199254740993,"m":-1,"x":1.5,"b":true}',
        b'{"ts": "2025-06-01T12:00:01+02:00", "user": "J\\u00fcrgen \\"X\\"", "x": 1e3, "other": [1, "a"], "n": null}',
        b"{}",
    ]
    others = [
        None,
        b"",
        b"hello",
        b'{"user":"a"}{"user":"b"}',
        b'{"a":{"b":1}}',
        b'{"user":"\n"}',
        b'{"n":1} ',
    ]
    parsed = objects([*usual * 200, *others, *usual * 200])
    assert parsed[: 3 * 200] == parsed[3 * 200 + len(others) :] == [expected(value) for value in usual] * 200
    assert parsed[3 * 200 : 3 * 200 + len(others)] == [None] * len(others)
    parsed = objects([*usual * 200, b'{"n":"?"}', *usual * 200])  # only its neighbours are left to Spark with it
    assert 1 <= parsed.count(None) <= module._SMALL


@pytest.mark.parametrize(
    "value",
    [
        b'{"n":1.0}', b'{"n":"1"}', b'{"n":9223372036854775808}', b'{"m":2147483648}', b'{"n":01}', b'{"n":+1}', b'{"x":1e400}',
        b'{"x":-0.0}', b'{"x":-0}', b'{"x":"1"}', b'{"x":NaN}', b'{"x":1.}', b'{"b":"true"}', b'{"b":1}', b'{"user":1}',
        b'{"user":true}', b'{"user":["a"]}', b'{"user":"\\ud800"}', b'{"user":"a","user":"b"}', b"{'user':'a'}", b'{"user":"a",}',
        b'{"user":"a"/**/}', b'{"ts":1}', b'{"ts":"2025-02-30T12:00:00Z"}', b'{"ts":"2025-01-01T12:00:00"}',
        b'{"ts":"2025-01-01"}',
        b'{"ts":"2025-01-01T24:00:00Z"}', b'{"ts":"2025-01-01T12:00:00.1234567Z"}', b'{"user":"a}', b'["a"]', b'{"user":"}"}',
        b'{"other":' + b"1" * 1001 + b"}", b'{"other":' + b"[" * 1001 + b"]" * 1001 + b"}", b'{"' + b"a" * 50_001 + b'":1}',
    ],
)  # fmt: skip
def test_what_spark_may_understand_otherwise_is_left_to_it(value: bytes) -> None:
    assert objects([value]) == [None]


def test_large_values_of_one_batch() -> None:
    value = json.dumps({"user": "a" * 40_000}).encode()
    assert [row is not None and len(row["user"]) for row in objects([value] * 100)] == [40_000] * 100


def test_large_binary() -> None:
    values = pa.array([b'{"user":"ann"}', None], pa.large_binary())
    assert json_objects(values, pa.schema([("user", pa.string())])).to_pylist() == [{"user": "ann"}, None]
