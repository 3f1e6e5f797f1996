"""Regular expressions: where RE2 does what Java does, both matchers agree; where it does not, the answers are Spark's."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from asterism.errors import ExpressionTypeError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.regex import regex
from asterism.expressions.routines import regexes
from asterism.expressions.routines.regexes import RegexMatcher, Text
from asterism.expressions.values import UnsupportedError

SCHEMA = pa.schema([("s", pa.string())])


def value(text: str, string: str | None = None) -> Any:
    vectorized = Vectorized(SCHEMA)
    vectorized.add(Scope(SCHEMA).resolve(parse(text), text), text)
    return vectorized.evaluate(pa.table({"s": pa.array([string], pa.string())}))[0].to_pylist()[0]


@pytest.mark.parametrize(
    ("text", "string", "answer"),
    [
        (r"regexp_replace(s, '\\s+$', '')", "a \n", "a"),
        (r"regexp_replace(s, '[ab]$', '<$0>')", "ab\r\n", "a<b>\r\n"),
        (r"regexp_extract(s, '(.)$')", "ab\n", "b"),
        (r"regexp_instr(s, 'b$')", "😀ab\n", 3),
        (r"regexp_extract_all(s, 'b*', 0)", "abc", ["", "b", "", ""]),
        (r"regexp_replace(s, 'b*', 'x')", "😀a", "x?x?xax"),  # half of a character is a question mark
        (r"regexp_replace(s, 'b*', 'x', 2)", "😀a", "😀xax"),
        (r"regexp_replace(s, '^b', 'x', 2)", "abb", "axb"),
        (r"regexp_count(s, '')", "abc", 4),
        (r"split(s, '')", "a😀", ["a", "😀"]),
        (r"split(s, '', 2)", "abc", ["a", "bc"]),
        (r"split(s, ',', 2)", "a,b,c", ["a", "b,c"]),
        (r"split(s, 'x*')", "axb", ["a", "", "b", ""]),
        (r"split(s, ',')", "", [""]),
        (r"split(s, '\\.')", "a.b.", ["a", "b", ""]),
        (r"regexp_extract(s, '(a)|b')", "b", ""),
        (r"regexp_extract_all(s, '(a)|b')", "ab", ["a", ""]),
        (r"regexp_replace(s, '(a)(b)', '$2$1\\$')", "ab", "ba$"),
        (r"regexp_substr(s, 'x')", "ab", None),
        (r"regexp_replace(s, 'x', 'y')", None, None),
    ],
)
def test_answers_of_spark(text: str, string: str | None, answer: Any) -> None:
    assert value(text, string) == answer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("regexp_extract(s, 'a')", "the pattern has no group 1"),
        ("regexp_extract(s, '(a)', 2)", "the pattern has no group 2"),
        ("regexp_replace(s, 'a', '$1')", "the pattern has no group 1"),
        ("regexp_replace(s, 'a', '$x')", "$ in the replacement is followed by the number of a group"),
        ("regexp_count(s, '(a*)+')", "a repeated group in the pattern can match the empty string"),
        ("split(s, s)", "the pattern must be a string literal"),
        ("repeat(regexp_replace(s, 'a', 'bbbbbbbbbbbbbbbbbbbb'), 6)", "100 times as large"),
    ],
)
def test_calls_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionTypeError) as refused:
        value(text)
    assert message in str(refused.value)


def test_both_matchers_find_the_same() -> None:
    """Patterns without ``$`` that cannot match the empty string, for which RE2 finds all matches as Java does."""
    rng, connection = random.Random(1), duckdb.connect()
    pieces = ["a", "b", "[ab]", "[^a]", ".", r"\w", "(a|b)", "(b|ab)", "^", "|", "+", "*?", "{2}", "{1,3}?", "?", "😀"]
    strings = ["", "a", "abab", "ba\nab😀", "aaabbb", "b😀😀a"]
    compared = 0
    for _ in range(400):
        pattern = "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 6)))
        try:
            parsed = regex(pattern)
        except UnsupportedError:
            continue
        if parsed.can_be_empty or parsed.repeats_nothing:
            continue
        for string in strings:
            text = Text(string)
            spans = list(RegexMatcher(parsed).spans(text))
            for group in range(parsed.groups + 1):
                mine = [text.part(*span[2 * group : 2 * group + 2]) if span[2 * group] >= 0 else None for span in spans]
                query = f"SELECT regexp_extract_all(?, ?, {min(group, 1)})"
                row = connection.execute(query, [string, parsed.for_re2([group])]).fetchone()
                assert row == (mine,), (pattern, string, group)
                compared += 1
    assert compared > 500


def test_steps_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that takes exponential time in Java takes linear time, and there is a limit."""
    assert not list(RegexMatcher(regex("(a|a)*b$")).spans(Text("a" * 300)))
    monkeypatch.setattr(regexes, "MAX_STEPS", 1000)
    with pytest.raises(ValueError, match="takes more than 1,000 steps"):
        list(RegexMatcher(regex("(a|a)*b$")).spans(Text("a" * 300)))
    with pytest.raises(ValueError, match="takes more than 1,000 steps"):
        list(RegexMatcher(regex("a{50}$")).spans(Text("a" * 300 + "b")))
