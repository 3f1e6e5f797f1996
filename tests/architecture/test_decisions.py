"""The records of decisions: each has a status and is in the index, and the file that a live one governs cites it.

See docs/decisions/0001.
"""

from __future__ import annotations

import re

from tests.kit import ROOT

FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted([*FOLDER.glob("0*.md"), *FOLDER.glob("historical/0*.md")], key=lambda path: path.name)
STATUS = re.compile(r"(accepted|historical)(; [^;|]+)*")
MAX_LINES = 60
"""Of a live decision: a page."""


def test_every_decision_is_in_the_index_and_the_file_that_it_governs_cites_it() -> None:
    index = (FOLDER / "index.md").read_text("utf-8")
    problems = []
    for record in RECORDS:
        name, text = record.relative_to(FOLDER).as_posix(), record.read_text("utf-8")
        number = int(record.name[:4])
        title = re.match(rf"# {number}\. (.+)\n\nStatus: (.+)\n(?:Governs: `(.+)`\n)?\n", text)
        if title is None or STATUS.fullmatch(title[2]) is None:
            problems.append(
                f'{name} does not begin with "# {number}. Title", "Status: accepted" or "historical", and "Governs: `file`"'
            )
            continue
        governed = f"`{title[3]}`" if title[3] else ""
        if f"| {number} | [{title[1]}]({name}) | {title[2]} | {governed} |" not in index:
            problems.append(f"{name} is not in the index with its title, status and file")
        if title[2].startswith("historical"):
            if record.parent == FOLDER:
                problems.append(f"{name} is historical, and belongs in historical/")
            continue
        if record.parent != FOLDER:
            problems.append(f"{name} is not historical")
        if len(text.splitlines()) > MAX_LINES:
            problems.append(f"{name} has more than {MAX_LINES} lines")
        file = ROOT / (title[3] or "none")
        if not file.is_file() or not re.search(rf"docs/decisions/[\d, and]*{number:04}\b", file.read_text("utf-8")):
            problems.append(f"{name}: {title[3]} does not cite docs/decisions/{number:04}")
    assert problems == []


def test_numbers_are_not_used_twice() -> None:
    numbers = [record.name[:4] for record in RECORDS]
    assert sorted(set(numbers)) == numbers


def test_the_history_of_benchmarks_names_decisions() -> None:
    lines = (ROOT / "benchmarks" / "history.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| 20")]
    known = {str(int(record.name[:4])) for record in RECORDS}
    assert [
        row for row in rows if len(re.split(r"(?<!\\)\|", row)) != 7 or row.rsplit("|", 2)[1].strip() not in known
    ] == []
