"""MATCH_RECOGNIZE over a stream without Spark: however the rows arrive, the answer is that for the table."""

from __future__ import annotations

import math
import random
import re
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InvalidEventError, LimitExceededError, SkipStrategyError
from asterism.expressions.evaluation import tried_before
from asterism.operators.key_group import complete
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.row_patterns import search
from asterism.row_patterns.checking import CheckedClause, check
from asterism.row_patterns.clause.clause import Exclusion
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.current_row import WORDS
from asterism.row_patterns.operator import DROPPED, LATE_ROWS, MATCHES, RowPatternOperator
from asterism.row_patterns.result_rows import match_table
from asterism.testing import OperatorHarness
from tests.kit import examples
from tests.row_patterns.cases import PATTERNS, PatternCase, Row
from tests.row_patterns.strategies import patterns
from tests.row_patterns.test_match_table_property import (
    CONDITIONS,
    MEASURES,
    OF_THE_MATCH,
    ROWS,
    SCHEMA,
    SKIPS,
    some_rows,
)

MILLISECOND = 1000
Feed = Callable[[OperatorHarness, pa.Table], OperatorHarness]


def checked_clause(text: str, schema: pa.Schema) -> CheckedClause:
    with tried_before():
        return check(read(text), schema)


def by_key(clause: CheckedClause, rows: pa.Table) -> dict[tuple[Any, ...], list[Row]]:
    """The rows of a result in their order, by partition."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows.to_pylist():
        found.setdefault(tuple(row.values())[: len(clause.partition_by)], []).append(row)
    return found


def pass_watermark(harness: OperatorHarness, rows: pa.Table) -> None:
    """Everything up to the last of these rows has arrived."""
    harness.feed_watermark(rows.column("ts")[-1].as_py() * MILLISECOND)


def in_pieces(*cuts: int) -> Feed:
    def feed(harness: OperatorHarness, rows: pa.Table) -> OperatorHarness:
        bounds = [0, *(cut for cut in sorted(cuts) if cut < rows.num_rows), rows.num_rows]
        for begin, end in pairwise(bounds):
            piece = rows.slice(begin, end - begin)
            if piece.num_rows:
                harness.feed(piece)
                pass_watermark(harness, piece)
        return harness

    return feed


def row_by_row(harness: OperatorHarness, rows: pa.Table) -> OperatorHarness:
    return in_pieces(*range(rows.num_rows))(harness, rows)


def with_restarts(harness: OperatorHarness, rows: pa.Table) -> OperatorHarness:
    for number in range(rows.num_rows):
        row = rows.slice(number, 1)
        harness.feed(row)
        pass_watermark(harness, row)
        fresh = OperatorHarness(harness.operator, keys=harness.keys, key_groups=len(harness.stores))
        fresh.restore(harness.snapshot())
        harness = fresh
    return harness


WAYS: dict[str, Feed] = {"whole": in_pieces(), "row by row": row_by_row, "with restarts": with_restarts}


class WordsBySpark(RowPatternOperator):
    """Its rows arrive as from Spark: with their bits, if Spark can compute them, and without columns that only these read."""

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        if self.current_row.words_sql is not None:
            words = self.current_row.words(complete(events, self.schema))
            gone = set(self.schema.names) - set(self.columns_beside_words)
            events = events.drop_columns([column for column in events.column_names if column in gone])
            events = events.append_column(WORDS, words)
        return super().prepare(name, events)


def streamed(
    clause: CheckedClause,
    rows: pa.Table,
    feed: Feed,
    *,
    operator: type[RowPatternOperator] = RowPatternOperator,
    **options: Any,
) -> OperatorHarness:
    made = operator(clause, rows.schema, **options)
    harness = feed(OperatorHarness(made, keys=[], key_groups=1), rows).end()
    assert all(store.is_empty for store in harness.stores)
    return harness


def assert_as_table(clause: CheckedClause, rows: pa.Table, feed: Feed) -> None:
    try:
        expected = by_key(clause, match_table(clause, rows))
    except SkipStrategyError:
        with pytest.raises(SkipStrategyError):
            streamed(clause, rows, feed)
        return
    assert by_key(clause, streamed(clause, rows, feed).output(MATCHES)) == expected


LETTERS = pa.schema({"ts": pa.int64(), "c": pa.string()})


@pytest.mark.parametrize("case", PATTERNS, ids=lambda case: f"{case.pattern} on {case.letters}")
def test_pattern_row_by_row(case: PatternCase) -> None:
    clause = checked_clause(case.clause, LETTERS)
    assert_as_table(clause, pa.Table.from_pylist(case.input, LETTERS), row_by_row)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("key", ["k", "k * 1"])
def test_partitions_are_the_groups_of_spark(key: str, kind: pa.DataType) -> None:
    """-0.0 is 0.0, and every NaN is the same."""
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8 << 48))[0]
    keys = [0.0, -0.0, math.nan, other_nan, None, None]
    rows = pa.table({"ts": pa.array(range(1, 7)), "k": pa.array(keys, kind)})
    clause = checked_clause(
        f"PARTITION BY {key} AS k ORDER BY ts MEASURES A.ts AS a, B.ts AS b PATTERN (A B)", rows.schema
    )
    for found in (match_table(clause, rows), streamed(clause, rows, row_by_row).output(MATCHES)):
        answers = sorted(found.to_pylist(), key=lambda row: row["a"])
        assert [repr(row["k"]) for row in answers] == ["0.0", "nan", "None"]
        assert [(row["a"], row["b"]) for row in answers] == [(1, 2), (3, 4), (5, 6)]


@given(
    patterns("ABC").filter(lambda node: len(str(node)) < 60),
    st.lists(st.sampled_from([*CONDITIONS, *OF_THE_MATCH]), min_size=3, max_size=3),
    some_rows,
    st.sampled_from(SKIPS),
    st.sampled_from(ROWS),
    st.sampled_from(["", "", "WITHIN INTERVAL '2' SECOND"]),
    st.sampled_from([*sorted(WAYS), "cut"]),
    st.integers(1, 8),
)
def test_stream_and_table_agree(
    pattern: Any, conditions: list[str], rows: list[Row], skip: str, output: str, within: str, way: str, cut: int
) -> None:
    clause = clause_of(pattern, conditions, skip, output, within)
    assert_as_table(clause, table_of(rows), WAYS.get(way) or in_pieces(cut, 2 * cut))


def clause_of(pattern: Any, conditions: list[str], skip: str, output: str, within: str) -> CheckedClause:
    if any(isinstance(node, Exclusion) for node in pattern.walk()):
        output = output.replace(" WITH UNMATCHED ROWS", "")
    defined = ", ".join(
        f"{name} AS {text.format(name.lower() if 'c =' in text else name)}"
        for name, text in zip("ABC", conditions, strict=True)
        if text
    )
    return checked_clause(
        f"PARTITION BY k ORDER BY ts MEASURES {MEASURES} {output} AFTER MATCH SKIP {skip} PATTERN (({pattern}) | $ ^ A B C)"
        f" {within} SUBSET U = (A, B) {'DEFINE ' if defined else ''}{defined}",
        SCHEMA,
    )


def table_of(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([row | {"ts": 1000 * (row["ts"] + 1)} for row in rows], SCHEMA)


@given(
    patterns("ABC").filter(lambda node: len(str(node)) < 60),
    st.lists(st.sampled_from([*CONDITIONS, *OF_THE_MATCH]), min_size=3, max_size=3),
    some_rows,
    st.sampled_from(SKIPS[:2]),
    st.sampled_from(ROWS),
    st.sampled_from(["", "", "WITHIN INTERVAL '3' SECOND"]),
    st.integers(1, 3),
    st.integers(1, 8),
)
def test_limit_does_not_depend_on_cuts(
    pattern: Any, conditions: list[str], rows: list[Row], skip: str, output: str, within: str, limit: int, cut: int
) -> None:
    clause = clause_of(pattern, conditions, skip, output, within)
    ways = [in_pieces(), row_by_row, in_pieces(cut)]
    found = [streamed(clause, table_of(rows), way, max_rows=limit, on_limit="drop") for way in ways]
    answers = [(by_key(clause, one.output(MATCHES)), one.metrics[DROPPED], one.metrics[MATCHES]) for one in found]
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
    if answers[0][1]:
        for way in ways:
            with pytest.raises(LimitExceededError):
                streamed(clause, table_of(rows), way, max_rows=limit)


@pytest.mark.parametrize("condition", ["v = 9", "v = 9 AND COUNT(X.*) > 1"], ids=["of the row", "of the match"])
@pytest.mark.parametrize("key", ["x", "y", "z"])
def test_limit_names_the_partition(key: str, condition: str) -> None:
    """Of three in one key group, of which only one waits."""
    text = f"PARTITION BY k ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A X* B) DEFINE A AS v = 0, B AS {condition}"
    rows = [{"k": k, "ts": n, "c": "a", "v": n if k == key else 1} for n in range(4) for k in "xyz"]
    with pytest.raises(LimitExceededError, match=f"The first of them: k = '{key}', ts = 1000"):
        streamed(checked_clause(text, SCHEMA), table_of(rows), in_pieces(), max_rows=2)


# Some of these take more steps than LIMIT for some of the rows, also if not all rows of a match are known.
HEAVY = [
    "PATTERN ((A | B)+ C) WITHIN INTERVAL '8' SECOND DEFINE C AS SUM(A.v * A.v * A.v) = 44 AND SUM(B.v * B.v) = 13",
    "PATTERN ((A | B)+ C) DEFINE C AS v = 0 AND SUM(A.v * A.v * A.v) = 2 * SUM(B.v * B.v)",
    "PATTERN (A+ (A | B)* C) DEFINE A AS v > 0, B AS v > 0, C AS SUM(A.v * A.v) - SUM(B.v) = 11",
]
LIMIT = 1000


@pytest.mark.parametrize("text", HEAVY[:1])
def test_limit_of_steps_does_not_depend_on_cuts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the table is answered, so is each stream; where a search takes too long in the table, it does in each stream."""
    monkeypatch.setattr(search, "MAX_STEPS", LIMIT)
    clause = checked_clause(f"ORDER BY ts MEASURES FIRST(ts) AS a, LAST(ts) AS b {text}", SCHEMA)
    failures = 0
    for seed in range(seeds := examples(12, usual=30)):
        rng = random.Random(seed)
        count = rng.randint(3, 16)
        rows = table_of([{"k": "x", "ts": n, "c": "a", "v": rng.randrange(4)} for n in range(count)])
        cuts = sorted(rng.sample(range(1, count), rng.randint(1, 2)))
        try:
            expected = match_table(clause, rows).to_pylist()
        except LimitExceededError:
            failures += 1
            for way in (row_by_row, in_pieces(*cuts)):
                with pytest.raises(LimitExceededError, match="steps"):
                    streamed(clause, rows, way)
            continue
        for way in (in_pieces(), row_by_row, in_pieces(*cuts)):
            assert streamed(clause, rows, way).rows(MATCHES) == expected, (seed, cuts)
    assert 0 < failures < seeds - 3


# ---------------------------------------------------------------------- when


def given_out(text: str, letters: str, schema: pa.Schema = LETTERS, *, ends: bool = False) -> str:
    """For each row, the number of matches that are emitted when it arrives; then how many at the end."""
    clause = checked_clause(f"ORDER BY ts MEASURES MATCH_NUMBER() AS n {text}", schema)
    harness = OperatorHarness(RowPatternOperator(clause, schema))
    numbers = []
    for number, letter in enumerate(letters):
        before = harness.metrics[MATCHES]
        if letter != "-":  # nothing comes, and time passes
            harness.feed(pa.Table.from_pylist([{"ts": 1000 * number, "c": letter}], schema))
        harness.feed_watermark(1_000_000 * number)
        numbers.append(harness.metrics[MATCHES] - before)
    before = harness.metrics[MATCHES]
    harness.end()
    assert harness.is_empty
    return "".join(map(str, numbers)) + "|" + str(harness.metrics[MATCHES] - before)


@pytest.mark.parametrize(
    ("text", "letters", "when"),
    [
        ("PATTERN (A B)", "abab", "0101|0"),
        ("PATTERN (A B?)", "aba", "010|1"),
        ("PATTERN (A B??)", "aba", "101|0"),
        ("PATTERN (A+)", "aabaa", "00100|1"),
        ("PATTERN (A B+ C | A)", "abbx", "0001|0"),
        ("PATTERN (A B+ C | A)", "abb", "000|1"),
        ("PATTERN (A $ | A)", "ab", "01|0"),
        ("PATTERN (A $)", "a-b", "000|0"),
        ("PATTERN (A $)", "ba--", "0000|1"),
        ("PATTERN (A B*) WITHIN INTERVAL '3' SECOND", "ab-----", "0001000|0"),
        ("PATTERN (A B C | A) WITHIN INTERVAL '2' SECOND", "a-----", "001000|0"),
        ("PATTERN (A X) ", "axax", "0101|0"),
        ("ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A A)", "aaa", "011|0"),
        ("PATTERN (A {- X*? -} [^B]) WITHIN INTERVAL '3' SECOND", "a-----", "000100|0"),
        ("PATTERN (A {- X*? -} [^B]) WITHIN INTERVAL '3' SECOND", "axxb--", "000000|0"),
        ("PATTERN (A {- X*? -} [^B]) WITHIN INTERVAL '3' SECOND", "axxxb-", "000100|0"),
        ("PATTERN (A {- X*? -} [^B]) WITHIN INTERVAL '3' SECOND", "ax", "00|1"),
        ("PATTERN (A {- X*? -} [^B] C)", "axcab", "00100|0"),
        ("PATTERN (A [^B])", "axab", "0100|0"),
        ("PATTERN (A [^B])", "a---", "0000|1"),
        ("PATTERN (A [^B]) WITHIN INTERVAL '2' SECOND", "a---", "0010|0"),
        ("PATTERN (A+{B})", "aab", "001|0"),
        ("ONE ROW PER MATCH SHOW TIMEOUT MATCHES PATTERN (A B) WITHIN INTERVAL '2' SECOND", "a---ab", "001001|0"),
        ("ONE ROW PER MATCH SHOW TIMEOUT MATCHES PATTERN (A B) WITHIN INTERVAL '2' SECOND", "ac---", "00000|0"),
        ("ONE ROW PER MATCH SHOW TIMEOUT MATCHES PATTERN (A B) WITHIN INTERVAL '2' SECOND", "ca", "00|1"),
        ("ONE ROW PER MATCH SHOW TIMEOUT MATCHES PATTERN (A+ B) WITHIN INTERVAL '2' SECOND", "aa---", "00110|0"),
        ("AFTER MATCH NO SKIP PATTERN (A B)", "abab", "0101|0"),
        ("AFTER MATCH NO SKIP PATTERN (A B+)", "abbc", "0002|0"),
        ("AFTER MATCH NO SKIP PATTERN (A B+) WITHIN INTERVAL '2' SECOND", "abb-", "0020|0"),
    ],
)
def test_match_is_given_out_when_nothing_can_change_it(text: str, letters: str, when: str) -> None:
    variables = dict.fromkeys(re.findall(r"\b[ABC]\b", text))
    defined = ", ".join(f"{name} AS c = '{name.lower()}'" for name in variables)
    assert given_out(f"{text} DEFINE {defined}", letters) == when


def test_empty_match_before_rows_that_are_not_known_yet() -> None:
    text = "ORDER BY ts MEASURES MATCH_NUMBER() AS n PATTERN (^ | B) DEFINE B AS NEXT(c, 2) IS NULL"
    clause = checked_clause(text, LETTERS)
    rows = pa.Table.from_pylist([{"ts": 1000 * n, "c": c} for n, c in enumerate("abcde")], LETTERS)
    assert_as_table(clause, rows, row_by_row)


def test_match_waits_for_rows_that_are_read_after_it() -> None:
    assert given_out("PATTERN (A) DEFINE A AS NEXT(c) = 'b'", "abaa", LETTERS) == "0100|0"
    schema = LETTERS
    clause = checked_clause("ORDER BY ts MEASURES NEXT(c, 2) AS later PATTERN (A) DEFINE A AS c = 'a'", schema)
    rows = pa.Table.from_pylist([{"ts": 1000 * n, "c": c} for n, c in enumerate("abcab")], schema)
    assert streamed(clause, rows, row_by_row).rows(MATCHES) == [{"later": "c"}, {"later": None}]


# ---------------------------------------------------------------------- state


KEYED = (
    "PARTITION BY k ORDER BY ts, v DESC MEASURES FIRST(v) AS a, LAST(v) AS b PATTERN (A B+ C)"
    " DEFINE A AS c = 'a', B AS c = 'b', C AS c = 'c'"
)


def random_rows(count: int, seed: int, keys: int = 30) -> pa.Table:
    rng = random.Random(seed)
    rows: list[Row] = []
    for number in range(count):
        time = 1000 * (number // 2 + 1)
        rows.append({"k": f"k{rng.randrange(keys)}", "ts": time, "c": rng.choice("abbc"), "v": number})
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.mark.parametrize("pages", [None, 1, 4])
def test_keys_in_groups_and_pages(pages: int | None) -> None:
    clause = checked_clause(KEYED, SCHEMA)
    rows = random_rows(600, 1)
    expected = match_table(clause, rows).to_pylist()
    assert len(expected) > 10
    harness = OperatorHarness(RowPatternOperator(clause, SCHEMA, pages=pages), keys=["k"], key_groups=3)
    for begin in range(0, 600, 50):
        harness.feed(rows.slice(begin, 50))
        # Two rows have the same time: both have arrived.
        harness.feed_watermark(rows.column("ts")[begin + 49].as_py() * MILLISECOND)
    harness.end()
    assert harness.is_empty
    assert in_any_order(harness.rows(MATCHES)) == in_any_order(expected)


def in_any_order(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


def test_rows_of_decided_matches_are_not_kept() -> None:
    clause = checked_clause("ORDER BY ts MEASURES A.ts AS t PATTERN (A B) DEFINE A AS c = 'a', B AS c = 'b'", LETTERS)
    harness = OperatorHarness(RowPatternOperator(clause, LETTERS))
    sizes = []
    for round_ in range(1, 6):
        rows = [{"ts": 1_000_000 * round_ + n, "c": c} for n, c in enumerate("xxab" * 100)]
        harness.feed(pa.Table.from_pylist(rows, LETTERS))
        harness.feed_watermark((1_000_000 * round_ + len(rows)) * MILLISECOND)
        sizes.append(len(harness.stores[0].header or b"") + sum(map(len, harness.stores[0].pages.values())))
    assert harness.stores[0].pages.keys() == {DEFINITION_PAGE}
    assert len(set(sizes)) == 1
    assert harness.metrics[MATCHES] == 500


def test_late_rows() -> None:
    clause = checked_clause("ORDER BY ts MEASURES A.ts AS t PATTERN (A)", LETTERS)
    harness = OperatorHarness(RowPatternOperator(clause, LETTERS, outputs=[MATCHES, LATE_ROWS]))
    row = [{"ts": 1000, "c": "a"}]
    harness.feed(pa.Table.from_pylist(row, LETTERS)).feed_watermark(5_000_000)
    harness.feed(pa.Table.from_pylist([{"ts": 2000, "c": "b"}, {"ts": None, "c": "c"}], LETTERS)).end()
    assert harness.rows(LATE_ROWS) == [{"ts": 2000, "c": "b"}, {"ts": None, "c": "c"}]
    assert harness.rows(MATCHES) == [{"t": 1000}]


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("last", [9, 1])
def test_condition_that_fails_matters_if_a_match_can_be_completed(way: str, last: int) -> None:
    """Row by row, it is not known yet in the second row whether a C follows."""
    clause = checked_clause(
        "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A B C) DEFINE A AS v > 4, B AS 70 DIV v > 8, C AS v = 9",
        SCHEMA,
    )
    rows = table_of([{"k": "x", "ts": n, "c": "a", "v": v} for n, v in enumerate([5, 0, last, 5, 7, 9])])
    if last == 9:
        with pytest.raises(InvalidEventError, match="division by zero"):
            match_table(clause, rows)
        with pytest.raises(InvalidEventError, match="division by zero"):
            streamed(clause, rows, WAYS[way])
    else:
        assert streamed(clause, rows, WAYS[way]).output(MATCHES).to_pylist() == [{"n": 3}]
        assert_as_table(clause, rows, WAYS[way])


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize(
    "pattern",
    ["(A B C* E) | C", "(A B $) | C | (E ^)"],
    ids=["a completed match would be too long", "the last known row need not be the end"],
)
def test_condition_that_fails_where_no_match_can_be_completed(way: str, pattern: str) -> None:
    clause = checked_clause(
        f"ORDER BY ts MEASURES COUNT(*) AS n PATTERN ({pattern})"
        " DEFINE A AS v = 5, B AS 70 DIV v > 8, C AS v < 4, E AS v = 9",
        SCHEMA,
    )
    rows = table_of([{"k": "x", "ts": n, "c": "a", "v": v} for n, v in enumerate([5, 0, 1, 2, 3, 9])])
    harness = streamed(clause, rows, WAYS[way], max_rows=4, on_limit="drop")
    assert harness.output(MATCHES).to_pylist() == [{"n": 1}] * 4
