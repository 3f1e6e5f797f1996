"""The complete text of the errors of the embedded host."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import asterism
from asterism import (
    CEP,
    KeyedStream,
    Pattern,
    PatternProcessor,
    TumblingWindows,
    interval_join,
    match_recognize,
    window,
)
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from asterism.embedded.keyed_stream import ArrowKeyedStream
from asterism.streams.hosts import SPARK
from tests.embedded.test_events import TABLE, failing
from tests.kit import Golden

RULES: Any = 5
IDLE: Any = "5 min"
WITHIN = (timedelta(0), timedelta(1))


def stream(**options: Any) -> KeyedStream[Any]:
    return KeyedStream(TABLE, **{"key": "user", "time": "ts", **options})


class OnSpark(ArrowKeyedStream):
    """As if its events were a DataFrame."""

    host = SPARK


class Echo(asterism.StreamOperator):
    """An operator with a keyed and a broadcast input."""

    events = asterism.Input("user STRING")
    limits = asterism.BroadcastInput("price DOUBLE")
    out = asterism.Output("user STRING")

    @events.process_element
    @limits.process_element
    def anything(self, element: Any, ctx: Any) -> None: ...


def found(pattern: Pattern) -> Any:
    return CEP.pattern(stream(), pattern)


def other_batches() -> pa.RecordBatchReader:
    batches = [*TABLE.to_batches(), pa.record_batch({"user": [1], "ts": [2], "price": [1.0]})]
    return pa.RecordBatchReader.from_batches(TABLE.schema, iter(batches))


def folder_of_folders() -> Path:
    (Path("events") / "day=1").mkdir(parents=True)
    return Path("events")


def folder_of(*texts: str) -> Path:
    folder = Path("csv")
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_text(text)
    return folder


def file_of(text: str) -> Path:
    path = Path("events.csv")
    path.write_text(text)
    return path


TEXTS: dict[str, Callable[[], object]] = {
    "no_events": lambda: KeyedStream(5),  # type: ignore[call-overload]
    "a_list_of_rows": lambda: KeyedStream([{"user": "u"}]),  # type: ignore[call-overload]
    "a_list_of_paths": lambda: KeyedStream(["a.csv", "b.csv"]),  # type: ignore[call-overload]
    "a_query_for_a_path": lambda: KeyedStream("SELECT * FROM trades"),
    "a_dict_of_columns": lambda: KeyedStream({"user": ["u"]}),  # type: ignore[call-overload]
    "files_in_folders": lambda: KeyedStream(folder_of_folders()),
    "names_with_wildcards": lambda: KeyedStream("events/*.parquet"),
    "a_time_that_cannot_be_read": lambda: KeyedStream(file_of("ts,n\n2026-01-31,1\n31.01.2026 12:00,2\n"), time="ts"),
    "a_file_elsewhere": lambda: KeyedStream("s3://bucket/events.parquet"),
    "a_file_of_the_web": lambda: KeyedStream("https://example.org/events.csv"),
    "columns_of_another_type": lambda: KeyedStream(folder_of("a,b\n1,2\n", "a,b\n1,two\n")),
    "no_file": lambda: KeyedStream(Path("there/is/none.csv")),
    "no_format": lambda: KeyedStream("events.xlsx"),
    "columns_as_text": lambda: KeyedStream("user BIGINT, ts TIMESTAMP", key="user", time="ts"),
    "a_reader_fails": lambda: KeyedStream(pa.RecordBatchReader.from_batches(TABLE.schema, failing())),
    "batches_with_other_columns": lambda: KeyedStream(other_batches()),
    "no_columns": lambda: KeyedStream(pa.table({})),
    "two_columns": lambda: KeyedStream(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])),
    "no_such_column": lambda: stream(time="tss"),
    "a_time_in_the_index": lambda: KeyedStream(TABLE.to_pandas().set_index("ts"), time="ts"),
    "a_key_without_equality": lambda: stream(key="price"),
    "a_type_that_arrow_does_not_have": lambda: KeyedStream(pl.DataFrame({"a": [1]}, {"a": pl.Int128})),
    "a_time_without_order": lambda: stream(time="user"),
    "an_idle_time_as_text": lambda: match_recognize(
        TABLE, "ORDER BY ts MEASURES A.ts AS t PATTERN (A)", idle_after=IDLE
    ),
    "an_unsigned_time": lambda: KeyedStream(pl.DataFrame({"ts": [1]}, {"ts": pl.UInt64}), time="ts"),
    "a_short_time": lambda: KeyedStream(pl.DataFrame({"ts": [1]}, {"ts": pl.Int32}), time="ts"),
    "a_time_with_a_fraction": lambda: stream(time="price"),
    "a_descending_column": lambda: stream(order_by=["price desc"]),
    "a_key_of_several_events": lambda: stream(key="count(user) AS n"),
    "a_key_with_an_unknown_function": lambda: stream(key="reversed(user) AS n"),
    "a_key_with_an_unknown_column": lambda: stream(key="lower(usr) AS n"),
    "a_key_of_the_name_of_a_column": lambda: stream(key="lower(user) AS USER"),
    "a_function_of_spark": lambda: found(Pattern.begin("x").where("java_method('a', 'b', user) = 'c'")),
    "an_unknown_column": lambda: found(Pattern.begin("x").where("prices > 1")),
    "a_null_time": lambda: (
        CEP.pattern(KeyedStream(pa.table({"ts": pa.array([None], pa.int64())}), time="ts"), Pattern.begin("x")).matches
    ),
    "a_schema_of_a_function": lambda: found(Pattern.begin("x")).process(lambda rows: rows, 5),
    "an_unknown_output": lambda: found(Pattern.begin("x")).select("x.price", output="match"),
    "no_sink": lambda: found(Pattern.begin("x")).run({}),
    "rules": lambda: CEP.pattern_processors(stream(), RULES),
    "no_usable_rule": lambda: CEP.pattern_processors(
        stream(), GivenPatternProcessorDiscovererFactory((PatternProcessor("a", 1, Pattern.begin("x").where("n > 1")),))
    ).output("matches"),
    "an_unknown_output_of_rules": lambda: CEP.pattern_processors(
        stream(), GivenPatternProcessorDiscovererFactory((PatternProcessor("a", 1, Pattern.begin("x")),))
    ).output("match"),
    "backtest": lambda: CEP.backtest(stream(), 5),
    "status_of_rules": lambda: CEP.pattern_processors(stream(), GivenPatternProcessorDiscovererFactory(())).status(),
    "an_aggregate_of_spark": lambda: window(stream(), TumblingWindows.of(timedelta(seconds=1))).aggregate(
        "my_sum(price)"
    ),
    "a_condition_of_spark": lambda: interval_join(stream(), stream(), WITHIN, on="f(price) > q_price", prefix="q_"),
    "two_hosts": lambda: interval_join(stream(), OnSpark(TABLE, key="user", time="ts"), WITHIN),
    "connect": lambda: asterism.connect(Echo(), other=stream()),
    "connect_two_hosts": lambda: asterism.connect(Echo(), events=stream(), more=OnSpark(TABLE, key="user", time="ts")),
    "connect_a_number": lambda: asterism.connect(Echo(), events=5),
    "connect_an_unknown_output": lambda: asterism.connect(Echo(), events=stream()).output("rows"),
    "connect_co_partitioned": lambda: asterism.connect(
        Echo(), events=stream(), limits=asterism.BroadcastStream(TABLE), co_partitioned=True
    ),
    "side_of_a_number": lambda: asterism.Side(5, on="user"),
    "probe_of_a_number": lambda: asterism.multi_broadcast_join(5, users=asterism.Side(TABLE, on="user")),
    "side_of_types_that_do_not_compare": lambda: asterism.multi_broadcast_join(
        TABLE, users=asterism.Side(TABLE, on={"user": "price"}, prefix="u_")
    ),
    "no_rows": lambda: match_recognize(5, "ORDER BY ts PATTERN (x)"),  # type: ignore[call-overload]
    "a_function_of_spark_in_a_clause": lambda: match_recognize(
        TABLE, "ORDER BY ts MEASURES java_method('a', 'b', user) AS m PATTERN (x) DEFINE x AS TRUE"
    ),
    "a_misspelt_statement": lambda: asterism.sql("SELEC * FROM t", t=TABLE),
    "a_statement_that_is_no_query": lambda: asterism.sql("CREATE TABLE a AS SELECT * FROM t", t=TABLE),
    "a_statement_with_an_unknown_column": lambda: asterism.sql("SELECT nosuch FROM t", t=TABLE),
    "a_statement_that_is_wrong": lambda: asterism.sql("SELECT FROM WHERE", t=TABLE),
    "an_unfinished_statement": lambda: asterism.sql(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES x.price AS p PATTERN (x) DEFINE x AS TRUE) WHERE",
        t=TABLE,
    ),
    "a_statement_without_its_table": lambda: asterism.sql("SELECT * FROM trades", t=TABLE),
    "a_statement_with_an_operator": lambda: asterism.sql("SELECT 1", t=asterism.StreamOperator),
    "a_table_of_a_statement": lambda: asterism.sql("SELECT * FROM t", t=5),
    "data_stream_of_an_unknown_column": lambda: asterism.DataStream(TABLE, time="tss"),
    "broadcast_stream_of_a_number": lambda: asterism.BroadcastStream(5),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    golden.error(name, TEXTS[name])
