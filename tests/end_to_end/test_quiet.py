"""The first run of what a newcomer runs prints nothing but its own output."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end import quiet
from tests.end_to_end.quiet import run_file, unexpected
from tests.kit import ROOT

LOG = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-pattern-layout-defaults.properties
26/11/27 19:20:11 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using builtin-java classes
\r[Stage 3:>                                                          (0 + 2) / 2]\r    \r
26/11/27 19:20:12 WARN FileStreamSink: Assume no metadata directory.
java.io.FileNotFoundException: File /tmp/x does not exist
\tat org.apache.hadoop.fs.RawLocalFileSystem.deprecatedGetFileStatus(RawLocalFileSystem.java:980)
"""


def test_lines_that_are_not_allowed_are_found() -> None:
    assert [line.split()[-1] for line in unexpected(LOG)] == ["directory.", "exist", LOG.split()[-1]]


def test_a_document_is_one_program() -> None:
    program = quiet.program_of(ROOT / "README.md")
    assert program.index("duckdb.read_csv") < program.index("SparkSession.builder")
    compile(program, "README.md", "exec")


def test_a_step_without_spark(tmp_path: Path) -> None:
    done = run_file(ROOT / "docs" / "tutorial" / "3_absence.md", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
