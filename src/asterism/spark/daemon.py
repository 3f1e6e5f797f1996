"""The process from which Spark forks its Python workers, with all that they import, so that a forked worker is ready.

In a session that is created after ``import asterism``, :mod:`asterism.spark.startup.sitecustomize` calls :func:`preload` in
Spark's own daemon. Elsewhere, on clusters, Spark runs this module if it is told to (``spark.python.daemon.module``).

See docs/decisions/0161.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from asterism.loading import loading
from asterism.spark.session.worker import forked

PRELOAD = "ASTERISM_PRELOAD"
"""An environment variable: ``false``, and nothing is imported before the fork."""
_THREADS = Path("/proc/self/task")
_SAFE_THREADS = {"jemalloc_bg_thd"}
"""By name, besides the main one: that of jemalloc, which pyarrow loads. It has handlers for forks."""
_MODULES = (
    "pyspark.worker",
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    "pyspark.sql.streaming.list_state_client",
    "pyspark.sql.streaming.map_state_client",
    "pyspark.sql.streaming.value_state_client",
    "asterism.matching.kernels",
    "asterism.matching.operator",
    "asterism.spark.host.exchange",
    "asterism.spark.host.host",
)
"""What all workers of a pattern import, and those of other operators most of it."""


def preload() -> None:
    """Import what workers need, and load compiled code. What is missing here, a worker imports itself, and reports it.

    A process with further threads must not be forked: a lock that another thread holds would never be released. If a library
    starts some when it is imported, this process is replaced by one that has imported nothing.
    """
    if os.environ.get(PRELOAD) == "false" or not _THREADS.is_dir():  # elsewhere than on Linux, threads are not known
        return
    if os.environ.get("OMP_NUM_THREADS") != "1":  # Spark's value; with more, NumPy's library starts threads
        return
    with loading(), redirect_stdout(sys.stderr):  # Spark reads the standard output of its daemon
        for name in _MODULES:
            with suppress(Exception):
                import_module(name)
        with suppress(Exception):
            from asterism.columns.compiled import load_cached

            load_cached()
    if _threads() - _SAFE_THREADS:
        os.environ[PRELOAD] = "false"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    os.register_at_fork(after_in_child=_begin)
    # Spark collects garbage after each task of a worker, and would copy the pages of all these objects.
    gc.freeze()


def _threads() -> set[str]:
    """The names of the threads of this process, apart from the main one."""
    main = str(os.getpid())
    return {(thread / "comm").read_text().strip() for thread in _THREADS.iterdir() if thread.name != main}


def _begin() -> None:
    """Begin a worker, which has random numbers of its own, as if it had imported NumPy itself."""
    random: Any = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
    forked()


def main() -> None:
    """Spark's daemon, after :func:`preload`."""
    preload()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
