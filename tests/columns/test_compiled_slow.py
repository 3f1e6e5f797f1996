"""Kernels that run in Python, as they were written, give the answers of Flink and of all references."""

from __future__ import annotations

from pathlib import Path

from tests.columns.test_compiled import check_as_written


def test_as_written_they_give_flinks_answers(tmp_path: Path) -> None:
    check_as_written(tmp_path, ["tests/conformance/test_corpus.py"])


def test_as_written_they_give_the_answers_of_the_references(tmp_path: Path) -> None:
    check_as_written(tmp_path, ["tests/rules/test_shares.py", "tests/windows/test_reference.py"])
