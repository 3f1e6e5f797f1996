"""Setup of Spark's Python workers. It must be quick to import, since some workers only inspect the functions they get."""

from __future__ import annotations

import gc

_settled = 0


def settle_memory() -> None:
    """Exclude all imported objects from garbage collection.

    PySpark's worker collects garbage after every task. With all imported modules this takes 50 to 85 ms, as long as a small
    task. The kernels are imported during the first task; therefore this is done twice.
    """
    global _settled  # noqa: PLW0603 - a counter per process
    if _settled < 2:
        _settled += 1
        gc.freeze()
