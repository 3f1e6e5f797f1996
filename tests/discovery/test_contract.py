"""What every discoverer that asks again and again must do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from asterism.errors import AsterismError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import Discovered
from tests.discovery.kit import INTERVAL, Rule, graph, refused, rule, sql_rule, travelled, versions, watching
from tests.discovery.places import (
    FilePlace,
    FolderPlace,
    MariadbPlace,
    Place,
    PostgresqlPlace,
    SqlitePlace,
    StorePlace,
    TopicPlace,
    UrlPlace,
)

_numbers = count(1)


@pytest.fixture(params=["yaml", "store", "postgresql", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The slow file has the other places."""
    yield from opened(request, tmp_path)


def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place
    match request.param:
        case "folder":
            made = FolderPlace(tmp_path)
        case "store":
            made = StorePlace(tmp_path)
        case "sqlite":
            made = SqlitePlace(tmp_path)
        case "postgresql":
            made = PostgresqlPlace(request.getfixturevalue("postgresql"), request.getfixturevalue("database"))
        case "mariadb":
            made = MariadbPlace(request.getfixturevalue("mariadb"), request.getfixturevalue("mariadb_database"))
        case "topic":
            made = TopicPlace(request.getfixturevalue("broker"), f"rules-{next(_numbers)}")
        case "url":
            made = UrlPlace()
        case suffix:
            made = FilePlace(tmp_path, f"rules.{suffix}")
    made.write([rule("a"), rule("b", 2)])
    yield made
    made.close()


def test_begins_with_what_is_there(place: Place) -> None:
    discoverer = travelled(place.factory())
    assert versions(discoverer.initial_pattern_processors()) == {"a": 1, "b": 2}
    discoverer.close()


def test_reads_every_field(place: Place) -> None:
    full = rule(
        "a", 7, timestamp="2026-01-31T12:00:00+00:00", key=["user", "LOWER(item)"], select=["LAST(a.price) AS price"]
    )
    clause = sql_rule("d", 2, timestamp="2026-01-31T12:00:00+00:00")
    place.write([full, rule("b", function="report", enabled=True), rule("c", enabled=False), clause])
    expected = [PatternProcessor.from_dict(one) for one in (full, rule("b", function="report"), clause)]
    assert travelled(place.factory()).initial_pattern_processors() == expected


def test_sees_what_is_added_changed_and_removed(place: Place) -> None:
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        for rules, expected in (
            ([rule("a"), rule("b", 2), rule("c")], {"a": 1, "b": 2, "c": 1}),
            ([rule("a"), rule("b", 3), rule("c")], {"a": 1, "b": 3, "c": 1}),
            ([rule("b", 3), rule("c")], {"b": 3, "c": 1}),
            ([rule("b", 3), rule("c", enabled=False)], {"b": 3}),
            ([], {}),
            ([rule("a", 9)], {"a": 9}),
        ):
            place.write(rules)
            manager.wait_for(expected)
        assert manager.failures == []


def test_says_nothing_while_nothing_changes(place: Place) -> None:
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        manager.wait_for_polls(5)
        assert (manager.updates, manager.failures) == ([], [])


def test_refuses_a_wrong_one_alone(place: Place) -> None:
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        place.write(
            [rule("a", 2), rule("b", 3, pattern={"type": "COMPOSITE", "nodes": []}), rule("c", key=["x" * 20_000])]
        )
        found = manager.wait_for({"a": 2})
        assert [(one.id, one.version, one.unidentified) for one in refused(found)] == [("b", 3, False), ("c", 1, False)]
        assert "root: a graph needs nodes" in str(refused(found)[0])
        place.write([rule("a", 2), rule("b", 3), rule("c")])
        assert refused(manager.wait_for({"a": 2, "b": 3, "c": 1})) == []


def test_a_failure_changes_nothing_and_passes(place: Place) -> None:
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        place.break_it()
        assert isinstance(manager.wait_for_failure(), AsterismError)
        manager.wait_for_failure()
        assert manager.updates == []
        place.mend()
        place.write([rule("z")])
        manager.wait_for({"z": 1})


def test_a_start_that_fails_raises_and_what_is_there_comes_later(place: Place) -> None:
    """Also if that is nothing: the set of the checkpoint, with which the query goes on, is not."""
    place.write([])
    place.break_it()
    discoverer = travelled(place.factory())
    with pytest.raises(AsterismError):
        discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        manager.wait_for_failure()
        place.mend()
        manager.wait_for({})


def test_what_the_manager_cannot_take_comes_again(place: Place) -> None:
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        manager.refuses_next = True
        place.write([rule("c")])
        manager.wait_for({"c": 1})
        assert len(manager.failures) == 1


def test_closes_at_once(place: Place) -> None:
    """It does not wait for its next look: `watching` would not wait that long for its thread."""
    discoverer = travelled(place.factory(timedelta(hours=1)))
    with watching(discoverer):
        time.sleep(INTERVAL.total_seconds())
        discoverer.close()


def test_shows_no_secret(place: Place) -> None:
    place.break_it()
    discoverer = travelled(place.factory())
    with pytest.raises(AsterismError) as error:
        discoverer.initial_pattern_processors()
    shown = repr((place.factory(), discoverer, error.value)) + str(error.value)
    assert place.secret is None or place.secret not in shown


def test_a_rule_that_is_corrected_in_place_is_seen(place: Place) -> None:
    """With the version that was refused."""
    place.write([rule("a", 2, pattern=graph("price >") | {"edges": 5})])
    discoverer = travelled(place.factory())
    assert [one.version for one in refused(discoverer.initial_pattern_processors())] == [2]
    with watching(discoverer) as manager:
        place.write([rule("a", 2)])
        manager.wait_for({"a": 2})


def test_a_rule_has_a_shadow(place: Place) -> None:
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:

        def see(*rules: Rule, expected: list[tuple[str, int, bool]]) -> None:
            place.write(rules)
            manager.wait(lambda: manager.updates and slots(manager.last) == expected)

        one, shadow = rule("a"), rule("a", 2, shadow=True)
        see(one, shadow, expected=[("a", 1, False), ("a", 2, True)])
        see(one, rule("a", 3, shadow=True, key=["x" * 20_000]), expected=[("a", 1, False)])
        assert [(wrong.name, wrong.shadow) for wrong in refused(manager.last)] == [("a@3", True)]
        see(one, shadow, expected=[("a", 1, False), ("a", 2, True)])
        see(rule("a", 2), expected=[("a", 2, False)])


def test_all_versions_of_a_rule_that_come_into_force_in_turn_are_found(place: Place) -> None:
    """When the source is read first, when one more is added, and when it is read again after a restart."""
    one, two, three, four = (rule("a", day, timestamp=f"2026-01-0{day}T00:00:00+00:00") for day in range(1, 5))
    del one["timestamp"]
    expected = [("a", 1, False), ("a", 2, False), ("a", 3, False)]
    place.write([one, two, three])
    discoverer = travelled(place.factory())
    assert slots(discoverer.initial_pattern_processors()) == expected
    with watching(discoverer) as manager:
        place.write([one, two, three, four, rule("b", 2)])
        manager.wait(lambda: manager.updates and slots(manager.last)[3:] == [("a", 4, False), ("b", 2, False)])
        assert refused(manager.last) == []
    assert slots(travelled(place.factory()).initial_pattern_processors())[:4] == [*expected, ("a", 4, False)]
    place.write([one, two, three | {"timestamp": two["timestamp"]}])
    counted = [version for _, version, _ in slots(travelled(place.factory()).initial_pattern_processors())]
    assert counted in ([1, 3], [1, 2]), "of a table, the highest version; of documents, the first one"


def slots(found: Sequence[Discovered]) -> list[tuple[str, int, bool]]:
    return sorted((one.id, one.version, one.shadow) for one in found if isinstance(one, PatternProcessor))
