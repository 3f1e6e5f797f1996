"""Names of columns belong to the user, except for those with the prefix of internal columns, which every part refuses."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import asterism
from asterism import (
    CEP,
    BroadcastStream,
    KeyedStream,
    Pattern,
    TumblingWindows,
    interval_join,
    match_recognize,
    sql,
    window,
)
from asterism.columns.internal import PREFIX
from asterism.errors import StreamDefinitionError
from asterism.text.printable import quoted_name
from tests.spark.streams import Collect, write_file

AB = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'")
CLAUSE = "PARTITION BY user ORDER BY ts MEASURES {} PATTERN (A B) DEFINE A AS kind = 'a', B AS kind = 'b'"
PACKAGE = Path(asterism.__file__).parent
DUNDER = re.compile(r'"(__[a-z_]*[a-z])_?"')


def dunder_texts() -> set[str]:
    """All texts in the code that could be names of internal columns: ``__key_hash``, ``__bits``."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text()
        for token in tokenize.generate_tokens(io.StringIO(text).readline) if DUNDER.search(text) else ():
            if token.type == tokenize.STRING and (name := DUNDER.fullmatch(token.string)):
                found.add(name[1])
    return found


# Names of columns that the library has had in the plans of Spark, and all that its code has.
NAMES = sorted(
    dunder_texts()
    | {"__event_time", "__processing_time", "__key_hash", "__group", "__bucket_and_time", "__number", "__input", "__order"}
    | {"__key0", "__bits0", "__call_0", "__time", "__key", "processing_time", "key_group"}
)  # fmt: skip


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> pa.Table:
    own = {name: [f"{name} of {event}" for event in "ab"] for name in NAMES}
    return pa.table({"user": ["u", "u"], "ts": pa.array([1000, 2000], pa.int64()), "kind": ["a", "b"], **own})


@pytest.fixture(scope="module")
def frames(spark: SparkSession, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> list[DataFrame]:
    """The events as a table and as a stream."""
    folder = tmp_path_factory.mktemp("names")
    write_file(table, folder, 0)
    batch = spark.createDataFrame(table)
    return [batch, spark.readStream.schema(batch.schema).parquet(str(folder))]


def test_the_code_is_read() -> None:
    assert {"__bits", "__time"} <= set(NAMES)


def check_values(kind: str, frames: list[DataFrame], tmp_path: Path, table: pa.Table) -> None:
    names = [quoted_name(name) for name in NAMES]
    for df in frames:
        rows: Any = Collect()
        where: dict[str, Any] = {"checkpoint": str(tmp_path / "state")}
        keys = KeyedStream(df, key=["user", "__time", "__call_0", "__key0"], time="ts")
        events = KeyedStream(df, key="user", time="ts")
        if kind == "pattern":
            measures = [f"a.{name} AS m{n}" for n, name in enumerate(names)]
            CEP.pattern(events, AB, key_groups=1).run({"matches": rows}, select={"matches": measures}, **where)
            expected = table.to_pylist()[0]
        elif kind == "clause":
            measures = [f"A.{name} AS m{n}" for n, name in enumerate(names)]
            clause = CLAUSE.format(", ".join([*measures, "MATCH_PROCTIME() AS at"]))
            match_recognize(df, clause, key_groups=1).run({"matches": rows}, **where)
            expected = table.to_pylist()[0]
        else:
            measures = [f"min({name}) AS m{n}" for n, name in enumerate(names)]
            windows = window(keys, TumblingWindows.of(timedelta(seconds=60)), key_groups=1)
            windows.run({"results": rows}, aggregate=measures, **where)
            expected = table.to_pylist()[0]
        found = min(rows.rows, key=lambda row: str(row["m0"]))
        assert [found[f"m{n}"] for n in range(len(NAMES))] == [expected[name] for name in NAMES]


DOORS: dict[str, Callable[[DataFrame, SparkSession], object]] = {
    "pattern": lambda df, _: CEP.pattern(KeyedStream(df, key="user", time="ts"), AB),
    "broadcast": lambda df, _: BroadcastStream(df),
    "clause": lambda df, _: match_recognize(df, CLAUSE.format("A.kind AS k")),
    "statement": lambda df, spark: sql(f"SELECT * FROM t MATCH_RECOGNIZE ({CLAUSE.format('A.kind AS k')})", spark, t=df),
    "join": lambda df, _: interval_join(
        KeyedStream(df, key="user", time="ts"), KeyedStream(df, key="user", time="ts"),
        (timedelta(seconds=-1), timedelta(seconds=1)),
    ),
    "windows": lambda df, _: window(KeyedStream(df, key="user", time="ts"), TumblingWindows.of(timedelta(seconds=60))),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", [f"{PREFIX}key_hash", f"{PREFIX.upper()}Anything"])
def test_reserved_names_are_refused(door: str, name: str, spark: SparkSession) -> None:
    df = spark.createDataFrame([], f"user STRING, ts TIMESTAMP, kind STRING, {name} INT")
    with pytest.raises(
        StreamDefinitionError, match=f"is named '{name}', and names that begin with {PREFIX} are reserved"
    ):
        DOORS[door](df, spark)
