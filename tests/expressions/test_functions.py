"""The functions and operators of SQL: the table in the code is the one in the documentation; those that have an edge."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from asterism.expressions.functions import FUNCTIONS, Function
from asterism.expressions.operators import OPERATORS

DOCUMENT = Path(__file__).parents[2] / "docs" / "sql.md"


def code(text: str) -> str:
    """As code in a cell of a table, where a bar would end the cell."""
    return f"<code>{text.replace('<', '&lt;').replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def operators() -> str:
    rows = [f"| {', '.join(code(one) for one in usage.split('; '))} | {note} |" for usage, note in OPERATORS.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def functions() -> str:
    groups: dict[str, dict[str, list[str]]] = {}
    entries: dict[str, Function] = {}
    for name, entry in FUNCTIONS.items():
        groups.setdefault(entry.group, {}).setdefault(entry.usage, []).append(name)
        entries[entry.usage] = entry
    parts = []
    for group, usages in groups.items():
        parts += [f"### {group}", "", "| | |", "|---|---|"]
        for usage, names in usages.items():
            others = "".join(f", `{name}`" for name in names if name != entries[usage].name)
            parts.append(f"| {code(usage)}{others} | {entries[usage].note} |")
        parts.append("")
    return "\n".join(parts).rstrip()


@pytest.mark.parametrize(("name", "table"), [("operators", operators()), ("functions", functions())])
def test_the_documentation_lists_what_there_is(name: str, table: str) -> None:
    """``ASTERISM_REWRITE=1`` writes the tables anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    written = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)
    if os.environ.get("ASTERISM_REWRITE"):
        DOCUMENT.write_text(written.sub(lambda _: table + "\n", text), encoding="utf-8")
        return
    found = written.search(text)
    assert found is not None
    assert found.group() == table + "\n"
