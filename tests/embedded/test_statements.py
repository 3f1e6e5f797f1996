"""Statements over Arrow tables, without Spark, and the command."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import asterism
from asterism.cli.main import main
from tests.embedded.cases import TRADES
from tests.embedded.rule_cases import RULE_CASES
from tests.embedded.statement_cases import STATEMENTS, rows_of


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(name: str) -> None:
    statement, expected = STATEMENTS[name]
    found = asterism.sql(statement, trades=TRADES)
    assert isinstance(found, pa.Table)
    assert rows_of(found) == sorted(expected, key=str)


def test_types_are_those_of_spark() -> None:
    found = asterism.sql("SELECT sum(id) AS s, count(*) AS n, max(ts) AS at FROM trades", trades=TRADES)
    assert found.schema.types == [pa.int64(), pa.int64(), pa.timestamp("us", "UTC")]


def test_rules_in_a_statement() -> None:
    case = RULE_CASES["all"]
    found = asterism.sql(
        "SELECT processor_id, count(*) AS n FROM events MATCH_RECOGNIZE_DYNAMIC (PARTITION BY user ORDER BY ts"
        " pattern_processor_discoverer_factory = rules) GROUP BY processor_id",
        events=case.table,
        rules=case.stream_of(case.table).factory,
    )
    assert rows_of(found) == [("all rows", 4), ("by item", 2), ("by user", 2), ("in sql", 3)]


def test_a_statement_reads_nothing_but_its_tables(tmp_path: Path) -> None:
    """Neither files nor variables of the program."""
    pq.write_table(TRADES, tmp_path / "t.parquet")
    local = TRADES
    assert local.num_rows == 8
    for text in (f"SELECT * FROM '{tmp_path}/t.parquet'", f"SELECT * FROM read_parquet('{tmp_path}/t.parquet')",
                 "SELECT * FROM local", "COPY (SELECT 1) TO 'x.csv'", "SELECT 1; SELECT 2"):  # fmt: skip
        with pytest.raises(asterism.errors.StreamDefinitionError):
            asterism.sql(text, trades=TRADES)


def test_the_command(tmp_path: Path) -> None:
    pq.write_table(TRADES, tmp_path / "trades.parquet")
    statement, expected = STATEMENTS["a table"]
    arguments = ["sql", statement, "--table", f"trades={tmp_path / 'trades.parquet'}"]
    result = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "out.parquet")])
    assert (result.exit_code, result.stdout) == (0, f"1 row written to {tmp_path / 'out.parquet'}\n")
    assert rows_of(pq.read_table(tmp_path / "out.parquet")) == expected
