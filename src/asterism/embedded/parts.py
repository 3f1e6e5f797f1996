"""Runs operators over tables in parts, which have separate keys, in several threads. See docs/decisions/0141.

The events are prepared in chunks, divided by the hashes of their keys, and processed part by part. What is prepared is in memory
or, if it is too large, in temporary files. The results of parts come in the order of parts, which depends on the events and on
whether there are files.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asterism.columns.arrays import from_numpy, one_chunk
from asterism.columns.groups import as_int64
from asterism.embedded.memory import memory_of_tables
from asterism.errors import LimitExceededError

CHUNK = 2**18
"""The number of events that are prepared at once."""
BUCKETS = 64
"""A part has the keys of some buckets, or of all."""
ROWS_OF_PART = 2**15
"""The least number of prepared events, over the number of parts, of a table that is divided."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: the first bits of its products spread integers evenly, also those that follow each other."""
_AHEAD = 2
"""The number of results, over the number of threads, that are computed before they are asked for."""

Buckets = npt.NDArray[np.uint8]
BucketsOf = Callable[[pa.Table], Buckets]
"""The bucket of each prepared row, which is that of all rows with its key."""
Tables = Mapping[str, pa.Table]
"""For each input of an operator its prepared rows."""


class Closable(Protocol):
    """What a thread uses: an operator, or something else that is closed at the end."""

    def close(self) -> None: ...


SomeOperator = TypeVar("SomeOperator", bound=Closable)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class LazyEvents(Protocol):
    """Events that are read when they are needed, some of their columns."""

    def batches(self) -> Iterable[pa.RecordBatch]: ...


class Workers(Generic[SomeOperator]):
    """Threads, each of which uses an operator of its own.

    :param build: makes a further operator
    :param threads: the number of threads; 1: the caller computes everything, with *first*
    """

    def __init__(self, first: SomeOperator, build: Callable[[], SomeOperator], threads: int) -> None:
        self._build, self._threads = build, threads
        self._idle: queue.SimpleQueue[SomeOperator] = queue.SimpleQueue()
        self._idle.put(first)
        self._every = [first]
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[SomeOperator, _Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """The results for all items, in their order. The first failure in this order is raised."""

        def call(item: _Item) -> _Result:
            with self._operator() as operator:
                return function(operator, item)

        waiting: deque[Future[_Result]] = deque()
        rest = iter(items)
        some = list(islice(rest, 2)) if self._threads > 1 else []
        if len(some) < 2:  # threads would take longer
            yield from map(call, [*some, *rest] if some else rest)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "asterism-tables")
        try:
            for items_now in (some, rest):
                for item in items_now:
                    waiting.append(self._pool.submit(copy_context().run, call, item))
                    if len(waiting) >= self._threads * _AHEAD:
                        yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    @contextmanager
    def _operator(self) -> Iterator[SomeOperator]:
        try:
            operator = self._idle.get_nowait()
        except queue.Empty:
            operator = self._build()
            self._every.append(operator)
        try:
            yield operator
        finally:
            self._idle.put(operator)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """End the threads, and close all operators. After a failure, it is the first error that is raised."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        with ExitStack() as stack:
            for operator in {id(each): each for each in self._every}.values():  # threads may share one
                if kind is not None:
                    stack.enter_context(suppress(Exception))
                stack.callback(operator.close)


def chunks_of(events: Any) -> Iterator[pa.Table]:
    """The rows of a table, or of LazyEvents, in tables of at most CHUNK rows."""
    if isinstance(events, pa.Table):
        yield from (events.slice(begin, CHUNK) for begin in range(0, max(events.num_rows, 1), CHUNK))
        return
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in events.batches():
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= CHUNK:
            yield from chunks_of(pa.Table.from_batches(waiting))
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


@dataclass(frozen=True, slots=True)
class TablePart:
    """
    :param buckets: those of its rows
    :param read: reads its rows
    """

    buckets: range
    read: Callable[[], Tables]


def buckets_of(keys: pa.Table) -> Buckets:
    """The bucket of each row, from its key."""
    if not keys.num_columns:
        return np.zeros(keys.num_rows, np.uint8)
    if keys.num_columns == 1 and pa.types.is_integer(keys.schema.field(0).type):  # in a fifth of the time
        return (as_int64(one_chunk(keys.column(0))).view(np.uint64) * _SPREAD >> np.uint64(58)).astype(np.uint8)
    from asterism.columns.hashing import hash_keys  # imports numba

    return (hash_keys(keys) >> np.uint64(58)).astype(np.uint8)


class _Chunk(NamedTuple):
    """Prepared rows, sorted by bucket, and where the rows of each bucket end; None: the buckets are not known yet."""

    rows: pa.Table
    ends: list[int] | None

    @classmethod
    def of(cls, rows: pa.Table, buckets: Buckets) -> _Chunk:
        ends = np.cumsum(np.bincount(buckets, minlength=BUCKETS)).tolist()
        return cls(rows.take(from_numpy(np.argsort(buckets, kind="stable"))), ends)

    def of_bucket(self, bucket: int) -> pa.Table:
        """The rows of a bucket, in their order."""
        assert self.ends is not None
        begin = self.ends[bucket - 1] if bucket else 0
        return self.rows.slice(begin, self.ends[bucket] - begin)


class DividedRows:
    """The prepared rows of the inputs of an operator, by the buckets of their keys.

    :param schemas: those of the inputs
    :param memory: the number of bytes that are kept in memory
    """

    def __init__(self, schemas: Mapping[str, pa.Schema], buckets_of: BucketsOf, memory: int) -> None:
        self._schemas, self._buckets_of, self._memory = schemas, buckets_of, memory
        self._chunks: dict[str, list[_Chunk]] = {name: [] for name in schemas}
        self._rows = self._bytes = 0
        self._folder: TemporaryDirectory[str] | None = None
        self._written: set[tuple[str, int]] = set()

    def chunk(self, rows: pa.Table, *, many: bool) -> _Chunk:
        """Prepared rows for :meth:`add`; any thread may call this.

        :param many: whether it pays to divide them before it is known into how many parts
        """
        return _Chunk.of(rows, self._buckets_of(rows)) if many else _Chunk(rows, None)

    def add(self, name: str, chunk: _Chunk) -> None:
        self._chunks[name].append(chunk)
        self._rows += chunk.rows.num_rows
        self._bytes += chunk.rows.nbytes
        if self._bytes > self._memory:
            self._write()

    @property
    def count(self) -> int:
        """The number of parts."""
        if self._folder is not None:
            return BUCKETS
        return next((count for count in (BUCKETS, 16, 4) if self._rows >= count * ROWS_OF_PART), 1)

    def parts(self, *, empty: bool = False) -> Iterator[TablePart]:
        """The parts that have rows; or all of them, if also the *empty* ones matter."""
        if self._folder is not None:
            self._write()
            for bucket in range(BUCKETS):
                if empty or any((name, bucket) in self._written for name in self._schemas):
                    yield TablePart(range(bucket, bucket + 1), partial(self._read, bucket))
            return
        count = self.count
        size = BUCKETS // count
        chunks = {name: self._chunks.pop(name) for name in self._schemas}
        if count > 1:
            chunks = {name: self._divided(some) for name, some in chunks.items()}
        for number in range(count):
            buckets = range(number * size, (number + 1) * size)
            part = {name: self._joined(name, some, buckets if count > 1 else None) for name, some in chunks.items()}
            if empty or any(rows.num_rows for rows in part.values()):
                yield TablePart(buckets, partial(_in_one_piece, part))

    def _divided(self, chunks: Sequence[_Chunk]) -> list[_Chunk]:
        """The chunks, with their buckets."""
        return [chunk if chunk.ends is not None else self.chunk(chunk.rows, many=True) for chunk in chunks]

    def _joined(self, name: str, chunks: Sequence[_Chunk], buckets: Iterable[int] | None) -> pa.Table:
        """The rows of some buckets; None: of all, in any order."""
        some = [chunk.rows for chunk in chunks]
        if buckets is not None:
            some = [chunk.of_bucket(bucket) for bucket in buckets for chunk in chunks]
        return pa.concat_tables(some or [self._schemas[name].empty_table()])

    def _read(self, bucket: int) -> Tables:
        assert self._folder is not None
        tables = {}
        for name, schema in self._schemas.items():
            tables[name] = schema.empty_table()
            if (name, bucket) in self._written:
                path = self._path(name, bucket)
                with _file_errors(), pa.OSFile(str(path), "rb") as file:
                    tables[name] = pa.concat_tables(_streams_in(file))
                path.unlink()
        return tables

    def _path(self, name: str, bucket: int) -> Path:
        assert self._folder is not None
        return Path(self._folder.name, f"{list(self._schemas).index(name)}-{bucket}.arrow")

    def _write(self) -> None:
        """Append what is in memory to the files of its buckets. No file remains open: there may be many inputs."""
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with _file_errors():
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="asterism-")
            for name, chunks in self._chunks.items():
                divided = self._divided(chunks)
                for bucket in range(BUCKETS):
                    part = self._joined(name, divided, [bucket])
                    if not part.num_rows:
                        continue
                    with (
                        self._path(name, bucket).open("ab") as file,
                        pa.ipc.new_stream(file, self._schemas[name], options=options) as writer,
                    ):
                        writer.write_table(part.combine_chunks())
                    self._written.add((name, bucket))
                chunks.clear()
        self._bytes = 0

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.cleanup()


def _in_one_piece(tables: Tables) -> Tables:
    """The tables with one chunk of each column, made in the thread that uses them."""
    return {name: rows.combine_chunks() for name, rows in tables.items()}


def _streams_in(file: pa.NativeFile) -> Iterator[pa.Table]:
    """The tables that were appended to a file one after the other."""
    size = file.size()
    while file.tell() < size:
        with pa.ipc.open_stream(file) as reader:
            yield reader.read_all()


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LimitExceededError(
            "the events are too large for the memory, and cannot be written to temporary files",
            str(error),
            "TMPDIR names the folder for temporary files",
        ) from error


def divided_rows(
    workers: Workers[SomeOperator],
    sources: Mapping[str, Any],
    prepare: Callable[[SomeOperator, str, pa.Table], pa.Table],
    schemas: Mapping[str, pa.Schema],
    buckets_of: BucketsOf,
) -> DividedRows:
    """The prepared rows of all inputs.

    :param prepare: prepares a chunk of an input
    :param schemas: those of prepared rows
    """
    divided = DividedRows(schemas, buckets_of, memory_of_tables())
    try:
        for name, source in sources.items():

            def prepared(operator: SomeOperator, chunk: pa.Table, name: str = name) -> _Chunk:
                many = chunk.num_rows == CHUNK  # there are more
                return divided.chunk(prepare(operator, name, chunk), many=many)

            for chunk in workers.map(prepared, chunks_of(source)):
                divided.add(name, chunk)
    except BaseException:
        divided.close()
        raise
    return divided
