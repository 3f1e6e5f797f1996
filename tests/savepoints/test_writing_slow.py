"""What is removed from a savepoint or a checkpoint, or written to it, is what the query then has."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from asterism import (
    CEP,
    BroadcastInput,
    BroadcastMapState,
    BroadcastStream,
    Input,
    KeyedStream,
    ListState,
    MapState,
    Output,
    Pattern,
    SavepointWriter,
    StreamOperator,
    ValueState,
    connect,
    create_savepoint,
    forget_keys,
    read_savepoint,
    read_state,
    remove_former_state,
    restore_savepoint,
)
from asterism.cli.main import main
from asterism.errors import StateError
from asterism.sinks import FileSink
from asterism.spark.savepoints.exact_values import exact
from tests.savepoints.test_rules_slow import Stopped
from tests.savepoints.test_savepoints_slow import Query, of_clause, of_pattern, of_windows, parts

pytestmark = pytest.mark.spark
FORGOTTEN = "a customer whose name is nowhere else 7f3a"
SECOND = timedelta(seconds=1)


def with_name(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"user": FORGOTTEN} if row["user"] == "u0" else row for row in rows]


def files_with(text: str, folder: Path) -> list[str]:
    """The files below a folder that contain a text. Parquet files, Spark's changelogs of state (zstd), and the ZIP archives with
    files of RocksDB, which the test writes without compression, are read as what they contain.
    """
    sought, found = text.encode(), []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".parquet" and not path.name.startswith("."):
                content += repr(pq.read_table(path).to_pylist()).encode()
            elif path.suffix == ".zip":
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    content += b"".join(archive.read(name) for name in archive.namelist())
            elif path.suffix == ".changelog":
                frame = content[content.index(b"\x28\xb5\x2f\xfd") :]
                content += pa.CompressedInputStream(pa.py_buffer(frame), "zstd").read()
            if sought in content:
                found.append(str(path.relative_to(folder)))
    return found


@pytest.fixture
def plain_files(spark: SparkSession) -> Iterator[None]:
    """RocksDB writes its files without compression."""
    name = "spark.sql.streaming.stateStore.rocksdb.compression"
    spark.conf.set(name, "no")
    yield
    spark.conf.unset(name)


@pytest.mark.parametrize("make", [of_pattern, of_clause, of_windows])
def test_a_customer_is_forgotten_in_place(spark: SparkSession, plain_files: None, tmp_path: Path, make: Any) -> None:
    whole, query = Query(spark, tmp_path / "whole", make), Query(spark, tmp_path / "query", make)
    checkpoint = query.folder / "checkpoint"
    others = [[row for row in rows if row["user"] != "u0"] for rows in parts()]
    for number, rows in enumerate(others):
        whole.write(number, rows)
    whole.run("checkpoint", drain=True, key_groups=3)
    for number in range(3):
        query.write(number, with_name(parts()[number]))
    query.run("checkpoint", drain=False, key_groups=3)
    assert files_with(FORGOTTEN, checkpoint)
    with pytest.raises(StateError, match='no key column "buyer"'):
        forget_keys(spark, str(checkpoint), [{"buyer": FORGOTTEN}])
    changes = forget_keys(spark, str(checkpoint), [{"user": FORGOTTEN}, {"user": "nobody"}])
    assert changes.removed["keys"] == 1
    assert not changes.added
    assert not changes.mentions
    assert files_with(FORGOTTEN, checkpoint)  # in the former files, which are named
    assert {Path(name).name for name in changes.former_files} == {"commits", "metadata", "offsets", "sources", "state"}
    assert len(remove_former_state(spark, str(checkpoint))) == 5
    assert files_with(FORGOTTEN, checkpoint) == []
    for number in range(3, 6):
        query.write(number, others[number])
    query.run("checkpoint", drain=True)

    def rows_of_others(rows: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
        return {
            name: Counter({row: n for row, n in some.items() if FORGOTTEN not in row}) for name, some in rows.items()
        }

    assert rows_of_others(query.rows()) == whole.rows()


def test_the_commands_forget_and_drop(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, of_pattern)
    for number in range(2):
        query.write(number, with_name(parts()[number]))
    query.run("checkpoint", drain=False, key_groups=2)
    savepoint = str(tmp_path / "savepoint")
    create_savepoint(spark, str(tmp_path / "checkpoint"), savepoint)
    (tmp_path / "keys.csv").write_text(f'user\n"{FORGOTTEN}"\n', "utf-8")

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(main, ["savepoint", *arguments, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    forgotten = run("forget", savepoint, str(tmp_path / "forgotten"), "--keys", str(tmp_path / "keys.csv"))
    assert forgotten["removed"]["keys"] == 1
    assert files_with(FORGOTTEN, tmp_path / "forgotten") == []
    open_before = read_savepoint(spark, str(tmp_path / "forgotten")).partial_matches().collect()
    dropped = run(
        "drop-partial-matches", str(tmp_path / "forgotten"), str(tmp_path / "dropped"),
        "--stage", "a", "--older-than", "10s", "--max-per-key", "1",
    )  # fmt: skip
    remaining = read_savepoint(spark, str(tmp_path / "dropped")).partial_matches().collect()
    assert dropped["removed"]["partial_matches"] == len(open_before) - len(remaining) > 0
    watermark = datetime(2025, 1, 1, tzinfo=UTC) + 59 * SECOND - 3 * SECOND
    assert all(row.since.astimezone(UTC) >= watermark - 11 * SECOND for row in remaining)
    assert max(Counter(row.key.user for row in remaining).values()) == 1
    restore_savepoint(spark, str(tmp_path / "dropped"), str(tmp_path / "next"))
    assert read_state(spark, str(tmp_path / "next")).partial_matches().count() == len(remaining)
    query.write(2, parts()[2])
    query.run("next", drain=True)


class Limits(StreamOperator):
    """Every kind of state."""

    orders = Input("user STRING, ts TIMESTAMP, v BIGINT")
    limits = BroadcastInput("name STRING, v BIGINT")
    total = ValueState("BIGINT")
    last = ListState("BIGINT")
    by_rest = MapState("BIGINT", "DOUBLE")
    limit = BroadcastMapState("STRING", "BIGINT")
    out = Output("user STRING, line STRING")

    @orders.process_element
    def order(self, e: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + e.v)
        self.last.add(e.v)
        self.by_rest.put(e.v % 3, float(e.v))
        ctx.register_event_time_timer("t", e.ts + 60 * SECOND)
        lists = f"{self.last.get()} {sorted(self.by_rest.items())} {sorted(self.limit.items())}"
        self.out.collect(user=e.user, line=f"{self.total.value()} {lists}")

    @limits.process_element
    def change(self, e: Any, ctx: Any) -> None:
        self.limit.put(e.name, e.v)

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(user=ctx.key, line=f"timer {timer.name} at {timer.time.timestamp():.0f}")


def test_states_are_set_from_tables(spark: SparkSession, tmp_path: Path) -> None:
    def write(name: str, number: int, rows: pa.Table) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        pq.write_table(rows, tmp_path / name / f"{number}.parquet")

    def order(second: int, user: str, v: int) -> dict[str, Any]:
        return {"user": user, "ts": datetime(2025, 1, 1, tzinfo=UTC) + second * SECOND, "v": v}

    schema = pa.schema([("user", "string"), ("ts", pa.timestamp("us", "UTC")), ("v", "int64")])
    write("orders", 0, pa.Table.from_pylist([order(1, "ann", 5), order(2, "bob", 6), order(9, "ann", 1)], schema))
    write("limits", 0, pa.table({"name": ["x"], "v": [1]}))

    def run(checkpoint: str, drain: bool) -> list[tuple[str, str]]:
        orders = spark.readStream.schema("user STRING, ts TIMESTAMP, v BIGINT").parquet(str(tmp_path / "orders"))
        limits = spark.readStream.schema("name STRING, v BIGINT").parquet(str(tmp_path / "limits"))
        streams = {"orders": KeyedStream(orders, key="user", time="ts"), "limits": BroadcastStream(limits)}
        sink = FileSink(str(tmp_path / f"out of {checkpoint}"))
        connect(Limits(), **streams, key_groups=2 if checkpoint == "first" else None).run(
            {"out": sink}, checkpoint=str(tmp_path / checkpoint), drain=drain
        )
        rows = spark.read.parquet(str(tmp_path / f"out of {checkpoint}")).collect()
        return sorted((row.user, row.line) for row in rows)

    run("first", drain=False)
    create_savepoint(spark, str(tmp_path / "first"), str(tmp_path / "savepoint"))
    state = read_savepoint(spark, str(tmp_path / "savepoint"))
    totals = spark.createDataFrame([("ann", 100), ("new", 7)], "user STRING, value BIGINT")
    lists = state.state("last").withColumn("value", F.col("value") * 10)
    maps = spark.createDataFrame([("new", 2, 0.5)], "user STRING, map_key BIGINT, value DOUBLE")
    limits = spark.createDataFrame([("y", 3), ("x", 2)], "map_key STRING, value BIGINT")
    timers = state.timers().where("key.user <> 'bob'").withColumn("name", F.lit("later"))
    writer = SavepointWriter.from_existing_savepoint(spark, str(tmp_path / "savepoint"))
    with pytest.raises(StateError, match="has the type int, not bigint"):
        writer.with_keyed_state("total", totals.withColumn("value", F.col("value").cast("int")))
    with pytest.raises(StateError, match="a key has 2 entries"):
        writer.with_keyed_state("total", totals.unionByName(totals))
    with pytest.raises(StateError, match="only patterns"):
        writer.drop_partial_matches()
    with pytest.raises(StateError, match="no such state"):
        writer.with_broadcast_state("total", limits)
    writer.with_keyed_state("total", totals).with_keyed_state("last", lists).with_keyed_state("by_rest", maps)
    changes = writer.with_timers(timers).with_broadcast_state("limit", limits).write(str(tmp_path / "changed"))
    assert changes.added == {"keys": 1, "broadcast_limit": 1}
    changed = read_savepoint(spark, str(tmp_path / "changed"))
    assert rows_of(changed.state("total")) == rows_of(totals)
    assert rows_of(changed.state("last")) == rows_of(lists)
    assert rows_of(changed.state("by_rest")) == rows_of(maps)
    assert rows_of(changed.timers()) == rows_of(timers)
    assert sorted(map(tuple, changed.broadcast("limit").collect())) == [("x", 2), ("y", 3)]
    restore_savepoint(spark, str(tmp_path / "changed"), str(tmp_path / "second"), key_groups=3)
    write("orders", 1, pa.Table.from_pylist([order(11, "new", 1), order(12, "ann", 2), order(13, "bob", 3)], schema))
    expected = [
        ("ann", "101 [50, 1] [(1, 1.0)] [('x', 2), ('y', 3)]"),  # this event has waited for the watermark
        ("ann", "103 [50, 1, 2] [(1, 1.0), (2, 2.0)] [('x', 2), ('y', 3)]"),
        ("ann", "timer later at 1735689661"),
        ("ann", "timer t at 1735689672"),
        ("bob", "3 [60, 3] [(0, 3.0)] [('x', 2), ('y', 3)]"),
        ("bob", "timer t at 1735689673"),
        ("new", "8 [1] [(1, 1.0), (2, 0.5)] [('x', 2), ('y', 3)]"),
        ("new", "timer t at 1735689671"),
    ]
    assert run("second", drain=True) == expected


def test_files_that_do_not_belong_to_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    """A call that was killed before it removed its mark is repeated. Unknown files are neither copied nor silently left out."""
    query = Query(spark, tmp_path, of_pattern)
    query.write(0, parts()[0])
    query.run("checkpoint", drain=False, key_groups=2)
    checkpoint, savepoint = str(tmp_path / "checkpoint"), tmp_path / "savepoint"
    create_savepoint(spark, checkpoint, str(savepoint))
    with pytest.raises(StateError, match="is not empty"):
        create_savepoint(spark, checkpoint, str(savepoint))
    (savepoint / "incomplete.json").write_text(json.dumps({"checkpoint": checkpoint}))
    create_savepoint(spark, checkpoint, str(savepoint))
    assert not (savepoint / "incomplete.json").exists()

    (savepoint / "notes").mkdir()
    writer = SavepointWriter.from_existing_savepoint(spark, str(savepoint)).remove_keys([{"user": "u1"}])
    with pytest.raises(StateError, match="files that do not belong to it"):
        writer.write(str(tmp_path / "without"))
    (savepoint / "notes").rmdir()
    assert writer.write(str(tmp_path / "without")).removed["keys"] == 1
    assert (tmp_path / "without" / "sources").exists() == (savepoint / "sources").exists()


def rows_of(df: DataFrame) -> list[tuple[Any, ...]]:
    """The rows with the columns of the key."""
    if "key" in df.columns:
        df = df.select("key.*", *(name for name in df.columns if name != "key"))
    return sorted(tuple(row) for row in df.collect())


def test_rules_forget_whatever_they_group_by(spark: SparkSession, tmp_path: Path) -> None:
    query, rng = Stopped(spark, tmp_path / "rules"), random.Random(3)
    query.options["key_groups"] = 3
    for number in range(2):
        query.part(number, rng)
    query.options["key_groups"] = None

    def keys_with_bob() -> int:
        state = read_state(spark, str(query.checkpoint))
        keys = state.partial_matches().select("key").union(state.waiting_events().select("key"))
        return keys.where(F.array_contains("key", "bob")).count()

    assert keys_with_bob()
    changes = forget_keys(spark, str(query.checkpoint), [{"user": "bob"}])
    assert changes.removed["keys"] > 0
    assert changes.mentions.keys() <= {"keys", "waiting_events"}  # rules that group by another column
    assert keys_with_bob() == 0
    query.part(2, rng)
    assert query.rows()


UTC_NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
EXACT: list[tuple[Any, str, str, Any]] = [
    (7, "bigint", "int", 7),
    (2**40, "bigint", "int", None),
    (7.0, "double", "int", 7),
    (7.5, "double", "int", None),
    (float("nan"), "double", "int", None),
    (Decimal("7.50"), "decimal(4,2)", "int", None),
    (Decimal("7"), "decimal(4,2)", "int", 7),
    ("7", "string", "int", 7),
    (" 7 ", "string", "int", 7),
    ("7.5", "string", "int", None),
    ("7.0", "string", "int", None),
    ("seven", "string", "int", None),
    (True, "boolean", "int", None),
    (1, "int", "boolean", None),
    ("true", "string", "boolean", True),
    (2**53 + 1, "bigint", "double", None),
    (2**53, "bigint", "double", float(2**53)),
    ("0.1", "string", "double", 0.1),
    ("9007199254740993", "string", "double", None),
    ("1e400", "string", "double", None),
    ("-inf", "string", "double", float("-inf")),
    (0.5, "double", "float", 0.5),
    (0.1, "double", "float", None),
    ("16777217", "string", "float", None),
    ("0.5", "string", "float", 0.5),
    (7.125, "double", "decimal(10,2)", None),
    (7.25, "double", "decimal(10,2)", Decimal("7.25")),
    (7, "int", "decimal(3,2)", Decimal("7")),
    (70, "int", "decimal(3,2)", None),
    ("7.250", "string", "decimal(10,2)", Decimal("7.25")),
    ("7.255", "string", "decimal(10,2)", None),
    ("2025-01-01 12:00:00.123456", "string", "timestamp", UTC_NOON + timedelta(microseconds=123456)),
    ("2025-01-01 12:00:00.1234560", "string", "timestamp", UTC_NOON + timedelta(microseconds=123456)),
    ("2025-01-01 12:00:00.1234567", "string", "timestamp", None),
    ("2025-01-01 13:00:00+01:00", "string", "timestamp", UTC_NOON),
    ("2025-01-01", "string", "date", date(2025, 1, 1)),
    ("2025-01-01 12:00:00", "string", "date", None),
    ("2025-01-01x", "string", "date", None),
    (UTC_NOON, "timestamp", "date", None),
    (UTC_NOON - timedelta(hours=12), "timestamp", "date", date(2025, 1, 1)),
    ("2025-01-01 12:00:00", "string", "timestamp_ntz", datetime(2025, 1, 1, 12)),
    (1735732800, "bigint", "timestamp", None),
    ("2025-01-01 12:00:00+01:00", "string", "timestamp_ntz", None),
    (UTC_NOON, "timestamp", "timestamp_ntz", datetime(2025, 1, 1, 12)),
    (7, "int", "string", "7"),
    (b"ab", "binary", "string", "ab"),
    ("ab", "string", "binary", b"ab"),
    ([7], "array<int>", "string", None),
    ([7.5], "array<double>", "array<int>", None),
    (None, "string", "int", None),
]


def test_a_value_of_a_key_is_not_rounded(spark: SparkSession) -> None:
    columns = []
    for number, (value, given, wanted, _) in enumerate(EXACT):
        types = [T._parse_datatype_string(name) for name in (given, wanted)]
        columns.append(exact(F.lit(value).cast(types[0]), *types).alias(f"v{number}"))
    answers = spark.range(1).select(columns).toArrow().to_pylist()[0].values()
    wrong = [(case, answer) for case, answer in zip(EXACT, answers, strict=True) if answer != case[3]]
    assert wrong == []


def test_a_number_that_no_key_can_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is removed by it, such as the integer before it."""
    events = spark.sql("SELECT TIMESTAMP '2025-01-01 12:00:00' AS ts, id AS user, 'a' AS kind FROM range(6, 9)")
    events.write.parquet(f"{tmp_path}/events")
    stream = spark.readStream.schema("ts TIMESTAMP, user BIGINT, kind STRING").parquet(f"{tmp_path}/events")
    pattern = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'").within(timedelta(hours=1))
    sink, checkpoint, savepoint = FileSink(f"{tmp_path}/matches"), f"{tmp_path}/checkpoint", f"{tmp_path}/savepoint"
    CEP.pattern(KeyedStream(stream, key="user", time="ts"), pattern).run(
        {"matches": sink}, checkpoint=checkpoint, drain=False
    )
    create_savepoint(spark, checkpoint, savepoint)
    writer = SavepointWriter.from_existing_savepoint(spark, savepoint)
    for values, text in (
        ([7.5], "7.5 would be rounded"), ([6.0, 7.5], "7.5 would be rounded"), (["7.5"], "'7.5' would be rounded"),
        ([True], "True would be rounded"), ([Decimal("7.5")], "would be rounded"), ([7, "7"], "have several types: int, str"),
        ([2**70], "more than 64 bits"), ([{}], "keys cannot be read|not a bigint"),
    ):  # fmt: skip
        with pytest.raises(StateError, match=text):
            writer.remove_keys([{"user": value} for value in values])
    ended = CliRunner().invoke(main, ["savepoint", "forget", savepoint, f"{tmp_path}/other", "--key", "user=7.5"])
    assert ended.exit_code != 0
    assert 'a value of the key column "user" is not a bigint' in ended.output
    changes = writer.remove_keys([{"user": None}]).remove_keys([{"user": 7.0}]).write(f"{tmp_path}/without")
    assert changes.removed == {"waiting_events": 1}
