"""Whether the tables of a savepoint are as its manifest says, before any of their rows are read.

Only the ends of the Parquet files are read, whatever their size: how many rows they have, in which columns, and how large a part
of them becomes in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from asterism.errors import StateError
from asterism.files.file_systems import read_end
from asterism.savepoints.chunks import OF_KEYS, chunk_schemas
from asterism.savepoints.file_sums import FileSum, FileSums, below, check_sum
from asterism.savepoints.key_groups import POSITION, broadcast_tables
from asterism.savepoints.kinds import key_states
from asterism.savepoints.manifest import ROWS, Manifest, UpstreamOperator, folder_of_broadcast, folder_of_waiting
from asterism.savepoints.rule_sets import RuleSets

MAX_PART = 2**31
"""The maximum size of a row group of a Parquet file without compression, in bytes, and of the values of a column in it. Those of
Spark have 128 MiB, or one row.
"""
_MAX_FOOTER, _TAIL = 2**26, 8
_END = 2**16
"""How much of the end of a file is read at first, in bytes: the footer is seldom larger."""
_THREADS = 8
_AGAIN = "create the savepoint again, or copy all of its files"


def check_tables(
    files: fs.FileSystem,
    path: str,
    location: str,
    part: Manifest | UpstreamOperator,
    rules: RuleSets | None,
    sums: FileSums,
) -> None:
    """
    :param path, location: the folder of the tables of an operator, in *files* and for messages
    :param sums: the files in this folder; of these, the sizes are compared
    :raises StateError: a table is not there, is damaged, or has other rows or columns than the manifest says
    """
    columns = _columns_of(location, part, rules)
    with ThreadPoolExecutor(_THREADS) as threads:
        for name, count in part.counts.items():
            infos = [] if count == 0 else files_in(files, f"{path}/{name}")
            places = [info.path for info in infos]
            of_table, place = below(sums, name) if count else {}, f"{location}/{name}"
            for info in infos:
                check_sum(of_table, info.base_name, FileSum(info.size), place)
            wanted = columns.get(name, ())
            rows = sum(threads.map(lambda place, wanted=wanted: _rows_of(files, place, wanted), places))
            if rows != count:
                raise StateError(
                    f"the savepoint {location} is not complete",
                    f"{name} has {rows:,} rows in {len(places):,} files, and the manifest says {count:,}.",
                    _AGAIN,
                )


def _columns_of(location: str, part: Manifest | UpstreamOperator, rules: RuleSets | None) -> dict[str, Sequence[str]]:
    """The columns that each table needs."""
    if part.summary is None:
        return {}
    definition = part.summary.definition
    try:
        schemas = chunk_schemas(part.summary, key_states(definition, rules))
        columns = {
            ROWS if name == OF_KEYS else folder_of_waiting(name): schema.names for name, schema in schemas.items()
        }
        tables = {folder_of_broadcast(name): schema for name, schema in broadcast_tables(definition).items()}
        return columns | {name: [POSITION, *schema.names] for name, schema in tables.items()}
    except (LookupError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise StateError(
            f"the savepoint {location} cannot be read",
            f"Its definition is not that of {definition.kind.value}: {type(error).__name__} {error}",
            _AGAIN,
        ) from None


def files_in(files: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    """The files that Spark and others read as those of a table."""
    infos = files.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return [info for info in infos if info.type is fs.FileType.File and info.base_name[0] not in "._"]


def _rows_of(files: fs.FileSystem, path: str, columns: Sequence[str]) -> int:
    try:
        metadata, schema = _footer(files, path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, str(error)) from None
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise _damaged(path, f'it has no column "{missing[0]}", but: {", ".join(schema.names)}')
    for problem in _problems(metadata):
        raise _damaged(path, problem)
    return int(metadata.num_rows)


def _footer(files: fs.FileSystem, path: str) -> tuple[Any, pa.Schema]:
    """The metadata and the columns of a file, of which nothing else is read."""
    end = read_end(files, path, _END)
    length, magic = struct.unpack("<I4s", end[-_TAIL:]) if len(end) > _TAIL else (0, b"")
    if magic != b"PAR1" or not 0 < length <= _MAX_FOOTER:
        raise ValueError("it does not end as a Parquet file does")
    if length + _TAIL > len(end):
        end = read_end(files, path, length + _TAIL)
    if length + _TAIL > len(end):
        raise ValueError("it does not end as a Parquet file does")
    opened = pq.ParquetFile(pa.BufferReader(b"PAR1" + end[-length - _TAIL :]))
    return opened.metadata, opened.schema_arrow


def _problems(metadata: Any) -> Iterator[str]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        size = group.total_byte_size
        if not 0 <= size <= MAX_PART:
            yield f"its row group {number} has {size:,} bytes without compression, at most {MAX_PART:,} are read at once"
        values = max((group.column(place).num_values for place in range(group.num_columns)), default=0)
        if not 0 <= values <= MAX_PART:
            yield f"a column of its row group {number} has {values:,} values, at most {MAX_PART:,} are read at once"


def _damaged(path: str, problem: str) -> StateError:
    return StateError("a file of the savepoint cannot be read", f"{path}: {problem}", _AGAIN)
