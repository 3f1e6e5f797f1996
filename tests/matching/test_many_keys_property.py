"""Keys share batches, pages, key groups and calls, and nothing else: together they give what each gives alone. And all that is
known between two events is in the state.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asterism.columns.time import END_OF_TIME
from asterism.conformance.corpus import SCHEMA, cut, to_micros
from asterism.errors import AsterismError
from asterism.operators.operator import Now
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.testing import PatternHarness
from tests.kit import small_pages
from tests.patterns.strategies import events, patterns, steps

Json = dict[str, Any]
KEYED = SCHEMA.insert(0, pa.field("key", pa.string()))
KEYS = ("u", "v", None)
BOTH = pytest.mark.parametrize("semantics", list(Semantics), ids=lambda semantics: semantics.value)
pytestmark = pytest.mark.filterwarnings("ignore::asterism.errors.PatternWarning")  # random patterns may mean nothing
FEWER = settings(max_examples=max(1, settings().max_examples // 3))


class Run(PatternHarness):
    """A case, its events spread over keys; *keys* gives the key of each event that is to take part."""

    def run(
        self, case: Json, keys: dict[int, str | None], cuts: str, *, restored: bool = False, only_when_due: bool = False
    ) -> Run:
        """*restored*: go on from a snapshot after every batch. *asked*: time passes without calls that the operator did not
        ask for, as on Spark.
        """
        harness, rng = self, random.Random(4)
        rows = {row[0]: row for row in case["events"]}
        for step in case["steps"]:
            for piece in cut([number for number in step["events"] if number in keys], cuts, rng):
                columns = [
                    [keys[number] for number in piece],
                    *([rows[number][at] for number in piece] for at in range(len(SCHEMA))),
                ]
                harness.feed(pa.table(columns, schema=KEYED))
                if restored:
                    harness = run_of(case, self.cep.pattern.semantics).restore(harness.snapshot())
            if "watermark" in step:
                watermark = max(harness.now.watermark, to_micros(step["watermark"]))
                if (
                    not only_when_due
                    or watermark == END_OF_TIME
                    or (harness.next_time is not None and harness.next_time <= watermark)
                ):
                    harness.move(watermark=watermark)
                else:
                    harness.now = Now(watermark)
        return harness

    @property
    def all_rows(self) -> Counter[str]:
        return Counter(json.dumps([name, row], default=str) for name in self.outputs for row in self.rows(name))


def run_of(case: Json, semantics: Semantics, **options: Any) -> Run:
    return Run(Pattern.from_json(case["pattern"]), KEYED, keys=["key"], semantics=semantics, **options)


@st.composite
def keyed_cases(draw: st.DrawFn, semantics: Semantics) -> tuple[Json, dict[int, str | None]]:
    """A case whose pattern means something, and the key of each event."""
    pattern = draw(patterns())
    try:
        compile_pattern(Pattern.from_json(pattern), semantics)
    except AsterismError:
        assume(False)
    rows = draw(events(shortest=6, longest=14))
    case: Json = {"pattern": pattern, "events": rows, "steps": draw(steps(rows))}
    return case, {row[0]: draw(st.sampled_from(KEYS)) for row in rows}


@BOTH
@FEWER
@given(
    data=st.data(),
    key_groups=st.sampled_from([1, 2, 16]),
    pages=st.sampled_from([1, 3, None]),
    cuts=st.sampled_from(["whole", "rows", "random"]),
)
def test_keys_together_give_what_each_gives_alone(
    semantics: Semantics, data: st.DataObject, key_groups: int, pages: int | None, cuts: str
) -> None:
    """In one key group or several, which is what Spark's partitions are made of; on one page of state or several; however
    the events are cut.
    """
    case, keys = data.draw(keyed_cases(semantics))
    with small_pages():
        together = run_of(case, semantics, key_groups=key_groups, pages=pages).run(case, keys, cuts).all_rows
    alone: Counter[str] = Counter()
    for key in KEYS:
        own = {number: of for number, of in keys.items() if of == key}
        alone += run_of(case, semantics).run(case, own, "whole").all_rows
    assert together == alone, json.dumps([case, keys])


@BOTH
@FEWER
@given(data=st.data())
def test_state_is_all_there_is(semantics: Semantics, data: st.DataObject) -> None:
    """A restart after every single event changes nothing: a new operator goes on from the bytes that the last one left."""
    case, keys = data.draw(keyed_cases(semantics))
    whole = run_of(case, semantics).run(case, keys, "whole")
    restored = run_of(case, semantics).run(case, keys, "rows", restored=True)
    assert restored.all_rows == whole.all_rows, json.dumps([case, keys])


@BOTH
@FEWER
@given(data=st.data(), key_groups=st.sampled_from([1, 3]))
def test_the_operator_asks_for_every_call_that_it_needs(
    semantics: Semantics, data: st.DataObject, key_groups: int
) -> None:
    """Spark calls a key group that has no events only when its timer has fired."""
    case, keys = data.draw(keyed_cases(semantics))
    always = run_of(case, semantics, key_groups=key_groups).run(case, keys, "whole")
    only_when_due = run_of(case, semantics, key_groups=key_groups).run(case, keys, "whole", only_when_due=True)
    assert only_when_due.all_rows == always.all_rows, json.dumps([case, keys])
