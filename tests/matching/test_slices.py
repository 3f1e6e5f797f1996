"""The results of a call in slices: the same rows, in the same order, with the same state afterwards, whatever their size."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import IterativeCondition, Semantics
from asterism.columns.groups import KEY_HASH
from asterism.columns.time import END_OF_TIME
from asterism.conformance.corpus import events_of, pieces, read_cases
from asterism.conformance.engines import operator_for
from asterism.matching import matcher
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now, Result
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.sequence import AfterMatchSkipStrategy
from tests.kit import CORPUS
from tests.matching.harness import SCHEMA, chain, ms, stage

CASE_FILES = sorted(CORPUS.glob("*.jsonl"))


def calls(operator: CepOperator, arriving: list[tuple[pa.Table | None, int]]) -> list[Any]:
    """What each call gives, and the state after it."""
    store, found = MemoryStore(), []
    for events, watermark in arriving:
        arrivals = [] if events is None else [Arrival(EVENTS, operator.prepare(EVENTS, events))]
        results = list(operator.slices(store, arrivals, Now(watermark)))
        whole = Result.whole(results)
        tables = {name: table.combine_chunks() for name, table in whole.outputs.items()}
        found.append((tables, whole.metrics, whole.next_event_time, store.header, dict(store.pages)))
    return found


@pytest.mark.parametrize("path", CASE_FILES[::4], ids=lambda path: path.stem)
def test_the_corpus_in_slices(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the largest calls that there are, in both semantics."""
    for case in list(read_cases([path]))[::40]:
        if case.get("error") or "expected" not in case:
            continue
        for semantics in Semantics:
            try:
                operator = operator_for(case, semantics)
            except Exception:  # a case of what is refused
                continue
            steps = list(pieces(case, "whole", random.Random(1)))
            merged = [(events_of(case, ids) if ids else None, watermark) for ids, watermark in steps]
            monkeypatch.setattr(matcher, "SLICE", 2**20)
            try:
                expected = calls(operator, merged)
            except Exception as error:
                monkeypatch.setattr(matcher, "SLICE", 1)
                with pytest.raises(type(error)):
                    calls(operator, merged)
                continue
            for size in (1, 4):
                monkeypatch.setattr(matcher, "SLICE", size)
                assert calls(operator, merged) == expected, (case["id"], semantics, size)


def counted(event: Any, context: Any) -> bool:
    return len(context.events_for_pattern("a")) % 2 == event.n % 2


LOOP = stage("a").followed_by_any("b").where("name IN ('a', 'b')").one_or_more().allow_combinations()
PATTERNS = {
    "loop": LOOP.followed_by("c").where("name = 'c'").within(ms(9)),
    "sums": stage("a").followed_by_any("b").where("name = 'b' AND n > SUM(a.n)"),
    "held": chain("a", "b", by="followed_by_any").skip_strategy(AfterMatchSkipStrategy.skip_past_last_event()),
    "next": chain("a", "b", "c", by="followed_by_any").skip_strategy(AfterMatchSkipStrategy.skip_to_next()),
    "absent": stage("a").not_followed_by("c").where("name = 'c'").within(ms(4)),
    "asked": stage("a").one_or_more().followed_by_any("b").where(IterativeCondition(counted)),
    "strict": stage("a").next("b").where("name = 'b'").optional().next("c").within(ms(5)),
}


OPTIONS: list[dict[str, Any]] = [{"pages": 3}, {"max_partial_matches": 4, "on_limit": "drop"}]


@pytest.mark.parametrize(
    ("name", "semantics", "options"),
    [(name, how, OPTIONS[(n + m) % 2]) for n, name in enumerate(PATTERNS) for m, how in enumerate(Semantics)],
    ids=str,
)
def test_random_streams_in_slices(
    name: str, semantics: Semantics, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several keys, many events of one time, and calls that go on with what is there."""
    rng = random.Random(name)
    outputs = {kind.value: OutputSpec(kind) for kind in OutputKind}
    operator = CepOperator(
        PATTERNS[name], SCHEMA, keys=["key"], time="ts", outputs=outputs, semantics=semantics, **options
    )
    for _ in range(2):
        arriving = []
        begin = 0
        for _ in range(3):
            rows = [
                {
                    "key": rng.choice("uvw"),
                    "ts": begin + rng.randrange(12),
                    "name": rng.choice("aabbc"),
                    "n": rng.randrange(5),
                }
                for _ in range(15)
            ]
            events = pa.Table.from_pylist(rows, schema=SCHEMA)
            hashes = pa.array([ord(row["key"]) << 32 for row in rows], pa.int64())
            begin += 12
            arriving += [(events.append_column(KEY_HASH, hashes), 0), (None, (begin - 1) * 1000)]
        arriving.append((None, END_OF_TIME))
        monkeypatch.setattr(matcher, "SLICE", 2**20)
        expected = calls(operator, arriving)
        for size in (1, 7):
            monkeypatch.setattr(matcher, "SLICE", size)
            assert calls(operator, arriving) == expected, size
