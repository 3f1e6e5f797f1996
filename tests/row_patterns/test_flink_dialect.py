"""Statements of Flink SQL give Flink's answers: those of the pattern into which Flink translates them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from asterism import AfterMatchSkipStrategy, Pattern
from asterism.errors import ExpressionSyntaxError, PatternError, SkipStrategyError
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.automaton import compiled_pattern
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.clause import ClauseDialect
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table
from asterism.testing import PatternHarness

SCHEMA = pa.schema({"ts": pa.int64(), "value": pa.int64(), "kind": pa.string()})
NAMES = "ABCD"
SKIPS = {
    "": AfterMatchSkipStrategy.skip_to_next(),
    "AFTER MATCH SKIP TO NEXT ROW": AfterMatchSkipStrategy.skip_to_next(),
    "AFTER MATCH SKIP PAST LAST ROW": AfterMatchSkipStrategy.skip_past_last_event(),
}
QUANTIFIERS = ["", "", "*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{2,3}", "{2,}", "{0,2}", "{1,2}?", "{2,}?"]
CONDITIONS = ["", "", "", " AND value - LAST(A.value) < 3"]
Element = tuple[str, str, str]
"""The quantifier, the letters that satisfy the condition, and its other part if it is not that of the first element."""


def answers(elements: list[Element], skip: str, within: int | None, letters: str) -> list[str]:
    """The rows of each match, as numbers, by the engine of row patterns."""
    variables = " ".join(name + quantifier for name, (quantifier, *_) in zip(NAMES, elements, strict=False))
    conditions = ", ".join(f"{name} AS {condition}" for name, condition in _conditions(elements))
    interval = "" if within is None else f"WITHIN INTERVAL '{within}' SECOND"
    text = f"ORDER BY ts MEASURES array_agg(value) AS rows {skip} PATTERN ({variables}) {interval} DEFINE {conditions}"
    numbers = range(len(letters))
    rows = pa.table([[1000 * n for n in numbers], [*numbers], [*letters]], schema=SCHEMA)
    found = match_table(check(read(text, ClauseDialect.FLINK), rows.schema), rows)
    return sorted(" ".join(map(str, row)) for row in found.column("rows").to_pylist())


def flinks_answers(elements: list[Element], skip: str, within: int | None, letters: str) -> list[str]:
    """The same by the engine of patterns, with Flink's semantics."""
    pattern: Any = None
    for (name, condition), (quantifier, *_) in zip(_conditions(elements), elements, strict=True):
        stage = Pattern.begin(name, SKIPS[skip]) if pattern is None else pattern.next(name)
        pattern = _quantified(stage.where(condition), quantifier)
    if within is not None:
        pattern = pattern.within(timedelta(seconds=within))
    harness = PatternHarness(pattern, semantics=Semantics.FLINK)
    for n, letter in enumerate(letters):
        harness.send(f"{letter}{n}@{n}s").advance_watermark(f"{n}s")
    found = harness.end().matches
    return sorted(" ".join(event[1:] for event in match.split()) for match in found)


def _conditions(elements: list[Element]) -> list[tuple[str, str]]:
    found = []
    for name, (_, letters, more) in zip(NAMES, elements, strict=False):
        listed = ", ".join(f"'{letter}'" for letter in letters)
        found.append((name, f"kind IN ({listed})" + (more if found else "")))
    return found


def _quantified(stage: Any, quantifier: str) -> Any:
    sign, greedy = quantifier.removesuffix("?"), not quantifier.endswith("?")
    match sign if quantifier != "?" else "?":
        case "":
            return stage
        case "?":
            return stage.optional()
        case "*":
            stage = stage.one_or_more().consecutive().optional()
        case "+":
            stage = stage.one_or_more().consecutive()
        case "{2}":
            return stage.times(2).consecutive()
        case "{2,}":
            stage = stage.times_or_more(2).consecutive()
        case _:
            least, most = map(int, sign[1:-1].split(","))
            stage = stage.times(max(least, 1), most).consecutive()
            stage = stage.optional() if least == 0 else stage
    return stage.greedy() if greedy else stage


# Flink SQL refuses a greedy loop at the end, and patterns that match no row.
elements_of_flink = st.lists(
    st.tuples(
        st.sampled_from(QUANTIFIERS),
        st.sets(st.sampled_from("abc"), min_size=1).map(sorted).map("".join),
        st.sampled_from(CONDITIONS),
    ),
    min_size=2,
    max_size=4,
).filter(
    lambda elements: (
        elements[-1][0] in ("", "+?", "*?", "{2}")
        and any(quantifier not in ("?", "*", "*?", "{0,2}") for quantifier, *_ in elements)
    )
)


@pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")  # such as a stage after a greedy loop
@given(
    elements_of_flink,
    st.sampled_from([*SKIPS]),
    st.sampled_from([None, None, 2, 3]),
    st.text("abc", max_size=8),
)
@settings(phases=[Phase.generate])  # what fails is short already
def test_answers_are_those_of_flinks_translation(
    elements: list[Element], skip: str, within: int | None, letters: str
) -> None:
    try:
        expected = flinks_answers(elements, skip, within, letters)
    except (PatternError, SkipStrategyError):
        assume(False)
    assert answers(elements, skip, within, letters) == expected


def test_defaults_and_what_flink_refuses() -> None:
    standard, flink = (read("PATTERN (A B* C) DEFINE A AS x > 1", dialect) for dialect in ClauseDialect)
    assert (str(standard.pattern), str(flink.pattern)) == ("A B* C", "A B* <not B> C")
    assert (standard.skip.to.value, flink.skip.to.value) == ("PAST LAST ROW", "TO NEXT ROW")
    # What Flink does not have means what it means in the standard.
    lifted = "PATTERN (A (B C)* (D | E) F+)"
    assert read(lifted, ClauseDialect.FLINK).pattern == read(lifted).pattern


def test_a_row_satisfies_one_greedy_loop_at_most() -> None:
    with pytest.raises(ExpressionSyntaxError) as raised:
        compiled_pattern(read("ORDER BY ts PATTERN (A B* C* D)", ClauseDialect.FLINK))
    assert str(raised.value) == (
        "[EXPRESSION_SYNTAX] in the dialect of Flink, a variable that may be left out cannot follow a greedy loop\n"
        "  ORDER BY ts PATTERN (A B* C* D)\n"
        "                       ^\n"
        "  Hint: a reluctant loop, as in B*?, or the standard's dialect"
    )


# ---------------------------------------------------------------------- absence and timeouts

BEGIN = Pattern.begin("A").where("kind = 'a'")
TRANSLATED: list[tuple[str, str, Any]] = [
    ("A {- X*? -} C", "SKIP TO NEXT ROW", BEGIN.followed_by("C").where("kind = 'c'")),
    ("A {- X* -} C", "NO SKIP", BEGIN.followed_by_any("C").where("kind = 'c'")),
    ("A {- X*? -} [^B]", "SKIP TO NEXT ROW", BEGIN.not_followed_by("B").where("kind = 'b'")),
    (
        "A {- X*? -} [^B] C",
        "SKIP TO NEXT ROW",
        BEGIN.not_followed_by("B").where("kind = 'b'").followed_by("C").where("kind = 'c'"),
    ),
    ("A [^B] C", "SKIP TO NEXT ROW", BEGIN.not_next("B").where("kind = 'b'").next("C").where("kind = 'c'")),
    (
        "A [^B] {- X*? -} C",
        "SKIP TO NEXT ROW",
        BEGIN.not_next("B").where("kind = 'b'").followed_by("C").where("kind = 'c'"),
    ),
]


@pytest.mark.parametrize(("pattern", "skip", "translated"), TRANSLATED, ids=[one[0] for one in TRANSLATED])
@given(st.integers(1, 4), st.text("abcx", max_size=9))
@settings(max_examples=12)
def test_absence_and_timeouts_are_those_of_flinks_translation(
    pattern: str, skip: str, translated: Any, within: int, letters: str
) -> None:
    defined = ", ".join(f"{name} AS kind = '{name.lower()}'" for name in "ABC" if name in pattern)
    last = ", C.value AS c" if "C" in pattern else ""
    text = (
        f"ORDER BY ts MEASURES A.value AS a{last}, MATCH_TIMEOUT() AS late ONE ROW PER MATCH SHOW TIMEOUT MATCHES"
        f" AFTER MATCH {skip} PATTERN ({pattern}) WITHIN INTERVAL '{within}' SECOND DEFINE {defined}"
    )
    rows = pa.table([[1000 * n for n in range(len(letters))], [*range(len(letters))], [*letters]], schema=SCHEMA)
    found: dict[bool, list[str]] = {False: [], True: []}
    for row in match_table(check(read(text, ClauseDialect.FLINK), SCHEMA), rows).to_pylist():
        events = [f"{name}{row[name]}" for name in "ac" if row.get(name) is not None]
        found[row["late"]].append(" ".join(events))
    harness = PatternHarness(translated.within(timedelta(seconds=within)), semantics=Semantics.FLINK)
    for n, letter in enumerate(letters):
        harness.send(f"{letter}{n}@{n + 1}s").advance_watermark(f"{n + 1}s")  # without a timer at time 0
    harness.end()
    assert sorted(found[False]) == sorted(harness.matches)
    if skip != "NO SKIP":  # there also what has matched times out
        assert sorted(found[True]) == sorted(harness.timed_out)
