"""How much memory tables may take before they are written to temporary files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from asterism.errors import StreamDefinitionError

MEMORY = "ASTERISM_TABLE_MEMORY"
"""The environment variable with the number of MiB."""
_SHARE = 8
_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_of_process() -> int:
    """The number of bytes that the process can have."""
    return min(_limits())


def memory_of_tables() -> int:
    """The number of bytes of prepared events that a query keeps in memory: that of the environment variable, or else an eighth of
    the memory that the process can have.

    :raises StreamDefinitionError: the environment variable is no number
    """
    given = os.environ.get(MEMORY)
    if given is None:
        return memory_of_process() // _SHARE
    if not given.isdecimal() or len(given) > 9 or int(given) == 0:
        raise StreamDefinitionError(
            f"{MEMORY} must be a number of MiB, not {given!r:.60}", hint=f"{MEMORY}=512; unset it for the default"
        )
    return int(given) * 2**20


def _limits() -> Iterator[int]:
    yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(ImportError):  # on Windows
        import resource

        limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
        yield from (limit for limit in limits if limit != resource.RLIM_INFINITY)
    for file in _CGROUPS:
        with suppress(OSError, ValueError):  # "max"
            yield int(file.read_text())
