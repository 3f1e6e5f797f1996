"""Every match has an id, which is the same wherever micro-batches end, and which no other match has."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.columns.groups import BUCKET
from asterism.columns.time import END_OF_TIME, TIME
from asterism.conformance.corpus import events_of, pieces
from asterism.conformance.engines import operator_for
from asterism.matching import matcher
from asterism.matching.operator import CepOperator, TableState
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.semantics import Semantics
from asterism.rules.definition.processor import PatternProcessor
from tests.kit import CORPUS
from tests.matching.harness import SCHEMA, Run, chain
from tests.reference.match_ids import match_id, positions
from tests.rules.driver import Driver, processor
from tests.rules.driver import chain as rule_chain

Case = dict[str, Any]


def some_cases() -> Iterator[Case]:
    for name, every in (("same_timestamp", 2), ("mixed", 10), ("timeouts", 20), ("late_events", 20)):
        lines = (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        yield from map(json.loads, lines[::every])


CASES = list(some_cases())
ENDED = Now(END_OF_TIME, END_OF_TIME)


def run(case: Case, cuts: str) -> list[tuple[str, str]]:
    """(the events of each match and timed-out partial match, its id)"""
    operator, store = operator_for(case, Semantics.DEFAULT), MemoryStore()
    found = []
    for ids, watermark in pieces(case, cuts, random.Random(1)):
        arrivals = [Arrival(EVENTS, operator.prepare(EVENTS, events_of(case, ids)))] if ids else []
        outputs = operator.process(store, arrivals, Now(watermark)).outputs
        for kind in ("matches", "timed_out"):
            for row in outputs[kind].to_pylist() if kind in outputs else ():
                taken = {name: [e["id"] for e in events] for name, events in row.items() if isinstance(events, list)}
                found.append((f"{kind} {taken}", row["match_id"]))
    return sorted(found)


@pytest.mark.parametrize("case", CASES[::7], ids=lambda case: str(case["id"]))
def test_ids_do_not_depend_on_cuts_and_tell_matches_apart(case: Case) -> None:
    whole = run(case, "whole")
    assert run(case, "rows") == whole
    assert run(case, "random") == whole
    assert len({id for _, id in whole}) == len({match for match, _ in whole})


@pytest.mark.parametrize("strict", [False, True])
def test_the_slow_twin_makes_the_same_ids(strict: bool) -> None:
    """Which it makes of the words, the key, and time, position and stage of the events."""
    pattern = chain("a", "b", by="followed_by_any")
    if strict:  # where it asks for the very next event, it sees all
        pattern = Pattern.begin("a").where("name = 'a'").followed_by_any("b").where("name = 'b'").next("c").optional()
    cep = Run(pattern, keys=["key", "n"])
    rows = [
        {"key": "u", "ts": ts, "name": name, "n": 1} for ts, name in ((-2, "a"), (1, "a"), (1, "x"), (1, "a"), (5, "b"))
    ]
    cep.feed(pa.Table.from_pylist(rows, SCHEMA)).end()
    ids = [row["match_id"] for row in cep.rows()]
    place = positions(rows, lambda row: (row["key"], row["ts"]), lambda row: strict or row["name"] in "ab")
    assert place == [0, 0, 1 if strict else None, 2 if strict else 1, 0]
    key, words = "1:u1:1", ["matches", *(stage.name for stage in pattern.atoms())]
    expected = [match_id(words, key, [(rows[at]["ts"] * 1000, place[at] or 0, 0), (5000, 0, 1)]) for at in (0, 1, 3)]
    assert sorted(ids) == sorted(expected)
    assert len(set(ids)) == 3


OUTPUTS = [("matches",), ("matches", "late"), ("late", "timed_out", "matches"), ("matches", "timed_out")]


def spoiled(rng: random.Random) -> pa.Table:
    """Events of few times, many of which nobody asks for."""
    rows = sorted((rng.randint(1, 6), rng.choice("uv"), rng.choice("abxy"), n) for n in range(60))
    columns = {"key": [row[1] for row in rows], "ts": [row[0] for row in rows], "name": [row[2] for row in rows]}
    columns |= {"n": [row[3] for row in rows], "price": [None] * len(rows)}
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


@pytest.mark.parametrize("taken", OUTPUTS, ids=" ".join)
@pytest.mark.parametrize("table", [False, True], ids=["stream", "table"])
@pytest.mark.parametrize("filtered", [False, True], ids=["all", "filtered"])
@pytest.mark.parametrize("size", [3, 100])
def test_ids_do_not_depend_on_outputs_or_filters(
    taken: tuple[str, ...], table: bool, filtered: bool, size: int
) -> None:
    """Spark leaves out what cannot matter where nobody wants to see late events, and ids are what they are with it."""
    pattern = chain("a", "b", by="followed_by_any")
    events = spoiled(random.Random(1))
    made = CepOperator(
        pattern, SCHEMA, keys=["key"], time="ts", outputs={name: OutputSpec(OutputKind(name)) for name in taken},
        order_by=["n"],
    )  # fmt: skip
    events = events.sort_by([("key", "ascending"), ("ts", "ascending"), ("n", "ascending")])
    whole = Run(pattern, {"matches": OutputSpec(OutputKind.MATCHES)})
    whole.feed(events).end()
    if filtered:
        events = events.filter(pa.array([name in "ab" for name in events.column("name").to_pylist()]))
    if not table:
        events = events.sort_by([("ts", "ascending"), ("n", "ascending")])
    if table:
        ids = ids_of_table(made, events, size)
    else:
        store, ids = MemoryStore(), []
        for at in range(0, events.num_rows, size):
            part = made.prepare(EVENTS, events.slice(at, size))
            time = part.column("__time")[-1].as_py() - 1
            found = dict(made.process(store, [Arrival(EVENTS, part, time)], Now()).outputs)
            ids += found["matches"].column("match_id").to_pylist() if "matches" in found else []
        ids += made.process(store, [], ENDED).outputs["matches"].column("match_id").to_pylist()
    assert sorted(ids) == sorted(row["match_id"] for row in whole.rows())
    assert len(set(ids)) == len(ids) > 40


def test_an_id_never_changes() -> None:
    """Sinks have kept those of earlier releases."""
    cep = Run(chain("a", "b"), keys=["key"])
    cep.send("u.a1 u.b2").end()
    assert [row["match_id"] for row in cep.rows()] == ["7aba5618b38cad90ae5b00eef18434cb"]


def test_the_pattern_and_what_became_of_the_match_count() -> None:
    ids = Counter()
    for first in ("a", "b"):
        for output in ("matches", "timed_out"):
            ids[match_id([output, first], "", [(1, 0, 0)])] += 1
    assert len(ids) == 4


def test_measures_may_ask_for_it() -> None:
    spec = OutputSpec(OutputKind.MATCHES, measures=("match_id", "upper(match_id) AS big", "COUNT(a.*) AS n"))
    cep = Run(chain("a", "b"), {"matches": spec, "whole": OutputSpec(OutputKind.MATCHES)})
    cep.send("a1 b2").end()
    (row,), (whole,) = cep.rows(), cep.rows("whole")
    assert (row["match_id"], row["big"]) == (whole["match_id"], whole["match_id"].upper())


def ids_of_table(operator: CepOperator, events: pa.Table, size: int) -> list[str]:
    """The ids of the matches over a table that is processed in parts of at least *size* rows. All keys share two buckets."""
    prepared = operator.prepare(EVENTS, events)
    first = {key: number for number, key in enumerate(dict.fromkeys(map(str, prepared.column(0).to_pylist())))}
    buckets = [first[str(key)] // 2 for key in prepared.column(0).to_pylist()]
    prepared = prepared.append_column(BUCKET, pa.array(buckets, pa.int64()))
    prepared = prepared.sort_by([(BUCKET, "ascending"), (TIME, "ascending")])
    places = list(zip(prepared.column(BUCKET).to_pylist(), prepared.column(TIME).to_pylist(), strict=True))
    state, ids, begin = operator.initial_table_state(), [], 0
    for end in range(1, len(places) + 1):
        if end == len(places) or (end - begin >= size and places[end] != places[end - 1]):
            found, state = taken_ids(operator.process_table(state, prepared.slice(begin, end - begin), Now()))
            ids += found
            begin = end
    found, _ = taken_ids(operator.process_table(state, prepared.slice(0, 0), Now()))
    return ids + found


def taken_ids(results: Generator[Mapping[str, pa.Table], None, TableState]) -> tuple[list[str], TableState]:
    """The ids of all slices, and what is carried on."""
    ids: list[str] = []
    while True:
        try:
            found = next(results)
        except StopIteration as end:
            return ids, end.value
        ids += found["matches"].column("match_id").to_pylist() if "matches" in found else []


@pytest.mark.parametrize("slices", [matcher.SLICE, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_ids_over_a_table_are_those_of_a_stream(size: int, slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the parts of the table end, and their slices."""
    monkeypatch.setattr(matcher, "SLICE", slices)
    rows = [
        {"key": key, "ts": ts, "name": name, "n": 0, "price": None}
        for key in (None, "u", "v")
        for ts in (1, 2)
        for name in "aabab"
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    outputs = {"matches": OutputSpec(OutputKind.MATCHES)}
    made = CepOperator(chain("a", "b", by="followed_by_any"), SCHEMA, keys=["key"], time="ts", outputs=outputs)
    ids = ids_of_table(made, table, size)
    stream = Run(chain("a", "b", by="followed_by_any"), outputs)
    stream.feed(table).end()
    assert sorted(ids) == sorted(row["match_id"] for row in stream.rows())
    assert len(set(ids)) == len(ids) > 20


def test_keys_of_any_type() -> None:
    schema = pa.schema([("b", pa.binary()), ("d", pa.decimal128(10, 2)), ("t", pa.date32()), ("ts", pa.int64())])
    table = pa.table([[b"\xff", b"\xfe", None], [None, None, None], [0, 0, 0], [1, 1, 1]], schema=schema)
    outputs = {"matches": OutputSpec(OutputKind.MATCHES)}
    made = CepOperator(Pattern.begin("a"), schema, keys=["b", "d", "t"], time="ts", outputs=outputs)
    assert len(set(ids_of_table(made, table, 1))) == 3


@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_matches_of_rules_have_ids_too(size: int) -> None:
    """By id and version of the rule; where they are cut, and which other rules there are, does not count."""
    rules = [processor("ab", 1, rule_chain("a", "b")), processor("ab by item", 1, rule_chain("a", "b"), key=("item",))]
    events = [(second, "ann", 7, kind, 0.0) for second, kind in zip((1, 1, 1, 1, 2, 2, 2, 3), "aabaabbb", strict=True)]

    def ids(driver: Driver, size: int) -> Counter[tuple[str, int, str]]:
        for begin in range(0, len(events), size):
            driver.batch(events[begin : begin + size])
        rows = driver.end().rows["matches"]
        return Counter((row["processor_id"], row["processor_version"], row["match_id"]) for row in rows)

    found = ids(Driver().batch(sets=rules), size)
    assert found == ids(Driver().batch(sets=rules), len(events))
    assert max(found.values()) == 1
    assert len({id for *_, id in found}) == len(found) == 8
    alone = ids(Driver().batch(sets=rules[:1]), size)
    assert alone == Counter({one: n for one, n in found.items() if one[0] == "ab"})
    newer = ids(Driver().batch(sets=[processor("ab", 2, rule_chain("a", "b"))]), size)
    assert not {id for *_, id in newer} & {id for *_, id in found}
    ended = [(second, stage) for second, stage in ((1, 0), (1, 1))]
    first = match_id(["matches", "ab", 1], "5:3:ann", [(s * 1_000_000, 2 * p, p) for s, p in ended])
    assert ("ab", 1, first) in found


def test_other_rules_change_no_id_of_a_rule() -> None:
    """Though they see other events of the same key and time, and a page keeps an event of several rules once."""
    rules = [
        processor("ab", 1, rule_chain("a", "b")),
        processor("xb", 1, rule_chain("x", "b")),
        processor("all", 1, rule_chain("a", "x", strict=True)),
        processor("axb", 1, Pattern.begin("a").where("kind IN ('a', 'x')").followed_by_any("b").where("kind = 'b'")),
    ]
    events = [(second, "ann", 7, kind, 0.0) for second, kind in zip((1, 1, 1, 1, 1, 2, 2, 3), "xaxaxabb", strict=True)]

    def ids(*some: PatternProcessor, size: int = 3) -> dict[str, list[str]]:
        driver = Driver().batch(sets=some)
        for begin in range(0, len(events), size):
            piece = events[begin : begin + size]
            driver.batch(piece, watermark=piece[-1][0] - 1)
        found: dict[str, list[str]] = {}
        for row in driver.end().rows["matches"]:
            found.setdefault(row["processor_id"], []).append(row["match_id"])
        return {name: sorted(some) for name, some in found.items()}

    together = ids(*rules)
    assert together == ids(*reversed(rules), size=8)
    assert set(together) == {"ab", "xb", "all", "axb"}
    for one in rules:
        assert ids(one) == {one.id: together[one.id]}
    seen = positions(events, lambda event: event[0], lambda event: event[3] in "ab")
    first = [(1_000_000, seen[at] or 0, 0) for at in (1, 3)]
    assert match_id(["matches", "ab", 1], "5:3:ann", [first[1], (2_000_000, 1, 1)]) in together["ab"]
