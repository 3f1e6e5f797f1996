"""Runs an operator on its history in batch: from rows, by key group and in order, to the state after them, and the results.

See docs/decisions/0134.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import cast_table
from asterism.columns.internal import internal
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, TIME
from asterism.operators.operator import EVENTS, Arrival, Now, Operator, Result, closing
from asterism.operators.state.page_numbers import HEADER
from asterism.operators.state.state_store import MemoryStore
from asterism.spark.host.batch import BATCH_GROUP, BATCH_ORDER, BATCH_TIME, chunks_of, prepared_rows
from asterism.spark.host.exchange import METRICS, Batches, gathered
from asterism.spark.host.host import NO_TIMER, NOW, PROCESSING_TIME
from asterism.spark.host.partitioning import label

STAGE = internal("stage")
"""The column by which the rows of a key group are sorted before their time."""
END_OF_GROUP = 1_000
"""The last stage, of a row that every key group has and that is no event."""
HISTORY = (
    "key_group int, page int, timer bigint, value binary, output string, chunk binary, metrics map<string, bigint>"
)
"""The state after a history: pages and headers of key groups, as initial state; its results; and what key groups have counted."""
_NAMES = [column.split()[0] for column in HISTORY.split(", ")[:6]] + ["metrics"]
_KINDS = [pa.int32(), pa.int32(), pa.int64(), pa.binary(), pa.string(), pa.binary(), METRICS]

ToArrivals = Callable[[pa.Table, int], list[Arrival]]
"""Converts rows of one key group and one stage to arrivals."""


def run_history(
    operator: Operator,
    arrivals: ToArrivals,
    ends: Sequence[Arrival],
    processing_time: int,
    time_mode: str,
    *,
    first: Sequence[Arrival] = (),
) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow``: from rows, sorted by key group, STAGE, time and their order in the table, to HISTORY.

    The state is that of a stream in which these rows came first, and then the watermarks of *ends*.

    :param first: arrivals that every key group gets before all others
    """
    timer = NOW if time_mode == PROCESSING_TIME else NO_TIMER

    def runner(batches: Batches) -> Batches:
        operator.open()
        store, group = MemoryStore(), -1
        with closing(operator):
            for rows in gathered(batches):
                groups, stages = (rows.column(name).to_numpy() for name in (BATCH_GROUP, STAGE))
                others = (np.diff(groups) != 0) | (np.diff(stages) != 0)
                for begin, end in pairwise([0, *(np.flatnonzero(others) + 1).tolist(), len(groups)]):
                    is_new = groups[begin] != group
                    if is_new:
                        store, group = MemoryStore(), int(groups[begin])
                    now = Now(processing_time=processing_time, key_group=group)
                    if is_new and first:
                        yield from _results(operator.slices(store, first, now))
                    if stages[begin] == END_OF_GROUP:
                        yield from _results(operator.slices(store, ends, now))
                        yield from _pages(store, label(group), timer)
                    else:
                        found = arrivals(rows.slice(begin, end - begin), int(stages[begin]))
                        yield from _results(operator.slices(store, found, now))

    return runner


def stages_of(operator: Operator, bounded: Collection[str]) -> dict[str, int]:
    """The stage of the rows of each input: tables (*bounded*) first, then the inputs without an event time, one after the
    other and those of broadcast inputs before others, and then all others at once.
    """

    def place(name: str) -> tuple[bool, bool, bool]:
        spec = operator.inputs[name]
        return name not in bounded, spec.timed, not spec.broadcast

    names = sorted(operator.inputs, key=place)
    return {
        name: 0 if name in bounded else len(names) + 1 if operator.inputs[name].timed else number
        for number, name in enumerate(names, 1)
    }


def arrivals_of_events(operator: Operator, limit: int, *, prepared: bool = False) -> ToArrivals:
    """
    :param limit: the watermark after the history
    :param prepared: whether the operator has prepared the rows
    """
    schema = operator.inputs[EVENTS].prepared

    def arrivals(rows: pa.Table, stage: int) -> list[Arrival]:
        if prepared:
            events = cast_table(rows.select(schema.names), schema)
        else:
            events = operator.prepare(EVENTS, rows.drop_columns([BATCH_GROUP, BATCH_TIME, BATCH_ORDER, STAGE]))
        latest = int(events.column(TIME).to_numpy().max())
        return [Arrival(EVENTS, events, _watermark(latest, limit))]

    return arrivals


def arrivals_of_inputs(
    operator: Operator, names: Sequence[str], limits: Mapping[str, int], bounded: Collection[str]
) -> ToArrivals:
    """
    :param names: the inputs, of which a row has the number, and a struct column for each
    :param limits: the watermarks after the history of the inputs that have one
    :param bounded: the inputs that are tables, of which all rows have the stage 0
    """

    def arrivals(rows: pa.Table, stage: int) -> list[Arrival]:
        latest = rows.column(BATCH_TIME)[-1].as_py()

        def watermark(name: str) -> int:
            if name in bounded:
                return END_OF_TIME if stage else BEFORE_TIME
            return BEFORE_TIME if latest is None else _watermark(latest, limits.get(name, BEFORE_TIME))

        return [
            Arrival(name, prepared_rows(operator, name, number, rows), watermark(name))
            for number, name in enumerate(names)
        ]

    return arrivals


def _watermark(latest: int, limit: int) -> int:
    """The watermark after rows up to a time. Further ones may have this time, and the stream must not find a later watermark than
    that of the whole history.
    """
    return max(min(latest - 1, limit), BEFORE_TIME)


def _results(answers: Iterable[Result]) -> Batches:
    metrics = []

    def outputs() -> Iterable[Result]:
        for result in answers:
            metrics.extend([result.metrics] if result.metrics else [])
            yield result

    for names, chunks in chunks_of(outputs()):
        yield _batch({"output": names, "chunk": chunks}, len(names))
    if metrics:
        counts = [list({name: int(value) for name, value in each.items()}.items()) for each in metrics]
        yield _batch({"metrics": pa.array(counts, METRICS)}, len(counts))


def _pages(store: MemoryStore, group: int, timer: int) -> Batches:
    """Each in a batch of its own, because one may have a gigabyte."""
    for number, value in [*store.pages.items(), *([] if store.header is None else [(HEADER, store.header)])]:
        values = {"key_group": group, "page": number, "timer": timer, "value": value}
        kinds = dict(zip(_NAMES, _KINDS, strict=True))
        yield _batch({name: pa.array([each], kinds[name]) for name, each in values.items()}, 1)


def _batch(columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    """Rows of HISTORY, in which all other columns are NULL."""
    arrays = [
        columns[name] if name in columns else pa.nulls(count, kind) for name, kind in zip(_NAMES, _KINDS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=_NAMES)
