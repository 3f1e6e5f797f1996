"""What a user reads when a pattern surely does not mean what it says: every kind, as a whole. See test_error_texts.py."""

from __future__ import annotations

import re

import pytest

from asterism.patterns.warnings import surprises
from tests.errors.conftest import GOLDEN, Golden
from tests.unit.test_surprises import FAILS, NEVER, WITHOUT

PATTERNS = {
    re.sub(r"\W+", "_", name): pattern
    for name, (pattern, *_) in (NEVER | WITHOUT | {"a skip that fails": (FAILS,)}).items()
}


@pytest.mark.parametrize("name", PATTERNS)
def test_text_of_surprise(name: str, golden: Golden) -> None:
    golden.check(f"surprises/{name}", "\n".join(map(str, surprises(PATTERNS[name]))))


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in (GOLDEN / "surprises").glob("*.txt")} == PATTERNS.keys()
