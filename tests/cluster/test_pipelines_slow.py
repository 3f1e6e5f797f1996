"""The pipeline of docs/how_to/declarative_pipelines.md runs three times: the second run continues, the third one begins anew."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import asterism
from asterism import Pattern, PatternProcessor
from tests.kit import ROOT

pytest.importorskip("pyspark.pipelines")
pytestmark = pytest.mark.timeout(1800)

EVENTS = [
    [(1, "x", "view", 0), (2, "x", "buy", 10), (3, "y", "view", 20), (4, "z", "view", 40)],
    [(5, "y", "buy", 50), (6, "w", "view", 180)],
]
"""The events of two runs: id, user, kind, and second."""
FUNNEL = Pattern.begin("view").where("kind = 'view'").followed_by("buy").where("kind = 'buy'")


def blocks(language: str) -> list[str]:
    text = (ROOT / "docs/how_to/declarative_pipelines.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def write(folder: Path, run: int) -> None:
    names = ("id", "user", "kind", "ts")
    lines = [
        json.dumps(dict(zip(names, (*event, f"2026-01-01T00:{second // 60:02}:{second % 60:02}"), strict=True)))
        for *event, second in EVENTS[run]
    ]
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / f"{run}.json").write_text("\n".join(lines))


def run(folder: Path, *options: str) -> None:
    binaries = Path(sys.executable).parent
    [command] = blocks("sh")
    environment = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(asterism.__file__).parents[1]),
    }
    program, *arguments = shlex.split(command)
    found = shutil.which(program, path=str(binaries))
    assert found is not None
    done = subprocess.run(
        [found, *arguments, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "Run is COMPLETED" in done.stdout + done.stderr


def rows(folder: Path, table: str, *columns: str) -> list[Any]:
    files = (folder / "spark-warehouse" / table).glob("*.parquet")
    return sorted(tuple(row[column] for column in columns) for file in files for row in pq.read_table(file).to_pylist())


def test_the_pipeline_of_the_guide(tmp_path: Path) -> None:
    [spec], [program] = blocks("yaml"), blocks("py")
    # Python processes of several queries may start too slowly on a busy machine.
    spec += '  spark.sql.pipelines.execution.maxConcurrentFlows: "1"\n'
    (tmp_path / "spark-pipeline.yml").write_text(spec.replace("/tmp/shop", str(tmp_path)))
    (tmp_path / "shop.py").write_text(program)
    (tmp_path / "rules.json").write_text(json.dumps([PatternProcessor("funnel", 1, FUNNEL).to_dict()]))
    write(tmp_path, 0)
    run(tmp_path)
    assert rows(tmp_path, "bought", "user", "view_id", "buy_id") == [("x", 1, 2)]
    write(tmp_path, 1)
    run(tmp_path)
    bought = [("x", 1, 2), ("y", 3, 5)]
    for _ in range(2):
        assert rows(tmp_path, "bought", "user", "view_id", "buy_id") == bought
        assert rows(tmp_path, "clause", "user", "view_id", "buy_id") == bought
        assert rows(tmp_path, "counts", "user", "n") == [("x", 2), ("y", 1), ("y", 1), ("z", 1)]
        assert len(rows(tmp_path, "found", "match_id")) == 2
        assert rows(tmp_path, "buyers", "user") == [("x",), ("y",)]
        run(tmp_path, "--full-refresh-all")
