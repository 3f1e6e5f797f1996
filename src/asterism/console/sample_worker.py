"""The child process that tries rules on events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asterism.console.samples import Samples, SampleSettings
from asterism.console.worker import Handler, limit_memory, run

MAX_MEMORY = 4_000_000_000
"""Bytes of memory of the process."""


def handler_of(setup: Mapping[str, Any]) -> Handler:
    limit_memory(MAX_MEMORY)
    samples = Samples(SampleSettings(**setup))
    return lambda request, on_progress: samples.answer(request)


if __name__ == "__main__":
    run(handler_of)
