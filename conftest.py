"""Runs the Python code blocks of README.md and docs/ as tests, each document from top to bottom; and says what runs, and where.

There are two tiers. ``pytest --all`` runs both; without it, these are left out unless the command names them:

* ``test_*_slow.py``
* documents that start Spark, except README.md, the tutorial, and those that the branch has changed; of docs/hosts.md only the
  blocks from the one that starts it

With ``pytest --dist loadscope``, the first process runs the files that use the shared Spark session or broker, and the others
run the rest, with a lower priority: Spark mostly waits, the rest mostly computes. The first process takes files of the rest when
it has none of its kind left, and so does the second one, which then starts Spark. See docs/decisions/0037 and 0179.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
).pytest()


TUTORIAL = ROOT / "docs" / "tutorial"
PARTLY_SLOW = {ROOT / "docs" / "hosts.md"}
"""Documents whose blocks before the first one with Spark are fast."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run slow tests and all documents that start Spark")


FIRST = "gw0"
"""The process of pytest-xdist that runs the files with Spark, for as long as there are any: the whole run ends no earlier."""


def pytest_configure(config: pytest.Config) -> None:
    # Programs that end pytest, like `timeout`, must not leave what its fixtures have started.
    signal.signal(signal.SIGTERM, _end)
    if getattr(config, "workerinput", {"workerid": FIRST})["workerid"] != FIRST:
        os.nice(5)


_is_ended = threading.Event()


def _end(*_: object) -> None:
    _is_ended.set()
    pytest.exit("ended by SIGTERM", 128 + signal.SIGTERM)


def pytest_runtest_setup() -> None:
    # The exception of the signal can be lost: DuckDB makes an error of its own of it, and the garbage collector ignores it.
    if _is_ended.is_set():
        _end()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Twelve thousand collected tests stay until the end. Each full collection of garbage would visit them: a third of the time of
    # collecting the tests, and more later.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Not asked about a file that the command names."""
    return True if is_slow(collection_path) and not config.option.all else None


def is_slow(file: Path) -> bool:
    if file.suffix == ".md":
        fast = file in PARTLY_SLOW or file == ROOT / "README.md" or TUTORIAL in file.parents
        return not fast and shares_the_session(file) and file not in changed_files()
    return file.name.endswith("_slow.py")


@cache
def changed_files() -> set[Path]:
    """By the branch, or by the last commit of main, and what is not committed; none where there is no history."""
    bases = (_git("merge-base", "HEAD~1", main) for main in ("origin/main", "main"))
    base = next(filter(None, bases), "")
    return {ROOT / name for name in _git("diff", "--name-only", base).splitlines()} if base else set()


def _git(*arguments: str) -> str:
    try:
        result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip()


@pytest.hookimpl(wrapper=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    starts_spark: dict[Path, bool] = {}
    """Whether a document has started Spark so far."""
    for item in items:
        if isinstance(item, SybilItem):
            starts_spark[item.path] = starts_spark.get(item.path, False) or "SparkSession" in str(item.example.parsed)
            uses_spark = shares_the_session(item.path)
            uses_spark &= starts_spark[item.path] or item.path not in PARTLY_SLOW
        else:
            uses_spark = "spark" in getattr(item, "fixturenames", ())
        if uses_spark:
            item.add_marker("spark")
    if items and not items[0].config.option.all:
        named = {(ROOT / argument.partition("::")[0]).resolve() for argument in items[0].config.args}
        whole = changed_files() | named
        items[:] = [
            item for item in items if item.path not in PARTLY_SLOW - whole or item.get_closest_marker("spark") is None
        ]
    items.sort(key=lambda item: not shares_the_session(item.path))
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The session that a document makes has the connectors that the fixture `spark` has."""
    if not isinstance(item, SybilItem) or not shares_the_session(item.path):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        if paths := connectors():
            patch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars {','.join(map(str, paths))} pyspark-shell")
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):  # type: ignore[misc] # its base has no types
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0]

        def _assign_work_unit(self, node: Any) -> None:
            first, *others = sorted(self.nodes, key=lambda node: node.gateway.id)
            suitable = (file for file in self.workqueue if is_for_the_first_process(ROOT / file) == (node is first))
            file = next(suitable, None)
            if file is None and node in others[1:]:
                node.shutdown()  # what is left needs Spark, which one more process would start
                return
            self.workqueue.move_to_end(file or next(iter(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return Lanes(config, log)


@cache
def connectors() -> list[Path]:
    """None without Maven."""
    from tests.discovery.servers import NoServerError
    from tests.servers.jars import jars

    try:
        return jars("kafka")
    except NoServerError:
        return []


@cache
def is_for_the_first_process(file: Path) -> bool:
    """Also the tests with a broker of Kafka, which would otherwise be started in two processes."""
    return shares_the_session(file) or any(text in _text_of(file) for text in ("broker: Broker", 'value("broker")'))


@cache
def shares_the_session(file: Path) -> bool:
    """Does it use the fixture `spark`, or, as a document, make a session, which is then the same?"""
    text = _text_of(file)
    return "SparkSession" in text or 'usefixtures("spark")' in text


@cache
def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""
