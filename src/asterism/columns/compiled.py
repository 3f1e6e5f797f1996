"""The decorators of compiled functions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core import config, event
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    NullCache,
    _CacheLocator,
    _SourceFileBackedLocatorMixin,
)
from numba.core.dispatcher import Dispatcher

from asterism.loading import begin_compiling, loading

_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger("asterism.columns")

SECONDS = 1.0
"""For how long a process runs functions in Python before it compiles them, which takes half a minute."""
MAX_ELEMENTS = 100_000
"""Of the arrays that are passed to a function, if it is to run in Python."""
_spent = 0.0
_compiled: list[Any] = []
_entries: list[_EntryPoint] = []


def compiled(function: _F) -> _F:
    """Compile *function*, which other compiled functions call; called from Python, it releases the GIL. The result is cached
    beside its file, or in the user's cache folder; if neither is writable, every process compiles again, which a log message says
    once.
    """
    return _compiled_with(function, _nrt=True)  # not that of its caller


def uncounted(function: _F) -> _F:
    """:func:`compiled`, for a function that neither makes nor returns arrays. References to its arrays are not counted, which
    otherwise takes half of the time of a function that is called for each event.
    """
    return _compiled_with(function, _nrt=False)


def inlined(function: _F) -> _F:
    """:func:`uncounted`, for a function that is compiled into its callers. A change of it needs one of their files."""
    return _compiled_with(function, _nrt=False, forceinline=True)


def _compiled_with(function: _F, **options: Any) -> _F:
    try:
        compiled = njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        compiled = njit(nogil=True, **options)(function)
        if not _finds_installed(compiled):
            _warn_of_no_cache()
    else:
        _finds_installed(compiled)
    _compiled.append(compiled)
    return cast(_F, compiled)


class _BesideModule(_SourceFileBackedLocatorMixin, _CacheLocator):
    """The folder for the compiled code of a module in its package, which may be read-only."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _BesideModule | None:
        return cls(py_func, py_file) if Path(py_file).exists() else None

    def get_cache_path(self) -> str:
        return str(Path(self._py_file).parent / "__pycache__")


class _BesideModuleImpl(CompileResultCacheImpl):
    _locator_classes = [_BesideModule]  # noqa: RUF012 - as numba has it


class _InstalledCache(FunctionCache):
    """What was compiled when the package was installed, by another user or before it became read-only: numba passes over a folder
    that it cannot write to. Other code is in a *writable* cache.
    """

    _impl_class = _BesideModuleImpl

    def __init__(self, function: Callable[..., Any], writable: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call] # numba has no types
        self.writable = writable

    def exists(self) -> bool:
        return Path(self._cache_path, f"{self._impl.filename_base}.nbi").exists()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        loaded = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return self.writable.load_overload(sig, target_context) if loaded is None else loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        self.writable.save_overload(sig, data)


def _finds_installed(compiled: Any) -> bool:
    """Let a function use what was compiled beside its module, and return whether there is anything."""
    if (
        not isinstance(compiled, Dispatcher)
        or getattr(config, "CACHE_DIR", None)
        or getattr(config, "CACHE_LOCATOR_CLASSES", None)
    ):
        return False
    other: Any = compiled._cache  # type: ignore[attr-defined] # numba has no other way
    beside = Path(compiled.py_func.__code__.co_filename).parent / "__pycache__"
    if getattr(other, "cache_path", None) == str(beside):  # the usual case, which must be quick
        return False
    installed = _InstalledCache(compiled.py_func, other)
    if installed.cache_path == getattr(other, "cache_path", None) or not installed.exists():
        return False
    compiled._cache = installed  # type: ignore[attr-defined]
    return True


def cache_folder() -> str | None:
    """The folder for the compiled code of the first compiled function; None: there is no writable one."""
    for function in _compiled:
        if isinstance(function, Dispatcher):
            cache = function._cache  # type: ignore[attr-defined] # numba has no other way
            return None if isinstance(cache, NullCache) else str(cache.cache_path)
    return None


def _without_cache() -> None:
    """Compile without writing to the cache, since it cannot be written to: the disk is full."""
    _warn_of_no_cache()
    for function in _compiled:
        if isinstance(function, Dispatcher):
            cache = function._cache  # type: ignore[attr-defined] # numba has no other way
            if isinstance(cache, _InstalledCache):
                cache.writable = NullCache()
            else:
                function._cache = NullCache()  # type: ignore[attr-defined]


@cache
def _warn_of_no_cache() -> None:
    _log.warning(
        "there is no writable folder for compiled code, so that every process spends up to a minute on it; "
        "set NUMBA_CACHE_DIR to a writable folder"
    )


def entry(function: _F) -> _F:
    """Compile *function*, which Python calls. On a machine where it has not been compiled yet, the first calls of a process run
    in Python instead, as long as they are short: a first match takes a second, not half a minute.
    """
    return cast(_F, _EntryPoint(function))


class _EntryPoint:
    """A function, as written or compiled, that is compiled when this is worth it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.compiled: Callable[..., Any] = function if isinstance(function, Dispatcher) else compiled(function)
        self.py_func: Callable[..., Any] = getattr(function, "py_func", function)
        self._is_compiled = not isinstance(self.compiled, Dispatcher)  # if NUMBA_DISABLE_JIT is set
        self._is_cached = True  # until it is known better: numba takes milliseconds to find nothing
        update_wrapper(self, self.py_func)
        _entries.append(self)

    def __call__(self, *arguments: Any) -> Any:
        if self._is_compiled:
            return self.compiled(*arguments)
        if _spent < SECONDS:
            with suppress(_NotCompiledError):
                return self._first_call(arguments)
        with event.install_listener("numba:compile", _Compilation(begin_compiling)):
            try:
                result = self.compiled(*arguments)
            except OSError:  # of the cache, before the call
                _without_cache()
                result = self.compiled(*arguments)
        self._is_compiled = True
        return result

    def _first_call(self, arguments: tuple[Any, ...]) -> Any:
        """Call the compiled function if that is in the cache, and else the function in Python.

        :raises _NotCompiledError: it must be compiled
        """
        if self._is_cached:
            with suppress(_NotCompiledError), event.install_listener("numba:compile", _Compilation(_refuse)), loading():
                result = self.compiled(*arguments)
                self._is_compiled = True
                return result
            self._is_cached = False
        if _elements(arguments) > MAX_ELEMENTS:
            raise _NotCompiledError
        return _in_python(self.py_func, arguments)


def load_cached() -> None:
    """Load the compiled code that the cache has of the functions of all imported modules, so that processes that are forked from
    this one have it. Nothing is compiled.
    """
    for function in _entries:
        if isinstance(function.compiled, Dispatcher):
            cache: Any = function.compiled._cache  # type: ignore[attr-defined] # numba has no other way
            with suppress(_NotCompiledError), event.install_listener("numba:compile", _Compilation(_refuse)):
                for signature, *_ in cache._cache_file._load_index() if hasattr(cache, "_cache_file") else ():
                    function.compiled.compile(signature)


class _NotCompiledError(Exception):
    """There is no compiled code for these types, neither in the process nor in the cache."""


class _Compilation(event.Listener):
    """Calls a function when this thread begins to compile one of our functions."""

    def __init__(self, begun: Callable[[], None]) -> None:
        self.thread, self.begun = threading.get_ident(), begun

    def on_start(self, event: Any) -> None:
        if self.thread == threading.get_ident() and event.data["dispatcher"] in _compiled:
            self.begun()

    def on_end(self, event: Any) -> None:
        """Nothing to do."""


def _refuse() -> None:
    raise _NotCompiledError


# ------------------------------------------------------------------------------------------------ in Python


class _TimeInPython(threading.local):
    time = 0.0


_deadline = _TimeInPython()
_namespaces: dict[str, dict[str, Any]] = {}


def _in_python(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run *function* as it was written, on copies of its arrays, so that nothing has changed if it does not finish.

    :raises _NotCompiledError: it takes too long, or calls functions that exist only when compiled
    """
    global _spent  # noqa: PLW0603 - of the process
    copies: dict[int, tuple[Any, Any]] = {}
    copied = [_copy(argument, copies) for argument in arguments]
    begin = time.perf_counter()
    _deadline.time = begin + SECONDS - _spent
    try:
        with np.errstate(all="ignore"):  # compiled code does not warn either
            result = _as_written(function)(*copied)
    except NotImplementedError:  # an intrinsic
        raise _NotCompiledError from None
    finally:
        _spent += time.perf_counter() - begin
    for original, copy in copies.values():
        if original.flags.writeable:
            np.copyto(original, copy)
    return result


def _copy(value: Any, copies: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        if id(value) not in copies:
            copies[id(value)] = value, value.copy()
        return copies[id(value)][1]
    if isinstance(value, tuple):
        items = [_copy(item, copies) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _elements(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(_elements, value)) if isinstance(value, tuple) else 0


def _as_written(function: Any) -> FunctionType:
    """A copy of *function* that calls functions as they were written, and not compiled ones."""
    names = _namespace(function.__module__, function.__globals__)
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def _namespace(module: str, names: dict[str, Any]) -> dict[str, Any]:
    """The *names* of a module, with functions as they were written."""
    if module not in _namespaces:
        namespace = _namespaces[module] = dict(names)
        for name, value in names.items():
            function = getattr(value, "py_func", value)
            if isinstance(function, FunctionType) and (function is not value or function.__module__ == module):
                namespace[name] = _timed(_as_written(function))
    return _namespaces[module]


def _timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """*function*, which refuses when the time is used up."""

    def timed(*arguments: Any) -> Any:
        if time.perf_counter() > _deadline.time:
            raise _NotCompiledError
        return function(*arguments)

    return timed
