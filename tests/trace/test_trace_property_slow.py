"""The interpreter of the trace and the kernel answer alike on the whole corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from asterism.conformance.corpus import read_cases
from asterism.patterns.semantics import Semantics
from tests.trace.test_trace_property import BOTH, EVERY, FILES, check_cases


@BOTH
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_corpus(path: Path, semantics: Semantics) -> None:
    check_cases([case for n, case in enumerate(read_cases([path])) if n % EVERY], semantics)
