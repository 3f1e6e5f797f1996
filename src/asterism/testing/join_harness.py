"""Runs joins without Spark, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, Unpack

from asterism.arguments import expect, expect_options
from asterism.errors import StreamDefinitionError
from asterism.joins.kinds import AsOfJoin, IntervalJoin, WindowJoin
from asterism.joins.multi_operator import MAX_ROWS, MultiJoinOperator, check_inputs
from asterism.joins.operator import JOINED, LATE_LEFT, LATE_RIGHT, JoinOperator, late_output
from asterism.joins.spec import JoinOptions, JoinSpec
from asterism.joins.stored_joins import LEFT, RIGHT
from asterism.operators.key_group import check_pages
from asterism.operators.multiple_input import Wire
from asterism.testing.literals import Row
from asterism.testing.stream_harness import InputsHarness, wire_of
from asterism.windows.assigners import Windows

_SIDE = '{"key": "id", "time": "ts", "columns": "id BIGINT, ts TIMESTAMP"}'
JoinedSide: TypeAlias = Mapping[str, Any]


class JoinHarness(InputsHarness):
    """Runs a join step by step, with its state and time. Created by :meth:`interval_join`, :meth:`as_of_join`,
    :meth:`window_join` and :meth:`multi_join`, which have the arguments of the functions with these names.

    The sides are dicts with the options of ``KeyedStream``: ``key``, ``time``, ``idle_after``, and ``columns``, all columns as
    Spark SQL or an Arrow schema; the right side of an as-of join also ``order_by``. The inputs are ``left`` and ``right``;
    those of :meth:`multi_join` have names. Times are those of :class:`StreamOperatorHarness`.

    >>> left = {"key": "id", "time": "ts", "columns": "id BIGINT, ts TIMESTAMP"}
    >>> right = {"key": "id", "time": "at", "columns": "id BIGINT, at TIMESTAMP, paid INT"}
    >>> within = timedelta(0), timedelta(hours=1)
    >>> harness = JoinHarness.interval_join(left, right, within, how="left_anti", on="paid > 5")
    >>> harness = harness.send("left", [{"id": 1, "ts": "0m"}, {"id": 2, "ts": "0m"}])
    >>> harness = harness.send("right", [{"id": 1, "at": "5m", "paid": 9}, {"id": 2, "at": "5m", "paid": 3}])
    >>> [row["id"] for row in harness.advance_watermark("60m").results]
    [2]
    """

    def __init__(self, join: JoinOperator | MultiJoinOperator, wires: Mapping[str, Wire], *, key_groups: int) -> None:
        self.join = join
        super().__init__(join, wires, key_groups=key_groups)

    @classmethod
    def _of_two(
        cls,
        spec: JoinSpec,
        left: JoinedSide,
        right: JoinedSide,
        key_groups: int,
        pages: int | None,
    ) -> JoinHarness:
        check_pages(pages)
        _check_sides([left, right])
        order: Sequence[str] = ()
        if isinstance(spec.kind, AsOfJoin):
            order = right.get("order_by", ())
            right = {name: value for name, value in right.items() if name != "order_by"}
        wires = {LEFT: wire_of(LEFT, left), RIGHT: wire_of(RIGHT, right)}
        late = [LATE_LEFT, LATE_RIGHT]
        join = JoinOperator(
            wires[LEFT], wires[RIGHT], spec.kind, spec.how, on=spec.on, prefix=spec.prefix, order_by=order, late=late, pages=pages
        )  # fmt: skip
        return cls(join, wires, key_groups=key_groups)

    @classmethod
    def interval_join(
        cls,
        left: JoinedSide,
        right: JoinedSide,
        between: tuple[timedelta, timedelta],
        *,
        lower_exclusive: bool = False,
        upper_exclusive: bool = False,
        key_groups: int = 1,
        pages: int | None = None,
        **options: Unpack[JoinOptions],
    ) -> JoinHarness:
        """See :func:`asterism.interval_join`."""
        expect_options("interval_join", options, JoinOptions)
        kind = IntervalJoin.of(between, lower_exclusive=lower_exclusive, upper_exclusive=upper_exclusive)
        return cls._of_two(JoinSpec(kind, **options), left, right, key_groups, pages)

    @classmethod
    def as_of_join(
        cls,
        left: JoinedSide,
        right: JoinedSide,
        *,
        tolerance: timedelta | None = None,
        how: str = "inner",
        on: str | None = None,
        prefix: str = "",
        key_groups: int = 1,
        pages: int | None = None,
    ) -> JoinHarness:
        """See :func:`asterism.as_of_join`."""
        return cls._of_two(JoinSpec(AsOfJoin.of(tolerance), how, on, prefix), left, right, key_groups, pages)

    @classmethod
    def window_join(
        cls,
        left: JoinedSide,
        right: JoinedSide,
        windows: Windows,
        *,
        how: str = "inner",
        on: str | None = None,
        prefix: str = "",
        key_groups: int = 1,
        pages: int | None = None,
    ) -> JoinHarness:
        """See :func:`asterism.window_join`."""
        return cls._of_two(JoinSpec(WindowJoin(windows), how, on, prefix), left, right, key_groups, pages)

    @classmethod
    def multi_join(
        cls,
        inputs: Mapping[str, JoinedSide],
        between: Mapping[tuple[str, str], tuple[timedelta, timedelta]],
        *,
        how: Mapping[str, str] | None = None,
        on: Mapping[str, str] | None = None,
        prefix: Mapping[str, str] | None = None,
        max_rows: int = MAX_ROWS,
        key_groups: int = 1,
        pages: int | None = None,
    ) -> JoinHarness:
        """See :func:`asterism.multi_join`. The inputs have their own names."""
        check_pages(pages)
        check_inputs(inputs)
        _check_sides(inputs.values())
        wires = {name: wire_of(name, side) for name, side in inputs.items()}
        late = [late_output(name) for name in wires]
        join = MultiJoinOperator(
            wires, between, how=how, on=on, prefix=prefix, late=late, max_rows=max_rows, pages=pages
        )
        return cls(join, wires, key_groups=key_groups)

    @property
    def results(self) -> list[Row]:
        """The joined rows so far."""
        return self.rows(JOINED)

    def late(self, side: str) -> list[Row]:
        """The late rows of one side so far, "left" or "right", or of an input of a join of many streams.

        :raises InvalidEventError: there is no such side
        """
        self._check_input(side)
        return self.rows(late_output(side))


def _check_sides(sides: Iterable[Any]) -> None:
    for side in sides:
        expect(StreamDefinitionError, side, Mapping, "the sides of a join must be dicts of options", _SIDE)
