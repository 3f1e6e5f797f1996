"""Transcripts on the operator: step by step, row by row, restored between any two steps, and in other ways."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.groups import KEY_HASH
from asterism.columns.ids import ids_of_numbers, seed_of
from asterism.columns.keys import key_strings
from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.operators.operator import Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.testing.operator_harness import key_hashes
from asterism.windows.assigners import SessionWindows
from asterism.windows.operator import LATE_ELEMENTS, WindowOperator
from asterism.windows.plan import FIRINGS, UNFIRED
from tests.kit import small_pages
from tests.reference.windows import END
from tests.windows.transcripts import MILLISECOND, Case, Element, Step, firing_text, late_text, span

SCHEMA = pa.schema({"k": "string", "t": "int64", "v": "int64", "gap": "float64"})
ROW = pa.schema({"values": pa.list_(pa.int64())})


def values_of(rows: pa.Table, window: Any) -> dict[str, Any]:
    return {"values": rows.column("v").to_pylist()}


def operator_of(case: Case, *, incremental: bool = False, pages: int | None = 1) -> WindowOperator:
    """:param incremental: sums and counts of which partials are kept, not all values"""
    computed: dict[str, Any] = {"function": values_of, "output": ROW}
    if incremental:
        computed = {"measures": ["sum(v) AS total", "count(*) AS n", "last(v) AS newest"]}
    return WindowOperator(
        case.window,
        SCHEMA,
        keys=["k"] if case.keyed else [],
        time="t" if case.event else None,
        trigger=case.trigger,
        lateness=timedelta(milliseconds=case.lateness),
        evictor=case.evict,
        late_output=True,
        in_order=case.in_order,
        pages=pages,
        closing=case.closing,
        on_time=case.on_time,
        session_ids=case.session_ids,
        **computed,
    )


@dataclass(frozen=True)
class Way:
    """:param announced: watermarks come with the input; otherwise the host knows the watermark, as on Spark
    :param together: what follows until time has moved is one call
    """

    name: str
    incremental: bool = False
    pages: int | None = 1
    one_by_one: bool = False
    restored: bool = False
    announced: bool = False
    together: bool = False


WAYS = (
    Way("plain"),
    Way("row by row", one_by_one=True),
    Way("small pages, row by row", one_by_one=True, pages=None),
    Way("restored between steps", one_by_one=True, restored=True, pages=2),
    Way("watermarks of the input", announced=True),
    Way("elements and watermark in one call", announced=True, together=True),
    Way("partials, small pages", incremental=True, pages=None),
    Way("partials, row by row, restored", incremental=True, one_by_one=True, restored=True, pages=3),
    Way("partials, elements and watermark in one call", incremental=True, announced=True, together=True),
)


def table_of(elements: tuple[Element, ...]) -> pa.Table:
    rows = [{"k": e.key, "t": e.time, "v": e.value, "gap": None if e.gap is None else e.gap / 1000} for e in elements]
    return pa.Table.from_pylist(rows, SCHEMA)


class Driver:
    """Plays the steps of a case."""

    def __init__(self, case: Case, way: Way) -> None:
        self.case, self.way = case, way
        self.operator = operator_of(case, incremental=way.incremental, pages=way.pages)
        self.store = MemoryStore()
        self.watermark, self.processing_time = -(2**63) + 1, 0
        self.found: list[str] = []
        self.next_event_time: int | None = None
        self.next_processing_time: int | None = None
        self.sessions = session_texts(case) if case.session_ids else {}

    def play(self) -> list[list[str]]:
        results: list[list[str]] = []
        waiting: tuple[Element, ...] = ()
        for step in self.case.steps:
            self.found = []
            if self.way.together and step.action == "in":
                waiting += step.elements
            elif step.action == "in":
                parts = [(one,) for one in step.elements] if self.way.one_by_one else [step.elements]
                for part in parts:
                    self._call(part)
            else:
                if waiting and (step.action != "watermark" or step.time * 1000 <= self.watermark):
                    self._call(waiting)
                    waiting = ()
                self._move(step, waiting)
                waiting = ()
            results.append(self.found)
        if waiting:
            self.found = []
            self._call(waiting)
            results[-1] = self.found
        return results

    def _move(self, step: Step, elements: tuple[Element, ...]) -> None:
        match step.action:
            case "watermark":
                to = step.time * 1000
                if to <= self.watermark:
                    return
                if self.way.announced:
                    self._call(elements, announce=to)
                else:
                    self.watermark = to
                    self._call(())
                self.watermark = to
            case "processing_time":
                self.processing_time = step.time * 1000
                self._call(())
            case "end":
                self.watermark = self.processing_time = END_OF_TIME
                self._call(())
                assert self.store.is_empty

    @small_pages()
    def _call(self, elements: tuple[Element, ...], announce: int | None = None) -> None:
        if self.way.restored:
            self.store = MemoryStore(self.store.header, dict(self.store.pages))
            self.operator = pickle.loads(pickle.dumps(self.operator))  # as it comes to another worker
        arrivals = []
        events = None
        if elements:
            table = table_of(elements)
            hashes = key_hashes(table.select(["k"] if self.case.keyed else []))
            events = self.operator.prepare("events", table.append_column(KEY_HASH, pa.array(hashes)))
        if events is not None or announce is not None:
            arrivals = [Arrival("events", events, BEFORE_TIME if announce is None else announce)]
        known = self.watermark if not self.way.announced or self.watermark == END_OF_TIME else -(2**63) + 1
        result = self.operator.process(self.store, arrivals, Now(known, self.processing_time))
        self.next_event_time, self.next_processing_time = result.next_event_time, result.next_processing_time
        for row in result.outputs.get(FIRINGS, pa.table({})).to_pylist():
            values = row["values"] if "values" in row else [row["total"], row["n"], row["newest"]]
            end = END if row["window_end"] is None else self._millis(row["window_end"])
            start = 0 if row["window_start"] is None else self._millis(row["window_start"])
            session = None
            if self.case.session_ids:
                session = self.sessions[row["session_id"]], [self.sessions[one] for one in row["replaces"]]
            self.found.append(
                firing_text(row.get("k", "*"), start, end, row["firing"], row["kind"], row["is_last"], values, session)
            )
        for row in result.outputs.get(LATE_ELEMENTS, pa.table({})).to_pylist():
            self.found.append(late_text(row["k"] if self.case.keyed else "*", row["v"], row["t"]))

        if result.metrics.get(UNFIRED):
            self.found.append(f"unfired {result.metrics[UNFIRED]}")

    def _millis(self, time: Any) -> int:
        return time if isinstance(time, int) else round(time.timestamp() * 1000)


def session_texts(case: Case) -> dict[str, str]:
    """The window with which a session begins, by the id of the session."""
    texts = {}
    assert isinstance(case.window, SessionWindows)
    processing_time = 0
    for step in case.steps:
        processing_time = step.time if step.action == "processing_time" else processing_time
        for one in step.elements:
            gap = case.window.gap // MILLISECOND if isinstance(case.window.gap, timedelta) else one.gap
            assert gap is not None
            start = one.time if case.event else processing_time
            bounds = [np.array([time * 1000]) for time in (start, start + gap)]
            keys = key_strings([pa.chunked_array([[one.key if case.keyed else 0]])], 1)
            texts[ids_of_numbers(seed_of("session"), keys, bounds)[0].as_py()] = span(start, start + gap)
    return texts


def summed(line: str) -> str:
    """An expected line, with the values that the incremental aggregates return."""
    if not line.startswith("fires "):
        return line
    head, _, values = line.partition(":")
    numbers = [None if word == "null" else int(word) for word in values.split()]
    known = [number for number in numbers if number is not None]
    shown = [sum(known) if known else None, len(numbers), numbers[-1] if numbers else None]
    return f"{head}: " + " ".join("null" if value is None else str(value) for value in shown)


def expected(case: Case, way: Way) -> list[list[str]]:
    """What each step must give; where calls are joined, the last of them gives it."""
    lists = [[summed(line) if way.incremental else line for line in step.expected] for step in case.steps]
    if way.together:
        held: list[str] = []
        for at, step in enumerate(case.steps):
            if step.action == "in":
                held += lists[at]
                lists[at] = []
            else:
                lists[at] = held + lists[at]
                held = []
        if held:
            lists[-1] += held
    return [sorted(one) for one in lists]


def is_dynamic(case: Case) -> bool:
    return isinstance(case.window, SessionWindows) and case.window.dynamic_gap is not None
