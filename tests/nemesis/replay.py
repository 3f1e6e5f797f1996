"""What every micro-batch of a query must have given: replayed from the offset log, without Spark and without faults.

The offset log says which files and which sets of rules a micro-batch has read. The replay shows them to the operator of the
query, in memory, one micro-batch after the other.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

from asterism.columns.groups import KEY_HASH
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, micros
from asterism.operators.operator import Arrival, Now
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes
from asterism.rules.matching.operator import PROCESSORS, DynamicCepOperator
from asterism.rules.matching.state_pages import prepared_set
from asterism.rules.sets.set_store import STORE, FolderStore
from asterism.savepoints.offset_log import offsets_of_log
from asterism.spark.host.exchange import pack
from asterism.spark.host.host import OperatorHost
from asterism.spark.host.partitioning import group_of
from tests.nemesis.queries import Query, text

Rows = dict[str, list[dict[str, Any]]]
LAKES = "lakes"
FINISH, FINISHED = "finish", "finished"
"""Files: the victim is told to drain, and tells that it has."""


@dataclass(frozen=True)
class Batch:
    """What a micro-batch has read.

    :param files: by source, in order
    :param sets: the numbers of the sets that it brings; *newest*: that which is in force
    :param ends: does it bring the end of input?
    """

    number: int
    files: Mapping[str, Sequence[str]]
    sets: Sequence[int] = ()
    newest: int = 0
    ends: bool = False


def history(query: Query) -> Iterator[Batch]:
    """The micro-batches of which the offsets are written, in order."""
    logs = [_file_log(query.checkpoint / "sources" / str(n)) for n in range(len(query.sources))]
    last, newest, messages = [-1] * len(query.sources), 0, 0
    for path in sorted((query.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        offsets = [offset or {} for offset in offsets_of_log(path.read_text())]
        control = offsets[-1]
        files = {}
        for n, source in enumerate(query.sources):
            until = offsets[n].get("logOffset", last[n])
            files[source] = [path for number in range(last[n] + 1, until + 1) for path in logs[n].get(number, ())]
            last[n] = until
        number = control.get("set", newest)
        yield Batch(
            int(path.name),
            files,
            range(newest + 1, number + 1),
            number,
            control.get("messages", messages) > messages,
        )
        newest, messages = number, control.get("messages", messages)


def _file_log(folder: Path) -> dict[int, dict[str, None]]:
    """Of Spark's file source: which files came with which of its offsets."""
    found: dict[int, dict[str, None]] = {}
    for log in folder.glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found.setdefault(entry["batchId"], {})[entry["path"]] = None
    return found


class Replay:
    """The operator of a query over micro-batches, in memory."""

    def __init__(self, operator: Any, query: Query) -> None:
        self.operator, self.query = operator, query
        self.rules = isinstance(operator, DynamicCepOperator)
        # The hashes of keys are Spark's: without Spark all keys are in one key group, which gives the same rows.
        self.key_groups = query.key_groups if self.rules else 1
        self.stores = [MemoryStore() for _ in range(self.key_groups)]
        self.folder = tempfile.TemporaryDirectory()
        if self.rules:
            self.sets = FolderStore(f"{query.checkpoint}/{STORE}")
            self.store = operator.source = FolderStore(self.folder.name)
        operator.open()

    def close(self) -> None:
        self.operator.close()
        self.folder.cleanup()

    def batch(self, batch: Batch) -> Rows:
        new = []
        for number in batch.sets:
            found = self.sets.get(number)
            self.store.put(found)
            new.append(Arrival(PROCESSORS, prepared_set(found.to_bytes())))
        arrivals: list[list[Arrival]] = [list(new) for _ in self.stores]
        called = bool(new) or batch.ends
        for source, paths in batch.files.items():
            for chunk in self._packed(source, paths):
                called = True
                events = None
                if chunk["chunk"] is not None:
                    events = batch_from_bytes(chunk["chunk"], self.operator.inputs[source].prepared)
                watermark = BEFORE_TIME if chunk["watermark"] is None else chunk["watermark"]
                arrivals[group_of(chunk["key_group"])].append(Arrival(source, events, watermark))
        rows: Rows = {name: [] for name in self.query.outputs}
        for store, mine in zip(self.stores, arrivals, strict=True):
            calls = [(mine, Now())] if called else []
            if batch.ends:
                calls.append(([], Now(END_OF_TIME, 0)))
            for arrived, now in calls:
                for name, table in self.operator.process(store, arrived, now).outputs.items():
                    name = self.query.named.get(name, name)
                    if name in rows:
                        rows[name] += table.to_pylist()
        if self.rules:
            self.store.committed(batch.newest)
        return rows

    def _packed(self, source: str, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
        tables = [self._table(source, path) for path in paths]
        if not tables:
            return
        columns = self.operator.inputs[source].schema.names
        table = pa.concat_tables(tables).select(columns)
        hashed = table.append_column(KEY_HASH, pa.array([0] * table.num_rows, pa.int64()))
        packer = pack(self.operator, self.key_groups, source, micros(self.query.sources[source]))
        for packed in packer(iter(hashed.combine_chunks().to_batches())):
            yield from packed.to_pylist()

    def _table(self, source: str, path: str) -> pa.Table:
        # Wherever the query has read it, the file is in the folder of the query.
        file = self.query.folder / source / path.rpartition("/")[2]
        return pq.read_table(file).cast(self.query.table_schema[source])


@dataclass
class Verdict:
    """What the checker found.

    :param differences: of micro-batches: (micro-batch, output, rows that are missing, rows that are too many)
    """

    batches: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[int, str, list[str], list[str]]] = field(default_factory=list)

    def tell(self, most: int = 20) -> str:
        lines = []
        for number, output, missing, more in self.differences[:most]:
            lines.append(f"micro-batch {number}, {output}: {len(missing)} missing, {len(more)} too many")
            lines += [f"  - {row[:400]}" for row in missing[:2]] + [f"  + {row[:400]}" for row in more[:2]]
        return "\n".join(lines)


def check(query: Query, operator: Any, folder: Path, *, inserted_ids: bool = True) -> Verdict:
    """Compare what the sinks have with what a replay gives: the Parquet files by micro-batch, the table by id.

    :param folder: where the sinks have written
    :param inserted_ids: whether there is a table
    """
    verdict = Verdict()
    replay = Replay(operator, query)
    ids: dict[str, Counter[str]] = {output: Counter() for output in query.ids}
    try:
        for batch in history(query):
            verdict.batches += 1
            for output, rows in replay.batch(batch).items():
                _compare(verdict, batch.number, output, rows, written(folder, output, batch.number))
                if output in ids:
                    ids[output].update(query.row_id(output, row) for row in rows)
    finally:
        replay.close()
    for output, wanted in ids.items():
        twice = [name for name, count in wanted.items() if count > 1]
        if twice:
            verdict.differences.append((-1, f"{output}: ids that are not unique", [], twice))
        found = Counter(inserted(folder, output)) if inserted_ids else wanted
        if found != wanted and not twice:
            missing, more = list((wanted - found).elements()), list((found - wanted).elements())
            verdict.differences.append((-1, f"{output} by id", missing, more))
    return verdict


def check_lakes(verdict: Verdict, query: Query, folder: Path) -> None:
    """Compare the tables of Delta and Iceberg with the files by micro-batch, which :func:`check` compares with a replay."""
    for output in query.ids:
        files = sorted((folder / "out" / output).glob("*.parquet"))
        wanted = [row for path in files for row in pq.read_table(path).to_pylist()]
        for lake in ("delta", "iceberg"):
            path = folder / LAKES / f"{output}.{lake}"
            _compare(
                verdict, -1, f"{output} in {lake}", wanted, pq.read_table(path).to_pylist() if path.exists() else []
            )


def _compare(verdict: Verdict, number: int, output: str, wanted: Sequence[Any], found: Sequence[Any]) -> None:
    verdict.rows[output] += len(wanted)
    left, right = Counter(map(text, wanted)), Counter(map(text, found))
    if left != right:
        missing, more = list((left - right).elements()), list((right - left).elements())
        verdict.differences.append((number, output, missing, more))


# ---------------------------------------------------------------------- the sinks


def write(folder: Path, output: str, batch: int, rows: pa.Table) -> None:
    """A file for each micro-batch, which replaces itself."""
    into = folder / "out" / output
    into.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, into / f"{batch}.new")
    shutil.move(into / f"{batch}.new", into / f"{batch}.parquet")


def written(folder: Path, output: str, batch: int) -> list[dict[str, Any]]:
    path = folder / "out" / output / f"{batch}.parquet"
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist() if path.exists() else []
    return found


def insert(folder: Path, output: str, names: Sequence[str]) -> None:
    """A row for each id that is not there yet."""
    with closing(sqlite3.connect(folder / "ids.db", timeout=60)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS ids (output TEXT, id TEXT, PRIMARY KEY (output, id))")
        values = [(output, name) for name in names]
        database.executemany("INSERT INTO ids VALUES (?, ?) ON CONFLICT DO NOTHING", values)


def inserted(folder: Path, output: str) -> list[str]:
    if not (folder / "ids.db").exists():
        return []
    with closing(sqlite3.connect(folder / "ids.db", timeout=60)) as database:
        try:
            return [name for (name,) in database.execute("SELECT id FROM ids WHERE output = ?", (output,))]
        except sqlite3.OperationalError:  # no table: nothing was ever written
            return []


@contextmanager
def keep_operator(folder: Path) -> Iterator[None]:
    """The operator of every query that is started in this process is kept in *folder*, for the checker."""
    made = OperatorHost.__init__

    def init(self: OperatorHost, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        (folder / "operator.new").write_bytes(self._pickled)
        (folder / "operator.new").replace(folder / "operator")

    OperatorHost.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        OperatorHost.__init__ = made  # type: ignore[method-assign]


def kept_operator(folder: Path) -> Any:
    return cloudpickle.loads((folder / "operator").read_bytes())
