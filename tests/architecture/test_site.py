"""The documentation site, as far as it can be checked without Sphinx: `make docs-site` checks the rest."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import asterism
import asterism.discovery
import asterism.sinks
import asterism.sources
import asterism.testing
import asterism.trace
from scripts.site.streams import FOLDER, pictures
from scripts.site.subjects import SUBJECTS
from tests.kit import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def test_pictures_of_streams_are_current() -> None:
    """``ASTERISM_REWRITE=1`` writes them anew."""
    drawn = pictures()
    for name, text in drawn.items() if os.environ.get("ASTERISM_REWRITE") else ():
        (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")
    assert drawn.keys() == {path.stem for path in FOLDER.glob("*.svg")}
    for name, text in drawn.items():
        assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == text, name


def test_every_picture_of_a_stream_is_shown() -> None:
    shown = {name for page in PAGES for name in re.findall(r"images/streams/(\w+)\.svg\)", text_of(page))}
    assert shown == {path.stem for path in FOLDER.glob("*.svg")}


def test_every_page_is_in_the_navigation() -> None:
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for block in re.findall(r"```{toctree}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in filter(None, block.splitlines()):
                if not line.startswith(":"):
                    listed |= {path.resolve() for path in page.parent.glob(f"{line}.md")} or {missing(line, page)}
    listed |= {(DOCS / "reference" / f"{name}.md").resolve() for name in ("../sql", "../pattern_json")}
    assert sorted(set(PAGES) - listed - set((DOCS / "decisions" / "historical").glob("*.md"))) == []


def missing(line: str, page: Path) -> Path:
    path = (page.parent / f"{line}.md").resolve()
    assert path.exists(), f"{page.relative_to(ROOT)}: no page {line}"
    return path


def test_links_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *PAGES]:
        for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
            name, _, anchor = target.partition("#")
            if name.startswith(("http:", "https:")):
                continue
            path = (page.parent / name).resolve() if name else page
            if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors_of(path)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_public_name_is_in_the_reference() -> None:
    written = "".join(text_of(page, code=True) for page in (DOCS / "reference").glob("*.md"))
    named = set(re.findall(r"\.\. auto\w+:: (\w+)", written))
    public = {
        name
        for module in (asterism, asterism.testing, asterism.trace, asterism.discovery, asterism.sinks, asterism.sources)
        for name in (dir(module) if module is asterism else module.__all__)
    }
    public |= {name for name in vars(asterism.errors) if name.endswith(("Error", "Warning"))}
    assert sorted(public - named - {"RecursionError"}) == [], "add them to a page in docs/reference"


def text_of(page: Path, *, code: bool = False) -> str:
    """A page, by default without its code."""
    text = page.read_text(encoding="utf-8")
    return (
        text
        if code
        else re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE))
    )


def anchors_of(page: Path) -> set[str]:
    """The anchors of headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_texts_of_errors_have_a_subject() -> None:
    with_texts = {path.parent.name for path in (ROOT / "tests").glob("*/golden")}
    assert sorted(with_texts - set(SUBJECTS)) == [], "add them to SUBJECTS in scripts/site/reference.py"


def test_every_method_of_a_pattern_is_in_the_reference() -> None:
    written = set(re.findall(r":: Pattern\.(\w+)", (DOCS / "reference" / "patterns.md").read_text(encoding="utf-8")))
    public = {
        name
        for name, member in inspect.getmembers(asterism.Pattern)
        if not name.startswith("_") and (callable(member) or isinstance(member, property)) and name != "atoms"
    }
    assert written == public
