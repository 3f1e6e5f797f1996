"""The notebooks are the pages of the tutorial, whose code the tests run."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from scripts.site.notebooks import PAGES, notebook, write


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_has_the_code_that_the_tests_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = nbformat.from_dict(notebook(text))
    nbformat.validate(made)
    code = [cell.source for cell in made.cells if cell.cell_type == "code"]
    blocks = [str(region.parsed).rstrip() for region in PythonCodeBlockParser()(Document(text, str(page)))]
    assert code == [block.replace("  # fmt: skip", "") for block in blocks]
    words = "".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    assert ".md" not in words
    assert "```python" not in words


def test_output_is_that_of_its_cell() -> None:
    cells = notebook("# A\n\n```text\nx\n```\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\nB\n\n```text\ny\n```\n")[
        "cells"
    ]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown"]
    assert cells[0]["source"] == "# A\n\n```text\nx\n```"
    assert cells[1]["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "1\n"}]
    assert cells[2]["source"] == "B\n\n```text\ny\n```"


def test_the_data_are_where_the_code_looks_for_them(tmp_path: Path) -> None:
    write(tmp_path)
    data = {path.name for path in (tmp_path / "examples" / "data").iterdir()}
    assert data == {
        "README.md", "licences", "ssh_auth.csv", "clickstream.csv.gz", "flights_nyc2013_part.parquet", "stock_prices.parquet"
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.glob("*.ipynb")) == [f"{page.stem}.ipynb" for page in PAGES]
