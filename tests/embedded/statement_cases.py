"""Statements over tables with their answers, which every host gives."""

from __future__ import annotations

from typing import Any

from tests.embedded.cases import Rows

_FALLS = (
    "PARTITION BY symbol ORDER BY ts MEASURES A.id AS first, LAST(B.id) AS last"
    " PATTERN (A B+) DEFINE B AS price < PREV(price)"
)
STATEMENTS: dict[str, tuple[str, Rows]] = {
    "a table": (f"SELECT * FROM trades MATCH_RECOGNIZE ({_FALLS})", [("b", 2, 6)]),
    "a subquery, and an aggregate": (
        'SELECT share, count(*) AS n, sum(fee) AS fees, `n` + 1 AS more, "x{y}" AS text FROM'
        " (SELECT upper(symbol) AS share, ts, price, fee, 1 AS n FROM trades WHERE id <> 5) MATCH_RECOGNIZE"
        " (PARTITION BY share ORDER BY ts MEASURES B.fee AS fee, COUNT(*) AS n PATTERN (A B) DEFINE B AS price < A.price) AS m"
        " GROUP BY share, n HAVING share IS NOT NULL",
        [("A", 1, "0.30", 3, "x{y}"), ("B", 1, None, 3, "x{y}")],
    ),
    "common table expressions": (
        f"WITH dear AS (SELECT * FROM trades WHERE price > 2), falls AS (SELECT * FROM dear MATCH_RECOGNIZE ({_FALLS}))"
        " SELECT f.symbol, t.volume FROM falls AS f JOIN trades AS t ON f.last = t.id",
        [("b", 4)],
    ),
    "two clauses": (
        f"SELECT first AS id, 1 AS n FROM trades MATCH_RECOGNIZE ({_FALLS}) UNION ALL SELECT max(id), 2 FROM trades"
        " MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(x.id) AS id PATTERN (x+))",
        [(2, 1), (8, 2)],
    ),
    "a clause over a clause": (
        f"SELECT * FROM (SELECT * FROM trades MATCH_RECOGNIZE ({_FALLS})) MATCH_RECOGNIZE"
        " (ORDER BY first MEASURES COUNT(*) AS n PATTERN (m+))",
        [(1,)],
    ),
    "a subquery of a clause": (
        "SELECT n FROM trades MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(id) AS n PATTERN (x)"
        " DEFINE x AS id = (SELECT max(id) FROM trades))",
        [(8,)],
    ),
    "a join": (
        "SELECT id, u FROM trades AS t JOIN (SELECT 'b' AS symbol, 7 AS u) AS o USING (symbol) MATCH_RECOGNIZE"
        " (ORDER BY ts MEASURES x.id AS id, x.u AS u PATTERN (x) DEFINE x AS t.price > 8.5)",
        [(2, 7)],
    ),
    "no clause": ("SELECT symbol FROM trades WHERE id = 1 OR startswith(symbol, 'A')", [("a",), ("A",)]),
}


def rows_of(rows: Any) -> list[tuple[Any, ...]]:
    """The rows of a table, with decimals as strings."""
    values = [tuple(row.values()) for row in rows.to_pylist()]
    return sorted(
        [tuple(str(value) if hasattr(value, "as_tuple") else value for value in row) for row in values], key=str
    )
