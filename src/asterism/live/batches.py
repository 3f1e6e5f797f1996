"""Iterators of batches, with and without ``async``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from asterism.arguments import shown
from asterism.errors import StreamDefinitionError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of events for :meth:`~asterism.live.engine.LiveEngine.stream`, with the arguments of ``process``.

    :param events: a table, a dict, a list of dicts
    :param position: its position in the source
    :param watermark: no event at or before this time comes after it
    :param input: the input, if there are several
    """

    events: Any
    position: Any = None
    watermark: Any = None
    input: str | None = None


def batches_of(batches: Any) -> Iterator[Batch]:
    """:raises StreamDefinitionError: *batches* is no iterable of batches"""
    if isinstance(batches, str | bytes | Mapping | pa.Table | pa.RecordBatch | Batch) or not hasattr(
        batches, "__iter__"
    ):
        raise StreamDefinitionError(
            f"stream takes an iterable of batches, not {shown(batches)}",
            hint="engine.process(batch) takes one batch; astream takes asynchronous iterators",
        )
    for batch in batches:
        yield _as_batch(batch)


def _as_batch(batch: Any) -> Batch:
    return batch if isinstance(batch, Batch) else Batch(batch)


async def _asynchronous(batches: Any) -> AsyncIterator[Batch]:
    if hasattr(batches, "__aiter__"):
        async for batch in batches:
            yield _as_batch(batch)
        return
    iterator, end = batches_of(batches), object()
    while (batch := await asyncio.to_thread(next, iterator, end)) is not end:
        yield batch


@dataclass(frozen=True, slots=True)
class EngineCalls(Generic[T]):
    """What :func:`watched` calls, in another thread.

    :param process: processes a batch
    :param timer: fires timers
    :param undo: takes a call with this result back
    """

    process: Callable[[Batch], T]
    timer: Callable[[], T]
    undo: Callable[[T], None]

    async def result(self, call: Callable[[], T]) -> T:
        """The result of a call. If the task is cancelled meanwhile, nobody gets it, and the call is taken back."""
        # Not a task, which would be cancelled by itself at the end of the loop.
        future = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():  # also if the task is cancelled again
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            if not future.cancelled() and future.exception() is None:
                self.undo(future.result())
            raise


async def watched(batches: Any, calls: EngineCalls[T], seconds: Callable[[], float | None]) -> AsyncIterator[T]:
    """The results of all batches, and of the timers that fire while none comes.

    :param seconds: the time until the next timer; None: there is none
    """
    source = _asynchronous(batches)
    waiting: asyncio.Future[Batch] | None = None
    try:
        while True:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait([waiting], timeout=seconds())
            if not done:
                yield await calls.result(calls.timer)
                continue
            try:
                batch = waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
            yield await calls.result(partial(calls.process, batch))
    finally:
        if waiting is not None and not waiting.done():
            waiting.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await waiting
        await source.aclose()  # type: ignore[attr-defined] # a generator
