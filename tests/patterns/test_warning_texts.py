"""What a user reads when a pattern surely does not mean what it says: every kind, as a whole. See ``test_pattern_texts.py``."""

from __future__ import annotations

import re

import pytest

from asterism.patterns.warnings import diagnose
from tests.kit import Golden
from tests.patterns.test_warnings import FAILS, NEVER, WITHOUT

TEXTS = {
    re.sub(r"\W+", "_", name): pattern
    for name, (pattern, *_) in (NEVER | WITHOUT | {"a skip that fails": (FAILS,)}).items()
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_surprise(name: str, golden: Golden) -> None:
    golden.check(name, "\n".join(map(str, diagnose(TEXTS[name]))))
