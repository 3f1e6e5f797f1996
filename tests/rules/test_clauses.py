"""Rules whose pattern is a MATCH_RECOGNIZE clause: they find what the clause finds in the table of the events."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.columns.time import TimeColumn
from asterism.errors import (
    AsterismError,
    ExpressionError,
    ExpressionSyntaxError,
    LimitExceededError,
    PatternProcessorError,
)
from asterism.expressions.evaluation import tried_before
from asterism.matching.spec import PROCESSING_TIME
from asterism.operators.state.page_numbers import CLAUSES_PAGE
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.operator import RowPatternOperator
from asterism.row_patterns.result_rows import match_table
from asterism.rules.binding.binding import BoundClauseProcessor, ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching import operator as dynamic_cep
from asterism.rules.matching.result_rows import ERRORS, LATE, MATCHES, _as_strings
from asterism.rules.sets.sets import stored
from tests.kit import FACTOR, examples
from tests.rules.driver import SCHEMA, Driver, Event, at, chain, cuts, processor, table_of
from tests.rules.test_coordinator import coordinator
from tests.rules.test_validation import problems_of

AB = processor("ab", 1, chain("a", "b"))
DEFINED = "DEFINE A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'"


def clause(pattern: str, *, key: str = "user", more: str = "", measures: str | None = None) -> str:
    names = [name for name in "ABC" if name in pattern]
    measures = measures or "FIRST(ts) AS f, LAST(ts) AS l, COUNT(*) AS n, LAST(x, 1) AS x, PREV(FIRST(kind)) AS p"
    defined = ", ".join(f"{name} AS kind = '{name.lower()}'" for name in names)
    return f"PARTITION BY {key} ORDER BY ts, item MEASURES {measures} {more} PATTERN ({pattern}) DEFINE {defined}"


def rule(name: str, version: int, sql: str, **more: Any) -> PatternProcessor:
    return PatternProcessor(name, version, sql=sql, **more)


def e(second: int | None, kind: str, user: str = "ann", item: int = 7, x: float = 0.0) -> Event:
    return second, user, item, kind, x


def some_events(rng: random.Random, count: int = 24) -> list[Event]:
    second, events = 0, []
    for number in range(count):
        second += rng.choice([0, 1, 1, 2])
        events.append(e(second, rng.choice("aabbc"), rng.choice(["ann", "bob", "cy"]), number, rng.random()))
    return events


Row = tuple[tuple[str, ...], tuple[tuple[str, str | None], ...]]


def in_table(sql: str, events: Sequence[Event]) -> list[Row]:
    """(key, measures) of the rows of the clause over the table."""
    with tried_before():
        checked = check(read(sql), SCHEMA)
    found = match_table(checked, table_of(events))
    names = [measure.name for measure in checked.clause.measures]
    measures = list(zip(*(_as_strings(found.column(name)) for name in names), strict=True))
    keys = zip(*(_as_strings(column) for column in found.columns[: len(checked.partition_by)]), strict=True)
    rows = ((tuple(key), tuple(zip(names, row, strict=True))) for key, row in zip(keys, measures, strict=True))
    return sorted(rows, key=repr)


def found_by(driver: Driver, name: str, version: int | None = None) -> list[Row]:
    rows = (row for row in driver.rows[MATCHES] if row["processor_id"] == name)
    rows = (row for row in rows if version in (None, row["processor_version"]))
    return sorted(((tuple(row["key"]), tuple(row["measures"])) for row in rows), key=repr)


CLAUSES = [
    clause("A B+ C"),
    clause("A B*"),
    clause("A+? B | C"),
    clause("(A | B)+ C", more="AFTER MATCH SKIP TO NEXT ROW"),
    clause("A X* C").replace(" DEFINE", " WITHIN INTERVAL '3' SECOND DEFINE"),
    clause("A B+", more="ALL ROWS PER MATCH", measures="CLASSIFIER() AS v, MATCH_NUMBER() AS m, COUNT(*) AS n"),
    clause("A? B*", key="item % 2, kind", measures="MATCH_NUMBER() AS m, COUNT(*) AS n"),
    clause("A {- B+ -} C", more="ALL ROWS PER MATCH", measures="CLASSIFIER() AS v, item AS i"),
    clause("A B", more="ALL ROWS PER MATCH WITH UNMATCHED ROWS", measures="CLASSIFIER() AS v, FINAL LAST(x) AS last"),
    clause("A+ $"),
    clause("^ A"),
    clause("A X", more="ONE ROW PER MATCH SHOW TIMEOUT MATCHES", measures="COUNT(*) AS n, MATCH_TIMEOUT() AS t")
    .replace(" DEFINE", " WITHIN INTERVAL '2' SECOND DEFINE"),
    clause("A {- X*? -} C", more="ALL ROWS PER MATCH SHOW TIMEOUT MATCHES", measures="MATCH_TIMEOUT() AS t, kind AS k")
    .replace(" DEFINE", " WITHIN INTERVAL '3' SECOND DEFINE"),
    clause("A {- X*? -} [^C]").replace(" DEFINE", " WITHIN INTERVAL '3' SECOND DEFINE"),
    clause("A {- X*? -} [^C] B [^A]"),
    clause("A X+?{C} B", more="AFTER MATCH NO SKIP").replace(" DEFINE", " WITHIN INTERVAL '4' SECOND DEFINE"),
    clause("(A | X)+ B", more="AFTER MATCH NO SKIP", measures="array_agg(CLASSIFIER()) AS c, COUNT(*) AS n")
    .replace(" DEFINE", " WITHIN INTERVAL '3' SECOND DEFINE"),
    clause("A B+ C").replace("kind = 'b'", "x > A.x").replace("kind = 'c'", "COUNT(B.*) > 1"),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(FACTOR))
def test_rules_find_what_the_clauses_find_in_the_table(seed: int) -> None:
    """Together with patterns, in one call, row by row, and with restarts."""
    rng = random.Random(seed)
    events = some_events(rng)
    rules = [rule(f"r{number}", 1, sql) for number, sql in enumerate(CLAUSES)]
    expected = {one.id: in_table(str(one.sql), events) for one in rules}
    patterns = Driver().batch(events, sets=[AB]).end().found
    ways = [[events], [[event] for event in events], list(cuts(events, rng))]
    ids = set()
    for way, pieces in enumerate(ways):
        driver = Driver(key_groups=rng.choice([1, 3]))
        driver.batch(sets=[AB, *rules])
        for piece in pieces:
            driver.batch(piece, watermark=max(event[0] or 0 for event in piece) - 1 - rng.randint(0, 2))
            if way == 2:
                driver.stores = [MemoryStore(store.header, dict(store.pages)) for store in driver.stores]
        driver.end()
        assert all(store.is_empty for store in driver.stores)
        assert {one.id: found_by(driver, one.id) for one in rules} == expected
        assert sum(row["processor_id"] == "ab" for row in driver.rows[MATCHES]) == len(patterns)
        found = [row["match_id"] for row in driver.rows[MATCHES]]
        assert len(set(found)) == len(found)
        ids.add(tuple(sorted(found)))
        assert driver.metrics[MATCHES] == len(found)
    assert len(ids) == 1


STARTS = [
    ("A B+", "A AS kind = 'a', B AS kind = 'b'", True),
    ("A B+", "A AS kind = 'a' AND upper(user) = 'ANN', B AS x > LAST(A.x)", True),
    ("(A | B) C", "A AS kind = 'a', B AS kind IN ('b', 'c')", True),
    ("A B", "A AS kind = 'a' AND NEXT(kind) = 'b'", True),
    ("A B", "A AS kind = 'a' AND 1 / (item + 1) > 0", False),
    ("A B", "A AS kind = 'a' AND PREV(kind) = 'b'", False),
    ("A B", "A AS kind = 'a' AND COUNT(A.*) = 1", False),
    ("A B", "A AS upper(kind) = 'A'", False),
    ("A B", "B AS kind = 'b'", False),
    ("(A | B) C", "A AS kind = 'a'", False),
    ("A?", "A AS kind = 'a'", False),
    ("^ A", "A AS kind = 'a'", False),
]


@pytest.mark.parametrize(("pattern", "define", "known"), STARTS)
def test_a_rule_is_searched_only_if_a_match_can_begin(
    pattern: str, define: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    advance = RowPatternOperator.advance

    def counted(self: RowPatternOperator, group: Any, ready: Any, horizon: int) -> Any:
        calls.append(sum(table.num_rows for table in ready.values()))
        return advance(self, group, ready, horizon)

    monkeypatch.setattr(RowPatternOperator, "advance", counted)
    sql = f"PARTITION BY user ORDER BY ts MEASURES COUNT(*) AS n PATTERN ({pattern}) DEFINE {define}"
    driver = Driver().batch(sets=[rule("r", 1, sql)])
    driver.batch([e(1, "x"), e(1, "x", "bob"), e(2, "y", "bob", 1)], watermark=3)
    assert calls == ([] if known else [3])
    calls.clear()
    driver.batch([e(4, "x", "cy"), e(5, "z"), e(5, "a", item=1), e(6, "x"), e(6, "x", "bob")], watermark=7)
    assert calls == ([3] if known else [5])


def test_measures_of_earlier_events_need_all_events() -> None:
    sql = "PARTITION BY user ORDER BY ts MEASURES PREV(kind) AS p PATTERN (A) DEFINE A AS kind = 'a'"
    driver = Driver().batch(sets=[rule("r", 1, sql)])
    driver.batch([e(1, "x")], watermark=2).batch([e(3, "a")], watermark=4)
    assert found_by(driver, "r") == [(("ann",), (("p", "x"),))]


@pytest.mark.parametrize("seed", range(FACTOR))
def test_which_events_are_left_out_does_not_depend_on_micro_batches(seed: int) -> None:
    rng = random.Random(seed)
    events = some_events(rng)
    rules = [
        rule(f"r{number}", 1, f"PARTITION BY user ORDER BY ts, item MEASURES {measures} PATTERN ({pattern}) DEFINE {define}")
        for number, (pattern, define, _) in enumerate(STARTS)
        for measures in ["MATCH_NUMBER() AS m, COUNT(*) AS n, FIRST(item) AS i"]
    ]  # fmt: skip
    expected = {one.id: in_table(str(one.sql), events) for one in rules}
    assert sum(map(bool, expected.values())) > 6
    for pieces in ([events], [[event] for event in events], list(cuts(events, rng))):
        driver = Driver().batch(sets=rules)
        for piece in pieces:
            driver.batch(piece, watermark=max(event[0] or 0 for event in piece) - 1 - rng.randint(0, 2))
        driver.end()
        assert {one.id: found_by(driver, one.id) for one in rules} == expected


def test_a_row_of_the_output() -> None:
    sql = clause("A B+", measures="COUNT(B.*) AS bs, LAST(B.x) AS x")
    driver = Driver().batch([e(1, "a"), e(2, "b"), e(4, "b", x=2.5)], sets=[rule("r", 3, sql)]).end()
    (row,) = driver.rows[MATCHES]
    assert row.pop("match_id")
    assert row == {
        "processor_id": "r",
        "processor_version": 3,
        "key": ["ann"],
        "start_time": at(1),
        "end_time": at(4),
        "match_time": at(4),
        "events": None,
        "measures": [("bs", "2"), ("x", "2.5")],
        "result": '{"bs": 2, "x": 2.5}',
        "labels": [],
        "suppressed": 0,
    }


def test_all_rows_have_their_event_and_its_variable() -> None:
    sql = "ALL ROWS PER MATCH PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
    driver = Driver().batch([e(1, "a"), e(2, "b"), e(3, "c")], sets=[rule("r", 1, sql)]).end()
    first, second = driver.rows[MATCHES]
    assert [(one["stage"], one["event"]["ts"]) for row in (first, second) for one in row["events"]] == [
        ("A", at(1)),
        ("B", at(2)),
    ]
    assert [(row["start_time"], row["end_time"], row["measures"]) for row in (first, second)] == [
        (at(1), at(2), None),
        (at(1), at(2), None),
    ]
    assert first["match_id"] != second["match_id"]


def test_without_partition_by_the_key_is_that_of_the_stream() -> None:
    sql = "MEASURES COUNT(*) AS n PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
    events = [e(1, "a", "ann"), e(2, "a", "bob"), e(3, "b", "ann")]
    assert Driver().batch(events, sets=[rule("r", 1, sql)]).end().rows[MATCHES][0]["key"] == ["ann"]
    assert Driver(keys=()).batch(events, sets=[rule("r", 1, sql)]).end().rows[MATCHES][0]["key"] == []


# ---------------------------------------------------------------------- versions


@pytest.mark.parametrize("seed", range(examples(2, usual=4)))
def test_a_version_is_replaced_at_its_time(seed: int) -> None:
    """Version 1 sees the events before second 10, version 2 those from then on; matches do not cross."""
    rng = random.Random(seed)
    events = some_events(rng)
    old, new = clause("A B"), clause("A (A | B) C")
    before, after = ([event for event in events if ((event[0] or 0) < 10) == early] for early in (True, False))
    driver = Driver(key_groups=rng.choice([1, 3])).batch(sets=[rule("r", 1, old), AB])
    driver.batch(sets=[rule("r", 2, new, timestamp=at(10)), AB])
    for piece in cuts(events, rng):
        driver.batch(piece, watermark=max(event[0] or 0 for event in piece) - 1 - rng.randint(0, 2))
    driver.end()
    assert all(store.is_empty for store in driver.stores)
    assert found_by(driver, "r", 1) == in_table(old, before)
    assert found_by(driver, "r", 2) == in_table(new, after)


def test_an_open_match_ends_with_its_version() -> None:
    greedy = clause("A B*", measures="COUNT(*) AS n")
    for pieces in (
        [[e(1, "a"), e(2, "b"), e(12, "b"), e(13, "c")]],
        [[e(1, "a")], [e(2, "b")], [e(12, "b")], [e(13, "c")]],
    ):
        driver = Driver().batch(sets=[rule("r", 1, greedy)]).batch(sets=[rule("r", 2, greedy, timestamp=at(10))])
        for piece in pieces:
            driver.batch(piece, watermark=piece[-1][0])
        assert driver.end().rows[MATCHES] == []


def test_the_same_version_keeps_its_rows_and_another_drops_them() -> None:
    sql = clause("A B", measures="COUNT(*) AS n")
    driver = Driver().batch([e(1, "a")], sets=[rule("r", 1, sql), rule("s", 1, sql)], watermark=1)
    assert CLAUSES_PAGE in driver.stores[0].pages
    driver.batch([e(2, "b")], sets=[rule("r", 1, sql), rule("s", 2, sql)], watermark=2)
    assert [row["processor_id"] for row in driver.rows[MATCHES]] == ["r"]


ABSENT = clause("A {- X*? -} [^B]", measures="COUNT(*) AS n").replace(" DEFINE", " WITHIN INTERVAL '5' SECOND DEFINE")


@pytest.mark.parametrize("sql", [clause("A B"), ABSENT], ids=["match", "absence"])
@pytest.mark.parametrize("how", ["removed", "killed", "becomes a pattern"])
def test_state_goes_with_the_rule(how: str, sql: str) -> None:
    ours = rule("r", 1, sql)
    driver = Driver().batch([e(1, "a")], sets=[ours], watermark=1)
    assert CLAUSES_PAGE in driver.stores[0].pages
    if how == "killed":
        driver.batch(sets=[ours], killed=["r"])
    else:
        driver.batch(sets=[] if how == "removed" else [processor("r", 2, chain("a", "b"))])
    assert CLAUSES_PAGE not in driver.stores[0].pages
    driver.batch([e(2, "b" if sql != ABSENT else "c")], watermark=2).batch(watermark=60).end()
    assert driver.rows[MATCHES] == []
    assert driver.stores[0].is_empty


def test_events_that_wait_count_and_late_ones_do_not() -> None:
    sql = clause("A B", measures="COUNT(*) AS n")
    driver = Driver().batch([e(1, "a"), e(5, "a")], sets=[AB], watermark=1)
    driver.batch([e(6, "b")], sets=[AB, rule("r", 1, sql)], watermark=6)
    driver.batch([e(3, "a")], watermark=7).end()
    found = [(row["processor_id"], row["start_time"]) for row in driver.rows[MATCHES]]
    assert sorted(found) == [("ab", at(1)), ("ab", at(5)), ("r", at(5))]
    assert [row["ts"] for row in driver.rows[LATE]] == [at(3)]


def test_within_decides_without_new_events() -> None:
    sql = clause("A B* C | A", measures="COUNT(*) AS n").replace(" DEFINE", " WITHIN INTERVAL '5' SECOND DEFINE")
    driver = Driver().batch([e(1, "a"), e(2, "b")], sets=[rule("r", 1, sql)], watermark=5)
    assert driver.rows[MATCHES] == []
    assert driver.batch(watermark=6).rows[MATCHES][0]["measures"] == [("n", "1")]


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_absences_and_timeouts_come_with_the_watermark(user: str) -> None:
    """On a quiet key, too; a rule that begins later does not see the row."""
    late = clause("A B", more="ONE ROW PER MATCH SHOW TIMEOUT MATCHES", measures="MATCH_TIMEOUT() AS late")
    late = late.replace(" DEFINE", " WITHIN INTERVAL '5' SECOND DEFINE")
    driver = Driver().batch([e(1, "a")], sets=[rule("absent", 1, ABSENT), rule("late", 1, late)], watermark=1)
    driver.batch([e(5, "x", user)], watermark=5)
    assert driver.rows[MATCHES] == []
    driver.batch(sets=[rule("absent", 1, ABSENT), rule("late", 1, late), rule("other", 1, ABSENT)], watermark=6)
    found = [(row["processor_id"], row["measures"], row["end_time"]) for row in driver.rows[MATCHES]]
    timeouts = [] if user == "ann" else [("late", [("late", "true")], at(1))]
    assert sorted(found) == [("absent", [("n", "1")], at(1)), *timeouts]
    assert len(driver.end().rows[MATCHES]) == len(found)


def test_processing_time() -> None:
    sql = "MEASURES COUNT(*) AS n PATTERN (A B+ C) WITHIN INTERVAL '1' MINUTE" + f" {DEFINED}"
    driver = Driver(time=None).batch([e(1, "a"), e(0, "b")], sets=[rule("r", 1, sql)], processing_time=100)
    driver.batch([e(2, "b")], processing_time=130).batch([e(2, "c")], processing_time=150)
    driver.batch([e(1, "a"), e(0, "b")], processing_time=200).batch([e(2, "c")], processing_time=300).end()
    assert [row["measures"] for row in driver.rows[MATCHES]] == [[("n", "4")]]


# ---------------------------------------------------------------------- failures


DIVIDES = clause("A B", measures="COUNT(*) AS n").replace("B AS kind = 'b'", "B AS 1 / x > 0 AND kind = 'b'")


@pytest.mark.parametrize("seed", range(FACTOR))
@pytest.mark.parametrize(
    "sql",
    [
        DIVIDES,
        clause("A B+", measures="1 / (LAST(x) - 3) AS q"),
        clause("A B+", measures="1 / (LAST(x) - 3) AS q").replace(" DEFINE", " WITHIN INTERVAL '2' SECOND DEFINE"),
        clause("A B+", measures="COUNT(*) AS n", more="AFTER MATCH SKIP TO FIRST A"),
    ],
    ids=["condition", "measure", "measure after WITHIN", "skip"],
)
def test_a_failing_rule_works_until_it_fails(sql: str, seed: int) -> None:
    """Wherever micro-batches end, and the other rules go on."""
    rng = random.Random(seed)
    events = [(*event[:4], float(rng.choice([1, 2, 2, 3, 3, 0]))) for event in some_events(rng)]
    good = clause("A B", measures="COUNT(*) AS n")
    answers = []
    for pieces in ([events], [[event] for event in events], list(cuts(events, rng))):
        driver = Driver(disable_on_error=True).batch(sets=[rule("bad", 1, sql), rule("good", 1, good), AB])
        for piece in pieces:
            driver.batch(piece, watermark=(piece[-1][0] or 0) - 1)
        driver.end()
        assert found_by(driver, "good") == in_table(good, events)
        errors = [(row["processor_id"], row["time"]) for row in driver.rows[ERRORS]]
        answers.append((errors, found_by(driver, "bad")))
        assert len(errors) <= 1
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]


def test_a_failure_fails_the_query_unless_rules_are_disabled() -> None:
    with pytest.raises(PatternProcessorError, match='the pattern processor "r" version 1 failed') as caught:
        Driver().batch([e(1, "a"), e(2, "b")], sets=[rule("r", 1, DIVIDES)], watermark=2)
    assert "division by zero" in str(caught.value)


def test_a_failing_key() -> None:
    sql = clause("A B", key="1 / item", measures="COUNT(*) AS n")
    events = [e(1, "a", item=1), e(2, "b", item=1), e(3, "c", item=0), e(4, "a", item=1), e(5, "b", item=1)]
    driver = Driver(disable_on_error=True).batch(events, sets=[rule("r", 1, sql)]).end()
    assert len(driver.rows[ERRORS]) == 1
    assert [row["end_time"] for row in driver.rows[MATCHES]] == [at(2)]


def test_a_rule_over_its_limit_is_disabled() -> None:
    sql = clause("A B* C", measures="COUNT(*) AS n")
    events = [e(1, "a"), e(2, "c"), *(e(second, "ab"[second > 3]) for second in range(3, 20)), e(20, "c")]
    for pieces in ([events], [[event] for event in events]):
        driver = Driver().batch(sets=[rule("r", 1, sql, max_partial_matches=10), rule("s", 1, sql)])
        for piece in pieces:
            driver.batch(piece, watermark=piece[-1][0])
        driver.end()
        assert len(found_by(driver, "r")) == 1
        assert len(found_by(driver, "s")) == 2
        (error,) = driver.rows[ERRORS]
        assert (error["processor_id"], error["time"]) == ("r", at(13))
        assert error["error"] == (
            "LimitExceededError: [LIMIT_EXCEEDED] more than 10 rows of a partition wait for the end of a match"
            " (maxPartialMatches)\n"
            "  The first of them: key = '3:ann', ts = datetime.datetime(1970, 1, 1, 0, 0, 3, tzinfo=zoneinfo.ZoneInfo("
            "key='UTC')), item = 7\n"
            "  Hint: WITHIN, a pattern whose matches end, or a larger maxPartialMatches; see docs/limits.md"
        )
    with pytest.raises(LimitExceededError, match='"r" version 1: more than 10 rows'):
        Driver(max_partial_matches=10, disable_on_limit=False).batch(events, sets=[rule("r", 1, sql)], watermark=20)


def test_the_largest_rule_of_a_key_group_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_cep, "MAX_STATE", 10_000)
    large, small = clause("A X* C", measures="COUNT(*) AS n"), clause("A B", measures="COUNT(*) AS n")
    driver = Driver().batch(sets=[rule("large", 1, large), rule("small", 1, small)])
    driver.batch([e(1, "a"), *(e(second, "b") for second in range(2, 300)), e(300, "a")], watermark=300)
    assert [row["processor_id"] for row in driver.rows[ERRORS]] == ["large"]
    driver.batch([e(301, "b")], watermark=301)
    assert found_by(driver, "small") == [(("ann",), (("n", "2"),))] * 2


def test_many_results_are_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from asterism.rules.binding import clauses

    sql = clause("(A | B)+ C", more="AFTER MATCH SKIP TO NEXT ROW")
    events = some_events(random.Random(1))
    monkeypatch.setattr(clauses, "MAX_HELD", 2)
    driver = Driver().batch(events, sets=[rule("r", 1, sql)]).end()
    assert found_by(driver, "r") == in_table(sql, events)


@pytest.mark.parametrize("at_once", [1, 3, 10])
def test_many_rows_are_searched_in_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [e(second // 3, kind, item=second) for second, kind in enumerate("abbcabcabbbbcbaaabbc")]
    for sql in CLAUSES:
        ours = stored(rule(f"at once {at_once}", 1, sql))
        driver = Driver()
        bound = driver.operator.compiler.bind(ours)
        assert isinstance(bound, BoundClauseProcessor)
        monkeypatch.setattr(bound.clause, "_at_once", at_once)
        driver.batch(events, sets=[ours]).end()
        assert found_by(driver, ours.id) == in_table(sql, events)


# ---------------------------------------------------------------------- refusals


def compiler(time: TimeColumn | None = None, schema: pa.Schema = SCHEMA) -> ProcessorCompiler:
    return ProcessorCompiler(schema, ("user",), time or TimeColumn.of("ts", schema), Semantics.DEFAULT, {}, 10_000)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("ORDER BY item MEASURES A.x AS x PATTERN (A)", "ORDER BY must begin with the event time"),
        ("ORDER BY ts DESC MEASURES A.x AS x PATTERN (A)", "in ascending order"),
        ("PARTITION BY nobody PATTERN (A)", "nobody"),
        ("MEASURES A.y AS y PATTERN (A)", "'y'"),
        ("PATTERN (A B) DEFINE B AS price > 1", "'price'"),
        ("PATTERN (A B) DEFINE B AS x", "a condition must be a BOOLEAN"),
        ("PATTERN (A B", "is not closed"),
        ("PATTERN ((A{1000} B{1000}){1000})", "more than 10,000 elements"),
        ("PATTERN (PERMUTE(A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T))", "more than 10,000 elements"),
        ("PATTERN (" + "(" * 60 + "A" + ")" * 60 + ")", "nested"),
        ("MEASURES MATCH_PROCTIME() AS t PATTERN (A)", "MATCH_PROCTIME cannot be used in rules"),
        ("PATTERN (A) DEFINE A AS x > (SELECT 1)", ""),
        ("PATTERN (A) DEFINE A AS read_text('/etc/passwd') = ''", ""),
        ("PATTERN (A) DEFINE A AS repeat(repeat(repeat(kind, 9999), 9999), 9999) = ''", ""),
    ],
)
def test_refused_with_the_position(sql: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compiler().try_out(rule("r", 1, sql))
    assert message in caught.value.message
    assert "^" in (caught.value.detail or "")
    assert "__" not in str(caught.value)


def test_positions_count_lines() -> None:
    with pytest.raises(ExpressionError) as caught:
        compiler().try_out(rule("r", 1, "PARTITION BY user\nORDER BY ts\nPATTERN (A B)\nDEFINE B AS price > 1"))
    assert caught.value.detail == "line 4, column 13\nDEFINE B AS price > 1\n            ^"


def test_order_by_in_processing_time() -> None:
    with pytest.raises(ExpressionSyntaxError, match="the stream has no event time"):
        compiler(PROCESSING_TIME).try_out(rule("r", 1, "ORDER BY ts PATTERN (A)"))


def test_within_over_integers_counts_milliseconds() -> None:
    schema = pa.schema({"t": pa.int64(), "user": pa.string()})
    sql = "PATTERN (A) WITHIN INTERVAL '1' SECOND"
    compiler(TimeColumn("t", pa.int64()), schema).try_out(rule("r", 1, sql))
    with pytest.raises(ExpressionSyntaxError, match="'t' counts seconds"):
        compiler(TimeColumn("t", pa.int64(), "seconds"), schema).try_out(rule("r", 1, sql))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pattern": Pattern.begin("a")}, "cannot have 'pattern'"),
        ({"key": ("user",)}, "cannot have 'key'"),
        ({"select": ("LAST(a.x) AS x",)}, "cannot have 'select'"),
        ({"function": "f"}, "cannot have 'function'"),
        ({"timed_out": True}, "cannot have 'timedOut'"),
        ({"sql": ""}, "sql must be a string of 1 to 50,000 characters"),
        ({"sql": "x" * 50_001}, "sql must be a string"),
        ({"sql": 1}, "sql must be a string"),
    ],
)
def test_fields_that_do_not_belong_together(more: dict[str, Any], message: str) -> None:
    with pytest.raises(AsterismError, match=message):
        PatternProcessor("r", 1, **({"sql": "PATTERN (A)"} | more))


def test_json_form() -> None:
    one = rule("r", 1, "PATTERN (A)", timestamp=at(10), max_partial_matches=5)
    assert one.text == (
        '{"id":"r","maxPartialMatches":5,"sql":"PATTERN (A)","timestamp":"1970-01-01T00:00:10+00:00","version":1}'
    )
    assert PatternProcessor.from_dict(one.to_dict()) == one.as_data() == one
    assert PatternProcessor.from_dict({"id": "r", "version": 1, "pattern": None, "sql": "PATTERN (A)"}).pattern is None
    with pytest.raises(PatternProcessorError, match="a processor needs 'pattern', 'sql'"):
        PatternProcessor.from_dict({"id": "r", "version": 1, "sql": None})


def test_the_last_good_version_stays_in_force(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    good, bad = clause("A B"), clause("A B").replace("kind = 'b'", "colour = 1")
    manager.on_pattern_processors_updated([rule("r", 1, good), AB])
    manager.on_pattern_processors_updated([rule("r", 2, bad), AB])
    assert manager.status.processors == {"r": 1, "ab": 1}
    assert manager.status.refused["r"].startswith("[COLUMN_NOT_FOUND] unknown column 'colour'\n")
    assert "colour = 1\n" + " " * (2 + bad.index("colour")) + "^" in manager.status.refused["r"]
    manager.on_pattern_processors_updated([rule("r", 3, good + "  "), AB])
    assert [one.text for one in manager.store.get(manager.version).processors][:1] == [rule("r", 3, good + "  ").text]


@pytest.mark.parametrize(
    ("more", "problems"),
    [
        ({}, {}),
        ({"sql": "PATTERN (A) DEFINE A AS y > 1"}, {"/sql": "sql: unknown column 'y'"}),
        ({"pattern": AB.to_dict()["pattern"]}, {"/pattern": "a processor with sql cannot have 'pattern'"}),
        (
            {"key": ["user"], "select": ["LAST(a.x)"], "version": -1, "sql": "PATTERN (A"},
            {
                "/key": "a processor with sql cannot have 'key'",
                "/select": "a processor with sql cannot have 'select'",
                "/version": "a version must be an integer from 0 to 2147483647",
                "/sql": "sql: PATTERN ( is not closed",
            },
        ),
        ({"sql": 5}, {"/sql": "sql must be a string of 1 to 50,000 characters"}),
    ],
)
def test_problems_of_a_rule(more: dict[str, Any], problems: dict[str, str]) -> None:
    fields: dict[str, Any] = {"id": "r", "version": 1, "sql": "PATTERN (A)"}
    assert problems_of(fields | more, SCHEMA) == problems
