"""Compares matches with expected ones, and reports the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from asterism.arguments import expect, expect_strings, shown
from asterism.columns.time import BEFORE_TIME
from asterism.errors import StreamDefinitionError
from asterism.testing.literals import WORDS, Literals
from asterism.testing.pattern_harness import Finding, PatternHarness, in_order

# ---------------------------------------------------------------------- assertions

Expected = str | Mapping[str, str | Sequence[str]]
MAX_SHOWN = 40
"""Maximum number of events, and of lines of a difference, in a message."""


def assert_matches(
    actual: PatternHarness | Sequence[Expected],
    expected: Sequence[Expected],
    *,
    output: str = "matches",
    in_any_order: bool = False,
) -> None:
    """Assert that the actual matches are the expected ones.

    The matches of each key must be in the order of their times; the order of matches with equal times is not compared.

    :param actual: a harness; or a list of matches, which must be in the expected order
    :param expected: each match as a string (``"a1 b2"``, with a time ``"a1 b2 @2s"``) or as a dict by stage
        (``{"a": "a1", "b": ["b2", "b3"]}``)
    :param output: the name of an output of the harness
    :raises AssertionError: they differ; the message has the differences

    >>> from asterism import Pattern
    >>> from asterism.testing import match
    >>> pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'")
    >>> assert_matches(match(pattern, "a1 b2 a3 b4"), ["a1 b2", {"a": "a3", "b": "b4"}])
    >>> assert_matches(match(pattern, "a1 x2 b3 a4 b5"), ["a1 b3", "a4 b5"])
    Traceback (most recent call last):
    ...
    AssertionError: matches: 1 missing
    <BLANKLINE>
        expected   found
      - a1 b3
        a4 b5      a4 b5 @5s
    <BLANKLINE>
      a1 b3: reached a1, which was dropped at x2@2s
      events: a1@1s x2@2s b3@3s a4@4s b5@5s
    """
    __tracebackhide__ = True
    for argument in (expected, actual):
        if isinstance(argument, str | bytes | Mapping) or not isinstance(argument, Sequence | PatternHarness):
            raise StreamDefinitionError(f"matches must be a list of strings, not {shown(argument)}", hint='["a1 b2"]')
    expect(StreamDefinitionError, expected, Sequence, "the expected matches must be a list", '["a1 b2"]')
    literals = actual.literals if isinstance(actual, PatternHarness) else WORDS
    if isinstance(actual, PatternHarness):
        findings = [
            finding if finding.time is not None else Finding(finding.key, number, finding.stages)
            for number, finding in enumerate(actual.found(output))
        ]
    else:
        findings = [Finding((), number, _expected(match, literals).stages) for number, match in enumerate(actual)]
    expected_findings = [_expected(match, literals) for match in expected]
    difference = Difference.of(expected_findings, in_order(findings), in_any_order)
    if all(mark == " " for mark, _, _ in difference.lines):
        return
    notes = []
    if isinstance(actual, PatternHarness):
        if output == "matches" and actual.cep.event_time:
            known = {finding.text for finding in findings}  # these differ only in their times or stages
            missing = [finding.text for finding in difference.missing if finding.text not in known]
            notes = list(_nearest(actual, missing[:3]))
        notes.append("events: " + _events_text(actual))
    written = literals if isinstance(actual, PatternHarness) and output != "late" else None
    by_stage = any(not isinstance(match, str) for match in expected)
    raise AssertionError(difference.text(output, written, notes, by_stage=by_stage))


def _expected(match: Expected, literals: Literals) -> Finding:
    """The expected match. Without a time, its time is None; without stages, it has a single stage with an empty name."""
    expect(
        StreamDefinitionError,
        match,
        str | Mapping,
        "a match must be a string, or a dict of its events by stage",
        '["a1 b2"]',
    )
    if isinstance(match, str):
        words = match.split()
        time = None
        if words and words[-1].startswith("@"):
            time = literals.micros(words.pop()[1:])
        return Finding((), time, {"": words})
    for texts in match.values():
        if not isinstance(texts, str):
            expect_strings(
                StreamDefinitionError,
                texts,
                "the events of a stage must be a string or a list of strings",
                '{"a": "a1 a2"}',
            )
    return Finding((), None, {stage: w.split() if isinstance(w, str) else list(w) for stage, w in match.items() if w})


@dataclass(slots=True)
class Difference:
    """(mark, expected match, actual match) of each line; the marks are - missing, + unexpected, ~ out of order."""

    lines: list[tuple[str, Finding | None, Finding | None]] = field(default_factory=list)

    @classmethod
    def of(cls, expected: Sequence[Finding], findings: Sequence[Finding], in_any_order: bool) -> Difference:
        difference = cls()
        left = list(findings)
        last: dict[tuple[Any, ...], int] = {}
        for finding in expected:
            actual = next((actual for actual in left if _fits(finding, actual)), None)
            mark = "-"
            if actual is not None:
                left.remove(actual)
                assert actual.time is not None
                mark = " " if in_any_order or last.get(actual.key, actual.time) <= actual.time else "~"
                last[actual.key] = max(last.get(actual.key, actual.time), actual.time)
            difference.lines.append((mark, finding, actual))
        difference.lines += [("+", None, actual) for actual in left]
        return difference

    @property
    def missing(self) -> list[Finding]:
        return [expected for mark, expected, _ in self.lines if mark == "-" and expected is not None]

    def text(
        self,
        title: str,
        literals: Literals | None,
        notes: Sequence[str] = (),
        titles: tuple[str, str] = ("expected", "found"),
        by_stage: bool = False,
    ) -> str:
        """
        :param literals: the format of the times of actual matches; None: without times
        """
        marks = Counter(mark for mark, _, _ in self.lines)
        kinds = {"-": "missing", "+": "unexpected", "~": "out of order"}
        counts = ", ".join(f"{marks[mark]} {kind}" for mark, kind in kinds.items() if marks[mark])
        table = [(" ", *titles)]
        for mark, *sides in self.lines[:MAX_SHOWN]:
            left, right = ("" if side is None else _finding_text(side, by_stage, literals) for side in sides)
            table.append((mark, left, right))
        width = max(len(left) for _, left, _ in table)
        lines = [f"  {mark} {left:{width}}   {right}".rstrip() for mark, left, right in table]
        if len(self.lines) > MAX_SHOWN:
            lines.append(f"    and {len(self.lines) - MAX_SHOWN} more")
        note_lines = ["", *(f"  {note}" for note in notes)] if notes else []
        return "\n".join([f"{title}: {counts}", "", *lines, *note_lines])


def _fits(expected: Finding, actual: Finding) -> bool:
    if expected.time not in (None, actual.time):
        return False
    return (
        expected.text == actual.text
        if "" in expected.stages or "" in actual.stages
        else expected.stages == actual.stages
    )


def _finding_text(finding: Finding, by_stage: bool, literals: Literals | None) -> str:
    if by_stage and "" not in finding.stages:
        text = " ".join(f"{stage}:[{' '.join(words)}]" for stage, words in finding.stages.items())
    else:
        text = finding.text
    return text if literals is None or finding.time is None else f"{text} @{literals.time_text(finding.time)}"


def _events_text(harness: PatternHarness) -> str:
    words = _timed_words(harness)
    return " ".join(word for _, word in words[:MAX_SHOWN]) + (
        f" and {len(words) - MAX_SHOWN} more" if len(words) > MAX_SHOWN else ""
    )


def _timed_words(harness: PatternHarness) -> list[tuple[int | None, str]]:
    """The events that were sent, in arrival order: their times, and literals with times."""
    words = []
    for table in harness.sent:
        for row, time in zip(table.to_pylist(), harness.times(table), strict=True):
            moment = "null" if time is None else harness.literals.time_text(time)
            words.append((time, f"{harness.literals.text(row)}@{moment}"))
    return words


def _nearest(harness: PatternHarness, texts: Sequence[str]) -> Iterator[str]:
    """For each missing match: its longest partial match, and the event or deadline that ended it.

    A new harness processes the events in the order of their times. Its partial matches are recorded after each time.
    """
    late, held = set(harness.late), harness.held_matches
    again = harness.again(outputs=None)
    events = pa.concat_tables([harness.cep.schema.empty_table(), *harness.sent])
    times = [BEFORE_TIME if time is None else time for time in harness.times(events)]
    moments: list[tuple[str, list[str]]] = []  # the events with the same time, and the partial matches after them
    words = _timed_words(harness)
    for moment in sorted({time for time in times if time != BEFORE_TIME}):
        rows = [row for row, time in enumerate(times) if time == moment]
        again.feed(events.take(pa.array(rows))).move(watermark=moment)
        moments.append((" ".join(words[row][1] for row in rows), again.partial_matches))
    again.end()
    expired = {finding.text: finding.time for finding in again.found("timed_out")}
    for text in texts:
        wanted = Counter(text.split())
        parts = [part for _, alive in moments for part in alive if not Counter(part.split()) - wanted]
        best = max(parts, key=lambda part: len(part.split()), default=None)
        if text in held:
            yield f"{text}: complete, and held back by the skip strategy while an earlier partial match is alive"
        elif late & wanted.keys():
            yield f"{text}: {', '.join(sorted(late & wanted.keys()))} arrived late"
        elif best is None:
            yield f"{text}: no partial match began with its events"
        elif best in expired:
            deadline = expired[best]
            assert deadline is not None
            yield f"{text}: reached {best}, which timed out at {harness.literals.time_text(deadline)}"
        else:
            begun = next(at for at, (_, alive) in enumerate(moments) if best in alive)
            end = next((came for came, alive in moments[begun:] if best not in alive), None)
            ended = "still waits for more events" if end is None else f"was dropped at {end}"
            yield f"{text}: reached {best}, which {ended}"
