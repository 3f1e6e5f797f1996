"""Shadows: versions that run beside the one in force, and what becomes of them when they are promoted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import asterism.rules.matching.operator as module
from asterism import Pattern
from asterism.columns.time import BEFORE_TIME
from asterism.errors import PatternProcessorError
from asterism.operators.state.page_numbers import CLAUSES_PAGE, SUPPRESSIONS_PAGE
from asterism.rules.definition.processor import PatternProcessor, from_text
from asterism.rules.matching import selections as shares
from asterism.rules.matching.result_rows import ERRORS, LATE, MATCHES, SHADOW, TIMED_OUT
from asterism.rules.sets.interfaces import processors_from
from asterism.rules.sets.rule_counts import RuleCounts, VersionCounts
from asterism.rules.sets.sets import Entry, ProcessorSet, updated
from asterism.rules.sets.used_versions import UsedVersions
from tests.kit import examples
from tests.rules.driver import Driver, Event, at, chain, cuts, processor
from tests.rules.test_coordinator import coordinator

SECOND = 1_000_000
SQL = "MEASURES LAST(A.x) AS x PATTERN (A B C*?) DEFINE A AS kind = 'a', B AS kind = 'b'"


def e(second: float, kind: str, user: str = "ann", x: float = 0.0) -> Event:
    return second, user, 1, kind, x


def rule(version: int, *, shadow: bool = False, of: Pattern | str | None = None, **more: Any) -> PatternProcessor:
    of = chain("a", "b") if of is None else of
    if isinstance(of, str):
        return PatternProcessor("ab", version, sql=of, shadow=shadow, **more)
    return processor("ab", version, of, shadow=shadow, **more)


V1, V2 = rule(1), rule(2)
SHADOW_2 = rule(2, shadow=True)


def ids_of(driver: Driver, output: str = MATCHES) -> list[tuple[int, float]]:
    """The versions and times of matches."""
    time = "timeout_time" if output == TIMED_OUT else "match_time"
    return sorted((row["processor_version"], row[time].timestamp()) for row in driver.rows[output])


def entries_of(*sets: Sequence[PatternProcessor], horizon: int = BEFORE_TIME) -> list[tuple[int, bool, int]]:
    """The versions of the entries after these sets, whether they are shadows, and the sets that have added them."""
    entries: list[Entry] = []
    for number, processors in enumerate(sets, 1):
        entries = updated(entries, ProcessorSet(number, tuple(processors)), horizon)
    return [(one.processor.version, one.processor.shadow, one.since) for one in entries]


# ---------------------------------------------------------------------- the field


def test_a_shadow_is_read_and_written() -> None:
    written = SHADOW_2.as_data().to_dict()
    assert written["shadow"] is True
    assert PatternProcessor.from_dict(written) == SHADOW_2.as_data()
    assert from_text(SHADOW_2.as_data().text).shadow
    assert "shadow" not in V2.as_data().to_dict()
    assert PatternProcessor.from_dict({**written, "shadow": None}) == V2.as_data()
    with pytest.raises(PatternProcessorError, match="shadow must be true or false"):
        PatternProcessor.from_dict({**written, "shadow": 1})


def template(*, sql: str = SQL + " AND x > :x", shadow: bool | None = None, **rows: Any) -> dict[str, Any]:
    """A template of which each row has a value, or the whole row."""
    given = [value if isinstance(value, dict) else {"x": value} for value in rows.values()]
    flag = {} if shadow is None else {"shadow": shadow}
    return {
        "id": "t", "parameters": {"x": "number"}, "sql": sql, **flag,
        "rows": [{"id": id, **row} for id, row in zip(rows, given, strict=True)],
    }  # fmt: skip


def found_in(*items: dict[str, Any]) -> list[PatternProcessor]:
    found = processors_from(items)
    assert all(isinstance(one, PatternProcessor) for one in found), found
    return [one.as_data() for one in found if isinstance(one, PatternProcessor)]


def test_all_rules_of_a_template_that_is_a_shadow_are_shadows() -> None:
    plain, shadows = found_in(template(a=1, b=2)), found_in(template(shadow=True, a=1, b=2))
    assert [replace(one, shadow=False) for one in shadows] == plain
    assert [(one.id, one.shadow) for one in shadows] == [("t/a", True), ("t/b", True)]
    assert found_in(template(shadow=False, a=1, b=2)) == plain
    for item, message in (
        (
            template(shadow=True, a={"x": 1, "shadow": True}),
            "row 'a': a row of a template that is a shadow is a shadow already",
        ),
        (template(shadow=True, a=1) | {"shadow": "yes"}, "shadow must be true or false"),
        (template(shadow=True, a=1) | {"shadow": ":x"}, "shadow must be true or false"),
        (template(shadow=True, a=1) | {"shadow": 0}, "shadow must be true or false"),
    ):
        [refused] = processors_from([item])
        assert message in str(refused)
    # Where a shadow cannot be used, its last valid version stays.
    refused_rows = [processors_from([template(shadow=flag, a="x", b=1)])[-1] for flag in (True, False)]
    assert [(one.id, one.shadow) for one in refused_rows] == [("t/a", True), ("t/a", False)]
    refused_rows = processors_from([template(shadow=True, a=1, sql="(", b=1)])
    assert [(one.id, one.shadow) for one in refused_rows] == [("t/a", True), ("t/b", True)]


def test_a_rule_that_is_the_same_in_the_shadow_of_its_template_is_left_out(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    both = found_in(template(a=1, b=2), template(shadow=True, a=1, b=3, c=4))
    manager.on_pattern_processors_updated(both)
    in_set = [(one.id, one.version, one.shadow) for one in manager.current_pattern_processors()]
    assert sorted(in_set) == sorted((one.id, one.version, one.shadow) for one in both if one is not both[2])
    assert manager.current_status().refused == {}
    # A plain rule with the version of that in force is refused.
    manager.on_pattern_processors_updated([V1.as_data(), rule(1, shadow=True).as_data()])
    assert list(manager.current_status().refused) == ["ab@1"]


@pytest.mark.parametrize("seed", range(examples(1, usual=3)))
def test_a_promoted_template_keeps_the_partial_matches_of_its_rules(seed: int) -> None:
    rng = random.Random(seed)
    events = [e(second, rng.choice("ab"), rng.choice(["ann", "bob"]), rng.uniform(0, 5)) for second in range(90)]
    rows, others = {"a": 1, "b": 2}, {"b": 3, "c": 1.5}
    shadows = found_in(template(shadow=True, **others))
    whole = Driver().batch(sets=found_in(template(**others))).batch(events).end()
    made = Driver().batch(sets=[*found_in(template(**rows)), *shadows])
    for number, part in enumerate(cuts(events, rng)):
        if number == 15:
            made.batch(sets=found_in(template(**others)))
        made.batch(part, watermark=part[-1][0] - 1)
    made.end()
    versions = {one.version for one in shadows}

    def ids(driver: Driver, *outputs: str) -> list[str]:
        return sorted(
            row["match_id"] for name in outputs for row in driver.rows[name] if row["processor_version"] in versions
        )

    assert ids(whole, MATCHES) == ids(made, MATCHES, SHADOW)
    assert ids(made, MATCHES)
    assert ids(made, SHADOW)


def test_to_be_a_shadow_does_not_define_a_version() -> None:
    one, other = SHADOW_2.as_data(), V2.as_data()
    assert one != other
    assert one.has_definition_of(other)
    assert one.definition == other.definition
    assert UsedVersions().with_([one]).check(other) is None


# ---------------------------------------------------------------------- entries


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        pytest.param([[V1, SHADOW_2]], [(1, False, 1), (2, True, 1)], id="both"),
        pytest.param([[SHADOW_2, V1]], [(1, False, 1), (2, True, 1)], id="in any order"),
        pytest.param([[SHADOW_2]], [(2, True, 1)], id="alone"),
        pytest.param([[V1, SHADOW_2], [V2]], [(2, False, 1)], id="promoted"),
        pytest.param([[SHADOW_2], [V2]], [(2, False, 1)], id="promoted without a version in force"),
        pytest.param([[V1, SHADOW_2], [V1]], [(1, False, 1)], id="removed"),
        pytest.param([[V1, SHADOW_2], [SHADOW_2]], [(2, True, 1)], id="the version in force is removed"),
        pytest.param(
            [[V1, SHADOW_2], [V1, rule(3, shadow=True)]], [(1, False, 1), (3, True, 2)], id="replaced by another one"
        ),
        pytest.param([[V1, SHADOW_2], [rule(3), SHADOW_2]], [(3, False, 2), (2, True, 1)], id="stays beside another"),
        pytest.param([[V2], [V1, SHADOW_2]], [(1, False, 2), (2, True, 1)], id="becomes a shadow"),
        pytest.param(
            [[V1, SHADOW_2], [V2, rule(1, shadow=True)]], [(2, False, 1), (1, True, 1)], id="the two are swapped"
        ),
        pytest.param(
            [[V1, SHADOW_2], [V2, rule(3, shadow=True)]], [(2, False, 1), (3, True, 2)], id="promoted, with another one"
        ),
        pytest.param([[V1, SHADOW_2], [V2], [V1]], [(1, False, 3)], id="promoted and rolled back"),
        pytest.param(
            [[V1], [rule(3, timestamp=at(9)), rule(1, shadow=True)]],
            [(1, False, 1), (3, False, 2), (1, True, 2)],
            id="a version that is in force until later runs anew as a shadow",
        ),
    ],
)
def test_what_is_kept(sets: list[list[PatternProcessor]], expected: list[tuple[int, bool, int]]) -> None:
    assert entries_of(*sets, horizon=0) == expected


def test_a_shadow_can_wait_and_be_promoted_before_its_time() -> None:
    timed, promoted = rule(2, shadow=True, timestamp=at(10)), rule(2, timestamp=at(10))
    entries = updated([], ProcessorSet(1, (V1, timed)), 0)
    assert [(one.begins, one.until) for one in entries] == [(None, None), (10 * SECOND, None)]
    before = updated(entries, ProcessorSet(2, (promoted,)), 5 * SECOND)
    assert [(one.processor.version, one.until) for one in before] == [(1, 10 * SECOND), (2, None)]
    after = updated(entries, ProcessorSet(2, (promoted,)), 10 * SECOND)
    assert [(one.processor.version, one.processor.shadow, one.since) for one in after] == [(2, False, 1)]


def test_an_entry_is_read_as_it_was_written() -> None:
    [entry] = updated([], ProcessorSet(1, (SHADOW_2,)), 0)
    assert Entry.from_dict(entry.to_dict()) == entry


# ---------------------------------------------------------------------- beside the version in force


def test_matches_of_a_shadow_are_in_an_output_of_their_own() -> None:
    rules = [
        V1,
        rule(2, shadow=True, of=chain("a", "c"), labels={"owner": "ann"}, select=("LAST(c.x) AS x",)),
        PatternProcessor("sql", 1, sql=SQL, shadow=True),
    ]
    driver = Driver().batch([e(1, "a"), e(2, "b"), e(3, "c", x=7.0)], sets=rules, watermark=3).end()
    assert ids_of(driver) == [(1, 2)]
    shadows = {row["processor_id"]: row for row in driver.rows[SHADOW]}
    assert shadows["ab"]["measures"] == [("x", "7.0")]
    assert shadows["ab"]["labels"] == [("owner", "ann")]
    assert shadows["sql"]["measures"] == [("x", "0.0")]
    assert driver.operator.output_schemas[SHADOW] == driver.operator.output_schemas[MATCHES]
    assert (driver.metrics["matches"], driver.metrics["shadow"]) == (1, 2)
    assert driver.counts.versions["ab", 2] == VersionCounts(since=1, shadow_matches=1, last_match=3 * SECOND, events=2)


def test_matches_of_shadows_are_only_counted_if_nobody_wants_them() -> None:
    rules = [V1, SHADOW_2, PatternProcessor("sql", 1, sql=SQL, shadow=True)]
    driver = Driver(wants_shadow=False).batch([e(1, "a"), e(2, "b")], sets=rules, watermark=3).end()
    assert (len(driver.rows[MATCHES]), driver.rows[SHADOW]) == (1, [])
    assert driver.metrics["shadow"] == 2


def test_timed_out_partial_matches_of_a_shadow_are_only_counted() -> None:
    rules = [
        rule(version, shadow=version == 2, of=chain("a", "b", within=5), timed_out=True, select=("LAST(a.x) AS x",))
        for version in (1, 2)
    ]
    driver = Driver().batch([e(1, "a")], sets=rules, watermark=9).end()
    assert ids_of(driver, TIMED_OUT) == [(1, 6)]
    assert (driver.rows[SHADOW], driver.metrics["timed_out"]) == ([], 1)
    assert [driver.counts.versions["ab", version].timed_out for version in (1, 2)] == [1, 1]


def test_late_events_that_only_a_shadow_can_use_are_not_reported() -> None:
    other = rule(2, shadow=True, of=chain("c", "d", strict=True), key=("item",))
    for more in ([], [other]):
        driver = Driver(key_groups=2).batch(sets=[V1, *more], watermark=10)
        driver.batch([e(1, "a"), e(2, "c"), e(3, "x"), e(4, "b")]).end()
        assert sorted(row["kind"] for row in driver.rows[LATE]) == ["a", "b"]
        assert driver.metrics["late_elements"] == 2


@pytest.mark.parametrize(
    "more",
    [
        {"select": ("1 / (LAST(b.item) - 1) AS q",)},
        {"of": Pattern.begin("a").where("1 / (item - 1) = 1").followed_by("b").where("kind = 'b'")},
        {"key": ("1 / (item - 1)",)},
        {"max_partial_matches": 1, "of": chain("a", "c")},
        {"of": "MEASURES 1 / (LAST(A.item) - 1) AS q PATTERN (A) DEFINE A AS kind = 'a'"},
    ],
    ids=["measure", "condition", "key", "limit", "clause"],
)
def test_a_shadow_that_fails_disables_only_itself(more: dict[str, Any]) -> None:
    """Also if other rules would make the query fail."""
    driver = Driver(disable_on_error=False, disable_on_limit=False)
    driver.batch([e(1, "a"), e(2, "a"), e(3, "b"), e(4, "a"), e(5, "b")], sets=[V1, rule(2, shadow=True, **more)])
    driver.batch(watermark=9).end()
    assert ids_of(driver) == [(1, 3), (1, 3), (1, 5)]
    assert [row["processor_version"] for row in driver.rows[ERRORS]] == [2]
    assert driver.counts.versions["ab", 2].errors == 1


def test_a_shadow_that_failed_stays_disabled_when_it_is_promoted() -> None:
    failing = {"select": ("1 / LAST(a.x) AS q",)}
    driver = Driver().batch([e(1, "a"), e(2, "b")], sets=[V1, rule(2, shadow=True, **failing)], watermark=3)
    driver.batch([e(4, "a", x=1.0), e(5, "b")], sets=[rule(2, **failing)], watermark=9)
    assert (ids_of(driver), driver.rows[SHADOW]) == ([(1, 2)], [])


def test_if_there_is_too_much_state_shadows_are_disabled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STATE", 20_000)
    shadow = rule(2, shadow=True, of=Pattern.begin("a").where("kind = 'a' AND x > 100").followed_by("b"))
    events = [e(n / 100, "a", f"u{n}", x=n) for n in range(150)]
    driver = Driver(disable_on_limit=False).batch(events, sets=[V1, shadow], watermark=5)
    assert [row["processor_version"] for row in driver.rows[ERRORS]] == [2]
    assert driver.counts.versions["ab", 1].partial_matches == 150


@pytest.mark.parametrize("page", [CLAUSES_PAGE, SUPPRESSIONS_PAGE])
def test_if_there_is_too_much_other_state_shadows_are_disabled_first(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if another rule has more of it: rows of clauses, or suppressed keys."""
    any_a, day = Pattern.begin("a").where("kind = 'a'"), timedelta(days=1)
    if page == CLAUSES_PAGE:
        more, fewer = rule(1, of=SQL), rule(2, shadow=True, of=SQL.replace("A AS kind", "A AS x > 100 AND kind"))
    else:
        more, fewer = (rule(n, shadow=n == 2, of=any_a, suppress=day, key=key) for n, key in ((1, ("user",)), (2, ())))
    events = [e(n / 100, "a", f"u{n}", x=n) for n in range(150)]
    alone = Driver(disable_on_limit=False).batch(events, sets=[more], watermark=5).stores[0].read_page(page)
    assert alone is not None
    monkeypatch.setattr(module, "MAX_STATE", len(alone))
    driver = Driver(disable_on_limit=False).batch(events, sets=[more, fewer], watermark=5)
    assert [row["processor_version"] for row in driver.rows[ERRORS]] == [2]
    assert driver.stores[0].read_page(page) is not None


def test_suppressed_matches_of_a_shadow_are_its_own() -> None:
    rules = [rule(number, shadow=number == 2, of=Pattern.begin("a").where("kind = 'a'")) for number in (1, 2)]
    rules[1] = rule(2, shadow=True, of=rules[1].pattern, suppress=timedelta(seconds=10))
    driver = Driver().batch([e(1, "a"), e(2, "a"), e(12, "a")], sets=rules).end()
    assert [row["suppressed"] for row in driver.rows[MATCHES]] == [0, 0, 0]
    assert [row["suppressed"] for row in driver.rows[SHADOW]] == [0, 1]
    assert "suppressed" not in driver.metrics


def test_a_shadow_alone_is_killed() -> None:
    driver = Driver().batch([e(1, "a"), e(2, "b")], sets=[V1, SHADOW_2], killed=["ab@2"], watermark=3)
    driver.batch([e(4, "a"), e(5, "b")], sets=[V1, SHADOW_2], watermark=6).end()
    assert (ids_of(driver), ids_of(driver, SHADOW)) == ([(1, 2), (1, 5)], [])


def test_a_shadow_expires() -> None:
    driver = Driver().batch(sets=[V1, rule(2, shadow=True, expires=at(4))])
    driver.batch([e(1, "a"), e(3, "b"), e(4, "b")]).end()
    assert (ids_of(driver), ids_of(driver, SHADOW)) == ([(1, 3)], [(2, 3)])
    assert driver.counts.versions["ab", 2].partial_matches == 0


# ---------------------------------------------------------------------- promotion


@pytest.mark.parametrize("of", [chain("a", "b"), SQL], ids=["pattern", "clause"])
def test_no_match_that_spans_a_promotion_is_lost(of: Pattern | str) -> None:
    driver = Driver().batch([e(1, "a"), e(2, "b"), e(3, "a")], sets=[V1, rule(2, shadow=True, of=of)], watermark=3)
    driver.batch([e(4, "b"), e(5, "a"), e(6, "b")], sets=[rule(2, of=of)], watermark=9).end()
    assert ids_of(driver) == [(1, 2), (2, 4), (2, 6)]
    assert ids_of(driver, SHADOW) == [(2, 2)]
    counts = driver.counts.versions["ab", 2]
    assert (counts.shadow_matches, counts.matches, counts.since) == (1, 2, 1)


def test_an_event_that_waits_for_the_watermark_is_seen_by_the_promoted_version_alone() -> None:
    driver = Driver().batch([e(1, "a"), e(5, "b")], sets=[V1, SHADOW_2], watermark=2)
    driver.batch(sets=[V2], watermark=9).end()
    assert (ids_of(driver), ids_of(driver, SHADOW)) == ([(2, 5)], [])


def test_suppressed_matches_stay_counted() -> None:
    of = Pattern.begin("a").where("kind = 'a'")
    span = timedelta(seconds=10)
    driver = Driver().batch([e(1, "a"), e(2, "a")], sets=[V1, rule(2, shadow=True, of=of, suppress=span)], watermark=3)
    driver.batch([e(4, "a"), e(11, "a")], sets=[rule(2, of=of, suppress=span)], watermark=12).end()
    assert [(row["match_time"].timestamp(), row["suppressed"]) for row in driver.rows[MATCHES]] == [(11, 2)]
    assert driver.metrics["suppressed"] == 1


def test_a_match_id_does_not_depend_on_the_output() -> None:
    events = [e(1, "a"), e(2, "b")]
    [live] = Driver().batch(events, sets=[V2]).end().rows[MATCHES]
    [shadow] = Driver().batch(events, sets=[V1, SHADOW_2]).end().rows[SHADOW]
    assert live == shadow


def test_the_state_of_a_removed_shadow_is_removed() -> None:
    clause = PatternProcessor("sql", 1, sql=SQL, shadow=True)
    driver = Driver().batch([e(1, "a")], sets=[SHADOW_2, clause], watermark=1)
    assert driver.stores[0].read_page(CLAUSES_PAGE) is not None
    driver.batch(sets=[], watermark=2)
    assert [driver.stores[0].read_page(page) for page in (0, CLAUSES_PAGE)] == [None, None]


def test_key_groups_report_that_a_promoted_version_has_replaced_another() -> None:
    """So that the copies of events for the replaced one end."""
    timed, promoted = rule(2, shadow=True, timestamp=at(1)), rule(2, timestamp=at(1))
    driver = Driver().batch(sets=[V1, timed], watermark=5)
    driver.batch(sets=[promoted], watermark=6)
    assert driver.sets.replaced[-1] == (2, [])


# ---------------------------------------------------------------------- whatever is published, wherever micro-batches end

SHADOWS: list[Callable[[int], PatternProcessor]] = [
    lambda n: rule(n, shadow=True, of=chain("a", "b")),
    lambda n: rule(n, shadow=True, of=chain("b", "a", strict=True), timed_out=True, key=("item",)),
    lambda n: rule(n, shadow=True, of=chain("a", "c"), select=("1 / (LAST(c.x) - 3) AS q",)),
    lambda n: rule(n, shadow=True, of=Pattern.begin("a").where("kind = 'a'"), suppress=timedelta(seconds=7)),
    lambda n: rule(n, shadow=True, of=chain("c", "d"), max_partial_matches=1),
    lambda n: rule(n, shadow=True, of=SQL, suppress=timedelta(seconds=5)),
    lambda n: rule(n, shadow=True, of=SQL.replace("LAST(A.x)", "1 / (LAST(A.x) - 2)")),
    lambda n: rule(n, shadow=True, of=chain("a", "b"), timestamp=at(40), expires=at(90)),
]
IN_FORCE = [
    rule(1, of=chain("a", "b", within=20), timed_out=True, suppress=timedelta(seconds=9)),
    processor("cd", 1, chain("c", "d", strict=True), key=("item",), timed_out=True),
    PatternProcessor("sql", 1, sql=SQL),
]


def some_events(rng: random.Random, count: int) -> list[Event]:
    times = sorted(rng.choices(range(120), k=count))
    return [e(time, rng.choice("aabbccd"), rng.choice("uvw"), float(rng.randrange(5))) for time in times]


def comparable(driver: Driver, *outputs: str) -> dict[str, list[str]]:
    return {name: sorted(map(str, driver.rows[name])) for name in outputs}


@pytest.mark.parametrize("seed", range(examples(1, usual=2)))
def test_shadows_do_not_change_what_others_give(seed: int) -> None:
    """Whatever is published while the query runs, and wherever its micro-batches end."""
    rng = random.Random(seed)
    events = some_events(rng, 90)
    alone = Driver(max_partial_matches=50).batch(events, sets=IN_FORCE, watermark=200).end()
    wanted = comparable(alone, MATCHES, TIMED_OUT, LATE)
    assert len(wanted[MATCHES]) > 10
    driver = Driver(key_groups=rng.choice([1, 3]), max_partial_matches=50)
    sets: list[PatternProcessor] | None = IN_FORCE
    for number, part in enumerate(cuts(events, rng), 2):
        if rng.random() < 0.4:
            sets = [*IN_FORCE, *([rng.choice(SHADOWS)(number)] if rng.random() < 0.8 else [])]
        driver.batch(part, sets=sets, watermark=(part[-1][0] or 0) - 1)
        sets = None
    driver.batch(watermark=200).end()
    assert comparable(driver, MATCHES, TIMED_OUT, LATE) == wanted
    assert driver.rows[SHADOW]
    assert {row["processor_version"] for row in driver.rows[ERRORS]}.isdisjoint({1})


@pytest.mark.parametrize("seed", range(examples(1, usual=2)))
def test_promotions_do_not_depend_on_micro_batches(seed: int) -> None:
    """In one micro-batch between two sets, row by row, or in random cuts."""
    rng = random.Random(seed)
    events = some_events(rng, 60)
    one, other = rng.sample(SHADOWS[:-1], 2)
    steps = [
        [IN_FORCE[0], one(2)],
        [_promoted(one(2)), *IN_FORCE[1:]],
        [_promoted(one(2)), other(3)],
        [IN_FORCE[0], other(3)],
        [_promoted(other(3)), IN_FORCE[1], replace(IN_FORCE[0], shadow=True)],
    ]  # fmt: skip
    ends = sorted(rng.sample(range(5, 110), len(steps) - 1))
    found = []
    groups = rng.choice([1, 3])  # a rule that fails is disabled in one of them
    for how in ("whole", "rows", "cuts"):
        shares._SETS.clear()
        driver = Driver(key_groups=groups, max_partial_matches=50, disable_on_error=True)
        for rules, begin, end in zip(steps, [-1, *ends], [*ends, 200], strict=True):
            mine = [event for event in events if begin < (event[0] or 0) <= end]
            driver.batch(sets=rules)
            parts = [mine] if how == "whole" else [[event] for event in mine] if how == "rows" else cuts(mine, rng)
            for part in parts:
                driver.batch(part, watermark=None if how == "whole" or not part else (part[-1][0] or 0) - 1)
            driver.batch(watermark=end)
        driver.end()
        found.append(comparable(driver, MATCHES, TIMED_OUT, SHADOW, LATE))
    assert found[0][SHADOW]
    assert found[0] == found[1] == found[2]


def _promoted(one: PatternProcessor) -> PatternProcessor:
    return replace(one, shadow=False)


def test_counts_of_an_earlier_release_are_read() -> None:
    written = (
        b'{"query": "q", "batch": 3, "missed": 0, "watermark": null, "versions": [["a", 1, 1, 5, 0, 0, 2, 0, 7, null]]}'
    )
    counts = RuleCounts.from_bytes(written)
    assert counts.versions["a", 1] == VersionCounts(since=1, matches=5, partial_matches=2, last_match=7)
    assert RuleCounts.from_bytes(counts.to_bytes()) == counts
