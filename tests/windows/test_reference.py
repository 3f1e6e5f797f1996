"""The slow twin does what the transcripts say, and the transcripts are read strictly."""

from __future__ import annotations

import pytest

from tests.windows.transcripts import Case, case_of, cases, play_reference

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reference_does_what_the_transcript_says(case: Case) -> None:
    found = play_reference(case)
    written = [(step.action, step.time, sorted(step.expected)) for step in case.steps]
    assert [(step.action, step.time, sorted(one)) for step, one in zip(case.steps, found, strict=True)] == written


def test_there_are_enough_and_each_has_its_own_name() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert len(names) >= 150


RIGHT = {"name": "x", "window": "TumblingWindows.of(10s)", "trigger": "CountTrigger.at_least(1)", "steps": "in a1@1"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": "inn a1@1"},
        {"steps": "fires a [0,10) #1 early: 1"},
        {"steps": "in a1@1\nfire a [0,10) #1 early: 1"},
        {"steps": "in a1@"},
        {"steps": "watermark soon"},
        {"lates": "5s"},
        {"time": "ingestion"},
        {"trigger": "CountTrigger.at_most(1)"},
        {"trigger": "__import__('os')"},
    ],
    ids=str,
)
def test_what_is_not_known_is_an_error(wrong: dict[str, str]) -> None:
    case_of(RIGHT)
    with pytest.raises((ValueError, KeyError, AttributeError)):
        case_of(RIGHT | wrong)


def test_an_expectation_that_is_not_met_is_noticed() -> None:
    case = case_of(RIGHT | {"steps": "in a1@1\nfires a [0,10) #1 early: 2"})
    assert play_reference(case) != [list(step.expected) for step in case.steps]
