"""Python runs this file at the start of each Python process of Spark, see ``docs/decisions/0043``.

Spark puts an archive of PySpark on the path of these processes. In an archive Python finds no compiled modules, so each process
compiles some 300 modules before it does anything. If the archive is part of an installed PySpark, which has the same modules,
import that instead.

The process from which Spark forks its workers also imports what they need, see ``docs/decisions/0161``. The one in which Spark
asks a stateful operator for its state variables prints what it does, on the terminal of the user; these lines are left out.
"""

import builtins
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_LIB = ("pyspark", "python", "lib")
_PROGRESS = "Streaming TransformWithStateInPandas Python worker"
"""How the lines begin that Spark's process prints about itself."""


def without_archives(path: list[str]) -> list[str]:
    """*path* without those archives whose modules are also in a folder of *path*.

    >>> without_archives(["/opt/spark/python/lib/pyspark.zip", "/env/site-packages"])
    ['/opt/spark/python/lib/pyspark.zip', '/env/site-packages']
    """
    return [entry for entry in path if not _is_installed(entry, path)]


def _is_installed(entry: str, path: list[str]) -> bool:
    *folder, archive = Path(entry).parts or ("",)
    package = "pyspark" if archive == "pyspark.zip" else "py4j" if archive.startswith("py4j-") else None
    if package is None or tuple(folder[-3:]) != _LIB:
        return False
    site = Path(*folder[:-3])
    return str(site) in path and (site / package / "__init__.py").is_file()


def _run_the_next_one() -> None:
    """Run the ``sitecustomize`` that Python would have run without this one."""
    here = Path(__file__).resolve().parent
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if Path(entry).resolve() != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


def forks_workers(command: list[str]) -> bool:
    """Whether a process with this *command* is Spark's daemon for tasks, and not one that plans a source in Python.

    >>> forks_workers(["python3", "-m", "pyspark.daemon", "pyspark.worker"])
    True
    """
    return command[-3:] == ["-m", "pyspark.daemon", "pyspark.worker"]


def asks_for_state(command: list[str]) -> bool:
    """Whether a process with this *command* is the one in which Spark asks a stateful operator for its state variables.

    >>> asks_for_state(["python3", "-m", "pyspark.sql.streaming.transform_with_state_driver_worker"])
    True
    """
    return command[-2:] == ["-m", "pyspark.sql.streaming.transform_with_state_driver_worker"]


def without_progress(print: Callable[..., None]) -> Callable[..., None]:
    """A function like *print* which leaves out what Spark's process says about itself. What a user's operator prints stays.

    >>> without_progress(print)("Starting Streaming TransformWithStateInPandas Python worker.")
    >>> without_progress(print)("rates loaded")
    rates loaded
    """

    def printed(*values: object, **options: object) -> None:
        if not (values and str(values[0]).removeprefix("Starting ").startswith(_PROGRESS)):
            print(*values, **options)

    return printed


if __name__ == "sitecustomize":
    sys.path[:] = without_archives(sys.path)
    _run_the_next_one()
    if asks_for_state(sys.orig_argv):
        builtins.print = without_progress(print)
    if forks_workers(sys.orig_argv):
        try:
            from asterism.spark.daemon import preload
        except ImportError:  # its workers are of another environment
            pass
        else:
            preload()
