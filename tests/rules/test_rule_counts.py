"""The counts and states of processors: what key groups report, how it adds up, and what is then in force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asterism.columns.time import TimeColumn
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.binding.clauses import ClauseOfRule
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets import kill_list, rule_counts
from asterism.rules.sets.discovery_status import IN_FORCE, PENDING, REFUSED, WAITING, RuleState, Status
from asterism.rules.sets.rule_counts import RuleCounts, VersionCounts, error_metric, metric
from asterism.rules.sets.set_store import FolderStore
from tests.rules.driver import SCHEMA, Driver, Event, at, chain, processor

AB = processor("ab", 1, chain("a", "b"))
SECOND = 1_000_000


def e(second: int, kind: str, user: str = "ann", x: float = 0.0) -> Event:
    return second, user, 7, kind, x


def test_key_groups_report_matches_timeouts_and_partial_matches() -> None:
    rule = processor("ab", 1, chain("a", "b", within=5), timed_out=True)
    driver = Driver(key_groups=3).batch([e(1, "a"), e(2, "a", "bob"), e(3, "b")], sets=[rule], watermark=3)
    assert driver.counts.versions == {
        ("ab", 1): VersionCounts(since=1, matches=1, partial_matches=1, last_match=3 * SECOND, events=3)
    }
    driver.batch([e(4, "a", "cy"), e(5, "a", "dan")], watermark=6).batch(watermark=8)
    assert driver.counts.versions["ab", 1].partial_matches == 2
    assert driver.counts.versions["ab", 1].timed_out == 1
    driver.end()
    assert driver.counts.versions["ab", 1] == VersionCounts(
        since=1, matches=1, timed_out=3, last_match=3 * SECOND, events=5
    )


def test_a_rule_that_fails_is_disabled_until_its_state_ends() -> None:
    rule = processor("ab", 1, chain("a", "b"), select=("100 / (LAST(a.x) - 1) AS q",))
    driver = Driver(key_groups=8, disable_on_error=True)
    driver.batch([e(1, "a", x=1.0), e(1, "a", "bob"), e(2, "b"), e(2, "b", "bob"), e(3, "a")], sets=[rule], watermark=3)
    counts = driver.counts.versions["ab", 1]
    assert (counts.errors, counts.disabled, counts.matches, counts.partial_matches) == (1, 1, 1, 0)
    assert counts.error is not None
    assert "division by zero" in counts.error
    assert len(counts.groups) == 1
    assert counts.groups[0] in range(8)
    assert RuleCounts.from_bytes(driver.counts.to_bytes()) == driver.counts
    driver.end()
    counts = driver.counts.versions["ab", 1]
    assert (counts.errors, counts.disabled, counts.groups) == (1, 0, [])


def test_the_number_of_key_groups_that_are_listed_is_bounded() -> None:
    counts = RuleCounts()
    name = ("a", 1, 1)
    counts.add("q", 0, [{error_metric(name, "no", group): 1} for group in range(100)])
    shown = RuleState("a", 1, IN_FORCE, added=1).counted(counts.versions["a", 1])
    assert (shown.disabled_groups, shown.groups) == (100, tuple(range(32)))
    assert RuleState.from_dict(json.loads(json.dumps(shown.to_dict()))) == shown
    with pytest.raises(ValueError, match="groups has the invalid value"):
        RuleState.from_dict(shown.to_dict() | {"groups": [1, "2"]})


def test_a_version_that_is_added_again_is_not_disabled() -> None:
    counts = RuleCounts()
    first, again = ("a", 1, 1), ("a", 1, 3)
    counts.add("q", 0, [{error_metric(first, "no"): 1, metric(rule_counts.PARTIAL_MATCHES, first): 5}])
    shown = RuleState("a", 1, IN_FORCE, added=1)
    assert shown.counted(counts.versions["a", 1]).state == "disabled"
    assert replace(shown, added=3).counted(counts.versions["a", 1]).state == IN_FORCE
    counts.add("q", 1, [{metric(rule_counts.PARTIAL_MATCHES, again): 1}])
    counts.add("q", 2, [{metric(rule_counts.PARTIAL_MATCHES, first): -5}])
    assert counts.versions["a", 1] == VersionCounts(since=3, errors=1, partial_matches=1, error="no")


def test_a_rule_in_sql_is_counted() -> None:
    clause = "PARTITION BY user PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
    driver = Driver().batch([e(1, "a"), e(2, "b")], sets=[PatternProcessor("sql", 2, sql=clause)], watermark=3)
    assert driver.counts.versions == {("sql", 2): VersionCounts(since=1, matches=1, last_match=2 * SECOND, events=2)}


@pytest.mark.parametrize("is_old", [False, True])
def test_rows_of_undecided_matches_of_a_rule_in_sql_are_counted(is_old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier release has not counted them."""
    if is_old:
        monkeypatch.setattr(ClauseOfRule, "waiting_rows", lambda self, state: 0)
    clause = "PARTITION BY user PATTERN (A A+ B) DEFINE A AS kind = 'a', B AS kind = 'b'"
    driver = Driver(key_groups=3)
    driver.batch([e(1, "a"), e(2, "a"), e(2, "a", "bob")], sets=[PatternProcessor("sql", 2, sql=clause)], watermark=3)
    counts = driver.counts.versions["sql", 2]
    assert (counts.partial_matches, counts.events) == (0 if is_old else 3, 3)
    monkeypatch.undo()
    driver.batch([e(4, "a"), e(4, "a", "bob")], watermark=5)
    assert driver.counts.versions["sql", 2].partial_matches == 5
    driver.batch([e(6, "b")], watermark=7)
    assert driver.counts.versions["sql", 2].partial_matches == 2
    driver.batch(sets=[AB], watermark=8)
    assert RuleState("sql", 2, IN_FORCE, added=4).counted(driver.counts.versions["sql", 2]).partial_matches == 0


def test_events_of_the_rules_that_see_most_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_counts, "MAX_WITH_EVENTS", 2)
    rules = [processor(name, 1, chain(*name)) for name in ("ab", "bc", "dc", "ef")]
    driver = Driver(key_groups=1).batch(
        [e(1, "a"), e(2, "b"), e(3, "b"), e(4, "c"), e(5, "c")], sets=rules, watermark=5
    )
    found = {id: counts.events for (id, _), counts in driver.counts.versions.items() if counts.events}
    assert found == {"ab": 3, "bc": 4}


def test_the_watermark_is_reported_while_a_rule_has_a_timestamp() -> None:
    driver = Driver().batch([e(1, "a")], sets=[AB], watermark=5)
    assert driver.counts.watermark is None
    driver.batch(sets=[processor("ab", 2, chain("b", "c"), timestamp=at(10))], watermark=8)
    assert driver.counts.watermark == 8 * SECOND
    driver.batch(watermark=12)
    assert driver.counts.watermark == 12 * SECOND
    driver.end()
    assert driver.counts.watermark == 12 * SECOND


def test_micro_batches_are_added_once() -> None:
    group = {metric(rule_counts.MATCHES, ("a", 1, 1)): 2}
    counts = RuleCounts()
    assert counts.add("q", 4, [group, group])
    assert not counts.add("q", 4, [group])
    assert not counts.add("q", 5, [])
    assert counts.add("q", 7, [group])
    assert (counts.versions["a", 1].matches, counts.missed) == (6, 1)
    assert RuleCounts.from_bytes(counts.to_bytes()) == counts
    counts.add("another", 0, [group])
    assert (counts.versions["a", 1].matches, counts.missed) == (2, 0)


def test_the_number_of_versions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_counts, "MAX_VERSIONS", 3)
    counts = RuleCounts()
    counts.add("q", 0, [{metric(rule_counts.MATCHES, ("a", version, 1)): 1 for version in range(5)}])
    counts.add("q", 1, [{metric(rule_counts.MATCHES, ("a", version, 1)): 1 for version in (2, 7)}])
    assert list(counts.versions) == [("a", 4), ("a", 2), ("a", 7)]


def test_versions_that_are_not_in_use_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_counts, "MAX_PAST", 2)
    counts = RuleCounts()
    counts.add("q", 0, [{metric(rule_counts.MATCHES, ("a", version, 1)): 1 for version in range(6)}])
    counts.forget({("a", 1), ("b", 1)})
    assert list(counts.versions) == [("a", 1), ("a", 4), ("a", 5)]
    counts.forget({("a", 1)})
    assert len(counts.versions) == 3


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"versions": [["a", 1, "x"]]}', b"\xff"])
def test_counts_that_cannot_be_read_begin_again(value: bytes, tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_bytes(value)
    assert FolderStore(str(tmp_path)).counts() == RuleCounts()


def test_a_waiting_version_replaces_the_one_before_it() -> None:
    status = Status(
        rules=[
            RuleState("a", 1, IN_FORCE, added=1),
            RuleState("a", 2, WAITING, begins="1970-01-01T00:00:10+00:00", added=2),
            RuleState("b", 1, PENDING),
            RuleState("c", None, REFUSED, reason="no"),
        ]
    )
    states = [
        [(rule.id, rule.version, rule.state) for rule in status.with_counts(RuleCounts(watermark=reached)).rules]
        for reached in (None, 10 * SECOND - 1, 10 * SECOND)
    ]
    others = [("b", 1, PENDING), ("c", None, REFUSED)]
    before = [("a", 1, IN_FORCE), ("a", 2, WAITING), *others]
    assert states == [before, before, [("a", 2, IN_FORCE), *others]]


def test_a_status_is_read_as_it_was_written() -> None:
    status = Status(
        rules=[RuleState("a", 1, IN_FORCE, since="x", matches=2), RuleState("b", None, REFUSED, reason="no")]
    )
    assert Status.from_bytes(status.to_bytes()) == status


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("[1]", "a rule is not an object"),
        ("{}", "rules has the invalid value {}"),
        ('[{"id": "a"}]', "a rule has no id, version or state"),
        ('[{"id": "a", "version": true, "state": "x"}]', "version has the invalid value True"),
        ('[{"id": "a", "version": 1, "state": "x", "matches": "2"}]', "matches has the invalid value '2'"),
    ],
)
def test_an_invalid_status_is_refused(rules: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Status.from_bytes(f'{{"rules": {rules}}}'.encode())


def coordinator(folder: Path, without: Sequence[str] = ()) -> Coordinator:
    time = TimeColumn("ts", SCHEMA.field("ts").type)
    return Coordinator(
        ProcessorCompiler(SCHEMA, ["user"], time, Semantics.DEFAULT, {}), FolderStore(str(folder)), without
    )


def version(number: int, name: str = "ab", **more: Any) -> PatternProcessor:
    return processor(name, number, chain("a", "b"), **more)


def states(status: Status) -> list[tuple[str, int | None, str]]:
    return [(rule.id, rule.version, rule.state) for rule in status.rules]


def test_what_a_planned_micro_batch_uses_is_in_force(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    bad = processor("bad", 3, chain("a").where("colour = 1"))
    manager.on_pattern_processors_updated([version(1), version(1, "cd"), bad])
    assert states(manager.current_status()) == [("ab", 1, PENDING), ("cd", 1, PENDING), ("bad", 3, REFUSED)]
    manager.planned(1, 0)
    later = version(2, timestamp=at(10))
    manager.on_pattern_processors_updated([later, version(1, "cd"), bad])
    since = manager.current_status().rules[0].since
    manager.planned(2, 1)
    found = manager.current_status()
    assert states(found)[:3] == [("ab", 1, IN_FORCE), ("ab", 2, WAITING), ("cd", 1, IN_FORCE)]
    assert (found.rules[0].since, found.rules[0].added, found.rules[1].added) == (since, 1, 2)
    assert found.rules[3].reason is not None
    assert found.rules[3].reason.startswith("[COLUMN_NOT_FOUND] unknown column 'colour'")
    assert FolderStore(str(tmp_path)).read_status().rules == found.rules
    manager.store.write_counts(RuleCounts({("cd", 1): VersionCounts(1, disabled=2, error="no")}, 10 * SECOND))
    found = manager.current_status()
    assert states(found)[:2] == [("ab", 2, IN_FORCE), ("cd", 1, "disabled")]
    assert (found.rules[1].disabled_groups, found.rules[1].reason) == (2, "no")
    manager.close()


def test_a_restarted_query_knows_since_when(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    manager.planned(1, 0)
    manager.on_pattern_processors_updated([version(1), version(2, "cd")])
    manager.planned(2, 1)
    manager.committed(2)
    before = manager.current_status().rules
    manager.close()
    again = coordinator(tmp_path)
    assert again.current_status().rules == before
    again.on_pattern_processors_updated([version(1), version(3, "cd")])
    again.planned(3, 2)
    found = again.current_status().rules
    assert [(rule.version, rule.added) for rule in found] == [(1, 1), (3, 3)]
    assert (found[0].since == before[0].since, found[1].since == before[1].since) == (True, False)
    again.close()


def test_a_killed_rule_is_told_with_its_reason(tmp_path: Path) -> None:
    manager = coordinator(tmp_path, without=["cd"])
    manager.on_pattern_processors_updated([version(1)])
    manager.planned(1, 0)
    kill_list.kill(manager.store, ["ab"], "too dear")
    manager._apply_kill_list()
    manager.planned(2, 1)
    [rule] = manager.current_status().rules
    assert (rule.state, rule.reason) == ("killed", "too dear")
    manager.close()
