"""The texts of what a sink refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism.sinks import SqlSink
from tests.kit import Golden

URL = "sqlite:///alarms.db"
SQL = """
    CREATE TABLE alarms (match_id TEXT PRIMARY KEY, user TEXT);
    CREATE TABLE plain (match_id TEXT, user TEXT);
    CREATE TABLE pairs (match_id TEXT, user TEXT, PRIMARY KEY (match_id, user));
"""


def insert(table: str = "alarms", url: str = URL, key: Any = "match_id", **columns: list[Any]) -> None:
    SqlSink(url, table, key=key).insert(pa.table(columns or {"match_id": ["1f"], "user": ["ann"]}))


ERRORS: dict[str, Callable[[], object]] = {
    "another_database": lambda: SqlSink("mysql+pymysql://ann:hunter2@host/fraud", "alarms"),
    "no_url": lambda: SqlSink("alarms.db", "alarms"),
    "in_memory": lambda: SqlSink("sqlite://", "alarms"),
    "no_key": lambda: SqlSink(URL, "alarms", key=[]),
    "key_no_string": lambda: SqlSink(URL, "alarms", key=[1]),  # type: ignore[list-item] # that is the point
    "no_such_database": lambda: insert(url="sqlite:///other.db"),
    "no_such_table": lambda: insert("alarm"),
    "no_primary_key": lambda: insert("plain"),
    "larger_primary_key": lambda: insert("pairs"),
    "no_such_column": lambda: insert(match_id=["1f"], users=["ann"]),
    "rows_without_match_id": lambda: insert(user=["ann"]),
    "rows_without_another_key": lambda: insert(key=["shop"], match_id=["1f"]),
    "null_in_the_key": lambda: insert(match_id=["1f", None, None], user=["ann", "bob", "cat"]),
    "events": lambda: insert(match_id=["1f"], user=[[{"kind": "a"}]]),
    "rows_no_table": lambda: SqlSink(URL, "alarms").insert([{"match_id": "1f"}]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_text_of_an_error(name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("alarms.db")) as database:
        database.executescript(SQL)

    def provoked() -> object:
        try:
            return ERRORS[name]()
        except Exception as error:
            error.message = error.message.replace(str(tmp_path), "...")  # type: ignore[attr-defined] # one of ours
            raise

    assert "hunter2" not in str(golden.error(name, provoked))


TEXTS = set(ERRORS)
