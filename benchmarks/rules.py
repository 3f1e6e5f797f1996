"""W6: a hundred rules at once, as pattern processors. ``rules_w6.json`` is their definition; README.md says what they find."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism import Pattern
from asterism.rules.definition.processor import PatternProcessor
from benchmarks.harness import checksum

RULES = Path(__file__).parent / "rules_w6.json"
TAG = 100
"""A rule's checksum has this plus its number as tag."""


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RULES.read_text())
    return found


def processor(rule: dict[str, Any], name: str | None = None) -> PatternProcessor:
    a = f"kind = '{rule['kind_a']}' AND amount >= {rule['min_a']:.1f}D"
    b = f"kind = '{rule['kind_b']}' AND amount >= {rule['min_b']:.1f}D"
    pattern = Pattern.begin("a").where(a)
    if rule["template"] == "strict":
        pattern = pattern.next("b")
    elif rule["template"] == "triple":
        pattern = pattern.times(3).followed_by("b")
    else:
        pattern = pattern.followed_by("b")
    if rule["template"] == "grow":
        b += f" AND amount > {rule['factor']:.1f}D * LAST(a.amount)"
    pattern = pattern.where(b).within(timedelta(milliseconds=rule["within_ms"]))
    return PatternProcessor(name or str(rule["id"]), 1, pattern, key=tuple(rule["key"].split(",")))


def answer(matches: pa.Table) -> tuple[int, str]:
    """How many matches of how many rules there are, and the checksum over all of them."""
    total = 0
    for name in pc.unique(matches.column("processor_id")).to_pylist():
        mine = matches.filter(pc.equal(matches.column("processor_id"), name))
        events = mine.column("events").combine_chunks()
        times = pc.struct_field(pc.struct_field(events.flatten(), "event"), "event_time").cast(pa.int64())
        lists = pa.ListArray.from_arrays(_offsets(events), times)
        total += int(checksum(TAG + int(name), lists), 16)
    return matches.num_rows, f"{total % 2**64:016x}"


def _offsets(lists: pa.ListArray) -> pa.Array:
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def some(count: int) -> Iterable[PatternProcessor]:
    """The first *count* rules; beyond a hundred, again with other thresholds."""
    found = rules()
    for number in range(count):
        rule = dict(found[number % len(found)])
        if number >= len(found):
            rule["min_a"] += number // len(found)
        yield processor(rule, str(number))
