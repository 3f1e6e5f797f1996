"""The decorator of compiled functions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from numba import njit

_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger("asterism.columns")


def compiled(function: _F) -> _F:
    """Compile *function* when it is first called. The result is cached beside its file, or in the user's cache folder; if
    neither is writable, every process compiles again, which a log message says once.
    """
    try:
        return cast(_F, njit(cache=True)(function))
    except RuntimeError:
        _warn_of_no_cache()
        return cast(_F, njit(function))


@cache
def _warn_of_no_cache() -> None:
    _log.warning(
        "there is no writable folder for compiled code, so that every process spends up to a minute on it; "
        "set NUMBA_CACHE_DIR to a writable folder"
    )
