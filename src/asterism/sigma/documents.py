"""The YAML documents of Sigma files: rules, correlations and filters, with the line at which each begins.

A file is first read strictly (:mod:`asterism.text.strict_yaml`), which bounds its size, depth and aliases. Its values are then
those that pySigma's own loader gives, for which a plain ``0x10`` is a number.
"""

from __future__ import annotations

import copy
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asterism.errors import MissingPackageError, PatternProcessorError
from asterism.text.strict_json import DocumentSyntaxError, line_and_column, text_of
from asterism.text.strict_yaml import read_yaml_documents

if TYPE_CHECKING:
    from types import ModuleType

MAX_BYTES = 20_000_000
MAX_VALUES = 20_000
"""The maximum number of values in a rule."""
MAX_CONDITION = 10_000
"""The maximum number of characters of a condition."""
MAX_TESTED = 500_000
"""The maximum product of the words of the conditions of a rule and its values, to which ``1 of them`` in a condition leads."""
MAX_NESTED = 30
"""The maximum nesting of parentheses in a condition, and of negations next to each other."""
_MARKER = re.compile(r"^(?:---|\.\.\.)(?=\s|$)[ \t]*", re.M)
"""What separates the documents of a file."""


def pysigma() -> ModuleType:
    """pySigma, which only this package imports.

    :raises MissingPackageError: it is not installed
    """
    try:
        import sigma.collection
        import sigma.exceptions
    except ImportError:
        raise MissingPackageError("Sigma rules need pySigma", hint="pip install 'asterism[sigma]'") from None
    return sigma


@dataclass(frozen=True, slots=True)
class SigmaDocument:
    """A document of a file.

    :ivar names: by which correlations and filters refer to it: its id and its name
    :ivar id: identifies the rule: its id, its name or its title; None: it has none of them
    :param text: as its author wrote it, with comments; None: parts of it stand in other documents
    """

    file: str
    line: int
    value: Mapping[str, Any]
    text: str | None = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def kind(self) -> str:
        return next((kind for kind in ("correlation", "filter") if kind in self.value), "rule")

    @property
    def id(self) -> str | None:
        return next((text for name in ("id", "name", "title") if (text := _text(self.value.get(name)))), None)

    @property
    def names(self) -> list[str]:
        return [text for name in ("id", "name") if (text := _text(self.value.get(name)))]

    def copy(self) -> dict[str, Any]:
        """A copy, because pySigma changes what it reads."""
        return copy.deepcopy(dict(self.value))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def documents_of(source: bytes | str, file: str) -> list[SigmaDocument]:
    """
    :raises PatternProcessorError: the file as a whole cannot be read
    :raises MissingPackageError: pySigma is not installed
    """
    pysigma()
    import yaml
    from sigma.rule.base import SigmaYAMLLoader

    try:
        text = source if isinstance(source, str) else text_of(source, MAX_BYTES, "YAML")
        places = [place for _, place in read_yaml_documents(text)]
        values = list(yaml.load_all(text, SigmaYAMLLoader))
    except DocumentSyntaxError as error:
        where = f"line {error.line} column {error.column}" if error.offset is not None else None
        detail = ": ".join(words for words in (error.detail, where) if words) or None
        raise PatternProcessorError(error.message, detail, error.hint) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PatternProcessorError("the YAML cannot be read", str(error)[:300] or None) from None
    documents, written = [], _WrittenDocuments(text)
    for value, place in zip(values, places, strict=True):
        line = line_and_column(text, place.start)[0]
        if value is not None and not isinstance(value, dict):
            raise PatternProcessorError("a Sigma rule must be an object", f"line {line}")
        if value:
            documents.append(SigmaDocument(file, line, value, written.at(place.start)))
    try:
        return list(_merged(documents))
    except (TypeError, AttributeError):  # a document has a value where another one has a mapping
        problem = "the documents of the file do not have the same form, so they cannot be merged"
        raise PatternProcessorError(problem, hint="action: global") from None


class _WrittenDocuments:
    """The documents of a text as they are written."""

    def __init__(self, text: str) -> None:
        self._text = text
        spans = [marker.span() for marker in _MARKER.finditer(text)]
        self._begins, self._ends = [0, *(end for _, end in spans)], [*(begin for begin, _ in spans), len(text)]

    def at(self, place: int) -> str:
        """The document whose value begins at *place*."""
        number = bisect_right(self._begins, place) - 1
        return self._text[self._begins[number] : self._ends[number]].strip("\n") + "\n"


def _merged(documents: list[SigmaDocument]) -> Iterator[SigmaDocument]:
    """Apply the actions of collections: a ``global`` document has values of all that follow, up to a ``reset``."""
    from sigma.collection import deep_dict_update

    shared: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for document in documents:
        action = document.value.get("action")
        value = document.copy()
        value.pop("action", None)
        if action == "global":
            shared = last = value
            continue
        if action == "reset":
            shared = {}
            continue
        if action == "repeat":
            last = deep_dict_update(copy.deepcopy(last), value)
        elif action is not None:
            raise PatternProcessorError(
                f"unknown action {action!r:.60}", f"line {document.line}; actions: global, reset, repeat"
            )
        elif document.kind == "rule":
            last = deep_dict_update(value, copy.deepcopy(shared))
        else:
            last = value
        text = document.text if last == document.value else None
        yield SigmaDocument(document.file, document.line, last, text)


def check_size(value: Any) -> None:
    """:raises PatternProcessorError: the rule is larger than a rule may be"""
    count, waiting = 0, [value]
    while waiting:
        current = waiting.pop()
        inside = list(current.values()) if isinstance(current, dict) else current if isinstance(current, list) else []
        count += len(inside)
        if count > MAX_VALUES:
            raise PatternProcessorError(f"the rule has more than {MAX_VALUES:,} values")
        waiting += inside
    for section in ("detection", "filter", "correlation"):
        inside = value.get(section)
        condition = inside.get("condition") if isinstance(inside, dict) else None
        texts = [text for text in (condition if isinstance(condition, list) else [condition]) if isinstance(text, str)]
        for text in texts:
            _check_condition(text)
        words = sum(len(text.split()) for text in texts)
        if words * count > MAX_TESTED:
            raise PatternProcessorError(
                f"the condition has {words:,} words, and the rule {count:,} values (limit of the product {MAX_TESTED:,})",
                "Each word may stand for all selections.",
            )


def _check_condition(text: str) -> None:
    if len(text) > MAX_CONDITION:
        raise PatternProcessorError(f"the condition has {len(text):,} characters (limit {MAX_CONDITION:,})")
    depth = negations = 0
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        depth += (word == "(") - (word == ")")
        negations = negations + 1 if word == "not" else negations if word == "(" else 0
        if depth > MAX_NESTED or negations > MAX_NESTED:
            raise PatternProcessorError(f"the condition is nested too deeply (limit {MAX_NESTED} levels)")
