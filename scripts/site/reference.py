"""What Sphinx does not know: public names in docstrings, texts of errors, the help of commands, links to the repository, and
notebooks.
"""

from __future__ import annotations

import html
import posixpath
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from asterism.cli.main import main
from scripts.site import notebooks
from scripts.site.subjects import SUBJECTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HISTORICAL = DOCS / "decisions" / "historical"
INCLUDED = {ROOT / "benchmarks" / "README.md": "benchmarks.md", ROOT / "CHANGELOG.md": "changelog.md"}
"""Files outside of docs/ that are the content of a page."""


# ---------------------------------------------------------------------------------------------------- references


def resolve_public_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Docstrings name objects where they are defined; the reference documents them under their public name."""
    if node.get("refdomain") != "py":
        return None
    parts = node["reftarget"].split(".")
    first = next((n for n, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    name = ".".join(parts[first:])
    domain = env.domains.python_domain
    found = [public for public in domain.objects if public.startswith("asterism.") and public.endswith("." + name)]
    if not found and len(parts) > first + 1:  # a method of a base class, documented with the class that has it
        last = parts[-1]
        found = [
            public
            for public in domain.objects
            if public.endswith("." + last) and public.startswith("asterism.Pattern.")
        ]
    if not found:
        return content if _in_signature(node) else None
    exact = min(found, key=len)
    target = domain.objects[exact]
    uri = app.builder.get_relative_uri(node.get("refdoc", ""), target.docname) + "#" + target.node_id
    reference = nodes.reference("", "", internal=True, refuri=uri, reftitle=exact)
    reference += content
    return reference


def _in_signature(node: nodes.Element) -> bool:
    """Types of other projects, and of our own that are not public, are no links."""
    parent = node.parent
    while parent is not None and not isinstance(parent, addnodes.desc_signature):
        parent = parent.parent
    return parent is not None


def prepare_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Let links to Markdown outside docs/, and to decisions that are no longer in force, lead to a copy in the site. Sphinx
    itself copies files of other types.
    """

    folder = DOCS / posixpath.dirname(name)
    included = next((file for file, page in INCLUDED.items() if page == f"{name}.md"), None)
    if included is not None:  # its links are those of its own folder
        source[0] = included.read_text(encoding="utf-8")
        folder = included.parent

    def replaced(link: re.Match[str]) -> str:
        path = (folder / link["path"]).resolve()
        if path.is_relative_to(DOCS) and not path.is_relative_to(HISTORICAL):
            return link[0] if included is None else link[0].replace(link["path"], path.relative_to(DOCS).as_posix())
        if path in INCLUDED:
            return f"[{link['text']}]({'../' * name.count('/')}{INCLUDED[path]})"
        copy = Path("repository") / path.relative_to(ROOT)
        copy = copy.with_name(copy.name + ".txt")  # which every browser shows
        place = Path(app.outdir) / copy
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        address = "../" * name.count("/") + copy.as_posix()
        return f'<a href="{address}">{html.escape(link["text"])}</a>'

    source[0] = source[0].replace("  # fmt: skip\n", "\n")  # says nothing to a reader
    if name.startswith("tutorial/"):
        link = (
            '<p class="notebooks">Notebooks: <a href="../tutorial.zip" download>all six steps, with their data</a></p>'
        )
        source[0] = re.sub(r"\A(# .*\n)", rf"\1\n{link}\n", source[0])
    source[0] = re.sub(r"\[(?P<text>[^]]+)\]\((?P<path>[^)#:\s]+\.md)(?:#[^)]*)?\)", replaced, source[0])


def write_notebooks(app: Sphinx) -> None:
    Path(app.outdir).mkdir(parents=True, exist_ok=True)
    notebooks.zipped(Path(app.outdir))


def hide_constructor(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """A pattern is begun by its class methods; nobody calls the constructor."""
    return ("", None) if name == "asterism.Pattern" else None


def name_each_parameter(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """``:param a, b: text`` describes two parameters, which Sphinx takes for one with a type. Names of pages become links."""
    found: list[str] = []
    for line in lines:
        several = re.fullmatch(r"\s*:(param|ivar) (\w+(?:, \w+)+):(.*)", line)
        if several:
            found += [f":{several[1]} {each}:{several[3]}" for each in several[2].split(", ")]
        else:
            found.append(line)
    lines[:] = [re.sub(r"`{0,2}(?<![/\w])docs/([a-z_/]+)\.md`{0,2}", _link_to_page, line) for line in found]


def _link_to_page(page: re.Match[str]) -> str:
    return f":doc:`/{page[1]}`" if (DOCS / f"{page[1]}.md").is_file() else page[0]


# ---------------------------------------------------------------------------------------------------- errors


def error_texts() -> dict[str, dict[str, list[str]]]:
    """Code of an error -> subject -> its texts, from the golden files of the tests."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted(ROOT.glob("tests/*/golden/*/*.txt")):
        name, _, text = path.read_text(encoding="utf-8").strip().partition("\n")
        code = re.match(r"\[([A-Z_]+)\] ", text)
        if path.parts[-2] == "warning":
            found["PatternWarning"][SUBJECTS[path.parts[-4]]].add(f"{name}\n{text}")
        elif code is not None and re.fullmatch(r"\w+Error", name):
            found[code[1]][SUBJECTS[path.parts[-4]]].add(text.replace(str(ROOT), "..."))
    return {
        code: {subject: sorted(texts) for subject, texts in sorted(by_subject.items())}
        for code, by_subject in found.items()
    }


class ErrorTexts(Directive):
    """``{error-texts} CODE``: the texts of an error, by subject."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        texts = error_texts().get(self.arguments[0])
        if texts is None:
            raise self.error(f"no test has a text of {self.arguments[0]}")
        return list(_lists(texts))


def _lists(texts: dict[str, list[str]]) -> Iterator[nodes.Node]:
    for subject, some in texts.items():
        yield nodes.rubric("", subject)
        block = nodes.literal_block("\n\n".join(some), "\n\n".join(some), classes=["errors"])
        block["language"] = "text"
        yield block


# ---------------------------------------------------------------------------------------------------- commands


class Commands(Directive):
    """``{commands}``: the help of each command of ``asterism``."""

    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        return list(self._sections(main, "asterism"))

    def _sections(self, command: click.Command, name: str) -> Iterator[nodes.Node]:
        for sub, each in sorted(command.commands.items()) if isinstance(command, click.Group) else []:
            whole = f"{name} {sub}"
            section = nodes.section(ids=[nodes.make_id(whole)], names=[whole])
            section += nodes.title(whole, whole)
            context = click.Context(each, info_name=whole, max_content_width=88, terminal_width=88)
            text = each.get_help(context)
            block = nodes.literal_block(text, text)
            block["language"] = "text"
            section += block
            section += list(self._sections(each, whole))
            yield section


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("error-texts", ErrorTexts)
    app.add_directive("commands", Commands)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("autodoc-process-docstring", name_each_parameter)
    app.connect("builder-inited", write_notebooks)
    app.connect("source-read", prepare_page)
    app.connect("missing-reference", resolve_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
