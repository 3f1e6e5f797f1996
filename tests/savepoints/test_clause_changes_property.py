"""A search that continues with another clause has the rows of a replay from the first undecided row on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.changes.plan import DROPPED, PlanPart, plan_of
from asterism.errors import CheckpointMismatchError, StateError
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.state_definition import StateDefinition
from asterism.rules.matching.changed_searches import SEARCHES
from asterism.savepoints.changes.clauses import ClauseChange
from asterism.testing import RowPatternHarness
from tests.savepoints.regrouping import continue_with

EVENTS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("uv")), min_size=4, max_size=24)
FEW = "FIRST(A.value) AS first, COUNT(*) AS n"
COLUMNS = "key STRING, ts TIMESTAMP, kind STRING, value BIGINT, other BIGINT"


def clause(
    pattern: str = "A B+ C",
    define: str = "A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'",
    *,
    measures: str = "FIRST(A.value) AS first, COUNT(*) AS n, LAST(kind) AS last",
    within: int = 9,
    key: str = "key",
) -> RowPatternHarness:
    text = (
        f"PARTITION BY {key} ORDER BY ts MEASURES {measures} AFTER MATCH SKIP TO NEXT ROW PATTERN ({pattern}) "
        f"WITHIN INTERVAL '{within}' SECOND DEFINE {define}"
    )
    return RowPatternHarness(text, COLUMNS)


def words(events: list[tuple[str, str]], first: int = 0) -> str:
    return " ".join(f"{key}.{kind}{at}@{at}s" for at, (kind, key) in enumerate(events, start=first))


def changed(old: RowPatternHarness, new: RowPatternHarness, plans: list[Any] | None = None) -> None:
    def change_of(definition: StateDefinition, summary: Any) -> ClauseChange:
        change = ClauseChange(definition, new.operator, old.now.watermark)  # type: ignore[arg-type]
        if plans is not None:
            plans.append(change)
        return change

    continue_with(old, new, change_of)


OTHERS = {
    "condition": lambda: clause(
        define="A AS kind = 'a', B AS kind = 'b' AND value >= 0, C AS kind = 'c' AND value < 99"
    ),
    "another pattern": lambda: clause("A B* C", "A AS kind = 'a', B AS kind IN ('b', 'd'), C AS kind = 'c'"),
    "a shorter window": lambda: clause(within=4),
    "another variable": lambda: clause(
        "A B+ C D?", "A AS kind = 'a', B AS kind = 'b', C AS kind = 'c', D AS kind = 'd'"
    ),
}


@given(name=st.sampled_from(list(OTHERS)), events=EVENTS, data=st.data())
def test_the_search_goes_on_with_another_clause(name: str, events: Any, data: Any) -> None:
    """Matches that begin at undecided rows are those of the new clause, as if the key began with the first of these rows."""
    stop = data.draw(st.integers(1, len(events) - 1))
    watermark = data.draw(st.integers(max(stop - 3, 0), stop - 1))
    old, new = clause(), OTHERS[name]()
    old.send(words(events[:stop])).advance_watermark(f"{watermark}s")
    undecided = first_undecided(old)
    changed(old, new)
    new.send(words(events[stop:], stop)).end()
    whole = OTHERS[name]().send(words(events)).end().rows("matches")
    # Of a key without undecided rows, the first row is the first one after the watermark.
    expected = [row for row in whole if row["first"] >= undecided.get(row["key"], watermark + 1)]
    assert sorted(map(str, new.rows("matches"))) == sorted(map(str, expected))


def first_undecided(run: RowPatternHarness) -> dict[str, int]:
    """The value of the first undecided row of each key."""
    operator: Any = run.operator
    first = {}
    for value in (page for number, page in run.stores[0].pages.items() if number == 0):
        keys = operator.keys_in(value).column(0).to_pylist()
        waits = dict(enumerate(operator.waiting_rows(value)))
        for key, rows in zip(keys, waits.values(), strict=False):
            first[key] = rows.column("value")[0].as_py()
    return first


def test_rows_that_lack_a_column_are_dropped() -> None:
    old = clause(measures=FEW).send("u.a1@1s u.b2@2s v.d3@3s |")
    changed(old, new := clause(measures=FEW, define="A AS kind = 'a', B AS other = 1, C AS kind = 'c'"))
    assert new.send("u.c4@4s").end().rows("matches") == []
    old = clause(measures=FEW).send("u.a1@1s u.b2@2s v.d3@3s |")
    changed(old, new := clause("A B+ C?", measures=FEW))  # with the conditions as they were
    assert new.send("u.c4@4s").end().rows("matches") == [{"key": "u", "first": 1, "n": 3}]


@pytest.mark.parametrize(
    ("new", "reads"),
    [
        (
            lambda: clause(measures=FEW, define="A AS kind = 'a', B AS other = 1, C AS kind = 'c'"),
            ["the condition of B"],
        ),
        (
            lambda: clause(measures=FEW, define="A AS kind = 'a', B AS other > value, C AS kind = 'c' AND other < 3"),
            ["the condition of B", "the condition of C", 'the condition of C reads "kind"'],
        ),
        (lambda: clause(measures=f"{FEW}, MAX(B.other) AS most"), ["the measure most"]),
        (
            lambda: clause(measures=FEW, define="A AS kind = 'a', B AS kind = 'b', C AS other > FIRST(A.value)"),
            ["the condition of C"],
        ),
    ],
)
def test_a_plan_says_before_which_conditions_lack_a_column(new: Any, reads: list[str]) -> None:
    """By variable, and how many keys are lost by it."""
    old = clause(measures=FEW).send("u.a1@1s u.b2@2s v.d3@3s |")
    definition = StateDefinition.from_bytes(old.stores[0].pages[DEFINITION_PAGE])
    change = ClauseChange(definition, new().operator)
    reason = "rows were stored without columns that are needed: " + "; ".join(
        r if '"' in r else f'{r} reads "other"' for r in reads
    )
    value, counts = change._searches.page(old.stores[0].pages[0], change.new.tables)
    assert value is None
    assert counts == {PlanPart(SEARCHES, "", "", DROPPED, reason): 1}
    with pytest.raises(StateError, match=reads[-1]):
        plan_of([counts]).check(allow_dropped=False)


def test_what_a_clause_cannot_change() -> None:
    old = clause().send("u.a1@1s |")
    for new, error, text in (
        (clause(key="kind"), CheckpointMismatchError, "PARTITION BY changed"),
        (clause(define="A AS kind = 'a', B AS value > PREV(value), C AS kind = 'c'"), CheckpointMismatchError, "PREV"),
        (clause("^ A B+ C"), StateError, "begins with"),
    ):
        with pytest.raises(error, match=text):
            changed(old, new)
