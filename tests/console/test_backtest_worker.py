"""Backtests of the console, in the process of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asterism.cli.rules.backtest_worker import BacktestHandler
from asterism.console import found_matches
from asterism.console.found_matches import csv_of, page_of, write_matches
from asterism.console.samples import SampleSettings
from asterism.errors import AsterismError
from tests.console.kit import EVENTS, HOSTILE, graph


def test_a_rule_is_compared_with_the_version_in_use(tmp_path: Path) -> None:
    rows = [
        dict(zip(("ts", "user", "kind", "price"), line.split(","), strict=True)) for line in EVENTS.splitlines()[1:]
    ]
    rows += [
        {"ts": f"2026-02-01 12:00:0{n}", "user": HOSTILE, "kind": kind, "price": str(n)} for n, kind in enumerate("ab")
    ]
    labelled_rows = [{**row, "is_bad": row["kind"] == "b"} for row in rows]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, labelled_rows)))
    (tmp_path / "users.csv").write_text("name,is_watched\nann,false\n")
    lookups = (("users", str(tmp_path / "users.csv"), "name=user"),)
    handler = BacktestHandler(SampleSettings(None, (str(tmp_path / "events.jsonl"),), (), "ts", lookups=lookups))
    progress: list[Any] = []
    new = graph(version=2, condition="kind = 'a' AND users.is_watched IS NOT FALSE", select=["second.price AS price"])
    request = {"rule": new, "against": graph(select=["second.price AS price"])}
    found = json.loads(json.dumps(handler(request, progress.append)))
    assert progress[0] == {"stage": "reading the history"}
    assert (found["events"], found["days"], found["compared"]) == (6, 2, True)
    rule = found["rule"]
    assert (rule["matches"], rule["old_matches"]) == (1, 2)
    assert (rule["added"], rule["removed"], rule["kept"]) == (0, 1, 1)
    assert found["examples"] == [
        {
            "difference": "removed", "version": 1, "key": ["ann"], "start": "2026-01-31 12:00:01", "end": "2026-01-31 12:00:03",
            "events": [], "moreEvents": 0, "measures": {"price": "3"},
        }
    ]  # fmt: skip
    file = tmp_path / "matches.parquet"
    labelled = handler(request | {"label": "is_bad", "file": str(file)}, progress.append)
    assert (labelled["labelled"], labelled["listed"], labelled["ofMatches"], labelled["rule"]["true_matches"]) == (
        2,
        2,
        2,
        1,
    )
    assert labelled["daily"] == [["2026-01-31", 0, 1], ["2026-02-01", 1, 1]]
    assert [(one["difference"], one["true"]) for one in page_of(file, {}, 0, 9)["matches"]] == [
        ("removed", True),
        ("kept", True),
    ]
    alone = handler({"rule": graph(), "against": None}, progress.append)
    assert (alone["compared"], alone["rule"]["matches"]) == (False, 2)
    assert [example["key"] for example in alone["examples"]] == [("ann",), (HOSTILE,)]
    refused = handler({"rule": graph(condition="nosuch = 1"), "against": None}, progress.append)
    assert "nosuch" in refused["rule"]["refused"]
    handler = BacktestHandler(SampleSettings(None, (str(tmp_path / "events.jsonl"),), (), "nosuch"))
    with pytest.raises(AsterismError, match="nosuch"):
        handler(request, progress.append)


def matches_of(count: int) -> pa.Table:
    rows = [
        {
            "id": "r", "difference": ("added", "kept")[n % 2], "processor_version": 1, "key": [f"k{n}", None][: 1 + n % 2],
            "start_time": 100 - n, "end_time": 100, "measures": [("n", str(-n)), ("key", "=1"), ("key_", "x")],
        }
        for n in range(count)
    ]  # fmt: skip
    kind = pa.map_(pa.string(), pa.string())
    kinds = {
        "id": pa.string(),
        "difference": pa.string(),
        "processor_version": pa.int64(),
        "key": pa.list_(pa.string()),
    }
    kinds |= {"start_time": pa.int64(), "end_time": pa.int64(), "measures": kind}
    return pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))


def test_matches_are_written_and_read_in_pages(tmp_path: Path) -> None:
    table = matches_of(5)
    file = tmp_path / "m.parquet"
    assert write_matches(file, table, [True, False, True, False, True]) == 5
    page = page_of(file, {"difference": "added", "true": True}, 1, 1)
    assert page == {
        "of": 3, "matches": [{"difference": "added", "version": 1, "key": ["k2"], "start": "98", "end": "100", "true": True,
                              "measures": {"n": "-2", "key": "=1", "key_": "x"}}],
    }  # fmt: skip
    lines = csv_of(file).decode().splitlines()
    assert lines[0] == '"difference","version","key","start","end","true","n","key_","key__"'
    assert lines[1].startswith('"added",1,"k4","96"')
    assert lines[1].endswith(""","-4","'=1","x\"""")
    assert pq.read_table(file).num_rows == len(lines) - 1
    assert write_matches(file, table.slice(0, 0), None) == 0
    assert page_of(file, {}, 0, 10) == {"matches": [], "of": 0}


def test_matches_are_bounded_in_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, table = tmp_path / "m.parquet", matches_of(50)
    monkeypatch.setattr(found_matches, "_ROWS_AT_ONCE", 7)
    assert write_matches(file, table, None) == 50
    whole = pq.read_table(file).column("start").to_pylist()
    assert whole == sorted(whole, key=int)
    size = len(whole[0].encode()) + 150
    monkeypatch.setattr(found_matches, "MAX_BYTES", 20 * size)
    kept = write_matches(file, table, None)
    assert 10 < kept < 30
    assert pq.read_table(file).column("start").to_pylist() == whole[:kept], "the first ones by time"
    monkeypatch.setattr(found_matches, "MAX_MATCHES", 3)
    monkeypatch.setattr(found_matches, "MAX_CELL", 2)
    assert write_matches(file, table, None) == 3
    page = page_of(file, {}, 0, 9)
    assert page["of"] == 3
    assert [match["measures"]["n"] for match in page["matches"]] == ["-…", "-…", "-…"]
    monkeypatch.setattr(found_matches, "MAX_BYTES", 1)
    assert write_matches(file, table, None) == 0
