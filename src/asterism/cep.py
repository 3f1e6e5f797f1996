"""The fluent API of patterns: match a pattern in a keyed stream, on the host of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, overload

import pyarrow as pa

from asterism.matching.spec import MAX_PARTIAL_MATCHES, MatchOptions, OnLimit
from asterism.patterns.compiler import check_pattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.warnings import warn
from asterism.spelling import PythonNames
from asterism.streams.hosts import module_of
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_stream import PatternStream
from asterism.streams.run_options import check_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory
    from asterism.streams.backtests import Backtest
    from asterism.streams.pattern_processors import PatternProcessorStream, ProcessorOptions

_PATTERNS = "patterns"
"""The module of a host with patterns."""


class CEP(metaclass=PythonNames):
    """Applies patterns to streams, like Flink's class of the same name."""

    @overload
    @staticmethod
    def pattern(
        stream: KeyedStream[DataFrame],
        pattern: Pattern,
        *,
        semantics: Semantics = ...,
        key_groups: int | None = ...,
        pages: int | None = ...,
        drain: bool = ...,
        max_partial_matches: int | None = ...,
        on_limit: OnLimit = ...,
    ) -> PatternStream[DataFrame]: ...

    @overload
    @staticmethod
    def pattern(
        stream: KeyedStream[Any],
        pattern: Pattern,
        *,
        semantics: Semantics = ...,
        key_groups: int | None = ...,
        pages: int | None = ...,
        drain: bool = ...,
        max_partial_matches: int | None = ...,
        on_limit: OnLimit = ...,
    ) -> PatternStream[pa.Table]: ...

    @staticmethod
    def pattern(
        stream: KeyedStream[Any],
        pattern: Pattern,
        *,
        semantics: Semantics = Semantics.DEFAULT,
        key_groups: int | None = None,
        pages: int | None = None,
        drain: bool = False,
        max_partial_matches: int | None = MAX_PARTIAL_MATCHES,
        on_limit: OnLimit = "error",
    ) -> PatternStream[Any]:
        """Match *pattern* in *stream*.

        >>> from asterism import KeyedStream, Pattern
        >>> events = [{"user": "ann", "ts": 1000, "kind": "cart"}, {"user": "ann", "ts": 2000, "kind": "buy"}]
        >>> stream = KeyedStream(pa.Table.from_pylist(events), key="user", time="ts")
        >>> pattern = Pattern.begin("cart").where("kind = 'cart'").next("buy").where("kind = 'buy'")
        >>> CEP.pattern(stream, pattern).select("buy.ts - cart.ts AS took").to_pylist()
        [{'user': 'ann', 'took': 1000}]

        :param semantics: the semantics of this library, or exactly those of Flink
        :param key_groups: the number of key groups (streaming). It cannot change during the lifetime of a checkpoint. Default:
            ``run`` keeps the number of the checkpoint. For a new checkpoint, it chooses four for each stateful task, at most 32,
            or more on a cluster with more cores. Without ``run``, there are 32.
        :param pages: a fixed number of pages of state per key group (streaming), which cannot change either. Default: the number
            follows the size of the state. Needed only for a checkpoint that was created with a number.
        :param drain: whether this run ends the stream (streaming). With the trigger *available now*, a single micro-batch
            reads all available data, then every deadline fires and the state is empty. :meth:`PatternStream.run` drains by
            default, after it has read the available data in as many micro-batches as the sources require.
        :param max_partial_matches: the maximum number of partial matches per key, which also limits the cost of an event.
            None: no limit (see docs/limits.md).
        :param on_limit: the behavior at that limit. "error" fails the query with
            :class:`~asterism.errors.LimitExceededError`; "drop" drops the partial matches that began last.
        :raises MalformedPatternError, ExpressionError: the pattern is invalid, or does not fit the columns of the stream

        Issues a :class:`~asterism.errors.PatternWarning` if the pattern is most likely not what was intended.

        More examples: docs/tables.md, docs/streaming.md and docs/live.md.
        """
        check_stream(stream, key_groups, drain)
        check_pattern(pattern)
        warn(pattern)
        options = MatchOptions(
            semantics=semantics, pages=pages, max_partial_matches=max_partial_matches, on_limit=on_limit
        )
        patterns = module_of(stream.host, _PATTERNS)
        stream_of_matches: PatternStream[Any] = patterns.pattern_stream(stream, pattern, key_groups, drain, options)
        return stream_of_matches

    @overload
    @staticmethod
    def pattern_processors(
        stream: KeyedStream[DataFrame],
        factory: PatternProcessorDiscovererFactory,
        *,
        store: str | None = ...,
        on_error: str = ...,
        on_limit: str = ...,
        key_groups: int | None = ...,
        drain: bool = ...,
        **options: Unpack[ProcessorOptions],
    ) -> PatternProcessorStream[DataFrame]: ...

    @overload
    @staticmethod
    def pattern_processors(
        stream: KeyedStream[Any],
        factory: PatternProcessorDiscovererFactory,
        *,
        store: str | None = ...,
        on_error: str = ...,
        on_limit: str = ...,
        key_groups: int | None = ...,
        drain: bool = ...,
        **options: Unpack[ProcessorOptions],
    ) -> PatternProcessorStream[pa.Table]: ...

    @staticmethod
    def pattern_processors(
        stream: KeyedStream[Any],
        factory: PatternProcessorDiscovererFactory,
        *,
        store: str | None = None,
        on_error: str = "fail",
        on_limit: str = "disable",
        key_groups: int | None = None,
        drain: bool = False,
        **options: Unpack[ProcessorOptions],
    ) -> PatternProcessorStream[Any]:
        """Match the patterns of many processors, which can change while the query runs (FLIP-200).

        :param stream: a stream, whose key applies to processors without a key; the key may be empty
        :param factory: creates the discoverer, on Spark's driver
        :param store: a folder for the rule sets, accessible to the driver and the executors. Default: a folder in the
            checkpoint.
        :param on_error: the behavior if a processor fails. "fail" fails the query; "disable" disables the processor until its
            next version, in the key group where it failed, and adds a row to the output ``errors``. A shadow is always disabled,
            also at the limit below.
        :param on_limit: the behavior at *max_partial_matches*, independent of *on_error*. "disable" disables the processor as
            above; "fail" fails the query with :class:`~asterism.errors.LimitExceededError`.
        :param key_groups, drain: as for :meth:`pattern`
        :param options: *functions*, *conditions*, *udfs*, *lookups*, *semantics*, *max_partial_matches*: see
            :class:`~asterism.streams.pattern_processors.ProcessorOptions`
        :raises StreamDefinitionError: an argument is invalid
        """
        check_stream(stream, key_groups, drain)
        rules: PatternProcessorStream[Any] = module_of(stream.host, _PATTERNS).pattern_processors(
            stream, factory, store=store, on_error=on_error, on_limit=on_limit, key_groups=key_groups, drain=drain,
            **options,
        )  # fmt: skip
        return rules

    @overload
    @staticmethod
    def backtest(
        stream: KeyedStream[DataFrame],
        rules: Any,
        against: Any = ...,
        *,
        key_groups: int | None = ...,
        examples: int = ...,
        label: str | None = ...,
        **options: Unpack[ProcessorOptions],
    ) -> Backtest[DataFrame]: ...

    @overload
    @staticmethod
    def backtest(
        stream: KeyedStream[Any],
        rules: Any,
        against: Any = ...,
        *,
        key_groups: int | None = ...,
        examples: int = ...,
        label: str | None = ...,
        **options: Unpack[ProcessorOptions],
    ) -> Backtest[pa.Table]: ...

    @staticmethod
    def backtest(
        stream: KeyedStream[Any],
        rules: Any,
        against: Any = None,
        *,
        key_groups: int | None = None,
        examples: int = 3,
        label: str | None = None,
        **options: Unpack[ProcessorOptions],
    ) -> Backtest[Any]:
        """Run rules over a table of history, and compare their matches with those of other rules.

        The result is that of a bounded job with ``on_error="disable"``: a rule that fails is disabled in its key group, and all
        others continue. Timestamps of rules are ignored. A shadow takes the place of its rule.

        :param stream: a table, whose key applies to rules without a key
        :param rules: the rules: a path, the URL of a database or a web server, a discoverer factory, or a list of
            :class:`~asterism.PatternProcessor`
        :param against: the rules to compare with, for example those in force, without their shadows. Rules are compared by id.
        :param key_groups, options: as for :meth:`pattern_processors`
        :param examples: the number of matches that are shown of each rule, up to 1000: of those that were added, and of those
            that were removed
        :param label: a column, BOOLEAN or a number, of the events that the rules are to find, such as ``is_fraud``. The report
            then has the precision and the recall of each rule: a match is true if an event of its key, from its first to its last
            one, has the label, and an event is found if it is in a match so. A label needs an event time. None: no label.
        :raises PatternProcessorError: the rules cannot be read
        :raises StreamDefinitionError: an argument is invalid

        docs/rules/trying.md has a runnable example.
        """
        check_stream(stream, key_groups)
        backtest: Backtest[Any] = module_of(stream.host, _PATTERNS).backtest(
            stream, rules, against, key_groups=key_groups, examples=examples, label=label, **options
        )
        return backtest
