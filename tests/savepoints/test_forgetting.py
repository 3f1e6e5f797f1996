"""A key that is removed from the state of any operator leaves nothing, and changes nothing for the others."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism import Pattern
from asterism.errors import StateError
from asterism.operators.state.state_definition import KEYS_TABLE, OperatorKind, StateDefinition
from asterism.rules.definition.processor import PatternProcessor
from asterism.savepoints.key_groups import THE_KEY, Summary
from asterism.savepoints.key_states import KeyStates
from asterism.savepoints.kinds import key_states
from asterism.savepoints.manifest import UpstreamOperator
from asterism.savepoints.rule_sets import RuleSets
from asterism.savepoints.trimming import DroppedMatches, without_partial_matches
from asterism.spark.savepoints.restoring import StoredOperator
from asterism.spark.savepoints.writing import _OperatorPart, _with_keys
from asterism.testing import PatternHarness
from asterism.testing.operator_harness import OperatorHarness
from tests.kit import small_pages
from tests.rules.driver import Driver, chain, processor
from tests.savepoints.regrouping import regroup, rules_of
from tests.savepoints.test_folders import folder_of
from tests.savepoints.test_regrouping import CASES, FEWER_CASES, SCHEMA, USERS, feed, steps

FORGOTTEN = "a customer whose name is nowhere else 7f3a"


def without_key(states: KeyStates, rows: pa.Table) -> pa.Table:
    if THE_KEY in rows.column_names:
        return rows.filter(pc.not_equal(pc.struct_field(rows.column(THE_KEY), [0]), FORGOTTEN))
    key = next((name for name in rows.column_names if name.startswith("k:")), None)
    return rows if key is None else rows.filter(pc.not_equal(rows.column(key), FORGOTTEN))


def bytes_of(harness: OperatorHarness) -> bytes:
    return b"".join(value for store in harness.stores for value in [store.header or b"", *store.pages.values()])


@pytest.mark.parametrize("case", FEWER_CASES)
def test_a_forgotten_key_leaves_nothing_and_changes_nothing_for_others(case: str) -> None:
    def run(forgotten: bool) -> tuple[Counter[str], bool]:
        harness = CASES[case](4)
        was_there = False
        for number, step in enumerate(steps(3)):
            if number == 25 and forgotten:
                was_there = FORGOTTEN.encode() in bytes_of(harness)
                regroup(harness, 3, without_key)
                assert FORGOTTEN.encode() not in bytes_of(harness)
            if step[0] == "rows" and number < 25:
                step = ("rows", [row | {"user": FORGOTTEN} if row["user"] == USERS[0] else row for row in step[1]])
            feed(harness, number, step)
        harness.end()
        rows = [f"{name} {row}" for name in harness.operator.output_schemas for row in harness.rows(name)]
        return Counter(row for row in rows if FORGOTTEN not in row), was_there

    with small_pages():
        rows, was_there = run(forgotten=True)
        assert was_there
        assert rows == run(forgotten=False)[0] != Counter()


def open_matches(harness: PatternHarness) -> list[tuple[str, str, int]]:
    """Of each partial match its key, stage and first event."""
    from asterism.matching.stored_matches import partial_matches_of
    from asterism.operators.state.page_numbers import DEFINITION_PAGE

    rows = []
    for store in harness.stores:
        for number, value in store.pages.items():
            if number != DEFINITION_PAGE:
                definition = StateDefinition.from_bytes(store.pages[DEFINITION_PAGE])
                rows += partial_matches_of(definition, value, None).to_pylist()
    return sorted((row["key"]["user"], row["stage"], round(row["since"].timestamp())) for row in rows)


@pytest.mark.parametrize("seed", range(3))
def test_partial_matches_of_a_stage_are_dropped(seed: int) -> None:
    rng = random.Random(seed)
    pattern = (
        Pattern.begin("a").where("kind = 'a'")
        .followed_by_any("b").where("kind = 'b'").followed_by_any("c").where("kind = 'c'")
    )  # fmt: skip

    def fed() -> PatternHarness:
        harness = PatternHarness(pattern, SCHEMA, keys=["user"], time="ts", key_groups=3)
        for number, step in enumerate(steps(seed)[:12]):
            feed(harness, number, step)
        return harness

    stage, before = rng.choice([None, "a", "b"]), rng.choice([None, 20])
    at_most = rng.choice([0, 1, 2]) if before is None else rng.choice([None, 1])
    dropped = DroppedMatches(stage, None if before is None else before * 1_000_000, at_most)
    harness, whole = fed(), open_matches(fed())
    regroup(
        harness,
        2,
        lambda states, rows: without_partial_matches(states, rows, dropped) if THE_KEY in rows.column_names else rows,
    )
    expected = []
    for user in USERS:
        of_stage = [each for each in whole if each[0] == user and stage in (None, each[1])]
        expected += [each for each in whole if each[0] == user and each not in of_stage]
        kept = sorted((each for each in of_stage if before is None or each[2] >= before), key=lambda each: each[2])
        expected += kept if at_most is None else kept[len(kept) - at_most :] if at_most else []
    remaining = open_matches(harness)
    assert Counter((user, since) for user, _, since in remaining) == Counter(
        (user, since) for user, _, since in expected
    )
    assert len(remaining) < len(whole)
    harness.end()


def test_all_partial_matches_of_a_stage_can_be_dropped() -> None:
    pattern = (
        Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").followed_by("c").where("kind = 'c'")
    )
    harness = PatternHarness(pattern.within(timedelta(hours=1))).send("a1 a2 b3 |")
    regroup(
        harness,
        1,
        lambda states, rows: (
            without_partial_matches(states, rows, DroppedMatches("b")) if THE_KEY in rows.column_names else rows
        ),
    )
    assert harness.send("c4 |").end().output("matches").num_rows == 0


@pytest.mark.parametrize(
    ("kind", "stage", "text"),
    [
        (OperatorKind.PATTERN, "x", 'the pattern has no stage "x"'),
        (OperatorKind.WINDOWS, None, "only patterns have partial matches"),
    ],
)
def test_what_cannot_be_dropped(kind: OperatorKind, stage: str | None, text: str) -> None:
    definition = StateDefinition(kind, pa.schema([]), details={"stages": ["a", "b"]})
    with pytest.raises(StateError, match=text):
        DroppedMatches(stage).check(definition)


BY_ITEM = "PARTITION BY user, item % 2 MEASURES COUNT(*) AS n PATTERN (A) DEFINE A AS kind = 'a'"


def rules_in_force() -> tuple[StateDefinition, RuleSets]:
    rules = [
        processor("by upper", 1, chain("a", "b"), key=("upper(kind)",)),
        PatternProcessor("a clause", 1, sql=BY_ITEM),
    ]
    driver = Driver(key_groups=2).batch([(1, "ann", 1, "a", 0.0)], sets=rules, watermark=3)
    definition = driver.operator.definition
    rule_sets = rules_of(driver.stores, definition)
    assert rule_sets is not None
    return definition, rule_sets


def part_of(definition: StateDefinition, rules: RuleSets | None = None) -> _OperatorPart:
    summary = Summary(definition, b"", None, 0, [0], [0], announced=True)
    stored = StoredOperator(folder_of(Path("nowhere")), UpstreamOperator("operator-1", "None", 2, summary, {}), rules)
    return _OperatorPart(stored, summary, key_states(definition, rules))


def test_a_key_column_is_one_of_an_operator_or_of_its_rules() -> None:
    rules = part_of(*rules_in_force())
    by_user, whole = (
        part_of(StateDefinition(OperatorKind.OPERATOR, keys, {KEYS_TABLE: keys}))
        for keys in (pa.schema([("user", pa.string()), ("shop", pa.int64())]), pa.schema([]))
    )
    parts = [whole, rules, by_user]
    assert _with_keys(parts, ["user"]) == [rules, by_user]
    assert _with_keys(parts, ["shop", "user"]) == [by_user]
    for columns in (["kind"], ["upper(kind)"], ["item", "user"], ["item % 2"]):
        assert _with_keys(parts, columns) == [rules]
    for columns in (["usr"], ["user", "usr"], ["usr", "user"]):
        for of_parts in (parts, [rules], [by_user]):
            with pytest.raises(StateError, match='there is no key column "usr"'):
                _with_keys(of_parts, columns)
    with pytest.raises(StateError, match="no operator has all of the key columns shop, item"):
        _with_keys(parts, ["shop", "item"])
    with pytest.raises(StateError, match='there is no key column ""'):
        _with_keys(parts, [])
    with pytest.raises(StateError, match="the query has no key"):
        _with_keys([whole], ["user"])


def test_an_earlier_release_has_not_written_what_keys_can_be_named_by() -> None:
    _, rules = rules_in_force()
    document = json.loads(rules.to_json())
    assert document.pop("key_columns") == sorted(rules.key_columns)
    assert RuleSets.from_json(json.dumps(document), "/savepoint").key_columns >= {"user", "item", "upper(kind)", "kind"}
