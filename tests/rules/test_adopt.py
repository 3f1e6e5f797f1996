"""The field ``adopt`` of a rule, and what it means for shadows, suppressed matches, rules that failed, keys and templates."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from asterism import Pattern
from asterism.changes.partial_matches import MatchesChange
from asterism.cli.main import main
from asterism.errors import PatternProcessorError
from asterism.matching.binding import BoundPattern
from asterism.matching.page import Page
from asterism.matching.stored_matches import CHANGE, described_automaton, described_pattern
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import BoundPatternProcessor
from asterism.rules.binding.replication import stored_columns
from asterism.rules.checking.adoption_plan import adopted_version, adoption_parts, adoption_text
from asterism.rules.definition.processor import ANY_VERSION, PatternProcessor, from_text
from asterism.rules.matching.result_rows import SHADOW
from asterism.rules.matching.selections import KEYS
from asterism.rules.matching.state_pages import names_of_page
from asterism.rules.sets.rule_counts import RuleCounts
from tests.rules.driver import SCHEMA, Driver, Event, at, chain, processor
from tests.rules.test_shadows import found_in

SQL = "PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
AB = chain("a", "b")
SECONDS = timedelta(seconds=60)


def clause(version: int, pattern: str = "A B", define: str = "A AS kind = 'a', B AS kind = 'b'", **more: Any) -> Any:
    """A rule in SQL."""
    partition, within = more.pop("partition", "user"), more.pop("within", 60)
    measures = more.pop("measures", "FIRST(kind) AS first")
    sql = f"PARTITION BY {partition} MEASURES {measures} ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW "
    sql += f"PATTERN ({pattern}) WITHIN INTERVAL '{within}' SECOND DEFINE {define}"
    return PatternProcessor("r", version, sql=sql, **more)


def e(second: float, kind: str, user: str = "ann", item: int = 1) -> Event:
    return second, user, item, kind, 0.0


def rule(version: int, **more: Any) -> PatternProcessor:
    return processor("r", version, more.pop("of", AB), **more)


def adopted(driver: Driver, version: int = 2) -> tuple[int, int, int]:
    counts = driver.counts.versions["r", version]
    return counts.adopted, counts.not_adopted, counts.partial_matches


# ---------------------------------------------------------------------- the field


@pytest.mark.parametrize(
    ("given", "stored", "written"), [(True, ANY_VERSION, True), (1, 1, 1), (0, 0, 0), (False, None, None)]
)
def test_it_is_read_and_written(given: Any, stored: int | None, written: Any) -> None:
    made = rule(2, adopt=given).as_data()
    assert made.adopt == stored
    assert made.to_dict().get("adopt") is written or made.to_dict().get("adopt") == written
    assert PatternProcessor.from_dict(made.to_dict()) == made == from_text(made.text)


def test_it_can_change_within_a_version() -> None:
    assert rule(2, adopt=True).has_definition_of(rule(2))
    assert rule(2, adopt=1).definition == rule(2).definition
    assert rule(2, adopt=1) != rule(2, adopt=True)


@pytest.mark.parametrize("value", [-1, "yes", 1.5, [1]])
def test_what_it_cannot_be(value: Any) -> None:
    with pytest.raises(PatternProcessorError, match="adopt must be true or a version"):
        PatternProcessor.from_dict({**rule(2).as_data().to_dict(), "adopt": value})


def test_its_own_version_cannot_be_adopted() -> None:
    with pytest.raises(PatternProcessorError, match="its own partial matches"):
        rule(2, adopt=2)


# ---------------------------------------------------------------------- which version


def test_without_it_partial_matches_are_dropped() -> None:
    driver = Driver().batch([e(1, "a")], sets=[rule(1)], watermark=2)
    assert driver.batch([e(3, "b")], sets=[rule(2)]).end().found == []


@pytest.mark.parametrize(("adopt", "found"), [(1, ["a1 b3"]), (7, [])])
def test_only_those_of_a_certain_version(adopt: int, found: list[str]) -> None:
    driver = Driver().batch([e(1, "a")], sets=[rule(1)], watermark=2)
    driver.batch([e(3, "b")], sets=[rule(2, adopt=adopt)]).end()
    assert [text for *_, text in driver.found] == found


def test_a_rollback_adopts_if_the_former_version_says_so() -> None:
    """Version 1 says it only in the second case."""
    for first in (rule(1), rule(1, adopt=True)):
        driver = Driver().batch([e(1, "a")], sets=[first], watermark=2)
        driver.batch([e(3, "x")], sets=[rule(2, adopt=1)], watermark=4)
        driver.batch([e(5, "b")], sets=[first]).end()
        assert bool(driver.found) == (first.adopt is not None)


def test_events_that_wait_meet_what_was_adopted() -> None:
    """They have arrived before the set, and are processed by the new version."""
    driver = Driver().batch([e(1, "a"), e(5, "b")], sets=[rule(1)], watermark=2)
    driver.batch(sets=[rule(2, adopt=True)], watermark=3)
    assert adopted(driver) == (1, 0, 1)
    assert [text for *_, text in driver.end().found] == ["a1 b5"]


def test_what_ends_before_the_switch_belongs_to_the_former_version() -> None:
    rules = [rule(1, of=chain("a", "b", within=5), timed_out=True)]
    rules.append(rule(2, of=chain("a", "b", within=50), timed_out=True, adopt=True, timestamp=at(10)))
    driver = Driver().batch([e(1, "a"), e(8, "a"), e(20, "b")], sets=rules, watermark=9).end()
    assert [(row["processor_version"], row["timeout_time"].timestamp()) for row in driver.rows["timed_out"]] == [(1, 6)]
    assert driver.found == [("r", 2, ("ann",), "a8 b20")]


# ---------------------------------------------------------------------- clauses

ABC = "A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'"


def rows(driver: Driver) -> list[tuple[int, str]]:
    """The version and the event of each row."""
    return sorted((version, text) for _, version, _, text in driver.found)


def test_the_search_of_a_clause_goes_on() -> None:
    driver = Driver().batch([e(1, "a"), e(2, "a", "bob")], sets=[clause(1)], watermark=3)
    events = [e(5, "b"), e(6, "c"), e(7, "x", "bob"), e(8, "b", "bob")]
    driver.batch(events, sets=[clause(2, "A B C", ABC, adopt=True)], watermark=4)
    assert adopted(driver) == (2, 0, 2)
    assert rows(driver.end()) == [(2, "a1"), (2, "b5"), (2, "c6")]
    assert driver.counts.versions["r", 1].partial_matches == 0


def test_a_rule_in_eql_adopts() -> None:
    eql = 'sequence by user with maxspan=60s [any where kind == "a"] [any where kind == "b"{}]'
    first = PatternProcessor.from_dict({"id": "r", "version": 1, "eql": eql.format("")})
    second = PatternProcessor.from_dict({"id": "r", "version": 2, "eql": eql.format(' or kind == "c"'), "adopt": True})
    assert second.adopt == ANY_VERSION
    driver = Driver().batch([e(1, "a")], sets=[first], watermark=2)
    driver.batch([e(3, "c")], sets=[second], watermark=4)
    assert driver.counts.versions["r", 2].adopted == 1
    assert len(driver.end().rows["matches"]) == 1


def test_a_shadow_gets_a_copy_of_a_search() -> None:
    driver = Driver().batch([e(1, "a")], sets=[clause(1)], watermark=2)
    driver.batch([e(3, "b")], sets=[clause(1), clause(2, adopt=1, shadow=True)], watermark=4).end()
    assert rows(driver) == [(1, "a1"), (1, "b3")]
    assert [row["processor_version"] for row in driver.rows[SHADOW]] == [2, 2]


def test_what_ends_before_the_switch_belongs_to_the_former_clause() -> None:
    two = [clause(1, "A B?", within=5), clause(2, "A B?", within=50, adopt=True, timestamp=at(10))]
    driver = Driver().batch([e(1, "a"), e(8, "a"), e(20, "b")], sets=two, watermark=9).end()
    assert rows(driver) == [(1, "a1"), (2, "a8"), (2, "b20")]


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (clause(2, partition="item", adopt=True), "it groups the events by another key"),
        (clause(2, define="A AS kind = 'a', B AS x > PREV(x)", adopt=True), "PREV\\(\\) reads changed"),
        (clause(2, measures="MATCH_NUMBER() AS n", adopt=True), "the use of MATCH_NUMBER"),
        (clause(2, "^ A B", adopt=True), "a pattern that begins with \\^"),
        (clause(2, max_partial_matches=1, adopt=True), "the new clause fails"),
    ],
)  # fmt: skip
def test_what_a_clause_cannot_adopt(new: PatternProcessor, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """It begins with the events after the switch."""
    define = "A AS kind = 'a', X AS kind = 'x', B AS kind = 'b'"
    former = clause(1, "A X* B", define)
    events = [e(1, "a"), e(2, "x"), e(3, "x"), e(3, "x", "cid"), e(3, "a", "bob"), e(3.5, "x", "bob")]
    driver = Driver().batch(events, sets=[former], watermark=4)
    driver.batch([(5, "ann", 1, "b", 1.0), (6, "ann", 1, "a", 1.0)], sets=[new], watermark=7)
    counts = driver.counts.versions["r", 2]
    assert (counts.adopted, counts.not_adopted) == (0, 2)  # keys whose search waits, not their rows
    assert re.search(reason, caplog.text)
    assert [row for row in rows(driver.end()) if row[1] < "a6"] == []


# ---------------------------------------------------------------------- what cannot continue


def test_another_key_drops_them_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver().batch([e(1, "a"), e(1, "a", "bob")], sets=[rule(1)], watermark=2)
    driver.batch([e(3, "b")], sets=[rule(2, adopt=True, key=("item",))], watermark=4)
    assert adopted(driver) == (0, 2, 0)
    assert "drops partial matches of version 1: 2 partial matches: it groups the events by another key" in caplog.text


def test_a_pattern_and_a_clause_do_not_adopt_each_other(caplog: pytest.LogCaptureFixture) -> None:
    for former, now in ((clause(1), rule(2, adopt=True)), (rule(1), clause(2, adopt=True))):
        caplog.clear()
        driver = Driver().batch([e(1, "a")], sets=[former], watermark=2)
        driver.batch([e(3, "b"), e(3, "a")], sets=[now], watermark=4)
        assert driver.counts.versions["r", 2].not_adopted == 1
        assert driver.end().found == []
        assert "1 " in caplog.text
        assert "one version is a pattern, and the other one a clause" in caplog.text


def test_a_clause_that_cannot_be_used_any_more_is_counted_by_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [e(1, "a"), e(2, "x"), e(2, "a", "bob"), e(3, "b", "cid")]
    driver = Driver().batch(
        events, sets=[clause(1, "A X* B", "A AS kind = 'a', X AS kind = 'x', B AS kind = 'b'")], watermark=4
    )

    def no_change(*args: Any) -> Any:
        return None, "the former version cannot be used any more"

    monkeypatch.setattr("asterism.rules.matching.adoption._change_of", no_change)
    driver.batch([e(5, "b")], sets=[clause(2, adopt=True)], watermark=6)
    assert adopted(driver)[:2] == (0, 2)


def test_a_pattern_that_needs_more_memory_drops_them() -> None:
    kind = "kind = 'b' AND PREV(x) <= x"
    new = rule(2, of=chain("a").followed_by("b").where(kind), adopt=True)
    driver = Driver().batch([e(1, "a")], sets=[rule(1)], watermark=2).batch([e(3, "b")], sets=[new], watermark=4)
    assert adopted(driver) == (0, 1, 0)


def test_stages_that_were_removed_or_inserted() -> None:
    driver = Driver().batch([e(1, "a"), e(2, "b")], sets=[rule(1, of=chain("a", "b", "c"))], watermark=3)
    driver.batch([e(4, "x")], sets=[rule(2, of=chain("a", "x", "b", "c"), adopt=True)], watermark=5)
    assert adopted(driver) == (0, 1, 0)
    driver = Driver().batch([e(1, "a"), e(2, "b")], sets=[rule(1, of=chain("a", "b", "c"))], watermark=3)
    driver.batch([e(4, "c")], sets=[rule(2, of=chain("a", "c"), adopt=True)]).end()
    assert driver.found == [("r", 2, ("ann",), "a1 c4")]


def test_a_version_that_failed_has_none() -> None:
    wrong = processor("r", 1, chain("a").followed_by("b").where("CAST(kind AS INT) > 0"))
    driver = Driver(disable_on_error=True).batch([e(1, "a"), e(2, "b")], sets=[wrong], watermark=3)
    driver.batch([e(4, "b")], sets=[rule(2, adopt=True)]).end()
    assert driver.found == []
    assert ("r", 2) not in driver.counts.versions


# ---------------------------------------------------------------------- shadows and suppression


def test_a_shadow_gets_a_copy() -> None:
    """The version in force keeps its partial matches; a shadow that replaces another one adopts that one's."""
    for shadow in (rule(2, shadow=True, adopt=True), rule(2, shadow=True, adopt=1)):
        driver = Driver(key_groups=2).batch([e(1, "a")], sets=[rule(1)], watermark=2)
        driver.batch([e(3, "x")], sets=[rule(1), shadow], watermark=4)
        assert adopted(driver) == (1, 0, 1)
        assert driver.counts.versions["r", 1].partial_matches == 1
        driver.batch([e(5, "x")], sets=[rule(1), rule(3, shadow=True, adopt=True)], watermark=6)
        driver.batch([e(7, "b")]).end()
        assert driver.found == [("r", 1, ("ann",), "a1 b7")]
        assert driver.found_in(SHADOW) == [("r", 3, ("ann",), "a1 b7")]


def test_a_promoted_shadow_continues_with_its_own() -> None:
    shadow = rule(2, shadow=True)
    driver = Driver().batch([e(1, "a")], sets=[rule(1)], watermark=2).batch(sets=[rule(1), shadow], watermark=3)
    driver.batch([e(4, "a")], watermark=5).batch([e(6, "b")], sets=[replace(shadow, shadow=False, adopt=True)]).end()
    assert driver.found == [("r", 2, ("ann",), "a4 b6")]


@pytest.mark.parametrize("timestamp", [None, at(10)])
def test_matches_remain_suppressed(timestamp: Any) -> None:
    """As if the rule had not been replaced: the time of the last emitted match, and how many were suppressed since."""
    of = chain("a")
    versions = [rule(1, of=of, suppress=timedelta(seconds=20))]
    versions.append(replace(versions[0], version=2, adopt=True, timestamp=timestamp))
    driver = Driver().batch([e(1, "a"), e(5, "a")], sets=versions[:1] if timestamp is None else versions, watermark=8)
    driver.batch([e(15, "a"), e(30, "a")], sets=versions[1:] if timestamp is None else None).end()
    assert [(version, text) for _, version, _, text in driver.found] == [(1, "a1"), (2, "a30")]
    assert [row["suppressed"] for row in driver.rows["matches"]] == [0, 2]


# ---------------------------------------------------------------------- templates and counts


def test_all_rules_of_a_template_adopt() -> None:
    template = {"id": "t", "parameters": {"x": "number"}, "key": ["user"], "rows": [{"id": "eu", "x": 5}]}
    template["pattern"] = chain("a").followed_by("b").where("kind = 'b' AND x < :x").to_json()
    [before] = found_in(template)
    [after] = found_in({**template, "adopt": True, "rows": [{"id": "eu", "x": 6}]})
    [same] = found_in({**template, "adopt": True})
    assert (after.adopt, same.version) == (ANY_VERSION, before.version)
    assert after.version != before.version
    driver = Driver().batch([e(1, "a")], sets=[before], watermark=2).batch([e(3, "b")], sets=[after]).end()
    assert [text for *_, text in driver.found] == ["a1 b3"]


def test_counts_are_stored() -> None:
    driver = Driver().batch([e(1, "a")], sets=[rule(1)], watermark=2).batch(sets=[rule(2, adopt=True)], watermark=3)
    assert RuleCounts.from_bytes(driver.counts.to_bytes()) == driver.counts
    assert (driver.counts.versions["r", 1].partial_matches, *adopted(driver)) == (0, 1, 0, 1)


# ---------------------------------------------------------------------- what is said before


INSERTED = 'not those after b, waiting for c: it has accepted an event of "b", where the new pattern accepts "x"'
REMOVED = "after a, waiting for b: all stages of which it has accepted an event were removed"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ab", "abc", "adopts the partial matches of version 1"),
        ("abc", "axbc", f"adopts the partial matches of version 1, {INSERTED}"),
        ("ab", "xy", f"adopts none of the partial matches of version 1: {REMOVED}"),
    ],
)
def test_it_is_said_before_what_is_adopted(old: str, new: str, said: str) -> None:
    versions = rule(1, of=chain(*old)), rule(2, of=chain(*new), adopt=True)
    assert adopted_version(versions[1], versions) is versions[0]
    assert adoption_text(versions[1], versions[0], Semantics.DEFAULT) == said


def test_the_version_that_it_names_is_compared() -> None:
    versions = [rule(1), rule(2), rule(3, adopt=1)]
    assert adopted_version(versions[2], versions) is versions[0]
    assert adopted_version(rule(3, adopt=7), versions) is None
    assert adoption_text(rule(3, adopt=1, key=("item",)), rule(1, key=("user",)), Semantics.DEFAULT).endswith(
        "another key"
    )
    former = PatternProcessor("r", 1, sql=SQL)
    text = adoption_text(rule(2, adopt=True), former, Semantics.DEFAULT)
    assert text.endswith("one version is a pattern, and the other one a clause")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({}, {"pattern": "A+ B"}, "adopts the undecided searches of version 1"),
        ({"pattern": "^ A B"}, {"pattern": "^ A B"}, "adopts the undecided searches of version 1"),
        ({}, {"pattern": "^ A B"}, "adopts none of the undecided searches of version 1: the new pattern begins with ^"),
        ({}, {"partition": "item"}, "adopts none of the undecided searches of version 1: PARTITION BY changed"),
    ],
)
def test_it_is_said_before_what_a_clause_adopts(old: dict[str, str], new: dict[str, str], said: str) -> None:
    assert adoption_text(clause(2, **new, adopt=True), clause(1, **old), Semantics.DEFAULT) == said


def test_all_that_the_plan_of_stages_says_is_what_happens() -> None:
    """Each partial match that there can be, of loops and optional stages, too, is in the plan with its fate."""
    a, b = Pattern.begin("a").where("kind = 'a'"), "kind = 'b'"
    old = a.followed_by("b").where(b).one_or_more().optional().followed_by("c").where("kind = 'c'").within(SECONDS)
    new = a.followed_by("b").where(b).times(2, 3).followed_by("c").where("kind = 'c'").within(SECONDS)
    parts = {part[1:4] for part in adoption_parts(rule(2, of=new), rule(1, of=old), Semantics.DEFAULT)}
    for kinds in ("a", "ab", "abb", "abbb", "abbbb"):
        events = [e(second, kind) for second, kind in enumerate(kinds)]
        driver = Driver().batch(events, sets=[rule(1, of=old)], watermark=9)
        change = MatchesChange(
            *(details_of(driver, rule(n, of=of)) for n, of in ((1, old), (2, new))), bound(driver, rule(2, of=new))
        )
        _, content = names_of_page(driver.stores[0].pages[0])
        *_, counts = change.page(Page.from_bytes(content, KEYS, stored_columns(SCHEMA)))
        assert {part[1:4] for part in counts} <= parts, kinds


def bound(driver: Driver, of: PatternProcessor) -> BoundPattern:
    processor = driver.operator.compiler.bind(of)
    assert isinstance(processor, BoundPatternProcessor)
    return processor.pattern


def details_of(driver: Driver, of: PatternProcessor) -> dict[str, Any]:
    pattern = bound(driver, of)
    return {**described_automaton(pattern.nfa), CHANGE: described_pattern(pattern, str)}


def test_validate_says_what_is_adopted(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    rules = [rule(1, of=chain("a", "b")), rule(2, of=chain("a", "x", "b"), adopt=True, timestamp=at(10))]
    file.write_text(json.dumps([each.as_data().to_dict() for each in rules]))
    shown = CliRunner().invoke(main, ["rules", "validate", str(file)], catch_exceptions=False).output
    assert "r version 2: ok, 3 stages (a, x, b)" in shown
    assert shown.rstrip().endswith("adopts the partial matches of version 1")
    file.write_text(json.dumps([rules[1].as_data().to_dict()]))
    shown = CliRunner().invoke(main, ["rules", "validate", str(file)], catch_exceptions=False).output
    assert shown.rstrip().endswith("adopts the partial matches of the version that it replaces")
