"""Events that are read when a result is computed: files of Parquet, relations of DuckDB, datasets, lazy frames of Polars."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from asterism import CEP, KeyedStream, Pattern, interval_join, match_recognize
from asterism.columns import event_files
from asterism.embedded import lazy_events
from asterism.embedded.lazy_events import LazyTable
from asterism.errors import ColumnNotFoundError, StreamDefinitionError
from tests.embedded.cases import CASES, SECONDS, TRADES, two
from tests.embedded.test_events import failing
from tests.embedded.test_patterns import rows_of

PLAIN = TRADES.drop_columns(["note"])


def parquet_file(folder: Path) -> str:
    path = folder / "trades.parquet"
    pq.write_table(PLAIN, path, row_group_size=3)
    return str(path)


def parquet_files(folder: Path) -> Path:
    """Of which one has another type, and one no column of the fees."""
    parts = [PLAIN.slice(0, 3), PLAIN.slice(3, 3), PLAIN.slice(6)]
    parts[1] = parts[1].set_column(0, "id", parts[1].column("id").cast(pa.int32()))
    parts[2] = parts[2].drop_columns(["fee"])
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet")
    return folder


def relation(folder: Path) -> Any:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection.read_parquet(parquet_file(folder))


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a file": parquet_file,
    "a folder": parquet_files,
    "a relation": relation,
    "a dataset": lambda folder: ds.dataset(parquet_file(folder)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name: str, tmp_path: Path) -> None:
    """The results are those over the table."""
    events = SOURCES[name](tmp_path)
    stream = KeyedStream(events, key="upper(symbol) AS share", time="ts")
    assert isinstance(stream.df, LazyTable)
    assert stream.df.num_rows == 8
    assert "share" in repr(stream)
    found, expected = (
        CEP.pattern(KeyedStream(rows, key="upper(symbol) AS share", time="ts"), two()) for rows in (events, PLAIN)
    )
    for _ in range(2):
        assert in_order(found.matches) == in_order(expected.matches)
    assert in_order(found.select("x.id + y.volume AS n")) == in_order(expected.select("x.id + y.volume AS n"))
    assert found.matches.schema == expected.matches.schema
    clause = "PARTITION BY symbol ORDER BY ts MEASURES A.price AS a PATTERN (A B) DEFINE B AS price < A.price"
    assert in_order(match_recognize(events, clause).matches) == in_order(match_recognize(PLAIN, clause).matches)
    joined, same = (
        interval_join(
            KeyedStream(rows, "symbol", "ts"), KeyedStream(PLAIN, "symbol", "ts"), SECONDS, prefix="q_"
        ).results
        for rows in (events, PLAIN)
    )
    assert in_order(joined) == in_order(same)


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def test_only_columns_that_are_needed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[str]] = []
    whole = LazyTable.batches
    monkeypatch.setattr(
        LazyTable, "batches", lambda self, names, *rest: read.append(sorted(names)) or whole(self, names, *rest)
    )
    found = CEP.pattern(KeyedStream(parquet_file(tmp_path), key="symbol", time="ts"), two())
    assert rows_of(found.select("y.volume AS v")) == [("b", 4), ("b", 6)]
    assert read == [["price", "symbol", "ts", "volume"]]


def test_readers(tmp_path: Path) -> None:
    """The rows are those of the tables; a reader that is left early ends its query."""
    found = CEP.pattern(KeyedStream(parquet_file(tmp_path), key="symbol", time="ts"), two())
    for reader, table in (
        (found.to_reader("x.id AS x"), found.select("x.id AS x")),
        (found.to_reader(), found.matches),
        (found.to_reader(output="timed_out"), found.timed_out),
    ):
        assert isinstance(reader, pa.RecordBatchReader)
        assert reader.read_all().equals(table)
    assert duckdb.sql("SELECT count(*) FROM reader").fetchall() == [(0,)]
    reader = found.to_reader()
    del reader


def test_a_case_over_a_reader_of_pieces() -> None:
    case = CASES["pairs"]
    pieces = pa.RecordBatchReader.from_batches(TRADES.schema, iter(TRADES.to_batches(max_chunksize=3)))
    assert case.expected is not None
    assert sorted(rows_of(case.rows(case.results(pieces)))) == sorted(case.expected)


def test_what_changes_or_fails(tmp_path: Path) -> None:
    path = Path(parquet_file(tmp_path))
    found = CEP.pattern(KeyedStream(path, key="symbol", time="ts"), two())
    pq.write_table(PLAIN.set_column(3, "price", PLAIN.column("price").cast(pa.float32())), path)
    assert rows_of(found.select("x.id AS x")) == [("b", 2), ("b", 4)]  # it is cast
    path.write_bytes(b"no Parquet")
    with pytest.raises(StreamDefinitionError, match="cannot be read"):
        found.select("x.id AS x")
    relation = duckdb.connect().sql(
        "SELECT 1::BIGINT AS ts, CAST(x AS INTEGER) AS x FROM (VALUES ('1'), ('y')) AS t(x)"
    )
    with pytest.raises(StreamDefinitionError, match="Could not convert string 'y'"):
        CEP.pattern(KeyedStream(relation, time="ts"), Pattern.begin("a").where("x > 0")).select("a.x AS x")
    with pytest.raises(ColumnNotFoundError, match="did you mean 'symbol'"):
        KeyedStream(ds.dataset(parquet_file(tmp_path)), key="symbl")
    with pytest.raises(StreamDefinitionError, match="cannot be read"):
        KeyedStream(pa.RecordBatchReader.from_batches(pa.schema([("user", pa.string())]), failing()))


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_a_file_of_several_that_cannot_be_read(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it, also if it is found when the result is read."""
    monkeypatch.setattr(lazy_events, "memory_of_tables", lambda: 0)
    table = pa.table({"ts": [1, 2, 3], "n": [1, 2, 3]})
    for name in "abc":
        file = tmp_path / (name + suffix)
        match suffix:
            case ".parquet":
                pq.write_table(table, file)
            case ".csv":
                csv.write_csv(table, file)
            case _:
                file.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), encoding="utf-8")
    found = CEP.pattern(KeyedStream(tmp_path, time="ts"), Pattern.begin("x"))
    broken = tmp_path / f"b{suffix}"
    broken.write_text("ts,n\n1,2,3\n" if suffix == ".csv" else '{"ts": [}')
    for read in (lambda: found.select("x.n AS n"), lambda: KeyedStream(tmp_path, time="ts")):
        with pytest.raises(StreamDefinitionError) as raised:
            read()
        assert raised.value.message == f"{broken} cannot be read"


def written(folder: Path, table: pa.Table, suffix: str, rows: int) -> Path:
    """Files of text with so many rows each."""
    folder.mkdir()
    for at in range(0, table.num_rows, rows):
        part = table.slice(at, rows)
        path = folder / f"{at:04}{suffix}"
        content = io.BytesIO()
        if suffix.startswith(".csv"):
            csv.write_csv(part, content)
        else:
            content.write("".join(json.dumps(row) + "\n" for row in part.to_pylist()).encode())
        data = content.getvalue()
        path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    return folder


LINES = pa.table(
    {
        "user": [f"user {number % 7}" for number in range(400)],
        "at": [f"2026-01-01T00:{number // 60:02}:{number % 60:02}" for number in range(400)],
        "note": ['a "note"\nof two lines, and a comma' if number % 3 else None for number in range(400)],
        "price": [float(number % 11) for number in range(400)],
    }
)


@pytest.mark.parametrize("rows", [400, 150])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".jsonl", ".jsonl.gz"])
def test_text_in_parts(suffix: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are too large are read again for each result; the rows are those of files that are read at once."""
    monkeypatch.setattr(event_files, "_BLOCK", 2**12)
    folder = written(tmp_path / "files", LINES, suffix, rows)
    pattern = Pattern.begin("a").where("price > 8").next("b").where("note LIKE '%comma' AND price < LAST(a.price)")
    whole = KeyedStream(folder, key="user", time="at")
    monkeypatch.setattr(lazy_events, "memory_of_tables", lambda: 10)
    parts = KeyedStream(folder, key="user", time="at")
    assert isinstance(parts.df, LazyTable)
    assert not isinstance(whole.df, LazyTable)
    assert parts.df.schema.equals(whole.df.schema)
    assert parts.df.num_rows == 400
    assert parts.df.select(["note", "at"]).equals(whole.df.select(["note", "at"]))
    found, expected = (CEP.pattern(stream, pattern).select("b.at AS at", "a.price AS p") for stream in (parts, whole))
    assert in_order(found) == in_order(expected)
    assert expected.num_rows > 5


@pytest.mark.parametrize(
    ("lines", "suffix"),
    [
        ("id,ts\n1,1\n2.5,2\n", ".csv"),
        ("id,ts\n,1\n2.5,2\n", ".csv"),
        ("id,ts\n1,2026-01-01T00:00:00\n2,2026-01-01T00:00:00Z\n", ".csv"),
        ('{"id": 1, "ts": 1}\n{"id": 2, "ts": 2, "more": "x"}\n', ".jsonl"),
        ('{"id": 1, "ts": 1}\n{"id": 2.5, "ts": 2}\n', ".jsonl"),
        ('{"id": null, "ts": 1}\n{"id": "a", "ts": 2}\n', ".jsonl"),
    ],
)
def test_text_whose_types_later_lines_decide(
    lines: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read at once, whatever its size."""
    monkeypatch.setattr(event_files, "_FIRST", 20)
    monkeypatch.setattr(event_files, "_BLOCK", 40)
    path = tmp_path / f"events{suffix}"
    path.write_text(lines, encoding="utf-8")

    def schema() -> pa.Schema | str:
        try:
            return KeyedStream(path, time="ts", key="id").df.schema
        except StreamDefinitionError as error:
            return str(error)

    whole = schema()
    monkeypatch.setattr(lazy_events, "memory_of_tables", lambda: 1)
    assert schema() == whole
