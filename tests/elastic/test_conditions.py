"""Conditions and pipes over a table, and the test suite of Endgame's engine, where it is installed."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from importlib import resources
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pytest

from asterism import eql
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionError,
    ExpressionTypeError,
    UnknownFunctionError,
    UnsupportedSyntaxError,
)
from tests.elastic.kit import CASES, EVENTS
from tests.kit import FACTOR


@pytest.mark.parametrize("query", CASES)
def test_events_are_found(query: str) -> None:
    assert eql(query, EVENTS, time="n")["n"].to_pylist() == CASES[query]


def test_events_are_counted() -> None:
    assert eql("process where true | count", EVENTS, time="n").to_pylist() == [{"count": 2}]


def in_the_syntax_of_elasticsearch(query: str) -> str:
    """A query of Endgame's EQL, which has = for ==, texts in single quotes, and wildcards in comparisons."""
    query = re.sub(r"\?'([^']*)'", lambda found: '"""' + found[1] + '"""', query)
    query = re.sub(r"'([^']*)'", lambda found: json.dumps(found[1]), query)
    query = re.sub(r"(?<![=<>!:])=(?!=)", "==", query)
    query = re.sub(r"(maxspan|fork)==", r"\1=", query)
    query = re.sub(r'==\s*("[^"]*\*[^"]*")', r": \1", query)
    query = re.sub(r'!=\s*("[^"]*\*[^"]*")', r"not like~ \1", query)
    query = query.replace("events[1].serial_event_id == 92", "serial_event_id == 92")
    pipe = r"\| (unique|sort) ([a-z_0-9]+(?: [a-z_0-9]+)+)\s*$"
    return re.sub(pipe, lambda found: f"| {found[1]} {found[2].replace(' ', ', ')}", query, flags=re.MULTILINE)


HAS_ENDGAME = pytest.mark.skipif(
    find_spec("eql") is None, reason="the package eql (AGPL) is not installed: pip install eql"
)


@HAS_ENDGAME
def test_the_suite_of_endgame() -> None:
    """Queries of the dialect that is supported, every third one in the fast tests. Endgame compares texts regardless of case in
    the others.
    """
    folder = resources.files("eql") / "etc"
    records = json.loads((folder / "test_data.json").read_text())
    names = list(dict.fromkeys(name for record in records for name in record))

    def is_nested(value: Any) -> bool:
        return isinstance(value, dict) or (isinstance(value, list) and any(map(is_nested, value)))

    flat = [name for name in names if not any(is_nested(record.get(name)) for record in records)]
    begin = datetime(1601, 1, 1, tzinfo=UTC)
    rows = [
        {"@timestamp": begin + timedelta(microseconds=record["timestamp"] // 10)}
        | {name: record.get(name) for name in flat}
        for record in records
    ]
    events, good, refused = pa.Table.from_pylist(rows), 0, 0
    queries = tomllib.loads((folder / "test_queries.toml").read_text())["queries"]
    queries = [query for query in queries if not query.get("case_insensitive")]
    for query in queries[:: 3 if FACTOR == 1 else 1]:
        try:
            found = eql(in_the_syntax_of_elasticsearch(query["query"]), events, category="event_type")
        except (UnsupportedSyntaxError, UnknownFunctionError, ColumnNotFoundError, ExpressionTypeError):
            refused += 1
            continue
        except Exception as error:
            error.add_note(query["query"])
            raise
        assert found["serial_event_id"].to_pylist() == query["expected_event_ids"], query["query"]
        good += 1
    assert (good, refused) == ((47, 18) if FACTOR == 1 else (138, 56))


DIFFERENT = {
    # If a text is not found, the result is the empty text; an empty text is not sought, and the result is the whole text.
    'between("welcome to the planet", "welcome", "village")',
    'between("welcome to the planet", "goodbye", "planet")',
    'between("welcome to the planet", "welcome", "x", false)',
    'between("welcome to the planet", "welcome", "x", true)',
    'between("welcome to the planet", "", "x", true)',
    'between("welcome to the planet", "", "", false)',
    'between("welcome to the planet", "", "planet", false)',
    # Without a first index, the result is the whole text, as in Elasticsearch.
    'substring("hello world", null, 5)',
    # Not supported: other bases, fractions as texts, and functions as methods.
    'number("052403", 8)',
    'number("52403", 7)',
    "string(2.1828)",
    '(100 * 10) - ("hello":length())',
    'concat((100 * 10) - ("hello":length()) == 995, "...")',
}


@HAS_ENDGAME
@pytest.mark.parametrize("file", ["test_string_functions.toml", "test_folding.toml"])
def test_constant_expressions_of_endgame(file: str) -> None:
    """Except for those in which Endgame compares texts regardless of case."""
    one_event = pa.table({"@timestamp": [1]})
    suite = tomllib.loads((resources.files("eql") / "etc" / file).read_text())
    count = 0
    for section in suite.values():
        for case in section.get("fold", {}).get("tests", []) if not section.get("case_insensitive") else []:
            expression, expected = in_the_syntax_of_elasticsearch(case["expression"]), json.dumps(case.get("expected"))
            try:
                is_equal = eql(f"any where ({expression}) == {expected}", one_event).num_rows == 1
            except ExpressionError:
                is_equal = False
            assert is_equal == (expression not in DIFFERENT), expression
            count += 1
    assert count > 90
