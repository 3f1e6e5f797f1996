"""The blocks about Delta and Iceberg of ``docs/how_to/sources_and_sinks.md``, which cannot run where the other documents run."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit import ROOT

PAGE = ROOT / "docs" / "how_to" / "sources_and_sinks.md"


@pytest.mark.usefixtures("spark")
def test_the_blocks_of_the_page() -> None:
    """With the definitions at the beginning of the page."""
    text = PAGE.read_text(encoding="utf-8")
    definitions = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    sections = re.findall(
        r"^### (?:Delta|Iceberg|Delta and Iceberg)\n(.*?)(?=^##)", text + "\n##", re.MULTILINE | re.DOTALL
    )
    blocks = [
        block
        for section in sections
        for block in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    ]
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in (definitions, *blocks):
        exec(compile(block, str(PAGE), "exec"), names)
    for table in ("attacks", "logins", "ice.db.logins", "ice.db.timed_out"):
        SparkSession.active().sql(f"DROP TABLE IF EXISTS {table}")
