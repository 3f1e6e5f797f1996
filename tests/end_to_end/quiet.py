"""What a program prints at its first run: the lines that may be there, and the programs of documents.

``python -m tests.end_to_end.quiet README.md examples/early_results.py`` prints the lines of these programs that may not be there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.kit import ROOT

_SPARK = r"(?:\d\d/\d\d/\d\d \d\d:\d\d:\d\d )?WARN "
ALLOWED = {
    r"WARNING: Using incubator modules: jdk\.incubator\.vector": "Java, when Spark starts",
    r"WARNING: package sun\.security\.action not in java\.base": "Java, when Spark starts",
    r"Using Spark's default log4j profile: org/apache/spark/log4j2-[\w-]*defaults\.properties": "Spark, when it starts",
    r'Setting default log level to "WARN"\.': "Spark, when it starts",
    r"To adjust logging level use sc\.setLogLevel\(newLevel\)\..*": "Spark, when it starts",
    _SPARK
    + r"NativeCodeLoader: Unable to load native-hadoop library for your platform\.\.\..*": "Hadoop, when Spark starts",
    _SPARK + r"Utils: Your hostname, .* resolves to a loopback address.*": "Spark, when it starts, on some networks",
    _SPARK
    + r"Utils: Set SPARK_LOCAL_IP if you need to bind to another address": "Spark, when it starts, on some networks",
    _SPARK + r"Utils: Service 'SparkUI' could not bind on port \d+\. Attempting port \d+\.": "another session runs",
    _SPARK
    + r"MicroBatchExecution: Disabling AQE since AQE is not supported in stateful workloads\.": "Spark 4.3, always",
    _SPARK
    + r"MicroBatchExecution: source \[.*\] does not support Trigger\.AvailableNow\. Falling back to .*": "a drain, on purpose",
    _SPARK
    + r"TransformWithStateInPySparkStateServer: No more data to read from the socket": "Spark, at times, at the first start",
    r"[\d-]+ [\d:,]+ INFO asterism\.rules\.processor: .*": "rules that a query has read, for those who run it",
    _SPARK
    + r"StateStore: Loaded state store provider in loadTimeMs=\d+ for .*": "on a busy machine, in more than two seconds",
    _SPARK
    + r"ProcessingTimeExecutor: Current batch is falling behind\..*": "on a busy machine, for a trigger interval",
    _SPARK
    + r"DAGScheduler: Failed to cancel job group [\w-]+\. Cannot find active jobs for it\.": "a query is stopped",
    _SPARK + r"MicroBatchExecution: The read limit .* is ignored when Trigger\.Once is used\.": "a drain, on purpose",
}
"""The lines that a program with Spark may print beside its own output, as regular expressions, and who prints them. A library can
change nothing about those of Spark: they come before the first query, when a query is stopped or late, or in each query that has
state or drains its input.
"""


def unexpected(text: str) -> list[str]:
    """The lines that are not allowed. Bars of progress are removed, of which Spark draws one for a job that takes seconds."""
    without_bars = re.sub(r"\r?\[Stage \d+:[^\r\n]*|\r", "", text)
    lines = (line.rstrip() for line in without_bars.splitlines())
    return [line for line in lines if line and not any(re.fullmatch(allowed, line) for allowed in ALLOWED)]


def program_of(page: Path) -> str:
    """The code of a document, as one program."""
    text = page.read_text(encoding="utf-8")
    blocks = PythonCodeBlockParser()(Document(text, str(page)))
    return "\n".join(str(block.parsed) for block in sorted(blocks, key=lambda block: block.start))


def run(command: list[str], folder: Path, seconds: float = 900) -> subprocess.CompletedProcess[str]:
    """Run a program as a user does: in a process of its own, with Spark's own settings for its log.

    :param folder: the working directory, which gets a link to the examples
    """
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    others = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTEST_"))
    }
    return subprocess.run(command, cwd=folder, env=others, capture_output=True, text=True, timeout=seconds, check=False)


def run_file(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program, or the code of a document."""
    if file.suffix == ".md":
        program = folder / f"{file.stem}.py"
        program.write_text(program_of(file), encoding="utf-8")
        file = program
    return run([sys.executable, str(file)], folder)


if __name__ == "__main__":
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as temporary:
            done = run_file(Path(name).resolve(), Path(temporary))
        print(f"=== {name}: exit status {done.returncode}", flush=True)  # noqa: T201
        for line in unexpected(done.stderr):
            print(f"stderr  {line}", flush=True)  # noqa: T201
        for line in done.stdout.splitlines():
            print(f"stdout  {line}", flush=True)  # noqa: T201
