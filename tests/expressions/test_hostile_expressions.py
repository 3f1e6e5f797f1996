"""Expressions from outside: bounded in what they cost, nothing of them is left out, and what is wrong with them can be printed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from asterism import Pattern
from asterism.columns.time import TimeColumn
from asterism.errors import (
    AsterismError,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    InvalidEventError,
    printable,
)
from asterism.expressions import evaluation, values
from asterism.expressions import parsing as expressions
from asterism.expressions.evaluation import Vectorized, sample
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.regex import regex
from asterism.matching.binding import BoundPattern
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor
from asterism.testing import match

SCHEMA = pa.schema(
    [
        ("s", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


def bound(*texts: str) -> Vectorized:
    vectorized = Vectorized(SCHEMA)
    for text in texts:
        tree = parse(text)
        if isinstance(tree, exp.Alias):
            raise ExpressionSyntaxError.at("a condition cannot have a name", text)
        vectorized.add(Scope(SCHEMA).resolve(tree, text), text)
    return vectorized


def rows(*texts: str) -> pa.Table:
    return pa.Table.from_pylist([{"s": text, "n": 1} for text in texts], schema=SCHEMA)


# ---------------------------------------------------------------------------------------------------- room for texts


@pytest.mark.parametrize(
    "text",
    [
        "length(repeat(s, 10000)) > 1",
        "length(replace(s, 'a', '" + "x" * 9000 + "')) > 1",
        "length(greatest(" + ", ".join(["repeat(s, 10)"] * 50) + ")) > 1",
        "length(coalesce(" + ", ".join(["repeat(s, 20)"] * 10) + ")) > 1",
        "length(CASE WHEN n = 1 THEN repeat(s, 60) ELSE repeat(s, 60) END) > 1",
        "repeat(repeat(s, 11), 11) = ''",
        "repeat(s, 30) = 'a' OR repeat(s, 30) = 'b' OR repeat(s, 30) = 'c' OR repeat(s, 30) = 'd'",
        "length(concat(" + ", ".join(["s"] * 200) + ")) > 1",
        " OR ".join(f"lpad(s, 10000) = '{number}'" for number in range(40)),
        "repeat(tags[0], 200) = ''",
    ],
)
def test_texts_that_grow_too_much_are_refused(text: str) -> None:
    """All that is made of an event counts, not only the longest."""
    with pytest.raises(ExpressionError, match="the strings and arrays that it creates can"):
        bound(text)


def test_all_expressions_of_a_pattern_have_a_limit_together() -> None:
    with pytest.raises(ExpressionError, match="all expressions create are too large"):
        bound(*(f"repeat(s, 90) = '{number}'" for number in range(12)))


def test_what_is_usual_has_room() -> None:
    text = "concat(upper(s), '-', lower(s), '-', repeat('=', 500), rpad(s, 200), replace(s, 'abc', 'x'), repeat(s, 20))"
    assert bound(text).evaluate(rows("abc"))[0].to_pylist()[0].startswith("ABC-abc-===")


def sizes_of_runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """From now on: of each run of DuckDB, how many expressions it computes, of how many rows."""
    sizes = []
    run = Vectorized._run

    def counted(self: Vectorized, texts: list[str], types: list[Any], part: pa.Table, *, keep: bool) -> Any:
        sizes.append((len(texts), part.num_rows))
        return run(self, texts, types, part, keep=keep)

    monkeypatch.setattr(Vectorized, "_run", counted)
    return sizes


def test_texts_that_grow_are_made_for_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers do not depend on it, nor does what is computed beside them."""
    vectorized = bound("repeat(s, 50)", "n + 1", "concat(s, s)")
    table = rows(*(chr(97 + number % 26) * (number % 7) for number in range(5000)))
    at_once = [column.to_pylist() for column in vectorized.evaluate(table)]
    sizes = sizes_of_runs(monkeypatch)
    monkeypatch.setattr(evaluation, "AT_ONCE", 100_000)
    assert [column.to_pylist() for column in vectorized.evaluate(table)] == at_once
    assert (1, 5000) in sizes
    assert max(count for count in sizes if count != (1, 5000)) < (2, 0)
    assert min(count for _, count in sizes) < 400


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"concat(substr(s, {n}), '') = 'b'" for n in range(1, 51)),
        "upper(lower(" * 10 + "s" + "))" * 10 + " = 'b'",
    ],
)
def test_texts_on_the_way_count_too(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not grow, and are as many as the expression is long."""
    vectorized = bound(text)
    table = rows(*["a" * 100] * 1000)
    runs = sizes_of_runs(monkeypatch)
    monkeypatch.setattr(evaluation, "AT_ONCE", 500_000)
    assert vectorized.evaluate(table)[0].to_pylist() == [False] * 1000
    sizes = [count for _, count in runs]
    assert sum(sizes) == 1000
    assert max(sizes) <= 250  # of 20 texts of 100 bytes each


def test_joined_texts_are_made_once() -> None:
    """Not every prefix of them; and a NULL among them makes NULL."""
    vectorized = bound("concat(" + ", ".join(["s"] * 99) + ")", "concat('x', s, NULL)", "concat(s, upper(s))")
    assert "||" not in vectorized.texts[0]
    (joined, null, both) = vectorized.evaluate(rows("ab", None))
    assert joined.to_pylist() == ["ab" * 99, None]
    assert null.to_pylist() == [None, None]
    assert both.to_pylist() == ["abAB", None]


def test_an_event_that_would_need_too_much_is_an_error() -> None:
    """And those beside it are not: halving finds it, as other failures."""
    vectorized = bound("length(repeat(s, 100)) > 1")
    with pytest.raises(InvalidEventError, match="from a value of 800,000 bytes it can create") as caught:
        vectorized.evaluate(rows("a", "b" * 800_000))
    assert caught.value.detail == "length(repeat(s, 100)) > 1"
    assert vectorized.evaluate(rows("a", "bb"))[0].to_pylist() == [True, True]


def test_long_texts_that_do_not_grow_are_no_error() -> None:
    vectorized = bound("upper(s) = 'A'", "length(trim(s)) > 5", "concat(s, 'x') = ''")
    assert vectorized.evaluate(rows("b" * 5_000_000))[1].to_pylist() == [True]


# ---------------------------------------------------------------------------------------------------- regular expressions


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("abc", 3),
        ("[a-z]{10}", 10),
        ("(ab){3}c", 10),
        ("[a-z]{0,99}", 198),
        ("(a{10}){10}", 110),
        ("a*b+", 2),
        ("[^a]", 6),
        ("a|b", 2),
    ],
)
def test_size_of_a_regular_expression(pattern: str, size: int) -> None:
    assert regex(pattern).size == size


@pytest.mark.parametrize(
    "text",
    [
        "s RLIKE '0" + "[a-z]{0,99}" * 80 + "'",
        " OR ".join(f"s RLIKE '{number}[a-z]{{0,99}}'" for number in range(100)),
        "s RLIKE '((a{100}){10}){10}b'",
        "s RLIKE '" + "[" + "".join(f"{chr(0x400 + 2 * at)}" for at in range(300)) + "]{100}'",
        "s RLIKE '" + "(" * 60 + "a" + ")" * 60 + "'",
    ],
)
def test_regular_expressions_that_are_dear_to_compile_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"regular expressions are too large|nested more than"):
        bound(text)


def test_regular_expressions_of_a_pattern_have_a_limit_together() -> None:
    pattern = Pattern.begin("a")
    for number in range(60):
        pattern = pattern.where(f"s RLIKE '{number}[a-z]{{0,99}}'")
    with pytest.raises(ExpressionError, match="with this expression, the regular expressions are too large"):
        BoundPattern.of_pattern(pattern, SCHEMA)


@pytest.mark.parametrize(
    ("text", "found"),
    [(r"s RLIKE '^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}\\.[A-Za-z]{2,24}$'", True), ("s RLIKE '.{1000}'", False)],
)
def test_usual_regular_expressions_are_small(text: str, found: bool) -> None:
    assert bound(text).evaluate(rows("a@b.org"))[0].to_pylist() == [found]


# ---------------------------------------------------------------------------------------------------- statements


def test_a_statement_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not parsed, bound and planned again for each batch, even if the expressions have travelled meanwhile."""
    written: list[int] = []
    query = evaluation._query
    monkeypatch.setattr(evaluation, "_query", lambda texts, name: written.append(len(texts)) or query(texts, name))
    vectorized = bound(*(f"n > {number} AND s = 'k{number}'" for number in range(50)))
    written.clear()
    for number in range(20):
        travelled = pickle.loads(pickle.dumps(vectorized))
        found = travelled.evaluate(pa.Table.from_pylist([{"s": f"k{number}", "n": 100}] * number, schema=SCHEMA))
        assert [any(column.to_pylist()) for column in found] == [at == number and number > 0 for at in range(50)]
    assert written == [50]


def test_statements_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_PREPARED", 16)
    for number in range(3 * evaluation._PREPARED):
        assert bound(f"n + {number}").evaluate(rows("a"))[0].to_pylist() == [1 + number]
    assert len(evaluation._database().prepared) <= evaluation._PREPARED


def test_after_a_failure_a_statement_works_again() -> None:
    vectorized = bound("1 / x > 0")
    table = pa.Table.from_pylist([{"x": 0.0}, {"x": 1.0}], schema=SCHEMA)
    for _ in range(2):
        with pytest.raises(InvalidEventError, match="division by zero"):
            vectorized.evaluate(table)
        assert vectorized.evaluate(table.slice(1))[0].to_pylist() == [True]


def test_threads_do_not_share_rows() -> None:
    vectorized = bound("n * 2", "concat(s, '!')")
    wrong: list[Any] = []

    def work(number: int) -> None:
        for _ in range(30):
            table = pa.Table.from_pylist([{"s": str(number), "n": number}] * 5, schema=SCHEMA)
            found = [column.to_pylist() for column in vectorized.evaluate(table)]
            if found != [[2 * number] * 5, [f"{number}!"] * 5]:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---------------------------------------------------------------------------------------------------- lists, offsets


def test_a_long_list_over_a_stage_is_one_operation() -> None:
    text = f"LAST(a.n) IN ({', '.join(map(str, range(0, 6000, 2)))})"
    matched = BoundPattern.of_pattern(Pattern.begin("a").next("b").where(text), SCHEMA)
    begin, end = matched.programs.starts[0], matched.programs.ends[0]
    assert end - begin == 2
    assert len(matched.programs.ops) == 3002


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("LAST(a.value) IN (1, 3, 5, 7, 9)", "a1 a3"),
        ("LAST(a.value) NOT IN (1, 3, 5, 7, 9)", "a2 a4"),
        ("LAST(a.value) NOT IN (1, 3, 5, 7, NULL)", ""),
        ("LAST(a.value) IN (1.0, 2.5, 3.0, 4.5, 99)", "a1 a3"),
        ("LAST(a.value) / 2 IN (0.5D, 1.5D, 7D, 8D, 'NaN')", "a1 a3"),
        ("LAST(a.kind) IN ('b', 'c', 'a', 'ä', 'z')", "a1 a2 a3 a4"),
        ("LAST(a.kind) IN ('b', 'c', 'ä', 'z', '')", ""),
        ("LAST(a.value) IN (7, 8, 9, 10, value - 1)", "a1 a2 a3 a4"),
        ("LAST(a.value) + 0.5 IN (1.5, 2.25, 3.5, 10.75, 11)", "a1 a3"),
    ],
)
def test_lists_over_a_stage(text: str, found: str) -> None:
    pattern = Pattern.begin("a").where("kind = 'a'").next("b").where(f"kind = 'b' AND {text}")
    events = " ".join(f"a{number} b{number + 1}" for number in (1, 2, 3, 4))
    assert [one.split()[0] for one in match(pattern, events).matches] == found.split()


def test_first_and_last_may_name_an_event_before_or_after() -> None:
    pattern = Pattern.begin("a").next("b").times(3).consecutive()
    measures = ["LAST(b.value, 1) AS x", "FIRST(b.value, 2) AS y", "LAST(b.value, 3) AS z", "FIRST(b.value, 0) AS w"]
    found = match(pattern, "a1 b2 b3 b4", select=measures)
    assert [(row["x"], row["y"], row["z"], row["w"]) for row in found.selected] == [(3, 4, None, 2)]
    growing = "value > LAST(b.value, 1) + 1 OR LAST(b.value, 1) IS NULL"
    pattern = (
        Pattern.begin("b").where("kind = 'b'").where(growing).one_or_more().consecutive().next("c").where("kind = 'c'")
    )
    assert match(pattern, "b1 b2 b3 b5 c9").matches[0] == "b1 b2 b3 b5 c9"
    pattern = (
        Pattern.begin("b").where("kind = 'b'").times(3).next("c").where("value = FIRST(b.value, 1) AND kind = 'c'")
    )
    assert match(pattern, "b1 b2 b3 c2").matches == ["b1 b2 b3 c2"]
    assert match(pattern, "b1 b2 b3 c1").matches == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("LAST(a.n, -1) = 1", "the second argument of LAST must be an integer literal"),
        ("LAST(a.n, n) = 1", "the second argument of LAST must be an integer literal"),
        ("FIRST(a.n, true) = 1", "the second argument of FIRST must be an integer literal"),
        ("FIRST(a.n, 1.5) = 1", "the second argument of FIRST must be an integer literal"),
        ("FIRST(a.n, 100000) = 1", "the offset of FIRST must be at most 10,000"),
        ("SUM(a.n, 1) = 1", ""),
        ("MAX(a.n, 1) = 1", ""),
        ("COUNT(a.n, 1) = 1", ""),
    ],
)
def test_other_second_arguments_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionSyntaxError, match=problem or None):
        BoundPattern.of_pattern(Pattern.begin("a").next("b").where(text), SCHEMA)


# ---------------------------------------------------------------------------------------------------- nothing is left out

LOST = [
    "nvl(n, 1, 2) = 1", "ifnull(n) = 1", "upper(s,) = 'A'", "upper(,s) = 'A'", "n IN ()", "n IN (1,)", "n IN (1,,2)", "COUNT(DISTINCT n) = 1",
    "SUM(n) FILTER (WHERE n > 1) = 1", "SUM(n) OVER () = 1", "LAST(n) IGNORE NULLS = 1", "SUM(n ORDER BY n) = 1", "s COLLATE x = 'a'",
    "at AT TIME ZONE 'UTC' = at", "CAST(s AS DATE FORMAT 'yyyy') = at", "CAST(n AS INT DEFAULT 1 ON CONVERSION ERROR) = 1",
    "CAST(s AS STRING(5)) = 'a'", "CAST(s AS VARCHAR(5)) = 'a'", "CAST(n AS INT(5)) = 1", "CAST(n AS DECIMAL(5,2,1)) = 1", "CAST(n AS BOOL)",
    "CAST(n AS DECIMAL(a,b)) = 1", "CAST(n AS DECIMAL(1e1,0)) = 1", "CAST(n AS DOUBLE PRECISION) = 1", "CAST(s AS CHAR) = 'a'", "INT '5' = n",
    "TIMESTAMP WITH TIME ZONE '2020-01-01' = at", "EXTRACT(YEAR, at) = 1", "n BETWEEN SYMMETRIC 1 AND 2", "n ISNULL", "n NOTNULL", "n NOT NULL",
    "upper(a => s) = 'A'", "n IN (SELECT 1)", "n IN tags", "/*+ hint */ n = 1", "n = 1 /*+ hint */", "{fn upper(s)} = 'A'", "n:x = 1",
    "n = 1 {# x #}", "n = 1 -- x \\\n AND n = 2", "n = /* /* */ */ 1", "n\u00a0= 1", "n = 1.5.5", "n.1 = 1", "n.'x' = 1", "s LIKE ANY ('a')",
    "s LIKE 'a' COLLATE b", "s RLIKE 'a' ESCAPE 'b'", "n = 1 n", "n = 1; n = 2", "n = 1;", "INTERVAL '1' YEAR TO MONTH = at", "x ^ 2 ** 3 = 1",
    "tags[0, 1] = 'a'", "tags[0:1] = 'a'", "s -> 'a' = 'b'", "'a' 'b' = s", "N'a' = s", "s = ?", "s = :x", "timestampdiff(HOUR, at) = 1",
    "date_trunc(HOUR, at) = at", "datediff(HOURS, at, at) = 1", "CASE s WHEN 'a', 'b' THEN TRUE END", "upper(DISTINCT s) = 'A'",
]  # fmt: skip


@pytest.mark.parametrize("text", LOST)
def test_what_would_be_lost_is_refused(text: str) -> None:
    """What the parser takes and leaves out of its tree, or has no translation, is not taken for something else."""
    with pytest.raises(ExpressionError):
        bound(text)


@pytest.mark.parametrize(
    "text",
    [
        "n = 1 -- a comment\n AND s = 'a'", "/* a */ n /* b */ = 1", "upper(ALL s) = 'A'", "INTERVAL '1 day' > INTERVAL 1 HOUR",
        "at + INTERVAL -1 DAY < at", "timestampdiff(HOUR, at, at) = 0", "datediff(`at`, at) = 0", "date_add(day, 1, at) > at",
        "CAST(s AS INTEGER) = 1", "CAST(n AS NUMERIC(5)) = 1", "CAST(n AS DEC) = 1", "5L = n AND 1.5D < x", "n::SMALLINT = 1", "`n` = .5",
        "r'a' = s", "\"a\" = s", "DATE'2020-01-01' < at", "EXTRACT(year FROM at) = 1", "at - at > INTERVAL 1 DAY 2 HOURS", "s NOT RLIKE 'a'",
        "CASE WHEN n = 1 THEN CASE WHEN n = 1 THEN TRUE END END", "s = ')))(((('", "tags[0] = 'a' OR Tags[1] IS NULL",
    ],
)  # fmt: skip
def test_what_spark_takes_is_taken(text: str) -> None:
    bound(text)


def taken(aggregates: tuple[str, ...]) -> dict[Any, frozenset[str]]:
    return expressions._CONSUMED_OF_CALLS if aggregates else expressions._CONSUMED


with_calls_or_not = pytest.mark.parametrize("aggregates", [(), ("a",)])


@with_calls_or_not
def test_each_kind_of_node_says_what_of_it_is_translated(aggregates: tuple[str, ...]) -> None:
    """Whatever else a node can hold is refused as soon as it holds something, also in a new release of the parser."""
    for kind, consumed in taken(aggregates).items():
        for name in set(kind.arg_types) - consumed:
            several = {"expressions", "ifs"}
            given: dict[str, Any] = {
                part: exp.Literal.string("a") for part in consumed - several if part != "is_string"
            }
            given |= {part: [exp.Literal.string("a")] for part in consumed & several}
            node = kind(**given, **{name: exp.Literal.string("b")})
            with pytest.raises(ExpressionSyntaxError):
                expressions._check(node, "text", aggregates)


@with_calls_or_not
def test_no_other_kind_of_node_is_taken(aggregates: tuple[str, ...]) -> None:
    """Not even one that is a special case of one that is."""
    kinds = [kind for kind in vars(exp).values() if isinstance(kind, type) and issubclass(kind, exp.Expr)]
    assert len(kinds) > 500
    for kind in kinds:
        if kind in taken(aggregates):
            continue
        try:
            node = kind()
            list(node.walk())
        except (TypeError, NotImplementedError):
            continue
        with pytest.raises(ExpressionSyntaxError):
            expressions._check(node, "text", aggregates)


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "text",
    [
        "x > 1e99999999999999999999", "x > 1e", "x > 1e400", "x > 1e999999999", "x > 1e400F", "x > 1e40F", "x > 1e400D", "x > .5.", "x > 1e+",
        "/*)))*/" + "(" * 60 + "n" + ")" * 60 + " = 1", "s = ')))))))' OR " + "(" * 60 + "n = 1" + ")" * 60, "NOT " * 4000 + "TRUE", "-" * 4000,
        "(" * 9000, "CASE " * 3000, "INTERVAL " * 2000, "CAST(n AS " + "ARRAY<" * 2000 + "INT" + ">" * 2000 + ")", "{fn " * 3000,
        "s = 'a\x1b[2J", "\x1b[2J", "n = 1 \x00", "s = '\udc80'", "\ufeffn = 1", "upper" * 4000, "n = 1 AND `\udc80` = 2", "a." * 5000 + "n",
    ],
)  # fmt: skip
def test_whatever_is_wrong_is_told_in_printable_words(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        bound(text)
    assert str(caught.value).replace("\n", "").isprintable()
    assert len(str(caught.value)) < 3000


def test_numbers_up_to_the_largest() -> None:
    texts = [
        "x < 1.7976931348623157e308",
        "x > -1.7976931348623157E308",
        "x > 1e-400",
        "x < 3.4028234e38F",
        "x > 1e-99F",
    ]
    table = pa.Table.from_pylist([{"x": 1.0}], schema=SCHEMA)
    assert [column.to_pylist() for column in bound(*texts).evaluate(table)] == [[True]] * 5


def test_an_error_can_be_printed() -> None:
    error = AsterismError("a\x1b[2J\nb", "one\ntwo\x07", "c\rd\n")
    assert str(error) == "[ASTERISM_ERROR] a\\x1b[2J\\nb\n  one\n  two\\x07\n  Hint: c\\rd\\n"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert len(str(AsterismError("m" * 10**6, "d" * 10**6, "h" * 10**6))) < 30_000
    assert printable("plain ä 😀") == "plain ä 😀"


def test_the_place_is_under_the_text_that_is_shown() -> None:
    with pytest.raises(ExpressionSyntaxError) as caught:
        parse("s = '\x1b' AND substrng(s) = 'a'")
    _, shown, caret, _ = str(caught.value).split("\n")
    assert shown.index("substrng") == caret.index("^")


# ---------------------------------------------------------------------------------------------------- trying out


def compiler() -> ProcessorCompiler:
    return ProcessorCompiler(SCHEMA, ("s",), TimeColumn("at", pa.timestamp("us", "UTC")), Semantics.DEFAULT, {})


def test_a_rule_is_tried_out_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails on made-up events does not matter, what takes too long does."""
    rule = PatternProcessor(
        "r", 1, Pattern.begin("a").where("1 / n > 0 AND CAST(s AS INT) = 1"), select=("COUNT(a.*) AS m",)
    )
    assert compiler().try_out(rule).processor is rule
    monkeypatch.setattr("asterism.rules.binding.binding.TRIAL", 0.0)
    with pytest.raises(ExpressionError, match=r"took \d+\.\d s of CPU time for 8 events"):
        compiler().try_out(rule)


def test_what_duckdb_does_not_take_is_found_out_where_a_rule_is_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again where it is bound after that."""
    rule = PatternProcessor("r", 1, Pattern.begin("a").where("n > 1"), select=("SUM(a.n + 1) AS m",))
    monkeypatch.setattr("asterism.expressions.evaluation._query", lambda texts, name: "SELECT unknown_function(1)")
    assert compiler().bind(rule).processor is rule
    for method in (compiler().compile, compiler().try_out):
        with pytest.raises(ExpressionTypeError, match="unknown_function"):
            method(rule)


def test_made_up_events_fit_any_schema() -> None:
    types = [
        pa.bool_(), pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(38, 18), pa.decimal128(1, 1), pa.string(), pa.large_string(),
        pa.string_view(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.duration("us"), pa.list_(pa.string()),
        pa.map_(pa.string(), pa.int32()), pa.struct([("u", pa.int32())]), pa.null(), pa.dictionary(pa.int32(), pa.string()), pa.time64("us"),
    ]  # fmt: skip
    table = sample(pa.schema([(f"c{number}", kind) for number, kind in enumerate(types)]))
    assert table.num_rows == 8
    for column in table.columns:
        column.validate(full=True)


def test_costs_add_up() -> None:
    cost = values.Cost(2, 100, 3) + values.Cost(1, 1, 1).times(2)
    assert (cost.growth, cost.fixed, cost.program, cost.bytes(10)) == (4, 102, 5, 142)


def test_a_process_is_started_while_other_threads_evaluate() -> None:
    """As PySpark starts Java: what the child does between fork and exec deletes the data of threads that it does not have."""
    evaluated, over = threading.Event(), threading.Event()

    def evaluate() -> None:
        vectorized = Vectorized(pa.schema([("n", pa.int64())]))
        vectorized.add(parse("n + 1"), "n + 1")
        vectorized.evaluate(pa.table({"n": [1]}))
        evaluated.set()
        over.wait()

    threads = [threading.Thread(target=evaluate, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert evaluated.wait(30)
        started = subprocess.run([sys.executable, "-c", ""], preexec_fn=int, check=False)
        assert started.returncode == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()
