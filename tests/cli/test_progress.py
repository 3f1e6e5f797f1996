"""Long steps say what they do."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from asterism import CEP, KeyedStream, Pattern, PatternProcessor
from asterism.cli.common import terminal
from asterism.cli.common.terminal import status_line
from asterism.text.progress import showing
from tests.kit import until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SLOW", 0.02)
    monkeypatch.setattr(terminal, "_BETWEEN_NOTICES", 0.02)


def wait_for(file: Path, text: str) -> None:
    until(lambda: text in file.read_text(encoding="utf-8"))


def test_slow_steps_are_printed_where_there_is_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while standard error is redirected, as it is when Spark starts."""
    file = tmp_path / "stderr"
    with file.open("w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with status_line("reading") as show:
            wait_for(file, "reading\n")
            with status_line("starting Spark"):
                wait_for(file, "starting Spark\n")
            show("matching: 1 of 2 events")
            wait_for(file, "matching: 1 of 2 events\n")
    assert file.read_text(encoding="utf-8").splitlines() == ["reading", "starting Spark", "matching: 1 of 2 events"]


def test_a_terminal_shows_the_step_and_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setenv("TERM", "xterm")
        with status_line("reading") as show:
            show("matching [1 of 2]")
            time.sleep(0.3)
    shown = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", os.read(master, 100_000).decode())
    os.close(master)
    assert re.search(r"matching \[1 of 2\] +\d:\d\d:\d\d", shown)


def test_a_backtest_says_how_far_it_is() -> None:
    events = pa.table({"user": [f"u{n % 40}" for n in range(400)], "t": range(400)})
    rule = PatternProcessor("any", 1, Pattern.begin("a").where("t >= 0"))
    shown: list[str] = []
    with showing(shown.append):
        report = CEP.backtest(KeyedStream(events, key="user", time="t"), [rule])
    assert report.rules[0].new is not None
    assert report.rules[0].new.matches == 400
    assert all(re.fullmatch(r"\d+ of 400 events that the rules can use", text) for text in shown)
    assert shown[-1] == "400 of 400 events that the rules can use"
    assert len(shown) > 5
