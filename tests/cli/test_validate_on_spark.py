"""``asterism validate --input``: the columns of files, as ``asterism match`` reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from asterism.cli.main import main
from asterism.patterns.pattern import Pattern

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_columns_of_files(tmp_path: Path) -> None:
    wrong = Pattern.begin("a").where("evnt = 'failed'").next("b").where("SUM(a.user) > 1")
    (tmp_path / "wrong.json").write_text(wrong.to_json(), encoding="utf-8")
    files = [str(EXAMPLES / "patterns" / "brute_force.json"), str(tmp_path / "wrong.json")]
    result = CliRunner().invoke(main, ["validate", *files, "--input", str(EXAMPLES / "data" / "ssh_auth.csv")])
    lines = [line for line in result.stdout.splitlines() if not line.startswith("  ")]
    assert lines[0] == f"{files[0]}: ok, 2 stages (fails, login), within 10 min, SKIP_PAST_LAST_EVENT"
    assert [line.partition(": ")[2] for line in lines[1:]] == [
        "a: condition: unknown column 'evnt'",
        "b: condition: SUM needs numbers, not STRING",
    ]
    assert result.exit_code == 1


def test_event_time_is_that_of_match(tmp_path: Path) -> None:
    (tmp_path / "pattern.json").write_text(
        Pattern.begin("a").next("b").where("ts > LAST(a.ts) + INTERVAL 5 SECONDS").to_json(), encoding="utf-8"
    )
    (tmp_path / "events.jsonl").write_text('{"ts": "2025-01-01T00:00:00Z"}\n', encoding="utf-8")
    arguments = ["validate", str(tmp_path / "pattern.json"), "--input", str(tmp_path / "events.jsonl")]
    as_text = CliRunner().invoke(main, arguments)
    assert "+ cannot combine STRING and INTERVAL DAY TO SECOND" in as_text.stdout
    assert CliRunner().invoke(main, [*arguments, "--time", "ts"]).exit_code == 0
