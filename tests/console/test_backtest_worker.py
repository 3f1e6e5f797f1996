"""Backtests of the console, in the process of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asterism.cli.rules.backtest_worker import BacktestHandler
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
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, rows)))
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
    alone = handler({"rule": graph(), "against": None}, progress.append)
    assert (alone["compared"], alone["rule"]["matches"]) == (False, 2)
    assert [example["key"] for example in alone["examples"]] == [("ann",), (HOSTILE,)]
    refused = handler({"rule": graph(condition="nosuch = 1"), "against": None}, progress.append)
    assert "nosuch" in refused["rule"]["refused"]
    handler = BacktestHandler(SampleSettings(None, (str(tmp_path / "events.jsonl"),), (), "nosuch"))
    with pytest.raises(AsterismError, match="nosuch"):
        handler(request, progress.append)
