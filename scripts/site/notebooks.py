"""The steps of the tutorial as Jupyter notebooks: ``make notebooks``.

The pages in ``docs/tutorial`` are the source. A code block in Python is a cell, a block of text after it is its output, and
everything else is Markdown. The data are where the code looks for them, so the notebooks need no checkout.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorial").glob("[0-9]_*.md"))
_BLOCK = re.compile(r"```(python|text)\n(.*?)\n```\n", re.DOTALL)


def notebook(page: str) -> dict[str, Any]:
    """A page as a notebook, in the format of Jupyter (nbformat 4.5).

    >>> [cell["cell_type"] for cell in notebook("Text.\\n\\n```python\\nprint(1)\\n```\\n\\n```text\\n1\\n```\\n")["cells"]]
    ['markdown', 'code']
    """
    cells: list[dict[str, Any]] = []

    def add(kind: str, source: str, **more: Any) -> None:
        cells.append({"id": f"cell-{len(cells) + 1}", "cell_type": kind, "metadata": {}, "source": source, **more})

    begin = 0
    for block in _BLOCK.finditer(page):
        words = page[begin : block.start()].strip()
        if block[1] == "text" and (words or not cells or cells[-1]["cell_type"] != "code"):
            continue  # it stays in the Markdown
        if words:
            add("markdown", _without_links(words))
        if block[1] == "python":
            add("code", block[2].replace("  # fmt: skip", ""), execution_count=None, outputs=[])
        else:
            cells[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": block[2] + "\n"}]
        begin = block.end()
    if words := page[begin:].strip():
        add("markdown", _without_links(words))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}


def _without_links(words: str) -> str:
    """Links lead to pages that are not beside the notebook."""
    return re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", words)


def write(folder: Path) -> None:
    """Write the notebooks and their data to *folder*."""
    data = folder / "examples" / "data"
    data.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        content = json.dumps(notebook(text), indent=1, ensure_ascii=False)
        (folder / f"{page.stem}.ipynb").write_text(content + "\n", encoding="utf-8")
        for name in re.findall(r'"examples/data/([\w.]+)"', text):
            shutil.copy(ROOT / "examples" / "data" / name, data)
    shutil.copy(ROOT / "examples" / "data" / "README.md", data)
    shutil.copytree(ROOT / "examples" / "data" / "licences", data / "licences", dirs_exist_ok=True)


def zipped(folder: Path) -> Path:
    """Write the notebooks and their data to a ZIP file in *folder*."""
    with TemporaryDirectory() as place:
        write(Path(place))
        return Path(shutil.make_archive(str(folder / "tutorial"), "zip", place))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
