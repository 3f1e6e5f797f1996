"""Makes a checkpoint from a savepoint.

A query with the operator alone writes the state of all key groups in its first micro-batch. Then the logs of the checkpoint get
the positions of the sources. Until that is done, the checkpoint has a file that says so, and its offset log a number of key
groups with which no query starts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism.arguments import expect, expect_string
from asterism.errors import StateError
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import HEADER
from asterism.rules.sets.set_store import STORE
from asterism.savepoints.chunks import (
    OF_KEYS,
    Chunk,
    GroupWriter,
    chosen_rows,
    chunk_schemas,
    chunks_of,
    gathered,
    in_parts,
    tables_of_file,
)
from asterism.savepoints.file_sums import MANY_IN_FILE, FileSum, FileSums, below, check_missing, check_sum, files_below
from asterism.savepoints.instances import cannot_merge, is_distributed, undivided_tables
from asterism.savepoints.key_groups import (
    KEY_GROUP,
    KEY_HASH,
    POSITION,
    STATE,
    Summary,
    broadcast_tables,
    next_times,
)
from asterism.savepoints.kinds import key_states
from asterism.savepoints.manifest import (
    INCOMPLETE,
    MANIFEST,
    MAX_SIZE,
    ROWS,
    SEAM,
    SOURCES,
    Manifest,
    UpstreamOperator,
    folder_of_broadcast,
    folder_of_waiting,
    no_savepoint,
)
from asterism.savepoints.offset_log import with_key_groups, with_settings_of, with_watermark_of
from asterism.savepoints.plain_types import retyped_table
from asterism.savepoints.rule_sets import MAX_RULES_SIZE, RULES, RuleSets
from asterism.savepoints.stored_tables import check_tables, files_in
from asterism.spark import RESULTS
from asterism.spark.host.evolution import LAST_OPERATOR
from asterism.spark.host.host import EVENT_TIME, NO_TIMER, NOW, PROCESSING_TIME, OperatorHost
from asterism.spark.host.partitioning import group_of, label
from asterism.spark.host.query_settings import start
from asterism.spark.host.state_reader import StateReader
from asterism.spark.host.stateful import bootstrap_source, group_column
from asterism.spark.savepoints.creating import PARQUET, label_column
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.session.checkpoints import RESTORED, SETS
from asterism.spark.session.leases import FOLDER, leased_here
from asterism.spark.session.pipelines import parsed
from asterism.spark.session.settings import PARTITIONS, configure_state_store, expect_session, settings
from asterism.spark.session.unwrapping import explained
from asterism.text.printable import quoted_name

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import TimerValues

_SHOWN = 10
_PAGES = "key_group int, page int, timer bigint, value binary"
_CHUNKS = "key_group int, input string, rows binary"
_BYTES_AT_ONCE = 2**24
_BATCHES_BY_SIZE = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(_BYTES_AT_ONCE),
}
"""Settings with which few chunks are sent to Python at once."""
_Batches = Iterator[pa.RecordBatch]
RESTORING, SAVEPOINT = "restoring", "savepoint"
"""In the file of a checkpoint that was made from a savepoint, or is being made; see :data:`RESTORED`."""


def digest_of(manifest: str) -> str:
    """What identifies a savepoint, wherever it is."""
    return hashlib.sha256(manifest.encode()).hexdigest()[:32]


def write_checkpoint(
    spark: SparkSession,
    folder: StoredFolder,
    target: StoredFolder,
    sets: StoredFolder | None,
    *,
    key_groups: int | None,
    tasks: int | None,
    made_from: StoredFolder | None = None,
) -> None:
    """Make a checkpoint from the savepoint in *folder*, and hold its lease meanwhile.

    :param sets: where the sets of rules are written; None: they stay where they are
    :param made_from: the savepoint that the checkpoint is said to be made from. Default: *folder*
    """
    stored = StoredSavepoint.of(folder)  # before a lease is written
    if not stored.manifest.position.offsets:
        raise StateError(
            f"the savepoint {folder.location} was made from a table, so it has no positions of sources",
            hint=f'start the query with run(..., history="{folder.location}")',
        )
    most = max(operator.key_groups for operator in stored.operators) if key_groups is None else key_groups
    sets = sets if (folder / STORE).names() else None
    for operator in stored.operators:
        _check_instances(spark, operator, operator.key_groups if key_groups is None else key_groups)
    with leased_here(spark, target.location):
        _prepare(target, folder, sets)
        if sets is not None:
            (folder / STORE).copy_to(sets, below(stored.manifest.files, STORE))
        with settings(spark, PARQUET):
            _write_state(spark, stored, target, key_groups, min(tasks or stored.manifest.tasks, most))
        _write_logs(stored.manifest, folder, target, key_groups, made_from or folder)


def _check_instances(spark: SparkSession, stored: StoredOperator, key_groups: int) -> None:
    """:raises StateError: instances of an operator over streams without a key have state that cannot become one"""
    if stored.summary is None or not is_distributed(stored.summary.definition) or key_groups >= stored.key_groups:
        return
    tables = undivided_tables(stored.summary.definition)
    has = [F.sum((F.size(F.col(STATE).getField(table)) > 0).cast("int")).alias(table) for table in tables]
    rows = spark.read.parquet(f"{stored.folder.location}/{ROWS}").groupBy(group_column(F.col(KEY_HASH), key_groups))
    most = rows.agg(F.count("*"), *has).agg(F.count("*"), *(F.max(quoted_name(table)) for table in tables)).first()
    assert most is not None
    for table, count in zip(tables, most[1:], strict=True):
        if count is not None and count > 1:
            raise cannot_merge(table, key_groups)


def read_savepoint(spark: SparkSession, savepoint: str, *, operator_id: int | None = None) -> StateReader:
    """Read the state in a savepoint as :func:`asterism.read_state` reads that of a query. ``key_groups()`` are those of the
    former checkpoint.

    :param savepoint: the folder that :func:`create_savepoint` has written
    :param operator_id: Spark's number of the operator, as for :func:`asterism.read_state`. Default: the only one
    :raises StateError: there is no savepoint, the query had no state, or it has several operators
    """
    expect_session(spark, "read_savepoint")
    expect_string(StateError, savepoint, "the savepoint must be a location", '"/savepoints/carts"')
    expect(StateError, operator_id, int | None, "operator_id must be an integer or None", "operator_id=0")
    stored = StoredSavepoint.of(StoredFolder.of(spark, savepoint))
    number = stored.manifest.operator_number(operator_id)
    operator = stored.operators[number]
    if operator.is_empty:
        raise StateError(f"the query of the savepoint {savepoint} had no state")
    with settings(spark, PARQUET):
        pages = pages_of_groups(spark, operator, operator.key_groups).drop("timer")
        is_page = F.col("page") != HEADER
        return StateReader(pages.where(~is_page), pages.where(is_page), number, stored.manifest.position.batch_id)


class TableContent(NamedTuple):
    """The folder of a table, for messages, and its files."""

    place: str
    sums: FileSums

    def check(self, path: str, content: pa.Buffer) -> None:
        """:raises StateError: the file is another one than that of the manifest"""
        check_sum(self.sums, path.rpartition("/")[2], FileSum.of(content), self.place)


@dataclass(frozen=True, slots=True)
class StoredOperator:
    """The state of an operator in a savepoint: the folder of its tables, and what is not in them."""

    folder: StoredFolder
    part: Manifest | UpstreamOperator
    rules: RuleSets | None
    sums: FileSums = field(default_factory=dict)
    """Of the files in its folder."""

    @classmethod
    def of(cls, folder: StoredFolder, part: Manifest | UpstreamOperator, sums: FileSums) -> StoredOperator:
        rules = read_checked(folder, RULES, MAX_RULES_SIZE, sums)
        sets = None if rules is None else RuleSets.from_json(rules, folder.location)
        check_tables(folder.files, folder.path, folder.location, part, sets, sums)
        return cls(folder, part, sets, sums)

    @property
    def time_mode(self) -> str:
        return self.part.time_mode

    @property
    def key_groups(self) -> int:
        return self.part.key_groups

    @property
    def summary(self) -> Summary | None:
        return self.part.summary

    @property
    def counts(self) -> Mapping[str, int]:
        return self.part.counts

    @property
    def is_empty(self) -> bool:
        return self.summary is None and self.rules is None

    def content_of(self, table: str) -> TableContent:
        """:param table: the name of its folder"""
        return TableContent((self.folder / table).location, below(self.sums, table))

    @property
    def tables(self) -> frozenset[str]:
        """The names of the folders of its tables. Those of empty tables, which are not counted, may be there."""
        if self.summary is None:
            return frozenset(self.counts)
        definition = self.summary.definition
        waiting, broadcast = (
            map(folder_of_waiting, definition.inputs),
            map(folder_of_broadcast, broadcast_tables(definition)),
        )
        return frozenset({ROWS, *self.counts, *waiting, *broadcast})


@dataclass(frozen=True, slots=True)
class StoredSavepoint:
    """A savepoint.

    :ivar operators: in the order of Spark's numbers; the last operator of the query is the first one
    """

    folder: StoredFolder
    manifest: Manifest
    operators: Sequence[StoredOperator]

    @property
    def rules(self) -> RuleSets | None:
        """The rules of the last operator."""
        return self.operators[LAST_OPERATOR].rules

    @classmethod
    def of(cls, folder: StoredFolder) -> StoredSavepoint:
        """:raises StateError: there is no savepoint in the folder, or its files and tables are not as its manifest says"""
        text = folder.read(MANIFEST, MAX_SIZE)
        if text is None:
            raise no_savepoint(folder.location)
        manifest = Manifest.from_json(text, folder.location)
        check_missing(manifest.files, dict(files_below(folder.files, folder.path)), folder.location)
        last = StoredOperator.of(folder, manifest, manifest.files)
        upstream = [
            StoredOperator.of(folder / operator.folder, operator, below(manifest.files, operator.folder))
            for operator in manifest.upstream
        ]
        return cls(folder, manifest, [last, *upstream])

    def place_of(self, number: int, target: StoredFolder) -> StoredFolder:
        """The folder of the tables of an operator in another savepoint of the same query."""
        return target if number == LAST_OPERATOR else target / self.manifest.upstream[number - 1].folder

    def check_names(self) -> None:
        """:raises StateError: the savepoint has more than its own files, which could contain what is removed from it"""
        upstream = {each.folder for each in self.manifest.upstream}
        known = {MANIFEST, INCOMPLETE, FOLDER, SOURCES, STORE, RULES, SEAM, *upstream}
        for operator in self.operators:
            unknown = [name for name in operator.folder.names() if name not in known | operator.tables]
            if unknown:
                raise StateError(
                    f"the savepoint {operator.folder.location} has files that do not belong to it",
                    f"They are neither changed nor copied: {', '.join(unknown[:_SHOWN])}",
                    "move them to another place",
                )

    def copy_rest(self, target: StoredFolder, changed: Collection[int]) -> None:
        """Copy everything to another savepoint but the manifest and the tables of the operators that have *changed*."""
        upstream = {operator.folder for operator in self.manifest.upstream}
        for number, operator in enumerate(self.operators):
            place = self.place_of(number, target)
            for name in operator.folder.names():
                is_changed = number in changed and name in operator.tables
                if name in (MANIFEST, INCOMPLETE, FOLDER) or name in upstream or is_changed:
                    continue
                if name in (RULES, SEAM):
                    place.write(name, read_checked(operator.folder, name, MAX_RULES_SIZE, operator.sums) or "")
                else:
                    (operator.folder / name).copy_to(place / name, below(operator.sums, name))


def read_checked(folder: StoredFolder, name: str, most: int, sums: FileSums) -> str | None:
    """The text of a file of a savepoint; None: there is none.

    :param most: its maximum size in bytes
    :raises StateError: it is larger, or another one than that of the manifest
    """
    text = folder.read(name, most)
    if text is not None:
        check_sum(sums, name, FileSum.of(text.encode()), folder.location)
    return text


def check_new(target: StoredFolder) -> dict[str, str]:
    """What an interrupted call for this checkpoint has noted.

    :raises StateError: the checkpoint is that of a query
    """
    restored: dict[str, str] = {}
    if [name for name in target.names() if name != FOLDER]:
        restored = json.loads(target.read(RESTORED) or "{}")
        if RESTORING not in restored:
            raise StateError(f"the checkpoint {target.location} already exists", hint="name a new location")
    return restored


def _prepare(target: StoredFolder, savepoint: StoredFolder, sets: StoredFolder | None) -> None:
    """Remove what an earlier call has left.

    :raises StateError: the checkpoint is that of a query, or *sets* are those of one
    """
    restored = check_new(target)
    for name in target.names():
        if name not in (FOLDER, RESTORED):
            (target / name).delete()
            target.delete_file(name)
    document = {RESTORING: savepoint.location}
    if sets is not None:
        document[SETS] = sets.location
        clear_store(sets, is_begun=restored.get(SETS) == sets.location)
    target.replace(RESTORED, json.dumps(document))


def clear_store(sets: StoredFolder, *, is_begun: bool) -> None:
    """Prepare a folder to which the sets of a savepoint are copied.

    :param is_begun: whether an earlier call for the same checkpoint was interrupted while it copied them
    :raises StateError: the folder is the store of another query
    """
    if is_begun:
        sets.delete()
    elif sets.names():
        raise StateError(f"the store {sets.location} already exists", hint="name a new folder")


# ---------------------------------------------------------------------- state


def _write_state(
    spark: SparkSession, stored: StoredSavepoint, target: StoredFolder, key_groups: int | None, tasks: int
) -> None:
    """:param key_groups: of each operator; None: as many as it had"""
    configure_state_store(spark)
    # Spark numbers the operators of a union in their order.
    results = reduce(DataFrame.union, (_written_by(spark, operator, key_groups) for operator in stored.operators))
    writer = results.writeStream.foreachBatch(_nothing).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", target.location)
    most = key_groups or max(operator.key_groups for operator in stored.operators)
    with settings(spark, {PARTITIONS: str(tasks), **_BATCHES_BY_SIZE}):
        query = start(spark, writer.start, key_groups=most, checkpoint=target.location, in_parts=True)
    with explained(()):
        query.awaitTermination()


def _written_by(spark: SparkSession, operator: StoredOperator, key_groups: int | None) -> DataFrame:
    """The results of an operator, of which there are none, that writes the state of an operator."""
    summary, time_mode = operator.summary, operator.time_mode
    groups = key_groups or operator.key_groups
    chunks = spark.createDataFrame([], _CHUNKS) if operator.is_empty else _chunks(spark, operator, groups, whole=True)
    maker = None if operator.is_empty else _PageMaker.of(spark, operator, groups)
    host = _RestoringHost(time_mode, inline=(summary is None or (summary.pages or 1) == 1), maker=maker)
    # A stream with one row. Joined with it, a table is the input of the first micro-batch: for an initial state, Spark would call
    # Python and select the key group again with each row.
    begin = bootstrap_source(spark).mapInArrow(_one_row, "begin int")
    return (
        chunks.crossJoin(F.broadcast(begin))
        .drop("begin")
        .groupBy(KEY_GROUP)
        .transformWithState(
            statefulProcessor=host,
            outputStructType=parsed(spark, RESULTS),
            outputMode="Append",
            timeMode=time_mode,
        )
    )


def _one_row(batches: _Batches) -> _Batches:
    yield from batches  # none
    yield pa.RecordBatch.from_arrays([pa.array([0], pa.int32())], ["begin"])


def _nothing(rows: DataFrame, batch_id: int) -> None:
    rows.write.format("noop").mode("overwrite").save()


def pages_of_groups(spark: SparkSession, stored: StoredOperator, key_groups: int) -> DataFrame:
    """The pages of all key groups, and their headers."""
    maker = _PageMaker.of(spark, stored, key_groups)

    def pages_of(chunks: pa.Table) -> pa.Table:
        of_group = chunks.column(KEY_GROUP)[0].as_py()
        inputs, values = chunks.column("input").to_pylist(), chunks.column("rows")
        parts = [(name, rows.as_py()) for name, rows in zip(inputs, values, strict=True) if name is not None]
        return _as_table(of_group, *maker.pages(of_group, parts))

    return _chunks(spark, stored, key_groups).groupBy(KEY_GROUP).applyInArrow(pages_of, _PAGES)


def _as_table(of_group: int, items: Sequence[tuple[int, bytes]], timer: int) -> pa.Table:
    """The pages of a key group, in parts that are not large."""
    schema = pa.schema([(KEY_GROUP, pa.int32()), ("page", pa.int32()), ("timer", pa.int64()), ("value", pa.binary())])
    tables = [schema.empty_table()]
    for part in in_parts(((item, len(item[1])) for item in items), _BYTES_AT_ONCE):
        numbers, values = zip(*part, strict=True)
        tables.append(pa.table([[of_group] * len(part), numbers, [timer] * len(part), values], schema=schema))
    return pa.concat_tables(tables)


def _chunks(spark: SparkSession, stored: StoredOperator, key_groups: int, *, whole: bool = False) -> DataFrame:
    """All rows of the tables of an operator, as chunks for each key group (_CHUNKS), and for each key group a row without one.

    :param whole: whether files are read as a whole, which needs _BATCHES_BY_SIZE
    """
    groups = spark.range(key_groups).select(F.col("id").cast("int").alias(KEY_GROUP))
    nothing = F.lit(None).cast("string").alias("input"), F.lit(None).cast("binary").alias("rows")
    chunks = [groups.select(label_column(F.col(KEY_GROUP), key_groups).alias(KEY_GROUP), *nothing)]
    if stored.summary is not None:
        tables = {name: folder_of_waiting(name) for name in stored.summary.definition.inputs}
        schemas = chunk_schemas(stored.summary, key_states(stored.summary.definition, stored.rules))
        for name, folder in {OF_KEYS: ROWS, **tables}.items():
            if folder == ROWS or folder in stored.counts:
                rows = _stored_rows(spark, stored.folder / folder, whole=whole)
                packing = _Packing(name, schemas[name], key_groups, stored.content_of(folder))
                chunks.append(rows.mapInArrow(packing, _CHUNKS))
    return reduce(DataFrame.unionAll, chunks)


def _stored_rows(spark: SparkSession, table: StoredFolder, *, whole: bool) -> DataFrame:
    """The rows of a table; or the contents of its files, whose rows Python then reads in a fraction of the time."""
    infos = files_in(table.files, table.path) if whole else []
    if infos and all(info.size <= MANY_IN_FILE and info.base_name.endswith(".parquet") for info in infos):
        files = spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet").load(table.location)
        return files.select("path", "content")
    return spark.read.parquet(table.location)


class _Packing:
    """Packs the rows of a table of a savepoint into chunks."""

    def __init__(self, name: str, schema: pa.Schema, key_groups: int, content: TableContent) -> None:
        self.name, self.schema, self.key_groups, self.content = name, schema, key_groups, content

    def __call__(self, batches: _Batches) -> _Batches:
        labels = [label(group) for group in range(self.key_groups)]
        for table in gathered(self._tables(batches)):
            chunks = chunks_of(table, self.schema, self.key_groups)
            for part in in_parts(((chunk, len(chunk[1])) for chunk in chunks), _BYTES_AT_ONCE):
                of_groups = pa.array([labels[group] for group, _ in part], pa.int32())
                names = pa.array([self.name] * len(part), pa.string())
                rows = pa.array([rows for _, rows in part], pa.binary())
                yield pa.RecordBatch.from_arrays([of_groups, names, rows], [KEY_GROUP, "input", "rows"])

    def _tables(self, batches: _Batches) -> Iterator[tuple[pa.Table, int]]:
        names = list(dict.fromkeys([*self.schema.names, KEY_HASH]))
        for batch in batches:
            if batch.schema.names == ["path", "content"]:
                for path, content in zip(*batch.columns, strict=True):
                    self.content.check(path.as_py(), content.as_buffer())
                    yield from tables_of_file(content.as_buffer(), names)
            elif batch.num_rows:
                yield chosen_rows(batch, names)


def _broadcast(
    spark: SparkSession, counts: Mapping[str, int], summary: Summary, folder: StoredFolder
) -> dict[str, pa.Table]:
    """The entries of all broadcast states; none if all are empty."""
    schemas = broadcast_tables(summary.definition)
    if not any(folder_of_broadcast(name) in counts for name in schemas):
        return {}
    tables = {}
    for name, schema in schemas.items():
        tables[name] = schema.empty_table()
        if folder_of_broadcast(name) in counts:
            rows = spark.read.parquet(f"{folder.location}/{folder_of_broadcast(name)}").orderBy(POSITION).toArrow()
            tables[name] = retyped_table(rows, schema)
    return tables


class _PageMaker:
    """Makes the pages of key groups from their chunks, on Spark.

    A process that plans the query does not load what makes them.
    """

    def __init__(self, writer: GroupWriter, mode: str) -> None:
        self._pickled, self._mode = cloudpickle.dumps(writer), mode  # type: ignore[no-untyped-call] # pyspark's copy has no types

    @classmethod
    def of(cls, spark: SparkSession, stored: StoredOperator, key_groups: int) -> _PageMaker:
        summary, rules = stored.summary, stored.rules
        broadcast = {}
        if summary is not None and rules is None:
            broadcast = _broadcast(spark, stored.counts, summary, stored.folder)
        return cls(GroupWriter(summary, rules, key_groups, broadcast), stored.time_mode)

    @cached_property
    def _writer(self) -> GroupWriter:
        writer: GroupWriter = cloudpickle.loads(self._pickled)
        return writer

    def pages(self, of_group: int, chunks: Collection[Chunk]) -> tuple[list[tuple[int, bytes]], int]:
        """The header and the pages of a key group, by their numbers, and the time of its timer.

        :param of_group: its label
        """
        store, timer = self._writer.written(group_of(of_group), chunks), NO_TIMER
        header = []
        if store.header is not None:
            assert self._writer.summary is not None
            event_time, _ = next_times(GroupHeader.from_bytes(store.header), self._writer.summary.definition)
            if self._mode == PROCESSING_TIME:
                timer = NOW
            elif self._mode == EVENT_TIME and event_time < 2**62:
                timer = -(-event_time // 1000)
            header = [(HEADER, store.header)]
        return [*header, *sorted(store.pages.items())], timer


class _RestoringHost(OperatorHost):
    """Writes the state of key groups, and does nothing else."""

    def __init__(self, time_mode: str, *, inline: bool, maker: _PageMaker | None) -> None:
        self._inline, self.time_mode, self.bounded, self.upstream = inline, time_mode, False, {}
        self._maker = maker

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Any]:
        assert self._maker is not None
        chunks = [(row.input, row.rows) for row in rows if row.input is not None]
        pages, timer = self._maker.pages(key[0], chunks)
        for number, value in pages:
            self.write_page(number, value, timer, timerValues)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[Any]:
        return iter(())


# ---------------------------------------------------------------------- logs


def _write_logs(
    manifest: Manifest, folder: StoredFolder, target: StoredFolder, key_groups: int | None, made_from: StoredFolder
) -> None:
    """Give the checkpoint the positions of the sources, and the identity of the query."""
    position, offsets, commits = manifest.position, target / "offsets", target / "commits"
    written, commit = offsets.read("0"), commits.read("0")
    if written is None or commit is None or offsets.numbers() != [0]:
        raise StateError(f"the state could not be written to {target.location}")
    (target / SOURCES).delete()
    (folder / SOURCES).copy_to(target / SOURCES, below(manifest.files, SOURCES))
    commits.write("0", with_watermark_of(commit, position.commit))
    if position.planned is not None:
        offsets.write("1", with_settings_of(with_key_groups(position.planned, key_groups), written))
    target.write("metadata", json.dumps({"id": position.query_id}))
    offsets.write("0", with_settings_of(with_key_groups(position.offsets, key_groups), written))
    savepoint = {"location": made_from.location, "digest": digest_of(made_from.read(MANIFEST) or "")}
    target.replace(RESTORED, json.dumps({"batches": position.batches + position.batch_id, SAVEPOINT: savepoint}))
