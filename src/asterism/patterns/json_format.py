"""The shared part of reading and writing the JSON form of patterns: the graph format of dynamic Flink CEP.

A graph has ``nodes`` and ``edges`` that form one chain; a node is ``ATOMIC`` (a stage) or ``COMPOSITE`` (a group, itself a
graph). Conditions are ``{"type": "SQL", "expression": text}``, or name a condition of the query. ``docs/pattern_json.md``
describes all fields.

Source: https://docs.ververica.com/docs/reference/flink-cep (the format), FLIP-200 (what it is for).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from importlib.resources import files
from typing import Any

from asterism.patterns.sequence import PatternSequence, Taking

Json = dict[str, Any]

VERSION = 1
UNITS = {
    "DAYS": timedelta(days=1),
    "HOURS": timedelta(hours=1),
    "MINUTES": timedelta(minutes=1),
    "SECONDS": timedelta(seconds=1),
    "MILLISECONDS": timedelta(milliseconds=1),
    "MICROSECONDS": timedelta(microseconds=1),
}
TAKING = {
    "GREEDY": Taking.GREEDY,
    "GIVE_BACK": Taking.GIVING_BACK,
    "LONGEST": Taking.LONGEST,
    "RELUCTANT": Taking.RELUCTANT,
}
"""The quantifier properties that define how many events a loop accepts. Flink has only the first."""
ANCHORS: dict[str, Callable[[Any], Any]] = {
    "startsWithFirstEvent": PatternSequence.starts_with_first_event,
    "endsWithLastEvent": PatternSequence.ends_with_last_event,
}


def pattern_json_schema() -> Json:
    """The JSON Schema (draft 2020-12) of the format, which is also the file ``asterism/patterns/pattern.schema.json``.

    :meth:`Pattern.from_json` refuses everything that the schema refuses, and more: the schema cannot check that edges form a
    chain.

    >>> pattern_json_schema()["properties"]["type"]
    {'const': 'COMPOSITE'}
    """
    schema: Json = json.loads((files("asterism.patterns") / "pattern.schema.json").read_text(encoding="utf-8"))
    return schema
