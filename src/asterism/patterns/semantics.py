"""The two semantics of patterns."""

from __future__ import annotations

import enum


class Semantics(enum.Enum):
    """The default semantics, or exactly Flink's. They differ in few cases: see ``docs/differences_from_flink.md``."""

    DEFAULT = "default"
    FLINK = "flink"
