"""Lookups that change while a query does not run."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.columns.schemas import schema_of
from asterism.columns.time import TimeColumn
from asterism.errors import CheckpointMismatchError, PatternProcessorError, StateError
from asterism.expressions.types import spark_type
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.lookup_tables import LookupColumn, columns_in, rows_from_bytes, rows_to_bytes
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching.lookup_changes import check_lookups
from asterism.rules.matching.operator import DynamicCepOperator, RuleOptions
from asterism.rules.matching.result_rows import ERRORS
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.publishing.lookup_watch import DefinedLookup, LookupSource, LookupWatch, stored_lookups
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
)
from asterism.rules.sets.set_store import FolderStore
from tests.kit import FACTOR
from tests.rules.driver import SCHEMA, Driver, Event, processor
from tests.rules.test_lookups import ABOVE, ABOVE_A, COLUMNS, IN_SQL, LIMITS, RULES, THEN_B, TOTAL, e, limits

MOST = pa.field("most", pa.float64())
WIDER = replace(LIMITS, schema=pa.schema([MOST, *COLUMNS]))
BLOCKED = LookupColumn("blocked", ("name",), ("user",), pa.schema([("name", pa.string())]))
"""Its name is before the other, so that it takes its place."""
EVERY = PatternProcessor(
    "every", 1, sql="MEASURES A.x AS first ALL ROWS PER MATCH PATTERN (A B) DEFINE B AS kind = 'b' AND x < A.x"
).as_data()
"""Its state has all columns."""
EVENTS_SEEN = [
    e(1, "ann", 6), e(2, "bob", 60), e(3, "ann", 1, "b"), e(4, "cyd", 1), e(5, "ann", 3), e(6, "bob", 7, "b"),
    e(7, "bob", 2, "b"), e(8, "ann", 1, "b"), e(9, "bob", 100), e(10, "ann", 4, "b"), e(11, "bob", 3, "b"), e(12, "dan", 9),
]  # fmt: skip


def driver(lookups: Sequence[LookupColumn], **more: Any) -> Driver:
    made = Driver(lookups=lookups, key_groups=2, **more)
    for lookup in lookups:
        if lookup.name == "limits":
            made.sets.look_up(lookup, with_columns(limits(ann=5, bob=50), lookup))
        else:
            made.sets.look_up(lookup, pa.table([["bob"]], schema=lookup.schema))
    return made


def with_columns(rows: pa.Table, lookup: LookupColumn) -> pa.Table:
    new = [field for field in lookup.schema if field.name not in rows.column_names]
    for field in new:
        rows = rows.append_column(field, pa.array([7] * rows.num_rows).cast(field.type))
    return rows


def again(
    before: Driver,
    lookups: Sequence[LookupColumn],
    schema: pa.Schema = SCHEMA,
) -> Driver:
    """The query of *before*, started again with other lookups, or its columns in another order."""
    made = Driver(lookups=lookups, key_groups=len(before.stores))
    made.operator = DynamicCepOperator(schema, before.sets, RuleOptions(keys=["user"], time="ts", lookups=lookups))
    made.sets, made.stores, made.rows = before.sets, copy.deepcopy(before.stores), before.rows
    return made


def seen(made: Driver) -> list[tuple[Any, ...]]:
    assert not made.rows[ERRORS]
    return sorted(
        (row["processor_id"], row["match_id"], str(row["measures"]), str(row["events"])) for row in made.rows["matches"]
    )


def batches(made: Driver, events: Sequence[Event]) -> Driver:
    for one in events:
        made.batch([one], watermark=one[0] - 3)  # events wait
    return made


KEEPS: dict[str, tuple[tuple[LookupColumn, ...], tuple[LookupColumn, ...]]] = {
    "added": ((LIMITS,), (BLOCKED, LIMITS)),
    "removed": ((BLOCKED, LIMITS), (LIMITS,)),
    "column added": ((LIMITS,), (WIDER,)),
    "column removed": ((WIDER,), (LIMITS,)),
    "type of a column changed": (
        (WIDER,),
        (replace(WIDER, schema=pa.schema([MOST.with_type(pa.int64()), *COLUMNS])),),
    ),
    "another order": ((LIMITS,), (replace(LIMITS, schema=pa.schema([*COLUMNS][::-1])),)),
    "on": ((LIMITS,), (replace(LIMITS, on=("LOWER(user)",)),)),
    "everything": ((WIDER,), (BLOCKED, LIMITS)),
    "nothing": ((LIMITS,), (LIMITS,)),
}


@pytest.mark.parametrize("change", ["everything", "type of a column changed"])
def test_rules_go_on_where_they_were(change: str) -> None:
    before, after = KEEPS[change]
    rules = [*RULES, EVERY]
    whole = seen(batches(driver(before).batch(sets=rules), EVENTS_SEEN).end())
    assert {row[0] for row in whole} == {one.id for one in rules}
    for count in range(0, len(EVENTS_SEEN) + 1, 8 if FACTOR == 1 else 4):
        first = driver(before).batch(sets=rules)
        made = again(batches(first, EVENTS_SEEN[:count]), after)
        assert seen(batches(made, EVENTS_SEEN[count:]).end()) == whole, count


def test_new_rules_read_what_is_new_in_events_that_wait() -> None:
    fresh = processor("fresh", 1, Pattern.begin("a").where("x > limits.most AND blocked.name IS NULL")).as_data()
    total = processor(
        "total", 2, Pattern.begin("a").followed_by("b").where("x + a.x > limits.most"), select=("LAST(a.limits.most) AS most",)
    ).as_data()  # fmt: skip
    first = batches(driver((LIMITS,)).batch(sets=[THEN_B, TOTAL]), EVENTS_SEEN[:6])
    made = again(first, (BLOCKED, WIDER))
    made.batch([], sets=[THEN_B, TOTAL])  # a set that was made before the change, as of a micro-batch that is repeated
    made.sets.look_up(WIDER, with_columns(limits(ann=5, bob=50), WIDER))
    made.sets.look_up(BLOCKED, pa.table([["bob"]], schema=BLOCKED.schema))
    made.batch(sets=[THEN_B, total, fresh])
    batches(made, EVENTS_SEEN[6:]).end()
    found = {name: [row for row in made.rows["matches"] if row["processor_id"] == name] for name in ("fresh", "total")}
    assert [row["start_time"].timestamp() for row in found["fresh"]] == []
    assert [(row["processor_version"], dict(row["measures"])) for row in found["total"]][-1] == (2, {"most": "7.0"})


def test_an_event_that_waits_has_a_new_column() -> None:
    reads = processor("reads", 1, Pattern.begin("a").where("kind = 'a'"), select=("LAST(a.limits.most) AS most",))
    first = driver((LIMITS,)).batch(sets=[TOTAL]).batch([e(1, "ann", 1)])
    made = again(first, (WIDER,))
    made.sets.look_up(WIDER, with_columns(limits(ann=5), WIDER))
    made.batch([], sets=[reads.as_data()]).batch([e(2, "ann", 1)]).end()
    assert [dict(row["measures"]) for row in made.rows["matches"]] == [{"most": "7.0"}] * 2


def test_the_rows_of_an_earlier_version_are_read_with_other_columns() -> None:
    value = driver((LIMITS,)).sets
    [stored] = value.rows_of_lookups.values()
    assert rows_from_bytes(WIDER, stored).to_pylist() == [
        {"most": None, "customer": "ann", "max": 5.0},
        {"most": None, "customer": "bob", "max": 50.0},
    ]
    other = replace(LIMITS, schema=pa.schema([("customer", pa.string()), ("max", pa.decimal128(5, 1))]))
    assert rows_from_bytes(other, stored).column("max").to_pylist() == [None, None]
    by_number = replace(LIMITS, schema=pa.schema([("customer", pa.int64()), ("max", pa.float64())]))
    assert rows_from_bytes(by_number, stored).num_rows == 0


def test_a_stored_table_has_the_types_of_its_lookup() -> None:
    """Otherwise each restart would look like a change."""
    given = schema_of(
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY, j DATE, k TIMESTAMP, "
        "l TIMESTAMP_NTZ, m DECIMAL(10,2), n DECIMAL(38,18)"
    )
    types = [(field.name, spark_type(field.type, "UTC")) for field in given]
    columns = pa.schema([*types, ("o", pa.duration("us")), ("p", spark_type(pa.uint64(), "UTC"))])
    assert columns_in("all", rows_to_bytes(columns.empty_table())).equals(columns)


# ---------------------------------------------------------------------------------------------------- refused

ACCOUNTS = replace(LIMITS, schema=COLUMNS.append(pa.field("account", pa.string())))
KEYED = replace(ACCOUNTS, key=("account",))
REFUSED: dict[str, tuple[LookupColumn, tuple[LookupColumn, ...], Sequence[PatternProcessor]]] = {
    "removed": (LIMITS, (), [ABOVE]),
    "removed_for_many": (LIMITS, (), [replace(ABOVE, id=f"rule {n}").as_data() for n in range(12)]),
    "key": (ACCOUNTS, (KEYED,), [ABOVE, THEN_B]),
    "column_removed": (WIDER, (replace(LIMITS, schema=WIDER.schema.remove(2)),), [TOTAL, IN_SQL, ABOVE_A]),
    "type_changed": (
        LIMITS,
        (replace(LIMITS, schema=pa.schema([("customer", pa.string()), ("max", pa.decimal128(10, 2))])),),
        [IN_SQL],
    ),
    "name_of_a_measure": (
        LIMITS,
        (BLOCKED, LIMITS),
        [
            PatternProcessor(
                "r", 1, sql="MEASURES A.x AS blocked ALL ROWS PER MATCH PATTERN (A) DEFINE A AS x > 1"
            ).as_data()
        ],
    ),
    "column_of_the_whole": (
        WIDER,
        (LIMITS,),
        [processor("whole", 3, Pattern.begin("a").where("x > 1"), select=("LAST(a.Limits) AS row",)).as_data()],
    ),
}


@pytest.mark.parametrize(
    "reader",
    [
        processor("r", 1, Pattern.begin("limits").where("x > 1").followed_by("b").where("x > limits.x")),
        processor("r", 1, Pattern.begin("a").where("kind = 'limits'"), labels={"limits": "limits"}),
        processor("limits", 1, Pattern.begin("a").where("x > 1"), select=("LAST(a.x) AS limits",)),
        PatternProcessor("r", 1, sql="MEASURES limits.x AS x PATTERN (limits) DEFINE limits AS x > 1"),
    ],
)
def test_a_rule_that_has_the_name_of_a_lookup_does_not_read_it(reader: PatternProcessor) -> None:
    made = driver((LIMITS,)).batch(sets=[reader.as_data()]).batch([e(1, "ann", 2)])
    again(made, ()).batch([e(2, "ann", 3)]).end()


def test_whether_there_is_a_row_does_not_read_its_columns() -> None:
    known = processor("known", 1, Pattern.begin("a").where("limits IS NOT NULL")).as_data()
    made = again(driver((WIDER,)).batch(sets=[known]), (LIMITS,)).batch([e(2, "ann", 3), e(3, "dan", 3)]).end()
    assert [row["start_time"].timestamp() for row in made.rows["matches"]] == [2]


def test_a_rule_that_was_removed_does_not_matter() -> None:
    made = driver((LIMITS,)).batch([], sets=[ABOVE, EVERY]).batch([e(1, "ann", 9)], sets=[EVERY])
    # Its set may still be retained.
    again(made, ()).batch([e(2, "ann", 1, "b")], watermark=2).end()
    assert [row["processor_id"] for row in made.rows["matches"]] == ["every"] * 2


def test_columns_of_the_events_cannot_change_with_lookups() -> None:
    old, sets = driver((LIMITS,)).operator.definition, driver(()).sets
    options = RuleOptions(keys=["user"], time="ts", lookups=[BLOCKED])
    with pytest.raises(CheckpointMismatchError, match='The column "item" was removed'):
        DynamicCepOperator(SCHEMA.remove(2), sets, options).check_state(old)
    DynamicCepOperator(SCHEMA, sets, options).check_state(old)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_columns_does_not_matter(seed: int) -> None:
    """Partial matches, events that wait with the conditions that they satisfy, and the rows of clauses."""
    computed = (
        Pattern.begin("a").where("x * 2 > item AND kind = 'a'").followed_by("b").where("x + item > 3 AND kind = 'b'")
    )
    clause = "MEASURES B.x AS x PATTERN (A B) DEFINE A AS x * 2 > item, B AS x + item > 3"
    rules = [
        processor("computed", 1, computed),
        processor("keyed", 1, computed, key=("item + 1", "user")),
        PatternProcessor("clause", 1, sql=clause).as_data(),
    ]
    events = [e(second, "ann", second % 4, "ab"[second % 2]) for second in range(1, 13)]
    expected = driver((LIMITS,)).batch(sets=rules).batch(events, watermark=12).end().rows["matches"]
    schemas = [SCHEMA]
    made = driver((LIMITS,)).batch(sets=rules)
    for begin in range(0, 12, 3):
        made.batch(events[begin : begin + 3], watermark=begin + 1)
        columns = random.Random(seed + begin).sample([*SCHEMA], len(SCHEMA))
        schemas.append(pa.schema(columns, metadata=SCHEMA.metadata))
        before, made = made, again(made, (LIMITS,), schema=schemas[-1])
        made.operator.check_state(before.operator.definition)
    made.end()
    assert len({tuple(schema.names) for schema in schemas}) > 3
    plain = sorted(repr(row) for row in map(without_order, expected))
    assert sorted(repr(row) for row in map(without_order, made.rows["matches"])) == plain
    assert len(plain) > 5


def without_order(row: dict[str, Any]) -> dict[str, Any]:
    events = row["events"] or []
    return row | {"events": [(one["stage"], sorted(one["event"].items(), key=str)) for one in events]}


def test_what_changed_in_the_columns_is_named() -> None:
    old = driver(()).operator.definition
    for schema, what in (
        (SCHEMA.append(pa.field("amount", pa.int64())), '"amount" was added'),
        (SCHEMA.remove(4), '"x" was removed'),
        (SCHEMA.set(2, pa.field("item", pa.int32())), '"item" was int64 and is int32'),
    ):
        operator = DynamicCepOperator(schema, driver(()).sets, RuleOptions(keys=["user"], time="ts"))
        with pytest.raises(CheckpointMismatchError, match=what):
            operator.check_state(old)


# ---------------------------------------------------------------------------------------------------- the coordinator


class Rows(LookupSource):
    def __init__(self, rows: pa.Table | None) -> None:
        self.rows = rows

    def schema(self) -> pa.Schema:
        return COLUMNS

    def read(self, schema: pa.Schema) -> pa.Table:
        if self.rows is None:
            raise PatternProcessorError("gone")
        return self.rows


class Given(PatternProcessorDiscovererFactory, PatternProcessorDiscoverer):
    def __init__(self, *rules: PatternProcessor) -> None:
        self.rules = rules

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        return self

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        return self.rules

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        """There are none."""


def coordinated(folder: Path, *lookups: tuple[LookupColumn, pa.Table | None]) -> Coordinator:
    defined = [DefinedLookup(column, Rows(rows), timedelta(hours=1)) for column, rows in lookups]
    time = TimeColumn("ts", SCHEMA.field("ts").type)
    columns = [one.column for one in defined]
    compiler = ProcessorCompiler(SCHEMA, ["user"], time, Semantics.DEFAULT, {}, lookups=columns)
    return Coordinator(compiler, FolderStore(str(folder)), lookups=defined)


def started(
    folder: Path, rules: Sequence[PatternProcessor], *lookups: tuple[LookupColumn, pa.Table | None]
) -> FolderStore:
    made = coordinated(folder, *lookups)
    try:
        made.start(Given(*rules))
    finally:
        made.close()
    return made.store


def in_newest(store: FolderStore) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {one.name: (one.version, one.key) for one in store.retained()[-1].lookups}


ROWS = limits(ann=5, bob=50)
BAD = pa.table([["bob"]], schema=BLOCKED.schema)


def test_a_set_has_the_lookups_of_the_query(tmp_path: Path) -> None:
    store = started(tmp_path, [ABOVE], (LIMITS, ROWS))
    assert in_newest(store) == {"limits": (1, ("customer",))}
    store = started(tmp_path, [ABOVE], (BLOCKED, BAD), (LIMITS, ROWS))
    assert in_newest(store) == {"blocked": (2, ("name",)), "limits": (1, ("customer",))}
    store = started(tmp_path, [ABOVE], (LIMITS, ROWS))
    assert in_newest(store) == {"limits": (1, ("customer",))}
    assert store.numbers()[-1] == 3
    store = started(tmp_path, [ABOVE], (WIDER, with_columns(ROWS, WIDER)))
    assert in_newest(store) == {"limits": (4, ("customer",))}
    # Fewer columns are those of the stored table, also if it cannot be read now.
    store = started(tmp_path, [ABOVE], (LIMITS, None))
    assert in_newest(store) == {"limits": (4, ("customer",))}
    # A lookup that is there again does not begin with the rows that it had.
    started(tmp_path, [EVERY], (LIMITS, ROWS))
    started(tmp_path, [EVERY])
    with pytest.raises(PatternProcessorError, match="gone"):
        started(tmp_path, [EVERY], (LIMITS, None))


@pytest.mark.parametrize("after", [(LIMITS, BLOCKED), (WIDER,), (KEYED,)], ids=["added", "column added", "key"])
def test_a_table_that_was_never_read_as_it_is_now_must_be_read(tmp_path: Path, after: Sequence[LookupColumn]) -> None:
    store = started(tmp_path, [EVERY], (LIMITS, ROWS))
    with pytest.raises(PatternProcessorError, match=r"(?s)no pattern processors could be discovered.*gone"):
        started(tmp_path, [EVERY], *((one, None) for one in after))
    assert store.numbers() == [1]


def test_a_set_has_all_tables_or_those_of_the_set_before(tmp_path: Path) -> None:
    store = started(tmp_path, [EVERY], (LIMITS, ROWS))
    before = store.retained()[-1].lookups
    lookups = [DefinedLookup(one, Rows(rows), timedelta(hours=1)) for one, rows in ((BLOCKED, BAD), (WIDER, None))]
    watch = LookupWatch(lookups, before, stored_lookups(before, store))
    watch.poll()
    assert (watch.has_news, watch.all_are_known) == (False, False)


@pytest.mark.parametrize("name", ["removed", "key", "type_changed"])
def test_a_rule_of_the_newest_set_counts_although_no_micro_batch_has_used_it(tmp_path: Path, name: str) -> None:
    old, after, rules = REFUSED[name]
    started(tmp_path, rules, (old, with_columns(ROWS, old)))
    with pytest.raises(CheckpointMismatchError, match="and rules read it"):
        started(tmp_path, [], *((one, with_columns(ROWS, one)) for one in after))


def test_the_key_is_unknown_in_a_set_of_an_earlier_release(tmp_path: Path) -> None:
    store = started(tmp_path, [ABOVE], (LIMITS, ROWS))
    path = tmp_path / "sets" / "1.json"
    path.write_text(path.read_text().replace(', "key": ["customer"]', ""))
    assert in_newest(FolderStore(store.location)) == {"limits": (1, ())}
    assert in_newest(started(tmp_path, [ABOVE], (LIMITS, None))) == {"limits": (1, ())}


def test_a_stored_table_that_is_lost_is_reported_at_the_start(tmp_path: Path) -> None:
    started(tmp_path, [ABOVE], (LIMITS, ROWS))
    (tmp_path / "lookups" / "limits" / "1.parquet").unlink()
    with pytest.raises(StateError, match=r"lookups/limits/1.parquet is missing"):
        coordinated(tmp_path, (LIMITS, ROWS))


def test_rules_are_compared_only_if_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = driver((LIMITS,)).operator.compiler

    def fails(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(ProcessorCompiler, "bind", fails)
    check_lookups([ABOVE], [LIMITS], compiler)
    check_lookups([EVERY], [], compiler)
