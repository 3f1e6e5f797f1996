"""Spark's Python workers are forked with what they import, from one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, Pattern
from tests.spark.streams import events, stream_of, write_files

FORKED = """
    import gc, json, os, sys
    from asterism.spark.daemon import preload
    preload()
    for _ in range(2):
        read, write = os.pipe()
        if not os.fork():
            import numpy
            from asterism.columns import compiled
            loaded = sum(bool(entry.compiled.signatures) for entry in compiled._entries)
            os.write(write, json.dumps([numpy.random.random(), loaded, gc.get_freeze_count()]).encode())
            os._exit(0)
        print(os.read(read, 1000).decode())
    print(json.dumps(sorted({"pandas", "asterism.matching.kernels"} & sys.modules.keys())))
"""


def printed(program: str, **environment: str) -> list[Any]:
    """The lines of JSON that a program prints, with the environment of Spark's daemon."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_workers_are_forked_with_modules_and_compiled_code() -> None:
    first, second, modules = printed(FORKED)
    assert modules == ["asterism.matching.kernels", "pandas"]
    assert first[0] != second[0], "workers have equal random numbers"
    assert first[1:] == second[1:]
    assert min(first[1:]) > 0


@pytest.mark.parametrize("environment", [{"ASTERISM_PRELOAD": "false"}, {"OMP_NUM_THREADS": "2"}], ids=str)
def test_nothing_is_imported_before_a_fork_that_is_not_safe(environment: dict[str, str]) -> None:
    assert printed(FORKED.replace("gc.get_freeze_count()", "0"), **environment)[-1] == []


def test_a_process_with_further_threads_is_replaced() -> None:
    """Here by one that has one such thread, too, but imports nothing."""
    program = """
        import json, os, sys, threading
        from asterism.spark.daemon import preload
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print(json.dumps([os.environ.get("ASTERISM_PRELOAD"), "pandas" in sys.modules]), flush=True)
        preload()
        print(json.dumps([os.environ.get("ASTERISM_PRELOAD"), "pandas" in sys.modules]), flush=True)
        os._exit(0)
    """
    assert printed(program) == [[None, False], ["false", False], ["false", False]]


@pytest.mark.spark
def test_the_workers_of_a_query_are_forked_by_one_process(spark: SparkSession, tmp_path: Path) -> None:
    """Those before the exchange, the stateful ones, and those behind them."""
    folder = tmp_path / "parents"
    folder.mkdir()

    def seen(stage: str) -> None:
        imported = "asterism.matching.kernels" in sys.modules
        (folder / f"{os.getppid()} {stage} {imported}").touch()

    def is_view(rows: pa.Table) -> pa.ChunkedArray:
        seen("pack")
        return pc.equal(rows.column("kind"), "view")

    def in_state(matches: pa.Table) -> pa.Table:
        seen("state")
        return pa.table({"id": [1] * matches.num_rows})

    def sink(rows: DataFrame, batch_id: int) -> None:
        def behind(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            seen("sink")
            yield from batches

        rows.mapInArrow(behind, rows.schema).collect()

    write_files(events(200), tmp_path / "in", [])
    stream = CEP.pattern(stream_of(spark, tmp_path / "in"), Pattern.begin("a").where(is_view))
    stream.run({"matches": sink}, process=in_state, schema="id LONG", checkpoint=str(tmp_path / "cp"))
    parents, stages, imported = zip(*(path.name.split() for path in folder.iterdir()), strict=True)
    assert set(stages) == {"pack", "state", "sink"}
    assert len(set(parents)) == 1
    assert set(imported) == {"True"}


@pytest.mark.spark
def test_spark_runs_the_daemon_that_a_setting_names() -> None:
    """In a session that knows nothing of Asterism."""
    program = """
        import json, sys
        from pyspark.sql import SparkSession
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.python.daemon.module", "asterism.spark.daemon").getOrCreate()
        def imported(batches):
            import pyarrow as pa
            for _ in batches:
                yield pa.RecordBatch.from_pydict({"imported": ["asterism.matching.kernels" in sys.modules]})
        [row] = spark.range(1, numPartitions=1).mapInArrow(imported, "imported boolean").collect()
        print(json.dumps([row.imported, "asterism" in sys.modules]))
        spark.stop()
    """
    path = os.pathsep.join(
        entry for entry in os.environ["PYTHONPATH"].split(os.pathsep) if not entry.endswith("startup")
    )
    environment = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    assert printed(program, **environment) == [[True, False]]
