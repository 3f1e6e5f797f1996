"""What a notebook shows, and saves as a file."""

from __future__ import annotations

import html
from os import PathLike, fspath
from pathlib import Path

from asterism.arguments import shown
from asterism.errors import AsterismError

PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2em; }} th, td {{ padding: 2px 10px; text-align: left; }}</style>
{body}
</html>
"""


class View:
    """A base of what shows itself in a notebook: as a drawing, as HTML, and in a file."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        """None: it has no drawing."""
        return None

    def _repr_html_(self) -> str | None:
        """Default: the drawing, or the text."""
        return self._repr_svg_() or f"<pre>{html.escape(str(self))}</pre>"

    def save(self, path: str | PathLike[str]) -> None:
        """Write what a notebook shows to a file, which is replaced if it exists.

        :param path: a file whose name ends with ``.html``, ``.svg`` (of what has a drawing) or ``.txt``
        :raises AsterismError: the name has another ending, or there is no drawing
        :raises OSError: the file cannot be written
        """
        if not isinstance(path, str | PathLike):
            raise AsterismError(f"path must be the name of a file, not {shown(path)}", hint='save("view.html")')
        file = Path(fspath(path))
        kind = file.suffix.lower()
        if kind == ".svg":
            text = self._repr_svg_()
            if text is None:
                raise AsterismError(f"{type(self).__name__} has no drawing", hint=f'save("{file.stem}.html")')
        elif kind in (".html", ".htm"):
            text = PAGE.format(title=html.escape(type(self).__name__), body=self._repr_html_())
        elif kind == ".txt":
            text = f"{self}\n"
        else:
            hint = "the name of the file must end with .html, .svg or .txt"
            raise AsterismError(f"{shown(file.name)} is not the name of a view", hint=hint)
        file.write_text(text, encoding="utf-8")


class SvgDrawing(str, View):
    """A drawing as SVG: a string that a notebook draws."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)
