"""What a pattern file is checked for. The texts that a user reads are in tests/cli/golden."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from asterism.cli.main import main
from asterism.columns.schemas import type_of
from asterism.errors import AsterismError, StreamDefinitionError
from asterism.matching.binding import BoundPattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.sequence import AfterMatchSkipStrategy
from asterism.rules.checking.validation import check, check_processor, summary
from asterism.text.strict_json import nowhere

SCHEMA = pa.schema([("name", pa.string()), ("price", pa.float64()), ("at", pa.timestamp("us", "UTC"))])


def begin(condition: str = "price > 1") -> Pattern:
    return Pattern.begin("a").where(condition)


def places(pattern: Pattern, schema: pa.Schema | None = None) -> list[str]:
    """The values that problems point at."""
    text = pattern.to_json()
    lines = text.splitlines()
    return [lines[problem.line - 1][problem.column - 1 :] for problem in check(text, schema).problems]


def test_the_measures_of_a_rule_in_sigma_are_checked() -> None:
    sigma = "title: t\nlogsource: {category: a}\ndetection: {one: {name: failed}, condition: one}"
    rule = {"id": "a", "version": 1, "sigma": sigma, "select": ["LAST(price) AS price", "LAST(prize) AS prize"]}
    (problem,) = check_processor(rule, nowhere, SCHEMA).problems
    assert problem.message == "select: unknown column 'prize'"
    assert check_processor(rule | {"select": ["LAST(price) AS price"]}, nowhere, SCHEMA).problems == []


def test_a_pattern_without_problems() -> None:
    checked = check(begin().next("b").where("price > LAST(a.price)").to_json(), SCHEMA)
    assert checked.problems == []
    assert checked.pattern == begin().next("b").where("price > LAST(a.price)")


def test_without_a_schema_a_struct_column_is_none_that_is_unknown() -> None:
    """Outside aggregates; in one the first name is a stage."""
    pattern = begin("info.city = 'x'").next("b").where("info.city = LAST(a.info.city)")
    assert check(pattern.to_json()).problems == []
    (problem,) = check(begin("LAST(info.city) = 'x'").to_json()).problems
    assert problem.message.endswith("unknown stage 'info'")


def test_problems_point_at_the_text_of_the_condition() -> None:
    pattern = begin("price >").one_or_more().until("LAST(c.price) > 1").next("b").where("nam = 'x'")
    assert places(pattern) == ['"LAST(c.price) > 1"', '"price >"']
    assert places(pattern, SCHEMA) == ['"LAST(c.price) > 1"', '"price >"', "\"nam = 'x'\""]


def test_problems_are_in_the_order_of_the_text() -> None:
    document = json.loads(begin("price > 1 2").next("b").to_json()) | {"name": 3, "window": 5, "colour": "red"}
    checked = check(json.dumps(document, indent=1))
    assert [problem.line for problem in checked.problems] == sorted(problem.line for problem in checked.problems)
    assert len(checked.problems) == 4
    assert checked.pattern is None


@pytest.mark.parametrize(
    "text",
    [
        "price > 1", "price > LAST(a.price)", "prize > 1", "name > LAST(b.price)", "SUM(a.name) > 1", "price",
        "AVG(a.price) + LAST(b.name) > 1", "at > LAST(a.at) + INTERVAL 5 SECONDS", "price / 0 > 1", "LAST(x.price) > 1",
        "UPPER(LAST(a.name)) = 'X'", "COUNT(*) > 1", "a.price > b.price", "* > 1", "NULL",
    ],
)  # fmt: skip
def test_conditions_are_refused_as_by_the_matcher(text: str) -> None:
    """One by one, each in a smaller pattern, they are refused when and as the whole pattern is."""
    pattern = Pattern.begin("a").one_or_more().followed_by("b").optional().next("c").where(text)
    expected = []
    try:
        BoundPattern.of_pattern(pattern, SCHEMA)
    except AsterismError as error:
        expected = [(f"c: condition: {error.message}", error.detail, error.hint)]
    problems = check(pattern.to_json(), SCHEMA).problems
    assert [(problem.message, problem.detail, problem.hint) for problem in problems] == expected


def test_stages_are_looked_for_only_if_all_are_known() -> None:
    """A stage that could not be read may be the one that a condition speaks of."""
    document = json.loads(Pattern.begin("a").next("b").where("price > LAST(a.price)").to_json())
    document["nodes"][0]["name"] = None
    assert [problem.message for problem in check(json.dumps(document)).problems][1:] == [
        "root: the edge 'a' -> 'b' refers to an unknown node"
    ]


def test_many_problems_are_counted() -> None:
    nodes = [{"name": f"n{number}", "type": "ATOM"} for number in range(150)]
    checked = check(json.dumps({"type": "COMPOSITE", "nodes": nodes, "edges": []}))
    assert (len(checked.problems), checked.more) == (100, 201)  # two of each node, and the edges


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", pa.string()), ("VARCHAR(10)", pa.string()), ("boolean", pa.bool_()), ("tinyint", pa.int8()),
        ("short", pa.int16()), ("smallint", pa.int16()), ("int", pa.int32()), ("integer", pa.int32()), ("long", pa.int64()),
        ("bigint", pa.int64()), ("float", pa.float32()), ("double", pa.float64()), ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)), ("decimal(12, 2)", pa.decimal128(12, 2)), ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")), ("timestamp_ltz", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")), ("binary", pa.binary()), ("array<int>", pa.list_(pa.int32())),
        ("map<string, array<date>>", pa.map_(pa.string(), pa.list_(pa.date32()))),
        ("struct<a: int, b: struct<c: string>>", pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])),
    ],
)  # fmt: skip
def test_types_have_the_names_of_spark(text: str, expected: pa.DataType) -> None:
    assert type_of(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "strin", "array", "array<x>", "map<int>", "struct<>", "variant", "decimal(99)", "int; DROP TABLE x", "?"],
)
def test_other_types_are_refused(text: str) -> None:
    with pytest.raises(StreamDefinitionError, match="not a Spark SQL type"):
        type_of(text)


def test_summary_is_short() -> None:
    pattern = Pattern.begin("a" * 200).next("\x1b[2J").within(timedelta(hours=1))
    assert summary(pattern) == "2 stages (" + "a" * 79 + "…), within 1 h, NO_SKIP"
    skip = AfterMatchSkipStrategy.skip_to_last("a")
    assert summary(begin().skip_strategy(skip)) == "1 stage (a), SKIP_TO_LAST a"


# ---------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--column", "price"], "write its name and its type, as in price:double"),
        (["--column", ":double"], "write its name and its type"),
        (["--column", "price:money"], "not a Spark SQL type: 'money'"),
        (["--column", "x:int", "--column", "x:int"], "--column names 'x' twice"),
        (["--column", "x:int", "--input", "pattern.json"], "cannot be combined"),
        (["--time", "ts"], "--time requires --input"),
        (["--input", "nowhere"], "does not exist"),
        (["nowhere.json"], "does not exist"),
    ],
)
def test_options_are_refused(options: list[Any], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pattern.json").write_text(begin().to_json(), encoding="utf-8")
    result = CliRunner().invoke(main, ["validate", "pattern.json", *options])
    assert result.exit_code == 2
    assert problem in result.stderr


def test_the_documentation_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/pattern_json.md: the first file in JSON, the command, what it prints, and a pattern without problems."""
    page = (Path(__file__).parents[2] / "docs" / "pattern_json.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def printed(rule: str, arguments: str) -> str:
        Path("rule.json").write_text(rule, encoding="utf-8")
        return CliRunner().invoke(main, arguments.split()).stdout

    [wrong] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    [good] = re.findall(r'rule = """\n(.*?)"""', page, re.DOTALL)
    [command] = re.findall(r"`asterism (validate rule\.json [^`]+)`", page)
    assert [printed(wrong, command), printed(good, command)] == re.findall(r"```text\n(.*?)```", page, re.DOTALL)


# --- what is surprising ---


def test_what_is_surprising_is_a_warning_at_its_stage() -> None:
    """It is no problem: the pattern can be used."""
    pattern = begin().next("b").where("price > LAST(b.price)").times(2)
    text = pattern.to_json()
    checked = check(text, SCHEMA)
    [warning] = checked.warnings
    assert (checked.pattern, checked.problems) == (pattern, [])
    assert warning.message == 'stage "b" cannot take any event: its condition is never TRUE'
    assert text.splitlines()[warning.line : warning.line + 1] == ['      "name": "b",']


def test_validate_prints_warnings_and_succeeds(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(begin().next("b").where("price > LAST(b.price)").times(2).to_json())
    result = CliRunner().invoke(main, ["validate", str(tmp_path / "a.json")])
    assert result.exit_code == 0
    first, *_, last = result.output.splitlines()
    assert first.endswith(': warning: stage "b" cannot take any event: its condition is never TRUE')
    assert last.endswith("ok, 2 stages (a, b), NO_SKIP")


# --- rules ---

RULE: dict[str, Any] = {"id": "r", "version": 1, "pattern": json.loads(begin().to_json())}


def problems_of(rule: dict[str, Any], schema: pa.Schema | None = SCHEMA) -> dict[str, str]:
    """What is wrong with a rule: the first words, by the value that they are about."""
    requested: list[str] = []

    def place(pointer: str, index: int = 0) -> tuple[int, int]:
        requested.append(pointer)
        return len(requested), 1

    problems = check_processor(rule, place, schema).problems
    return {requested[problem.line - 1]: problem.message.partition(", ")[0] for problem in problems}


def test_every_problem_of_a_rule_is_told_in_one_pass() -> None:
    """Columns of keys and measures, though those of the pattern are wrong too; each field, though others are."""
    pattern = begin("prise > 1").to_json()
    rule = {
        "id": "",
        "version": -1,
        "key": ["usr", "price >"],
        "pattern": pattern,
        "select": ["LAST(b.price) AS last", "LAST(a.prise) AS first"],
        "timedOut": "no",
        "colour": "red",
    }
    assert problems_of(rule) == {
        "/id": "an id must be a string of 1 to 200 printable characters",
        "/version": "a version must be an integer from 0 to 2147483647",
        "/key/0": "key: unknown column 'usr'",
        "/key/1": "key: the expression is incomplete",
        "/pattern/nodes/0/condition/expression": "pattern: a: condition: unknown column 'prise'",
        "/select/0": "select: unknown stage 'b'",
        "/select/1": "select: unknown column 'prise'",
        "/timedOut": "timedOut must be true or false",
        "/colour": "a processor has no field 'colour'",
    }


def test_measures_and_a_function_hide_no_other_problem() -> None:
    rule = RULE | {"select": ["LAST(z.price)"], "function": "f", "key": ["usr"]}
    assert problems_of(rule) == {
        "/function": "a processor can have measures (select) or a function",
        "/key/0": "key: unknown column 'usr'",
        "/select/0": "select: unknown stage 'z'",
    }


def test_what_a_rule_needs_is_told_at_once() -> None:
    assert problems_of({}) == {"": "a processor needs 'pattern'"}
    assert len(check_processor({}, lambda pointer: (1, 1)).problems) == 3


def test_a_rule_is_warned_of() -> None:
    pattern = begin().next("b").where("price > LAST(b.price)").times(2)
    checked = check_processor(RULE | {"pattern": json.loads(pattern.to_json())}, lambda pointer: (1, 1), SCHEMA)
    assert checked.processor is not None
    assert [warning.message for warning in checked.warnings] == [
        'pattern: stage "b" cannot take any event: its condition is never TRUE'
    ]
