"""Short words for the tests of patterns, on top of :mod:`asterism.testing`: ``found(pattern, "a1 b2 | c3")``.

In a word the letter is the event's ``name``, the number its time in milliseconds, and its ``n``. A stream goes on to the end
of time, unless its text ends in ``...``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from asterism.matching.outputs import OutputSpec
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.testing import Literals, PatternHarness

SCHEMA = pa.schema(
    [("key", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("n", pa.int64()), ("price", pa.float64())]
)
MILLISECOND = timedelta(milliseconds=1)
WORDS = Literals(kind="name", value="n", step=MILLISECOND, timed_by_value=True)


def ms(number: int) -> timedelta:
    return number * MILLISECOND


def stage(name: str) -> Pattern:
    """A pattern that begins with events of that name."""
    return Pattern.begin(name).where(f"name = '{name}'")


def chain(*names: str, by: str = "followed_by") -> Pattern:
    """One stage for each name, ``next``, ``followed_by`` or ``followed_by_any`` the one before."""
    pattern = stage(names[0])
    for name in names[1:]:
        pattern = getattr(pattern, by)(name).where(f"name = '{name}'")
    return pattern


class Run(PatternHarness):
    """Answers come with their time, ``a1 b2 @2``, and in the order in which they came out."""

    def __init__(
        self,
        pattern: Pattern,
        outputs: Mapping[str, OutputSpec] | None = None,
        *,
        keys: Sequence[str] = ("key",),
        **options: Any,
    ) -> None:
        super().__init__(pattern, SCHEMA, keys=keys, outputs=outputs, literals=WORDS, **options)

    def rows(self, name: str = "matches") -> list[dict[str, Any]]:
        return super().rows(name)

    @property
    def matches(self) -> list[str]:
        return self._timed("matches")

    @property
    def timed_out(self) -> list[str]:
        return self._timed("timed_out")

    def _timed(self, output: str) -> list[str]:
        return [f"{one.text} @{WORDS.time_text(one.time or 0)}" for one in self.found(output)]


def run(pattern: Pattern, text: str, **options: Any) -> Run:
    """Send a stream, to the end of time unless it ends in ``...``."""
    harness = Run(pattern, **options).send(text.removesuffix("..."))
    return harness if text.endswith("...") else harness.end()


def found(pattern: Pattern, text: str, **options: Any) -> list[str]:
    """The matches, without their times, in order of time and then of text."""
    matches: list[str] = PatternHarness.matches.__get__(run(pattern, text, **options))
    return matches


def in_flink(pattern: Pattern, text: str) -> Run:
    return run(pattern, text, semantics=Semantics.FLINK)
