"""The default's answers to the whole corpus are those of the reference matcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from asterism.conformance.corpus import read_cases
from tests.conformance.test_changed_by_default import CASE_FILES, EVERY, check_engine, listed


@pytest.mark.parametrize("path", CASE_FILES, ids=lambda path: path.stem)
def test_the_engine_gives_the_reference_matchers_answers(path: Path) -> None:
    why = listed()
    check_engine(case for n, case in enumerate(read_cases([path])) if n % EVERY and case["id"] not in why)
