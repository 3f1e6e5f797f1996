"""Labels over matches, compared with a slow twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asterism.streams.evidence import Spans, covered

KEYS = st.sampled_from([("a",), ("b",), (None,)])
MATCHES = st.lists(st.tuples(KEYS, st.integers(0, 12), st.integers(0, 6)), max_size=12)
EVENTS = st.lists(st.tuples(KEYS, st.integers(0, 14)), max_size=12)


@given(MATCHES, EVENTS)
def test_labels_are_those_between_the_ends_of_a_match(
    matches: list[tuple[tuple[str | None], int, int]], events: list[tuple[tuple[str | None], int]]
) -> None:
    ends = [(key, start, start + length) for key, start, length in matches]
    start, end = (np.array([one[n] for one in ends], np.int64) for n in (1, 2))
    spans = Spans(["r"] * len(ends), ["added"] * len(ends), [one[0] for one in ends], start, end)
    labelled = {key: np.array(sorted(time for of, time in events if of == key)) for key in {key for key, _ in events}}
    holds, found = covered(spans, labelled)
    inside = [[(of, at) for of, at in events if of == key and first <= at <= last] for key, first, last in ends]
    assert holds.tolist() == [bool(those) for those in inside]
    assert found == sum(any((of, at) in those for those in inside) for of, at in events)
