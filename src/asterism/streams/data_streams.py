"""Descriptions of streams without a key: those of instances of an operator, and those that every key group receives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from asterism.columns.time import MILLISECONDS
from asterism.spelling import PythonNames
from asterism.streams.hosts import hosted_class
from asterism.streams.keyed_stream import Events, KeyedStream, check_columns, check_unit


@dataclass(frozen=True)
class StreamWithoutKey(Generic[Events], metaclass=PythonNames):
    """See :class:`DataStream` and :class:`BroadcastStream`. Each host has a subclass of both."""

    df: Events
    time: str | None = None
    max_out_of_orderness: timedelta = timedelta(0)
    idle_after: timedelta | None = None
    time_unit: str = MILLISECONDS
    watermark_by: Sequence[str] = ()

    host: ClassVar[str]
    """the package that runs queries over these events"""
    where: ClassVar[str]
    """in errors, where a column is not"""

    if not TYPE_CHECKING:

        def __new__(cls, df: Any = None, *arguments: Any, **options: Any) -> Any:
            """A stream of the host that takes these events."""
            return object.__new__(hosted_class(df, cls.__name__) if cls in (DataStream, BroadcastStream) else cls)

    def __post_init__(self) -> None:
        """Check the arguments; each host has the types of its columns."""
        raise NotImplementedError

    def set_events(self, events: Any, columns: Sequence[str]) -> None:
        """Set the events, in which the event time must be.

        :param columns: those of the events
        """
        check_unit(self.time_unit)
        object.__setattr__(self, "df", events)
        check_columns(columns, [] if self.time is None else [self.time], self.where)


class DataStream(StreamWithoutKey[Events]):  # docs/decisions/0101
    """Elements without a key, distributed over parallel instances of an operator: its key groups. Each instance has separate
    state and timers.

    The instance of an element follows from a hash of the columns that the operator reads, other than maps. It is the same when a
    micro-batch is repeated. Equal elements have the same instance. Over an Arrow table, the hash leaves out all nested columns.

    :param df: a streaming or a batch DataFrame; or a table, as for a :class:`KeyedStream`
    :param time, max_out_of_orderness, idle_after, time_unit, watermark_by: as for a :class:`KeyedStream`
    :raises StreamDefinitionError, ColumnNotFoundError: a column is missing or of an unsuitable type

    Source: operators of a Flink ``DataStream`` that is not keyed.
    """

    where = "in the stream"


class BroadcastStream(StreamWithoutKey[Events]):
    """Elements that every key group receives, such as rules, thresholds or slowly changing tables.

    :param df: a streaming or a batch DataFrame; or a table, as for a :class:`KeyedStream`
    :param time: event-time column, of the types of :class:`KeyedStream`. An element takes effect exactly at its time, and
        keyed events wait for the watermark of this input. None: an element takes effect in the micro-batch in which it
        arrives, before the keyed events of that micro-batch.
    :param max_out_of_orderness: as for a keyed stream
    :param idle_after, time_unit, watermark_by: as for a keyed stream
    :raises StreamDefinitionError, ColumnNotFoundError: a column is missing or of an unsuitable type
    """

    where = "in the broadcast stream"


Stream = KeyedStream[Any] | StreamWithoutKey[Any]
