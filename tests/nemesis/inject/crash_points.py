"""Crash points: named functions of the library that a process passes, and what happens to it there.

:func:`install` wraps the functions when their modules are imported, in whatever process that is: the library has no hooks. A
fault is armed by a file, ``fault.json`` in the folder that the environment variable NEMESIS names:

    {"number": 3, "point": "state.call.after", "passing": 2, "fault": "kill", "target": "self", "seconds": 0}

It happens once, at the *passing*-th time that any process passes the point; the file ``fired-3`` says that it did. Where there
is a folder ``passed``, it gets a file for each point that was passed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FUNCTIONS = {
    "asterism.spark.host.control_source": {
        "source.offset": ["ControlReader.latestOffset", "DrainReader.latestOffset"],
        "source.partitions": ["SourceReader.partitions"],
        "source.read": ["SourceReader.read"],
        "source.commit": ["SourceReader.commit"],
    },
    "asterism.spark.rules.rule_source": {
        "source.offset": ["ProcessorReader.latestOffset", "ProcessorDrainReader.latestOffset"],
        "source.partitions": ["_Announces.partitions"],
        "source.read": ["_Announces.read"],
        "source.commit": ["_Announces.commit"],
    },
    "asterism.matching.operator": {"pack.prepare": ["CepOperator.prepare"]},
    "asterism.rules.matching.operator": {"pack.prepare": ["DynamicCepOperator.prepare"]},
    "asterism.windows.operator": {"pack.prepare": ["WindowOperator.prepare"]},
    "asterism.joins.operator": {"pack.prepare": ["StreamJoinOperator.prepare"]},
    "asterism.operators.multiple_input": {"pack.prepare": ["MultipleInputOperator.prepare"]},
    "asterism.operators.key_group": {"state.operator": ["KeyGroupOperator.slices"]},
    "asterism.spark.host.host": {
        "state.init": ["OperatorHost.init"],
        "state.call": ["OperatorHost._rows"],
        "state.flush": ["_SparkStore.flush"],
    },
    "asterism.rules.publishing.coordinator": {
        "rules.updated": ["Coordinator.on_pattern_processors_updated"],
        "rules.committed": ["Coordinator.committed"],
    },
    "asterism.rules.sets.set_store": {
        "rules.claim": ["FolderStore.claim"],
        "store.put": ["FolderStore.put"],
        "store.write": ["FolderStore._write"],
        "store.status": ["FolderStore.write_status"],
    },
}
"""By module: the points, and the functions before and after which they are."""
BEFORE, AFTER = "before", "after"
PASSED = "passed"
_offset = 0.0
_time, _time_ns = time.time, time.time_ns


# ---------------------------------------------------------------------- what happens


def passing(point: str) -> None:
    """This process is at *point*."""
    folder = Path(os.environ["NEMESIS"])
    if point not in _passed:
        _passed.add(point)
        with contextlib.suppress(FileNotFoundError):  # nobody asks
            (folder / PASSED / point).touch()
    fault = _armed(folder)
    if fault is None or fault["point"] != point:
        return
    number = fault["number"]
    counter = os.open(folder / f"passed-{number}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(counter, b".")
    passed = os.fstat(counter).st_size
    os.close(counter)
    if passed < fault["passing"]:
        return
    try:
        (folder / f"fired-{number}").touch(exist_ok=False)
    except FileExistsError:
        return
    happen(folder, fault, os.getpid())


def happen(folder: Path, fault: dict[str, Any], me: int) -> None:
    """:raises OSError: the fault is an error"""
    global _offset  # noqa: PLW0603 - a process has one clock
    if fault["fault"] == "error":
        raise OSError(5, f"fault {fault['number']} at {fault['point']}")
    if fault["fault"] == "clock":
        _offset += fault["seconds"]
        return
    found = json.loads((folder / "processes.json").read_text()) if fault["target"] != "self" else {}
    victims = [found[name] for name in ("jvm", "driver") if fault["target"] in (name, "all")] or [me]
    for victim in victims:
        if fault["fault"] == "stop":
            how = f"sleep {fault['seconds']}; kill -CONT {victim}"
            subprocess.Popen(["/bin/sh", "-c", how], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            os.kill(victim, signal.SIGSTOP)
        else:
            os.kill(victim, signal.SIGKILL)
    if fault["target"] == "self" or me in victims:
        return
    if fault["fault"] == "kill":
        time.sleep(0.05)  # it is dead when this process goes on


def _armed(folder: Path) -> dict[str, Any] | None:
    try:
        stamp = (folder / "fault.json").stat().st_mtime_ns
        if stamp != _cache[0]:
            _cache[:] = [stamp, json.loads((folder / "fault.json").read_text())]
    except FileNotFoundError:
        return None
    armed: dict[str, Any] | None = _cache[1]
    return armed


_cache: list[Any] = [0, None]
_passed: set[str] = set()


# ---------------------------------------------------------------------- where


def install() -> None:
    sys.meta_path.insert(0, _Finder())
    time.time = lambda: _time() + _offset
    time.time_ns = lambda: _time_ns() + int(_offset * 1e9)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in FUNCTIONS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _wrap_all(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _wrap_all(module: ModuleType) -> None:
    for point, names in FUNCTIONS[module.__name__].items():
        for name in names:
            holder, _, function = name.partition(".")
            found = getattr(module, holder)
            setattr(found, function, _wrapped(getattr(found, function), point))
    if module.__name__ == "asterism.rules.sets.set_store":
        _in_the_move(module)


def _wrapped(function: Callable[..., Any], point: str) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **options: Any) -> Any:
            passing(f"{point}.{BEFORE}")
            yield from function(*args, **options)
            passing(f"{point}.{AFTER}")

        return generator

    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        passing(f"{point}.{BEFORE}")
        result = function(*args, **options)
        passing(f"{point}.{AFTER}")
        return result

    return wrapper


def _in_the_move(module: ModuleType) -> None:
    """Of a file in the store: when the new content is there, and the old file not yet replaced."""
    opened = module.FolderStore._open

    class Files:
        def __init__(self, files: Any) -> None:
            self.files = files

        def __getattr__(self, name: str) -> Any:
            found = getattr(self.files, name)
            return _wrapped(found, "store.move") if name == "move" else found

    module.FolderStore._open = lambda self: Files(opened(self))
