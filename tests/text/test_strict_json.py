"""JSON that is read strictly, and the places of its values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.text.strict_json import (
    MAX_BYTES,
    DocumentSyntaxError,
    decode,
    line_and_column,
    offset_of,
    pointer_part,
    text_of,
)


def refusal(source: str | bytes) -> tuple[str, int, int]:
    with pytest.raises(DocumentSyntaxError) as caught:
        decode(text_of(source))
    return caught.value.message, caught.value.line, caught.value.column


TWICE = "the name 'a' occurs twice in one object"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"a": 1, "b": 2,\n "a": 3}', (TWICE, 2, 7)),
        ('[{"a": 1}, {"a": [{"a": 1}], "b": {"a": 1, "a": 2}}]', (TWICE, 1, 49)),
        ('{"a": {"a": 1},\n"\\u0061": 1, "c": 2} 3', (TWICE, 2, 11)),
        ('{"x": "NaN", "y": [NaN, 1]}', ("NaN is not allowed in JSON", 1, 20)),
        ('["\\"", -Infinity]', ("-Infinity is not allowed in JSON", 1, 8)),
        ("[1, 999999999999999999999]", ("a number of 21 digits is too large", 1, 5)),
        ('{"' + "n" * 201 + '": 1}', ("a name of 201 characters is too long", 1, 207)),
        ('{"a": 1\n"b": 2}', ("invalid JSON", 2, 1)),
        ("{'a': 1}", ("invalid JSON", 1, 2)),
        ('{"a": 1} {', ("invalid JSON", 1, 10)),
        ("[" * 100_000, ("the JSON is nested too deeply", 1, 1)),
        ("", ("the JSON is empty", 1, 1)),
        (b" \n", ("the JSON is empty", 1, 1)),
        ("\ufeff[]", ("the JSON begins with a byte order mark", 1, 1)),
        (b"\xef\xbb\xbf[]", ("the JSON is encoded in UTF-8 with a byte order mark", 1, 1)),
        ("[]".encode("utf-16"), ("the JSON is encoded in UTF-16", 1, 1)),
        ("[]".encode("utf-32"), ("the JSON is encoded in UTF-32", 1, 1)),
        ('["ä",\n "'.encode() + b"\xe4", ("the JSON is not valid UTF-8", 2, 3)),
        ("1" + " " * MAX_BYTES, (f"the JSON is too large (limit {MAX_BYTES:,} bytes)", 1, 1)),
    ],
)
def test_what_is_refused_and_where(source: str | bytes, expected: tuple[str, int, int]) -> None:
    assert refusal(source) == expected


@pytest.mark.parametrize("text", ["-9223372036854775808", "1e400", "[{}, {}]", '{"a": {"a": {"a": 1}}}', ' "x" '])
def test_what_is_read(text: str) -> None:
    assert decode(text_of(text.encode())) == json.loads(text)


def test_lines_and_columns_count_characters() -> None:
    assert line_and_column('{"ä😀": 1}', 7) == (1, 8)


names = st.text(max_size=5) | st.sampled_from(["a", "a/b", "~", "~1", '"', "\\", "", "0"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=15,
)


def places(value: Any, path: str = "") -> list[tuple[str, Any]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value), *(place for name, part in parts for place in places(part, path + pointer_part(name)))]


@given(value=values, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_each_value_is_where_its_pointer_leads(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert decode(text) == value
    for path, part in places(value):
        assert json.JSONDecoder().raw_decode(text, offset_of(text, path))[0] == part


def test_a_pointer_to_nothing_leads_as_far_as_there_is_something() -> None:
    text = '{"nodes": [{"name": "a"}, {"name": "b"}], "edges": [1, 2, 3]}'
    assert [text[offset_of(text, pointer)] for pointer in ("/nodes/1/type", "/nodes/2", "/window/time", "")] == [
        *"{[{{",
    ]
    assert offset_of(text, "/nodes/1/type") == 26
