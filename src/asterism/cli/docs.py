"""The command ``asterism docs``: the pages of the documentation, which are part of the wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from asterism.cli.common.files import folder_with
from asterism.cli.common.terminal import CommandFailure, print_table

MAX_LINES = 200
"""Maximum number of lines that a search shows."""


@click.command()
@click.argument("page", required=False)
@click.option("--search", metavar="TEXT", help="Show the lines with this text, with their pages.")
@click.option("--path", is_flag=True, help="Print the path of the file instead of its text.")
def docs(page: str | None, search: str | None, path: bool) -> None:
    """Show a page of the documentation, or list the pages.

    PAGE is written as messages and docstrings write it: docs/limits.md, limits or docs/decisions/0069.
    """
    folder = folder_with("index.md", in_checkout="docs", in_wheel="asterism_docs")
    if folder is None:
        raise CommandFailure("the documentation is not installed: install Asterism from a wheel, or use a checkout")
    if search is not None:
        _search(folder, search)
    elif page is None:
        titles = {name: _title(folder / f"{name}.md") for name in _pages(folder) if not name.startswith("decisions/")}
        print_table(("page", "title"), filter(all, titles.items()))
    else:
        file = _find(folder, page)
        if path:
            click.echo(file)
        else:
            click.echo_via_pager(file.read_text(encoding="utf-8"))


def _pages(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.md"))


def _title(file: Path) -> str:
    heading = re.search(r"^# (.+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1].replace("`", "") if heading else ""


def _find(folder: Path, page: str) -> Path:
    wanted = page.removeprefix("docs/").partition("#")[0].removesuffix(".md").rstrip(".")
    pages = _pages(folder)
    exact = [name for name in pages if wanted in (name, name.rpartition("/")[2])]
    similar = exact or [name for name in pages if wanted in name]
    if len(similar) == 1 or wanted in exact:
        return folder / f"{wanted if wanted in exact else similar[0]}.md"
    if similar:
        raise CommandFailure(f"{page!r} may be one of {', '.join(similar[:10])}")
    raise CommandFailure(f"there is no page {page!r}: `asterism docs` lists the pages")


def _search(folder: Path, text: str) -> None:
    found = list(_lines_with(folder, text.casefold()))
    print_table(("page", "line", "text"), found[:MAX_LINES], numbers=("line",))
    if len(found) > MAX_LINES:
        click.echo(f"{len(found) - MAX_LINES:,} more lines")


def _lines_with(folder: Path, text: str) -> Iterator[tuple[str, str, str]]:
    """The guides come before the records of decisions."""
    for name in sorted(_pages(folder), key=lambda name: (name.startswith("decisions/"), name)):
        lines = (folder / f"{name}.md").read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if text in line.casefold():
                yield name, str(number), line.strip()
