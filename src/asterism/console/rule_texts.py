"""Changes single fields in the text of a rule, and leaves everything else as it is written, with its comments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from asterism.text.strict_json import DocumentSyntaxError
from asterism.text.strict_yaml import YamlPlace, read_yaml, written_yaml


def with_fields(text: str, fields: Mapping[str, Any]) -> str:
    """The text of one rule with other values of some fields; None removes a field.

    :raises DocumentSyntaxError: the text is not YAML

    >>> text = "id: a  # ours\\nsql: |\\n  PATTERN (A)\\nlabels: {owner: ann}\\n"
    >>> print(with_fields(text, {"sql": "PATTERN (B)", "version": 2}), end="")
    id: a  # ours
    sql: PATTERN (B)
    labels: {owner: ann}
    version: 2
    """
    for name, value in fields.items():
        text = _with_field(text if text.endswith("\n") else text + "\n", name, value)
    return text


def _with_field(text: str, name: str, value: Any) -> str:
    item, root = read_yaml(text)
    wanted = {known: there for known, there in item.items() if known != name or value is not None}
    if value is not None:
        wanted[name] = value
    changed = _changed_text(text, root, name, value) if wanted else None
    if changed is not None:
        try:
            if _words(read_yaml(changed)[0]) == _words(wanted):
                return changed
        except DocumentSyntaxError:
            pass
    return written_yaml(wanted)


def with_label(text: str, name: str, value: str) -> str:
    """The text of one rule with another value of a label; an empty one removes it.

    :raises DocumentSyntaxError: the text is not YAML

    >>> print(with_label("id: a\\nlabels:\\n  owner: ann  # since May\\n  title: Old\\n", "title", "New"), end="")
    id: a
    labels:
      owner: ann  # since May
      title: New
    """
    item, root = read_yaml(text)
    labels = item.get("labels") or {}
    if not isinstance(labels, Mapping) or labels.get(name, "") == value:
        return text
    wanted = {label: there for label, there in labels.items() if label != name or value} | (
        {name: value} if value else {}
    )
    place = root.inside["labels"].inside.get(name) if labels else None
    if place is not None and value:
        # In its place, in quotation marks where it needs them.
        written = written_yaml({name: value}).removesuffix("\n").partition(": ")[2]
        puts = [written, json.dumps(value, ensure_ascii=False)]
        for put in puts[:: -1 if text[place.start : place.start + 1] == '"' else 1]:
            changed = text[: place.start] + put + text[place.end :]
            with suppress(DocumentSyntaxError):
                if "\n" not in put and _words(read_yaml(changed)[0]) == _words(item | {"labels": wanted}):
                    return changed
    return with_fields(text, {"labels": wanted or None})


def _changed_text(text: str, root: YamlPlace, name: str, value: Any) -> str | None:
    """None: the rule is in braces, or its fields are not at the start of lines."""
    if text[root.start : root.start + 1] == "{" or text.rfind("\n", 0, root.start) + 1 != root.start:
        return None
    put = "" if value is None else written_yaml({name: value})
    there = root.inside.get(name)
    if there is None:
        return text + put
    keys = [found.start() for found in re.finditer(rf"^{re.escape(name)}[ ]*:", text[: there.start + 1], re.MULTILINE)]
    if not keys:
        return None
    end = there.end if text[there.end - 1 : there.end] == "\n" else text.find("\n", there.end) + 1
    return text[: keys[-1]] + put + text[end:]


def _words(item: Any) -> str:
    # Not compared as Python values, for which 1, 1.0 and True are equal.
    return json.dumps(item, sort_keys=True)
