"""Whose answers a pattern gives."""

from __future__ import annotations

import enum


class Semantics(enum.Enum):
    """Whose answers. They differ in few, listed places: see ``docs/differences_from_flink.md``."""

    DEFAULT = "default"
    FLINK = "flink"
