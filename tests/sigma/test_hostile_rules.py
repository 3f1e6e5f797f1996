"""Sigma rules from outside: what is too large, endless or wrong is refused quickly, and the others go on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from asterism.errors import AsterismError, PatternProcessorError
from asterism.sigma.collection import RefusedRule, TranslatedRule
from asterism.sigma.documents import documents_of
from tests.kit import bounded
from tests.sigma.kit import outcomes, rule

GOOD = rule("good", s={"a": 1}, condition="s")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


def detection(**parts: Any) -> dict[str, Any]:
    return rule("bad", **parts)


def test_rules_of_a_correlation_that_is_refused_have_no_matches_of_their_own() -> None:
    base = {**rule("a", s={"a": 1}, condition="s"), "name": "a"}
    correlation = {"type": "event_count", "rules": ["a"], "group-by": ["u"], "timespan": "5x", "condition": {"gte": 3}}
    for change in ({}, {"rules": ["a", "nosuch"], "timespan": "5m"}):
        found = outcomes(base, {"title": "c", "id": "c", "correlation": {**correlation, **change}}, GOOD)
        assert [type(outcome) for outcome in found] == [RefusedRule, TranslatedRule]


def test_documents_that_cannot_be_merged() -> None:
    text = "action: global\ndetection: {a: 1}\n---\ntitle: x\ndetection: 5\n"
    with pytest.raises(PatternProcessorError, match="cannot be merged"):
        documents_of(text, "rules.yml")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (detection(s={"a|contains": ["x" * 9] * 25_000}, condition="s"), "more than 20,000 values"),
        (detection(s={"a": 1}, condition=" or ".join(["s"] * 5_000)), "characters"),
        (detection(s={"a": ["x"] * 5_000}, condition=" and ".join(["1 of them"] * 60)), "limit of the product 500,000"),
        (detection(s={"a": 1}, condition="(" * 500 + "s" + ")" * 500), "nested too deeply"),
        (detection(s={"a": 1}, condition="not " * 900 + "s"), "nested too deeply"),
        (detection(s={"a|re": "(a+)+" * 400 + "(?=b)"}, condition="s"), "Regular expression"),
        (detection(s={"a|re": "((a{1000}){1000}){1000}"}, condition="s"), "Regular expression"),
        (detection(s={"a|windash": "-a -b -c -d -e -f"}, condition="s"), "at most three"),
        (detection(s={"a|nosuch": "x"}, condition="s"), "Unknown modifier"),
        (detection(s={"a": 1}, condition="t"), "not defined"),
        (detection(s={"a": 1}, condition="1 of nothing*"), "doesn't match"),
        (detection(s={"a": 1}, condition="s | count() > 5"), "pipe"),
        (detection(s={"a": {"b": {"c": 1}}}, condition="s"), ""),
        (detection(s={"a": [[[1]]]}, condition="s"), ""),
        (detection(s=[], condition="s"), ""),
        (detection(condition="s"), ""),
        ({"title": "bad", "detection": 5, "logsource": {"category": "x"}}, ""),
        ({"title": "bad", "detection": {"s": {"a": 1}, "condition": "s"}}, "log source"),
        ({"title": "bad", "tags": 5, "logsource": [], "detection": {"s": {"a": 1}, "condition": 7}}, ""),
        ({"title": "bad", "id": 7, "logsource": {"category": "x"}, "detection": {"s": {"a": 1}, "condition": "s"}}, ""),
        (detection(s={"a": 1}, condition="s") | {"id": "bad"}, "must be an UUID"),
        (detection(s={"a" * 1: "%x%"}, condition="s", **{"a*" * 8: {"a": 1}}) | {"level": "worst"}, ""),
    ],
)
def test_a_bad_rule_is_refused_and_the_others_go_on(bad: dict[str, Any], problem: str) -> None:
    with bounded():
        refused, good = outcomes(bad, GOOD)
    assert isinstance(good, TranslatedRule)
    assert isinstance(refused, RefusedRule)
    assert refused.id in ("bad", "Bad")
    assert refused.place == "rules.yml:1"
    assert problem in str(refused.error)


def test_ten_thousand_alternatives_are_a_rule_that_its_condition_limits() -> None:
    (outcome,) = outcomes(rule("many", s={"a": [f"value {n}" for n in range(10_000)]}, condition="s"))
    assert isinstance(outcome, TranslatedRule)  # the limit of an expression is checked where it is bound


def test_selectors_of_a_condition_cannot_take_long() -> None:
    names = {"a" * 60 + "b": {"x": 1}}
    with bounded():
        outcomes(rule("long", **names, condition="1 of " + "a*" * 40 + "c"))


@pytest.mark.parametrize(
    "text", [BOMB, "a: *a", "- title: x\n- y", "a: !!python/object:os.system x", "{", "\x00", "a: 1\na: 2"]
)
def test_a_file_that_cannot_be_read_is_refused_as_a_whole(text: str) -> None:
    with bounded(), pytest.raises(PatternProcessorError):
        outcomes(text)


def test_documents_have_their_lines() -> None:
    documents = documents_of("title: a\ndetection: {}\n---\n# comment\n\ntitle: b\n---\n", "x.yml")
    assert [(one.place, one.id) for one in documents] == [("x.yml:1", "a"), ("x.yml:6", "b")]


def test_plain_numbers_are_those_of_pysigma() -> None:
    (document,) = documents_of("title: a\nx: 0x10\ny: yes", "x.yml")
    assert document.value == {"title": "a", "x": 16, "y": True}


def test_actions_of_collections() -> None:
    documents = documents_of(
        "action: global\ntitle: all\nlevel: high\n---\nname: a\n---\naction: repeat\nname: b\n---\naction: reset\n---\nname: c",
        "x.yml",
    )
    assert [dict(one.value) for one in documents] == [
        {"name": "a", "title": "all", "level": "high"},
        {"name": "b", "title": "all", "level": "high"},
        {"name": "c"},
    ]


def test_errors_are_those_of_asterism() -> None:
    with pytest.raises(AsterismError, match="unknown action"):
        documents_of("action: explode", "x.yml")


def correlations(count: int, first: str) -> list[dict[str, object]]:
    """Each refers to the one before, and has matches of its own."""
    section = {"type": "event_count", "timespan": "1m", "condition": {"gte": 1}, "generate": True}
    names = [first, *(f"c{number}" for number in range(count))]
    return [
        {"title": name, "name": name, "correlation": section | {"rules": [before]}} for before, name in pairwise(names)
    ]


def test_long_chains_and_rings_are_refused_in_time() -> None:
    with bounded():
        ring = outcomes(*correlations(1_000, "c999"))
        chain = outcomes(rule("one", s={"a": 1}, condition="s"), *reversed(correlations(1_000, "one")), time="ts")
    assert {str(outcome.error) for outcome in ring if isinstance(outcome, RefusedRule)} == {
        f"[PATTERN_PROCESSOR] the correlation refers to itself\n  by 'c{number}'" for number in range(1_000)
    }
    refused = [str(outcome.error) for outcome in chain if isinstance(outcome, RefusedRule)]
    assert sum("more than 50 correlations refer to one another" in error for error in refused) == 950


def test_filters_are_applied_to_the_rules_that_they_name() -> None:
    """By name and by id, however it is spelled, in the order of the filters; others are not tried."""
    spelled = "E28A5A99DA44436DB7A02AFC20A5F413"
    rules = [rule(f"r{number}", s={"a": number}, condition="s") for number in range(600)]
    rules[7]["id"] = str(UUID(spelled))
    section = {"selection": {"b": 1}, "condition": "not selection"}
    filters = [
        {"title": f"F{number}", "logsource": {"category": "test"}, "filter": {"rules": [f"r{number}"], **section}}
        for number in range(400)
    ]
    filters[300]["filter"]["rules"] = [spelled]  # type: ignore[index]
    filters[399]["filter"]["rules"] = "any"  # type: ignore[index]
    with bounded():
        found = {outcome.id: outcome for outcome in outcomes(*rules, *filters)}
    texts = {name: outcome.pattern.stages[0].condition.text for name, outcome in found.items()}  # type: ignore[union-attr]
    counts = {name: text.count("`b`") for name, text in texts.items()}
    assert counts.pop(str(UUID(spelled))) == 3
    assert counts == {f"r{number}": 2 - (number == 300 or number >= 399) for number in range(600) if number != 7}
