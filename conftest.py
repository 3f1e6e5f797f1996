"""Runs the Python code blocks of README.md and docs/ as tests, each document from top to bottom; and says what runs where.

All that uses the shared Spark session is one group, which runs first and in one process; the others run beside it, file by file
(``pytest --dist loadgroup``): Spark mostly waits, they mostly compute. A test that starts Spark in a process of its own has a
group of its own.
"""

from __future__ import annotations

import pytest
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
).pytest()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if uses_spark(item):
            item.add_marker("spark")
        if item.get_closest_marker("xdist_group") is None:
            group = "spark" if item.get_closest_marker("spark") else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def uses_spark(item: pytest.Item) -> bool:
    if isinstance(item, SybilItem):
        return "SparkSession" in item.example.document.text
    return "spark" in getattr(item, "fixturenames", ())
