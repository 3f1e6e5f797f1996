"""Slow: all parameters of tests of test_file.py."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from asterism.discovery.sources import file as module
from tests.discovery import test_file as fast
from tests.discovery.kit import rule, watching
from tests.discovery.test_file import discoverer, write


@pytest.mark.parametrize("names", [("1.json", "2.json"), ("2.json", "1.json")])
def test_a_promotion_in_two_files_is_seen_as_one(tmp_path: Path, names: tuple[str, str]) -> None:
    fast.test_a_promotion_in_two_files_is_seen_as_one(tmp_path, names)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_that_is_being_written_counts_when_it_is_whole(tmp_path: Path, suffix: str) -> None:
    fast.test_a_file_that_is_being_written_counts_when_it_is_whole(tmp_path, suffix)


def test_a_file_that_is_written_all_the_time_holds_up_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_REST", timedelta(seconds=1))  # a busy machine may stop the writer for a moment
    one = discoverer(folder)
    one.initial_pattern_processors()
    ended = threading.Event()

    def scribble() -> None:
        n = 2
        while not ended.wait(0.02):
            n += 1
            write(folder / "one.json", rule("a", n))

    writer = threading.Thread(target=scribble, daemon=True)
    with watching(one) as manager:
        writer.start()
        manager.wait_for_polls()
        write(folder / "new.json", rule("d"))
        manager.wait_for({"a": 1, "b": 2, "c": 3, "d": 1})
        ended.set()
        writer.join()
        last = json.loads((folder / "one.json").read_text())[0]["version"]
        manager.wait_for({"a": last, "c": 3, "d": 1})
