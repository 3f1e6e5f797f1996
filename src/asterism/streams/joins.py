"""Joins of streams by key and time, on every host: interval, as-of and window joins of two streams, joins of many."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Unpack

from asterism.arguments import expect_options, expect_outputs
from asterism.errors import StreamDefinitionError
from asterism.joins.conditions import JoinConditions
from asterism.joins.kinds import AsOfJoin, IntervalJoin, WindowJoin
from asterism.joins.multi_operator import MAX_ROWS, MultiJoinOperator, check_inputs
from asterism.joins.operator import JOINED, LATE_LEFT, LATE_RIGHT, JoinOperator, late_output
from asterism.joins.spec import JoinOptions, JoinSpec
from asterism.joins.stored_joins import LEFT, RIGHT
from asterism.joins.types import INNER, LEFT_OUTER
from asterism.live.live_options import SNAPSHOT_EVERY, LiveOptions
from asterism.operators.multiple_input import Wire
from asterism.operators.sink_functions import Sink
from asterism.streams.hosts import host_of_all, module_of
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_stream import Rows
from asterism.streams.run_options import BeginOptions, RunOptions, check_use
from asterism.windows.assigners import Windows

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from asterism.live.engine import LiveEngine

BuildJoin = Callable[..., JoinOperator | MultiJoinOperator]
"""Creates the operator of a join from the connections of its inputs, with the options ``late`` and ``pages``."""


class HostedJoin(Protocol):
    """What a host does for a join: its module ``stream_joins`` has a function ``hosted_join``."""

    operator: JoinOperator | MultiJoinOperator
    rows_class: type
    """the class of its results"""

    def rows(self, late: Collection[str], output: str) -> Any:
        """The rows of one output of the operator with the outputs *late*."""

    def run(self, late: Sequence[str], sinks: Mapping[str, Sink], options: RunOptions) -> StreamingQuery | None:
        """Write outputs to sinks."""

    def open(self, late: Sequence[str], options: LiveOptions, outputs: Sequence[str]) -> LiveEngine:
        """A live engine, whose calls return these outputs."""


def interval_join(
    left: KeyedStream[Rows],
    right: KeyedStream[Rows],
    between: tuple[timedelta, timedelta],
    *,
    lower_exclusive: bool = False,
    upper_exclusive: bool = False,
    key_groups: int | None = None,
    drain: bool = False,
    **options: Unpack[JoinOptions],
) -> JoinedStream[Rows]:
    """Join each row of *left* with the rows of *right* that have the same key and a time in an interval around its own.

    >>> import pyarrow as pa
    >>> from asterism import KeyedStream
    >>> orders = KeyedStream(pa.table({"id": [1, 2], "ts": [1000, 2000]}), key="id", time="ts")
    >>> payments = KeyedStream(pa.table({"id": [1], "paid": [31000]}), key="id", time="paid")
    >>> paid = interval_join(orders, payments, (timedelta(0), timedelta(minutes=1)))
    >>> paid.results.select(["id", "ts", "paid"]).to_pylist()
    [{'id': 1, 'ts': 1000, 'paid': 31000}]

    A pair is emitted when the watermark has passed both rows. A row that joins nothing is emitted (``left``, ``right``, ``full``,
    ``left_anti``) when the watermark has passed its interval.

    :param left, right: streams or tables with a key and an event time. The keys have the same types; their names may differ.
        As in SQL, a key with a NULL equals no key.
    :param between: the interval, from the time of the row of *left*: its lower and its upper bound. A negative bound is before
        that time. Both bounds belong to the interval.
    :param lower_exclusive: whether the lower bound does not belong to the interval; *upper_exclusive* likewise
    :param key_groups: the number of key groups. It cannot change during the lifetime of a checkpoint. Default:
        ``run`` keeps the number of the checkpoint. For a new checkpoint, it chooses four for each stateful task, at most 32,
        or more on a cluster with more cores. Without ``run``, there are 32.
    :param drain: whether this run ends the stream (streaming), as for :func:`asterism.window`
    :param options: ``how``, ``on`` and ``prefix``: see :class:`~asterism.joins.spec.JoinOptions`
    :raises StreamDefinitionError: a stream has no event time, the keys differ, or two columns have the same name
    :raises ExpressionError: the condition does not match the columns

    Runnable examples: docs/joins.md. Source: Flink's ``KeyedStream.intervalJoin``.
    """
    expect_options("interval_join", options, JoinOptions)
    kind = IntervalJoin.of(between, lower_exclusive=lower_exclusive, upper_exclusive=upper_exclusive)
    return JoinedStream(JoinSpec(kind, **options), left, right, key_groups, drain)


def as_of_join(
    left: KeyedStream[Rows],
    right: KeyedStream[Rows],
    *,
    tolerance: timedelta | None = None,
    how: str = INNER,
    on: str | None = None,
    prefix: str = "",
    key_groups: int | None = None,
    drain: bool = False,
) -> JoinedStream[Rows]:
    """Join each row of *left* with the version of its key in *right* that was valid at its time: the last row at or before it.

    A row is emitted when the watermark has passed it. The state has the last version of each key.

    :param right: the versions. Of versions with equal times, the last one in the order of ``order_by`` is valid.
    :param tolerance: how old a version may be. Default: any age; the last version of each key is then kept forever.
    :param how: the join type: ``inner``, ``left``, ``left_semi`` or ``left_anti``
    :param on: a further condition on a row and its version. If it is not satisfied, the row has no version; an earlier one is
        not tried.

    The other parameters and the exceptions are those of :func:`interval_join`. Runnable examples: docs/joins.md. Source: Flink
    SQL's ``FOR SYSTEM_TIME AS OF``.
    """
    return JoinedStream(JoinSpec(AsOfJoin.of(tolerance), how, on, prefix), left, right, key_groups, drain)


def window_join(
    left: KeyedStream[Rows],
    right: KeyedStream[Rows],
    windows: Windows,
    *,
    how: str = INNER,
    on: str | None = None,
    prefix: str = "",
    key_groups: int | None = None,
    drain: bool = False,
) -> JoinedStream[Rows]:
    """Join the rows of *left* and *right* that have the same key and belong to the same window.

    The rows of a window are emitted when the watermark has passed its end. They begin with ``window_start`` and
    ``window_end``, of the type of the event time of *left*. In overlapping windows, a pair is joined once in each.

    :param windows: TumblingWindows, SlidingWindows, or SessionWindows with a fixed gap. A session has the rows of both sides.

    The other parameters and the exceptions are those of :func:`interval_join`. Runnable examples: docs/joins.md. Source:
    Flink's ``JoinedStreams``, and the window joins of Flink SQL.
    """
    return JoinedStream(JoinSpec(WindowJoin(windows), how, on, prefix), left, right, key_groups, drain)


def multi_join(
    inputs: Mapping[str, KeyedStream[Rows]],
    between: Mapping[tuple[str, str], tuple[timedelta, timedelta]],
    *,
    how: Mapping[str, str] | None = None,
    on: Mapping[str, str] | None = None,
    prefix: Mapping[str, str] | None = None,
    max_rows: int = MAX_ROWS,
    key_groups: int | None = None,
    drain: bool = False,
) -> MultiJoinedStream[Rows]:
    """Join the rows of 2 to 16 streams that have the same key and lie in intervals around each other, in one operator.

    The result is that of SQL, which joins one input after the other, in the order in which they are given. No intermediate result
    is stored: the state has each row of an input once, until no row to come can join it.

    :param inputs: streams or tables with a key and an event time, by name. The keys have the same types; their names may differ.
        As in SQL, a key with a NULL equals no key.
    :param between: for pairs of inputs the interval in which the time of the second one lies, from the time of the first one:
        ``{("orders", "payments"): (timedelta(0), timedelta(hours=1))}``. Both bounds belong to the interval. Each input
        needs an interval with an input before it.
    :param how: the type of the join of an input with those before it: ``inner`` (default) or ``left``
    :param on: a further condition of the join of an input, in Spark SQL, over its columns and those of the inputs before it, with
        the names that they have in the result
    :param prefix: a prefix for the names of the columns of an input
    :param max_rows: the maximum number of rows of a key in the state, of all inputs together. Default: 1,000,000. If a key
        has more, the query fails with a LimitExceededError.
    :param key_groups: the number of key groups. It cannot change during the lifetime of a checkpoint. Default:
        ``run`` keeps the number of the checkpoint. For a new checkpoint, it chooses four for each stateful task, at most 32,
        or more on a cluster with more cores. Without ``run``, there are 32.
    :param drain: whether this run ends the stream (streaming), as for :func:`asterism.window`
    :raises StreamDefinitionError: a stream has no event time, the keys differ, two columns have the same name, or an input has no
        interval with an input before it
    :raises ExpressionError: a condition does not match the columns

    Runnable examples: docs/joins.md. Source: Flink's multi-way join (FLIP-516).
    """
    build = partial(MultiJoinOperator, between=between, how=how, on=on, prefix=prefix, max_rows=max_rows)
    optional = [name for name, kind in (how or {}).items() if kind == LEFT_OUTER] if isinstance(how, dict) else []
    return MultiJoinedStream(inputs, build, JoinConditions(on or {}, prefix or {}, optional), key_groups, drain)


class _StreamJoin(Generic[Rows]):
    """The outputs of a join of streams."""

    def __init__(
        self,
        streams: Mapping[str, KeyedStream[Any]],
        build: BuildJoin,
        late_outputs: Sequence[str],
        conditions: JoinConditions,
        key_groups: int | None,
        drain: bool,
    ) -> None:
        check_use(key_groups, drain)
        self.key_groups, self.drain, self._late_outputs = key_groups, drain, late_outputs
        module = module_of(host_of_all("a join", streams.values()), "stream_joins")
        self._hosted: HostedJoin = module.hosted_join(streams, build, conditions, key_groups, drain)

    @property
    def operator(self) -> JoinOperator | MultiJoinOperator:
        """The operator of its results."""
        return self._hosted.operator

    def _single(self, late: Collection[str], output: str) -> Rows:
        rows: Rows = self._hosted.rows(late, output)
        return rows

    def __getattr__(self, name: str) -> NoReturn:
        """
        :raises AttributeError: always; for a name of a DataFrame, the message has the DataFrame
        """
        if not name.startswith("_") and hasattr(self._hosted.rows_class, name):
            raise AttributeError(f"a joined stream is not a DataFrame and has no {name}(); its rows are .results")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def results(self) -> Rows:
        """The joined rows."""
        return self._single([], JOINED)

    def run(
        self,
        sinks: Mapping[str, Sink],
        *,
        checkpoint: str | None = None,
        drain: bool | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        from_savepoint: str | None = None,
        **begin: Unpack[BeginOptions],
    ) -> StreamingQuery | None:
        """Write the joined rows and the late rows to sinks, by output. They are computed only once, as in
        :meth:`asterism.PatternStream.run`. A *history* has a table for each input: ``{"left": table, "right": table}``.

        The query's progress has the number of late rows, in the observation ``asterism``.
        """
        options = RunOptions.checked(
            sinks,
            checkpoint,
            drain,
            trigger,
            name,
            with_trigger=self.drain,
            key_groups=self.key_groups,
            from_savepoint=from_savepoint,
        ).begun(begin)
        expect_outputs(sinks, [JOINED, *self._late_outputs])
        late = [output for output in self._late_outputs if output in sinks]
        return self._hosted.run(late, sinks, options)

    def open(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        sinks: Mapping[str, Sink] | None = None,
        snapshot_every: timedelta | int | None = SNAPSHOT_EVERY,
    ) -> LiveEngine:
        """Open a live engine for the stream of a schema, without Spark, as :meth:`asterism.PatternStream.open`.

        :param folder, sinks, snapshot_every: as there
        :param outputs: the outputs that calls return. Default: those of *sinks*, or else ``results``
        :raises StreamDefinitionError: an argument is invalid, or the stream is a table or a DataFrame
        :raises StateError: the folder has the state of another query, is in use, or cannot be used
        """
        options = LiveOptions.of(folder, outputs, sinks, snapshot_every)
        expect_outputs(options.outputs, [JOINED, *self._late_outputs])
        names = options.outputs or [JOINED]
        return self._hosted.open([output for output in self._late_outputs if output in names], options, names)


def _check_stream(what: str, stream: object, reason: str | None) -> None:
    """:param reason: why it cannot have an order; None: it can"""
    if not isinstance(stream, KeyedStream):
        raise StreamDefinitionError(
            f"{what} must be a KeyedStream, not a {type(stream).__name__}", hint='KeyedStream(df, key="id", time="ts")'
        )
    if stream.order_by and reason is not None:
        raise StreamDefinitionError(f"{what} has an order_by", reason, "remove it")


class JoinedStream(_StreamJoin[Rows]):
    """The result of a join. Each DataFrame is a separate query; :meth:`run` writes results and late rows from one query.

    A row of the result has the columns of the left side, followed by those of the right side without its key. With
    ``left_semi`` and ``left_anti`` it has only those of the left side. The outputs of :meth:`run` are ``results``, ``late_left``
    and ``late_right``.
    """

    def __init__(
        self, spec: JoinSpec, left: KeyedStream[Any], right: KeyedStream[Any], key_groups: int | None, drain: bool
    ) -> None:
        for name, stream in ((LEFT, left), (RIGHT, right)):
            has_order = name == RIGHT and isinstance(spec.kind, AsOfJoin)
            reason = None if has_order else "Only the versions of an as-of join have an order if their times are equal."
            _check_stream(f"the {name} side of a join", stream, reason)
        self.spec = spec

        def build(wires: Mapping[str, Wire], **options: Any) -> JoinOperator:
            options |= {"on": spec.on, "prefix": spec.prefix, "order_by": right.order_by}
            return JoinOperator(wires[LEFT], wires[RIGHT], spec.kind, spec.how, **options)

        conditions = JoinConditions({} if spec.on is None else {RIGHT: spec.on}, {RIGHT: spec.prefix})
        super().__init__({LEFT: left, RIGHT: right}, build, (LATE_LEFT, LATE_RIGHT), conditions, key_groups, drain)

    def __repr__(self) -> str:
        kind = self.spec.kind
        return f"JoinedStream({self.spec.how} {kind.name.split(' ', 1)[1]}: {kind!r})"

    @property
    def late_left(self) -> Rows:
        """The rows of the left side at or before the watermark when they arrived, and rows without a time, with the columns of
        the input. They are not joined. In batch, no row is late.
        """
        return self._single([LATE_LEFT], LATE_LEFT)

    @property
    def late_right(self) -> Rows:
        """The late rows of the right side."""
        return self._single([LATE_RIGHT], LATE_RIGHT)


class MultiJoinedStream(_StreamJoin[Rows]):
    """The result of a join of many streams. Each DataFrame is a separate query; :meth:`run` writes results and late rows from one
    query.

    A row of the result has the columns of the first input, followed by those of the others without their keys. The outputs of
    :meth:`run` are ``results``, and for each input ``late_`` with its name.
    """

    def __init__(
        self,
        inputs: Mapping[str, KeyedStream[Any]],
        build: Callable[..., MultiJoinOperator],
        conditions: JoinConditions,
        key_groups: int | None,
        drain: bool,
    ) -> None:
        check_inputs(inputs)
        for name, stream in inputs.items():
            _check_stream(f"the input {name!r} of a join", stream, "Rows of a join have no order.")
        super().__init__(inputs, build, [late_output(name) for name in inputs], conditions, key_groups, drain)

    def __repr__(self) -> str:
        return f"MultiJoinedStream({self.operator!r})"

    def late(self, input: str) -> Rows:
        """The rows of an input at or before the watermark when they arrived, and rows without a time, with the columns of the
        input. They are not joined. In batch, no row is late.

        :raises UnknownOutputError: there is no such input
        """
        output = late_output(input)
        expect_outputs([output], self._late_outputs)
        return self._single([output], output)
