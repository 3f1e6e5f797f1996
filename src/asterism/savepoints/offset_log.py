"""The files of Spark's offset log and commit log, which a restored query continues with.

They are text: a version, a line of JSON with the watermark, the time and the settings of the micro-batch, and then the offset of
each source, in the order of the plan. In version 2, each offset follows the name of its source.

See docs/decisions/0129.
"""

from __future__ import annotations

import json
import re
from typing import Any

from asterism.errors import StateError

_NAMED = re.compile(r"([\w.-]+:)(\{.*)")


def is_control(offset: Any) -> bool:
    """Whether it is the offset of a control source of Asterism."""
    return isinstance(offset, dict) and "definition" in offset and "keyGroups" in offset


def _parsed(line: str) -> tuple[str, Any]:
    """(the name before an offset, the offset; None if it is no JSON)."""
    named = _NAMED.fullmatch(line)
    name, text = ("", line) if named is None else named.groups()
    try:
        return name, json.loads(text)
    except ValueError:
        return name, None


def key_groups_in(log: str) -> list[int]:
    """The number of key groups of each operator.

    >>> key_groups_in('v1\\n{}\\n{"logOffset": 3}\\n{"messages": 0, "keyGroups": 8, "definition": "a7"}')
    [8]
    """
    offsets = [_parsed(line)[1] for line in log.splitlines()[2:]]
    return [offset["keyGroups"] for offset in offsets if is_control(offset)]


def with_key_groups(log: str, key_groups: int) -> str:
    """An offset log of a query with another number of key groups.

    >>> log = 'v1\\n{"batchWatermarkMs": 0}\\n{"logOffset": 3}\\n{"messages": 0, "keyGroups": 8, "definition": "a7"}'
    >>> print(with_key_groups(log, 32).splitlines()[-1])
    {"messages": 0, "keyGroups": 32, "definition": "a7"}
    """
    version, head, *lines = log.splitlines()
    changed = []
    for line in lines:
        name, offset = _parsed(line)
        changed.append(name + json.dumps(offset | {"keyGroups": key_groups}) if is_control(offset) else line)
    return "\n".join([version, head, *changed])


def with_settings_of(log: str, other: str) -> str:
    """An offset log with the settings of another one, which has the number of stateful tasks that the state has."""
    version, head, *lines = log.splitlines()
    settings = json.loads(other.splitlines()[1]).get("conf", {})
    return "\n".join([version, json.dumps(json.loads(head) | {"conf": settings}), *lines])


def with_watermark_of(commit: str, other: str) -> str:
    """A commit log with the watermark of another one.

    :raises StateError: it is not the commit log of a version of Spark that is known
    """
    try:
        version, head, *lines = commit.splitlines()
        watermark = json.loads(other.splitlines()[1])["nextBatchWatermarkMs"]
        return "\n".join([version, json.dumps(json.loads(head) | {"nextBatchWatermarkMs": watermark}), *lines])
    except (ValueError, KeyError, IndexError, TypeError):
        raise StateError("the commit log of the checkpoint cannot be read", other[:200]) from None
