"""Tables in parts, in threads and in temporary files: the same rows as in one part."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from asterism import (
    CEP,
    BroadcastInput,
    BroadcastStream,
    BroadcastValueState,
    Input,
    KeyedStream,
    NamedCondition,
    Output,
    Pattern,
    PatternProcessor,
    StreamOperator,
    TumblingWindows,
    ValueState,
    connect,
    interval_join,
    match_recognize,
    window,
)
from asterism.columns.compiled import compiled
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from asterism.embedded import parts
from asterism.embedded.memory import MEMORY, memory_of_tables
from asterism.errors import InvalidEventError, LimitExceededError, StreamDefinitionError
from asterism.rules.matching.operator import DynamicCepOperator
from tests.embedded.cases import CASES, CLAUSES, JOINS, QUOTES, SECOND, TRADES
from tests.embedded.rule_cases import RULE_CASES

ROWS = 3000


def events() -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table(
        {
            "user": pa.array([f"user {number}" for number in random.integers(0, 200, ROWS)]),
            "ts": pa.array(random.permutation(ROWS)),
            "price": random.random(ROWS),
            "note": ["not read"] * ROWS,
        }
    )


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small chunks, and 16 parts, in two threads."""
    monkeypatch.setattr(parts, "CHUNK", 256)
    monkeypatch.setattr(parts, "ROWS_OF_PART", ROWS // 16)
    threads = pa.cpu_count()
    pa.set_cpu_count(2)
    yield
    pa.set_cpu_count(threads)


class Rises(StreamOperator):
    """Counts, for each user, prices above a limit that changes, and passes on notes."""

    prices = Input("user STRING, ts BIGINT, price DOUBLE")
    notes = Input("user STRING, note STRING")
    limits = BroadcastInput("ts BIGINT, most DOUBLE")
    count, most = ValueState("BIGINT"), BroadcastValueState("DOUBLE")
    rises = Output("user STRING, ts BIGINT, n BIGINT")

    @limits.process_element
    def on_limit(self, element: Any, ctx: Any) -> None:
        self.most.update(element.most)
        self.rises.collect(user="a limit", ts=element.ts, n=0)

    @prices.process_element
    def on_price(self, element: Any, ctx: Any) -> None:
        if element.price > (self.most.value() or 0.5):
            self.count.update((self.count.value() or 0) + 1)
            self.rises.collect(user=element.user, ts=element.ts, n=self.count.value())

    @notes.process_element
    def on_note(self, element: Any, ctx: Any) -> None:
        self.rises.collect(user=f"note of {element.user}", ts=None, n=0)


def of_an_operator(table: pa.Table) -> pa.Table:
    limits = BroadcastStream(pa.table({"ts": [500, 2000], "most": [0.9, 0.7]}), time="ts")
    prices = KeyedStream(table, key="user", time="ts")
    return connect(Rises(), prices=prices, notes=KeyedStream(table.slice(0, 40), key="user"), limits=limits).output(
        "rises"
    )


def results() -> list[list[dict[str, Any]]]:
    """Of a pattern, windows, a join, a clause, and an operator."""
    stream = KeyedStream(events(), key="user", time="ts")
    rise = Pattern.begin("a").where("price < 0.3").followed_by("b").where("price > a.price + 0.5").within(SECOND)
    found = CEP.pattern(stream, rise)
    windows = window(stream, TumblingWindows.of(SECOND / 10)).aggregate("count(*) AS n", "max(price) AS high")
    joined = interval_join(stream, stream, (SECOND / 1000, SECOND / 100), prefix="q_").results
    clause = (
        "PARTITION BY upper(user) AS u ORDER BY ts MEASURES MATCH_NUMBER() AS m, B.price AS p PATTERN (A B+) "
        "DEFINE A AS price < 0.3, B AS price > A.price + 0.5"
    )
    rows = match_recognize(events(), clause).matches
    operator = of_an_operator(events())
    return [
        table.to_pylist()
        for table in (found.matches, found.select("b.price AS p"), found.timed_out, windows, joined, rows, operator)
    ]


def in_any_order(tables: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [sorted(map(str, rows)) for rows in tables]


@pytest.mark.usefixtures("in_parts")
def test_threads_and_files_do_not_change_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nor the order of rows, which does not depend on the number of threads. Temporary files are removed."""
    two = results()
    pa.set_cpu_count(1)
    assert results() == two
    with monkeypatch.context() as patch:
        patch.setattr(parts, "memory_of_tables", lambda: 10_000)
        patch.setattr("tempfile.tempdir", str(tmp_path))
        on_disk = results()
    assert in_any_order(on_disk) == in_any_order(two)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(parts, "ROWS_OF_PART", 10**9)
    monkeypatch.setattr(parts, "memory_of_tables", lambda: 10**9)
    whole = results()
    assert in_any_order(whole) == in_any_order(two)
    assert all(whole)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch, in_parts: None) -> None:
    """Chunks of three rows, and parts of one on average."""
    monkeypatch.setattr(parts, "CHUNK", 3)
    monkeypatch.setattr(parts, "ROWS_OF_PART", 1)


@pytest.fixture(scope="module")
def case_rows() -> dict[str, list[str]]:
    """Those of tables that are not divided: a fixture of the module comes before those of a test."""
    return {name: sorted(map(str, case.rows(case.results(case.table)).to_pylist())) for name, case in CASES.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_parts")
def test_cases_in_parts(name: str, case_rows: dict[str, list[str]]) -> None:
    case = CASES[name]
    whole = case.rows(case.results(case.table))
    assert sorted(map(str, whole.to_pylist())) == case_rows[name]


@pytest.fixture(scope="module")
def clause_rows() -> dict[str, list[str]]:
    return {name: sorted(map(str, case.matches(TRADES).to_pylist())) for name, case in CLAUSES.items()}


@pytest.fixture(scope="module")
def rule_rows() -> dict[str, list[str]]:
    return {name: sorted(map(str, case.rows(case.table).to_pylist())) for name, case in RULE_CASES.items()}


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("name", CLAUSES)
@pytest.mark.usefixtures("small_parts")
def test_clauses_in_parts(
    name: str, on_disk: bool, clause_rows: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_disk:
        monkeypatch.setattr(parts, "memory_of_tables", lambda: 1)
    found = CLAUSES[name].matches(TRADES)
    assert sorted(map(str, found.to_pylist())) == clause_rows[name]


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("name", RULE_CASES)
@pytest.mark.usefixtures("small_parts")
def test_rules_in_parts(
    name: str, on_disk: bool, rule_rows: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_disk:
        monkeypatch.setattr(parts, "memory_of_tables", lambda: 1)
    case = RULE_CASES[name]
    assert sorted(map(str, case.rows(case.table).to_pylist())) == rule_rows[name]


def many_rules(seed: int) -> list[PatternProcessor]:
    """Rules of all kinds: contiguity, strings, conditions over earlier events, clauses, counts, other keys, suppression."""
    random = np.random.default_rng(seed)
    limits = random.random(6).round(2).tolist()
    rise = Pattern.begin("a").where(f"price < {limits[0]}").followed_by("b").where("price > a.price + 0.3")
    texts = Pattern.begin("a").where("note LIKE '%1'").next("b").where("note = a.note OR contains(upper(note), 'X')")
    counted = (
        Pattern.begin("a").where(f"price > {limits[1]}").times_or_more(2).greedy().followed_by("b").where("price < 0.2")
    )
    clause = "PATTERN (A B+) DEFINE A AS price < 0.3, B AS price > A.price AND price > AVG(A.price) + 0.1"
    rules = [
        PatternProcessor("rise", 1, rise.within(SECOND / 2), timed_out=True, select=("b.price AS p",)),
        PatternProcessor("texts", 1, texts.within(SECOND)),
        PatternProcessor("counted", 1, counted.within(SECOND / 4), suppress=SECOND / 10),
        PatternProcessor("by note", 1, rise.within(SECOND / 2), key=("note",), shadow=True),
        PatternProcessor("clause", 1, sql=f"PARTITION BY user ORDER BY ts MEASURES B.price AS p {clause}"),
        PatternProcessor("all", 1, Pattern.begin("a").where(f"price > {limits[2]}"), key=(), select=("a.ts AS at",)),
    ]
    return [rules[number] for number in random.permutation(len(rules))[: int(random.integers(2, 7))]]


def of_rules(rules: list[PatternProcessor], table: pa.Table) -> list[list[dict[str, Any]]]:
    factory = GivenPatternProcessorDiscovererFactory(tuple(rules))
    found = CEP.pattern_processors(KeyedStream(table, key="user", time="ts"), factory, key_groups=16)
    rows: list[list[dict[str, Any]]] = []

    def take(table: pa.Table, number: int) -> None:
        rows.append(table.to_pylist())

    found.run(dict.fromkeys(("matches", "timed_out", "shadow"), take))
    return rows


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("seed", range(3))
def test_threads_do_not_change_what_rules_find(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the order of rows."""
    rules = many_rules(seed)
    table = events().set_column(3, "note", pa.array([f"n{number % 13}" for number in range(ROWS)]))
    threads, slices = set[int](), DynamicCepOperator.slices

    def noted(operator: Any, *arguments: Any) -> Any:
        threads.add(threading.get_ident())
        return slices(operator, *arguments)

    monkeypatch.setattr(DynamicCepOperator, "slices", noted)
    two = of_rules(rules, table)
    assert threads
    assert threading.get_ident() not in threads
    pa.set_cpu_count(1)
    assert of_rules(rules, table) == two
    assert two[0] or two[2]


@pytest.mark.usefixtures("small_parts")
def test_rules_with_functions_of_the_user_have_one_thread() -> None:
    threads = set[int]()

    def dear(table: pa.Table) -> pa.Array:
        threads.add(threading.get_ident())
        return pc.fill_null(pc.greater(table.column("price"), 0.5), False)

    rule = PatternProcessor("dear", 1, Pattern.begin("a").where(NamedCondition("dear")))
    factory = GivenPatternProcessorDiscovererFactory((rule,))
    found = CEP.pattern_processors(
        KeyedStream(events().slice(0, 20), key="user", time="ts"), factory, conditions={"dear": dear}
    )
    assert found.output("matches").num_rows
    assert threads == {threading.get_ident()}


@pytest.fixture(scope="module")
def joined_rows() -> dict[str, list[str]]:
    return {name: sorted(map(str, join(TRADES, QUOTES).to_pylist())) for name, join in JOINS.items()}


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.usefixtures("small_parts")
def test_joins_in_parts(name: str, joined_rows: dict[str, list[str]]) -> None:
    found = JOINS[name](TRADES, QUOTES)
    assert sorted(map(str, found.to_pylist())) == joined_rows[name]


def test_kernels_release_the_lock_of_python() -> None:
    function: Any = compiled(lambda: 1)
    assert function.targetoptions["nogil"]


def test_a_failure_ends_all_threads(small_parts: None) -> None:
    table = events().set_column(1, "ts", pa.array([None, *range(ROWS - 1)], pa.int64()))
    pattern = Pattern.begin("a").where("price > 0.5")
    with pytest.raises(InvalidEventError, match="is null"):
        CEP.pattern(KeyedStream(table, key="user", time="ts"), pattern).select("a.price AS price")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("asterism-tables")]


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**20 < memory_of_tables() < 2**50
    monkeypatch.setenv(MEMORY, "3")
    assert memory_of_tables() == 3 * 2**20
    for wrong in ("0", "-1", "2GB", ""):
        monkeypatch.setenv(MEMORY, wrong)
        with pytest.raises(StreamDefinitionError, match="must be a number of MiB"):
            memory_of_tables()


def test_a_folder_that_cannot_be_written(small_parts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if the disk was full."""
    monkeypatch.setattr(parts, "memory_of_tables", lambda: 10_000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(LimitExceededError, match="cannot be written to temporary files"):
        results()
