"""Processors that a person has taken out: in the operator, and in the coordinator that announces it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asterism import Pattern
from asterism.errors import PatternProcessorError, StreamDefinitionError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets import kill_list
from asterism.rules.sets.kill_list import ALL_SETS
from asterism.rules.sets.set_store import FolderStore
from tests.rules.driver import Driver, Event, at, chain, processor
from tests.rules.test_coordinator import coordinator, version

AB = processor("ab", 1, chain("a", "b"))
BAD = processor("bad", 1, Pattern.begin("a").where("kind = 'a' AND 1 / x > 0"))
AB_FOUND = [("ab", 1, ("ann",), "a1 b2"), ("ab", 1, ("ann",), "a3 b4")]


def e(second: int, kind: str, user: str = "ann", item: int = 0) -> Event:
    return second, user, item, kind, 0.0


FIRST, SECOND = [e(1, "a"), e(2, "b")], [e(3, "a"), e(4, "b")]


def test_a_rule_that_fails_is_left_out_of_the_micro_batch_that_is_repeated() -> None:
    driver = Driver()
    with pytest.raises(PatternProcessorError, match='"bad" version 1 failed'):
        driver.batch(FIRST, sets=[AB, BAD], watermark=2)
    again = Driver(left_out={"bad": ALL_SETS})
    again.batch(FIRST, sets=[AB, BAD], watermark=2).batch(SECOND, watermark=4)
    assert again.end().found == AB_FOUND


@pytest.mark.parametrize("names", [["bad"], ["bad@1"]])
def test_nothing_of_it_is_computed(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    """It may be one that exhausts memory when it is compiled, or when its conditions are evaluated."""
    driver = Driver(left_out=dict.fromkeys(names, ALL_SETS))
    compile_ = driver.operator.compiler.compile

    def compiled(one: PatternProcessor) -> Any:
        assert one.id != "bad"
        return compile_(one)

    monkeypatch.setattr(driver.operator.compiler, "compile", compiled)
    driver.batch(FIRST, sets=[AB, processor("bad", 1, BAD.pattern, key=("item + 1",))], watermark=2)
    assert driver.end().found == AB_FOUND[:1]


def test_it_stays_disabled_until_its_next_version() -> None:
    """Also in a key group that was not called for any event, and when it is not left out any more."""
    good = processor("r", 1, chain("a"))
    driver = Driver(left_out={"r": ALL_SETS})
    driver.batch([e(1, "a")], sets=[good], watermark=1)
    driver.operator.options = replace(driver.operator.options, left_out={})
    driver.batch([e(2, "a")], watermark=2).batch([e(3, "a")], sets=[good, AB], watermark=3)
    assert driver.found == []
    driver.batch([e(4, "a")], sets=[processor("r", 2, chain("a"))], watermark=4)
    assert driver.end().found == [("r", 2, ("ann",), "a4")]


def test_its_partial_matches_go_and_those_of_others_stay() -> None:
    driver = Driver()
    cd = processor("cd", 1, chain("a", "b"))
    driver.batch([e(1, "a")], sets=[AB, cd], watermark=1)
    driver.operator.options = replace(driver.operator.options, left_out={"cd": ALL_SETS})
    driver.batch(watermark=1)
    driver.operator.options = replace(driver.operator.options, left_out={})
    assert driver.batch([e(2, "b")], watermark=2).end().found == AB_FOUND[:1]


@pytest.mark.parametrize("key_groups", [1, 5])
def test_a_set_in_which_it_is_killed_is_the_same_for_all_key_groups(key_groups: int) -> None:
    driver = Driver(key_groups=key_groups)
    users = [f"u{n}" for n in range(8)]
    both = [processor("r", 1, chain("a")), AB]
    driver.batch([e(1, "a", user) for user in users], sets=both, watermark=1)
    driver.batch([e(2, "a", user) for user in users], sets=both, killed=["r"], watermark=2)
    # Not killed any more, and still version 1.
    driver.batch([e(3, "a", user) for user in users], sets=both, watermark=3)
    driver.batch([e(4, "b", user) for user in users], watermark=4)
    found = driver.end().found
    assert [one for one in found if one[0] == "r"] == [("r", 1, (user,), "a1") for user in users]
    assert [one for one in found if one[0] == "ab"] == [
        ("ab", 1, (user,), f"a{n} b4") for user in users for n in (1, 2, 3)
    ]


def test_of_two_versions_one_is_killed() -> None:
    driver = Driver()
    driver.batch([e(1, "a")], sets=[processor("r", 1, chain("a"))], watermark=1)
    new = processor("r", 2, chain("a"), timestamp=at(3))
    driver.batch([e(2, "a"), e(4, "a")], sets=[new], killed=["r@2"], watermark=5)
    assert driver.end().found == [("r", 1, ("ann",), "a1"), ("r", 1, ("ann",), "a2")]


def test_a_kill_list_at_the_start_is_for_the_sets_that_are_there() -> None:
    """Later ones say themselves what is killed."""
    driver = Driver(left_out={"r": 1})
    driver.batch([e(1, "a")], sets=[processor("r", 1, chain("a"))], watermark=1)
    driver.batch([e(2, "a")], sets=[processor("r", 2, chain("a"))], watermark=2)
    assert driver.end().found == [("r", 2, ("ann",), "a2")]


# ---------------------------------------------------------------------- the coordinator


def applied(manager: Coordinator) -> Coordinator:
    manager._apply_kill_list()
    return manager


def names_of(manager: Coordinator) -> tuple[dict[str, int], tuple[str, ...]]:
    newest = manager.store.retained()[-1]
    return {one.id: one.version for one in newest.processors}, newest.killed


def test_what_is_killed_is_killed_in_the_next_set(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    kill_list.kill(FolderStore(str(tmp_path)), ["cd", "ef"], "it eats memory")
    assert names_of(applied(manager)) == ({"ab": 1, "cd": 1}, ("cd",))
    assert applied(manager).version == 2
    status = FolderStore(str(tmp_path)).read_status()
    assert status.killed == {"cd": "it eats memory", "ef": "it eats memory"}
    assert status.log[-1].endswith("INFO pattern processors 2: cd killed: it eats memory")
    kill_list.unkill(FolderStore(str(tmp_path)), ["cd"])
    assert names_of(applied(manager)) == ({"ab": 1, "cd": 1}, ())
    with pytest.raises(PatternProcessorError, match="'cd' is not killed"):
        kill_list.unkill(FolderStore(str(tmp_path)), ["cd"])


@pytest.mark.parametrize("name", ["ab", "ab@1", "ab@2"])
def test_what_is_killed_while_a_successor_waits_is_out_as_after_a_restart(tmp_path: Path, name: str) -> None:
    """The version in force is in an older set alone."""
    manager = coordinator(tmp_path)
    for number, later in ((1, None), (2, at(100))):
        manager.on_pattern_processors_updated([version(number, timestamp=later)])
    manager.committed(2)
    events = [*FIRST, e(101, "a"), e(102, "b")]
    begun = [list(one.processors) for one in manager.store.retained()]
    restarted = Driver(left_out={name: 2})
    restarted.batch(sets=begun[0]).batch(sets=begun[1]).batch(events, watermark=200).end()
    kill_list.kill(manager.store, [name], "it is on fire")
    assert names_of(applied(manager)) == ({"ab": 2}, (name,))
    assert applied(manager).version == 3
    running = Driver().batch(sets=begun[0]).batch(sets=begun[1])
    running.batch(sets=begun[1], killed=manager.store.retained()[-1].killed).batch(events, watermark=200).end()
    first, second = AB_FOUND[0], ("ab", 2, ("ann",), "a101 b102")
    assert running.found == restarted.found == {"ab": [], "ab@1": [second], "ab@2": [first]}[name]


def test_a_set_is_not_kept_for_a_version_that_was_killed(tmp_path: Path) -> None:
    """Otherwise its conditions would be evaluated until the time of its successor. That it is gone is no news."""
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    manager.on_pattern_processors_updated([version(2, timestamp=at(100))])
    kill_list.kill(manager.store, ["ab@1"])
    applied(manager).committed(2)
    assert manager.store.numbers() == [1, 2, 3]
    manager.committed(3)
    assert manager.store.numbers() == [3]
    assert names_of(applied(manager)) == ({"ab": 2}, ("ab@1",))
    assert manager.version == 3


def test_a_version_that_comes_while_it_is_killed_is_looked_at_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = coordinator(tmp_path)
    compiled: list[str] = []
    compile_ = manager.compiler.compile
    monkeypatch.setattr(manager.compiler, "compile", lambda one: compiled.append(str(one.version)) or compile_(one))
    manager.on_pattern_processors_updated([version(1)])
    kill_list.kill(manager.store, ["ab", "new@7"])
    applied(manager)
    manager.on_pattern_processors_updated([version(2), version(7, "new")])
    assert (names_of(manager), compiled) == (({"ab": 1}, ("ab",)), ["1"])
    kill_list.unkill(manager.store, ["ab", "new@7"])
    assert (names_of(applied(manager)), compiled) == (({"ab": 2, "new": 7}, ()), ["1", "2", "7"])


def test_what_was_killed_while_no_query_ran_is_killed_from_the_start(tmp_path: Path) -> None:
    coordinator(tmp_path).on_pattern_processors_updated([version(1)])
    kill_list.kill(FolderStore(str(tmp_path)), ["ab@1", "cd"])
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    assert names_of(manager) == ({"ab": 1}, ("ab@1",))


def test_what_a_run_leaves_out_is_not_compiled_and_told(tmp_path: Path) -> None:
    coordinator(tmp_path).on_pattern_processors_updated([version(1)])
    manager = coordinator(tmp_path, ["ab", "cd"])
    manager.on_pattern_processors_updated([version(2), version(1, "cd")])
    assert names_of(manager) == ({"ab": 1}, ())
    left_out = "excluded by run(without=...)"
    assert FolderStore(str(tmp_path)).read_status().killed == {"ab": left_out, "cd": left_out}


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("victim", ["victim@3", "victim@3@", "x@y"]),
        ("victim@3", ["victim@3", "victim@3@", "x@y"]),
        ("victim@3@", ["victim", "victim@3@", "x@y"]),
        ("victim@3@7", ["victim", "victim@3@", "x@y"]),
        ("victim@3@@", ["victim", "victim@3", "x@y"]),
        ("x@y", ["victim", "victim@3", "victim@3@"]),
        ("x@y@", ["victim", "victim@3", "victim@3@"]),
        ("x@y@3", ["victim", "victim@3", "victim@3@"]),
        ("victim@", ["victim@3", "victim@3@", "x@y"]),
        ("victim@03", ["victim", "victim@3", "victim@3@", "x@y"]),
    ],
)
def test_a_name_means_one_rule(name: str, left: list[str]) -> None:
    """Also where an id ends as a name with a version does."""
    versions = {"victim": 3, "victim@3": 7, "victim@3@": 7, "x@y": 3}
    rules = [processor(id, number, chain("a")) for id, number in versions.items()]
    running = Driver().batch(sets=rules).batch([e(1, "a")], sets=rules, killed=[name], watermark=2).end()
    restarted = Driver(left_out={name: ALL_SETS}).batch([e(1, "a")], sets=rules, watermark=2).end()
    assert [one[0] for one in running.found] == [one[0] for one in restarted.found] == left


@pytest.mark.parametrize("names", ["ab", [""], ["x" * 300], ["a\nb"], [5], 5])
def test_names_are_names(names: Any) -> None:
    with pytest.raises(StreamDefinitionError, match=r"without must be a list of names|is not the name"):
        kill_list.checked_names(names)
