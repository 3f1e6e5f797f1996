"""The state of a live engine as a savepoint, from which a query on Spark begins, and the state of a savepoint in a live engine.

The tables are those of other savepoints. An engine is one key group with all keys, and knows no sources: its savepoint has the
positions that the caller gave, and a query on Spark begins with it as with a history.

See docs/decisions/0148.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike, fsencode, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from asterism.arguments import expect, shown
from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.time import END_OF_TIME
from asterism.errors import StateError
from asterism.files.file_systems import read_text
from asterism.live.snapshots import SnapshotFolder, SnapshotRecord, is_live_folder
from asterism.operators.evolution import FIXED
from asterism.operators.row_hashes import row_hashes
from asterism.operators.state.broadcast_state import parts_in
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import BROADCAST_PAGE, DEFINITION_PAGE, HEADER, SETS_PAGE
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.state.state_store import MemoryStore, batch_from_bytes
from asterism.rules.binding.replication import SELECTOR
from asterism.rules.sets.set_store import STORE, FolderStore
from asterism.savepoints.chunks import in_parts
from asterism.savepoints.file_sums import check_missing, check_sum, files_below, sums_in
from asterism.savepoints.instances import cannot_merge, is_distributed, merged_instances, undivided_tables
from asterism.savepoints.key_groups import (
    KEY_GROUP,
    KEY_HASH,
    POSITION,
    STATE,
    THE_KEY,
    StoredPage,
    Summary,
    broadcast_tables,
    is_of_keys,
    merged_entries,
    next_times,
    rows_of_pages,
    rows_schema,
    waiting_in,
    waiting_rows,
    write_group,
)
from asterism.savepoints.key_states import KeyStates
from asterism.savepoints.kinds import key_states
from asterism.savepoints.manifest import (
    INCOMPLETE,
    MANIFEST,
    MAX_SIZE,
    ROWS,
    SEAM,
    Manifest,
    QueryPosition,
    StoredSeam,
    folder_of_broadcast,
    folder_of_waiting,
    no_savepoint,
)
from asterism.savepoints.offset_log import is_control, offsets_of_log
from asterism.savepoints.plain_types import as_plain, plain_schema, retyped_table
from asterism.savepoints.rows.nested import as_table, sizes_of
from asterism.savepoints.rule_sets import MAX_RULES_SIZE, RULES, RuleSets
from asterism.savepoints.stored_tables import check_tables

_ZONE = re.compile(r"tz=([^\],]+)\]")
Location = str | PathLike[str]


def create_live_savepoint(folder: Location, target: Location, *, store: Location | None = None) -> Mapping[str, Any]:
    """Write the state of a live engine to a savepoint, with which a query on Spark begins: ``run(..., history=target)``.

    The folder does not change. If the process ends before this returns, remove *target* and call it again.

    :param folder: that of a live engine, which is closed
    :param target: a new folder
    :param store: the ``store`` of the rules of the engine. Default: they are in its folder
    :return: the positions of the last batches in the state, by input, as they were given to ``process``. The query must read what
        comes after them.
    :raises StateError: there is no live engine, its stream has ended, or *target* has files
    :raises CheckpointInUseError: an engine uses the folder

    Source: Flink, "Savepoints". docs/live.md has a runnable example.
    """
    source, place = _path(folder, "folder"), _path(target, "target")
    if not is_live_folder(source):
        raise StateError(f"the folder {source} is not that of a live engine", hint="the folder given to open(...)")
    if place.is_file() or (place.exists() and any(place.iterdir())):
        problem = f"{place} is a file" if place.is_file() else f"the folder {place} is not empty"
        raise StateError(problem, hint="name a new folder for each savepoint")
    snapshots = SnapshotFolder(source)
    try:
        record, pages = snapshots.read()
        if record is None:
            raise StateError(f"the folder {source} has no snapshot")
        if record.over:
            raise StateError(f"the stream of {source} has ended, so it has no state")
        place.mkdir(parents=True, exist_ok=True)
        (place / INCOMPLETE).write_text(json.dumps({"checkpoint": str(source)}), encoding="utf-8")
        _write(pages, record, place, source / STORE if store is None else _path(store, "store"))
        (place / INCOMPLETE).unlink()
    except OSError as error:
        raise StateError(f"the savepoint {place} cannot be written", str(error)) from error
    finally:
        snapshots.close()
    return dict(record.positions)


def restore_live_savepoint(
    savepoint: Location, folder: Location, *, store: Location | None = None
) -> Mapping[str, Any] | Sequence[Any]:
    """Write the state of a savepoint, of a query on Spark or of a live engine, to the folder of a new live engine. The engine
    that is opened with it continues where the other one stopped.

    If the process ends before this returns, call it again.

    :param savepoint: the folder that :func:`create_savepoint` or :func:`create_live_savepoint` has written, on a local disk
    :param folder: a new folder
    :param store: a new folder for the sets of rules, if the engine has a ``store``. Default: they are in its folder
    :return: where the other one was: of a live engine the positions by input, which the new engine has as well; of a query
        on Spark the offsets of its sources, in the order of the program, after which the engine needs the events
    :raises StateError: there is no savepoint, it has several operators or no state, or the folder is that of an engine already
    :raises CheckpointInUseError: another engine uses the folder

    Source: Flink, "Resuming from Savepoints". docs/live.md has a runnable example.
    """
    source, place, local = _path(savepoint, "savepoint"), _path(folder, "folder"), fs.LocalFileSystem()
    if not (source / MANIFEST).is_file():
        raise no_savepoint(str(source))
    manifest = Manifest.from_json(_text(source / MANIFEST, MAX_SIZE), str(source))
    if manifest.upstream:
        raise StateError(
            f"the savepoint {source} has {1 + len(manifest.upstream)} operators, and a live engine has one",
            hint="a query on Spark: restore_savepoint(...)",
        )
    files = dict(files_below(local, str(source)))
    check_missing(manifest.files, files, str(source))
    with_crc32 = {name: files[name] for name, each in manifest.files.items() if each.crc32 is not None}
    for name, actual in sums_in(local, with_crc32).items():
        check_sum(manifest.files, name, actual, str(source))
    has_seam = (source / SEAM).is_file()
    seam = StoredSeam.from_json(_text(source / SEAM, MAX_SIZE), str(source)) if has_seam else StoredSeam()
    has_rules = (source / RULES).is_file()
    rules = RuleSets.from_json(_text(source / RULES, MAX_RULES_SIZE), str(source)) if has_rules else None
    if manifest.summary is None and rules is None:
        raise StateError(f"the query of the savepoint {source} had no state")
    check_tables(local, str(source), str(source), manifest, rules, manifest.files)
    try:
        pages = _pages(source, manifest, rules)
    except (LookupError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise StateError(f"the savepoint {source} cannot be read", f"{type(error).__name__}: {error}") from None
    snapshots = SnapshotFolder(place)
    try:
        if snapshots.read()[0] is not None:
            raise StateError(f"the folder {place} has the state of a live engine", hint="name a new folder")
        sets = place / STORE if store is None else _path(store, "store")
        if (source / STORE).is_dir():
            shutil.rmtree(sets, ignore_errors=True)
            shutil.copytree(source / STORE, sets, ignore=shutil.ignore_patterns(".*.crc"))
        failures: list[Exception] = []
        snapshots.write(pages, _record(manifest, pages, seam.positions or {}), lambda: None, failures.append)
        snapshots.wait()
        if failures:
            raise failures[0]
    finally:
        snapshots.close()
    if seam.positions is not None:
        return dict(seam.positions)
    return [offset for offset in offsets_of_log(manifest.position.offsets) if not is_control(offset)]


def _path(location: Location, what: str) -> Path:
    expect(StateError, location, str | PathLike, f"the {what} must be a path", '"/savepoints/carts"')
    path = fspath(location)
    if not isinstance(path, str) or not path or "\0" in path or not _can_be_encoded(path):
        raise StateError(f"the {what} must be a path, not {shown(path)}", hint='"/savepoints/carts"')
    if "://" in path:
        raise StateError(f"the {what} must be on a local disk, not {shown(path)}", hint="copy the savepoint")
    return Path(path).absolute()


def _can_be_encoded(path: str) -> bool:
    try:
        fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------------- a savepoint from an engine


def _write(pages: Mapping[int, bytes], record: SnapshotRecord, place: Path, store: Path) -> None:
    """Write a savepoint to an empty folder."""
    header = GroupHeader.from_bytes(pages[HEADER]) if HEADER in pages else None
    definition = StateDefinition.from_bytes(pages[DEFINITION_PAGE]) if DEFINITION_PAGE in pages else None
    if header is None and set(pages) - {SETS_PAGE, DEFINITION_PAGE}:
        raise StateError(
            "there is broadcast state, and no other state that says what it consists of",
            hint="let the engine process an element with a key",
        )
    rules = _rules(pages, definition, store)
    summary = None if header is None or definition is None else Summary.of(definition, [header])
    counts: dict[str, int] = {}
    if summary is not None and header is not None:
        states = key_states(summary.definition, rules)
        counts = {ROWS: _write_keys(place / ROWS, states, header, pages)}
        for name in summary.definition.inputs:
            counts |= _write_waiting(place / folder_of_waiting(name), states, header, pages, name)
        for name, schema in broadcast_tables(summary.definition).items():
            counts |= _write_broadcast(place / folder_of_broadcast(name), pages, name, schema)
    if rules is not None:
        (place / RULES).write_text(rules.to_json(), encoding="utf-8")
    if store.is_dir():
        shutil.copytree(store, place / STORE)
    (place / SEAM).write_text(StoredSeam(None, record.positions).to_json(), encoding="utf-8")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    mode = "ProcessingTime" if definition is not None and _in_processing_time(definition) else "None"
    position = QueryPosition("", 0, 0, "", "")
    local = fs.LocalFileSystem()
    infos = {name: info for name, info in files_below(local, str(place)) if name != INCOMPLETE}
    sums = sums_in(local, infos)
    manifest = Manifest(version("asterism"), "-", now, position, mode, 1, 1, summary, counts, files=sums)
    (place / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def _rules(pages: Mapping[int, bytes], definition: StateDefinition | None, store: Path) -> RuleSets | None:
    if SETS_PAGE not in pages or (definition is not None and definition.kind is not OperatorKind.RULES):
        return None
    return RuleSets.of_store({0: pages[SETS_PAGE]}, 1, definition, FolderStore(str(store)))


def _in_processing_time(definition: StateDefinition) -> bool:
    if definition.kind is OperatorKind.PATTERN:
        return definition.details.get("change", {}).get("time", "") is None
    if definition.kind is OperatorKind.RULES:
        return definition.details["time"] is None
    return bool(definition.details.get(FIXED, {}).get("the use of processing time") == "True")


def _write_keys(place: Path, states: KeyStates, header: GroupHeader, pages: Mapping[int, bytes]) -> int:
    schema = pa.schema([*rows_schema(states), (KEY_HASH, pa.int64())])

    def tables() -> Iterator[pa.Table]:
        stored = (
            (StoredPage(0, header, number, value), len(value))
            for number, value in sorted(pages.items())
            if number != HEADER and is_of_keys(states, number)
        )
        for several in in_parts(stored):
            rows = rows_of_pages(states, several)
            yield rows.append_column(KEY_HASH, pa.array(_hashes(states, as_table(one_chunk(rows.column(THE_KEY))))))

    return _write_parquet(place, schema, tables())


def _hashes(states: KeyStates, keys: pa.Table) -> Ints:
    of_rules = states.hashes(keys)
    if of_rules is not None:
        return of_rules
    if is_distributed(states.definition):
        return np.zeros(keys.num_rows, np.int64)
    return row_hashes(as_plain(keys))


def _write_waiting(
    place: Path, states: KeyStates, header: GroupHeader, pages: Mapping[int, bytes], name: str
) -> dict[str, int]:
    number, prepared = list(states.definition.inputs).index(name), states.definition.inputs[name]
    keys = [column for column in prepared.names if column.startswith("k:")]
    keyed = bool(keys) or SELECTOR in prepared.names or is_distributed(states.definition)
    fields = [(KEY_GROUP, pa.int32()), (POSITION, pa.int64()), *prepared]
    schema = pa.schema([*fields, *([(KEY_HASH, pa.int64())] if keyed else [])])

    def tables() -> Iterator[pa.Table]:
        for page, first in waiting_in(header, number):
            rows = waiting_rows(prepared, 0, first, header.buffers[number] if page is None else pages[page])
            if keyed:
                of_rules = states.waiting_hashes(rows) if SELECTOR in prepared.names else None
                rows = rows.append_column(
                    KEY_HASH, pa.array(_hashes(states, rows.select(keys)) if of_rules is None else of_rules)
                )
            yield rows

    return {place.name: _write_parquet(place, schema, tables())} if header.is_waiting(number) else {}


def _write_broadcast(place: Path, pages: Mapping[int, bytes], name: str, schema: pa.Schema) -> dict[str, int]:
    if BROADCAST_PAGE not in pages:
        return {}
    parts = parts_in(pages[BROADCAST_PAGE], name)
    entries = merged_entries((batch_from_bytes(pages[page], schema) for page in parts), schema)
    if not entries.num_rows:
        return {}
    rows = entries.add_column(0, POSITION, pa.array(np.arange(entries.num_rows)))
    return {place.name: _write_parquet(place, rows.schema, iter([rows]))}


def _write_parquet(place: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> int:
    """Write a table in plain types, and return its number of rows."""
    place.mkdir()
    count = 0
    with pq.ParquetWriter(
        place / "part-00000.parquet", plain_schema(schema), coerce_timestamps="us", write_page_checksum=True
    ) as writer:
        for table in tables:
            writer.write_table(as_plain(table.select(schema.names)).cast(plain_schema(schema)))
            count += table.num_rows
    return count


# ---------------------------------------------------------------------- an engine from a savepoint


def _text(file: Path, most: int) -> str:
    return read_text(fs.LocalFileSystem(), str(file), most)


def _pages(source: Path, manifest: Manifest, rules: RuleSets | None) -> dict[int, Any]:
    """The pages of the only key group."""
    sets, summary, store = None if rules is None else rules.page_of(0, 1), manifest.summary, MemoryStore()
    if summary is None:
        assert sets is not None
        return {SETS_PAGE: sets}
    definition, counts = summary.definition, manifest.counts
    states = key_states(definition, rules)
    rows = ds.dataset(source / ROWS, format="parquet", schema=_read_schema(states)).to_table()
    if is_distributed(definition):
        for table in undivided_tables(definition):
            if (sizes_of(one_chunk(rows.column(STATE)).field(table)) > 0).sum() > 1:
                raise cannot_merge(table, 1)
        rows = merged_instances(rows)
    waiting = {}
    for name in definition.inputs:
        if folder_of_waiting(name) in counts:
            events = ds.dataset(source / folder_of_waiting(name), format="parquet").to_table()
            waiting[name] = events.sort_by([(KEY_GROUP, "ascending"), (POSITION, "ascending")])
    broadcast = {}
    if rules is None and any(folder_of_broadcast(name) in counts for name in broadcast_tables(definition)):
        for name, schema in broadcast_tables(definition).items():
            broadcast[name] = schema.empty_table()
            if folder_of_broadcast(name) in counts:
                entries = ds.dataset(source / folder_of_broadcast(name), format="parquet").to_table().sort_by(POSITION)
                broadcast[name] = retyped_table(entries, schema)
    write_group(store, summary, states, rows, waiting, broadcast, sets)
    return {**store.pages, **({} if store.header is None else {HEADER: store.header})}


def _read_schema(states: KeyStates) -> pa.Schema:
    return plain_schema(pa.schema([*rows_schema(states), (KEY_HASH, pa.int64())]))


def _record(manifest: Manifest, pages: Mapping[int, Any], positions: Mapping[str, Any]) -> SnapshotRecord:
    due = END_OF_TIME
    zone = "UTC"
    if HEADER in pages and manifest.summary is not None:
        definition = manifest.summary.definition
        due = next_times(GroupHeader.from_bytes(pages[HEADER]), definition)[1]
        zones = _ZONE.findall(" ".join(map(str, definition.details.get(FIXED, {}).values())))
        zone = zones[0] if zones else zone
    return SnapshotRecord(
        positions=positions,
        processing_time=manifest.written_at,
        next_processing_time=None if due >= END_OF_TIME else due,
        zone=zone,
        pages=len(pages),
    )
