"""How cases are cut and judged. That the corpus passes is what `make conformance` shows."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest

from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.conformance import engines as conformance
from asterism.conformance.corpus import CUTS, cut, judge, pieces, read_cases, to_micros
from asterism.conformance.engines import ENGINES, run_case
from asterism.errors import StreamDefinitionError
from tests.kit import CORPUS

Case = dict[str, Any]


def first_cases(number: int) -> list[Case]:
    return [case for path in sorted(CORPUS.glob("*.jsonl")) for case in islice(read_cases([path]), number)]


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("case", first_cases(2), ids=lambda case: case["id"])
def test_engines_give_the_recorded_answers(case: Case, cuts: str) -> None:
    for engine in ENGINES:
        outcome = run_case(case, engine, cuts=cuts)
        assert outcome.passed, outcome.problem


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("size", [0, 1, 2, 9])
def test_pieces_are_the_events_in_order(cuts: str, size: int) -> None:
    events = list(range(size))
    for seed in range(20):
        parts = cut(events, cuts, random.Random(seed))
        assert [event for part in parts for event in part] == events
        assert all(parts)


def test_watermarks_come_after_their_events_and_never_go_back() -> None:
    steps = [{"events": [1, 2], "watermark": 5}, {"events": [3], "watermark": 4}, {"events": []}, {"events": [4]}]
    assert list(pieces({"steps": steps}, "whole", random.Random(0))) == [
        ([1, 2], BEFORE_TIME),
        ([], 5000),
        ([3], 5000),
        ([], 5000),
        ([4], 5000),
    ]


def test_last_watermark_is_the_end_of_time() -> None:
    assert to_micros(2**63 - 1) == END_OF_TIME


CASE: Case = {
    "id": "x",
    "expected": {"matches": [[1, {"a": [1]}], [1, {"a": [2]}], [2, {"a": [3]}]], "timeouts": [], "late": [5, 4]},
}
ANSWER = CASE["expected"]


def test_order_among_equal_times_is_free() -> None:
    first, second, third = ANSWER["matches"]
    assert judge(CASE, ANSWER | {"matches": [second, first, third]}).passed
    assert judge(CASE, ANSWER | {"matches": [third, first, second]}).problem == "matches out of order: [2, 1, 1]"


@pytest.mark.parametrize(
    "change",
    [{"matches": ANSWER["matches"][:2]}, {"timeouts": [[1, {"a": [1]}]]}, {"late": [4, 5]}],
    ids=lambda change: next(iter(change)),
)
def test_differences_are_named(change: Case) -> None:
    part = next(iter(change))
    assert judge(CASE, ANSWER | change).problem.startswith(f"{part}: expected ")


def test_rejection_is_an_error_of_the_library() -> None:
    """A crash rejects nothing."""
    malformed = {"id": "x", "expected": {"error": "MalformedPatternException: no"}}
    assert judge(malformed, StreamDefinitionError("no")).passed
    assert not judge(malformed, KeyError("no")).passed
    assert not judge(malformed, ANSWER).passed


def test_crash_fails_the_case_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*arguments: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setitem(conformance.ENGINES, "kernel", crash)
    assert run_case(CASE).problem == "ZeroDivisionError: oh"
