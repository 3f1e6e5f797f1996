"""The reference matcher gives Flink's answers, and the corrected ones where it should."""

from __future__ import annotations

import copy
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kit import CORPUS
from tests.reference import Event, Matcher, PriorityQueue, run_case

# Definitions that must be rejected are the library's business.
CASE_FILES = [path for path in sorted(CORPUS.glob("*.jsonl")) if path.stem != "malformed"]
END_OF_INPUT = 2**63 - 1

Json = dict[str, Any]


def load(path: Path) -> list[Json]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_corpus_is_there() -> None:
    """No case file would mean no failure below."""
    assert CASE_FILES


@pytest.mark.parametrize("path", CASE_FILES, ids=lambda path: path.stem)
def test_flink_answers_exactly(path: Path) -> None:
    """Matches, timeouts and late events, in Flink's order."""
    failing = [case["id"] for case in load(path) if run_case(case) != case["expected"]]
    assert failing == []


@pytest.mark.parametrize("path", CASE_FILES, ids=lambda path: path.stem)
def test_default_answers_do_not_depend_on_watermarks(path: Path) -> None:
    """One watermark at the end gives the same as one before and after every event."""
    failing = []
    refused = {
        id for id, why in json.loads((CORPUS / "changed_by_default.json").read_text()).items() if "refused" in why
    }
    for case in load(path):
        if case["id"] in refused:
            continue
        ordered = sorted(case["events"], key=lambda row: row[1])
        at_once = {**case, "steps": [{"events": [row[0] for row in ordered], "watermark": END_OF_INPUT}]}
        often: list[Json] = []
        for row in ordered:
            # The watermark before an event of the same time would make it late.
            often += [{"events": [], "watermark": row[1] - 1}, {"events": [row[0]]}]
        often.append({"events": [], "watermark": ordered[-1][1] if ordered else 0})
        often.append({"events": [], "watermark": END_OF_INPUT})
        if run_case(at_once, "default") != run_case({**case, "steps": often}, "default"):
            failing.append(case["id"])
    assert failing == []


# --- the heap ---


def drain(queue: PriorityQueue[Any]) -> list[Any]:
    return [queue.poll() for _ in range(len(queue))]


def test_equal_elements_leave_in_java_order() -> None:
    """Three equal elements a, b, c come out as a, c, b."""
    assert drain(PriorityQueue(lambda _: 0, "abc")) == ["a", "c", "b"]


def test_iteration_is_in_array_order() -> None:
    """Not sorted: each child only follows its parent."""
    assert list(PriorityQueue(lambda number: number, [5, 3, 4, 1, 2])) == [1, 2, 4, 5, 3]


def test_removal_restores_the_heap_from_the_last_parent() -> None:
    """After a bulk removal the rest is filtered in place, then moved down parent by parent."""
    queue = PriorityQueue(lambda number: number, [1, 2, 5, 3, 4, 6, 7])
    queue.remove_if(lambda number: number in (1, 2))
    assert list(queue) == [3, 5, 4, 6, 7]


def test_polls_in_order_of_the_key() -> None:
    """Whatever is added and removed, the smallest comes first."""
    numbers = random.Random(1).choices(range(50), k=200)
    queue = PriorityQueue(lambda number: number, numbers)
    queue.remove_if(lambda number: number % 3 == 0)
    assert drain(queue) == sorted(number for number in numbers if number % 3)


# --- the corrections ---


def milliseconds(size: int) -> Json:
    return {"unit": "MILLISECONDS", "size": size}


def chain(*nodes: Json, edge: str = "SKIP_TILL_NEXT", **root: Any) -> Json:
    """A pattern of these nodes, one after the other; `edge` is the type of edges whose target does not name its own."""
    edges = [
        {"source": source["name"], "target": target["name"], "type": target.get("edge", edge)}
        for source, target in pairwise(nodes)
    ]
    return {"name": "root", "type": "COMPOSITE", "version": 1, "nodes": list(nodes), "edges": edges, **root}


def one(name: str, **fields: Any) -> Json:
    condition = {"type": "SQL", "expression": f"name = '{name}'"}
    return {"name": name, "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}, "condition": condition, **fields}


def several(name: str, kind: str, least: int, most: int, gap: int) -> Json:
    times = {"from": least, "to": most, "windowTime": milliseconds(gap)}
    return one(name, quantifier={"properties": [kind], "times": times})


def run(pattern: Json, semantics: str, text: str, *watermarks: int) -> tuple[list[Any], list[Any]]:
    """Feed `"a@1 b@5"`, then the watermarks; the matches and timeouts, ids counting from 1."""
    matcher = Matcher(pattern, semantics=semantics)
    for number, word in enumerate(text.split(), start=1):
        name, ts = word.split("@")
        matcher.event(Event(number, int(ts), name))
    for watermark in watermarks:
        matcher.watermark(watermark)
    return matcher.matches, matcher.timeouts


def test_gap_window_expires_on_a_quiet_key() -> None:
    """Flink sets no timer for the window between two events."""
    pattern = chain(one("a"), one("b"), window={"type": "PREVIOUS_AND_CURRENT", "time": milliseconds(10)})
    assert run(pattern, "flink", "a@1", 1, 50) == ([], [])
    assert run(pattern, "default", "a@1", 1, 50) == ([], [(11, {"a": [1]})])


def test_absence_is_stamped_with_its_deadline() -> None:
    """Flink stamps it with the watermark that happened to come."""
    pattern = chain(one("a"), one("b", edge="NOT_FOLLOW"), window={"type": "FIRST_AND_LAST", "time": milliseconds(10)})
    assert run(pattern, "flink", "a@1", 1, 50) == ([(50, {"a": [1]})], [])
    assert run(pattern, "default", "a@1", 1, 50) == ([(11, {"a": [1]})], [])


def test_first_event_at_zero_expires() -> None:
    """In Flink only a first event after 0 sets a timer."""
    pattern = chain(one("a"), one("b"), window={"type": "FIRST_AND_LAST", "time": milliseconds(10)})
    assert run(pattern, "flink", "a@0", 0, 50) == ([], [])
    assert run(pattern, "default", "a@0", 0, 50) == ([], [(10, {"a": [1]})])


def test_timeouts_come_deadline_by_deadline() -> None:
    """Not in the order of the heap at the next watermark."""
    gap = {"type": "PREVIOUS_AND_CURRENT", "time": milliseconds(5)}
    pattern = chain(
        one("a"), one("b", window=gap), one("c", window={**gap, "time": milliseconds(50)}), edge="SKIP_TILL_ANY"
    )
    waiting_for_b, waiting_for_c = (6, {"a": [1]}), (53, {"a": [1], "b": [2]})
    assert run(pattern, "flink", "a@1 b@3 x@100", END_OF_INPUT) == ([], [waiting_for_c, waiting_for_b])
    assert run(pattern, "default", "a@1 b@3 x@100", END_OF_INPUT) == ([], [waiting_for_b, waiting_for_c])


def test_times_bounds_the_gaps_between_repetitions() -> None:
    """Flink bounds the gap before the first instead of the one before the last."""
    pattern = chain(one("a"), several("b", "TIMES", 3, 3, gap=5))
    late_first, late_last = "a@1 b@9 b@10 b@11", "a@1 b@2 b@3 b@20"
    found = (11, {"a": [1], "b": [2, 3, 4]})
    assert run(pattern, "default", late_first, END_OF_INPUT)[0] == [found]
    assert run(pattern, "flink", late_first, END_OF_INPUT)[0] == []
    assert run(pattern, "default", late_last, END_OF_INPUT) == ([], [(8, {"a": [1], "b": [2, 3]})])
    assert run(pattern, "flink", late_last, END_OF_INPUT)[0] == [(20, {"a": [1], "b": [2, 3, 4]})]


@pytest.mark.parametrize("text", ["b@1 b@20 c@30", "b@1 x@2 b@20 c@30"])
def test_loop_bounds_later_repetitions_but_not_what_follows(text: str) -> None:
    """The second b is too late for the first one, the c is not; an event in between that fits nothing is no matter."""
    pattern = chain(several("b", "LOOPING", 1, 1, gap=10), one("c"))
    matches, _ = run(pattern, "default", text, END_OF_INPUT)
    ids = {word: number for number, word in enumerate(text.split(), start=1)}
    assert [match for _, match in matches] == [
        {"b": [ids["b@1"]], "c": [ids["c@30"]]},
        {"b": [ids["b@20"]], "c": [ids["c@30"]]},
    ]


def test_skip_to_next_waits_for_nothing() -> None:
    """Only matches with the same first event are discarded by it, so none that started earlier can do it."""
    pattern = chain(
        one("a"),
        one("b", condition={"type": "SQL", "expression": "name = 'b' AND LAST(a.id) > 1"}),
        afterMatchStrategy={"type": "SKIP_TO_NEXT"},
    )
    assert run(pattern, "flink", "a@1 a@2 b@3", END_OF_INPUT)[0] == []
    assert run(pattern, "default", "a@1 a@2 b@3", 3)[0] == [(3, {"a": [2], "b": [3]})]


def test_held_back_matches_come_out_at_the_end_of_input() -> None:
    """With the time of their last event, in the order in which they would discard each other."""
    pattern = chain(
        one("a"),
        one("b", condition={"type": "SQL", "expression": "name = 'b' AND LAST(a.id) > 1"}),
        afterMatchStrategy={"type": "SKIP_PAST_LAST_EVENT"},
    )
    text = "a@1 a@2 b@3 a@4"
    assert run(pattern, "default", text, 100)[0] == []
    assert run(pattern, "default", text, 100, END_OF_INPUT)[0] == [(3, {"a": [2], "b": [3]})]


def test_a_deep_copy_is_a_snapshot() -> None:
    """What happens to the copy leaves the original alone."""
    matcher = Matcher(chain(one("a"), one("b")))
    matcher.event(Event(1, 1, "a"))
    matcher.watermark(1)
    snapshot = copy.deepcopy(matcher)
    matcher.event(Event(2, 2, "b"))
    matcher.watermark(2)
    assert (len(matcher.matches), len(snapshot.matches)) == (1, 0)
    snapshot.event(Event(3, 5, "b"))
    snapshot.watermark(5)
    assert snapshot.matches == [(5, {"a": [1], "b": [3]})]
