"""Random values of records: JSON objects of all kinds, and what is nearly one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

_TEXTS = st.one_of(
    st.sampled_from(["", "a", "null", "1", "2025-01-01", "}", "{", "\u00fc", "\x00", "\U0001f600", "a\nb", '"', "\\"]),
    st.text(max_size=5),
)  # fmt: skip
_TIMES = st.one_of(
    st.datetimes().map(lambda time: time.isoformat() + "Z"),
    st.datetimes().map(lambda time: time.isoformat(sep=" ")),
    st.sampled_from(
        ["2025-01-01T12:00:00+01:00", "2025-02-30T00:00:00Z", "2025-01-01T12:00Z", "2025-01-01T23:59:60Z", "now"]
    ),
)
_NUMBERS = st.one_of(
    st.integers(-5, 5), st.integers(-(2**70), 2**70), st.floats(width=32), st.sampled_from([1e300, -0.0, 2**31, -(2**63), 2**63])
)  # fmt: skip
_SCALARS: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS, _TIMES)
_ANY = st.recursive(
    _SCALARS, lambda each: st.lists(each, max_size=2) | st.dictionaries(_TEXTS, each, max_size=2), max_leaves=3
)
_GOOD = {
    "ts": st.datetimes().map(lambda time: time.isoformat() + "Z"),
    "user": _TEXTS,
    "n": st.integers(-(2**63), 2**63 - 1),
    "m": st.integers(-(2**31), 2**31 - 1),
    "x": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-10, 10),
    "b": st.booleans(),
}
_FIELDS = st.one_of(
    *(st.tuples(st.just(name), each | st.none()) for name, each in _GOOD.items()),
    st.tuples(st.sampled_from([*_GOOD, "USER", "other"]), _ANY),
)
_SPACES = st.sampled_from(["", "", "", " ", "\t", "\n"])


@st.composite
def _objects(draw: st.DrawFn) -> bytes:
    """With names in any order, perhaps twice."""
    space = draw(_SPACES)
    compact = draw(st.booleans())
    fields = [
        json.dumps(name) + ":" + space + json.dumps(value, ensure_ascii=compact)
        for name, value in draw(st.lists(_FIELDS, max_size=5))
    ]
    return ("{" + ",".join(fields) + space + "}").encode("utf-8", "surrogatepass")


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    value = bytearray(draw(_objects()))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(value)))
        value[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from(
                [
                    b"",
                    b"}",
                    b"{",
                    b",",
                    b'"',
                    b"'",
                    b" ",
                    b"\n",
                    b"\xff",
                    b"0",
                    b"-",
                    b".",
                    b"e",
                    b"/**/",
                    b"\\",
                    b"NaN",
                    b"{}",
                ]
            )
        )
    return bytes(value)


VALUES: st.SearchStrategy[bytes | None] = st.one_of(
    _objects(), _objects(), _damaged(), st.none(), st.sampled_from([b"", b" ", b"null", b"1", b"[]", b"hello"])
)
"""For the columns ts, user, n (BIGINT), m (INT), x (DOUBLE) and b."""
