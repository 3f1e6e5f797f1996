"""At a terminal, the first micro-batch says that it runs. State that is absent is not read, of which Spark would warn."""

from __future__ import annotations

import re
from typing import Any

import pytest

from asterism.operators.state.page_numbers import BROADCAST_PAGE, DEFINITION_PAGE, PageKind
from asterism.spark.host.host import _SparkStore
from asterism.spark.session import first_batch


class _Query:
    """A query whose first micro-batch begins when it is asked for the second time, and ends with the fourth."""

    name, lastProgress = "carts", None  # noqa: N815

    def __init__(self) -> None:
        self.asked = 0

    def awaitTermination(self, seconds: float) -> bool:
        self.asked += 1
        if self.asked == 4:
            self.lastProgress: Any = object()
        return False

    @property
    def status(self) -> dict[str, Any]:
        runs = self.asked > 1
        return {"message": "Processing new data" if runs else "Waiting for data to arrive", "isDataAvailable": runs}


def test_the_first_micro_batch_says_that_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first_batch._show(_Query())  # type: ignore[arg-type]
    lines = capsys.readouterr().err.replace("\r\x1b[K", "").splitlines()
    assert len(lines) == 2
    assert re.fullmatch(
        r"asterism: the first micro-batch of carts has run for \d+ s \(processing new data\)\. "
        r"It starts Python processes and loads compiled code; later ones are faster\.",
        lines[0],
    )
    first_batch.show_first_batch(_Query())  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


class _Absent:
    """A value and a map without anything, for Spark's ValueState and MapState."""

    def __init__(self) -> None:
        self.read: list[Any] = []

    def exists(self) -> bool:
        return False

    def containsKey(self, key: Any) -> bool:
        return False

    def get(self) -> None:
        self.read.append("header")

    def getValue(self, key: Any) -> None:
        self.read.append(key)


def test_absent_state_is_not_read() -> None:
    state: Any = _Absent()
    seen: set[tuple[int, int]] = set()
    store = _SparkStore(state, state, 3, seen, inline=True)
    assert [store.read_page(number) for number in (0, BROADCAST_PAGE, DEFINITION_PAGE)] == [None] * 3
    assert (store.read_header(), state.read) == (None, [])
    store.read_page(PageKind.KEYS.first)  # whoever reads a page of keys knows that it is there
    assert state.read == [(PageKind.KEYS.first,)]
    assert not seen
    seen.add((3, DEFINITION_PAGE))  # this process has read it before, and does not ask for it again
    store.read_page(DEFINITION_PAGE)
    assert state.read[1:] == [(DEFINITION_PAGE,)]
