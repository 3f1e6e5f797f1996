"""Patterns as text."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from asterism import AfterMatchSkipStrategy, Pattern, Semantics, WithinType
from asterism.cli.main import main
from asterism.errors import MalformedPatternError, printable
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import Condition, NotCondition, PythonCondition, SqlCondition
from asterism.patterns.explain import MAX_STATES, describe
from asterism.patterns.wording import condition_text, count_text, quantifier_words
from asterism.text.printable import duration, one_line

EXAMPLES = Path(__file__).parents[2] / "examples"


def lines(pattern: Pattern) -> list[str]:
    return describe(pattern).splitlines()


def test_stages_are_told_as_one_would_say_them() -> None:
    pattern = (
        Pattern.begin("a", AfterMatchSkipStrategy.skip_to_first("d", throw_on_miss=True))
        .where("x > 1")
        .where("y = 2")
        .or_("z")
        .not_next("b")
        .followed_by("c")
        .times_or_more(2, within=timedelta(seconds=5))
        .greedy()
        .until("x < 0\n  OR y < 0")
        .followed_by_any("d")
        .within(timedelta(minutes=1), WithinType.PREVIOUS_AND_CURRENT)
        .not_followed_by("e")
        .within(timedelta(hours=1))
    )
    assert lines(pattern) == [
        '1. begin "a": once',
        "     where (x > 1 AND y = 2) OR z",
        '2. not next "b"',
        "     any event",
        '3. followed by "c": 2 or more times, relaxed, greedy, less than 5 s apart',
        "     any event",
        "     until x < 0",
        "             OR y < 0",
        '4. followed by any "d": once',
        "     any event",
        "     within 1 min of the event before",
        '5. not followed by "e"',
        "     any event",
        "     within 1 h of the first event of the match",
        "window: less than 1 h from first to last event",
        'after a match: SKIP_TO_FIRST: partial matches that began before its first event of "d" are discarded, '
        "and the match must have such an event",
    ]


def test_groups_are_indented() -> None:
    inner = Pattern.begin("b").next(Pattern.begin("c").next("d")).optional()
    output = lines(Pattern.begin("a").followed_by(inner).times(2, 4).consecutive())
    assert output[2:] == [
        "2. followed by group (b (c d)): 2 to 4 times, consecutive",
        '   2.1. begin "b": once',
        "          any event",
        "   2.2. next group (c d): once or not at all",
        '      2.2.1. begin "c": once',
        "               any event",
        '      2.2.2. next "d": once',
        "               any event",
        "after a match: NO_SKIP: nothing is discarded",
    ]


def test_what_flink_lacks_is_told_as_one_would_say_it() -> None:
    pattern = (
        Pattern.begin_without("x")
        .where("kind = 'x'")
        .within(timedelta(hours=1), inclusive=True)
        .followed_by("a")
        .one_or_more()
        .greedy(give_back=True)
        .next(Pattern.any_of("b", Pattern.in_any_order("c", Pattern.begin("d").next("e"), consecutive=True)))
        .followed_by("f")
        .optional()
        .reluctant()
        .followed_by("g")
        .times(2, 3)
        .longest()
        .within(timedelta(hours=2), inclusive=True)
        .starts_with_first_event()
        .subset("u", "a", "b")
        .skip_strategy(AfterMatchSkipStrategy.first_match_only())
    )
    assert lines(pattern) == [
        '1. begin without "x"',
        "     where kind = 'x'",
        "     within 1 h before the match, inclusive",
        '2. followed by "a": 1 or more times, relaxed, greedy, gives back',
        "     any event",
        "3. next one of (b | (c & (d e))): once",
        '   3.1. alternative "b": once',
        "          any event",
        "   3.2. alternative all of (c & (d e)) in any order, consecutive: once",
        '      3.2.1. element "c": once',
        "               any event",
        "      3.2.2. element group (d e): once",
        '         3.2.2.1. begin "d": once',
        "                    any event",
        '         3.2.2.2. next "e": once',
        "                    any event",
        '4. followed by "f": once or not at all, reluctant',
        "     any event",
        '5. followed by "g": 2 to 3 times, relaxed, longest',
        "     any event",
        "     within 2 h of the first event of the match, inclusive",
        "window: at most 2 h from first to last event",
        "begins with the first event of the key",
        'subset "u": a, b',
        "after a match: FIRST_MATCH_ONLY: all further matches of the key are discarded",
    ]


def test_incomplete_pattern_can_be_described_but_has_no_automaton() -> None:
    pattern = Pattern.begin("a").not_followed_by("b")
    assert lines(pattern)[2] == '2. not followed by "b"'
    with pytest.raises(MalformedPatternError, match="without a time bound"):
        pattern.explain()


def test_automaton_is_that_of_the_semantics() -> None:
    pattern = Pattern.begin("a").followed_by("b").times(2, within=timedelta(seconds=5))
    ours, flinks = pattern.explain(), pattern.explain(Semantics.FLINK)
    assert ours == pattern.explain(Semantics.DEFAULT)
    assert "automaton (default semantics)\n" in ours
    assert "b NORMAL gap < 5 s" in ours
    assert "automaton (flink semantics)\n" in flinks
    assert "b:0 NORMAL gap < 5 s" in flinks
    assert ours.splitlines()[:5] == flinks.splitlines()[:5]


def test_edges_have_guards_and_gaps() -> None:
    pattern = (
        Pattern.begin("a").where("x").one_or_more(within=timedelta(seconds=5)).next("b").where(lambda events: events)
    )
    assert compile_pattern(pattern).explain() == "\n".join(
        [
            "c0: Python test_edges_have_guards_and_gaps.<locals>.<lambda>",
            "c1: x",
            "a:1 START",
            "  TAKE -> a if c1",
            "a:0 NORMAL gap < 5 s",
            "  TAKE -> a if c1",
            "  IGNORE -> a:0 if not c1",
            "a NORMAL",
            "  PROCEED -> b if always",
            "  TAKE -> a if c1 within 5 s",
            "  IGNORE -> a:0 if not c1 within 5 s",
            "b NORMAL",
            "  TAKE -> $end if c0",
            "$end FINAL",
        ]
    )


def test_large_automaton_is_cut_off() -> None:
    output = Pattern.begin("a").times(1000).explain()
    assert output.endswith(f"... and {1001 - MAX_STATES} more states")
    assert len(output) < 20_000
    assert "more states" not in compile_pattern(Pattern.begin("a").times(1000)).explain()


def test_text_from_outside_cannot_command_a_terminal() -> None:
    evil = "\x1b[2J\u202e\x07"
    output = Pattern.begin(evil).where(f"x = '{evil}'").explain()
    assert "\x1b" not in output
    assert "\u202e" not in output
    assert "\\x1b[2J\\u202e\\x07" in output


def test_conditions_of_all_kinds_have_a_text() -> None:
    class Callable:
        def __call__(self, events: object) -> object:
            return events

    assert condition_text(PythonCondition(Callable())) == "Python Callable"
    assert condition_text(Condition()) == "Condition"
    a, b, c = SqlCondition("a"), SqlCondition("b or c"), SqlCondition("d")
    assert condition_text(a.and_(b).or_(c)) == "(a AND (b or c)) OR d"
    assert condition_text(NotCondition(a)) == "NOT (a)"


def test_long_chains_of_conditions_have_a_text() -> None:
    pattern = Pattern.begin("a")
    for number in range(100):
        pattern = pattern.where(f"x <> {number}")
    assert "x <> 98 AND x <> 99" in describe(pattern)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5, microseconds=6),
            "1 d 2 h 3 min 4 s 5 ms 6 µs",
        ),
        (timedelta(seconds=-90), "-1 min 30 s"),
        (timedelta(0), "0 s"),
    ],
)
def test_durations(value: timedelta, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(
    ("pattern", "short", "long"),
    [
        (Pattern.begin("a"), "", "once"),
        (Pattern.begin("a").optional(), "?", "once or not at all"),
        (Pattern.begin("a").times(3), "3", "3 times, relaxed"),
        (Pattern.begin("a").times(0, 2), "1..2 or 0", "1 to 2 times or not at all, relaxed"),
        (Pattern.begin("a").one_or_more().allow_combinations(), "1+", "1 or more times, combinations"),
        (Pattern.begin("a").times_or_more(2).optional(), "2+ or 0", "2 or more times or not at all, relaxed"),
        (Pattern.begin("a").times(1), "1", "once"),
    ],
)
def test_quantifiers(pattern: Pattern, short: str, long: str) -> None:
    quantifier = pattern.stages[0].quantifier
    assert (count_text(quantifier), quantifier_words(quantifier)) == (short, long)


def test_texts_are_shortened() -> None:
    assert one_line("a " * 1000, 5) == "a a …"
    assert one_line("a", 1) == "a"
    assert printable("a\nb\tc") == "a\nb\\tc"


def test_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["explain", str(EXAMPLES / "patterns/brute_force.json"), "--semantics", "flink"])
    assert result.exit_code == 0
    assert result.stdout.startswith('1. begin "fails": 3 or more times, relaxed\n')
    assert "automaton (flink semantics)" in result.stdout

    drawing = tmp_path / "drawing.svg"
    result = CliRunner().invoke(main, ["explain", str(EXAMPLES / "patterns/brute_force.json"), "--svg", str(drawing)])
    assert result.stdout == f"drawing written to {drawing}\n"
    assert drawing.read_text(encoding="utf-8").startswith("<svg ")


def test_command_says_what_is_wrong(tmp_path: Path) -> None:
    pattern = tmp_path / "pattern.json"
    pattern.write_text("{", encoding="utf-8")
    assert CliRunner().invoke(main, ["explain", str(pattern)]).exit_code == 2
    node = {"name": "a", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}
    pattern.write_text(json.dumps({"type": "COMPOSITE", "edges": [], "nodes": [node]}), encoding="utf-8")
    result = CliRunner().invoke(main, ["explain", str(pattern), "--svg", str(tmp_path / "no" / "x.svg")])
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
