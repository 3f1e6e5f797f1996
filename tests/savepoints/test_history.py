"""A history, which a batch job reads, and then the stream have the rows of one stream whose first micro-batch was the history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism.columns.groups import KEY_HASH
from asterism.columns.time import BEFORE_TIME, TIME
from asterism.errors import StreamDefinitionError
from asterism.operators.operator import EVENTS, Arrival
from asterism.operators.state.page_numbers import HEADER
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes
from asterism.rules.matching.operator import PROCESSORS
from asterism.rules.matching.state_pages import prepared_set
from asterism.spark.histories.runner import (
    END_OF_GROUP,
    STAGE,
    arrivals_of_events,
    arrivals_of_inputs,
    run_history,
    stages_of,
)
from asterism.spark.host.batch import BATCH_GROUP, BATCH_INPUT, BATCH_ORDER, BATCH_TIME
from asterism.spark.host.host import NO_TIME
from asterism.spark.host.partitioning import group_of
from asterism.streams.run_options import QueryHistory
from asterism.testing.operator_harness import OperatorHarness, key_hashes
from tests.kit import FACTOR, examples
from tests.rules.driver import Driver
from tests.rules.driver import table_of as table_of_rules
from tests.savepoints.test_regrouping import CASES, EPOCH, KINDS, SECOND, USERS
from tests.savepoints.test_rules_regrouped import OTHERS, RULES, events_of

KEY_GROUPS = 4
Row = dict[str, Any]
Tables = Mapping[str, list[Row]]


def events(rng: random.Random) -> list[Row]:
    """Events up to six seconds out of order, of which some have the same time, and some are late by any time."""
    return [
        {
            "user": rng.choice(USERS[:5]),
            "ts": EPOCH + max(number // 2 + 6 - rng.randrange(7) - (rng.randrange(40) if rng.random() < 0.1 else 0), 0) * SECOND,
            "kind": rng.choice(KINDS),
            "v": rng.randrange(9),
        }
        for number in range(160)
    ]  # fmt: skip


def by_input(harness: OperatorHarness, rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each input: those of several keyed inputs alternate, and a broadcast input gets few others."""
    keyed = [name for name, spec in harness.operator.inputs.items() if not spec.broadcast]
    found: dict[str, list[Row]] = {name: rows[number :: len(keyed)] for number, name in enumerate(keyed)}
    for name in harness.operator.inputs.keys() - set(keyed):
        found[name] = [{"name": f"n{row['v'] % 4}", "v": row["v"]} for row in rows[::17]]
    return found


def table_of(harness: OperatorHarness, name: str, rows: list[Row]) -> pa.Table:
    schema = harness.operator.inputs[name].schema
    return pa.Table.from_pylist([{column: row[column] for column in schema.names} for row in rows], schema)


def watermark_of(harness: OperatorHarness, name: str, rows: list[Row]) -> int:
    """That after rows of an input, without further ones."""
    if not harness.operator.inputs[name].timed:
        return BEFORE_TIME
    latest = max((row["ts"] for row in rows), default=None)
    return BEFORE_TIME if latest is None else (latest - EPOCH - 7 * SECOND) // timedelta(microseconds=1)


def rows_of_history(harness: OperatorHarness, tables: Tables) -> pa.Table:
    """The rows as Spark sorts them."""
    stages = stages_of(harness.operator, [])
    parts = []
    for number, (name, stage) in enumerate(stages.items()):
        table, spec = table_of(harness, name, tables[name]), harness.operator.inputs[name]
        for group in range(KEY_GROUPS):
            hashes = np.zeros(len(table), np.int64) if spec.broadcast else key_hashes(table.select(["user"]))
            rows = table.append_column(KEY_HASH, pa.array(hashes))
            if not spec.broadcast:
                rows = rows.filter(pa.array(hashes.view(np.uint64) % np.uint64(KEY_GROUPS) == group))
            count = rows.num_rows
            times = pc.cast(rows.column("ts"), pa.int64()) if spec.timed else pa.nulls(count, pa.int64())
            place = {BATCH_GROUP: [group] * count, STAGE: [stage] * count, BATCH_INPUT: [number] * count}
            content = (
                {name: rows.to_struct_array()}
                if len(stages) > 1
                else dict(zip(rows.column_names, rows.columns, strict=True))
            )
            parts.append(pa.table({**place, BATCH_TIME: times, BATCH_ORDER: range(count), **content}))
    parts.append(pa.table({BATCH_GROUP: [*range(KEY_GROUPS)], STAGE: [END_OF_GROUP] * KEY_GROUPS}))
    whole = pa.concat_tables(parts, promote_options="permissive")
    return whole.sort_by([(name, "ascending") for name in (BATCH_GROUP, STAGE, BATCH_TIME, BATCH_INPUT, BATCH_ORDER)])


def read_history(harness: OperatorHarness, tables: Tables, cut: int) -> Counter[str]:
    """Begin with a history, in record batches of *cut* rows. Return its results."""
    operator = harness.operator
    limits = {name: watermark_of(harness, name, tables[name]) for name in operator.inputs}
    arrivals = (
        arrivals_of_inputs(operator, [*stages_of(operator, [])], limits, [])
        if len(limits) > 1
        else arrivals_of_events(operator, limits[EVENTS])
    )
    ends = [Arrival(name, None, limit) for name, limit in limits.items()]
    table = rows_of_history(harness, tables)
    if len(limits) == 1:
        table = table.drop_columns([BATCH_INPUT])

    def batches() -> Iterator[pa.RecordBatch]:
        # Of a group, a call has no more than what comes together.
        yield from table.combine_chunks().to_batches(max_chunksize=cut)

    results: Counter[str] = Counter()
    for batch in run_history(operator, arrivals, ends, 0, NO_TIME)(batches()):
        for row in batch.to_pylist():
            if row["output"] is not None:
                of_output = batch_from_bytes(row["chunk"], operator.output_schemas[row["output"]])
                results.update(f"{row['output']} {each}" for each in of_output.to_pylist())
            elif row["page"] is not None:
                store: MemoryStore = harness.stores[group_of(row["key_group"])]
                if row["page"] == HEADER:
                    store.write_header(row["value"])
                else:
                    store.write_page(row["page"], row["value"])
    assert all(store.header is not None for store in harness.stores)
    return results


def as_stream(harness: OperatorHarness, parts: list[list[Row]], seen: dict[str, list[Row]]) -> None:
    """Send micro-batches, each with the watermarks after it and what was *seen* before."""
    for part in parts:
        rows = by_input(harness, part)
        for name in sorted(rows, key=lambda name: not harness.operator.inputs[name].broadcast):
            if rows[name]:
                harness.feed(table_of(harness, name, rows[name]), name)
        for name, found in rows.items():
            seen[name] = [*seen.get(name, ()), *found]
            if harness.operator.inputs[name].timed:
                harness.feed_watermark(watermark_of(harness, name, seen[name]), name)


def rows_of(harness: OperatorHarness) -> Counter[str]:
    return Counter(f"{name} {row}" for name in harness.operator.output_schemas for row in harness.rows(name))


SEAMS = [(case, seed) for number, case in enumerate(CASES) for seed in range(2) if FACTOR > 1 or seed == number % 2]
"""In ``make test``, half of the cases have a seam by position, the others by time."""


@pytest.mark.parametrize(("case", "seed"), SEAMS)
def test_a_history_and_a_stream_are_one_stream(case: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a seam anywhere, by position or by time, at which events wait, and events that are late before and after it."""
    monkeypatch.setattr(
        "asterism.spark.histories.runner.gathered", lambda batches: map(pa.Table.from_batches, zip(batches))
    )
    rng = random.Random(f"{case} {seed}")
    whole = events(rng)
    seam = rng.randrange(20, 140)
    first, rest = whole[:seam], whole[seam:]
    if seed % 2:
        until = EPOCH + rng.randrange(15, 60) * SECOND
        first, rest = ([row for row in whole if (row["ts"] < until) is before] for before in (True, False))
    parts = [rest[begin : begin + 16] for begin in range(0, len(rest), 16)]
    expected, harness = CASES[case](KEY_GROUPS), CASES[case](KEY_GROUPS)
    as_stream(expected, [first, *parts], {})
    history = by_input(harness, first)
    results = read_history(harness, history, cut=rng.choice([1, 5, 16, 1000]))
    as_stream(harness, parts, dict(history))
    assert results + rows_of(harness.end()) == rows_of(expected.end())
    assert results


@pytest.mark.parametrize("seed", range(examples(2, usual=4)))
def test_rules_have_the_rows_and_counts_of_one_stream(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rules that are in force when it begins, over the whole history; they may change at the seam."""
    monkeypatch.setattr(
        "asterism.spark.histories.runner.gathered", lambda batches: (pa.Table.from_batches([b]) for b in batches)
    )
    rng = random.Random(seed)
    known = {rule.id: rule for rule in [*RULES, *OTHERS[1:-1]]}
    before = rng.sample([*known.values()], 7)
    after = before if seed % 2 else [OTHERS[0], *(rule for rule in before if rule.id != "ab")][:6]
    files = [[event for second in range(5, 45, 2) for event in events_of(rng, 30 * part + second)] for part in range(3)]
    latest = [max(float(event[0] or 0) for event in file) for file in files]
    expected, driver = (Driver(key_groups=KEY_GROUPS, waiting_time=7_000_000) for _ in range(2))
    expected.batch(files[0], sets=before, watermark=latest[0] - 7)

    first = driver.sets.put(before)
    operator, limit = driver.operator, int((latest[0] - 7) * 1_000_000)
    copies = operator.prepare(EVENTS, table_of_rules(files[0]))
    groups = (copies.column(KEY_HASH).to_numpy().view(np.uint64) % np.uint64(KEY_GROUPS)).astype(np.int32)
    rows = copies.append_column(BATCH_GROUP, pa.array(groups)).append_column(
        STAGE, pa.array(np.zeros(len(groups), np.int32))
    )
    ends = pa.table(
        {BATCH_GROUP: pa.array(range(KEY_GROUPS), pa.int32()), STAGE: pa.array([END_OF_GROUP] * KEY_GROUPS, pa.int32())}
    )
    table = pa.concat_tables([rows, ends], promote_options="default")
    table = table.sort_by([(name, "ascending") for name in (BATCH_GROUP, STAGE, TIME)]).combine_chunks()
    run = run_history(
        operator, arrivals_of_events(operator, limit, prepared=True), [Arrival(EVENTS, None, limit)], 0, NO_TIME,
        first=[Arrival(PROCESSORS, prepared_set(first.to_bytes()))],
    )  # fmt: skip
    counted = []
    for batch in run(iter(table.to_batches(max_chunksize=rng.choice([3, 20, 1000])))):
        for row in batch.to_pylist():
            if row["output"] is not None:
                driver.rows[row["output"]] += batch_from_bytes(
                    row["chunk"], operator.output_schemas[row["output"]]
                ).to_pylist()
            elif row["metrics"] is not None:
                counted.append({name: value for name, value in row["metrics"] if name.startswith("processors/")})
            else:
                store = driver.stores[group_of(row["key_group"])]
                store.write_header(row["value"]) if row["page"] == HEADER else store.write_page(
                    row["page"], row["value"]
                )
    driver.counts.add("query", 0, counted)
    for number in (1, 2):
        watermark = max(latest[: number + 1]) - 7
        for each in (expected, driver):
            each.batch(files[number], sets=after if number == 1 else None, watermark=watermark)
    found = [
        Counter(f"{n} {row}" for n, rows in each.end().rows.items() for row in rows) for each in (driver, expected)
    ]
    assert found[0] == found[1] != Counter()
    counts = [
        {name: (c.matches, c.timed_out, c.partial_matches) for name, c in each.counts.versions.items()}
        for each in (driver, expected)
    ]
    assert counts[0] == counts[1]


def test_a_history_is_a_table_of_spark() -> None:
    for history in ([], {}, {"left": 1}):
        with pytest.raises(StreamDefinitionError, match="must be a table of Spark"):
            QueryHistory.checked(history=history)
    with pytest.raises(StreamDefinitionError, match="needs a history"):
        QueryHistory.checked(history_until=datetime(2025, 1, 1, tzinfo=UTC))
    with pytest.raises(StreamDefinitionError, match="with a time zone"):
        QueryHistory.checked(history=[], history_until=datetime(2025, 1, 1))


def test_the_tables_of_a_history_are_those_of_inputs() -> None:
    assert QueryHistory(1, None).tables(["events"]) == {"events": 1}
    assert QueryHistory({"left": 1}, None).tables(["left", "right"]) == {"left": 1}
    assert QueryHistory("/savepoint", None).tables(["left", "right"]) == {}
    with pytest.raises(StreamDefinitionError, match="has a history for each of them"):
        QueryHistory(1, None).tables(["left", "right"])
    with pytest.raises(StreamDefinitionError, match="no stream 'middle' that could have a history"):
        QueryHistory({"middle": 1}, None).tables(["left", "right"])
