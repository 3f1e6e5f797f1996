"""Names of columns in clauses and windows, and in the folders of file sinks."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from asterism import (
    CEP,
    KeyedStream,
    Pattern,
)
from asterism.errors import SinkError, StreamDefinitionError
from asterism.sinks import FileSink
from tests.spark import test_names
from tests.spark.streams import Collect
from tests.spark.test_names import AB, check_values

table = test_names.table
frames = test_names.frames


@pytest.mark.parametrize("kind", ["pattern", "clause", "window"])
def test_values_of_columns_with_names_like_internal_ones(
    kind: str, frames: list[DataFrame], tmp_path: Path, table: pa.Table
) -> None:
    check_values(kind, frames, tmp_path, table)


@pytest.mark.parametrize("measure", ["batch", "Batch", None])
def test_a_column_that_the_folders_of_a_file_sink_would_hide(
    measure: str | None, frames: list[DataFrame], tmp_path: Path
) -> None:
    for df in frames:
        if measure is None:
            df = df.withColumnRenamed("__key", "batch")
            found, select = CEP.pattern(KeyedStream(df, key=["user", "batch"], time="ts"), AB, key_groups=1), "match_id"
        else:
            found, select = CEP.pattern(KeyedStream(df, key="user", time="ts"), AB, key_groups=1), f"a.ts AS {measure}"
        with pytest.raises(SinkError, match=f"the rows have a column '{measure or 'batch'}'"):
            found.run(
                {"matches": FileSink(tmp_path / "out")},
                select={"matches": [select]},
                checkpoint=str(tmp_path / "state"),
            )
        assert not list(tmp_path.iterdir())


def test_a_stage_can_have_the_name_of_a_key_column(frames: list[DataFrame], tmp_path: Path) -> None:
    pattern = Pattern.begin("user").where("kind = 'a'").followed_by("b").where("kind = 'b'")
    found = CEP.pattern(KeyedStream(frames[0], key="user", time="ts"), pattern)
    assert [tuple(row) for row in found.select("user.ts AS begins", "FIRST(b.ts) AS paid").collect()] == [
        ("u", 1000, 2000)
    ]
    with pytest.raises(StreamDefinitionError, match="would have two columns named 'user'") as caught:
        found.matches  # noqa: B018
    hint = str(caught.value.hint)
    (measure,) = re.findall(r'select\("(.*)"\)', hint)
    rows = Collect()
    of_stream = CEP.pattern(KeyedStream(frames[1], key="user", time="ts"), pattern, key_groups=1)
    of_stream.run({"matches": rows}, select={"matches": [measure]}, checkpoint=str(tmp_path / "state"))
    assert rows.rows == [{"user": "u", "n": 1}]
