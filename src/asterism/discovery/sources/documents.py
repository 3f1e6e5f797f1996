"""Pattern processors as text, in JSON or YAML; ``docs/rules.md`` describes the format.

A document contains a list of processors, an object ``{"processors": [...]}``, or one processor.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asterism.errors import PatternProcessorError, RuleSourceError
from asterism.text.strict_json import DocumentSyntaxError, decode, line_and_column, place_in, pointer_part, text_of
from asterism.text.strict_yaml import YamlPlace, offset_in_scalar, read_yaml, written_yaml

MAX_BYTES = 20_000_000
MAX_FILES = 10_000  # in a folder
MAX_TOTAL = 100_000_000  # of all files of a folder, in bytes, and of all rows of a table, in characters
YAML = (".yaml", ".yml")
SUFFIXES = (".json", *YAML)
WHOLE = "the whole file"
"""Replaces the id if a file cannot be read at all."""
_PROCESSORS = "processors"


@dataclass(frozen=True, slots=True)
class Document:
    """The items of a document, each of which may be a processor, with their JSON pointers."""

    items: Sequence[Any]
    pointers: Sequence[str]
    text: str = ""
    root: YamlPlace | None = None
    """The positions of all values, in YAML."""

    def place(self, pointer: str, index: int = 0) -> tuple[int, int]:
        """Line and column, from 1, of the value at a JSON pointer, or of the last value on its path that exists.

        :param index: of a string: of the character at this index in it
        """
        if self.root is None:
            return place_in(self.text, pointer, index)
        place = self.root.at(pointer)
        offset = place.start
        if index and place is not self.root.at(pointer.rpartition("/")[0]):
            offset += offset_in_scalar(self.text[offset : place.end], index)
        return line_and_column(self.text, offset)


def read_document(source: bytes, name: str | Path = "") -> Document:
    """Parse a document into items.

    :param source: its text in UTF-8
    :param name: the file name; ``.yaml`` and ``.yml`` are YAML, everything else is JSON
    :raises PatternProcessorError: the document as a whole cannot be read

    >>> read_document(b"- id: a\\n  version: 1\\n", "rules.yaml").items
    [{'id': 'a', 'version': 1}]
    """
    yaml = Path(name).suffix in YAML
    try:
        text = text_of(source, MAX_BYTES, "YAML" if yaml else "JSON")
        root, place = read_yaml(text) if yaml else (decode(text), None)
    except DocumentSyntaxError as error:
        where = f"line {error.line} column {error.column}" if error.offset is not None else None
        detail = ": ".join(words for words in (error.detail, where) if words) or None
        raise PatternProcessorError(error.message, detail, error.hint) from None
    items, pointer = root, ""
    if isinstance(root, dict) and _PROCESSORS in root:
        items, pointer = root[_PROCESSORS], f"/{_PROCESSORS}"
        unknown = [name for name in root if name != _PROCESSORS]
        if unknown:
            raise PatternProcessorError(f"unknown field {unknown[0]!r:.60} next to {_PROCESSORS!r}")
    elif isinstance(root, dict) and ("id" in root or "pattern" in root):
        return Document([root], [""], text, place)
    if not isinstance(items, list):
        raise PatternProcessorError(
            "this is not a list of processors", hint=f'[...], {{"{_PROCESSORS}": [...]}}, or one processor'
        )
    return Document(items, [pointer + pointer_part(number) for number in range(len(items))], text, place)


def written(items: Sequence[Any], *, yaml: bool = False) -> bytes:
    """Write a readable document with *items*.

    >>> print(written([{"id": "a"}], yaml=True).decode(), end="")
    processors:
    - id: a
    """
    root = {_PROCESSORS: list(items)}
    if yaml:
        return written_yaml(root).encode()
    return json.dumps(root, ensure_ascii=False, indent=2).encode() + b"\n"


def read_file(path: Path) -> bytes:
    """Read a file, or only the beginning if it is too large for a document.

    :raises OSError: it cannot be read
    :raises PatternProcessorError: it is not a file
    """
    # Otherwise opening a pipe could block forever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RuleSourceError(f"{path} is not a file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def document_at(path: Path) -> Document:
    """:raises PatternProcessorError: it cannot be read (RuleSourceError), or parsed"""
    try:
        source = read_file(path)
    except OSError as error:
        raise unreadable(path, error) from None
    return read_document(source, path)


def paths_at(path: Path) -> list[Path]:
    """Return *path* or, if it is a folder, the files in it that contain rules, by name.

    :raises PatternProcessorError: it cannot be read, or there are too many
    """
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return [path]
        files = [file for file in path.iterdir() if file.suffix in SUFFIXES and not file.name.startswith(".")]
    except OSError as error:
        raise unreadable(path, error) from None
    check_number(str(path), files)
    return sorted(files)


def yaml_paths_in(path: Path) -> list[Path]:
    """Return *path* or, if it is a folder, the YAML files in it and in its folders, as :func:`paths_in` does."""
    return paths_in(path, YAML)


def paths_in(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return *path* or, if it is a folder, the files in it and in its folders, by name. What begins with a dot is left out.

    :raises PatternProcessorError: it cannot be read, or there are too many
    """
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return [path]
    except OSError as error:
        raise unreadable(path, error) from None
    files: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [Path(folder, name) for name in names if name.endswith(suffixes) and not name.startswith(".")]
        check_number(str(path), files)
    return sorted(files)


def check_number(folder: str, files: Sequence[object]) -> None:
    """:raises PatternProcessorError: there are too many files"""
    if len(files) > MAX_FILES:
        raise RuleSourceError(f"{folder} has {len(files):,} files (limit {MAX_FILES:,})")


def unreadable(path: Path, error: OSError) -> PatternProcessorError:
    return RuleSourceError(f"{path} cannot be read", error.strerror)
