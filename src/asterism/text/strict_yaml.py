"""YAML as another way to write JSON: read strictly, and where in the text each value stands.

Strictly: the scalars of YAML 1.2's core schema, no name twice in one object, no tags, no merge keys, and aliases only as far as
what they stand for stays small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from asterism.text.strict_json import MAX_DIGITS, MAX_NAME, DocumentSyntaxError, offset_in_string

MAX_NODES = 1_000_000  # of a document, those that aliases repeat counted each time
MAX_CHARACTERS = 20_000_000  # of a document's texts and names, likewise
MAX_DEPTH = 200  # groups of patterns may be nested 50 deep

_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_BLOCK = re.compile(r"\S(.*\S)?\n?", re.DOTALL)
"""Texts of several lines that are readable as a block, whose indentation and end are plain."""
_SCALARS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (_FLOAT, float),
)
"""What a plain scalar means by the core schema, but for numbers that JSON does not have. Everything else is text."""


@dataclass(slots=True)
class YamlPlace:
    """Where a value begins and ends in the text, and what is inside it, by name or index.

    A list or an object that is written without brackets ends with the last value in it.
    """

    start: int
    end: int
    inside: dict[str, YamlPlace] = field(default_factory=dict)

    def at(self, pointer: str) -> YamlPlace:
        """The place of the value to which a JSON pointer (RFC 6901) leads, or of its closest ancestor."""
        place = self
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if name not in place.inside:
                break
            place = place.inside[name]
        return place


def offset_in_scalar(written: str, index: int) -> int:
    r"""Where the character at *index* of a string stands in the string as it is written. In a string that is folded, where it
    begins.

    >>> written = "|\n  PATTERN (A)\n  DEFINE\n    A AS x > 1\n"
    >>> written[offset_in_scalar(written, "PATTERN (A)\nDEFINE\n  A AS x".index("x")) :]
    'x > 1\n'
    """
    if written[:1] == "|":
        header, *lines = written.splitlines(keepends=True)
        indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
        offset = len(header)
        for line in lines:
            length = max(len(line.rstrip("\r\n")) - indent, 0) + 1
            if index < length:
                return offset + indent + index
            index -= length
            offset += len(line)
        return 0
    if "\n" in written or written[:1] == ">":
        return 0
    if written[:1] == '"':
        return offset_in_string(written, index)
    if written[:1] == "'":
        offset = 1
        for _ in range(index):
            offset += 2 if written[offset : offset + 2] == "''" else 1
        return offset
    return index


def read_yaml(text: str) -> tuple[Any, YamlPlace]:
    """The value of the one document in *text*, and where it stands.

    :raises DocumentSyntaxError: it is not YAML, or YAML that is refused here

    >>> value, place = read_yaml("- id: a  # the first\\n- id: b\\n")
    >>> value, place.at("/1/id").start
    ([{'id': 'a'}, {'id': 'b'}], 27)
    """
    return _YamlReader(text).document()


def read_yaml_documents(text: str) -> list[tuple[Any, YamlPlace]]:
    """The values of all documents in *text*, which ``---`` separates, and where they stand.

    :raises DocumentSyntaxError: it is not YAML, or YAML that is refused here

    >>> [value for value, _ in read_yaml_documents("a: 1\\n---\\nb: 2\\n")]
    [{'a': 1}, {'b': 2}]
    """
    return _YamlReader(text).documents()


def written_yaml(value: Any) -> str:
    """
    >>> print(written_yaml([{"id": "a", "answer": "no"}]), end="")
    - id: a
      answer: 'no'
    >>> print(written_yaml({"sql": "PATTERN (A B)\\nDEFINE A AS x > 1\\n"}), end="")
    sql: |
      PATTERN (A B)
      DEFINE A AS x > 1
    """

    class Dumper(yaml.SafeDumper):
        """Puts in quotation marks what is a number here, and text in YAML 1.1."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # PyYAML uses this style only if it can, which excludes, for example, spaces at the end of a line.
        style = "|" if "\n" in text and _BLOCK.fullmatch(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
    Dumper.add_representer(str, represent)
    readable = "\x85" not in json.dumps(value, ensure_ascii=False)  # a line break of old, which would not be read back
    return str(yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=readable, width=120))


class _YamlReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._events = _events(text)
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        """What an alias stands for, and how many values and characters that is."""
        self._nodes = self._characters = 0

    def document(self) -> tuple[Any, YamlPlace]:
        documents = self.documents(most=1)
        if not documents:
            raise DocumentSyntaxError("the YAML is empty")
        return documents[0]

    def documents(self, most: int | None = None) -> list[tuple[Any, YamlPlace]]:
        documents: list[tuple[Any, YamlPlace]] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if len(documents) == most:
                    raise self._error("there is a second YAML document", event)
                self._anchors = {}  # an alias stands for a value of its own document
            if isinstance(event, yaml.NodeEvent):
                documents.append(self._value(event, 0))
        return documents

    def _value(self, event: Any, depth: int) -> tuple[Any, YamlPlace]:
        """The value that begins with *event*."""
        nodes, characters = self._nodes, self._characters
        place = YamlPlace(event.start_mark.index, event.end_mark.index)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._error(f"the alias {event.anchor!r:.60} is undefined or refers to itself", event)
            value, *size = self._anchors[event.anchor]
            self._count(event, *size)
            return value, place
        self._refuse_tag(event)
        if isinstance(event, yaml.ScalarEvent):
            self._count(event, 1, len(event.value))
            value = self._scalar(event)
        else:
            if depth == MAX_DEPTH:
                raise self._error("the YAML is nested too deeply", event)
            self._count(event, 1, 0)
            value = [] if isinstance(event, yaml.SequenceStartEvent) else {}
            for inner in self._events:
                end = inner.end_mark.index
                if isinstance(inner, yaml.CollectionEndEvent):
                    place.end = end if event.flow_style else place.end
                    break
                if isinstance(value, list):
                    name = str(len(value))
                    item, there = self._value(inner, depth + 1)
                    value.append(item)
                else:
                    name = self._name(inner, value)
                    value[name], there = self._value(next(self._events), depth + 1)
                place.inside[name] = there
                place.end = there.end
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._nodes - nodes, self._characters - characters)
        return value, place

    def _name(self, event: Any, taken: dict[str, Any]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._error("a name in an object must be a string", event)
        self._refuse_tag(event)
        name = str(event.value)
        if name in taken:
            raise self._error(f"the name {name!r:.60} occurs twice in one object", event)
        if len(name) > MAX_NAME:
            raise self._error(f"a name of {len(name):,} characters is too long", event)
        self._count(event, 0, len(name))
        return name

    def _scalar(self, event: Any) -> Any:
        value = str(event.value)
        if not event.implicit[0]:
            return value  # it is quoted
        for pattern, convert in _SCALARS:
            if pattern.fullmatch(value):
                if convert is int and len(value) > MAX_DIGITS:
                    raise self._error(f"a number of {len(value):,} digits is too large", event)
                return convert(value)
        return value

    def _count(self, event: Any, nodes: int, characters: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > MAX_NODES:
            raise self._error(f"the YAML has more than {MAX_NODES:,} values", event)
        if self._characters > MAX_CHARACTERS:
            limit = f"limit {MAX_CHARACTERS:,} characters"
            raise self._error(f"the YAML is too large after expansion of its aliases ({limit})", event)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            raise self._error(f"tags are not supported: {event.tag!r:.60}", event)

    def _error(self, message: str, event: Any) -> DocumentSyntaxError:
        return DocumentSyntaxError(message, self._text, event.start_mark.index)


def _events(text: str) -> Iterator[Any]:
    # Tells the parts of the text only; nothing is made of tags.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        offset = None if mark is None else mark.index
        raise DocumentSyntaxError("invalid YAML", text, offset, detail=error.problem) from None
    except yaml.YAMLError as error:
        raise DocumentSyntaxError("invalid YAML", detail=str(error).splitlines()[0]) from None
    except RecursionError:
        raise DocumentSyntaxError("the YAML is nested too deeply") from None
