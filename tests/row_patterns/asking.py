"""DuckDB evaluates all conditions on the match so far, also those that the stack machine can compute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from asterism.matching import asked_conditions
from asterism.row_patterns import match_conditions, search
from asterism.row_patterns.match_conditions import ConditionCompiler


@contextlib.contextmanager
def everything_asked(*, near: bool = False, ahead: int = 64, stopped: int = 4096, known: int = 1000) -> Iterator[None]:
    """Inside, the search asks for each condition that depends on the match.

    :param near: also for those on rows near the current one
    :param ahead: how many answers a search looks ahead
    :param stopped: how many partitions wait before answers are computed
    :param known: how many answers are kept
    """
    over_leaves = match_conditions._RowColumns.over_leaves

    def unknown(*arguments: Any) -> Any:
        values, failed = over_leaves(*arguments)
        return values, np.ones_like(failed)

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(ConditionCompiler, "compiled", return_value=None))
        patches.enter_context(mock.patch.object(match_conditions, "_joint", return_value=None))
        patches.enter_context(mock.patch.multiple(search, FIRST_AHEAD=ahead, MAX_STOPPED=stopped))
        patches.enter_context(mock.patch.object(asked_conditions, "MAX_KNOWN", known))
        if near:
            patches.enter_context(mock.patch.object(match_conditions._RowColumns, "over_leaves", unknown))
        yield
