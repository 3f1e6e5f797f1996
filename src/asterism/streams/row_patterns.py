"""Row patterns: the function ``match_recognize`` and its results, on every host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, overload

import pyarrow as pa

from asterism.arguments import expect_options, expect_outputs
from asterism.errors import StreamDefinitionError
from asterism.live.live_options import SNAPSHOT_EVERY, LiveOptions, not_live
from asterism.matching.spec import OnLimit
from asterism.operators.sink_functions import Sink
from asterism.row_patterns.clause.clause import ClauseDialect, DialectName, dialect_of
from asterism.row_patterns.match_recognize import MatchRecognize
from asterism.row_patterns.operator import LATE_ROWS, MATCHES
from asterism.streams.hosts import host_of, module_of
from asterism.streams.keyed_stream import check_watermarks
from asterism.streams.pattern_stream import Rows
from asterism.streams.run_options import BeginOptions, RunOptions, check_use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from asterism.live.engine import LiveEngine

_OUTPUTS = (MATCHES, LATE_ROWS)
_ROW_PATTERNS = "row_patterns"
"""The module of a host with row patterns."""


class SearchOptions(TypedDict, total=False):
    """How a clause is searched over a stream.

    :param pages: a fixed number of pages of state per key group. Default: the number follows the size of the state
    :param max_rows: the maximum number of rows of a partition that a search keeps while it waits for more. Default: 100,000
    :param on_limit: the behavior at that limit. "error", the default, fails the query with
        :class:`~asterism.errors.LimitExceededError`; "drop" continues as if no match began at the first of these rows, and
        counts this.
    """

    pages: int | None
    max_rows: int
    on_limit: OnLimit


@overload
def match_recognize(
    df: DataFrame,
    clause: str | MatchRecognize,
    *,
    max_out_of_orderness: timedelta = ...,
    idle_after: timedelta | None = ...,
    watermark_by: Sequence[str] = ...,
    key_groups: int | None = ...,
    drain: bool = ...,
    dialect: DialectName = ...,
    **options: Unpack[SearchOptions],
) -> RowPatternStream[DataFrame]: ...


@overload
def match_recognize(
    df: Any,
    clause: str | MatchRecognize,
    *,
    max_out_of_orderness: timedelta = ...,
    idle_after: timedelta | None = ...,
    watermark_by: Sequence[str] = ...,
    key_groups: int | None = ...,
    drain: bool = ...,
    dialect: DialectName = ...,
    **options: Unpack[SearchOptions],
) -> RowPatternStream[pa.Table]: ...


def match_recognize(
    df: Any,
    clause: str | MatchRecognize,
    *,
    max_out_of_orderness: timedelta = timedelta(0),
    idle_after: timedelta | None = None,
    watermark_by: Sequence[str] = (),
    key_groups: int | None = None,
    drain: bool = False,
    dialect: DialectName = "standard",
    **options: Unpack[SearchOptions],
) -> RowPatternStream[Any]:
    """Match the row pattern of a MATCH_RECOGNIZE clause in *df*.

    >>> import pyarrow as pa
    >>> prices = pa.table({"ts": [1000, 2000, 3000], "price": [5, 4, 6]})
    >>> clause = "ORDER BY ts MEASURES B.price AS low PATTERN (A B) DEFINE B AS price < A.price"
    >>> match_recognize(prices, clause).matches.to_pylist()
    [{'low': 4}]

    :param df: a streaming or a batch DataFrame; or a table, for a query without Spark, as for :class:`asterism.KeyedStream`
    :param clause: the text of the clause, with or without the words ``MATCH_RECOGNIZE ( )`` around it; or a
        :class:`asterism.MatchRecognize`. Over a stream, ORDER BY begins with the event time: a column of type TIMESTAMP;
        TIMESTAMP_NTZ, interpreted as UTC; DATE, interpreted as midnight UTC; or BIGINT, in milliseconds since 1970-01-01 UTC.
    :param max_out_of_orderness, idle_after, watermark_by: as for :class:`asterism.KeyedStream` (streaming)
    :param key_groups: the number of key groups (streaming). It cannot change during the lifetime of a checkpoint. Default:
        ``run`` keeps the number of the checkpoint. For a new checkpoint, it chooses four for each stateful task, at most 32,
        or more on a cluster with more cores. Without ``run``, there are 32.
    :param drain: whether this run ends the stream (streaming), as for :meth:`asterism.CEP.pattern`
    :param dialect: "standard", or "flink": statements of Flink SQL with Flink's defaults and answers, see
        docs/match_recognize_dialects.md
    :param options: *pages*, *max_rows*, *on_limit*: see :class:`~asterism.streams.row_patterns.SearchOptions`
    :raises ExpressionError: the clause is invalid, or does not fit the columns; with the position in the text
    :raises StreamDefinitionError: an argument is invalid

    Runnable examples: docs/match_recognize.md. Source: SQL:2016, feature R010.
    """
    expect_options("match_recognize", options, SearchOptions)
    if not isinstance(clause, MatchRecognize):
        clause = MatchRecognize(clause, dialect)
    elif dialect_of(dialect) not in (ClauseDialect.STANDARD, clause.clause.dialect):
        raise StreamDefinitionError(
            "the clause has been read in another dialect", hint=f"MatchRecognize(text, dialect={dialect!r})"
        )
    check_watermarks(idle_after, watermark_by)
    check_use(key_groups, drain)
    found: RowPatternStream[Any] = module_of(host_of(df), _ROW_PATTERNS).row_pattern_stream(
        df, clause.clause, max_out_of_orderness, idle_after, watermark_by, key_groups, drain, options
    )
    return found


class RowPatternStream(Generic[Rows]):
    """The results of a row pattern. They are DataFrames of Spark, or Arrow tables if the rows are a table. Each of them is a
    separate query; :meth:`run` writes several outputs from one query.
    """

    def __init__(self, key_groups: int | None, drain: bool) -> None:
        self.key_groups, self.drain = key_groups, drain

    # ------------------------------------------------------------------ what a host does

    @abstractmethod
    def _single(self, output: str) -> Rows:
        """The rows of one output."""

    @abstractmethod
    def _run(self, sinks: Mapping[str, Sink], options: RunOptions) -> StreamingQuery | None:
        """Write outputs to sinks."""

    def _open(self, options: LiveOptions) -> LiveEngine:
        """A live engine with the outputs of *options*."""
        raise not_live()

    # ------------------------------------------------------------------ results

    @property
    def matches(self) -> Rows:
        """The result of the clause, with its columns and types: for ONE ROW PER MATCH those of PARTITION BY and MEASURES, for
        ALL ROWS PER MATCH also the other columns of the input.
        """
        return self._single(MATCHES)

    @property
    def late(self) -> Rows:
        """Late rows and rows without a time, with the columns of the input. In batch, no row is late."""
        return self._single(LATE_ROWS)

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
        """Write the outputs ``matches`` and ``late`` to sinks. They are computed only once, as in
        :meth:`asterism.PatternStream.run`.

        The query's progress has the numbers of matches, of late rows and of dropped starts, in the observation ``asterism``.

        :param begin: ``history``, ``history_until``, ``allow_changed``: see :class:`~asterism.streams.run_options.BeginOptions`
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
        expect_outputs(sinks, _OUTPUTS)
        return self._run(sinks, options)

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
        :param outputs: the outputs that calls return. Default: those of *sinks*, or else ``matches``
        :raises StreamDefinitionError: an argument is invalid, or the stream is a table or a DataFrame
        :raises StateError: the folder has the state of another query, is in use, or cannot be used
        """
        options = LiveOptions.of(folder, outputs, sinks, snapshot_every)
        expect_outputs(options.outputs, _OUTPUTS)
        return self._open(options)
