"""A plugin for pytest: kernels are compiled when they are first called. `make test` compiles them with it before its two
processes and their Spark workers start, so that these do not compile the same functions at the same time: in one process those
of patterns, in another those of windows.
"""

from __future__ import annotations

from asterism.columns import compiled

compiled.SECONDS = 0
