"""Whatever text comes from outside is taken, or refused in words that can be printed. ``make fuzz`` looks at many more."""

from __future__ import annotations

from tests.fuzz.run import run


def test_texts_are_taken_or_refused() -> None:
    report = run(300, seed=1)
    assert not report.failures, str(report)
    taken = sum(count for outcome, count in report.outcomes.items() if outcome.endswith("taken"))
    assert taken > 40  # or nothing is tested but how texts are refused
