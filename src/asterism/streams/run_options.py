"""The arguments of the methods ``run``, and sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from typing import Any, TypedDict

from asterism.arguments import expect, expect_number, expect_options, shown
from asterism.columns.time import EPOCH, MICROSECOND
from asterism.errors import StreamDefinitionError
from asterism.operators.key_group import MAX_KEY_GROUPS
from asterism.streams.keyed_stream import KeyedStream

_AT_ONCE = {"availableNow", "once"}
"""The triggers with which Spark can read all available data in one micro-batch."""


def check_use(key_groups: int | None, drain: bool = False) -> None:
    """Check the options that all streams have."""
    expect(StreamDefinitionError, key_groups, int | None, "key_groups must be an integer", "key_groups=4")
    if key_groups is not None:
        expect_number(StreamDefinitionError, key_groups, "key_groups", least=1, most=MAX_KEY_GROUPS)
    expect(StreamDefinitionError, drain, bool, "drain must be True or False")


def check_stream(stream: KeyedStream[Any], key_groups: int | None, drain: bool = False) -> None:
    check_use(key_groups, drain)
    hint = 'KeyedStream(df, key="user", time="ts")'
    expect(StreamDefinitionError, stream, KeyedStream, "the stream must be a KeyedStream", hint)


_OF_CHANGE = ("allow_changed", "allow_dropped", "renamed")


class BeginOptions(TypedDict, total=False):
    """Where the state of a query begins, if its checkpoint is new. Only on Spark.

    *history* is a table with the columns of the stream, a DataFrame: its events come before those of the stream, and its results
    are passed to the sinks first. A query with several inputs has a dict of such tables by input; an input that is not named
    begins with its stream. Or *history* is the location of a savepoint that :func:`asterism.bootstrap_savepoint` has made from
    tables. With *history_until*, a time, the tables have the events before this time, and the streams those
    from then on; others are ignored. Without, all events of both are processed, so a stream must begin where its table
    ends.

    With *from_savepoint*, *allow_changed* says that the definition may differ from that of the savepoint: the state then
    continues as :func:`asterism.change_savepoint` continues it, with *renamed* and *allow_dropped* as there, and what becomes of
    it is logged.
    """

    history: Any
    history_until: datetime
    allow_changed: bool
    allow_dropped: bool
    renamed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AllowedChange:
    """Whether and how the state of a savepoint may continue with another definition.

    :param renamed: new names of stages or states, by their former ones
    """

    allowed: bool = False
    dropped: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def checked(cls, allow_changed: Any = False, allow_dropped: Any = False, renamed: Any = None) -> AllowedChange:
        """:raises StreamDefinitionError: the arguments do not fit"""
        expect(StreamDefinitionError, allow_changed, bool, "allow_changed must be True or False")
        expect(StreamDefinitionError, allow_dropped, bool, "allow_dropped must be True or False")
        kind = "renamed must map former names to new names"
        expect(StreamDefinitionError, renamed, Mapping | None, kind, 'renamed={"cart": "basket"}')
        if not allow_changed and (allow_dropped or renamed):
            raise StreamDefinitionError("allow_dropped and renamed need allow_changed", hint="allow_changed=True")
        return cls(allow_changed, allow_dropped, dict(renamed or {}))


@dataclass(frozen=True, slots=True)
class QueryHistory:
    """
    :param rows: a table, several ones by input, or the location of a savepoint that was made from them
    :param until: microseconds; None: all events of the table and of the stream
    :param into: takes the state and the results of the history, the number of key groups and the time mode, and returns the
        results, instead of a query
    :param pages: of a savepoint the initial state, for a number of key groups
    :param begin: called before the history is read, unless an attempt was interrupted after that; of a savepoint, copies its sets
        of rules to the store
    :param store: of a savepoint with rules, where their sets are copied to
    :param clear: called before that, with whether an attempt was interrupted after it; raises an error if the store is used
    :param counted: takes the id of the query, and what key groups have counted in the history
    """

    rows: Any
    until: int | None
    into: Callable[[Any, int, str], Any] | None = None
    pages: Callable[[int], Any] | None = None
    begin: Callable[[], object] | None = None
    store: str | None = None
    clear: Callable[[bool], object] | None = None
    counted: Callable[[str, Iterable[Mapping[str, int]]], object] | None = None

    @classmethod
    def checked(cls, history: Any = None, history_until: Any = None) -> QueryHistory | None:
        """:raises StreamDefinitionError: the arguments do not fit"""
        kind = "history_until must be a datetime with a time zone"
        expect(StreamDefinitionError, history_until, datetime | None, kind, "datetime(2026, 1, 1, tzinfo=UTC)")
        if history_until is not None and history_until.tzinfo is None:
            raise StreamDefinitionError(f"{kind}, not {shown(history_until)}")
        if isinstance(history, QueryHistory):  # of bootstrap_savepoint
            return history
        if history is None:
            if history_until is not None:
                raise StreamDefinitionError("history_until needs a history", hint="run(..., history=table)")
            return None
        tables = [*history.values()] if isinstance(history, Mapping) else [history]
        if not isinstance(history, str) and not (tables and all(map(_is_table, tables))):
            raise StreamDefinitionError(
                "the history must be a table of Spark, a DataFrame that is not a stream",
                hint='run(..., history=table); with several inputs, history={"left": table, "right": table}',
            )
        return cls(history, None if history_until is None else (history_until - EPOCH) // MICROSECOND)

    def tables(self, inputs: Sequence[str]) -> dict[str, Any]:
        """The tables by input; none, if the history is a savepoint.

        :param inputs: those that are streams
        :raises StreamDefinitionError: they have no such input
        """
        if isinstance(self.rows, str):
            return {}
        named = ", ".join(inputs)
        if not isinstance(self.rows, Mapping):
            if len(inputs) == 1:
                return {inputs[0]: self.rows}
            raise StreamDefinitionError(
                "a query with several inputs has a history for each of them",
                f"Inputs: {named}",
                "history={input: table}",
            )
        unknown = [name for name in self.rows if name not in inputs]
        if unknown:
            raise StreamDefinitionError(
                f"the query has no stream {shown(unknown[0])} that could have a history", f"Streams: {named}"
            )
        return dict(self.rows)


def _is_table(value: Any) -> bool:
    return type(value).__module__.startswith("pyspark.sql") and not getattr(value, "isStreaming", True)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The arguments of the method ``run`` of all streams.

    :param drain: whether the query ends its input
    :param key_groups: the number of key groups; None: that of the checkpoint, or one that suits a new checkpoint
    :param history: what is read before the stream
    :param from_savepoint: the savepoint that the query begins with
    :param change: whether its definition may differ
    """

    checkpoint: str | None
    drain: bool
    trigger: Mapping[str, Any] | None
    name: str | None
    key_groups: int | None
    history: QueryHistory | None = None
    from_savepoint: str | None = None
    change: AllowedChange = AllowedChange()

    @classmethod
    def checked(
        cls,
        sinks: Any,
        checkpoint: Any,
        drain: Any,
        trigger: Any,
        name: Any,
        *,
        with_trigger: bool,
        key_groups: int | None,
        from_savepoint: Any = None,
    ) -> RunOptions:
        """The arguments of a user.

        :param drain: whether the query ends its input; None: it does without a trigger
        :param with_trigger: whether a query with a trigger ends its input if *drain* is None
        :raises StreamDefinitionError: one of them is of a wrong type
        """
        expect(StreamDefinitionError, sinks, Mapping, "sinks must map outputs to functions", 'run({"matches": sink})')
        expect(StreamDefinitionError, checkpoint, str | PathLike | None, "the checkpoint must be a path")
        expect(StreamDefinitionError, drain, bool | None, "drain must be True or False")
        expect(
            StreamDefinitionError, trigger, Mapping | None, "a trigger must be a dict", 'trigger={"availableNow": True}'
        )
        expect(StreamDefinitionError, name, str | None, "the name of a query must be a string")
        expect(StreamDefinitionError, from_savepoint, str | PathLike | None, "the savepoint must be a location")
        if not sinks:
            raise StreamDefinitionError(
                "there is no sink", hint='run({"matches": sink}), where sink(df, batch_id) writes rows'
            )
        for output, sink in sinks.items():
            if not callable(sink):
                raise StreamDefinitionError(
                    f'the sink of "{output}" must be a function, not {sink!r:.60}',
                    hint="use a function of a DataFrame and a batch id: "
                    "lambda df, batch_id: df.write.mode('append').parquet(path)",
                )
        if drain is None:
            drain = True if trigger is None else with_trigger
        if drain and trigger is not None and not _AT_ONCE & trigger.keys():
            raise StreamDefinitionError(
                f"a query with the trigger {next(iter(trigger), 'none')} cannot end its input, because it does not end",
                "Its first micro-batch would end the input, and the events after that would be lost.",
                'drain=False; a last run without a trigger, or with trigger={"availableNow": True}, ends the input',
            )
        begin = None if from_savepoint is None else str(from_savepoint)
        return cls(checkpoint, drain, trigger, name, key_groups, from_savepoint=begin)

    def begun(self, begin: Mapping[str, Any]) -> RunOptions:
        """With the arguments of a user that say where the state begins, those of :class:`BeginOptions`.

        :raises StreamDefinitionError: they do not fit
        """
        expect_options("run", begin, BeginOptions)
        of_change = {name: value for name, value in begin.items() if name in _OF_CHANGE}
        change = AllowedChange.checked(**of_change)
        if change.allowed and self.from_savepoint is None:
            raise StreamDefinitionError(
                "allow_changed is for a query that begins from a savepoint", hint="run(..., from_savepoint=PATH)"
            )
        history = {name: value for name, value in begin.items() if name not in of_change}
        return replace(self, history=QueryHistory.checked(**history), change=change)

    def check_of_table(self) -> None:
        """:raises StreamDefinitionError: these are not options of a run over a table, which has no state"""
        if self.history is not None:
            raise StreamDefinitionError(
                "a run over a table has no history", "A history comes before a stream of Spark.", "unite the two tables"
            )
        if self.from_savepoint is not None:
            raise StreamDefinitionError(
                "a run over a table cannot start from a savepoint", hint="from_savepoint= is for streams of Spark"
            )
