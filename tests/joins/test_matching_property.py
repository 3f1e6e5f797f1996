"""Rows are found by key and time, also if a key and a time do not fit into 64 bits together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.joins.matching import NO_KEY, ranges

KEYS = st.sampled_from([NO_KEY, 0, 1, 2, 50])
TIMES = st.sampled_from([BEFORE_TIME, -(2**60), -2, -1, 0, 1, 2, 2**60, END_OF_TIME])


@given(
    st.lists(st.tuples(KEYS, st.integers(-2, 2) | st.sampled_from([-(2**60), 2**60])), max_size=12),
    st.lists(st.tuples(KEYS, TIMES, TIMES).filter(lambda probe: probe[1] <= probe[2]), min_size=1, max_size=6),
)
def test_ranges_are_those_of_a_loop(rows: list[tuple[int, int]], probes: list[tuple[int, int, int]]) -> None:
    of_keys, of_times = (np.array([row[part] for row in rows], np.int64) for part in (0, 1))
    keys, first, last = (np.array([probe[part] for probe in probes], np.int64) for part in (0, 1, 2))
    begin, end, order = ranges(keys, first, last, of_keys, of_times)
    for number, (key, low, high) in enumerate(probes):
        expected = [at for at, (of, time) in enumerate(rows) if of == key != NO_KEY and low <= time <= high]
        expected.sort(key=lambda at: rows[at][1])
        assert order[begin[number] : end[number]].tolist() == expected
