"""Forms of rules: to a text and back, what they find, and what they do not show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.columns.schemas import schema_of
from asterism.console.forms import (
    NULL_OPERATORS,
    OPERATORS,
    SHAPES,
    TEXT_OPERATORS,
    TOTALS,
    UNITS,
    Comparison,
    Form,
    form_from,
    form_of,
    form_of_text,
    notes_of_text,
    sql_of,
    text_with_form,
    text_with_notes,
)
from asterism.console.samples import Samples, SampleSettings
from asterism.errors import PatternProcessorError
from asterism.patterns.semantics import Semantics
from asterism.rules.checking.validation import check_processor
from asterism.text.strict_json import nowhere
from asterism.text.strict_yaml import read_yaml
from tests.console.kit import Asker, application, graph

TEXTS = {"user": "text", "kind": "text", "order": "text", "a": "text", "odd `name`": "text", "x.y": "text"}
NUMBERS = {"price": "number", "L": "number", "sum": "number", "pattern": "number"}
KINDS = TEXTS | NUMBERS | {"good": "boolean", "day": "date", "at": "time"}
SCHEMA = ", ".join(
    f"`{name.replace('`', '``')}` "
    + {"text": "STRING", "number": "DOUBLE", "boolean": "BOOLEAN", "date": "DATE", "time": "TIMESTAMP"}[kind]
    for name, kind in ({"ts": "time"} | KINDS).items()
)
PLAIN = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=8).filter(str.isprintable)
VALUES = {
    "text": PLAIN | st.sampled_from(["it's", "a\\b", "${x}", "' AND", "-- x", "/* */", "DEFINE", "\\u0024{"]),
    "number": st.decimals(-1_000_000, 1_000_000, places=2).map(str) | st.integers(-9, 10**12).map(str),
    "boolean": st.sampled_from(["true", "false"]),
    "date": st.dates().map(str),
    "time": st.datetimes().map(lambda time: time.isoformat(" ", "seconds")),
}


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    column = draw(st.sampled_from(list(KINDS)))
    kind = KINDS[column]
    kinds = [OPERATORS, NULL_OPERATORS] + ([TEXT_OPERATORS] if kind == "text" else [])
    operator = draw(st.sampled_from([one for operators in kinds for one in operators]))
    return Comparison(column, operator) if operator in NULL_OPERATORS else Comparison(
        column, operator, kind, draw(VALUES[kind])
    )  # fmt: skip


@st.composite
def forms(draw: st.DrawFn) -> Form:
    shape = draw(st.sampled_from(list(SHAPES)))
    conditions = st.lists(comparisons(), max_size=3)
    total = draw(st.sampled_from(list(TOTALS)))
    fields: dict[str, Any] = {
        "shape": shape,
        "keys": draw(st.lists(st.sampled_from(list(TEXTS)), max_size=2, unique=True)),
        "time": "ts",
        "first": [_fields(one) for one in draw(conditions)],
        "second": [_fields(one) for one in draw(conditions)],
        "times": draw(st.integers(2, 100)),
        "total": total,
        "column": draw(st.sampled_from(list(NUMBERS if (shape, total) == ("total", "sum") else KINDS))),
        "limit": draw(VALUES["number"]),
        "within": [draw(st.integers(1, 9_999)), draw(st.sampled_from(UNITS))],
        "repeats": draw(st.integers(1, 100)),
    }
    if shape == "change" and draw(st.booleans()):
        fields["within"] = None
    return form_from(fields)


def _fields(comparison: Comparison) -> dict[str, str]:
    return {name: getattr(comparison, name) for name in ("column", "operator", "kind", "value")}


@settings(max_examples=100, deadline=None)
@given(forms())
def test_a_form_becomes_a_text_and_the_same_form_again(form: Form) -> None:
    text = text_with_form("id: mine  # ours\nversion: 3\nlabels: {owner: ann}\n", form)
    assert form_of_text(text) == form
    assert form_from(form.to_dict() | {"keys": list(form.keys), "first": [_fields(one) for one in form.first],
                                       "second": [_fields(one) for one in form.second]}) == form  # fmt: skip
    assert "# ours" in text
    other = sql_of(replace(form, keys=("other",)))
    assert form_of(other) == replace(form, keys=("other",))


@settings(max_examples=15, deadline=None)
@given(forms())
def test_each_text_is_a_valid_rule(form: Form) -> None:
    item = read_yaml(text_with_form("id: mine\nversion: 1\n", form))[0]
    if form.shape == "first" and form.column in form.keys:
        return
    checked = check_processor(item, nowhere, schema_of(SCHEMA), Semantics.DEFAULT)
    assert [problem.message for problem in checked.problems] == [], item["sql"]


EVENTS = """ts,user,kind,price,place
2026-01-31 12:00:00,ann,order,10,here
2026-01-31 12:00:10,ann,view,1,here
2026-01-31 12:00:20,ann,order,,there
2026-01-31 12:00:30,bob,order,70,here
2026-01-31 12:00:40,ann,refund,10,there
2026-01-31 12:10:00,bob,refund,70,here
2026-01-31 12:10:05,bob,order,20,
2026-01-31 12:10:10,bob,,500,here
2026-01-31 12:10:15,bob,order,81,there
2026-01-31 12:10:20,bob,order,5,here
2026-01-31 13:30:00,ann,view,1,here
"""
ORDER, REFUND = ([Comparison("kind", "=", "text", kind)] for kind in ("order", "refund"))
# By hand, as numbers of events from 1.
FOUND: dict[str, tuple[dict[str, Any], list[list[int]]]] = {
    "order and then refund": ({"shape": "sequence", "second": REFUND, "within": [5, "MINUTE"]}, [[1, 5]]),
    "two orders and then refund": ({"shape": "sequence", "repeats": 2, "second": REFUND, "within": [5, "MINUTE"]},
                                   [[1, 3, 5]]),
    "two orders": ({"shape": "count", "times": 2, "within": [1, "MINUTE"]}, [[1, 3], [7, 9]]),
    "three orders": ({"shape": "count", "times": 3, "within": [14, "SECOND"]}, []),
    "three orders, in exactly this time": ({"shape": "count", "times": 3, "within": [15, "SECOND"]}, [[7, 9, 10]]),
    "order without refund": ({"shape": "absence", "second": REFUND, "within": [9, "MINUTE"]}, [[4], [7], [9], [10]]),
    "orders of more than 100": ({"shape": "total", "total": "sum", "column": "price", "limit": "100",
                                 "within": [1, "MINUTE"]}, [[7, 9]]),
    "orders at two places": ({"shape": "total", "total": "distinct", "column": "place", "limit": "1",
                              "within": [1, "HOUR"]}, [[1, 3], [4, 7, 9]]),
    "faster than 10 seconds": ({"shape": "fast", "times": 2, "within": [10, "SECOND"]}, [[9, 10]]),
    "faster than 11 seconds": ({"shape": "fast", "times": 3, "within": [11, "SECOND"]}, [[7, 9, 10]]),
    "first place": ({"shape": "first", "column": "place"}, [[1], [3], [4], [7], [9]]),
    "another place": ({"shape": "change", "column": "place"}, [[1, 3], [9, 10]]),
    "another place soon": ({"shape": "change", "column": "place", "within": [10, "SECOND"]}, [[9, 10]]),
}  # fmt: skip
ANY = {
    "total": ({"shape": "total", "total": "sum", "column": "price", "limit": "99", "within": [1, "DAY"]},
              [[4, 6], [7, 8]]),
    "change": ({"shape": "change", "column": "place"}, [[2, 3], [5, 11], [8, 9], [9, 10]]),
    "first": ({"shape": "first", "column": "place"}, [[1], [3], [4], [7], [9]]),
}  # fmt: skip


def found(form: Form) -> list[list[int]]:
    samples = Samples(SampleSettings("ts TIMESTAMP, user STRING, kind STRING, price DOUBLE, place STRING", time="ts"))
    rule = read_yaml(text_with_form("id: mine\nversion: 1\n", form))[0]
    answer = samples.answer({"do": "sample", "rule": rule, "events": EVENTS, "key": None})
    assert answer.get("error") is None
    return sorted([number for _, number in match["events"]] for match in answer["matches"])


@pytest.mark.parametrize("name", FOUND)
def test_what_a_form_finds(name: str) -> None:
    fields, expected = FOUND[name]
    first = [_fields(one) for one in ORDER]
    second = [_fields(one) for one in fields.get("second", [])]
    assert found(form_from({"keys": ["user"], "time": "ts", "first": first, **fields, "second": second})) == expected


@pytest.mark.parametrize("name", ANY)
def test_what_a_form_without_conditions_finds(name: str) -> None:
    fields, expected = ANY[name]
    assert found(form_from({"keys": ["user"], "time": "ts", "first": [], **fields})) == expected


SEQUENCE = """PARTITION BY user ORDER BY ts PATTERN (A {- X*? -} B) WITHIN INTERVAL '10' MINUTE
DEFINE A AS kind = 'a', B AS kind = 'b'"""


@pytest.mark.parametrize("name", ["time", "date", "Timestamp", "day"])
def test_names_such_as_time_need_no_quotes(name: str) -> None:
    form = Form("count", ("user",), name, (Comparison(name, "IS NOT NULL"),), times=3, within=(1, "HOUR"))
    text = sql_of(form)
    assert f"ORDER BY `{name}`" in text
    assert form_of(text) == form_of(text.replace("`", "")) == form
    assert form_of(text.replace(f"`{name}` IS", "`current_date` IS").replace("`current_date`", "current_date")) is None


def test_a_clause_that_somebody_wrote_is_a_form() -> None:
    form = Form("sequence", ("user",), "ts", (Comparison("kind", "=", "text", "a"),),
                (Comparison("kind", "=", "text", "b"),), within=(10, "MINUTE"))  # fmt: skip
    assert form_of(SEQUENCE) == form
    assert form_of(SEQUENCE.replace("DEFINE", "define").replace("PARTITION BY", "partition  by")) == form


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("B AS", "B AS price > A.price AND"),
        ("B AS", "B AS price > 5 OR"),
        ("B AS", "B AS NOT"),
        ("PATTERN", "MEASURES LAST(B.price) AS price PATTERN"),
        ("PATTERN", "AFTER MATCH SKIP TO NEXT ROW PATTERN"),
        ("X*?", "X*"),
        ("X*? -}", "X*? -} C"),
        ("ORDER BY ts", "ORDER BY ts, price"),
        ("BY user", "BY lower(user)"),
        ("WITHIN INTERVAL '10' MINUTE", ""),
        ("'a'", "'a' -- ours"),
        ("'a'", "'a' /* ours */"),
        ("'a'", "concat('a')"),
        ("DEFINE", ""),
        ("'b'", "'b', C AS true"),
        ("'b'", "'b"),
        ("kind = 'b'", ""),
        ("kind = 'b'", ":kind"),
    ],
)
def test_a_clause_that_says_more(before: str, after: str) -> None:
    assert form_of(SEQUENCE) is not None
    assert form_of(SEQUENCE.replace(before, after)) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "sql: 5", "sql: ''", "sql: PATTERN (A)", "id: a", "sql: DEFINE", "a: \ud800"]
)
def test_texts_without_a_form(text: str) -> None:
    assert form_of_text(text) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": "other"}, "shape must be one of sequence, count, absence, total, fast, first, change"),
        ({"keys": ["a"] * 6}, "keys must be a list of at most 5 columns"),
        ({"keys": ["a\n"]}, "what is chosen for the key is not the name of a column"),
        ({"shape": "sequence", "second": [{"column": ""}]}, "no column is chosen for a condition of the second event"),
        ({"shape": "change", "column": ""}, "no column is chosen for the value"),
        ({"times": 1}, "times must be a whole number from 2 to 100"),
        ({"within": [0, "MINUTE"]}, "within must be a whole number from 1 to 9,999"),
        ({"within": [1, "WEEK"]}, "the unit of within must be one of SECOND, MINUTE, HOUR, DAY"),
        ({"within": None}, "within must be a number and a unit"),
        ({"first": [{"column": "price", "operator": "=", "kind": "number", "value": "1 OR true"}]},
         "the value of price in a condition must be a number, such as 12.5"),
        ({"first": [{"column": "day", "operator": "=", "kind": "date", "value": "2026-02-30"}]},
         "the value of day in a condition must be a date, such as 2026-01-31"),
        ({"first": [{"column": "at", "operator": "=", "kind": "time", "value": "2026-02-30 12:00"}]},
         "the value of at in a condition must be a time, such as 2026-01-31 12:00:00"),
        ({"first": [{"column": "a", "operator": "; --", "kind": "text", "value": ""}]},
         "the operator of a condition must be one of =, <>, <, <=, >, >=, contains, startswith, IS NULL, IS NOT NULL"),
        ({"first": [5]}, "first must be a list of objects"),
        ({"first": [{}] * 11}, "first must be a list of at most 10 conditions"),
    ],
)  # fmt: skip
def test_wrong_fields(change: dict[str, Any], message: str) -> None:
    good = {"shape": "count", "keys": [], "time": "ts", "first": [], "times": 2, "within": [1, "HOUR"]}
    assert form_from(good)
    with pytest.raises(PatternProcessorError) as caught:
        form_from(good | change)
    assert caught.value.message == message


def test_fast_needs_a_time() -> None:
    with pytest.raises(PatternProcessorError, match="the rule needs a column with the event time"):
        sql_of(Form("fast", within=(1, "SECOND")))


TITLES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=12).map(str.strip)


@given(TITLES, TITLES, st.sampled_from([
    "id: a  # ours\nsql: PATTERN (A)  # why\n", "id: a\nlabels: {owner: ann, title: Old}\n",
    'id: a\nlabels:\n  title: "Old"  # since May\n  owner: ann\n', '{"id": "a", "labels": {"title": "Old", "owner": "ann"}}',
    "id: a\nlabels:\n  description: |\n    one\n    two\n  title: >-\n    Old\n    title\nversion: 1\n",
]))  # fmt: skip
@settings(max_examples=100)
def test_a_title_and_a_description_are_written_and_read(title: str, description: str, text: str) -> None:
    before = read_yaml(text)[0]
    changed = text_with_notes(text, {"title": title, "description": description})
    assert notes_of_text(changed) == {"title": title, "description": description}
    after = read_yaml(changed)[0]
    others = {name: value for name, value in before.get("labels", {}).items() if name not in ("title", "description")}
    assert {name: v for name, v in after.get("labels", {}).items() if name in others} == others
    assert {name: v for name, v in after.items() if name != "labels"} == {
        n: v for n, v in before.items() if n != "labels"
    }
    assert text_with_notes(changed, {"title": title, "description": description}) == changed
    if "# since May" in text and title and "\\n" not in repr(title):
        assert "# since May" in text_with_notes(text, {"title": title})


@pytest.mark.parametrize(("notes", "message"), [
    ([], "notes must be an object"), ({"title": 5}, "title must be a text"),
    ({"description": "x" * 1001}, "at most 1,000 characters"),
    ({"title": "\ud800"}, "title has a character"),
])  # fmt: skip
def test_wrong_notes(notes: Any, message: str) -> None:
    with pytest.raises(PatternProcessorError, match=message):
        text_with_notes("id: a\n", notes)
    assert notes_of_text("id: a\nlabels: 5\n") == {"title": "", "description": ""}
    assert notes_of_text("- id: a\n") is notes_of_text("id: [") is None


def test_the_endpoint_writes_and_the_check_reads(tmp_path: Any) -> None:
    (tmp_path / "rules.yaml").write_text("[]")
    client = Asker(application(str(tmp_path / "rules.yaml")))
    form = {"shape": "count", "keys": ["user"], "time": "ts", "first": [], "times": 3, "within": [1, "HOUR"]}
    text = client.good("POST", "/api/form", {"text": "id: mine\nversion: 1\n", "form": form})["text"]
    checked = client.good("POST", "/api/check", {"text": text})
    assert checked["problems"] == []
    assert {name: checked["form"][name] for name in form} == form
    assert client.good("POST", "/api/check", {"text": text.replace("{2}", "{2,}")})["form"] is None
    replaced = client.good("POST", "/api/form", {"text": str(graph()), "form": form})["text"]
    assert set(read_yaml(replaced)[0]) == {"id", "version", "sql"}
    for body in (
        {"text": "[]", "form": form},
        {"text": text, "form": {}},
        {"text": "a: [", "form": form},
        {"text": "a: \ud800", "form": form},
    ):
        status, _ = client.ask("POST", "/api/form", body)
        assert status == 422
