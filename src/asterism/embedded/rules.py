"""Rules over Arrow tables: ``CEP.pattern_processors`` and ``CEP.backtest``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.time import DAY, micros
from asterism.embedded.batches import check_live, check_table, is_live, opened
from asterism.embedded.tables import KEY_GROUPS, Outputs, filter_of, run_key_groups, selected, threads_of, write
from asterism.files.file_systems import is_path
from asterism.live.live_input import MILLISECOND
from asterism.live.live_options import LiveOptions
from asterism.operators.operator import EVENTS, Arrival
from asterism.operators.sink_functions import Sink
from asterism.rules.checking.backtest import ADDED, KEPT, MAX_EVENTS, REMOVED, BacktestMatch
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import ERRORS, LATE, MATCHES, TIMED_OUT
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.publishing.lookup_watch import DefinedLookup
from asterism.rules.sets.set_store import FolderStore, SingleSetStore
from asterism.streams import backtests
from asterism.streams.backtests import ID, MIXED, PAIRED, SHARED, Backtest, CountedMatches, match_of
from asterism.streams.evidence import Daily, LabelledEvents, Spans, labelled_events, spans_of
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.pattern_processors import PatternProcessorStream
from asterism.streams.run_options import RunOptions

if TYPE_CHECKING:
    from asterism.live.engine import LiveEngine
    from asterism.live.rule_sets import LiveRuleSets


@dataclass(frozen=True)
class ArrowPatternProcessorStream(PatternProcessorStream[pa.Table]):
    """The results of pattern processors over a table, as tables. They are computed each time they are read."""

    def _schema(self) -> pa.Schema:
        return self.stream.df.schema

    def _store(self, checkpoint: str | None) -> FolderStore:
        location = self._location(checkpoint)
        return FolderStore(str(Path(location).absolute()) if is_path(location) else location)

    @property
    def _waiting_time(self) -> int | None:
        return micros(self.stream.max_out_of_orderness) + MILLISECOND if is_live(self.stream) else 0

    def _open(self, options: LiveOptions, without: frozenset[str]) -> LiveEngine:
        from asterism.live.rule_sets import LiveRuleSets  # queries over tables do not need it

        check_live(self.stream)
        store = self._store_of(options)
        operator = self._checked_operator(store, options.outputs, without)

        def companion(details: Mapping[str, Any]) -> LiveRuleSets:
            return LiveRuleSets(
                operator.compiler, store, self.factory, without=without, lookups=self.lookups, details=details
            )

        names = {output: output for output in options.outputs}
        return opened(operator, {EVENTS: self.stream}, options, names=names, companion=companion)

    def _store_of(self, options: LiveOptions) -> FolderStore:
        """The sets are in the folder of the engine, or in memory if it has none."""
        if self.store is None and options.folder is None:
            return SingleSetStore()
        return self._store(None if options.folder is None else fspath(options.folder))

    def _output(self, name: str, without: frozenset[str]) -> pa.Table:
        check_table(self.stream)
        operator = self._checked_operator(self._current_rules(without), [name], without)
        return self._rows(operator)[name]

    def _run(self, sinks: Mapping[str, Sink], options: RunOptions, without: frozenset[str]) -> None:
        check_table(self.stream)
        options.check_of_table()
        operator = self._checked_operator(self._current_rules(without), sinks, without)
        write(operator.output_schemas, lambda: self._rows(operator), sinks)

    def _rows(self, operator: DynamicCepOperator) -> Outputs:
        assert isinstance(operator.source, SingleSetStore)
        return run_rules(operator, operator.source, self.stream, self.key_groups)


def run_rules(
    operator: DynamicCepOperator, store: SingleSetStore, stream: KeyedStream[Any], key_groups: int | None
) -> Outputs:
    """The rows of all outputs of the rules of a store over a table."""
    first = [Arrival(PROCESSORS, prepared_set(processor_set.to_bytes())) for processor_set in store.retained()]
    threads = threads_of(alone=not operator.compiler.calls_python)
    only = filter_of(operator.ranges_needed(), operator.schema, operator.time, operator.processing_time)
    events = selected(stream.df, operator, only=only)
    return run_key_groups(operator, events, key_groups or KEY_GROUPS, first, threads=threads)


def backtest(
    stream: KeyedStream[Any],
    rules: Any,
    against: Any,
    options: RuleOptions,
    lookups: Sequence[DefinedLookup],
    *,
    key_groups: int | None,
    examples: int,
    label: str | None,
) -> Backtest[pa.Table]:
    """See :meth:`asterism.CEP.backtest`."""
    check_table(stream)

    def run(
        operator: DynamicCepOperator, store: SingleSetStore, rows: Sequence[tuple[str, str, bool, str]]
    ) -> _ArrowResults:
        return _ArrowResults(stream, operator, run_rules(operator, store, stream, key_groups), rows)

    return backtests.backtest(stream.df.schema, rules, against, options, lookups, run, examples=examples, label=label)


class _ArrowResults:
    """The results of a backtest.

    :param runs: the rows of :class:`~asterism.streams.backtests.Runs`
    """

    def __init__(
        self,
        stream: KeyedStream[Any],
        operator: DynamicCepOperator,
        outputs: Outputs,
        runs: Sequence[tuple[str, str, bool, str]],
    ) -> None:
        self._stream, self._time, self._outputs = stream, operator.time, outputs
        names = ("run", "id", "is_new", "pairing")
        self._runs = pa.table(list(map(list, zip(*runs, strict=True))) or [[], [], [], []], names=names)
        self._found = self._found_rows()
        chosen = _query(_DIFFERENCES, found=self._found, runs=self._runs)
        matches = outputs[MATCHES].take(chosen.column("row"))
        self.matches = pa.table({name: chosen.column(name) for name in ("id", "difference")} | {
            name: matches.column(name) for name in matches.column_names if name not in (ID, "match_id")
        })  # fmt: skip

    def _found_rows(self) -> pa.Table:
        """What the comparison of matches reads, with times in microseconds."""
        matches = self._outputs[MATCHES]
        times = {name: self._time.to_micros(matches.column(name)) for name in ("start_time", "end_time", "match_time")}
        return pa.table(
            {
                "row": pa.array(np.arange(matches.num_rows)),
                "run": matches.column(ID),
                "key": matches.column("key"),
                "match_id": matches.column("match_id"),
                **times,
            }
        )

    def history(self) -> tuple[int, int | None, int | None]:
        stream = self._stream
        if stream.time is None:
            return stream.df.num_rows, None, None
        times = pc.min_max(self._time.to_micros(stream.df.column(stream.time), lenient=True))
        return stream.df.num_rows, times["min"].as_py(), times["max"].as_py()

    @contextmanager
    def computed(self) -> Iterator[None]:
        yield

    def counted_matches(self) -> Mapping[str, CountedMatches]:
        rows = _query(_COUNTS.format(day=DAY), found=self._found).to_pylist()
        timed = self._stream.time is not None
        return {row["run"]: CountedMatches(row["n"], row["keys"], row["most"] if timed else None) for row in rows}

    def timed_out(self) -> Mapping[str, int]:
        counted = pc.value_counts(self._outputs[TIMED_OUT].column(ID).combine_chunks())
        return {row["values"]: row["counts"] for row in counted.to_pylist()}

    def errors(self) -> Mapping[str, tuple[int, str]]:
        rows = self._outputs[ERRORS].sort_by([("time", "ascending"), ("error", "ascending")])
        errors: dict[str, tuple[int, str]] = {}
        for run, error in zip(rows.column(ID).to_pylist(), rows.column("error").to_pylist(), strict=True):
            count, first = errors.get(run, (0, error))
            errors[run] = count + 1, first
        return errors

    def late(self) -> int:
        return int(self._outputs[LATE].num_rows)

    def differences(self) -> Mapping[tuple[str, str], int]:
        counted = self.matches.group_by(["id", "difference"]).aggregate([([], "count_all")])
        return {(row["id"], row["difference"]): row["count_all"] for row in counted.to_pylist()}

    def daily(self) -> Daily:
        if self._stream.time is None:
            return {}
        rows = self.matches.select(["id", "difference"])
        days = self._time.to_micros(self.matches.column("end_time")).to_numpy() // DAY
        counted = rows.append_column("day", pa.array(days)).group_by(["id", "difference", "day"])
        daily: dict[tuple[str, str], dict[int, int]] = {}
        for row in counted.aggregate([([], "count_all")]).to_pylist():
            daily.setdefault((row["id"], row["difference"]), {})[row["day"]] = row["count_all"]
        return daily

    def spans(self) -> Spans:
        assert self._stream.time is not None
        return spans_of(self.matches, self._stream.time, self._stream.df.schema)

    def labelled(self, label: str) -> LabelledEvents:
        assert self._stream.time is not None
        events = self._stream.df
        return labelled_events(events.select(events.column_names), label, self._stream.keys, self._stream.time)

    def examples(self, most: int, *, compared: bool) -> Mapping[str, tuple[BacktestMatch, ...]]:
        rows = self.matches.append_column("row", pa.array(np.arange(self.matches.num_rows)))
        rows = rows.select(["row", "id", "difference", "key", "start_time", "end_time"])
        for number, name in ((4, "start_time"), (5, "end_time")):
            rows = rows.set_column(number, name, self._time.to_micros(rows.column(name)))
        chosen = _query(_EXAMPLES.format(most=most, left_out=KEPT if compared else ""), found=rows)
        matches: dict[str, list[BacktestMatch]] = {}
        for row in self.matches.take(chosen.column("row")).to_pylist():
            events = row["events"]
            shown = row | {"events": None if events is None else events[:MAX_EVENTS]}
            matches.setdefault(row["id"], []).append(match_of(shown, None if events is None else len(events)))
        return {id: tuple(some) for id, some in matches.items()}


def _query(query: str, **tables: pa.Table) -> pa.Table:
    import duckdb

    with duckdb.connect(":memory:") as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(query).to_arrow_table()


_IDENTITY = (
    f"id, CASE pairing WHEN '{MIXED}' THEN {{'key': key, 'start': start_time, 'end': end_time}} END,"
    f" CASE pairing WHEN '{MIXED}' THEN NULL ELSE match_id END"
)
"""Of rules that exist on both sides, what two matches that are the same have in common."""
_DIFFERENCES = f"""
WITH known AS (SELECT * FROM found JOIN runs USING (run)),
-- Several matches of a rule may have the same events, in other stages.
numbered AS (
  SELECT *, row_number() OVER (PARTITION BY {_IDENTITY}, is_new ORDER BY match_time, match_id) AS number
  FROM known WHERE pairing IN ('{PAIRED}', '{MIXED}')
),
compared AS (SELECT *, count(*) OVER (PARTITION BY {_IDENTITY}, number) = 2 AS on_both FROM numbered)
SELECT row, id, CASE WHEN on_both THEN '{KEPT}' WHEN is_new THEN '{ADDED}' ELSE '{REMOVED}' END AS difference
FROM compared WHERE is_new OR NOT on_both
UNION ALL
SELECT row, id, CASE WHEN pairing = '{SHARED}' THEN '{KEPT}' WHEN is_new THEN '{ADDED}' ELSE '{REMOVED}' END
FROM known WHERE pairing NOT IN ('{PAIRED}', '{MIXED}')
ORDER BY row
"""
"""The matches with their rule and their difference. For a match of both sides, the row of the new side."""
_COUNTS = """
WITH daily AS (SELECT run, count(*) AS n FROM found GROUP BY run, floor(end_time / {day}))
SELECT run, count(*) AS n, count(DISTINCT key) AS keys, any_value(most) AS most
FROM found JOIN (SELECT run, max(n) AS most FROM daily GROUP BY run) USING (run) GROUP BY run
"""
_EXAMPLES = """
SELECT row FROM found WHERE difference <> '{left_out}'
QUALIFY row_number() OVER (
  PARTITION BY id, difference
  ORDER BY start_time, end_time, list_transform(key, lambda part: coalesce('1' || part, '0')), row
) <= {most}
ORDER BY id, difference, start_time, end_time, list_transform(key, lambda part: coalesce('1' || part, '0')), row
"""
"""The first matches of each rule and difference. In the order of keys, NULL is first, as in Spark."""
