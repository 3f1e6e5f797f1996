"""State that an earlier release has written opens, and the query goes on as if it had never been stopped."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.nemesis.queries import QUERIES, text
from tests.nemesis.replay import Replay, history, keep_operator, kept_operator, written
from tests.upgrade.checkpoints import FILES, MORE, archive_of, as_rules_were_stored, go_on, query_of, releases, restore

pytestmark = pytest.mark.spark


FAST = ("0.1.0", "rules")
"""Patterns, sets of rules, and events that wait for the watermark."""


def test_checkpoint_of_an_earlier_release(spark: SparkSession, tmp_path: Path) -> None:
    """In one run; ``test_upgrade_slow.py`` has two."""
    check_upgrade(spark, tmp_path, *FAST, more=2)


def check_upgrade(spark: SparkSession, tmp_path: Path, release: str, kind: str, more: int = MORE) -> None:
    """What comes after the checkpoint is what the code of today makes of all events, from the first one on.

    Of events that wait in a checkpoint until 0.2.0-alpha, only those are there that the rules of that time needed.
    """
    query = query_of(kind, tmp_path)
    restore(query, archive_of(release, kind))
    stored = len(list((query.checkpoint / "commits").glob("[0-9]*")))
    assert stored >= FILES
    with keep_operator(tmp_path):
        go_on(spark, query, tmp_path, more)
    replay = Replay(kept_operator(tmp_path), query)
    rows = dict.fromkeys(query.outputs, 0)
    for batch in history(query):
        wanted_rows = replay.batch(batch)
        if batch.number < stored and replay.rules:
            as_rules_were_stored(replay)
        for output, wanted in wanted_rows.items():
            if batch.number >= stored:
                found = sorted(map(text, written(tmp_path, output, batch.number)))
                assert found == sorted(map(text, wanted)), (batch, output)
                rows[output] += len(wanted)
    replay.close()
    assert all(rows[output] for output in query.outputs if output not in ("late", "errors", "shadow")), rows


def test_every_kind_is_stored() -> None:
    """Of the first release, what there was; of this one and of the next, everything."""
    found = list(releases())
    kinds = {release: {kind for name, kind in found if name == release} for release, _ in found}
    joins = {"interval_join", "as_of_join", "window_join", "multi_join"}
    assert kinds[version("asterism")] == set(QUERIES) - joins
    assert kinds["0.2.0-alpha"] == set(QUERIES)
    assert all(archive_of(*one).stat().st_size < 200_000 for one in found)
