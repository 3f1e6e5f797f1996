"""What can be the events of a stream without Spark."""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest

from asterism import CEP, KeyedStream, Pattern
from asterism.errors import LimitExceededError, StreamDefinitionError

TABLE = pa.table({"user": ["u", "v", "u"], "ts": [1, 2, 3], "price": [5.0, 1.0, 2.0]})
FALL = Pattern.begin("x").next("y").where("price < LAST(x.price)")


class Exported:
    """As a DataFrame of Polars: nothing is known of it but that Arrow can read it."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def falls(events: Any, time: str = "ts", key: str = "user") -> list[dict[str, Any]]:
    found = CEP.pattern(KeyedStream(events, key=key, time=time), FALL)
    rows: list[dict[str, Any]] = found.select("x.price AS high", "y.price AS low").to_pylist()
    return rows


SOURCES: dict[str, Callable[[], Any]] = {
    "a table": lambda: TABLE,
    "a reader": TABLE.to_reader,
    "a batch": lambda: TABLE.to_batches()[0],
    "the scanner of a dataset": lambda: pyarrow.dataset.dataset(TABLE).scanner().to_reader(),
    "pandas": TABLE.to_pandas,
    "pandas with an index": lambda: TABLE.to_pandas().set_index(pd.Index(["p", "q", "r"], name=None)),
    "DuckDB": lambda: duckdb.sql("FROM (VALUES ('u', 1, 5.0), ('v', 2, 1.0), ('u', 3, 2.0)) t(user, ts, price)").select(
        '"user", ts::BIGINT AS ts, price::DOUBLE AS price'
    ),
    "another library": lambda: Exported(TABLE),
}


@pytest.mark.parametrize("end", [".jsonl", ".json", ".ndjson"])
@pytest.mark.parametrize("compressed", [False, True])
def test_files_of_json_have_an_object_in_each_line(tmp_path: Path, end: str, *, compressed: bool) -> None:
    text = "\n".join(map(json.dumps, TABLE.to_pylist())).encode()
    path = tmp_path / ("events" + end + (".gz" if compressed else ""))
    path.write_bytes(gzip.compress(text) if compressed else text)
    assert falls(str(path)) == [{"user": "u", "high": 5.0, "low": 2.0}]


def test_a_list_in_a_file_of_json(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text(json.dumps(TABLE.to_pylist()))
    with pytest.raises(StreamDefinitionError) as error:
        falls(str(path))
    assert error.value.hint == "write one object in each line, without a list around them"


@pytest.mark.parametrize("name", SOURCES)
def test_tables(name: str) -> None:
    assert falls(SOURCES[name]()) == [{"user": "u", "high": 5.0, "low": 2.0}]


def test_an_index_is_no_column() -> None:
    for index in (
        pd.Index(["p", "q", "r"]),
        pd.Index([1, 2, 3], name="at"),
        pd.MultiIndex.from_product([[1, 2, 3], ["p"]]),
    ):
        frame = TABLE.to_pandas().set_index(index)
        assert KeyedStream(frame, key="user", time="ts").df.column_names == ["user", "ts", "price"]
    frame = TABLE.to_pandas().set_index("user", drop=False)
    assert KeyedStream(frame, key="user", time="ts").df.column_names == ["user", "ts", "price"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("header.csv", "user,ts,price\n"),
        ("empty_fields.csv", "user,ts,price\n,2026-01-01,\n"),
        ("nulls.jsonl", '{"user": null, "ts": null, "price": null}\n'),
    ],
)
def test_files_without_values_have_no_matches(tmp_path: Path, name: str, text: str) -> None:
    """Keys and times without any value have no types of their own."""
    (tmp_path / name).write_text(text)
    stream = KeyedStream(tmp_path / name, key="user", time="ts")
    found = CEP.pattern(stream, Pattern.begin("x").where("price > 5"))
    written: dict[str, pa.Table] = {}
    sinks = {output: lambda rows, _, output=output: written.update({output: rows}) for output in ("matches", "late")}
    found.run(sinks)  # type: ignore[arg-type]
    assert written["matches"].num_rows == 0
    assert written["late"].num_rows == (name == "nulls.jsonl")


def test_a_frame_without_values_has_no_matches() -> None:
    assert falls(pd.DataFrame({"user": pd.Series([], dtype=object), "ts": pd.Series([], dtype=int), "price": []})) == []


def test_times_with_and_without_a_zone_in_one_file(tmp_path: Path) -> None:
    rows = ["2026-01-01 00:00:02,1", "2026-01-01T00:00:01Z,2", "2026-01-01 02:00:00.5+02:00,3", ",4", "2025-12-31,5"]
    (tmp_path / "a.csv").write_text("\n".join(["ts,n", *rows]))
    times = KeyedStream(tmp_path / "a.csv", time="ts").df.column("ts")
    midnight = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert times.to_pylist() == [
        *(midnight + dt.timedelta(seconds=seconds) for seconds in (2, 1, 0.5)),
        None,
        midnight - dt.timedelta(days=1),
    ]


def test_text_of_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    """Spark reads it in the same way."""
    (tmp_path / "a.csv").write_bytes("user,ts,price\nZoë,1,5.0\nZoë,2,2.0\n".encode("latin-1"))
    assert falls(tmp_path / "a.csv") == [{"user": "Zo\ufffd", "high": 5.0, "low": 2.0}]


def test_files_in_folders_are_read_by_other_libraries(tmp_path: Path) -> None:
    """The ways that errors and the documentation name."""
    pyarrow.parquet.write_to_dataset(TABLE, tmp_path, partition_cols=["user"])
    expected = [{"user": "u", "high": 5.0, "low": 2.0}]
    with pytest.raises(StreamDefinitionError, match="has no files, but folders"):
        falls(tmp_path)
    with pytest.raises(StreamDefinitionError, match="names of files have no wildcards"):
        falls(f"{tmp_path}/*.parquet")
    assert falls(pyarrow.dataset.dataset(tmp_path, partitioning="hive")) == expected
    assert falls(duckdb.read_parquet(f"{tmp_path}/*/*.parquet", hive_partitioning=True)) == expected


def test_files(tmp_path: Path) -> None:
    """Also a folder; a time that is a string becomes a timestamp."""
    (tmp_path / "a.csv").write_text("user,ts,price\nu,2026-01-01 00:00:01,5.0\nv,2026-01-01 00:00:02,1.0\n")
    (tmp_path / "b.csv").write_text("user,ts,price\nu,2026-01-01 00:00:03,2.0\n")
    pyarrow.parquet.write_table(TABLE, tmp_path / "c.parquet")
    (tmp_path / "d.jsonl").write_text("".join(f"{row}\n".replace("'", '"') for row in TABLE.to_pylist()))
    expected = [{"user": "u", "high": 5.0, "low": 2.0}]
    assert falls(tmp_path / "c.parquet") == falls(str(tmp_path / "d.jsonl")) == expected
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).rename(folder / name)
    assert falls(folder) == expected
    assert KeyedStream(folder, time="ts").df.schema.field("ts").type == pa.timestamp("us", "UTC")


TIME = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TYPES: dict[str, tuple[pa.Array, pa.DataType]] = {
    "uint8": (pa.array([200], pa.uint8()), pa.int16()),
    "uint64": (pa.array([2**63], pa.uint64()), pa.decimal128(20, 0)),
    "half": (pa.array([0.5], pa.float32()).cast(pa.float16()), pa.float32()),
    "dictionary": (pa.array(["a"]).dictionary_encode(), pa.string()),
    "dictionary of views": (
        pa.DictionaryArray.from_arrays(pa.array([0, None], pa.uint32()), pa.array(["a"], pa.string_view()))[:1],
        pa.string(),
    ),
    "view": (pa.array(["a"], pa.string_view()), pa.string()),
    "large": (pa.array(["a"], pa.large_string()), pa.large_string()),
    "nanoseconds": (pa.array([TIME], pa.timestamp("ns", "Asia/Tokyo")), pa.timestamp("us", "Asia/Tokyo")),
    "another zone": (pa.array([TIME], pa.timestamp("us", "UTC")), pa.timestamp("us", "Asia/Tokyo")),
    "no zone": (pa.array([TIME.replace(tzinfo=None)], pa.timestamp("ms")), pa.timestamp("us")),
    "date64": (pa.array([TIME.date()], pa.date64()), pa.date32()),
    "fixed": (pa.array([b"ab"], pa.binary(2)), pa.binary()),
    "list": (pa.array([[1]], pa.list_(pa.uint16())), pa.list_(pa.int32())),
    "struct": (pa.array([{"x": 1}], pa.struct({"x": pa.uint8()})), pa.struct({"x": pa.int16()})),
}


def test_types_are_those_of_spark() -> None:
    table = pa.table({name: values for name, (values, _) in TYPES.items()})
    stream = KeyedStream(table, key=["dictionary", "uint64"], time="nanoseconds", order_by=["half"])
    assert dict(zip(stream.df.column_names, stream.df.schema.types, strict=True)) == {
        name: expected for name, (_, expected) in TYPES.items()
    }
    found = CEP.pattern(stream, Pattern.begin("x").where("hour(nanoseconds) = 21 AND uint8 + 1 = 201 AND view = 'a'"))
    row = found.matches.to_pylist()[0]
    assert row["x"][0]["uint8"] == 200
    assert row["x"][0]["another zone"] == TIME


def failing() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches()
    raise ConnectionError("the host is gone")


def test_a_reader_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asterism.embedded.events.memory_of_process", lambda: 2_000_000)
    batch = pa.record_batch({"user": ["ann"] * 1000, "ts": range(1000)})
    reader = pa.RecordBatchReader.from_batches(batch.schema, itertools.repeat(batch))
    with pytest.raises(LimitExceededError, match="more than 1,000,000 bytes, and may have no end"):
        KeyedStream(reader, key="user", time="ts")
    short = pa.RecordBatchReader.from_batches(batch.schema, [batch, batch])
    assert KeyedStream(short, key="user", time="ts").df.num_rows == 2000
