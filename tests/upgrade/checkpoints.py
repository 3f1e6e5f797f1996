"""Checkpoints of earlier releases, with everything open that a query can have open: what makes them, stores them, and goes on.

Of each kind of query of :mod:`tests.nemesis.queries`: FILES files of events are read, and the run stops without a drain, with
open partial matches, windows, timers, broadcast state, rules, and events that wait for the watermark. An archive has the
checkpoint alone: events are a function of their seed, so the test makes the files again.
"""

from __future__ import annotations

import random
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from asterism.operators.operator import EVENTS
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import SETS_PAGE
from asterism.operators.state.state_store import batch_from_bytes, batch_to_bytes
from asterism.rules.binding.replication import FIRST, CopyFilter
from asterism.rules.matching.active_rules import ActiveRules
from asterism.rules.matching.operator import DynamicCepOperator
from asterism.rules.matching.state_pages import entries_of_page, entries_to
from tests.nemesis.queries import QUERIES, SECONDS, Query
from tests.nemesis.replay import Replay

STORED = Path(__file__).parent / "stored"
FILES, MORE = 4, 4
"""Before the checkpoint is stored, and afterwards."""
SEED = 20


def query_of(kind: str, folder: Path) -> Query:
    return QUERIES[kind](folder, SEED, key_groups=2, size=30)


def archive_of(release: str, kind: str) -> Path:
    return STORED / release / f"{kind}.tar.xz"


def releases() -> Iterator[tuple[str, str]]:
    """What is stored: release and kind."""
    for path in sorted(STORED.glob("*/*.tar.xz")):
        yield path.parent.name, path.name.removesuffix(".tar.xz")


def feed(query: Query, first: int, end: int) -> None:
    """The files, with rules that change before every second one."""
    for number in range(first, end):
        if number % 2 == 0:
            query.change_rules(random.Random(f"{SEED} {number}"), number * SECONDS)
        query.feed(number)


def sinks(query: Query, folder: Path) -> dict[str, Any]:
    """A file for each output and micro-batch."""

    def sink(output: str) -> Any:
        def write(df: DataFrame, batch_id: int) -> None:
            into = folder / "out" / output
            into.mkdir(parents=True, exist_ok=True)
            pq.write_table(df.toArrow(), into / f"{batch_id}.parquet")

        return write

    return {output: sink(output) for output in query.outputs}


def begin(spark: SparkSession, query: Query, folder: Path) -> None:
    """The first files, one micro-batch each; everything stays open."""
    for number in range(FILES):
        feed(query, number, number + 1)
        query.run(spark, sinks(query, folder), drain=False)


def go_on(spark: SparkSession, query: Query, folder: Path, more: int = MORE) -> None:
    """So many other files, and the drain."""
    for number in range(FILES, FILES + more, 2):  # with one set of rules each
        feed(query, number, number + 2)
        query.run(spark, sinks(query, folder), drain=number == FILES + more - 2)


def store(query: Query, path: Path) -> None:
    """The checkpoint, as one small file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in sorted(query.checkpoint.rglob("*")):
            if file.is_file() and not file.name.endswith((".crc", ".tmp")):
                archive.add(file, str(file.relative_to(query.checkpoint)), filter=_anonymous)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def restore(query: Query, path: Path) -> None:
    """The checkpoint, and the files that it has read, which are elsewhere now."""
    query.checkpoint.mkdir(parents=True)
    with tarfile.open(path) as archive:
        archive.extractall(query.checkpoint, filter="data")
    feed(query, 0, FILES)
    # Spark writes where things are: into the logs of file sources, and into the metadata of state.
    for log in [*query.checkpoint.glob("sources/*/*"), *query.checkpoint.glob("state/*/_metadata/**/*")]:
        if log.is_file():
            here = log.read_text()
            here = re.sub(r'"file:/+[^"]*?/(\w+/\d+\.parquet)"', rf'"file://{query.folder}/\1"', here)
            here = re.sub(r'"file:/+[^"]*?/checkpoint/([^"]*)"', rf'"file:{query.checkpoint}/\1"', here)
            log.write_text(here)


def as_rules_were_stored(replay: Replay) -> None:
    """Change the state to what releases until 0.2.0-alpha have stored: of the events that wait, those that a rule needs, and only
    for the rules that were in force when they arrived.
    """
    operator = replay.operator
    assert isinstance(operator, DynamicCepOperator)
    schema = operator.inputs[EVENTS].prepared
    place = list(operator.inputs).index(EVENTS)
    for store in replay.stores:
        stored, page = store.read_header(), store.read_page(SETS_PAGE)
        if stored is None or page is None:
            continue
        state, header = entries_of_page(page), GroupHeader.from_bytes(stored)
        bound = ActiveRules.of(state.entries, operator.compiler).bound
        copy_filter = CopyFilter.of(bound, {one.name: one for one in state.lookups})
        assert not header.chunks[place]
        if header.buffers[place]:
            copies = batch_from_bytes(header.buffers[place], schema)
            new = copies.column(FIRST).to_numpy()
            copies = copies.filter(pa.array(~new | copy_filter.required(copies, new)))
            first = pa.array(np.zeros(copies.num_rows, np.bool_))
            copies = copies.set_column(schema.get_field_index(FIRST), schema.field(FIRST), first)
            header.buffers[place] = batch_to_bytes(copies) if copies.num_rows else b""
        store.write_page(SETS_PAGE, entries_to(state._replace(selectors=None)))
        store.write_header(header.to_bytes())
