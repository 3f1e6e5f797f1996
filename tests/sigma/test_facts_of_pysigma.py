"""What pySigma's own tests and those of its backends take for granted, seen on events: which values a modifier means, how
conditions bind, to which rules a filter belongs, and which correlations are valid.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism.errors import PatternProcessorError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.sigma.collection import RefusedRule, TranslatedRule
from tests.sigma.kit import condition, outcomes, rule, translation
from tests.sigma.test_correlations import correlation

SCHEMA = pa.schema(
    [("a", pa.string()), ("b", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("log", pa.string())]
)
Fact = tuple[Any, list[Any], list[Any]]
"""Items of a selection, values that satisfy it, and values that do not."""


def events_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"a": value}


def check(text: str, satisfying: list[Any], others: list[Any]) -> None:
    table = pa.Table.from_pylist([events_of(value) for value in satisfying + others], SCHEMA)
    scope, vectorized = Scope(SCHEMA), Vectorized(SCHEMA)
    vectorized.add(scope.resolve(parse(text), text), text)
    (values,) = vectorized.evaluate(table)
    assert [bool(value) for value in values.to_pylist()] == [True] * len(satisfying) + [False] * len(others)


WILDCARDS: list[Fact] = [
    ({"a|contains": "foo"}, ["foo", "a foo b", "FOO"], ["fo", None]),
    ({"a|contains": "*foo*"}, ["foo", "a foo b"], ["fo o"]),
    ({"a|contains": "fo*ar"}, ["xfobarx", "foar"], ["arfo"]),
    ({"a|contains": "foo\\\\"}, ["a\\foo\\b"], ["a\\foob"]),
    ({"a|startswith": "foo*"}, ["foo", "foobar"], ["afoo"]),
    ({"a|startswith": "foo\\\\"}, ["foo\\bar"], ["foobar"]),
    ({"a|endswith": "*foo"}, ["foo", "barfoo"], ["foob"]),
    ({"a": "wild*c?t"}, ["wildcat", "wild and cut"], ["wildct", "a wildcat"]),
    ({"a": "e\\*\\?\\\\*?"}, ["e*?\\x", "e*?\\yyy"], ["e*?\\", "exy\\x"]),
    ({"a": "e\\n"}, ["e\\n"], ["e\n", "en"]),
    ({"a": "end\\"}, ["end\\"], ["end"]),
    ({"a": "(Plain)/[\\*]"}, ["(plain)/[*]"], ["(plain)/[x]"]),
    ({"a": ["x", "*y*", 5]}, ["X", "ayb", "5"], ["xx", "55"]),
    ({"a|cased": "Foo?"}, ["Foob"], ["foob", "FOOB", "Foo"]),
    ({"a|contains|cased": "Foo"}, ["aFoo"], ["afoo"]),
]
ENCODINGS: list[Fact] = [
    ({"a|base64": "foobar"}, ["Zm9vYmFy"], ["xZm9vYmFy"]),
    ({"a|base64|contains": "foobar"}, ["xZm9vYmFy="], ["Zvb2Jhc"]),
    ({"a|base64offset|contains": "foobar"}, ["xZm9vYmFyx", "xZvb2Jhcx", "xmb29iYXx"], ["foobar"]),
    ({"a|wide|base64offset|contains": "foobar"}, ["ZgBvAG8AYgBhAHIA"], ["Zm9vYmFy"]),
    ({"a|utf16le|base64offset|contains": "foobar"}, ["ZgBvAG8AYgBhAHIA"], ["AGYAbwBvAGIAYQBy"]),
    ({"a|utf16be|base64offset|contains": "foobar"}, ["AGYAbwBvAGIAYQBy"], ["Zm9vYmFy"]),
    ({"a|utf16|base64offset|contains": "foobar"}, ["//5mAG8AbwBiAGEAcgA"], ["Zm9vYmFy"]),
    ({"a|windash": "-p-1 -q"}, ["-p-1 -q", "/p-1 \u2013q", "\u2014p-1 \u2015q"], ["/p/1 /q", "p-1 q"]),
    ({"a|windash|contains": " -f"}, ["x /f", "x \u2015f"], ["x f"]),
]
EXPRESSIONS: list[Fact] = [
    ({"a|re": "foo?bar"}, ["fobar", "xfoobarx"], ["FOOBAR"]),
    ({"a|re": "foo\\\\bar"}, ["foo\\bar"], ["foobar"]),
    ({"a|re|i": "^foo"}, ["FOOL"], ["afoo"]),
    ({"a|re|s": "o.b"}, ["fo\nba"], []),
    ({"a|re": "o.b"}, ["fo-ba"], ["fo\nba"]),
    ({"a|re": ["^x", "y$"]}, ["xa", "ay"], ["ya"]),
    ({"a|re|all": ["^x", "y$"]}, ["xy"], ["x", "y"]),
    ({"a|fieldref": "b"}, [{"a": "Foo", "b": "foo"}], [{"a": "foo", "b": "fo"}, {"a": "x"}, {"b": "x"}]),
    ({"a|fieldref|startswith": "b"}, [{"a": "foobar", "b": "foo"}], [{"a": "foo", "b": "foobar"}]),
    ({"a|fieldref|endswith": "b"}, [{"a": "foobar", "b": "bar"}], [{"a": "bar", "b": "foobar"}]),
    ({"a|fieldref|contains": "b"}, [{"a": "foobar", "b": "oba"}], [{"a": "oba", "b": "foobar"}]),
    ({"a|fieldref|neq": "b"}, [{"a": "x", "b": "y"}, {"a": "x"}], [{"a": "x", "b": "x"}]),
]
OTHERS: list[Fact] = [
    ({"n|lt": 5}, [{"n": 4}], [{"n": 5}, {}]),
    ({"n|gte": 5.5}, [{"n": 6}], [{"n": 5}]),
    ({"n|neq": 5}, [{"n": 4}, {}], [{"n": 5}]),
    ({"a|neq": ["x", "y*"]}, ["z", None], ["X", "yy"]),
    ({"a": []}, [None], ["", "x"]),
    ({"a": None}, [None], [""]),
    ({"a": ""}, [""], [None, " "]),
    ({"a|exists": True}, ["", "x"], [None]),
    ({"a|exists": False}, [None], [""]),
    ({"a": [None, ""]}, [None, ""], ["x"]),
    ({"a|cidr": "10.0.0.0/7"}, ["10.1.2.3", "11.255.0.0"], ["12.0.0.0", "x"]),
    ({"a|cidr": "192.168.1.1/32"}, ["192.168.1.1"], ["192.168.1.11"]),
    ({"a|cidr": ["::1/128", "1234:5678:0:ab00::/56"]}, ["::1", "1234:5678:0:ab12::5"], ["1234:5678:0:ac12::5"]),
    ({"at|minute": 30}, [{"at": datetime(2026, 2, 3, 4, 30, tzinfo=UTC)}], [{"at": datetime(2026, 2, 3, 4, tzinfo=UTC)}]),
    ({"at|hour": 4}, [{"at": datetime(2026, 2, 3, 4, 30, tzinfo=UTC)}], [{"at": datetime(2026, 2, 3, 5, tzinfo=UTC)}]),
    ({"at|day": 3}, [{"at": datetime(2026, 2, 3, tzinfo=UTC)}], [{"at": datetime(2026, 2, 4, tzinfo=UTC)}]),
    ({"at|week": 6}, [{"at": datetime(2026, 2, 3, tzinfo=UTC)}], [{"at": datetime(2026, 2, 13, tzinfo=UTC)}]),
    ({"at|month": 2}, [{"at": datetime(2026, 2, 3, tzinfo=UTC)}], [{"at": datetime(2026, 3, 3, tzinfo=UTC)}]),
    ({"at|year": 2026}, [{"at": datetime(2026, 2, 3, tzinfo=UTC)}], [{"at": datetime(2025, 2, 3, tzinfo=UTC)}]),
    ({"a|hour": 4}, ["2026-02-03T04:30:00Z"], ["2026-02-03T05:00:00Z", "x"]),
    ([{"a": "x"}, {"n": 1}], ["x", {"n": 1}], [{"a": "y", "n": 2}]),
    ({"a|all": ["x*", "*y"]}, ["xy"], ["x", "y"]),
]  # fmt: skip


@pytest.mark.parametrize(
    "facts", [WILDCARDS, ENCODINGS, EXPRESSIONS, OTHERS], ids=["texts", "encodings", "expressions", "others"]
)
def test_what_a_value_with_modifiers_means(facts: list[Fact]) -> None:
    for items, satisfying, others in facts:
        check(condition({"s": items, "condition": "s"}), satisfying, others)


PARTS: dict[str, Any] = {"one": {"a": "1*"}, "two": {"a": "*2*"}, "three": {"a": "*3"}, "_four": {"a": "*4*"}}


@pytest.mark.parametrize(
    ("text", "satisfying", "others"),
    [
        ("one and not two or not three and _four", ["1", "13", "40", "14"], ["123", "3", "2"]),
        ("(one or not two) and not (three or _four)", ["1", "12", "x"], ["2", "13", "4"]),
        ("1 of them", ["1", "02", "3"], ["4", "0"]),
        ("any of t*", ["02", "3"], ["1", "4"]),
        ("all of t*", ["23"], ["2", "3"]),
        ("all of them", ["123"], ["12", "1234"]),
        ("1 of one", ["1"], ["2"]),
        ("not not one", ["1"], ["2"]),
        (["one and two", "three"], ["12", "3"], ["1", "2"]),
    ],
)
def test_how_a_condition_binds(text: Any, satisfying: list[str], others: list[str]) -> None:
    check(condition(PARTS | {"condition": text}), satisfying, others)


def test_a_selector_without_a_wildcard_is_one_selection() -> None:
    parts = {"selection": {"a": "x"}, "selection_more": {"a": "y"}, "condition": "1 of selection"}
    check(condition(parts), ["x"], ["y"])


def test_keywords() -> None:
    for items, satisfying, others in (
        (["one", 123], ["a one b", "01234"], ["on"]),
        ([["one", "two"]], ["a one", "two"], ["three"]),
        ({"|all": ["one", "two"]}, ["two one"], ["one"]),
        ({"|re": "o.e"}, ["a ONE one"], ["onx"]),
        ({"|contains": "one"}, ["xonex"], ["on"]),
    ):
        text = condition({"s": items, "condition": "s"}, keyword_columns=["log"])
        check(text, [{"log": value} for value in satisfying], [{"log": value} for value in others])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"a|base64": "foo*bar"}, "wildcards"),
    ({"a|base64offset": "foo*bar"}, "wildcards"),
    ({"a|re|base64offset": "foo.*"}, "incompatible"),
    ({"a|wide": "foobär"}, "ascii"),
    ({"a|utf16be": "foobär"}, "UTF-16BE"),
    ({"a|base64|re": "foo"}, "unmodified"),
    ({"a|base64|cidr": "10.0.0.0/8"}, "unmodified"),
    ({"a|cidr": "1/132"}, "Invalid CIDR"),
    ({"a|base64|exists": True}, "incompatible"),
    ({"a|exists": "yes"}, "incompatible"),
    ({"|exists": True}, "must be applied to field"),
    ({"a|fieldref": "b*"}, "must not contain wildcards"),
    ({"a|lt": "5"}, "incompatible"),
    ({"a": float("nan")}, "Invalid number"),
    ({"a|re": "(test.*"}, "Regular expression"),
]


def test_values_that_do_not_fit_their_modifiers_are_refused() -> None:
    for items, problem in REFUSED:
        with pytest.raises(PatternProcessorError, match=problem):
            condition({"s": items, "condition": "s"})


@pytest.mark.parametrize("text", ["one and", "one and (two OR three)", "nobody", "one | count() by a > 5", "5 of them"])
def test_conditions_that_are_invalid(text: str) -> None:
    with pytest.raises(PatternProcessorError):
        condition(PARTS | {"condition": text})


def test_placeholders_have_the_values_of_a_pipeline(tmp_path: Path) -> None:
    pipeline = tmp_path / "values.yml"
    pipeline.write_text("vars: {var: [A, B*]}\ntransformations: [{type: value_placeholders}]\n")
    check(condition({"s": {"a|expand": "x%var%y"}, "condition": "s"}, pipeline=[pipeline]), ["xay", "xbccy"], ["xy"])
    # In a regular expression, the values are plain texts.
    check(condition({"s": {"a|re|expand": "^x%var%y"}, "condition": "s"}, pipeline=[pipeline]), ["xAyz"], ["xcy"])


# ---------------------------------------------------------------------- filters

WINDOWS = {"category": "process_creation", "product": "windows"}
RULE_ID = "6f3e2987-db24-4c78-a860-b4f4095a7095"


def filter_of(rules: Any = "any", logsource: dict[str, str] = WINDOWS, **parts: Any) -> dict[str, Any]:
    parts = parts or {"selection": {"b|startswith": "adm_"}, "condition": "not selection"}
    return {"title": "Filter", "logsource": logsource, "filter": {"rules": rules} | parts}


def filtered(*filters: dict[str, Any], logsource: dict[str, str] = WINDOWS) -> str:
    detection = {"selection": {"a": "x"}, "condition": "selection"}
    base = {"title": "Base", "id": RULE_ID, "name": "base", "logsource": logsource, "detection": detection}
    pattern = translation(base, *filters).pattern
    assert pattern is not None
    text: str = pattern.stages[0].condition.text  # type: ignore[union-attr]
    return text


KEPT, DROPPED = {"a": "x", "b": "bob"}, {"a": "x", "b": "adm_ann"}
NAMES_OF_USERS = {"selection_a": {"b|startswith": "adm_"}, "selection_b": {"b|startswith": "srv_"}}


@pytest.mark.parametrize(
    "sigma_filter",
    [
        filter_of(),
        filter_of([]),
        filter_of(RULE_ID),
        filter_of([RULE_ID, "df0841c0-9846-4e9f-ad8a-7df91571771b"]),
        filter_of(["base"]),
        filter_of(logsource={"product": "windows"}),
        filter_of(filter={"b|startswith": "adm_"}, condition="not ((filter))"),
        filter_of(**NAMES_OF_USERS, condition="not 1 of selection_*"),
        filter_of(x_allow={"b|startswith": "adm_"}, condition="not 1 of *_allow"),
        filter_of(**NAMES_OF_USERS, condition="not 1 of them"),
    ],
)
def test_a_filter_that_belongs_to_a_rule(sigma_filter: dict[str, Any]) -> None:
    check(filtered(sigma_filter), [KEPT], [DROPPED])


@pytest.mark.parametrize(
    "sigma_filter",
    [
        filter_of(["00000000-0000-0000-0000-000000000000"]),
        filter_of(logsource=WINDOWS | {"service": "security"}),
        filter_of(logsource={"product": "linux"}),
        filter_of(**NAMES_OF_USERS, condition="not all of selection_*"),
    ],
)
def test_a_filter_that_leaves_a_rule_as_it_is(sigma_filter: dict[str, Any]) -> None:
    check(filtered(sigma_filter), [KEPT, DROPPED], [])


def test_several_filters_are_applied_one_after_the_other() -> None:
    other = filter_of(selection={"b": "bob"}, condition="not selection")
    check(filtered(filter_of(), other, filter_of()), [{"a": "x", "b": "eve"}], [KEPT, DROPPED])


@pytest.mark.parametrize(
    "change",
    [
        {"rules": None},
        {"condition": None},
        {"condition": ["selection", "not selection"]},
        {"rules": 5},
        {"selection": None},
    ],
)
def test_a_filter_that_is_invalid_is_refused_and_the_rules_go_on(change: dict[str, Any]) -> None:
    section = {name: value for name, value in (filter_of()["filter"] | change).items() if value is not None}
    good, refused = outcomes(rule("good", s={"a": 1}, condition="s"), filter_of() | {"filter": section})
    assert isinstance(good, TranslatedRule)
    assert isinstance(refused, RefusedRule)


# ---------------------------------------------------------------------- correlations

RULES = [rule(name, s={"kind": name}, condition="s") for name in ("rule_a", "rule_b", "rule_c", "rule_d")]


@pytest.mark.parametrize(
    "document",
    [
        correlation("event_count", "rule_a", {"gte": 10}, **{"group-by": "user"}),
        correlation("event_count", ["rule_a", "rule_b"], {"neq": 10}),
        correlation("temporal", ["rule_a", "rule_b"]),
        correlation("temporal", ["rule_a", "rule_b"], {"gte": 1}),
        correlation("temporal", None, "rule_a"),
        correlation("temporal", None, "not not rule_a"),
        correlation("temporal", None, "not rule_a and not rule_b"),
        correlation("temporal", None, "rule_a or rule_b and rule_c"),
        correlation("temporal", ["rule_a", "rule_b"], "rule_a and not rule_b"),
        correlation("temporal", None, "(rule_a or rule_b) and not (rule_c or rule_d)"),
        correlation("temporal", None, "((rule_a and rule_b) or (rule_c and rule_d)) and not (rule_a or rule_b)"),
        correlation("temporal_ordered", None, "rule_a and rule_b and rule_c"),
        correlation("temporal", ["rule_a", "rule_b"], aliases={"who": {"rule_a": "user", "rule_b": "target"}}),
        correlation("value_percentile", ["rule_a"], {"gte": 500, "field": "x", "percentile": 95}),
        *(
            correlation(f"value_{kind}", ["rule_a"], {"gte": 5, "field": "x"})
            for kind in ("sum", "avg", "median", "count")
        ),
    ],
)
def test_correlations_that_are_valid(document: dict[str, Any]) -> None:
    section = {name: value for name, value in document["correlation"].items() if value is not None}
    *_, outcome = outcomes(*RULES, document | {"correlation": section})
    assert isinstance(outcome, TranslatedRule)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (correlation("test", ["rule_a"], {"gte": 1}), "no valid Sigma correlation type"),
        (correlation("event_count", {"rule_a": "x"}, {"gte": 1}), "Rule reference"),
        (correlation("event_count", ["rule_a"], {"gte": 1}, **{"group-by": {"x": "y"}}), "group-by"),
        (correlation("event_count", ["rule_a"], {"gte": 1}, timespan="10"), "Timespan '10' is invalid"),
        (correlation("event_count", ["rule_a"], "rule_a"), "Extended conditions"),
        (correlation("event_count", ["rule_a"]), "without condition"),
        (correlation("value_count", ["rule_a"], {"gte": 1}), "without field"),
        (correlation("value_percentile", ["rule_a"], {"gte": 1, "field": "x"}), "needs a percentile"),
        (correlation("event_count", ["rule_a"], {"gte": "many"}), "must be a number"),
        (correlation("event_count", ["rule_a"], {"gte": 1, "other": 2}), "invalid items"),
        (correlation("event_count", ["rule_a"], {"gte": 1}, generate="yes"), "must be a boolean"),
        (correlation("event_count", ["rule_a"], {"gte": 1}, aliases="x"), "aliases definition"),
        (correlation("temporal", ["rule_a", "rule_b", "rule_c"], "rule_a and rule_b"), "not referenced"),
        (correlation("temporal", ["rule_a"], "rule_a and nobody"), "not defined in rules list: nobody"),
        (correlation("temporal", ["rule_a", "rule_b"], "rule_a and and rule_b"), "Failed to parse"),
        (correlation("event_count", ["nobody"], {"gte": 1}), "there is no rule 'nobody'"),
        # pySigma reads these; what they mean on events is not specified.
        (correlation("temporal_ordered", ["rule_a", "rule_b", "rule_c"], {"gte": 2}), "needs all of its rules"),
        (
            correlation("temporal_ordered", ["rule_a", "rule_b", "rule_c"], "rule_a and not rule_b and rule_c"),
            "a sequence",
        ),
    ],
)
def test_correlations_that_are_invalid(document: dict[str, Any], problem: str) -> None:
    *_, outcome = outcomes(*RULES, document)
    assert isinstance(outcome, RefusedRule)
    assert problem in str(outcome.error)
