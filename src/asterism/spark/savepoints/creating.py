"""Writes the state of a stopped query as a savepoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism.arguments import expect_string
from asterism.columns.arrays import Ints, one_chunk
from asterism.errors import CheckpointInUseError, StateError
from asterism.files.lease import is_released
from asterism.operators.state.broadcast_state import parts_in
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import BROADCAST_PAGE, HEADER, SETS_PAGE, PageKind
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.state.state_store import Record, batch_from_bytes, kind_of
from asterism.rules.sets.set_store import STORE, FolderStore
from asterism.savepoints.chunks import MANY_ROWS, in_parts
from asterism.savepoints.file_sums import MANY_IN_FILE, FileSum, files_below, sums_in
from asterism.savepoints.instances import is_distributed
from asterism.savepoints.key_groups import (
    KEY_GROUP,
    KEY_HASH,
    POSITION,
    THE_KEY,
    StoredPage,
    Summary,
    broadcast_tables,
    is_of_keys,
    rows_of_pages,
    rows_schema,
    several_definitions,
    waiting_in,
    waiting_rows,
)
from asterism.savepoints.key_states import KeyStates
from asterism.savepoints.kinds import key_states
from asterism.savepoints.manifest import (
    INCOMPLETE,
    MANIFEST,
    ROWS,
    SOURCES,
    Manifest,
    QueryPosition,
    UpstreamOperator,
    folder_of_broadcast,
    folder_of_waiting,
)
from asterism.savepoints.offset_log import key_groups_in
from asterism.savepoints.plain_types import as_plain, plain_schema
from asterism.savepoints.rows.nested import as_table
from asterism.savepoints.rule_sets import RULES, RuleSets
from asterism.spark.host.column_types import spark_schema
from asterism.spark.host.evolution import LAST_OPERATOR
from asterism.spark.host.partitioning import group_of, label
from asterism.spark.host.state_reader import StateReader, is_of_asterism, operators_in, read_state
from asterism.spark.host.stateful import group_column, hash_of
from asterism.spark.progress.rule_progress import wait_for_counts
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.session.checkpoints import RESTORED, current_checkpoint
from asterism.spark.session.leases import FOLDER, leased_here, runs_here
from asterism.spark.session.settings import expect_session, hadoop_settings, resolved, settings
from asterism.text.printable import quoted_name

PARQUET = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.files.maxRecordsPerFile": str(MANY_ROWS),
    "parquet.page.verify-checksum.enabled": "true",
}
"""Settings with which times and names are written and read as they are, in files of which each can be read as a whole. The
checksums of pages, which Spark writes by default, are compared.
"""
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 2**14, 2**22
_STORED = "key_group int, page int, value binary"
_Batches = Iterator[pa.RecordBatch]
_lock = threading.Lock()
_written_here: set[str] = set()
"""The folders to which this process writes savepoints."""


def create_savepoint(spark: SparkSession, checkpoint: str, target: str, *, store: str | None = None) -> None:
    """Write the state of a stopped query to a folder, from which :func:`restore_savepoint` makes a checkpoint: with another
    number of key groups, at another place, or for another version of Spark.

    The folder has Parquet files with a row for each key, each event that waits, and each entry of broadcast state; and
    ``manifest.json``, which is written last. The checkpoint does not change. If the process ends before this returns, call it
    again.

    :param checkpoint: the checkpoint location of a query with one operator or several, which is not running
    :param target: a new folder
    :param store: the ``store`` of a query with rules whose sets are not in its checkpoint. Without it, the savepoint does not
        contain the sets, and the new query needs the same store.
    :raises StateError: there is no such checkpoint; it belongs to a query with stateful operators of Spark; release
        0.1.0 has written its state; it runs; or *target* has files
    :raises CheckpointInUseError: another process runs the query, or writes a savepoint to *target*

    Source: Flink, Savepoints (canonical format). docs/savepoints.md has a runnable example.
    """
    expect_session(spark, "create_savepoint")
    for location, what in ((checkpoint, "checkpoint"), (target, "target"), (store, "store")):
        if location is not None or what != "store":
            expect_string(StateError, location, f"the {what} must be a location", '"/savepoints/carts"')
    source = StoredFolder.of(spark, current_checkpoint(spark, resolved(spark, checkpoint)))
    folder = StoredFolder.of(spark, target)
    check_unused(folder, checkpoint)
    sets = StoredFolder.of(spark, checkpoint) / STORE if store is None else StoredFolder.of(spark, store)
    if store is not None and not sets.names():
        raise StateError(f"there are no sets of rules in {store}", hint="store= of the query")
    checked_operators(spark, source.location)  # before a lease is written there
    with leased_here(spark, source.location):
        if runs_here(source.location):
            raise StateError(f"the query with the checkpoint {checkpoint} runs", hint="stop it: query.stop()")
        with writing(spark, folder, checkpoint) as complete:
            complete(_create(spark, source, folder, sets))


@contextmanager
def writing(spark: SparkSession, folder: StoredFolder, checkpoint: str | None) -> Iterator[Callable[[Manifest], None]]:
    """Write a savepoint to a folder inside the block, alone. The block gets a function that completes it.

    :param checkpoint: of which the savepoint is; None: of tables, or of another savepoint
    :raises CheckpointInUseError: a savepoint is being written there
    :raises StateError: the folder has files that no interrupted call has left
    """
    check_unused(folder, checkpoint)  # before a lease is written there
    in_use = f"another savepoint is being written to {folder.location}"
    hint = "name a new folder for each savepoint"
    with _lock:  # the lease is that of the process
        if folder.location in _written_here:
            raise CheckpointInUseError(in_use, "It is written by another thread of this process.", hint)
        _written_here.add(folder.location)
    try:
        with ExitStack() as stack:
            try:
                check = stack.enter_context(leased_here(spark, folder.location, "savepoint"))
            except CheckpointInUseError as error:
                raise CheckpointInUseError(in_use, error.detail, hint) from None
            check_unused(folder, checkpoint)  # there may be one meanwhile
            begin_writing(folder, checkpoint)

            def complete(manifest: Manifest) -> None:
                whole = replace(manifest, files=_sums(spark, folder, manifest))
                check()
                folder.replace(MANIFEST, whole.to_json())
                folder.delete_file(INCOMPLETE)

            yield complete
    finally:
        _written_here.remove(folder.location)
        claims = folder / FOLDER
        if all(map(is_released, claims.names())):
            claims.delete()


def check_unused(folder: StoredFolder, checkpoint: str | None) -> None:
    """
    :param checkpoint: of which a savepoint will be written there; None: it is made from tables
    :raises StateError: the folder has files that no interrupted call has left
    """
    if {*folder.names()} - {FOLDER} and not _is_interrupted(folder, checkpoint):
        raise StateError(f"the folder {folder.location} is not empty", hint="name a new folder for each savepoint")


def begin_writing(folder: StoredFolder, checkpoint: str | None) -> None:
    """Say that a savepoint is being written in the folder, and remove what a call has left there that was interrupted."""
    folder.replace(INCOMPLETE, json.dumps({"checkpoint": checkpoint}))
    folder.delete_file(MANIFEST)  # first: without it, there is no savepoint
    for name in folder.names():
        if name not in (INCOMPLETE, FOLDER):
            (folder / name).delete()
            folder.delete_file(name)


def _is_interrupted(folder: StoredFolder, checkpoint: str | None) -> bool:
    """Whether a call for the same checkpoint, or for tables, did not end; without a manifest, one for anything."""
    text = folder.read(INCOMPLETE)
    if text is None:
        return False
    return folder.read(MANIFEST) is None or json.loads(text).get("checkpoint") == checkpoint


def _sums(spark: SparkSession, folder: StoredFolder, manifest: Manifest) -> dict[str, FileSum]:
    """The sizes and checksums of the files of a savepoint. Spark reads those of tables, unless they are too large for it."""
    names = [FOLDER, MANIFEST, INCOMPLETE]
    infos = {name: info for name, info in files_below(folder.files, folder.path) if name.split("/")[0] not in names}
    of_upstream = [f"{operator.folder}/{name}" for operator in manifest.upstream for name in operator.counts]
    tables = [*manifest.counts, *of_upstream]
    of_tables = {name: info for name, info in infos.items() if name.rpartition("/")[0] in tables}
    sums = {name: FileSum(info.size) for name, info in of_tables.items() if info.size > MANY_IN_FILE}
    if of_tables:
        files = spark.read.format("binaryFile").load([f"{folder.location}/{name}" for name in tables])
        small = files.where(F.col("length") <= MANY_IN_FILE)
        for path, crc32 in small.select("path", F.crc32("content")).collect():
            parts = path.split("/")  # operator-1/keys/part-..., or keys/part-...
            ends = ["/".join(parts[-length:]) for length in (3, 2)]
            name = next((end for end in ends if end in of_tables), None)
            if name is not None:
                sums[name] = FileSum(of_tables[name].size, crc32)
    return sums | sums_in(folder.files, {name: info for name, info in infos.items() if name not in sums})


def _create(spark: SparkSession, source: StoredFolder, folder: StoredFolder, store: StoredFolder) -> Manifest:
    """
    :param store: where the sets of rules of the last operator are, if it has some
    """
    numbers = checked_operators(spark, source.location)
    states = [read_state(spark, source.location, operator_id=number) for number in numbers]
    position = _position(source, states[LAST_OPERATOR])
    last, *upstream = [
        _written(spark, source, folder / f"operator-{state.operator_id}" if state.operator_id else folder, state, store)
        for state in states
    ]
    if (source / "offsets").numbers()[-1] > position.batch_id + (position.planned is not None):
        raise StateError(
            "the query runs: it has begun a micro-batch while its savepoint was written",
            hint="stop it, and remove the folder of this savepoint",
        )
    manifest = Manifest(
        version("asterism"),
        spark.version,
        datetime.now(UTC).isoformat(timespec="seconds"),
        position,
        last.time_mode,
        last.key_groups,
        numbers[LAST_OPERATOR],
        last.summary,
        last.counts,
        tuple(upstream),
    )
    (source / SOURCES).copy_to(folder / SOURCES)
    if store.names():
        wait_for_counts(store.location)
        store.copy_to(folder / STORE)
    return manifest


def _written(
    spark: SparkSession, source: StoredFolder, folder: StoredFolder, state: StateReader, store: StoredFolder
) -> UpstreamOperator:
    """Write the state of an operator to *folder*."""
    headers, summary = summary_of(state)
    log = (source / "offsets").read(str(state.batch_id)) or ""
    key_groups = key_groups_in(log, None if summary is None else summary.fingerprint)
    rules = rules_of(spark, state, summary, key_groups, store)
    counts = {}
    if summary is not None:
        written = SavepointTables(spark, folder, state, summary, headers, key_groups, rules)
        with settings(spark, PARQUET):
            counts = written.all()
    if rules is not None:
        folder.write(RULES, rules.to_json())
    [mode] = [
        json.loads(row.operatorProperties)["timeMode"]
        for row in operators_in(spark, source.location)
        if int(row.operatorId) == state.operator_id
    ]
    return UpstreamOperator(folder.location.rpartition("/")[2], mode, key_groups, summary, counts)


def checked_operators(spark: SparkSession, checkpoint: str) -> dict[int, int]:
    """The stateful operators of a query by Spark's numbers, the last one first, and how many tasks each has.

    :raises StateError: there is none, or one of Spark itself
    """
    # Spark creates folders where it looks for the state of a query that does not exist.
    rows = operators_in(spark, checkpoint) if StoredFolder.of(spark, checkpoint).names() else []
    if not rows:
        raise StateError(
            f"there is no state of Asterism in {checkpoint}",
            hint="use the checkpoint location of a query that has completed a micro-batch",
        )
    others = sorted(row.operatorName for row in rows if not is_of_asterism(row))
    if others:
        raise StateError(
            "the query has stateful operators of Spark itself",
            f"Operators: {', '.join(others)}",
            "there are savepoints of queries whose state is Asterism's",
        )
    return {int(row.operatorId): int(row.numPartitions) for row in sorted(rows, key=lambda row: int(row.operatorId))}


def _position(source: StoredFolder, state: StateReader) -> QueryPosition:
    offsets, commits = source / "offsets", source / "commits"
    last = max(commits.numbers(), default=None)
    log, commit = offsets.read(str(last)), commits.read(str(last))
    query = source.read("metadata")
    if last is None or last != state.batch_id or log is None or commit is None or query is None:
        raise StateError(f"the checkpoint {source.location} has no completed micro-batch whose state can be read")
    restored = json.loads(source.read(RESTORED) or "{}")
    batches = int(restored.get("batches", 0))
    return QueryPosition(json.loads(query)["id"], last, batches, log, commit, offsets.read(str(last + 1)))


def rules_of(
    spark: SparkSession, state: StateReader, summary: Summary | None, key_groups: int, store: StoredFolder
) -> RuleSets | None:
    """The rules in force; None: it is not a query with rules, or it was drained."""
    if summary is not None and summary.definition.kind is not OperatorKind.RULES:
        return None
    stored = state.stored_pages().where(F.col("page") == SETS_PAGE).collect()
    if not stored:
        return None
    pages = {group_of(row.key_group): bytes(row.value) for row in stored}
    definition = None if summary is None else summary.definition
    return RuleSets.of_store(pages, key_groups, definition, FolderStore(store.location, hadoop_settings(spark)))


def summary_of(state: StateReader) -> tuple[dict[int, GroupHeader], Summary | None]:
    """The headers of the key groups by their labels, and what they have in common; None: there is no state."""
    rows = state.stored_headers().collect()
    headers = {int(row.key_group): GroupHeader.from_bytes(bytes(row.value)) for row in rows if row.value is not None}
    if not headers:
        pages = state.stored_pages()
        index = pages.where(F.col("page") == BROADCAST_PAGE).first()
        # A broadcast state without a key and a watermark has no definition yet; sets of rules need none.
        has_sets = index is not None and not kind_of(bytes(index.value))
        if not has_sets and not pages.isEmpty():
            raise StateError(
                "there is broadcast state, and no other state that says what it consists of",
                hint="let the query process an element with a key, and stop it again",
            )
        return {}, None
    if len(state.definitions) > 1:
        raise several_definitions()
    if not state.definitions:
        raise StateError(
            "an earlier release has written this state, without its names and types",
            hint="let the query process a micro-batch with data with this release, and stop it again",
        )
    return headers, Summary.of(state.definitions[0], list(headers.values()))


@dataclass(frozen=True)
class SavepointTables:
    """Writes the tables of a savepoint."""

    spark: SparkSession
    folder: StoredFolder
    state: StateReader
    summary: Summary
    headers: Mapping[int, GroupHeader]
    key_groups: int
    rules: RuleSets | None

    def all(self) -> dict[str, int]:
        """Write all tables, and return how many rows each has."""
        counts = {ROWS: self._keys()}
        for number, (name, schema) in enumerate(self.summary.definition.inputs.items()):
            if any(header.is_waiting(number) for header in self.headers.values()):
                counts[folder_of_waiting(name)] = self._waiting(number, schema, folder_of_waiting(name))
        for name, schema in broadcast_tables(self.summary.definition).items():
            count = self._broadcast(name, schema)
            if count:
                counts[folder_of_broadcast(name)] = count
            else:
                (self.folder / folder_of_broadcast(name)).delete()
        return counts

    def _keys(self) -> int:
        definition, headers, rules = self.summary.definition, self.headers, self.rules
        states = key_states(definition, rules)
        schema = plain_schema(rows_schema(states))
        if rules is not None:
            schema = schema.append(pa.field(KEY_HASH, pa.int64()))

        def stored(reader: KeyStates, batches: _Batches) -> Iterator[tuple[StoredPage, int]]:
            for batch in batches:
                groups, numbers = (batch.column(name).to_pylist() for name in (KEY_GROUP, "page"))
                for group, number, value in zip(groups, numbers, batch.column("value"), strict=True):
                    if is_of_keys(reader, number):
                        page = value.as_py()
                        yield StoredPage(group_of(group), headers[group], number, page), len(page)

        def decode(batches: _Batches) -> _Batches:
            reader: KeyStates = key_states(definition, rules)
            for several in in_parts(stored(reader, batches), _BYTES_AT_ONCE):
                rows = rows_of_pages(reader, several)
                hashes = reader.hashes(as_table(one_chunk(rows.column(THE_KEY))))
                # For Spark, a batch of a few rows costs as much as one of thousands.
                yield from as_plain(_with_hashes(rows, hashes)).to_batches(max_chunksize=_ROWS_AT_ONCE)

        # Pages with events that wait, or broadcast state, are not sent to Python in vain.
        pages = self.state.stored_pages().where(F.col("page") < PageKind.BROADCAST_PART.first)
        rows = pages.mapInArrow(decode, spark_schema(schema))
        if rules is None:
            keys = [F.col(THE_KEY).getField(f.name.removeprefix("k:")) for f in states.keys]
            rows = rows.withColumn(KEY_HASH, self._hash(definition, keys))
        return self._write(rows, ROWS)

    def _waiting(self, number: int, prepared: pa.Schema, name: str) -> int:
        definition, rules = self.summary.definition, self.rules
        keys = [column for column in prepared.names if column.startswith("k:")]
        keyed = bool(keys) or rules is not None
        labels = sorted(self.headers, key=group_of)
        if not keyed:  # a broadcast input: all key groups have the same
            labels = labels[:1]
        kind = PageKind.WAITING_EVENTS
        places = {(group, place): first for group in labels for place, first in waiting_in(self.headers[group], number)}
        buffers = {group: self.headers[group].buffers[number] for group in labels if (group, None) in places}
        schema = plain_schema(pa.schema([(KEY_GROUP, pa.int32()), (POSITION, pa.int64()), *prepared]))
        if rules is not None:
            schema = schema.append(pa.field(KEY_HASH, pa.int64()))

        def decode(batches: _Batches) -> _Batches:
            reader: KeyStates = key_states(definition, rules)
            for batch in batches:
                groups, numbers = (batch.column(column).to_pylist() for column in (KEY_GROUP, "page"))
                for group, page, value in zip(groups, numbers, batch.column("value"), strict=True):
                    place = None if page < 0 else page
                    if (group, place) in places:
                        stored = buffers[group] if place is None else value.as_py()
                        rows = waiting_rows(prepared, group_of(group), places[group, place], stored)
                        yield from as_plain(_with_hashes(rows, reader.waiting_hashes(rows))).to_batches()

        # Each read of the state loads all of it, so the headers are those that the driver has.
        stored = self.spark.createDataFrame([(group, HEADER, None) for group in buffers], _STORED)
        if any(place is not None for _, place in places):
            pages = self.state.stored_pages().where(F.col("page").between(kind.first, kind.last))
            stored = stored.unionByName(pages)
        rows = stored.mapInArrow(decode, spark_schema(schema))
        if keys:
            rows = rows.withColumn(KEY_HASH, self._hash(definition, [F.col(quoted_name(k)) for k in keys]))
        return self._write(rows, name, checked=keyed)

    def _hash(self, definition: StateDefinition, keys: list[Column]) -> Column:
        """As :func:`asterism.spark.host.stateful.hash_of`; of streams without a key, the number of the instance."""
        if is_distributed(definition):
            return F.col(KEY_GROUP).cast("long")
        return hash_of(keys if definition.keys.names else [])

    def _write(self, rows: DataFrame, name: str, *, checked: bool = True) -> int:
        location = f"{self.folder.location}/{name}"
        rows.write.parquet(location)
        written = self.spark.read.parquet(location)
        if not checked:
            return written.count()
        wrong = F.sum((group_column(F.col(KEY_HASH), self.key_groups) != F.col(KEY_GROUP)).cast("int"))
        counted = written.agg(F.count("*").alias("rows"), wrong.alias("wrong")).first()
        assert counted is not None
        if counted.wrong:
            raise StateError(
                "the keys cannot be divided in another way",
                f"{counted.wrong:,} of {counted.rows:,} are in another key group than that of their hash: the type of the key is "
                "not known.",
            )
        return int(counted.rows)

    def _broadcast(self, name: str, schema: pa.Schema) -> int:
        group = min(self.headers, key=group_of)
        pages = self.state.stored_pages().where(F.col(KEY_GROUP) == group)
        index = pages.where(F.col("page") == BROADCAST_PAGE).first()
        if index is None:
            return 0
        if kind_of(bytes(index.value)) == Record.TABLES:
            raise several_definitions()
        parts = parts_in(bytes(index.value), name)
        order = {page: number for number, page in enumerate(parts)}
        with_position = plain_schema(pa.schema([(POSITION, pa.int64()), *schema]))

        def decode(batches: _Batches) -> _Batches:
            for batch in batches:
                for page, value in zip(batch.column("page").to_pylist(), batch.column("value"), strict=True):
                    rows = batch_from_bytes(value.as_py(), schema)
                    positions = [(order[page] << 32) + number for number in range(rows.num_rows)]
                    table = pa.table([pa.array(positions, pa.int64()), *rows.columns], names=with_position.names)
                    yield from as_plain(table).to_batches()

        if not parts:
            return 0
        rows = pages.where(F.col("page").isin(parts)).mapInArrow(decode, spark_schema(with_position))
        return self._write(rows.coalesce(1), folder_of_broadcast(name), checked=False)


def _with_hashes(rows: pa.Table, hashes: Ints | None) -> pa.Table:
    return rows if hashes is None else rows.append_column(KEY_HASH, pa.array(hashes))


def label_column(group: Column, key_groups: int) -> Column:
    """The label of a key group."""
    labels = F.array(*(F.lit(label(number)) for number in range(key_groups)))
    return F.element_at(labels, group.cast("int") + 1)
