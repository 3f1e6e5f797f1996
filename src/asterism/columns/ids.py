"""Ids of 128 bits, which are the same in every process: of matches, of sessions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.uint64]

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def seed_of(*words: str | int) -> Numbers:
    """Two numbers from names, such as those of a pattern; the same in every process."""
    return np.frombuffer(hashlib.sha256(json.dumps(words).encode()).digest()[:16], ">u8").astype(np.uint64)


def ids_of_numbers(seed: Numbers, keys: pa.Array, numbers: Sequence[npt.NDArray[np.int64]]) -> pa.Array:
    """Ids of what is identified by its key, a string, and by *numbers*, each a column."""
    from asterism.columns.hashing import hash_strings, mixed

    key_hashes = hash_strings(keys)
    ids = np.empty((len(keys), 2), ">u8")
    for half in range(2):
        values = np.repeat(seed[half], len(keys))
        for column in numbers:
            values = mixed(np.bitwise_xor(values, column.view(np.uint64)))
        ids[:, half] = mixed(values ^ key_hashes)
    return as_hex(ids.view(np.uint8))


def as_hex(octets: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of 16 bytes as strings of 32 hexadecimal digits."""
    digits = np.empty((len(octets), 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEX[octets >> 4], _HEX[octets & 15]
    offsets = np.arange(len(octets) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(octets), pa.py_buffer(offsets), pa.py_buffer(digits))
