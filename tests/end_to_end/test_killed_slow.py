"""Killed with -9 at each point, again and again: no query, of whatever kind, loses or doubles anything."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.end_to_end.test_killed import Lives, check_moments, check_rows, lives_of
from tests.end_to_end.victim import POINTS
from tests.nemesis.queries import QUERIES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
KINDS = [kind for kind in QUERIES if kind not in ("as_of_join", "window_join")]
"""A query of each kind of operator; of the joins of two streams, one."""


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    return lives_of(KINDS, POINTS, tmp_path_factory.mktemp("killed"))


def test_where_they_were_killed(lives: Lives) -> None:
    check_moments(lives)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_or_doubled(spark: SparkSession, lives: Lives, kind: str) -> None:
    check_rows(spark, lives, kind)
