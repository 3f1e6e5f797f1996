"""Ids of matches, by which a sink recognizes a match that it already has.

An id is a 128-bit hash of the pattern, the key, and for each event its stage, its time and its position among the visible
events of its key and time. An event is visible if it satisfies one of the conditions; all events are visible if a stage uses
strict contiguity. The id is the same in every run over the same events; it does not depend on the boundaries of micro-batches,
the selected outputs or other patterns over these events.

See docs/decisions/0011.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from asterism.columns.ids import Numbers, as_hex
from asterism.columns.keys import key_strings
from asterism.matching.matcher import MatchColumns, Step


def match_ids(
    step: Step, matched: MatchColumns, keys: Sequence[str], seeds: Numbers, *, with_stages: bool = True
) -> pa.Array:
    """The id of each match, 32 hexadecimal digits.

    :param keys: the columns of ``step.keys`` that form the key of an event
    :param seeds: the result of :func:`seed_of` for each match, or one for all
    :param with_stages: whether matches of the same events in other stages have other ids
    """
    from asterism.columns.hashing import hash_strings, mixed

    counts = np.diff(matched.offsets)
    seeds = np.broadcast_to(seeds, (len(matched), 2))
    used, place = np.unique(matched.key, return_inverse=True)
    key_hashes = hash_strings(key_strings(step.keys.select(keys).take(pa.array(used)).columns, len(used)))[place]
    ids = np.empty((len(matched), 2), ">u8")
    for half in range(2):
        events = np.repeat(seeds[:, half], counts)
        for part in (step.times[matched.events], matched.positions, *([matched.stages] if with_stages else [])):
            events = mixed(events ^ part.astype(np.int64).view(np.uint64))
        # The events of a match differ in these values, so the hash need not depend on their order.
        ids[:, half] = mixed(np.add.reduceat(events, matched.offsets[:-1]) ^ key_hashes)
    return as_hex(ids.view(np.uint8))
