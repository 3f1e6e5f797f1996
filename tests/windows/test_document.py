"""docs/windows.md has all triggers and windows; the table of aggregates in docs/sql.md is the one in the code."""

from __future__ import annotations

import os
import re
from pathlib import Path

from asterism.expressions.aggregates import FUNCTIONS, SqlAggregate

DOCUMENTS = Path(__file__).parents[2] / "docs"


def aggregates() -> str:
    entries: dict[SqlAggregate, list[str]] = {}
    for name, entry in FUNCTIONS.items():
        entries.setdefault(entry, []).append(name)
    rows = []
    for entry, names in entries.items():
        own = re.match(r"\w+", entry.usage)
        assert own is not None
        others = "".join(f", `{name}`" for name in names if name != own.group())
        note = re.sub(r"(; )?the elements are kept$", "", entry.note)
        kept = "the elements" if entry.of_rows or entry.distinct else "a value"
        rows.append(f"| `{entry.usage}`{others} | {note} | {kept} |")
    return "\n".join(["| aggregate | | a window keeps |", "|---|---|---|", *rows])


def test_the_documentation_lists_the_aggregates() -> None:
    """``ASTERISM_REWRITE=1`` writes the table anew."""
    document = DOCUMENTS / "sql.md"
    text = document.read_text(encoding="utf-8")
    written = re.compile(r"(?<=<!-- aggregates -->\n).*?(?=<!-- end of aggregates -->)", re.DOTALL)
    if os.environ.get("ASTERISM_REWRITE"):
        text = written.sub(lambda _: aggregates() + "\n", text)
        document.write_text(text, encoding="utf-8")
    found = written.search(text)
    assert found is not None
    assert found.group() == aggregates() + "\n"


def test_every_trigger_and_window_is_in_the_documentation() -> None:
    import asterism

    text = (DOCUMENTS / "windows.md").read_text(encoding="utf-8")
    names = [
        name
        for name in dir(asterism)
        if name.endswith(("Trigger", "Windows", "Evictor")) or name in ("All", "Any", "never")
    ]
    assert names
    assert [name for name in names if name not in text] == []
