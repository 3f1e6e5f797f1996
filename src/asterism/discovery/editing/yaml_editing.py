"""Edits the text of a YAML document. Everything that is not changed stays as it is, with comments, order and quoting.

See docs/decisions/0028.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from asterism.discovery.sources.documents import Document, read_document
from asterism.errors import PatternProcessorError
from asterism.text.strict_yaml import YamlPlace, written_yaml

REMOVED = object()
"""Replaces a removed item."""
_FLAGS = ("enabled", "shadow")


def edited(document: Document, wanted: Sequence[Any]) -> str | None:
    """The text of a YAML document with other items, or None if this would affect anything else.

    :param wanted: for each item, the same item, another one or :data:`REMOVED`, followed by the added items

    >>> document = read_document(b"# Ours\\n- id: a  # first\\n- {id: b}\\n", "rules.yaml")
    >>> print(edited(document, [{"id": "a", "enabled": False}, REMOVED, {"id": "c"}]), end="")
    # Ours
    - id: a  # first
      enabled: false
    - id: c
    """
    try:
        text = _edited(document, wanted)
        if text is None:
            return None
        items = read_document(text.encode(), "edited.yaml").items
    except (KeyError, PatternProcessorError):  # an alias, or a value behind one
        return None
    return text if _in_words(items) == _in_words([item for item in wanted if item is not REMOVED]) else None


def _in_words(items: Sequence[Any]) -> str:
    # Not compared as Python values, for which 1, 1.0 and True are equal.
    return json.dumps(items, sort_keys=True)


def _edited(document: Document, wanted: Sequence[Any]) -> str | None:
    root, items = document.root, document.items
    assert root is not None, "it is YAML"
    text = document.text if document.text.endswith("\n") else document.text + "\n"
    whole = root.inside.get("processors", root)
    dash = " " * (whole.start - _line_start(text, whole.start)) + "-"
    is_list = text[whole.start] == "-"  # neither a list in brackets nor a single rule
    changes: list[tuple[int, int, str]] = []
    """Start, end and replacement, in the order of the text."""
    for item, new, pointer in zip(items, wanted, document.pointers, strict=False):
        place = root.at(pointer)
        if new is item:
            continue
        flags = None if new is REMOVED else _flags(text, place, item, new)
        if flags is not None:
            changes += flags
        elif not is_list:
            return None
        else:
            # The change begins at the line of the dash, because there may be comments between the dash and the item.
            begin = text.rfind("\n" + dash, 0, place.start) + 1
            changes.append((begin, _next_line(text, place.end), "" if new is REMOVED else _written([new], dash)))
    added = wanted[len(items) :]
    if not items and added:  # replaces []
        begin = len(text[: whole.start].rstrip(" "))
        before = "\n" if _line_start(text, begin) < begin else ""
        changes.append((begin, whole.end, before + _written(added, "-").removesuffix("\n")))
    elif items and all(new is REMOVED for new in wanted):
        changes[0] = (*changes[0][:2], dash.replace("-", "  []\n"))
    elif added and not is_list:
        return None
    elif added:
        end = _next_line(text, whole.end)
        changes.append((end, end, _written(added, dash)))
    done, parts = 0, []
    for begin, end, put in changes:
        parts += [text[done:begin], put]
        done = end
    return "".join([*parts, text[done:]])


def _flags(text: str, place: YamlPlace, item: Any, new: Any) -> list[tuple[int, int, str]] | None:
    """The changes that turn *item* into *new*, in the order of the text; None if more than flags differ."""
    if _without_flags(item) != _without_flags(new):
        return None
    changes = []
    for name in _FLAGS:
        if name in new and (name not in item or item[name] is not new[name]):
            changes.append(_flag(text, place, name, new[name]))
        elif name in item and name not in new:
            there = place.inside[name]
            begin = _line_start(text, there.start)
            if text[begin : there.start].strip() != f"{name}:":  # in braces, or after the dash
                return None
            changes.append((begin, _next_line(text, there.end), ""))
    return sorted(changes)


def _flag(text: str, place: YamlPlace, name: str, value: Any) -> tuple[int, int, str]:
    """The change that sets a flag of a rule, or adds it below the id."""
    there = place.inside.get(name)
    flag = "true" if value else "false"
    if there is not None:
        return there.start, there.end, flag
    end = place.inside["id"].end
    if text[place.start] == "{":
        return end, end, f", {name}: {flag}"
    end = _next_line(text, end)
    return end, end, " " * (place.start - _line_start(text, place.start)) + f"{name}: {flag}\n"


def _without_flags(item: Any) -> Any:
    return {name: value for name, value in item.items() if name not in _FLAGS} if isinstance(item, Mapping) else item


def _written(items: Sequence[Any], dash: str) -> str:
    return re.sub("^(?=.)", dash.replace("-", ""), written_yaml(list(items)), flags=re.MULTILINE)


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _next_line(text: str, offset: int) -> int:
    """The start of the first line that does not begin before *offset*."""
    return offset if _line_start(text, offset) == offset else text.index("\n", offset) + 1
