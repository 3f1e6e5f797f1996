"""A rule is read and bound at most once per process and change; it travels as the stored bytes."""

from __future__ import annotations

import gc
import json
import pickle
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from asterism import caches
from asterism.columns.groups import KEY_HASH
from asterism.errors import StateError
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes
from asterism.patterns import json_reading
from asterism.rules.binding import binding
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.matching import state_pages
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator, RuleOptions
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets import sets
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    processors_from,
)
from asterism.rules.sets.set_store import FolderStore, SingleSetStore
from asterism.spark import BEGIN_OF_RUN
from asterism.spark.rules.rule_source import Payload, ProcessorReader
from tests.rules.driver import SCHEMA, Driver, Event, at, chain, processor, table_of
from tests.rules.test_coordinator import coordinator, version

GROUPS = 4
EVENTS_OF_A_BATCH: list[Event] = [(second, f"user {second % 5}", 1, "ab"[second % 2], 1.0) for second in range(20)]


def rules(count: int, versions: dict[int, int] | None = None) -> list[dict[str, Any]]:
    """As they stand in a file."""
    found = [processor(f"rule {n}", (versions or {}).get(n, 1), chain("a", "b")) for n in range(count)]
    return [one.to_dict() for one in found]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often a rule was *read*, *bound* and *written*."""
    found: Counter[str] = Counter()

    def count(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any) -> Any:
            found[what] += 1
            return function(*args)

        return counting

    monkeypatch.setattr(json_reading, "read_graph", count("read", json_reading.read_graph))
    monkeypatch.setattr(ProcessorCompiler, "compile", count("bound", ProcessorCompiler.compile))
    monkeypatch.setattr(PatternProcessor, "to_dict", count("written", PatternProcessor.to_dict))
    forget()
    yield found
    forget()


def forget() -> None:
    """What a process keeps."""
    caches: list[Any] = [
        sets._PROCESSORS,
        sets._SETS,
        sets._ENTRIES,
        sets._CHANGES,
        state_pages._DECODED,
        state_pages._ENCODED,
    ]
    for cache in [*caches, binding._BOUND, binding._BOUND_TOGETHER]:
        cache.clear()
    state_pages.set_from.cache_clear()


class Worker:
    """A Python worker of Spark: every task has its own copy of the operator."""

    def __init__(self, operator: DynamicCepOperator) -> None:
        self.pickled = pickle.dumps(operator)
        self.stores = [MemoryStore() for _ in range(GROUPS)]

    def batch(self, announced: tuple[int, bytes] | None = None) -> None:
        chunk = None
        if announced is not None:
            store = pickle.loads(self.pickled).source
            chunk = prepared_set(store.stored(*announced))
        prepared = pickle.loads(self.pickled).prepare(EVENTS, table_of(EVENTS_OF_A_BATCH))
        hashes = prepared.column(KEY_HASH).to_numpy().view(np.uint64)
        operator = pickle.loads(self.pickled)
        for group, state in enumerate(self.stores):
            mine = prepared.filter(pa.array(hashes % np.uint64(GROUPS) == np.uint64(group))).drop_columns([KEY_HASH])
            arrivals = [] if chunk is None else [Arrival(PROCESSORS, chunk)]
            operator.process(state, [*arrivals, Arrival(EVENTS, mine)], Now())


def test_each_rule_is_read_once_per_process_and_change(tmp_path: Path, counted: Counter[str]) -> None:
    old, new = rules(20), rules(20, {3: 2, 4: 2})
    counted.clear()
    store = FolderStore(str(tmp_path))
    operator = DynamicCepOperator(SCHEMA, store, RuleOptions(keys=["user"], time="ts"))
    manager = Coordinator(operator.compiler, store)
    found = processors_from(old, "rules.json")
    assert counted == {"read": 20}
    manager.on_pattern_processors_updated(found)
    manager.committed(1)
    first = manager.store.digest(1)
    assert counted == {"read": 20, "bound": 20, "written": 20}
    counted.clear()
    # Discoverers read again what has changed.
    changed = [*found[:3], *processors_from(new[3:5], "rules.json"), *found[5:]]
    for _ in range(2):
        manager.on_pattern_processors_updated(changed)
    manager.committed(1)
    second = manager.store.digest(2)
    manager.committed(2)
    assert counted == {"read": 2, "bound": 2, "written": 2}

    forget()
    counted.clear()
    worker = Worker(operator)
    (tmp_path / "retained.json").write_text("[1]")
    worker.batch((1, first))
    worker.batch()
    assert counted == {"read": 20, "bound": 20}
    counted.clear()
    (tmp_path / "retained.json").write_text("[1, 2]")
    worker.batch((2, second))
    (tmp_path / "retained.json").write_text("[2]")
    worker.batch()
    assert counted == {"read": 2, "bound": 2}

    # Another process, with the state of this one.
    forget()
    counted.clear()
    worker.batch()
    worker.batch()
    assert counted == {"read": 20, "bound": 20}


def test_what_travels_is_what_is_stored(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1)])
    path = tmp_path / "sets" / "1.json"
    digest = manager.store.digest(1)
    assert FolderStore(str(tmp_path)).stored(1, digest) == path.read_bytes()
    # One that an earlier release has written may look different.
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=1))
    with pytest.raises(StateError, match="is not the set that was announced"):
        FolderStore(str(tmp_path)).stored(1, digest)
    assert FolderStore(str(tmp_path)).stored(1, FolderStore(str(tmp_path)).digest(1)) == path.read_bytes()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StateError, match="cannot be read"):
        FolderStore(str(tmp_path)).digest(1)


def test_equal_rules_are_one_object(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([version(1), version(1, "cd")])
    manager.on_pattern_processors_updated([version(1), version(2, "cd")])
    one, two = FolderStore(str(tmp_path)).retained()
    assert one.processors[0] is two.processors[0]
    assert FolderStore(str(tmp_path)).get(2) is two


def test_the_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "MAX_SETS", 3)
    monkeypatch.setattr(binding, "_BOUND_TOGETHER", caches.IdentityCache(4))
    forget()
    compiler = DynamicCepOperator(SCHEMA, SingleSetStore(), RuleOptions(keys=["user"], time="ts")).compiler
    for number in range(1, 20):
        found = sets.ProcessorSet.from_bytes(sets.ProcessorSet(number, (version(number),)).to_bytes())
        assert found.version == number
        compiler.bind_all(found.processors)
    del found
    gc.collect()
    assert (len(sets._SETS), len(binding._BOUND_TOGETHER), len(binding._BOUND)) == (3, 4, 4)
    assert len(sets._PROCESSORS) == 4, "those of the sets and of what is bound"
    forget()


def test_what_was_not_used_for_the_longest_time_is_removed() -> None:
    cache = {1: "a", 2: "b"}
    assert caches.recent(cache, 1) == "a"
    assert caches.keep(cache, 2, 3, "c") == "c"
    assert cache == {1: "a", 3: "c"}
    assert caches.keep(cache, 2, 3, "d") == "c", "nothing is removed for a key that is there"
    assert cache.keys() == {1, 3}
    assert caches.recent(cache, 2) is None


def test_versions_that_were_replaced_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    driver = Driver()
    monkeypatch.setattr(driver.sets, "retained", lambda: driver.sets.all[-2:])
    for number in range(1, 5 * sets.MAX_SETS):
        driver.batch(EVENTS_OF_A_BATCH, sets=[version(number)])
    driver.sets.all.clear()
    gc.collect()
    assert len(binding._BOUND) <= 2 * (sets.MAX_SETS + 1), "bound before and after the exchange"
    assert len(sets._PROCESSORS) <= 2 * (sets.MAX_SETS + 1)
    forget()


def test_key_groups_share_their_entries() -> None:
    forget()
    one, two = sets.ProcessorSet(1, (version(1),)), sets.ProcessorSet(2, (version(2), version(1, "cd")))
    groups = [sets.Entries.of(()).after(one, 0).after(two, 5) for _ in range(2)]
    assert groups[0] is groups[1]
    assert [*groups[0]] == sets.updated(sets.updated([], one, 0), two, 5)
    assert groups[0].passed(7) is groups[0].enabled is groups[0].with_pattern is groups[0]
    killed = [replace(one, disabled=True, killed=True) if one.processor.id == "cd" else one for one in groups[0]]
    assert groups[0].without(["cd"]) == tuple(killed)
    # With times, it matters where event time is.
    later = sets.ProcessorSet(3, (replace(version(3), timestamp=at(10)), version(1, "cd")))
    for time in (0, 5, 20_000_000):
        assert [*groups[0].after(later, time)] == sets.updated(groups[0], later, time)
    forget()


def test_conditions_that_were_joined_in_python_are_the_same_after_a_restart(tmp_path: Path) -> None:
    """The store has them as one text."""
    pattern = chain("a").where("x > 1").or_("x < -1")
    coordinator(tmp_path).on_pattern_processors_updated([processor("ab", 1, pattern)])
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([processor("ab", 1, pattern)])
    assert (manager.status.refused, manager.version) == ({}, 1)


class Fixed(PatternProcessorDiscovererFactory, PatternProcessorDiscoverer):
    """Finds one rule."""

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        return self

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        return [version(1)]

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        """There are none."""


def test_the_control_source_announces_the_stored_bytes(tmp_path: Path, counted: Counter[str]) -> None:
    """It reads them where the coordinator is, and sends them from anywhere."""
    store = FolderStore(str(tmp_path))
    operator = DynamicCepOperator(SCHEMA, store, RuleOptions(keys=["user"], time="ts"))
    payload = pickle.dumps(Payload(Fixed(), operator.compiler, store))
    options = {"keyGroups": str(GROUPS), "definition": "definition", "timers": "true", "idle": "true"}
    reader = ProcessorReader(options, payload)
    try:
        start = reader.initialOffset()
        first = reader.latestOffset(start, None)
        assert (first["starts"], first["runs"], first["set"]) == (1, 1, 1)
        assert [part.value for part in reader.partitions(start, first)][:1] == [BEGIN_OF_RUN]
        assert reader.latestOffset(first, None) == first
        end = reader.announced(start)
        assert end["set"] == 1
        (partition,) = [one for one in reader.partitions(start, end) if one.value is not None]
        forget()
        counted.clear()
        executor, task = pickle.loads(pickle.dumps((reader, partition)))
        rows = list(executor.read(task))
    finally:
        reader.stop()
    assert counted == {}
    assert [(row[1], row[2]) for row in rows] == [(PROCESSORS, 1)] * GROUPS
    (value,) = batch_from_bytes(rows[0][4], operator.inputs[PROCESSORS].prepared).column("set").to_pylist()
    assert zlib.decompress(value) == (tmp_path / "sets" / "1.json").read_bytes()
