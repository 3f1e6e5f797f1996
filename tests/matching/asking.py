"""DuckDB evaluates all conditions over several events, also those that the stack machine can compute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from unittest import mock

from asterism.expressions.values import Sql, UnsupportedError
from asterism.matching import condition_programs


@contextlib.contextmanager
def everything_asked() -> Iterator[None]:
    """Inside, comparisons of values of several events are asked conditions (:mod:`asterism.matching.asked_conditions`)."""

    def comparison(self: object, operator: str, operands: Sequence[Sql]) -> None:
        raise UnsupportedError(f"{operator} is asked")

    with mock.patch.object(condition_programs._Emitter, "comparison", comparison):
        yield
