"""Loads modules faster."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Inside of the block, which imports modules or loads compiled code, no garbage is collected.

    Modules are made of many objects that live as long as the process, and the collector looks at all of them again and again:
    that is a sixth of the time from the start of a process to the first match.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
