"""Commands on .sql files with MATCH_RECOGNIZE clauses."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from asterism import MatchRecognize
from asterism.cli.main import main

CLAUSE = """\
PARTITION BY symbol ORDER BY day
MEASURES FIRST(day) AS began, COUNT(DOWN.*) AS days
PATTERN (TOP DOWN{2,})
DEFINE DOWN AS close < PREV(close)
"""
STATEMENT = f"-- falls\nSELECT * FROM prices MATCH_RECOGNIZE (\n{CLAUSE}) AS falls WHERE days > 3;\n"
COLUMNS = ("--column", "symbol:string", "--column", "day:date", "--column", "close:double")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, **files: str | bytes) -> Result:
    for name, content in files.items():
        Path(f"{name}.sql").write_bytes(content if isinstance(content, bytes) else content.encode())
    return CliRunner().invoke(main, list(arguments))


def test_explain() -> None:
    told = MatchRecognize(CLAUSE).explain() + "\n"
    assert run("explain", "a.sql", a=CLAUSE).output == told
    assert run("explain", "a.sql", a=STATEMENT).output == told
    assert run("explain", "a.sql", a=f"{STATEMENT[:-2]} UNION {STATEMENT}").output == f"{told}\n{told}"
    flink = MatchRecognize(CLAUSE, dialect="flink").explain() + "\n"
    assert run("explain", "a.sql", "--semantics", "flink", a=CLAUSE).output == flink != told


def test_explain_as_drawing() -> None:
    assert run("explain", "a.sql", "--svg", "a.svg", a=STATEMENT).output == "drawing written to a.svg\n"
    ET.parse("a.svg")
    two = run("explain", "a.sql", "--svg", "a.svg", a=f"{STATEMENT[:-2]} UNION {STATEMENT}")
    assert (two.exit_code, two.output) == (
        2,
        "Error: [STREAM_DEFINITION] a.sql has 2 clauses\n  Hint: a file with one of them\n",
    )
    automaton = run("explain", "a.sql", "--svg", "a.svg", "--what", "automaton")
    assert automaton.exit_code == 2
    assert "--what automaton is for patterns in JSON" in automaton.output


def test_error_of_explain_points_into_the_file() -> None:
    failed = run("explain", "a.sql", a=STATEMENT.replace("{2,}", "{2,1}"))
    assert failed.exit_code == 2
    assert "line 5, column " in failed.output


@pytest.mark.parametrize(
    ("change", "options", "status", "text"),
    [
        (("", ""), (), 0, "a.sql: ok, PATTERN (TOP DOWN{2,}), ONE ROW PER MATCH, SKIP PAST LAST ROW\n"),
        (("", ""), COLUMNS, 0, "a.sql: ok, PATTERN (TOP DOWN{2,}), ONE ROW PER MATCH, SKIP PAST LAST ROW\n"),
        (
            ("", ""),
            ("--semantics", "flink"),
            0,
            "a.sql: ok, PATTERN (TOP DOWN{2,}), ONE ROW PER MATCH, SKIP TO NEXT ROW\n",
        ),
        (
            ("close < PREV(close)", "close < PREV(price)"),
            COLUMNS,
            1,
            "a.sql:6:29: unknown column 'price'\n"
            "  DEFINE DOWN AS close < PREV(price)\n"
            "                              ^\n"
            "  Hint: columns: symbol, day, close\n",
        ),
        (
            ("close < PREV(close)", "close <"),
            (),
            1,
            "a.sql:6:16: the expression is incomplete\n  DEFINE DOWN AS close <\n                 ^\n",
        ),
        (("MATCH_RECOGNIZE (", "MATCH_RECOGNIZE (("), (), 1, None),
    ],
)
def test_validate(change: tuple[str, str], options: tuple[str, ...], status: int, text: str | None) -> None:
    result = run("validate", "a.sql", *options, a=STATEMENT.replace(*change) if change[0] else STATEMENT)
    assert result.exit_code == status
    assert text is None or result.output == text
    assert result.output.startswith("a.sql:")


@pytest.mark.parametrize("content", ["", b"\xff\xfe", "SELECT 1", "MATCH_RECOGNIZE (" * 1000, "x" * 1_100_000])
def test_file_without_a_clause(content: str | bytes) -> None:
    validated = run("validate", "a.sql", a=content)
    assert validated.exit_code == 1
    assert validated.output.startswith("a.sql:1:1")
    assert len(validated.output) < 1_000
    assert run("explain", "a.sql").exit_code == 2


def test_trace() -> None:
    Path("prices.csv").write_text(
        "symbol,day,close\nA,2024-01-01,5\nA,2024-01-02,4\nA,2024-01-03,3\nA,2024-01-04,6\nB,2024-01-01,1\n"
    )
    options = ("--input", "prices.csv", "--key-column", "symbol", "--key", "A")
    result = run("trace", "a.sql", *options, a=STATEMENT)
    assert (
        result.output
        == """\
key symbol='A': 4 rows
1 match
closest to another match: TOP=[4];
  no more rows: the next one could have been DOWN

row 1  day=2024-01-01  close=5
  match 1: TOP=[1] DOWN=[2 3]
  row 4 as DOWN: close < PREV(close) is false (close=6, PREV(close)=3)

rows 2 3: skipped after match 1 (SKIP PAST LAST ROW)

row 4  day=2024-01-04  close=6
  no match: TOP=[4]
  no more rows: the next one could have been DOWN
"""
    )
    limited = run("trace", "a.sql", *options, "--limit", "1", "--only-dropped")
    assert "... and 1 more row\n" in limited.output
    assert "skipped" not in limited.output
    flink = run("trace", "a.sql", *options, "--semantics", "flink")
    assert "row 2  day=2024-01-02" in flink.output


def test_wrong_options_of_trace() -> None:
    Path("prices.csv").write_text("symbol,day,close\nA,2024-01-01,5\nB,2024-01-01,1\n")
    several = run("trace", "a.sql", "--input", "prices.csv", a=CLAUSE)
    assert (several.exit_code, several.output.splitlines()[0]) == (
        2,
        "Error: [STREAM_DEFINITION] the rows are of 2 partitions",
    )
    for option in (
        ("--order-by", "close"),
        ("--max-out-of-orderness", "5s"),
        ("--watermark-by", "symbol"),
        ("--no-drain",),
    ):
        wrong = run("trace", "a.sql", "--input", "prices.csv", *option)
        assert wrong.exit_code == 2
        assert f"{option[0]} is for patterns in JSON" in wrong.output
