"""What a rule finds depends on event time and on sets alone: the operator against a reference that knows no micro-batches."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from asterism import Pattern, PatternProcessor
from asterism.operators.operator import EVENTS
from asterism.rules.definition.lookup_tables import LookupColumn
from asterism.rules.matching.result_rows import MATCHES, SHADOW
from tests.kit import examples
from tests.operators.partitioned_query import with_partitions
from tests.reference.rules import BEFORE, Event, Found, Rule, RuleSet, matches
from tests.rules.driver import SCHEMA, Driver, at

LIMITS = LookupColumn("limits", ("customer",), ("user",), pa.schema([("customer", pa.string()), ("max", pa.float64())]))
USERS, KINDS = ("ann", "bob"), "abcd"
ANCHORS = (Rule("anchor", 1, ("d", "d"), by="item"), Rule("clause", 1, ("d", "d"), by="item", clause=True))
"""Rules by item. Without them, a rule may be the first to group by its key, see docs/rules.md."""
SEEDS = examples(8, usual=40)


def processor_of(rule: Rule) -> PatternProcessor:
    """The rule, with conditions that are in the index of conditions, or in part, or not, or that only DuckDB can evaluate."""
    first = "V0.kind" if rule.clause else "LAST(s0.kind)"

    def condition(number: int, kind: str) -> str:
        form = (rule.version + number) % (4 if number else 3)  # the definition of a version does not change
        found = (
            f"kind = '{kind}'",
            f"upper(kind) = '{kind.upper()}'",
            f"kind = '{kind}' AND length(user) = 3",
            f"concat({first}, kind) = '{rule.kinds[0]}{kind}'",
        )[form]
        return f"{found} AND x > limits.max" if rule.above_limit and not number else found

    more: dict[str, Any] = {
        "timestamp": None if rule.timestamp is None else at(rule.timestamp),
        "expires": None if rule.expires is None else at(rule.expires),
        "shadow": rule.shadow,
        "suppress": None if rule.suppress is None else timedelta(seconds=rule.suppress),
    }
    if rule.clause:
        variables = [f"V{number}" for number in range(len(rule.kinds))]
        defined = ", ".join(
            f"{name} AS {condition(number, kind)}"
            for number, (name, kind) in enumerate(zip(variables, rule.kinds, strict=True))
        )
        sql = f"PARTITION BY {rule.by} PATTERN ({' '.join(variables)}) DEFINE {defined}"
        return PatternProcessor(rule.id, rule.version, None, sql=sql, **more)
    pattern = Pattern.begin("s0").where(condition(0, rule.kinds[0]))
    for number, kind in enumerate(rule.kinds[1:], 1):
        pattern = pattern.followed_by(f"s{number}").where(condition(number, kind))
    key = None if rule.by == "user" else (rule.by,)
    return PatternProcessor(rule.id, rule.version, pattern, key=key, **more)


class Story:
    """Random sets, events and micro-batches, for the operator and for the reference."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.disorder = rng.choice([0, 0, 3, 10, 40])
        self.anchors = rng.choice([ANCHORS, ()])
        waiting_time = self.disorder * 1_000_000 + 1_000
        self.driver = Driver(
            key_groups=rng.choice([1, 3]),
            lookups=[LIMITS],
            waiting_time=rng.choice([None, waiting_time]) if self.anchors == ANCHORS else waiting_time,
        )
        self.partitions: dict[str, float] | None = None
        """If each partition has a watermark: their watermarks."""
        self.behind = 0
        if rng.random() < 0.4:
            self.partitions, self.behind = {}, rng.choice([0, 5, 60])
            with_partitions(self.driver.operator)
            self.driver.operator.options = replace(self.driver.operator.options, waiting_time=waiting_time)
        self.events: list[Event] = []
        self.sets: list[tuple[float, RuleSet]] = []
        self.time, self.watermark, self.latest = 0, BEFORE, BEFORE
        self.rules: dict[tuple[str, bool], Rule] = {}
        self.earlier: dict[tuple[str, bool], list[Rule]] = {}
        """Versions before these, which the source still has, and some that do not fit."""
        self.killed: set[str] = set()
        self.limits: dict[str, float] = {}
        self.known: dict[tuple[str, int], Rule] = {}

    def rule(self, id: str) -> Rule:
        """A version, always with the same definition."""
        rng, version = self.rng, self.rng.randint(1, 6)
        if (id, version) not in self.known:
            later = rng.choice([None, None, self.time + rng.randint(-5, 60)])
            clause = rng.random() < 0.3
            self.known[id, version] = Rule(
                id,
                version,
                tuple(rng.sample("abc", rng.randint(1, 3))),
                rng.choice(["user", "item"]),
                clause=clause,
                above_limit=rng.random() < 0.3,
                timestamp=later,
                suppress=rng.choice([None, None, None, 7.0]),
            )
        return self.known[id, version]

    def change(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            what, id = rng.random(), rng.choice("pq")
            here = [slot for slot in self.rules if slot[0] == id]
            if what < 0.45:
                new = self.rule(id)
                if (id, False) in self.rules and rng.random() < 0.6:
                    self.earlier.setdefault((id, False), []).append(self.rules[id, False])
                self.rules[id, False] = new
            elif what < 0.5 and here:
                slot = rng.choice(here)
                self.earlier[slot] = [rule for rule in self.earlier.get(slot, []) if rng.random() < 0.6]
            elif what < 0.55 and here:
                del self.rules[rng.choice(here)]
            elif what < 0.7:
                self.rules[id, True] = replace(self.rule(id), shadow=True)
            elif what < 0.78 and (id, True) in self.rules:  # promoted
                self.rules[id, False] = replace(self.rules.pop((id, True)), shadow=False)
            elif what < 0.86 and here:
                slot = rng.choice(here)
                expires = rng.choice([None, float(self.time + rng.randint(-5, 40))])
                if expires is not None and self.rules[slot].timestamp is not None:
                    expires = max(expires, self.rules[slot].timestamp + 1)
                self.rules[slot] = replace(self.rules[slot], expires=expires)
            elif what < 0.93 and here:
                rule = self.rules[rng.choice(here)]
                self.killed ^= {rng.choice([rule.id, f"{rule.id}@{rule.version}"])}
            else:
                self.limits = {user: float(rng.randint(0, 9)) for user in USERS if rng.random() < 0.8}
        for id in "pq":
            versions = [rule.version for slot, rule in self.rules.items() if slot[0] == id]
            if len(versions) > len(set(versions)):
                del self.rules[id, True]

    def listed(self) -> tuple[Rule, ...]:
        """What the source has: of a slot, perhaps several versions that come into force in turn."""
        found = [*self.anchors]
        for slot, last in self.rules.items():
            others = {self.rules[each].version for each in self.rules if each != slot and each[0] == slot[0]}
            chain = [last]
            for rule in sorted(self.earlier.get(slot, []), key=lambda rule: -rule.version):
                next_one = chain[0]
                in_turn = next_one.timestamp is not None and (
                    rule.timestamp is None or rule.timestamp < next_one.timestamp
                )
                if rule.version < next_one.version and in_turn and rule.version not in others:
                    chain.insert(0, rule)
            found += chain
        return tuple(found)

    def announced(self) -> dict[str, Any]:
        """Perhaps a set, and sets that were replaced before a micro-batch brought them."""
        rng = self.rng
        if self.sets and rng.random() < 0.5:
            return {}
        before = []
        while rng.random() < 0.3:
            self.change()
            before.append(self.listed())
        self.change()
        rules = self.listed()
        named = {rule.id for rule in rules} | {f"{rule.id}@{rule.version}" for rule in rules}
        # A person may still name what has not been in a set for long.
        killed = frozenset(self.killed & named)
        if not self.sets or self.limits != self.sets[-1][1].limits:
            columns = {"customer": list(self.limits), "max": list(self.limits.values())}
            self.driver.sets.look_up(LIMITS, pa.table(columns, LIMITS.schema))
        # The version of a table is that of the set that brings it.
        self.sets.append((self.watermark, RuleSet(rules, killed, dict(self.limits), tuple(before), self.latest)))
        return {
            "sets": self._processors(rules),
            "between": [self._processors(some) for some in before],
            "killed": sorted(killed),
        }

    def _processors(self, rules: Sequence[Rule]) -> list[PatternProcessor]:
        return [processor_of(rule).as_data() for rule in rules]

    def batch(self) -> None:
        rng = self.rng
        published = self.announced()
        new: list[Event] = []
        of_partition: dict[str, float] = {}
        for _ in range(rng.randint(0, 6)):
            self.time += rng.choice([0, 1, 1, 2, 5])
            partition = rng.choice("01") if self.partitions is not None else "0"
            time = float(max(0, self.time - rng.randint(0, self.disorder) - self.behind * int(partition)))
            event = Event(
                time,
                len(self.events) + len(new),
                rng.choice(USERS),
                rng.randint(1, 2),
                rng.choice(KINDS),
                rng.randint(0, 9),
            )
            new.append(event)
            of_partition[partition] = max(time - self.disorder - 0.001, of_partition.get(partition, BEFORE))
        rows = [(one.time, one.user, one.item, one.kind, one.x) for one in new]
        self.latest = max([self.latest, *(one.time for one in new)])
        # As of Spark: a micro-batch without events leaves the watermark as it is.
        moves = self.latest - self.disorder - 0.001 if new else None
        if self.partitions is not None:
            self.partitions |= {
                name: max(each, self.partitions.get(name, BEFORE)) for name, each in of_partition.items()
            }
            moves = min(self.partitions.values(), default=None)
            published["partitions"], sent = of_partition, None
        else:
            sent = moves
        if rng.random() < 0.3:
            self.driver.sets.surplus = self._processors([self.rule("p"), *self.anchors])
        if rng.random() < 0.2:  # an attempt that fails
            stores, kept = copy.deepcopy(self.driver.stores), copy.deepcopy(self.driver.rows)
            numbers = len(self.driver.sets.all)
            self.driver.batch(rows, **published, watermark=sent)
            self.driver.stores, self.driver.rows = stores, kept
            del self.driver.sets.all[numbers:]
        self.driver.batch(rows, **published, watermark=sent)
        self.driver.sets.surplus = []
        self.events += [one for one in new if one.time > self.watermark]
        if moves is not None:
            self.watermark = max(self.watermark, moves)

    def found(self) -> list[Found]:
        rows = [(row, output == SHADOW) for output in (MATCHES, SHADOW) for row in self.driver.rows[output]]
        return sorted(
            (
                row["processor_id"],
                row["processor_version"],
                row["key"][0],
                row["start_time"].timestamp(),
                row["end_time"].timestamp(),
                shadow,
                row["suppressed"] or 0,
            )
            for row, shadow in rows
        )


@pytest.mark.parametrize("part", range(4))
def test_every_rule_finds_what_it_would_find_if_nothing_waited(part: int) -> None:
    found = 0
    for seed in range(part, SEEDS, 4):
        story = Story(seed)
        for _ in range(story.rng.randint(3, 12)):
            story.batch()
        story.driver.end()
        expected = matches(story.events, story.sets)
        assert story.found() == expected, seed
        found += len(expected)
    assert found > SEEDS / 4


def test_a_rule_with_a_new_key_begins_after_all_partitions_that_there_have_been() -> None:
    """Also if the query has no partitions any longer: the fastest one was ahead of the watermark."""
    driver = Driver(waiting_time=1_000)
    with_partitions(driver.operator)
    anchor, pair = (
        processor_of(Rule(name, 1, tuple("ab"), by)).as_data() for name, by in (("u", "user"), ("i", "item"))
    )
    driver.batch(
        [(100.0, "ann", 1, "x", 0.0), (10.0, "ann", 1, "x", 0.0)], sets=[anchor], partitions={"0": 99.999, "1": 9.999}
    )
    driver.operator.inputs = {
        **driver.operator.inputs,
        EVENTS: replace(driver.operator.inputs[EVENTS], watermark_by=()),
    }
    driver.batch([(20.0, "ann", 1, "x", 0.0)], watermark=19.999)
    driver.batch([(50.0, "bob", 2, "a", 0.0), (60.0, "bob", 2, "b", 0.0)], sets=[anchor, pair], watermark=59.999)
    driver.batch([(121.0, "bob", 3, "a", 0.0), (122.0, "bob", 3, "b", 0.0)], watermark=121.999)
    driver.end()
    assert [row["start_time"].timestamp() for row in driver.rows[MATCHES] if row["processor_id"] == "i"] == [121]
    assert [row["start_time"].timestamp() for row in driver.rows[MATCHES] if row["processor_id"] == "u"] == [50, 121]


def test_schema_has_the_columns_of_the_reference() -> None:
    assert {"user", "item", "kind", "x"} < set(SCHEMA.names)
