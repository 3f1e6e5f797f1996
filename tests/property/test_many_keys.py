"""Keys share batches, pages and calls, and nothing else: together they give what each gives alone."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asterism.cep import KEY_HASH, CepOperator
from asterism.compiler import Semantics, compile_pattern
from asterism.conformance import SCHEMA, cut, to_micros
from asterism.errors import AsterismError
from asterism.json_format import pattern_from_json
from asterism.operator import BEFORE_TIME, Now
from asterism.outputs import OutputKind, OutputSpec
from asterism.state import MemoryStore
from tests.property.strategies import events, patterns, steps

Json = dict[str, Any]
KEYED = SCHEMA.insert(0, pa.field("key", pa.string()))
OUTPUTS = {kind.value: OutputSpec(kind) for kind in OutputKind}
KEYS = ("u", "v", None)


def answers(
    case: Json, semantics: Semantics, keys: dict[int, str | None], pages: int, cuts: str = "whole"
) -> Counter[str]:
    """Every row of every output; *keys* gives the key of each event that is to take part."""
    operator = CepOperator(
        pattern_from_json(case["pattern"]),
        KEYED,
        keys=["key"],
        time="ts",
        outputs=OUTPUTS,
        semantics=semantics,
        pages=pages,
    )
    store, watermark, rng = MemoryStore(), BEFORE_TIME, random.Random(4)
    rows = {row[0]: row for row in case["events"]}
    found: Counter[str] = Counter()

    def call(tables: list[pa.Table]) -> None:
        for name, table in operator.process(store, tables, Now(watermark)).outputs.items():
            found.update(json.dumps([name, row], default=str) for row in table.to_pylist())

    for step in case["steps"]:
        for piece in cut([number for number in step["events"] if number in keys], cuts, rng):
            columns = [
                [keys[number] for number in piece],
                *([rows[number][at] for number in piece] for at in range(len(SCHEMA))),
            ]
            hashes = pa.array([KEYS.index(keys[number]) << 32 for number in piece], pa.int64())
            call([operator.prepare(pa.table(columns, schema=KEYED).append_column(KEY_HASH, hashes))])
        if "watermark" in step:
            watermark = max(watermark, to_micros(step["watermark"]))
            call([])
    return found


@pytest.mark.parametrize("semantics", list(Semantics), ids=lambda semantics: semantics.value)
@settings(max_examples=max(1, settings().max_examples // 3))
@given(
    data=st.data(),
    pattern=patterns(),
    pages=st.sampled_from([1, 2, 3]),
    cuts=st.sampled_from(["whole", "rows", "random"]),
)
def test_keys_together_give_what_each_gives_alone(
    semantics: Semantics, data: st.DataObject, pattern: Json, pages: int, cuts: str
) -> None:
    """On one page of state or several, however the events are cut."""
    try:
        compile_pattern(pattern_from_json(pattern), semantics)
    except AsterismError:
        assume(False)
    rows = data.draw(events(shortest=6, longest=14))
    case: Json = {"pattern": pattern, "events": rows, "steps": data.draw(steps(rows))}
    keys = {row[0]: data.draw(st.sampled_from(KEYS)) for row in rows}
    together = answers(case, semantics, keys, pages, cuts)
    alone: Counter[str] = Counter()
    for key in KEYS:
        alone += answers(case, semantics, {number: own for number, own in keys.items() if own == key}, 1)
    assert together == alone, json.dumps([case, keys])
