"""Rules continue from a savepoint, with other key groups and at another path, with the rows of a query that was never stopped."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asterism import create_savepoint, read_savepoint, read_state, rescale_checkpoint, restore_savepoint
from asterism.discovery import status_of
from asterism.rules.definition.processor import PatternProcessor
from tests.kit import until
from tests.savepoints.test_rules_regrouped import OTHERS, RULES
from tests.spark.rules import Watch

pytestmark = pytest.mark.spark


class Stopped(Watch):
    """A query that stops after each file of events."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        folder.mkdir()
        super().__init__(spark, folder, delay=6, key_groups=None)

    def rows(self) -> Counter[str]:
        return Counter(f"{name} {row}" for name, sink in self.sinks.items() for row in sink.rows)

    def part(self, number: int, rng: random.Random) -> None:
        rules: dict[str, PatternProcessor] = {}
        for rule in [*RULES[:4], *OTHERS[1:5]] if number < 3 else [*RULES[2:], *OTHERS[:6]]:
            rules[rule.id] = rule
        self.rules(*rules.values())
        begin = 20 * number
        kinds = rng.choices("abc", k=40)
        users = ["ann", "bob", "Bob", "eve", "max", "tom"]
        self.events(
            *((begin + rng.randrange(26) - 6, kind, rng.choice(users), rng.randrange(4), 1.0) for kind in kinds)
        )
        self.once()


def test_rules_continue_with_other_key_groups_and_another_path(spark: SparkSession, tmp_path: Path) -> None:
    whole, moved = Stopped(spark, tmp_path / "whole"), Stopped(spark, tmp_path / "moved")
    for query in (whole, moved):
        rng = random.Random(3)
        query.options["key_groups"] = 3 if query is moved else 4
        for number in range(6):
            if query is moved and number:
                query.options["key_groups"] = None
                move(spark, query, number)
            query.part(number, rng)
    assert moved.rows() == whole.rows()
    assert {name.partition(" ")[0] for name in whole.rows()} == {"matches"}
    until(lambda: counts_of(moved) == counts_of(whole))


def counts_of(query: Watch) -> dict[tuple[str, int], Any]:
    status = status_of(str(query.checkpoint))
    return {(r.id, r.version or 0): (r.matches, r.partial_matches, r.state) for r in status.rules if r.id != "expires"}


def move(spark: SparkSession, query: Watch, number: int) -> None:
    """Odd steps make another checkpoint, even ones rescale it in place."""
    if number % 2 == 0:
        rescale_checkpoint(spark, str(query.checkpoint), tasks=1, key_groups=number + 3)
        return
    savepoint, checkpoint = query.folder / f"savepoint-{number}", query.folder / f"checkpoint-{number}"
    create_savepoint(spark, str(query.checkpoint), str(savepoint))
    before, stored = read_state(spark, str(query.checkpoint)), read_savepoint(spark, str(savepoint))
    assert [rule.id for rule in stored.processors()] == [rule.id for rule in before.processors()]
    matches = [Counter(map(str, state.partial_matches(events=True).collect())) for state in (before, stored)]
    assert matches[0] == matches[1] != Counter()
    restore_savepoint(spark, str(savepoint), str(checkpoint), key_groups=number + 1, tasks=2)
    assert json.loads((savepoint / "rules.json").read_text())["entries"]
    query.checkpoint.rename(query.folder / f"former-{number}")
    query.checkpoint = checkpoint
