"""Loads modules faster, and says when compiled code has to be made first. See docs/decisions/0187."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

COMPILING = (
    "asterism: compiling, once on this machine, which takes about half a minute (`asterism compile` does it beforehand)"
)
_OBJECTS = 300_000
_FEW = 1_000
"""Objects: fewer than Python has when it has started. Python 3.12 itself sets some hundred aside."""
_on_compiling: Callable[[], None] | None = None
"""None: nobody is told, as in Spark's workers."""


@contextmanager
def loading() -> Iterator[None]:
    """Inside of the block, which imports modules or loads compiled code, no garbage is collected.

    Modules are made of many objects that live as long as the process, and the collector looks at all of them again and again:
    that is a sixth of the time from the start of a process to the first match. After a block that has imported modules, they are
    old, as if it had looked at them.
    """
    was_enabled, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Otherwise the program has set its objects aside, which must stay so. To count them takes long if they are many.
            if len(sys.modules) > before and gc.get_freeze_count() < _FEW:
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()


def collect_later() -> None:
    """In the process of a command, collect no garbage before it has made more objects than all modules have."""
    usual = gc.get_threshold()

    def as_usual(phase: str, _: dict[str, int]) -> None:
        if phase == "stop":
            gc.callbacks.remove(as_usual)
            gc.set_threshold(*usual)

    gc.callbacks.append(as_usual)
    gc.set_threshold(_OBJECTS, *usual[1:])


def at_terminal() -> bool:
    """Whether standard error is a terminal. A process without one, such as a service of Windows, has no standard error."""
    return sys.stderr is not None and sys.stderr.isatty()


def say_compiling() -> None:
    """Say on standard error that code is compiled, if a person reads it: at a terminal or in a notebook."""
    if at_terminal() or (sys.stderr is not None and "ipykernel" in sys.modules):
        sys.stderr.write(COMPILING + "\n")


def tell_of_compiling(tell: Callable[[], None] = say_compiling) -> None:
    """Call *tell* when this process begins to compile, unless it was already decided who is told."""
    global _on_compiling  # noqa: PLW0603 - of the process
    if _on_compiling is None:
        _on_compiling = tell


@cache
def begin_compiling() -> None:
    """Tell who is to be told that this process begins to compile, once."""
    if _on_compiling is not None:
        _on_compiling()
