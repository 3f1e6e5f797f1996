"""The report of a backtest: its summary, its conditions, and how it is shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from asterism.errors import AsterismError
from asterism.rules.checking.backtest import BacktestMatch, BacktestReport, BacktestRule, BacktestRun, check_where

RUN = BacktestRun(2, None, 1200, 7, 600.0, 1100, None, 0)
START = datetime(2026, 1, 1, 23, 59, tzinfo=UTC)
MATCH = BacktestMatch(
    "added", 2, ("ann", None), START, START + timedelta(minutes=2), (("a", {"user": "ann", "x": 1}),), 5
)
CHANGED = BacktestRule("changed", RUN, replace(RUN, version=1, matches=1000), 250, 50, 950, (MATCH,))
GONE = BacktestRule("gone", None, replace(RUN, version=4), 0, 1200, 0)
REFUSED = BacktestRule("bad", BacktestRun(refused="unknown column 'x'"), RUN)
FAILED = BacktestRule("failed", replace(RUN, errors=2, error="division by zero"), RUN, 0, 0, 1200)
REPORT = BacktestReport(
    (CHANGED, GONE, REFUSED, FAILED), compared=True, events=9000, late=3, first=START, last=START + timedelta(minutes=5)
)
ALONE = BacktestReport((BacktestRule("alone", RUN, examples=(MATCH,)),), compared=False, events=5)


def test_the_report_as_text() -> None:
    assert str(REPORT) == (
        "4 rules over 9,000 events, from 2026-01-01 23:59:00 to 2026-01-02 00:04:00 (2 days), 3 without a time\n"
        "\n"
        "rule     version       matches  added  removed   kept  keys  a day  most in a day  timed out  errors\n"
        "changed  1 -> 2          1,200    250       50    950     7  600.0          1,100          -       0\n"
        "gone     4 -> none           0      0    1,200      0     0    0.0              0          0       0\n"
        "bad      2 -> refused        -      -        -      -     -      -              -          -       -\n"
        "failed   2               1,200      0        0  1,200     7  600.0          1,100          -       2\n"
        "\n"
        "changed: added, 1 of 250\n"
        "  key ann, NULL; 2026-01-01 23:59:00 to 2026-01-02 00:01:00; a(user='ann', x=1); 5 more events\n"
        "\n"
        "bad: refused\n"
        "  unknown column 'x'\n"
        "\n"
        "failed: disabled in 2 key groups\n"
        "  division by zero"
    )
    assert str(ALONE) == (
        "1 rule over 5 events\n"
        "\n"
        "rule   version  matches  keys  a day  most in a day  timed out  errors\n"
        "alone  2          1,200     7  600.0          1,100          -       0\n"
        "\n"
        "alone: matches, 1 of 1,200\n"
        "  key ann, NULL; 2026-01-01 23:59:00 to 2026-01-02 00:01:00; a(user='ann', x=1); 5 more events"
    )
    assert REPORT.text(limit=1).endswith("\n\n... and 3 more rules\n\n" + str(REPORT).split("\n\n")[2])


def test_a_report_without_rules() -> None:
    assert str(BacktestReport((), compared=False, events=0)) == "0 rules over 0 events\n"
    assert BacktestReport((), compared=True, events=0).where("removed > 0") == []


def test_the_summary_has_a_row_for_each_rule() -> None:
    rows = REPORT.summary.to_pylist()
    assert rows[0] == {
        "id": "changed", "version": 2, "refused": None, "matches": 1200, "keys": 7, "matches_per_day": 600.0,
        "most_in_a_day": 1100, "timed_out": None, "errors": 0, "error": None, "old_version": 1, "old_refused": None,
        "old_matches": 1000, "old_keys": 7, "old_matches_per_day": 600.0, "old_most_in_a_day": 1100,
        "old_timed_out": None, "old_errors": 0, "added": 250, "removed": 50, "kept": 950,
    }  # fmt: skip
    assert (rows[1]["version"], rows[1]["matches"], rows[1]["old_matches"]) == (None, 0, 1200)
    assert (rows[2]["matches"], rows[2]["refused"], rows[2]["removed"]) == (None, "unknown column 'x'", None)
    assert list(ALONE.summary.column_names) == list(rows[0])[:10]
    assert REPORT.refused == {"bad": "unknown column 'x'"}


def test_conditions_on_the_summary() -> None:
    assert REPORT.where("matches > old_matches AND added >= 0.2 * old_matches") == ["changed"]
    assert REPORT.where("removed > 0") == ["changed", "gone"]
    assert REPORT.where("refused IS NOT NULL OR errors > 1 OR id LIKE 'ch%'") == ["changed", "bad", "failed"]
    check_where("removed > 0", compared=True)
    assert REPORT.where("true") == ["changed", "gone", "bad", "failed"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("removed > 0", "unknown column 'removed'"),
        ("matches", "a condition must be BOOLEAN, not BIGINT"),
        ("matches >", "the expression is incomplete"),
        ("__import__('os').system('true')", ""),
        ("(SELECT 1) = 1", ""),
        ("matches > 0; DROP TABLE x", ""),
        ("reflect('java.lang.System', 'exit') = 'a'", ""),
        ("a" * 100_000, ""),
        ("(" * 5_000 + "true" + ")" * 5_000, ""),
        ("repeat('x', 1000000000) = 'y'", ""),
    ],
)
def test_a_hostile_condition_is_refused(expression: str, message: str) -> None:
    with pytest.raises(AsterismError) as caught:
        ALONE.where(expression)
    assert message in str(caught.value)


def test_a_condition_that_cannot_be_computed() -> None:
    with pytest.raises(AsterismError, match="division by zero"):
        ALONE.where("matches / 0 > 1")


def test_names_are_text_wherever_they_are_shown() -> None:
    evil = "<script>alert(1)</script>"
    match = replace(
        MATCH, key=(evil,), events=((evil, {evil: evil}),), measures={evil: evil + "\x1b[2J\n"}, result=evil
    )
    rule = BacktestRule(evil, replace(RUN, refused=evil, errors=1, error=evil), RUN, 1, 1, 1, (match,))
    report = BacktestReport((rule,), compared=True, events=1)
    assert "<script" not in report._repr_html_()
    assert "\x1b" not in str(report)
    assert "\x1b" not in report._repr_html_()
    long = BacktestReport((replace(rule, id="x" * 200, examples=(replace(match, key=("k" * 10**6,)),)),), True, 1)
    assert max(map(len, str(long).splitlines())) < 5000
