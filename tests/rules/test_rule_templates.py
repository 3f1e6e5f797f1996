"""Templates: one rule with a table of parameters."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from asterism.errors import AsterismError
from asterism.expressions.parsing import parse
from asterism.rules.definition import rule_templates as module
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.rule_templates import expanded
from asterism.rules.matching.result_rows import MATCHES, SHADOW
from asterism.rules.sets import interfaces
from asterism.rules.sets.interfaces import RefusedProcessor, processors_from
from tests.rules.driver import Driver, Event

Json = dict[str, Any]


def graph(condition: str, **more: Any) -> Json:
    """Events of kind a that satisfy a condition, then one of kind b."""
    quantifier = {"properties": ["SINGLE"]}
    nodes = [
        {"name": name, "type": "ATOMIC", "quantifier": quantifier, "condition": {"type": "SQL", "expression": text}}
        for name, text in (("a", condition), ("b", "kind = 'b'"))
    ]
    edges = [{"source": "a", "target": "b", "type": "SKIP_TILL_NEXT"}]
    return {"type": "COMPOSITE", "nodes": nodes, "edges": edges} | more


def template(rows: Sequence[Any], parameters: Mapping[str, Any] | None = None, **fields: Any) -> Json:
    return {
        "id": "high",
        "parameters": {"limit": "number"} if parameters is None else parameters,
        "rows": rows,
        "pattern": graph("kind = 'a' AND x > :limit"),
    } | fields


def conditions(rule: Mapping[str, Any]) -> list[str]:
    return [node["condition"]["expression"] for node in rule["pattern"]["nodes"]]


def good(items: Sequence[Any]) -> list[PatternProcessor]:
    found = processors_from(items)
    assert not [str(one) for one in found if isinstance(one, RefusedProcessor)]
    return [one for one in found if isinstance(one, PatternProcessor)]


def refusals(*items: Any) -> list[str]:
    return [str(one) for one in processors_from(items) if isinstance(one, RefusedProcessor)]


def sql_of(kind: str, value: Any) -> str:
    """The literal that a value becomes."""
    [rule] = expanded(template([{"id": "r", "p": value}], {"p": kind}, pattern=graph("x = :p")))
    if rule.error is not None:
        raise rule.error
    assert rule.item is not None
    return conditions(rule.item)[0].removeprefix("x = ")


# ---------------------------------------------------------------------- rules


def test_each_row_gives_a_rule() -> None:
    found = good([template([{"id": "eu", "limit": 5}, {"id": "us", "limit": 7.5}]), {**template([]), "id": "empty"}])
    assert [one.id for one in found] == ["high/eu", "high/us"]
    texts = [one.to_dict()["pattern"]["nodes"][0]["condition"]["expression"] for one in found]
    assert texts == ["kind = 'a' AND x > 5", "kind = 'a' AND x > 7.5"]


def test_a_rule_changes_its_version_if_and_only_if_its_text_changes() -> None:
    rows = [{"id": "eu", "limit": 5}, {"id": "us", "limit": 7}]
    before = {one.id: one.version for one in good([template(rows)])}
    changed = template([{"id": "us", "limit": 8}, {"id": "eu", "limit": 5.0}], version=2, labels={"owner": "ann"})
    after = {one.id: one.version for one in good([changed])}
    assert after["high/eu"] == before["high/eu"]
    assert after["high/us"] != before["high/us"]
    as_text = template(rows, pattern=json.dumps(template(rows)["pattern"], indent=2))
    assert {one.id: one.version for one in good([as_text])} == before


def test_the_version_does_not_depend_on_how_a_place_writes_a_rule() -> None:
    """So that rules can move from a file to a table."""
    row = {"id": "r", "limit": 5}
    one = template([row], timestamp="2026-01-31T13:00:00+01:00")
    other = template([row], timestamp=1769860800000, timedOut=False, select=[], key=None, labels={}, version=3)
    other["pattern"] = json.dumps(other["pattern"])
    [first], [second] = good([one]), good([other])
    assert first.version == second.version
    [third] = good([template([row], timedOut=True, timestamp=1769860800000)])
    assert third.version != first.version
    assert third.version != good([template([row], key=[], timestamp=1769860800000)])[0].version != first.version


def test_the_versions_are_those_of_earlier_releases() -> None:
    """Otherwise an upgrade would drop partial matches."""
    kinds = {"n": "number", "s": "string", "b": "boolean", "t": "timestamp", "d": "duration"}
    row = {"id": "r", "n": -1.5, "s": "it's $1", "b": True, "t": "2026-01-31T12:00:00+02:00", "d": "90 seconds"}
    text = "PATTERN (A B) WITHIN :d DEFINE A AS x > :n AND kind <> :s AND :b AND ts > :t"
    [rule] = good([{"id": "all", "parameters": kinds, "rows": [row], "sql": text}])
    assert rule.sql == (
        "PATTERN (A B) WITHIN INTERVAL '90' SECOND DEFINE A AS x > (-1.5) AND kind <> 'it\\'s \\u00241' AND TRUE AND "
        "ts > TIMESTAMP '2026-01-31 10:00:00+00:00'"
    )
    assert rule.version == VERSION


VERSION = 1657043881


def test_a_changed_row_does_not_affect_the_partial_matches_of_others() -> None:
    def sets(us: int) -> list[PatternProcessor]:
        return good([template([{"id": "eu", "limit": 5}, {"id": "us", "limit": us}])])

    def e(second: int, kind: str, x: float) -> Event:
        return second, "ann", 1, kind, x

    driver = Driver().batch([e(1, "a", 6.0)], sets=sets(4), watermark=1)
    driver.batch([e(2, "a", 6.0)], sets=sets(3), watermark=2).batch([e(3, "b", 0.0)], watermark=3).end()
    found = sorted((row["processor_id"], row["start_time"].second) for row in driver.rows[MATCHES])
    assert found == [("high/eu", 1), ("high/eu", 2), ("high/us", 2)]


def test_parameters_are_also_numbers_flags_times_and_durations() -> None:
    kinds = {
        "n": "number", "pause": "duration", "gap": "duration", "since": "timestamp", "on": "boolean", "who": "string",
        "most": "number",
    }  # fmt: skip
    row = {
        "id": "r", "n": 3, "pause": "1 hour", "gap": "90 seconds", "since": "2026-01-31T12:00:00", "on": True, "who": "ann",
        "most": 1e3,
    }  # fmt: skip
    fields = {
        "timestamp": ":since",
        "expires": "2027-01-01T00:00:00Z",
        "timedOut": ":on",
        "maxPartialMatches": ":most",
        "suppress": {"for": ":pause"},
        "labels": {"owner": ":who", "times": ":n", "active": ":on", "title": "of :who"},
        "key": ["upper(:who)"],
    }
    pattern = graph("x > 1", window={"type": "FIRST_AND_LAST", "time": ":gap", "inclusive": True})
    pattern["nodes"][0]["quantifier"] = {"properties": ["LOOPING"], "times": {"from": ":n", "windowTime": ":gap"}}
    pattern["nodes"][1]["window"] = {
        "type": "PREVIOUS_AND_CURRENT",
        "time": {"unit": "MINUTES", "size": ":n"},
        "inclusive": ":on",
    }
    before = copy.deepcopy(pattern)
    [rule] = good([template([row], kinds, pattern=pattern, **fields)])
    assert pattern == before
    written = rule.to_dict()
    assert {
        name: written[name] for name in ("timestamp", "timedOut", "maxPartialMatches", "suppress", "labels", "key")
    } == {
        "timestamp": "2026-01-31T12:00:00+00:00",
        "timedOut": True,
        "maxPartialMatches": 1000,
        "suppress": {"for": "1 hour"},
        "labels": {"active": "true", "owner": "ann", "times": "3", "title": "of :who"},
        "key": ["upper('ann')"],
    }
    assert written["pattern"]["nodes"][0]["quantifier"]["times"]["from"] == 3
    assert written["pattern"]["nodes"][0]["quantifier"]["times"]["windowTime"] == {"unit": "SECONDS", "size": 90}
    assert written["pattern"]["nodes"][1]["window"] == {
        "type": "PREVIOUS_AND_CURRENT",
        "time": {"unit": "MINUTES", "size": 3},
        "inclusive": True,
    }
    assert written["pattern"]["window"]["time"] == {"unit": "SECONDS", "size": 90}


def test_a_parameter_can_have_a_default() -> None:
    kinds = {"limit": {"type": "number", "default": 9}}
    rules = expanded(template([{"id": "a"}, {"id": "b", "limit": None}, {"id": "c", "limit": 1}], kinds))
    assert [conditions(rule.item or {})[0][-1] for rule in rules] == ["9", "9", "1"]


def test_a_row_can_be_a_shadow_of_another_and_is_promoted_with_its_partial_matches() -> None:
    eu, stricter = {"id": "eu", "limit": 5}, {"id": "eu", "limit": 7}
    shadowed, promoted = ([template(rows)] for rows in ([eu, stricter | {"shadow": True}], [stricter]))
    in_force, shadow = good(shadowed)
    assert (in_force.slot, shadow.slot) == (("high/eu", False), ("high/eu", True))
    assert good(promoted)[0].version == shadow.version != in_force.version
    driver = Driver().batch([(1, "ann", 1, "a", 8.0), (1, "bob", 1, "a", 6.0)], sets=good(shadowed), watermark=1)
    driver.batch([(2, "bob", 1, "b", 0.0)], watermark=2)
    driver.batch([(3, "ann", 1, "b", 0.0)], sets=good(promoted), watermark=3).end()
    assert [(row["processor_version"], row["key"]) for row in driver.rows[MATCHES]] == [
        (in_force.version, ["bob"]), (shadow.version, ["ann"]),
    ]  # fmt: skip
    assert driver.rows[SHADOW] == []
    [same] = refusals(template([eu, eu | {"shadow": True}]))
    assert "template 'high', row 'eu': a row and its shadow have the same values" in same
    assert "shadow must be true or false" in refusals(template([eu, stricter | {"shadow": "yes"}]))[0]


def test_rows_can_be_disabled_and_have_tests() -> None:
    common = {"name": "common", "events": "a6 b7", "matches": []}
    own = {"name": "own", "events": "a6", "matches": []}
    rows = [{"id": "off", "enabled": False, "limit": 1}, {"id": "on", "limit": 2, "tests": [own]}]
    assert [one.id for one in good([template(rows)])] == ["high/on"]
    _, rule = expanded(template(rows, tests=[common]))
    assert rule.item is not None
    assert [test["name"] for test in rule.item["tests"]] == ["common", "own"]
    assert good([template(rows, enabled=False)]) == []


def test_the_rows_of_a_table_are_texts() -> None:
    kinds = {
        "n": "number", "s": "string", "b": "boolean", "t": "timestamp", "d": "duration", "u": {"type": "number", "default": 0},
    }  # fmt: skip
    text = "PATTERN (A) DEFINE A AS x > :n AND s = :s AND :b AND t > :t AND t < t + :d AND x > :u"
    row = {
        "id": "r",
        "N": "1000.50",
        "s": "5",
        "b": "t",
        "t": "2026-01-31 12:00:00+00",
        "d": "5 minutes",
        "u": None,
        "other": "?",
    }
    item = {"id": "all", "version": 1, "parameters": kinds, "sql": text}
    [rule] = expanded(item, [row])
    assert rule.item is not None
    assert rule.item["sql"] == (
        "PATTERN (A) DEFINE A AS x > 1000.5 AND s = '5' AND TRUE AND t > TIMESTAMP '2026-01-31 12:00:00+00:00' "
        "AND t < t + INTERVAL '5' MINUTE AND x > 0"
    )
    [shadow] = expanded(item, [row | {"shadow": "t"}])
    assert shadow.item is not None
    assert shadow.item["shadow"] is True
    [off] = expanded(item, [row | {"enabled": "0"}])
    assert off.item is not None
    assert off.item["enabled"] is False
    [wrong] = expanded(item, [row | {"N": "many"}])
    assert wrong.error.message == "template 'all', row 'r': the parameter 'n' must be a number, not 'many'"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (-0.0, "0"), (-7, "(-7)"), (1.0, "1"), (1e3, "1000"), (0.1, "0.1"), (-1e-5, "(-0.00001)"),
        (10**37, "1" + "0" * 37), (12345678901234567890123456789012345678, "12345678901234567890123456789012345678"),
    ],
)  # fmt: skip
def test_numbers_are_written_with_all_their_digits(value: float, text: str) -> None:
    assert sql_of("number", value) == text


# ---------------------------------------------------------------------- what is refused


def test_a_row_that_cannot_be_used_is_refused_alone() -> None:
    rows = [{"id": "a", "limit": "5"}, {"id": "b", "limit": 5}, {"id": "c", "limit": 5, "limits": 5}, {"id": "d"}]
    found = processors_from([template(rows)])
    assert [one.id for one in found] == ["high/b", "high/a", "high/c", "high/d"]
    assert [str(one).partition("; ")[0] for one in found[1:]] == [
        "high/a: [PATTERN_PROCESSOR] template 'high', row 'a': the parameter 'limit' must be a number, not '5'",
        "high/c: [PATTERN_PROCESSOR] template 'high', row 'c': there is no parameter 'limits'",
        "high/d: [PATTERN_PROCESSOR] template 'high', row 'd': the parameter 'limit' has no value",
    ]
    assert not any(one.unidentified for one in found if isinstance(one, RefusedProcessor))


def test_a_template_that_cannot_be_used_refuses_its_rules_by_their_ids() -> None:
    """So that their last versions stay in force, and nothing else is kept."""
    found = processors_from([template([{"id": "a", "limit": 1}], {"limit": "int"})])
    assert [(one.id, one.unidentified) for one in found if isinstance(one, RefusedProcessor)] == [("high/a", False)]


@pytest.mark.parametrize(
    "wrong",
    [
        template("abc"),  # type: ignore[arg-type]
        template([{"limit": 1}]),
        template([{"id": 5, "limit": 1}]),
        template([5]),
        {"id": "high", "parameters": {"limit": "number"}},
        {"parameters": {"limit": "number"}, "rows": []},
        template([{"id": "r", "limit": 1}], id="x" * 201),
    ],
)
def test_rules_whose_ids_are_not_known_may_be_any(wrong: Json) -> None:
    """So that no rule is removed because of a mistake."""
    [found] = processors_from([wrong])
    assert isinstance(found, RefusedProcessor)
    assert found.unidentified


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parameters": {"limit": "number", "other": "number"}}, "the parameter 'other' is not used"),
        ({"parameters": {"li-mit": "number"}}, "the name of a parameter must be letters"),
        ({"parameters": {"id": "number"}}, "a parameter cannot be named 'id'"),
        ({"parameters": {"limit": {"type": "number", "least": 1}}}, "the parameter 'limit' has no field 'least'"),
        (
            {"parameters": {"limit": {"type": "number", "default": "1"}}},
            "the parameter 'limit' must be a number, not '1'",
        ),
        ({"parameters": {}}, "a template needs parameters"),
        ({"pattern": graph("x > :limt")}, "pattern/nodes/0/condition/expression: there is no parameter 'limt'"),
        ({"pattern": graph("x > 5:limit")}, "there must be a space before and after a parameter"),
        ({"pattern": graph("x > ':limit'")}, "the parameter 'limit' is not used"),
        ({"pattern": graph("abs :limit > 1")}, "a parameter must be an operand"),
        ({"pattern": graph("x > :")}, "a parameter must have a name"),
        ({"pattern": graph("x > '")}, "the expression cannot be parsed"),
        ({"suppress": {"for": ":limit"}}, "suppress/for: the parameter 'limit' is a number, but must be a duration"),
        ({"timestamp": ":limit"}, "timestamp: the parameter 'limit' is a number, but must be a timestamp"),
        ({"version": -1}, "a version must be an integer"),
    ],
)
def test_what_is_wrong_with_a_template_is_said_with_its_place(fields: Json, message: str) -> None:
    [found] = refusals(template([{"id": "r", "limit": 5}], **fields))
    assert message in found
    assert "template 'high'" in found


def test_names_of_stages_and_other_structure_are_no_parameters() -> None:
    pattern = graph("x > :limit")
    pattern["nodes"][0]["name"] = pattern["edges"][0]["source"] = ":limit"
    [found] = refusals(template([{"id": "r", "limit": 5}], pattern=pattern))
    assert 'stage name ":limit" contains a colon' in found


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("number", True), ("number", "1"), ("number", float("inf")), ("number", float("nan")), ("number", 1e300),
        ("number", 10**40), ("number", [1]), ("string", 5), ("string", "a\0b"), ("string", "\ud800"), ("string", "x" * 1001),
        ("boolean", 1), ("boolean", "true"), ("timestamp", "yesterday"), ("timestamp", True), ("timestamp", 10**30),
        ("duration", "5"), ("duration", 5), ("duration", "-5 minutes"), ("duration", "999999999999999 days"),
    ],
)  # fmt: skip
def test_values_have_the_type_of_their_parameter(kind: str, value: Any) -> None:
    with pytest.raises(AsterismError, match="the parameter 'p' must be"):
        sql_of(kind, value)


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (module, interfaces):
        monkeypatch.setattr(place, "MAX_PROCESSORS", 1_000)
    rows = [{"id": f"r{n}", "limit": n} for n in range(1_001)]
    assert "it has 1,001 rows (limit 1,000)" in refusals(template(rows))[0]
    [found] = refusals(template(rows[:-1]), template([{"id": "one", "limit": 1}], id="other"))
    assert "more than 1,000 processors" in found
    deep: Any = 5
    for _ in range(300):
        deep = [deep]
    assert "the JSON is nested too deeply" in refusals(template([{"id": "r", "limit": 5}], pattern={"nodes": deep}))[0]
    monkeypatch.setattr(module, "MAX_TOTAL", 1_000)
    assert "its rules are too large: more than 1,000 characters together" in refusals(template(rows[:10]))[0]
    monkeypatch.undo()
    monkeypatch.setattr(interfaces, "MAX_TOTAL", 1_000)
    assert "the rules of the templates are too large" in refusals(template(rows[:10]))[0]
    many = " OR ".join(["s = :s"] * 2_000)
    item = template([{"id": "r", "s": "x" * 1000}], {"s": "string"}, pattern=graph(many))
    assert "the rule is too large (limit 1,000,000 characters of JSON)" in refusals(item)[0]


# ---------------------------------------------------------------------- hostile values

TEXT = """(s = :s OR :s = s) AND x >= :n AND x - :n * -:n IN (:n, 5, :n) AND upper(:s) LIKE :s AND (:b OR NOT :b) -- :n
    AND x BETWEEN :n AND :n"""
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15).filter(
        lambda x: x == 0 or abs(x) > 1e-15
    ),
)
PIECES = st.sampled_from(
    [*"""'"`\\$;:(){}%_-/*ab\n\t""", "''", "\\'", '""', "--", "*/", "${x}", "\\u0027", "' OR 1 = 1 --", ":n", "é", "😀"]
)
STRINGS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    st.lists(PIECES, max_size=8).map("".join),
)


def shape(tree: exp.Expr) -> str:
    """A syntax tree without the values of its literals."""

    def visit(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Paren) and isinstance(node.this, exp.Neg) and isinstance(node.this.this, exp.Literal):
            return exp.Literal.number(0)
        if isinstance(node, exp.Literal):
            return exp.Literal.string("") if node.is_string else exp.Literal.number(0)
        return exp.true() if isinstance(node, exp.Boolean) else node

    return repr(tree.transform(visit))


@given(st.fixed_dictionaries({"s": STRINGS, "n": NUMBERS, "b": st.booleans()}))
def test_a_value_cannot_change_the_structure_of_an_expression(values: dict[str, Any]) -> None:
    kinds = {"s": "string", "n": "number", "b": "boolean"}
    plain, row = expanded(
        template([{"id": "p", "s": "a", "n": 1, "b": True}, {"id": "r", **values}], kinds, pattern=graph(TEXT))
    )
    assert row.error is None
    assert plain.item is not None
    assert row.item is not None
    trees = [parse(conditions(rule)[0]) for rule in (plain.item, row.item)]
    assert shape(trees[0]) == shape(trees[1])
    strings = [node.this for node in trees[1].find_all(exp.Literal) if node.is_string]
    assert strings == [values["s"]] * 4


@given(STRINGS)
def test_a_string_is_compared_as_it_is(value: str) -> None:
    literal = parse(sql_of("string", value))
    assert isinstance(literal, exp.Literal)
    assert literal.is_string
    assert literal.this == value


def test_a_query_in_eql_has_parameters() -> None:
    text = (
        'sequence by user with maxspan=:time [any where name : (:glob, ":x")] [any where size > :limit and ok == :flag]'
    )
    parameters = {"time": "duration", "glob": "string", "limit": "number", "flag": "boolean"}
    row = {"id": "a", "time": "90 seconds", "glob": 'c"\\*', "limit": -1.5, "flag": True}
    item = {"id": "t", "parameters": parameters, "eql": text, "rows": [row]}
    [rule] = expanded(item)
    assert rule.item is not None
    filled = 'maxspan=90s [any where name : ("c\\"\\\\*", ":x")] [any where size > -1.5 and ok == true]'
    assert rule.item["eql"] == f"sequence by user with {filled}"
    assert "WITHIN INTERVAL '90' SECOND" in str(good([item])[0].sql)


def test_where_a_parameter_of_eql_or_sigma_cannot_be() -> None:
    item = {"id": "t", "parameters": {"at": "timestamp"}, "rows": [{"id": "a", "at": 0}]}
    [refused] = refusals({**item, "eql": "any where time > :at"})
    assert "the parameter 'at' is a timestamp, which EQL cannot write" in refused
    [refused] = refusals({**item, "eql": "any where time > :ta"})
    assert "there is no parameter 'ta'" in refused
    sigma = "title: x\nlogsource: {product: windows}\ndetection: {selection: {User: :at}, condition: selection}"
    [refused] = refusals({**item, "sigma": sigma, "expires": ":at"})
    assert "a Sigma rule cannot have the parameter :at" in refused
    item = {**item, "sigma": sigma.replace(":at", "ann"), "expires": ":at", "rows": [{"id": "a", "at": 10**12}]}
    assert good([item])[0].labels["title"] == "x"
