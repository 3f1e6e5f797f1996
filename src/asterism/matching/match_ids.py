"""Identities of matches, by which a sink can tell that it has a match already.

An id is a hash of 128 bits of what was looked for, the key, and of each event its stage, its time and its position among the
events of its key that have this time and that the pattern can see: those that meet one of its conditions, or all where it asks
for the very next one. It is the same in every run over the same events, wherever micro-batches end, whichever outputs are taken,
and whichever other patterns look at these events.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asterism.columns.keys import key_texts
from asterism.matching.matcher import Found, Step

Numbers = npt.NDArray[np.uint64]

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def seed_of(*words: str | int) -> Numbers:
    """Two numbers that stand for what was looked for; the same in every process."""
    return np.frombuffer(hashlib.sha256(json.dumps(words).encode()).digest()[:16], ">u8").astype(np.uint64)


def match_ids(step: Step, found: Found, keys: Sequence[str], seeds: Numbers) -> pa.Array:
    """The id of each match, 32 hexadecimal digits.

    :param keys: the columns of ``step.keys`` that make the key of an event
    :param seeds: for each match, or for all, what :func:`seed_of` gave
    """
    from asterism.columns.hashing import hash_texts, mixed

    counts = np.diff(found.offsets)
    seeds = np.broadcast_to(seeds, (len(found), 2))
    used, place = np.unique(found.key, return_inverse=True)
    key_hashes = hash_texts(key_texts(step.keys.select(keys).take(pa.array(used)).columns, len(used)))[place]
    ids = np.empty((len(found), 2), ">u8")
    for half in range(2):
        events = np.repeat(seeds[:, half], counts)
        for part in (step.times[found.events], found.positions, found.stages):
            events = mixed(events ^ part.astype(np.int64).view(np.uint64))
        # No two events of a match are alike in all of this, so their order need not count.
        ids[:, half] = mixed(np.add.reduceat(events, found.offsets[:-1]) ^ key_hashes)
    return _as_hex(ids.view(np.uint8))


def _as_hex(octets: npt.NDArray[np.uint8]) -> pa.Array:
    digits = np.empty((len(octets), 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEX[octets >> 4], _HEX[octets & 15]
    offsets = np.arange(len(octets) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(octets), pa.py_buffer(offsets), pa.py_buffer(digits))
