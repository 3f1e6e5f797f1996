"""The definition of a join of two streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from asterism.joins.kinds import JoinKind
from asterism.joins.types import INNER


class JoinOptions(TypedDict, total=False):
    """The options of a join of two streams, on Spark and in tests.

    :param how: the join type: ``inner`` (default), ``left``, ``right``, ``full``, ``left_semi`` or ``left_anti``, as in Spark.
        A row of the right side that joins nothing has its key, and NULL for the other columns of the left side.
    :param on: a further condition, in Spark SQL, over the columns of both rows with the names that they have in the result.
        Default: none.
    :param prefix: a prefix for the names of the columns of the right side. Default: none.
    """

    how: str
    on: str | None
    prefix: str


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """The definition of a join of two streams: its kind, and the values of :class:`JoinOptions`."""

    kind: JoinKind
    how: str = INNER
    on: str | None = None
    prefix: str = ""
