"""Keys as strings: the string of a key depends on this key alone, and only equal keys have the same one."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.columns.groups import normalize_nan_and_zero
from asterism.columns.keys import key_strings, key_values

BYTES = (
    st.sampled_from([b"", b"a", b"b'a'", b'b"', b"b'\\xff'", b"\xff", b"\xffa", "é".encode(), b"-", b"1:a", b"\0"])
    | st.binary()
)
NANS = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1)]
DOUBLES = st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e22, math.inf, -math.inf, *NANS]) | st.floats()
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "binary": (pa.binary(), BYTES),
    "large binary": (pa.large_binary(), BYTES),
    "string": (pa.string(), st.sampled_from(["", "-", "1:a", "b'a'", "é", "e\u0301", "\0"]) | st.text()),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "boolean": (pa.bool_(), st.booleans()),
    "double": (pa.float64(), DOUBLES),
    "float": (pa.float32(), st.sampled_from([0.0, -0.0, math.nan]) | st.floats(width=32)),
    "decimal": (pa.decimal128(38, 18), st.decimals(-100, 100, places=18)),
    "date": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "timestamp": (pa.timestamp("us", "America/New_York"), st.integers(-(2**62), 2**62)),
    "timestamp_ntz": (pa.timestamp("us"), st.integers(-(2**62), 2**62)),
    "struct": (
        pa.struct([("a", pa.string()), ("b", pa.float64())]),
        st.fixed_dictionaries({"a": st.none() | st.sampled_from(["", "'", "'a'", "None"]), "b": DOUBLES}),
    ),
    "array": (pa.list_(pa.string()), st.lists(st.none() | st.sampled_from(["", "'", "a", "a', 'a", "None"]), max_size=3)),
}  # fmt: skip


def as_spark_groups(value: Any) -> Any:
    """The value as Spark's GROUP BY compares it."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, as_spark_groups(part)) for name, part in sorted(value.items()))
    return tuple(map(as_spark_groups, value)) if isinstance(value, list) else value


def column_of(values: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)], kind)


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_the_string_of_a_key_does_not_depend_on_others_and_is_that_of_equal_keys_only(
    name: str, data: st.DataObject
) -> None:
    kind, some = TYPES[name]
    values = data.draw(st.lists(st.none() | some, min_size=1, max_size=6))
    strings = key_strings([column_of(values, kind)], len(values)).to_pylist()
    alone = [key_strings([column_of([value], kind)], 1)[0].as_py() for value in values]
    assert strings == alone
    grouped: dict[Any, str] = {}
    for value, string in zip(values, strings, strict=True):
        assert grouped.setdefault(as_spark_groups(value), string) == string
    assert len(set(grouped.values())) == len(grouped)


@given(st.lists(st.tuples(st.none() | BYTES, st.none() | BYTES), max_size=6))
def test_keys_of_several_columns_are_different_strings(keys: list[tuple[bytes | None, bytes | None]]) -> None:
    columns = [column_of([key[at] for key in keys], pa.binary()) for at in (0, 1)]
    strings = key_strings(columns, len(keys)).to_pylist()
    assert len(set(strings)) == len(set(keys))
    assert len({tuple(key_values(string)) for string in strings}) == len(set(keys))


def test_bytes_that_are_utf_8_keep_the_string_of_0_1_0() -> None:
    values = column_of([b"ann", "é".encode(), b"\xff", b"b'x'", None], pa.binary())
    assert [key_values(string)[0] for string in key_strings([values], 5).to_pylist()] == [
        "ann", "é", "b'\\xff'", 'b"b\'x\'"', None,
    ]  # fmt: skip


@given(st.lists(st.none() | DOUBLES))
def test_zeros_and_nans_are_normalized_to_the_bit(values: list[float | None]) -> None:
    found = normalize_nan_and_zero(pa.array(values, pa.float64())).to_pylist()
    expected = [value if value is None else math.nan if math.isnan(value) else value + 0.0 for value in values]
    assert [one and struct.pack("d", one) for one in found] == [one and struct.pack("d", one) for one in expected]
    assert all(math.copysign(1, one) == 1 for one in found if one == 0)
