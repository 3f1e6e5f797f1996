"""The examples with rules find what their data say."""

from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from examples import rules_postgresql, rules_sqlite

pytestmark = pytest.mark.spark


def test_a_rule_is_added_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    alarms = rules_sqlite.watch(spark, tmp_path)
    text = StringIO()
    rules_sqlite.show(Console(file=text, width=100), alarms)
    assert [" ".join(line.strip("│").replace("│", "").split()) for line in text.getvalue().splitlines()[3:-1]] == [
        "12:02 small, then large 1 ann small 1.5, large 650.5",
        "12:06 small, then large 1 cid small 1.25, large 900.5",
        "12:07 many large ones 1 east total 1060.25",
    ]


def test_rules_on_postgresql(spark: SparkSession, tmp_path: Path, database: str) -> None:
    matches = rules_postgresql.watch(spark, tmp_path, database)
    text = StringIO()
    rules_postgresql.show(Console(file=text, width=100), matches)
    assert [" ".join(line.strip("│").replace("│", "").split()) for line in text.getvalue().splitlines()[3:-1]] == [
        "12:02 bought 1 ann ann: view, ann: buy",
        "12:06 wanted 1 lamp dora: view, eve: cart",
        "12:08 bought 2 dora dora: view, dora: cart, dora: buy",
    ]
