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

_NAMED = re.compile(r"([\w.-]+:)(.*)")


def is_control(offset: Any) -> bool:
    """Whether it is the offset of a control source of Asterism."""
    return isinstance(offset, dict) and "definition" in offset and "keyGroups" in offset


def _named(line: str) -> tuple[str, str]:
    """(the name before an offset with a colon, the offset)."""
    named = _NAMED.fullmatch(line)
    return ("", line) if named is None else (named[1], named[2])


def _document(text: str) -> Any:
    """An offset; None: there is none yet, or it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def offsets_of_log(text: str) -> list[Any]:
    """The offsets in a file of Spark's offset log, one for each source: None if there is no offset yet, or if it is not JSON.
    In version 2 of the log, which queries with named sources have, each follows the name of its source.

    >>> offsets_of_log('v1\\n{"batchWatermarkMs": 0}\\n{"logOffset": 3}\\n-')
    [{'logOffset': 3}, None]
    >>> offsets_of_log('v2\\n{"batchWatermarkMs": 0}\\norders_2:{"logOffset": 3}\\npayments:-\\norders:{"logOffset": 5}')
    [{'logOffset': 5}, {'logOffset': 3}, None]
    """
    version, _, *lines = text.splitlines()
    if version != "v1":  # in any order; the names of control sources have the number of the operator
        lines = [offset for _, offset in sorted(map(_named, lines), key=lambda part: (len(part[0]), part[0]))]
    return [_document(line) for line in lines]


def key_groups_in(log: str, fingerprint: bytes | None = None) -> int:
    """The number of key groups of an operator.

    :param fingerprint: that of the operator, which is needed if there are several

    >>> key_groups_in('v1\\n{}\\n{"logOffset": 3}\\n{"messages": 0, "keyGroups": 8, "definition": "a7"}')
    8
    """
    offsets = [offset for offset in offsets_of_log(log) if is_control(offset)]
    of_operator = [each for each in offsets if fingerprint is not None and each["definition"] == fingerprint.hex()]
    return max(int(offset["keyGroups"]) for offset in of_operator or offsets)


def with_key_groups(log: str, key_groups: int | None) -> str:
    """An offset log of a query whose operators have another number of key groups; None: as many as before.

    >>> log = 'v1\\n{"batchWatermarkMs": 0}\\n{"logOffset": 3}\\n{"messages": 0, "keyGroups": 8, "definition": "a7"}'
    >>> print(with_key_groups(log, 32).splitlines()[-1])
    {"messages": 0, "keyGroups": 32, "definition": "a7"}
    """
    if key_groups is None:
        return log
    version, head, *lines = log.splitlines()
    changed = []
    for line in lines:
        name, text = _named(line)
        offset = _document(text)
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
        watermark = watermark_in(other)
        return "\n".join([version, json.dumps(json.loads(head) | {"nextBatchWatermarkMs": watermark}), *lines])
    except (ValueError, KeyError, IndexError, TypeError):
        raise StateError("the commit log of the checkpoint cannot be read", other[:200]) from None


def watermark_in(commit: str) -> int:
    """Spark's watermark in a commit log, in milliseconds; 0: there is none, as in a savepoint that was made from a table."""
    lines = commit.splitlines()[1:]
    return int(json.loads(lines[0]).get("nextBatchWatermarkMs", 0)) if lines else 0
