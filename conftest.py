"""Runs the Python code blocks of README.md and docs/ as tests, each document from top to bottom; and says what runs where.

With ``pytest --dist loadscope``, the first process runs the files that use the shared Spark session, and the others run the
rest: Spark mostly waits, the rest mostly computes. A process that has no file of its kind left takes one of the other kind.

Tests marked as ``matrix`` run only with ``make matrix``, which selects them by ``-m``. See docs/decisions/0037.
"""

from __future__ import annotations

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


@pytest.hookimpl(wrapper=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    if "matrix" not in config.option.markexpr:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("matrix")])
        items[:] = [item for item in items if not item.get_closest_marker("matrix")]
    for item in items:
        if isinstance(item, SybilItem):
            uses_spark = shares_the_session(item.path)
        else:
            uses_spark = "spark" in getattr(item, "fixturenames", ())
        if uses_spark:
            item.add_marker("spark")
    items.sort(key=lambda item: not shares_the_session(item.path))
    yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):  # type: ignore[misc] # its base has no types
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0]

        def _assign_work_unit(self, node: object) -> None:
            on_spark = node is self.nodes[0]
            mine = (file for file in self.workqueue if shares_the_session(ROOT / file) == on_spark)
            self.workqueue.move_to_end(next(mine, next(iter(self.workqueue))), last=False)
            super()._assign_work_unit(node)

    return Lanes(config, log)


@cache
def shares_the_session(file: Path) -> bool:
    """Does it use the fixture `spark`, or, as a document, make a session, which is then the same?"""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return "SparkSession" in text or 'usefixtures("spark")' in text
