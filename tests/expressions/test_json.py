"""JSON in texts: what is read, and that hostile texts take little time. test_sql_property.py compares with Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from asterism.errors import ExpressionError
from tests.expressions.test_lambdas import value
from tests.kit import bounded


def of(path: str, text: str) -> object:
    return value(f"get_json_object(s, '{path}')", pa.table({"s": [text]}))


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{"a": {"b": [1.50, "x"]}}', "$.a.b", '[1.5,"x"]'),
        ('{"a": {"b": [1.50, "x"]}}', "$.a.b[1]", "x"),
        ('{"a": null, "a": 2}', "$.a", "2"),  # the first field in which something is found
        ('[{"a": "x"}, {"b": 1}]', "$[*].a", '"x"'),  # a single result without brackets, as in Hive
        ('[{"a": "x"}, {"a": 1}]', "$[*].a", '["x",1]'),
        ("{'a': 'it\\'s \"x\"'}", "$.a", 'it\'s "x"'),
        ("{'a': 'b", "$.a", None),
        ('{"a": 1} and more', "$.a", "1"),
        ('{"a": 1', "$.a", None),
        ('{"a": NaN}', "$.a", None),
        ('{"a b": 1e10}', "$[''a b'']", "1.0E10"),
        ('{"a": "😀\\ud83d"}', "$", '{"a":"\\uD83D\\uDE00\\uD83D"}'),
        ('{"a": "\\ud83d"}', "$.a", None),
        ("[" * 201 + "]" * 201, "$", None),
    ],
)
def test_get_json_object(text: str, path: str, expected: str | None) -> None:
    assert of(path, text) == expected


@pytest.mark.parametrize("path", ["a", "$..a", "$.*", "$[-1]", "$.a[1:2]", "$[?(@.a)]", "$.a b "[:4] + "["])
def test_paths_that_are_refused(path: str) -> None:
    with pytest.raises(ExpressionError):
        of(path, "{}")


@pytest.mark.parametrize(
    "text", ["'" + '\\"' * 200_000, "[" * 400_000, "'[" * 200_000, '"' + "\\'" * 200_000, "9" * 400_000]
)
def test_hostile_texts_take_little_time(text: str) -> None:
    with bounded():
        assert of("$", text) is None
