"""What a user reads when a pattern surely does not mean what it says: every kind, as a whole. See ``test_pattern_texts.py``."""

from __future__ import annotations

import re

import pytest

from asterism.patterns.warnings import costs, diagnose
from tests.kit import Golden
from tests.patterns.test_warnings import COSTS, FAILS, NEVER, RUNS, WITHOUT

SURPRISES = NEVER | WITHOUT | {"a skip that fails": (FAILS,), "parts of a run": (RUNS,)}
TEXTS = {re.sub(r"\W+", "_", name): (diagnose, pattern) for name, (pattern, *_) in SURPRISES.items()} | {
    "cost_" + re.sub(r"\W+", "_", name): (costs, pattern) for name, pattern in COSTS.items()
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_surprise(name: str, golden: Golden) -> None:
    find, pattern = TEXTS[name]
    golden.check(name, "\n".join(map(str, find(pattern))))
