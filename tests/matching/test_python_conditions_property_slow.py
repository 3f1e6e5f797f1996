"""Conditions in Python give Flink's answers to the rest of the corpus."""

from __future__ import annotations

import pytest

from tests.matching.test_python_conditions_property import FILES, PARTS, check_corpus


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("part", range(1, PARTS))
def test_flinks_answers_with_conditions_in_python(name: str, part: int) -> None:
    check_corpus(name, part)
