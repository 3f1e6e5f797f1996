"""Tables in HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], style: str | None = None) -> str:
    """A table; the texts of its cells are escaped.

    :param head: the names of the columns; none: without a head
    :param style: CSS of the cells below the head

    >>> html_table(["stage"], [["a < b"]])
    '<table><thead><tr><th>stage</th></tr></thead><tbody><tr><td>a &lt; b</td></tr></tbody></table>'
    """
    td = "td" if style is None else f'td style="{html.escape(style)}"'
    first = f"<thead><tr>{''.join(f'<th>{html.escape(name)}</th>' for name in head)}</tr></thead>" if head else ""
    lines = (f"<tr>{''.join(f'<{td}>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{first}<tbody>{''.join(lines)}</tbody></table>"
