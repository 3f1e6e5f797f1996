"""Detections of Sigma as SQL: each modifier, and random rules against the reference."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from asterism.errors import PatternProcessorError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from tests.reference.sigma import detects
from tests.sigma.kit import condition

SCHEMA = pa.schema(
    [("image", pa.string()), ("line", pa.string()), ("port", pa.int64()), ("ratio", pa.float64()), ("flag", pa.bool_())]
)
EVENTS: list[dict[str, Any]] = [
    {"image": r"C:\Windows\System32\CMD.exe", "line": "cmd -enc d2hvYW1p /c", "port": 443, "ratio": 0.5, "flag": True},
    {
        "image": r"c:\windows\system32\cmd.exe",
        "line": "cmd /enc 'x' 100% a_b",
        "port": 80,
        "ratio": -1.0,
        "flag": False,
    },
    {"image": "/usr/bin/nc", "line": "nc \u2013enc 10.1.17.5\n*?", "port": 8080, "ratio": None, "flag": None},
    {"image": "10.1.17.5", "line": "10.1.17.5", "port": None, "ratio": 3.0, "flag": True},
    {"image": "10.1.32.5", "line": "", "port": 5, "ratio": 5.0, "flag": False},
    {"image": "2001:db8::1", "line": "CMD", "port": 0, "ratio": 0.0, "flag": None},
    {"image": None, "line": None, "port": None, "ratio": None, "flag": None},
    {"image": "443", "line": r"a\*b\\c ${x} ü", "port": 443, "ratio": 443.0, "flag": True},
    {"image": "cmd", "line": "CmD", "port": 1, "ratio": 1.5, "flag": False},
]
TABLE = pa.Table.from_pylist(EVENTS, SCHEMA)


def rows(*detections: dict[str, Any], **options: Any) -> list[list[int]]:
    """The numbers of the events that satisfy each detection."""
    scope, vectorized = Scope(SCHEMA), Vectorized(SCHEMA)
    places = []
    for detection in detections:
        text = condition(detection, **options)
        vectorized.add(scope.resolve(parse(text), text), text)
        places.append(vectorized.sources.index(text))
    values = [column.to_pylist() for column in vectorized.evaluate(TABLE)]
    return [[number for number, value in enumerate(values[place]) if value] for place in places]


def selection(items: Any, condition: str = "s") -> dict[str, Any]:
    return {"s": items, "condition": condition}


MODIFIERS: list[Any] = [
    {"image|endswith": "\\cmd.exe"},
    {"image|startswith": "c:\\win"},
    {"image|contains": ["SYSTEM32", "bin"]},
    {"line|contains|all": ["cmd", "enc"]},
    {"line|contains|all|cased": ["CMD"]},
    {"line|cased": "CMD"},
    {"line": "cmd"},
    {"line": ["cmd", "nothing", "10.1.17.5"]},
    {"line": "cmd*"},
    {"line": "?md"},
    {"line": "*e?c*"},
    {"line": "*\\?"},
    {"line|contains": "\\\\\\*"},
    {"line|contains": "100%"},
    {"line|contains": "a_b"},
    {"line|contains": "'x'"},
    {"line|contains": "${x}"},
    {"line|contains": "Ü"},
    {"line": ""},
    {"line": "*"},
    {"line": None},
    {"line|exists": True},
    {"line|exists": False},
    {"line|re": "c.d"},
    {"line|re": "^cmd .*[0-9]{3}%"},
    {"line|re|i": "^cmd$"},
    {"line|re|s": "5.[*]"},
    {"line|re": "\\$\\{x"},
    {"line|windash|contains": " -enc "},
    {"line|windash|contains|all": [" -enc ", "cmd"]},
    {"line|base64offset|contains": "whoami"},
    {"line|base64|contains": "whoami"},
    {"line|wide|base64offset|contains": "whoami"},
    {"image|cidr": "10.1.16.0/20"},
    {"image|cidr": "10.0.0.0/8"},
    {"image|cidr": "10.1.17.5/32"},
    {"image|cidr": "0.0.0.0/0"},
    {"image|cidr": ["192.168.0.0/16", "2001:db8::/32"]},
    {"image|fieldref": "line"},
    {"image|fieldref": "port"},
    {"port": 443},
    {"port": [443, 80]},
    {"port": "443"},
    {"image": 443},
    {"port|gt": 80},
    {"port|gte": 80},
    {"port|lt": 80},
    {"port|lte": 80},
    {"ratio|gte": 0.5},
    {"ratio": 0.5},
    {"ratio": 443},
    {"port|neq": 443},
    {"image|neq": ["cmd", "443"]},
    {"flag": True},
    {"flag": "false"},
    {"image|endswith": ".exe", "port": 443},
    [{"image": "cmd"}, {"port": 80}],
    ["whoami", "nc *", "d2hv"],
    {"|all": ["cmd", "enc"]},
    "10.1.17",
]


def test_every_modifier_as_in_the_reference() -> None:
    detections = [selection(items) for items in MODIFIERS]
    expected = [[n for n, event in enumerate(EVENTS) if detects(one, event, ["line"])] for one in detections]
    assert rows(*detections, keyword_columns=["line"]) == expected


def test_some_answers() -> None:
    found = rows(
        selection({"image|endswith": "\\cmd.exe"}),
        selection({"line|windash|contains": " -enc "}),
        selection({"line|base64offset|contains": "whoami"}),
        selection({"image|cidr": "10.1.16.0/20"}),
        selection({"image|cidr": "2001:db8::/32"}),
        selection({"line|cased": "CMD"}),
        selection({"port|neq": 443}),
    )
    assert found == [[0, 1], [0, 1, 2], [0], [3], [5], [5], [1, 2, 3, 4, 5, 6, 8]]


CONDITIONS = [
    "s and not t", "not s", "s or t", "not (s and t) or u", "1 of them", "all of them", "1 of s* and not all of t*", "not not s",
    "not 1 of u* and (s or not (t and not u))", "any of them",
]  # fmt: skip


def test_random_rules_as_in_the_reference() -> None:
    """What a field that is not there means under ``not``, above all."""
    rng = random.Random(5)
    detections = []
    for _ in range(80):
        names = ["s", "t", "u"]
        detection: dict[str, Any] = {name: rng.choice(MODIFIERS) for name in names}
        detections.append(detection | {"condition": rng.choice(CONDITIONS)})
    expected = [[n for n, event in enumerate(EVENTS) if detects(one, event, ["line"])] for one in detections]
    assert rows(*detections, keyword_columns=["line"]) == expected
    assert any(expected)


def test_a_value_without_a_column_is_refused() -> None:
    with pytest.raises(PatternProcessorError, match="searches keywords"):
        condition(selection(["whoami"]))


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ({"image|endwith": "x"}, "Unknown modifier 'endwith'"),
        ({"image|re": "(a+"}, "Regular expression"),
        ({"line|re|m": "^a"}, "multi line"),
        ({"image|expand": "%hosts%"}, "the placeholder %hosts% has no values"),
        ({"image|cidr": "10.0.0.1/8"}, "Invalid CIDR"),
        ({"port|gt": "many"}, "incompatible"),
    ],
)
def test_what_cannot_be_expressed_is_refused(items: dict[str, Any], problem: str) -> None:
    with pytest.raises(PatternProcessorError, match=problem):
        condition(selection(items))


def test_a_dot_leads_into_a_struct() -> None:
    assert condition(selection({"a.b|contains": "x"})) == "CONTAINS(LOWER(CAST(`a`.`b` AS STRING)), 'x')"


def test_equalities_of_a_field_are_one_list() -> None:
    assert condition(selection({"port": [1, 2], "image": ["A", "b"]})) == (
        "(TRY_CAST(`port` AS DOUBLE) IN (1, 2) AND LOWER(CAST(`image` AS STRING)) IN ('a', 'b'))"
    )
