"""Backtests over Arrow tables, without Spark, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from asterism import CEP, Backtest, KeyedStream, Pattern, PatternProcessor
from asterism.cli.main import main
from asterism.embedded.lazy_events import LazyTable
from tests.embedded.backtest_checks import CHECKS, EVENTS, table_of
from tests.embedded.rule_cases import OTHERS, RULES


def ran(*sides: Any, events: list[Any] = EVENTS, time: str | None = "ts", **options: Any) -> Backtest[Any]:
    return CEP.backtest(KeyedStream(table_of(events), key="user", time=time), *sides, key_groups=4, **options)


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_found(name: str) -> None:
    CHECKS[name](ran)


@pytest.mark.parametrize("kind", ["c", "z"])
def test_events_that_no_rule_needs_are_not_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is that over a table in memory, in which all events are; *kind*: of the first stage of the old rule."""
    new, old = (
        [
            PatternProcessor(
                "r", number, Pattern.begin("one").where(f"kind = '{first}'").followed_by("two").where("kind = 'b'")
            )
        ]
        for number, first in ((2, "c"), (1, kind))
    )
    parquet.write_table(table_of(EVENTS), tmp_path / "events.parquet")
    counts, batches = list[int](), LazyTable.batches

    def counted(self: LazyTable, names: Any, only: Any = None) -> Any:
        for batch in batches(self, names, only):
            counts.extend([batch.num_rows] if only is not None else [])
            yield batch

    monkeypatch.setattr(LazyTable, "batches", counted)
    stream = KeyedStream(tmp_path / "events.parquet", key="user", time="ts")
    expected, report = ran(new, old), CEP.backtest(stream, new, old, key_groups=4)
    assert report.summary.equals(expected.summary)
    assert report.matches.equals(expected.matches)
    assert (report.events, report.rules[0].kept) == (len(EVENTS), 1 if kind == "c" else 0)
    assert sum(counts) == 5  # one c, and four b


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, rules in (("new", RULES), ("old", OTHERS)):
        (tmp_path / f"{name}.json").write_text(json.dumps([rule.to_dict() for rule in rules]), encoding="utf-8")
    for name, events in (("first", EVENTS[:4]), ("second", EVENTS[4:])):
        rows = [row | {"ts": f"{row['ts']:%Y-%m-%dT%H:%M:%S%z}"} for row in table_of(events).to_pylist()]
        lines = [",".join(map(str, row.values())) for row in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["ts,user,item,kind", *lines]) + "\n", encoding="utf-8")
    return tmp_path


def command(files: Path, rules: str, *arguments: object) -> Result:
    given = ["--input", files / "first.csv", "--input", files / "second.csv", "--key", "user", "--time", "ts"]
    words = ["rules", "backtest", files / rules, *given, *arguments]
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_fails_if_a_rule_is_refused(files: Path) -> None:
    (files / "bad.yaml").write_text("- {id: a, version: 1, sql: nonsense}\n")
    result = command(files, "bad.yaml")
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "failed: refused: a")
    result = command(files, "new.json", "--fail-if", "removed > 0")
    assert result.exit_code == 2
    assert "unknown column 'removed'" in result.output
    assert command(files, "none.json").exit_code == 2


def test_the_command_compares_and_fails(files: Path) -> None:
    against = ["--against", files / "old.json", "--examples", 0]
    good = command(files, "new.json", *against, "--fail-if", "matches > 1000", "--fail-if", "errors > 0")
    assert (good.exit_code, good.stdout.splitlines()[0]) == (
        0, "6 rules over 9 events from 1970-01-01 00:00:01 to 1970-01-02 00:00:30 (2 days)",
    )  # fmt: skip
    bad = command(files, "new.json", *against, "--fail-if", "removed > 0", "--fail-if", "added > 1")
    assert bad.exit_code == 1
    assert bad.stdout.splitlines()[-2:] == ["failed: removed > 0: gone", "failed: added > 1: later"]
