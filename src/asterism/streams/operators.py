"""Connects a user-defined operator to the streams that are its inputs (FLIP-92)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Protocol, Unpack

from asterism.arguments import expect, expect_outputs
from asterism.errors import StreamDefinitionError
from asterism.live.live_options import SNAPSHOT_EVERY, LiveOptions
from asterism.operators.multiple_input import MultipleInputOperator, check_operator
from asterism.operators.sink_functions import Sink
from asterism.operators.stream_operator import Input, StreamOperator
from asterism.streams.data_streams import BroadcastStream, Stream, StreamWithoutKey
from asterism.streams.hosts import host_of_all, module_of
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_stream import Rows
from asterism.streams.run_options import BeginOptions, RunOptions, check_use

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from asterism.live.engine import LiveEngine


class HostedOperator(Protocol):
    """What a host does for an operator: its module ``operators`` has a function ``hosted_operator``."""

    operator: MultipleInputOperator

    def rows(self, output: str) -> Any:
        """The rows of one output."""

    def run(self, sinks: Mapping[str, Sink], options: RunOptions) -> StreamingQuery | None:
        """Write outputs to sinks."""

    def open(self, options: LiveOptions) -> LiveEngine:
        """A live engine, whose calls return the outputs of the options."""


def connect(
    operator: StreamOperator,
    inputs: Mapping[str, Stream] | None = None,
    *,
    key_groups: int | None = None,
    pages: int | None = None,
    drain: bool = False,
    co_partitioned: bool = False,
    **more: Stream,
) -> OperatorStream[Any]:
    """Connect the inputs of *operator* to streams, by name.

    The inputs are DataFrames, or all of them are tables (docs/tables.md). Streaming and bounded DataFrames can be mixed: bounded
    inputs are read to their end before the first element of a stream.
    If all inputs are bounded, elements are processed in the order of their event times. Inputs without an event time come first,
    one after the other, broadcast inputs before keyed ones.

    :param inputs: a KeyedStream, DataStream or BroadcastStream for each input; or as keywords:
        ``connect(op, orders=..., payments=...)``
    :param key_groups: the number of key groups. It cannot change during the lifetime of a checkpoint. Default:
        ``run`` keeps the number of the checkpoint. For a new checkpoint, it chooses four for each stateful task, at most 32,
        or more on a cluster with more cores. Without ``run``, there are 32.
    :param pages: a fixed number of pages of state per key group, which cannot change either. Default: the number follows the
        size of the state. Needed only for a checkpoint that was created with a number.
    :param drain: whether this run ends the stream (streaming): one micro-batch reads all available data, then every input
        ends
    :param co_partitioned: batch: whether the inputs are tables that are bucketed by their keys in the same way. They are then
        read and processed in one stage, without a shuffle. If they are not bucketed in this way, Spark shuffles them, and a
        warning is issued; the results are the same. Broadcast inputs are not supported. Arrow tables are never shuffled.
    :raises StreamDefinitionError, ColumnNotFoundError: an input is missing, connected twice, unknown or mistyped

    Runnable examples: docs/operators.md.
    """
    check_use(key_groups, drain)
    check_operator(operator)
    hint = "connect(operator, orders=stream)"
    expect(StreamDefinitionError, inputs, Mapping | None, "inputs must be a dict of streams by name", hint)
    expect(StreamDefinitionError, co_partitioned, bool, "co_partitioned must be True or False")
    twice = sorted((inputs or {}).keys() & more.keys())
    if twice:
        raise StreamDefinitionError(f'the input "{twice[0]}" is connected twice')
    return OperatorStream(operator, {**(inputs or {}), **more}, key_groups, pages, drain, co_partitioned)


class OperatorStream(Generic[Rows]):
    """The outputs of an operator. Each DataFrame is a separate query; :meth:`run` writes several outputs from one query. Over
    tables (docs/tables.md), outputs are tables, which are computed each time they are read.
    """

    def __init__(
        self,
        operator: StreamOperator,
        streams: Mapping[str, Stream],
        key_groups: int | None,
        pages: int | None,
        drain: bool,
        co_partitioned: bool,
    ) -> None:
        for name, stream in streams.items():
            if not isinstance(stream, KeyedStream | StreamWithoutKey):
                raise StreamDefinitionError(
                    f'the input "{name}" is connected to a {type(stream).__name__}',
                    hint="KeyedStream(df, key=..., time=...), DataStream(df) or BroadcastStream(df)",
                )
            if isinstance(stream, KeyedStream) and stream.order_by:
                raise StreamDefinitionError(
                    f'the input "{name}" has an order_by',
                    "An operator receives elements with equal times in arrival order.",
                    "remove it; to order elements, collect them in a list state and sort them in a timer",
                )
        if not streams:
            raise StreamDefinitionError("an operator needs inputs", hint="connect(operator, orders=KeyedStream(...))")
        for name, declared in operator.declared(Input).items():
            if name in streams and not declared.broadcast and isinstance(streams[name], BroadcastStream):
                raise StreamDefinitionError(
                    f'the input "{name}" is keyed, but is connected to a broadcast stream',
                    hint="KeyedStream(df, key=...)",
                )
        self.key_groups, self.drain = key_groups, drain
        module = module_of(host_of_all("an operator", streams.values()), "operators")
        self._hosted: HostedOperator = module.hosted_operator(
            operator, streams, key_groups, pages, drain, co_partitioned
        )

    @property
    def operator(self) -> MultipleInputOperator:
        """The operator, connected to its inputs."""
        return self._hosted.operator

    def output(self, name: str) -> Rows:
        """The rows of one output.

        :raises StreamDefinitionError: there is no output of that name
        """
        expect_outputs([name], self.operator.output_schemas)
        rows: Rows = self._hosted.rows(name)
        return rows

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
        """Write outputs to sinks. They are computed only once, as in :meth:`asterism.PatternStream.run`. A *history* has a table
        for each input that shall have one, unless there is only one input.

        The query's progress has the operator's counters and the number of late elements, in the observation ``asterism``.
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
        expect_outputs(sinks, self.operator.output_schemas)
        return self._hosted.run(sinks, options)

    def open(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        sinks: Mapping[str, Sink] | None = None,
        snapshot_every: timedelta | int | None = SNAPSHOT_EVERY,
    ) -> LiveEngine:
        """Open the operator as a live engine (docs/live.md): its inputs are streams of schemas, which ``process`` names.

        The engine is one instance of the operator, with all keys.

        :param folder, sinks, snapshot_every: as for :meth:`asterism.PatternStream.open`
        :param outputs: the outputs that calls return. Default: those of *sinks*; without sinks all
        :raises StreamDefinitionError: an input is a table or a DataFrame, or there is no such output
        :raises CheckpointInUseError, CheckpointMismatchError, StateError: as for :meth:`asterism.PatternStream.open`

        Runnable examples: docs/live.md.
        """
        options = LiveOptions.of(folder, outputs, sinks, snapshot_every)
        if not options.outputs:
            options = replace(options, outputs=tuple(self.operator.output_schemas))
        expect_outputs(options.outputs, self.operator.output_schemas)
        return self._hosted.open(options)


def check_co_partitioned(bounded: bool, operator: MultipleInputOperator) -> None:
    """:raises StreamDefinitionError: the inputs of the operator cannot be partitioned in the same way"""
    if not bounded or any(spec.broadcast for spec in operator.inputs.values()):
        raise StreamDefinitionError(
            "co_partitioned is supported only for bounded, keyed inputs",
            hint="join broadcast tables first: multi_broadcast_join",
        )
