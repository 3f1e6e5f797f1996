"""Live engines with ``async for``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism import Batch, ContinuousProcessingTimeTrigger, GlobalWindows, KeyedStream, window
from tests.kit import SOON
from tests.live.test_failures import event, opened


async def batches(count: int, error: Exception | None = None) -> AsyncIterator[Batch]:
    for number in range(1, count + 1):
        yield Batch(event(number), position=number, watermark=1000 * number)
    if error is not None:
        raise error


def test_rows_of_an_asynchronous_iterator(tmp_path: Path) -> None:
    """The event loop goes on, and the rows come in order. After a failure, the stream goes on at its position."""

    async def run() -> list[int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        other = asyncio.create_task(tick())
        times = []
        with opened(tmp_path) as engine:
            with suppress(OSError):  # raised after the rows of all batches
                async for rows in engine.astream(batches(5, OSError("the line is down"))):
                    times += rows["matches"].column("match_time").to_pylist()
                raise AssertionError("the iterator has not failed")
            assert engine.position == 5
            rest = (Batch(event(number), position=number, watermark=1000 * number) for number in (6, 7))
            times += [
                time async for rows in engine.astream(rest) for time in rows["matches"].column("match_time").to_pylist()
            ]
        assert ticks > 5
        other.cancel()
        return times

    assert asyncio.run(run()) == [2000, 3000, 4000, 5000, 6000, 7000]


def test_timers_fire_while_no_batch_comes() -> None:
    trigger = ContinuousProcessingTimeTrigger.of(timedelta(milliseconds=300))
    stream: Any = KeyedStream(pa.schema([("user", pa.string())]), key="user")

    async def source() -> AsyncIterator[dict[str, str]]:
        yield {"user": "ann"}
        await asyncio.Event().wait()  # no more

    async def run() -> int:
        with window(stream, GlobalWindows(), trigger=trigger).open(aggregate=["count(*) AS n"]) as engine:
            async for rows in engine.astream(source()):
                return int(rows["results"].column("n")[0].as_py())
        return 0

    assert asyncio.run(asyncio.wait_for(run(), SOON)) == 1


def test_several_tasks_call_the_engine() -> None:
    async def run() -> int:
        with opened() as engine:
            calls = [asyncio.to_thread(engine.process, {"user": str(n), "ts": 1000, "price": 1.0}) for n in range(20)]
            await asyncio.gather(*calls)
            return int(engine.progress["numInputRows"])

    assert asyncio.run(run()) == 20
