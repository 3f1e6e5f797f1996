"""State of every kind that any earlier release has written opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.upgrade.checkpoints import releases
from tests.upgrade.test_upgrade import check_upgrade

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("release", "kind"), list(releases()))
def test_checkpoint_of_an_earlier_release(spark: SparkSession, tmp_path: Path, release: str, kind: str) -> None:
    check_upgrade(spark, tmp_path, release, kind)
