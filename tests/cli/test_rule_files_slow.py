"""``asterism match`` with the rules of a file: a graph over a table, a clause over a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import test_rule_files
from tests.cli.test_rule_files import check_match, run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
folder = test_rule_files.folder


def test_match(folder: Path) -> None:
    options = ["--input", "events.csv", "--time", "ts", "--spark"]
    check_match(folder / "out.parquet", "rules.yaml#brute-force", *options)
    check_match(folder / "out.parquet", "rules.yaml#burst #2", *options, "--stream")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_match_with_the_key_and_the_measures_of_the_rule(folder: Path) -> None:
    """As in a query with rules: with the rule's key and measures, over a table and over a stream."""
    options = ["--input", "events.csv", "--time", "ts", "--spark"]
    out = folder / "out.parquet"
    check_match(out, "rules.yaml#brute-force", *options, "--stream")
    check_match(out, "rules.yaml#burst #2", *options)
    result = run("match", "rules.yaml#brute-force", *options)
    assert "user=ann" in result.output
    assert "processor_id" not in result.output
    result = run(
        "match", "rules.yaml#brute-force", *options, "--select", "COUNT(fails.*) AS n", "--output", "timed_out"
    )
    assert result.output.splitlines()[-1] == "2 timed-out partial matches"
