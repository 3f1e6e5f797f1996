"""Pattern processors as text, in JSON or YAML: ``docs/rules.md`` tells the format.

A document has a list of processors, an object ``{"processors": [...]}``, or one processor. YAML is read as another way to write
JSON: the scalars of its core schema, without tags and merge keys, and aliases only as far as what they stand for stays small.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from asterism.errors import PatternProcessorError
from asterism.text.strict_json import MAX_DIGITS, MAX_NAME, JsonTextError, decode, line_and_column, offset_of, text_of
from asterism.text.strict_json import pointer_part as part

MAX_BYTES = 20_000_000  # of a YAML document also the characters, those that aliases repeat counted each time
MAX_TOTAL = 100_000_000  # of all files of a folder, in bytes, and of all rows of a table, in characters
MAX_NODES = 1_000_000  # of a YAML document, those that aliases repeat counted each time
MAX_DEPTH = 200  # of a YAML document; groups of patterns may be nested 50 deep
YAML = (".yaml", ".yml")
SUFFIXES = (".json", *YAML)
WHOLE = "the whole file"
"""Stands for the id where a file cannot be read at all."""
_PROCESSORS = "processors"


@dataclass(frozen=True, slots=True)
class Document:
    """The items of a document, each of which may be a processor, and where they stand.

    :param pointers: of each item, from the root of the document
    """

    items: Sequence[Any]
    pointers: Sequence[str]
    _text: str = ""
    _places: _Place | None = None

    def place(self, pointer: str) -> tuple[int, int]:
        """Line and column, from 1, of the value to which a JSON pointer leads; as far as it leads."""
        if self._places is None:
            return line_and_column(self._text, offset_of(self._text, pointer))
        place = self._places
        for name in pointer.split("/")[1:]:
            if name not in place.inside:
                break
            place = place.inside[name]
        return place.line, place.column


def read_document(source: bytes, name: str | Path = "") -> Document:
    """The items of a document.

    :param source: its text in UTF-8
    :param name: of the file; ``.yaml`` and ``.yml`` are YAML, everything else is JSON
    :raises PatternProcessorError: it cannot be read as a whole

    >>> read_document(b"- id: a\\n  version: 1\\n", "rules.yaml").items
    [{'id': 'a', 'version': 1}]
    """
    yaml = Path(name).suffix in YAML
    try:
        text = text_of(source, MAX_BYTES)
        if yaml:
            root, places = _read_yaml(text)
            found = partial(Document, _places=places)
        else:
            root, found = decode(text), partial(Document, _text=text)
    except JsonTextError as error:
        place = f"line {error.line} column {error.column}" if error.offset is not None else None
        detail = ": ".join(words for words in (error.detail, place) if words) or None
        message = error.message.replace("JSON", "YAML") if yaml else error.message
        raise PatternProcessorError(message, detail, error.hint) from None
    items, pointer = root, ""
    if isinstance(root, dict) and _PROCESSORS in root:
        items, pointer = root[_PROCESSORS], f"/{_PROCESSORS}"
        unknown = [name for name in root if name != _PROCESSORS]
        if unknown:
            raise PatternProcessorError(f"beside {_PROCESSORS!r} there is {unknown[0]!r:.60}")
    elif isinstance(root, dict) and ("id" in root or "pattern" in root):
        return found([root], [""])
    if not isinstance(items, list):
        raise PatternProcessorError(
            "this is not a list of processors", hint=f'[...], {{"{_PROCESSORS}": [...]}}, or one processor'
        )
    return found(items, [pointer + part(number) for number in range(len(items))])


def written(items: Sequence[Any], *, yaml: bool = False) -> bytes:
    """A document with *items*, for people to read, too.

    >>> print(written([{"id": "a"}], yaml=True).decode(), end="")
    processors:
    - id: a
    """
    root = {_PROCESSORS: list(items)}
    if yaml:
        return _written_yaml(root)
    return json.dumps(root, ensure_ascii=False, indent=2).encode() + b"\n"


def read_file(path: Path) -> bytes:
    """What is in a file; of one that is too large for a document, the beginning.

    :raises OSError: it cannot be read
    :raises PatternProcessorError: it is not a file
    """
    # A pipe would be waited for, perhaps for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PatternProcessorError(f"{path} is not a file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------- YAML

_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_SCALARS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (_FLOAT, float),
)
"""What a plain scalar means by YAML 1.2's core schema, but for numbers that JSON does not have. Everything else is text."""


@dataclass(slots=True)
class _Place:
    """Where a value begins, from 1, and what is inside it, by the parts of JSON pointers."""

    line: int
    column: int
    inside: dict[str, _Place]


class _Size(NamedTuple):
    """What a value takes where it is written out, in values and in characters of texts."""

    nodes: int
    characters: int

    def plus(self, other: _Size) -> _Size:
        return _Size(self.nodes + other.nodes, self.characters + other.characters)


_ONE = _Size(1, 0)


@dataclass(slots=True)
class _Open:
    """A list or an object that has begun."""

    value: Any
    place: _Place
    anchor: str | None
    size: _Size = _ONE
    name: str | None = None

    def next_part(self) -> str:
        return part(len(self.value) if isinstance(self.value, list) else self.name)[1:]

    def put(self, value: Any) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        else:
            self.value[self.name] = value
            self.name = None


def _read_yaml(text: str) -> tuple[Any, _Place]:
    """The value of the one document in *text*, and where the values in it begin."""
    import yaml

    open_: list[_Open] = []
    anchors: dict[str, tuple[Any, _Size]] = {}
    root: list[tuple[Any, _Place]] = []
    total = _Size(0, 0)
    for event in _yaml_events(text):
        if isinstance(event, yaml.DocumentStartEvent) and root:
            raise _at("there is a second document", event)
        if not isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            continue
        inside = open_[-1] if open_ else None
        if isinstance(event, yaml.CollectionEndEvent):
            done = open_.pop()
            value, place, anchor, size = done.value, done.place, done.anchor, done.size
            inside = open_[-1] if open_ else None
        else:
            if inside is not None and isinstance(inside.value, dict) and inside.name is None:
                inside.name = _name(event, inside.value)
                size = _Size(0, len(inside.name))
                inside.size, total = inside.size.plus(size), total.plus(size)
                continue
            place = _Place(*_line_and_column(event.start_mark), {})
            if inside is not None:
                inside.place.inside[inside.next_part()] = place
            if isinstance(event, yaml.AliasEvent):
                if event.anchor not in anchors:
                    raise _at(f"the alias {event.anchor!r:.60} stands for nothing, or for itself", event)
                value, size = anchors[event.anchor]
                anchor = None
            else:
                _no_tag(event)
                anchor = event.anchor
                if not isinstance(event, yaml.ScalarEvent):
                    if len(open_) == MAX_DEPTH:
                        raise _at("the JSON is nested too deeply", event)
                    empty: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
                    open_.append(_Open(empty, place, anchor))
                    total = total.plus(_ONE)
                    continue
                value, size = _scalar(event), _Size(1, len(event.value))
            total = total.plus(size)
        if total.nodes > MAX_NODES:
            raise _at(f"the JSON has more than {MAX_NODES} values", event)
        if total.characters > MAX_BYTES:
            raise _at(f"the JSON is too large with what its aliases repeat (limit {MAX_BYTES} characters)", event)
        if anchor is not None:
            anchors[anchor] = (value, size)
        if inside is None:
            root.append((value, place))
        else:
            inside.size = inside.size.plus(size)
            inside.put(value)
    if not root:
        raise JsonTextError("there is no JSON, the text is empty")
    return root[0]


def _written_yaml(root: Any) -> bytes:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Puts in quotation marks what is a number here, and text in YAML 1.1."""

    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
    readable = "\x85" not in json.dumps(root, ensure_ascii=False)  # a line break of old, which would not be read back
    text: bytes = yaml.dump(root, Dumper=Dumper, sort_keys=False, allow_unicode=readable, encoding="utf-8", width=120)
    return text


def _yaml_events(text: str) -> Iterator[Any]:
    import yaml

    # Tells the parts of the text only; nothing is made of tags.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        place = _in_words(error.problem_mark or error.context_mark)
        raise JsonTextError("this is not JSON", detail=": ".join(w for w in (error.problem, place) if w)) from None
    except yaml.YAMLError as error:
        raise JsonTextError("this is not JSON", detail=str(error).splitlines()[0]) from None
    except RecursionError:
        raise JsonTextError("the JSON is nested too deeply") from None


def _at(message: str, event: Any) -> JsonTextError:
    return JsonTextError(message, detail=_in_words(event.start_mark))


def _line_and_column(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _in_words(mark: Any) -> str | None:
    return None if mark is None else "line {} column {}".format(*_line_and_column(mark))


def _name(event: Any, taken: Mapping[str, Any]) -> str:
    import yaml

    if not isinstance(event, yaml.ScalarEvent):
        raise _at("a name in an object must be a text", event)
    _no_tag(event)
    name = str(event.value)
    if name in taken:
        raise _at(f"the name {name!r:.60} occurs twice in one object", event)
    if len(name) > MAX_NAME:
        raise _at(f"a name of {len(name)} characters is too long", event)
    return name


def _no_tag(event: Any) -> None:
    if event.tag is not None:
        raise _at(f"tags are not supported: {event.tag!r:.60}", event)


def _scalar(event: Any) -> Any:
    value = str(event.value)
    if not event.implicit[0]:
        return value  # it is quoted
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(value):
            if convert is int and len(value) > MAX_DIGITS:
                raise _at(f"a number of {len(value)} digits is too large", event)
            return convert(value)
    return value
