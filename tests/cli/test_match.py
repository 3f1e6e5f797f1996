"""``asterism match`` without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli import test_cli_on_spark
from tests.cli.test_cli_on_spark import ON_SSH, rows_of, run

any_event = test_cli_on_spark.any_event
brute_force = test_cli_on_spark.brute_force


def test_table_shows_the_first_rows_and_the_count(brute_force: Path) -> None:
    result = run("match", brute_force, *ON_SSH, "--select", "LAST(login.user) AS who", "--limit", 1)
    assert "24.151.103.17" in result.stdout
    assert "elastic_user_0" in result.stdout
    assert result.stdout.rstrip().endswith(" matches, the first 1 are shown")


def test_text_is_read_as_event_time_and_lists_go_into_csv(any_event: Path, tmp_path: Path) -> None:
    events, out = tmp_path / "events.jsonl", tmp_path / "out.csv"
    events.write_text('{"k": "x \\"y\\"", "ts": "2020-01-01 00:00:01", "v": 1}\n', encoding="utf-8")
    result = run("match", any_event, "--input", events, "--key", "k", "--time", "ts", "--out", out)
    assert result.stdout == f"1 match written to {out}\n"
    header, row = out.read_text(encoding="utf-8").splitlines()
    assert header == "k,start_time,end_time,match_time,match_id,a"
    assert row.startswith('"x ""y""",2020-01-01T00:00:01.000Z,')
    assert '""ts"":""2020-01-01T00:00:01.000Z"",""v"":1' in row


def test_files_have_the_rows_that_are_shown(brute_force: Path, tmp_path: Path) -> None:
    options = [*ON_SSH, "--select", "COUNT(fails.*) AS n", "--select", "login.ts AS at", "--select", "match_id"]
    for end in ("csv", "jsonl", "parquet"):
        assert run("match", brute_force, *options, "--out", tmp_path / f"out.{end}").exit_code == 0
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert len(rows) > 1
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        row | {"at": f"{row['at']:%Y-%m-%dT%H:%M:%S.000Z}"} for row in rows
    ]
    header, *lines = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "ip,n,at,match_id"
    assert [line.split(",")[3] for line in lines] == [row["match_id"] for row in rows]
    assert rows == sorted(rows, key=lambda row: row["ip"])


def test_several_outputs_agree(brute_force: Path, tmp_path: Path) -> None:
    options = [*ON_SSH, "--output", "timed_out", "--select", "COUNT(fails.*) AS fails", "--select", "timeout_time"]
    assert run("match", brute_force, *options, "--out", tmp_path / "out.parquet").exit_code == 0
    assert rows_of(tmp_path / "out.parquet")


PROBLEMS = [
    ('{"k": 1, "ts": "2020-01-01", "v": 1}', ["--key", "kk"], "Error: [COLUMN_NOT_FOUND] unknown column 'kk'\n"),
    ('{"k": 1, "ts": "2020-01-01", "w": 1}', ["--time", "ts"], "Error: [COLUMN_NOT_FOUND] unknown column 'v'\n"),
    (
        '{"k": 1, "ts": "soon", "v": 1}',
        ["--time", "ts"],
        'Error: [COLUMN_TYPE] the event time "ts" has a string that is no',
    ),
    ("{", ["--time", "ts"], "Error: [STREAM_DEFINITION] "),
    (
        '{"k": 1, "ts": null, "v": 1}\n{"ts": "2020-01-01"}',
        ["--time", "ts"],
        'Error: [NULL_EVENT_TIME] the event time "ts" of 1 events is null\n',
    ),
]


@pytest.mark.parametrize(("lines", "options", "problem"), PROBLEMS)
def test_an_error_is_said_without_a_traceback(
    any_event: Path, tmp_path: Path, lines: str, options: list[str], problem: str
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(lines + "\n", encoding="utf-8")
    result = run("match", any_event, "--input", events, *options)
    assert (result.exit_code, result.stderr[: len(problem)]) == (2, problem)
