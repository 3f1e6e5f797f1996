"""``asterism match``, in batch and as a stream, and ``asterism conformance --spark``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from asterism.cli.main import main

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ROOT = Path(__file__).parents[2]
SSH = ROOT / "examples" / "data" / "ssh_auth.csv"
SINGLE = {"properties": ["SINGLE"]}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def atomic(name: str, condition: str, quantifier: dict[str, Any] = SINGLE) -> dict[str, Any]:
    return {
        "name": name,
        "type": "ATOMIC",
        "quantifier": quantifier,
        "condition": {"type": "SQL", "expression": condition},
    }


@pytest.fixture(scope="module")
def brute_force(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two failures, then a login, within ten minutes."""
    path = tmp_path_factory.mktemp("patterns") / "brute_force.json"
    graph = {
        "name": "brute force",
        "type": "COMPOSITE",
        "nodes": [
            atomic("fails", "event = 'failed'", {"properties": ["TIMES"], "times": {"from": 2, "to": 2}}),
            atomic("login", "event = 'accepted'"),
        ],
        "edges": [{"source": "fails", "target": "login", "type": "SKIP_TILL_NEXT"}],
        "window": {"type": "FIRST_AND_LAST", "time": {"unit": "MINUTES", "size": 10}},
    }
    path.write_text(json.dumps(graph), encoding="utf-8")
    return path


@pytest.fixture
def any_event(tmp_path: Path) -> Path:
    path = tmp_path / "any.json"
    path.write_text(json.dumps({"type": "COMPOSITE", "nodes": [atomic("a", "v > 0")], "edges": []}), encoding="utf-8")
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(path).to_pylist(), key=repr)


ON_SSH = ["--input", SSH, "--key", "ip", "--time", "ts", "--order-by", "event_id"]


def late_events(any_event: Path, tmp_path: Path, *more: str) -> str:
    events = tmp_path / "events"
    events.mkdir()
    for number, (name, times) in enumerate({"a": [1000, 9000], "b": [2000, 9999], "c": [99999]}.items()):
        file = events / f"{name}.jsonl"
        file.write_text(
            "".join(f'{{"v": 1, "ts": {time}, "p": {int(time >= 9000)}}}\n' for time in times), encoding="utf-8"
        )
        os.utime(file, (number, number))
    options = ["--input", events, "--time", "ts", "--stream", "--files-per-batch", 1, "--output", "late", *more]
    return run("match", any_event, *options).stdout.splitlines()[-1]


PROBLEMS: list[tuple[str, list[str], str]] = [
    ('{"k": 1, "ts": "2020-01-01", "v": 1}', ["--key", "kk"], "Error: [COLUMN_NOT_FOUND] unknown column 'kk'\n"),
    ('{"k": 1, "ts": "2020-01-01", "w": 1}', ["--time", "ts"], "Error: [COLUMN_NOT_FOUND] unknown column 'v'\n"),
    ('{"k": 1, "ts": "soon", "v": 1}', ["--time", "ts"], "Error: [CAST_INVALID_INPUT] The value 'soon'"),
    (
        '{"k": 1, "ts": null, "v": 1}\n{"ts": "2020-01-01"}',
        ["--time", "ts"],
        'Error: [NULL_EVENT_TIME] the event time "ts" of 1 events is null\n',
    ),
    (
        '{"k": 1, "ts": null, "v": 1}\n{"ts": "2020-01-01"}',
        ["--time", "ts", "--stream"],
        'Error: [NULL_EVENT_TIME] the event time "ts" of 1 events is null\n',
    ),
]


def test_an_error_is_said_without_a_traceback(any_event: Path, tmp_path: Path) -> None:
    check_problem(any_event, tmp_path, *PROBLEMS[-1])


def check_problem(any_event: Path, tmp_path: Path, lines: str, options: list[str], problem: str) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(lines + "\n", encoding="utf-8")
    result = run("match", any_event, "--input", events, "--spark", *options)
    assert result.exit_code == 2
    assert result.stderr.startswith(problem)
    assert "Traceback" not in result.output
    assert "\tat " not in result.output
