"""What Spark's Python workers need on arrival; imports nothing heavy, since some of them only look at what they carry."""

from __future__ import annotations

import gc

_settled = 0


def settle_memory() -> None:
    """Take what is imported out of the garbage collector's sight.

    PySpark's worker collects garbage after every task, which takes 50 to 85 ms with all that is imported here: as long as a small
    task. The kernel is imported during the first task, hence twice.
    """
    global _settled  # noqa: PLW0603 - a fact about this process
    if _settled < 2:
        _settled += 1
        gc.freeze()
