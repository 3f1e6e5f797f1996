"""Rows are written once, with all their values, or not at all."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from asterism.errors import SinkError
from asterism.sinks import SqlSink
from asterism.sinks.sql import ROWS

ROW = {
    "match_id": "1f", "user": "ann", "count": 2, "share": 0.5, "sure": True, "price": Decimal("1.50"),
    "day": date(2025, 1, 31), "at": datetime(2025, 1, 31, 12, 0, 0, 250_000, UTC), "raw": b"\x00\xff",
}  # fmt: skip
TYPES = 'match_id TEXT PRIMARY KEY, "user" TEXT, count BIGINT, share FLOAT, sure BOOLEAN, price NUMERIC(9, 2), day DATE'


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        (tmp_path / "alarms.db").touch()
        return f"sqlite:///{tmp_path / 'alarms.db'}"
    return str(request.getfixturevalue("database"))


def execute(url: str, statement: str) -> list[Any]:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        result = connection.execute(sa.text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []


def test_values_arrive_as_they_are(url: str) -> None:
    blob = "BYTEA" if url.startswith("postgresql") else "BLOB"
    execute(url, f"CREATE TABLE alarms ({TYPES}, at TIMESTAMP WITH TIME ZONE, raw {blob}, more TEXT DEFAULT 'x')")
    SqlSink(url, "alarms").insert(pa.Table.from_pylist([ROW, {"match_id": "2f"}]))
    first, second = execute(url, "SELECT * FROM alarms ORDER BY match_id")
    if url.startswith("sqlite"):
        told = ("1f", "ann", 2, 0.5, 1, 1.5, "2025-01-31", "2025-01-31 12:00:00.250000", b"\x00\xff", "x")
        assert first == told
    else:
        assert first == (*ROW.values(), "x")
    assert second == ("2f", *[None] * 8, "x")


def test_a_repeated_micro_batch_changes_nothing(url: str) -> None:
    execute(url, 'CREATE TABLE alarms (match_id TEXT PRIMARY KEY, "user" TEXT)')
    rows = pa.table({"match_id": [str(n) for n in range(2 * ROWS + 1)], "user": ["ann"] * (2 * ROWS + 1)})
    sink = pickle.loads(pickle.dumps(SqlSink(url, "alarms")))
    for some in (rows.slice(0, 1_500), rows, rows.slice(0, 0)):
        sink(Rows(some), 0)
    assert execute(url, "SELECT count(*), count(DISTINCT match_id) FROM alarms") == [(len(rows), len(rows))]


class Rows:
    """As far as a sink needs a DataFrame."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return self.table


def test_a_failed_row_takes_back_its_micro_batch(url: str) -> None:
    execute(url, "CREATE TABLE alarms (match_id TEXT PRIMARY KEY, n INT CHECK (n < 1200))")
    rows = pa.table({"match_id": [str(n) for n in range(1_500)], "n": list(range(1_500))})
    with pytest.raises(SinkError, match="cannot be used"):
        SqlSink(url, "alarms").insert(rows)
    assert execute(url, "SELECT count(*) FROM alarms") == [(0,)]
    SqlSink(url, "alarms").insert(rows.slice(0, 1_200))
    assert execute(url, "SELECT count(*) FROM alarms") == [(1_200,)]


def test_a_key_of_several_columns_in_a_schema(database: str) -> None:
    execute(database, "CREATE SCHEMA shop")
    execute(database, 'CREATE TABLE shop.sales (shop TEXT, "start" INT, n INT, UNIQUE ("start", shop))')
    sink = SqlSink(database, "shop.sales", key=["shop", "start"])
    for n in (1, 2):
        sink.insert(pa.table({"shop": ["a", "b"], "start": [1, n], "n": [n, n]}))
    assert execute(database, "SELECT * FROM shop.sales ORDER BY n, shop") == [("a", 1, 1), ("b", 1, 1), ("b", 2, 2)]
