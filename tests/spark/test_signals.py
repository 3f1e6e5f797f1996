"""The signals between a run and the control sources of its query, with the reader in a thread instead of Spark's process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from asterism.spark import BEGIN_OF_RUN
from asterism.spark.host import end_of_input as signals
from asterism.spark.host.control_source import ControlReader
from asterism.spark.host.versions import ReadMaxRows

LIMIT = ReadMaxRows(1)
OPTIONS = {"keyGroups": "2", "definition": "d"}


@pytest.fixture
def run() -> Iterator[signals.Drain]:
    with signals.Drain() as drain:
        yield drain


def wait_for(drain: signals.Drain, number: int) -> None:
    while drain.asked() != number:
        time.sleep(0.001)


def test_the_end_follows_a_micro_batch_in_which_the_other_sources_had_no_data(run: signals.Drain) -> None:
    reader = ControlReader(OPTIONS | {"run": run.place})
    offset = reader.latestOffset(reader.initialOffset(), LIMIT)
    assert offset == reader.initialOffset() | {"starts": 1}
    assert run.asked() is None  # the first micro-batch has no one before it
    with ThreadPoolExecutor() as executor:
        for number in (1, 2, 3):
            planned: Future[Any] = executor.submit(reader.latestOffset, offset, LIMIT)
            wait_for(run, number)
            assert not planned.done()
            run.answer(number, exhausted=number == 3)
            before, offset = offset, planned.result(timeout=60)
            assert len(reader.partitions(before, offset)) == (number == 3)
    assert offset == reader.initialOffset() | {"starts": 3, "messages": 1}
    assert reader.latestOffset(offset, LIMIT) == offset
    assert run.asked() is None


def test_a_later_run_continues_the_numbers(run: signals.Drain) -> None:
    reader = ControlReader(OPTIONS | {"run": run.place})
    ended = reader.initialOffset() | {"starts": 3, "messages": 1}
    assert reader.latestOffset(ended, LIMIT) == ended | {"starts": 4}


def test_each_run_tells_key_groups_that_it_begins() -> None:
    """If inputs can be idle: the time between two runs is not idle time."""
    options = OPTIONS | {"timers": "true", "idle": "true"}
    offset = ControlReader(options).initialOffset()
    for number in (1, 2):
        reader = ControlReader(options)
        before, offset = offset, reader.latestOffset(offset, LIMIT)
        assert (offset["starts"], offset["runs"]) == (number, number)
        (partition,) = reader.partitions(before, offset)
        assert [row[4] for row in reader.read(partition)] == [BEGIN_OF_RUN] * 2
        assert reader.latestOffset(offset, LIMIT) == offset  # later micro-batches begin no run
    assert "runs" not in ControlReader(OPTIONS | {"timers": "true"}).latestOffset({**reader.initialOffset()}, LIMIT)


def test_without_its_run_a_query_goes_on_to_the_end_of_its_data() -> None:
    with signals.Drain() as drain, ThreadPoolExecutor() as executor:
        reader = ControlReader(OPTIONS | {"run": drain.place})
        offset = reader.latestOffset(reader.initialOffset(), LIMIT)
        planned = executor.submit(reader.latestOffset, offset, LIMIT)
        wait_for(drain, 1)
        drain.__exit__()
        assert planned.result(timeout=60) == offset
    assert reader.latestOffset(offset, LIMIT) == offset


def test_a_question_that_nobody_answers(run: signals.Drain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_PATIENCE", 0.05)
    assert signals.is_exhausted(run.place, 1) is None


def test_a_folder_that_the_reader_does_not_have() -> None:
    """As with a driver on another machine."""
    reader = ControlReader(OPTIONS | {"run": "/nowhere/at/all"})
    offset = reader.latestOffset(reader.initialOffset(), LIMIT)
    assert reader.latestOffset(offset, LIMIT) == offset


def test_a_reader_does_not_survive_the_process_that_started_it(run: signals.Drain, tmp_path: Path) -> None:
    """The driver was killed: nobody answers, and nobody removes the folder."""
    program = (
        "import sys\nfrom asterism.spark.host import end_of_input as signals\n"
        f"print(signals.is_exhausted({run.place!r}, 1), file=open(sys.argv[1], 'w'), flush=True)"
    )
    found = tmp_path / "found"
    starter = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}, sys.argv[1]])"
    parent = subprocess.Popen(
        [sys.executable, "-c", starter, found],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    wait_for(run, 1)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 60
    while not (found.exists() and found.read_text()) and time.monotonic() < end:
        time.sleep(0.01)
    assert found.read_text() == "None\n"


def test_runs_do_not_hear_each_other() -> None:
    with signals.Drain() as one, signals.Drain() as other, ThreadPoolExecutor() as executor:
        waiting = executor.submit(signals.is_exhausted, one.place, 1)
        wait_for(one, 1)
        assert other.asked() is None
        one.answer(1, exhausted=True)
        assert waiting.result(timeout=60) is True
    assert not Path(one.place).exists()
