"""MATCH_RECOGNIZE on Spark: a table, a stream in any micro-batches, and statements."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

import asterism
from asterism import FilePatternProcessorDiscovererFactory, Pattern, PatternProcessor, match_recognize, sql
from asterism.cli.main import main
from asterism.errors import ColumnNotFoundError, ExpressionSyntaxError, StreamDefinitionError, UnsupportedSyntaxError
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.current_row import WORDS, CurrentRow
from asterism.row_patterns.result_rows import match_table
from asterism.spark.host.column_types import arrow_schema
from asterism.streams import statements
from tests.spark.streams import DISORDER, Collect, events, random_cuts, stream_of, write_files

pytestmark = pytest.mark.spark
FEW: dict[str, Any] = {"key_groups": 4, "max_out_of_orderness": DISORDER}
RISE = (
    "PARTITION BY user ORDER BY ts MEASURES MATCH_NUMBER() AS n, FIRST(id) AS first, LAST(id) AS last, SUM(price) AS total"
    " PATTERN (A B+) DEFINE B AS price > PREV(price)"
)
ROWS = (
    "PARTITION BY upper(user) AS who ORDER BY ts, id DESC MEASURES CLASSIFIER() AS label, MATCH_TIMEOUT() AS late"
    " ALL ROWS PER MATCH WITH UNMATCHED ROWS SHOW TIMEOUT MATCHES PATTERN (V V* B) WITHIN INTERVAL '30' SECOND"
    " DEFINE V AS kind = 'view', B AS kind = 'buy' AND NOT endswith(concat(FIRST(V.kind), CAST(id AS STRING)), 'w7')"
)
"""The last condition is evaluated by DuckDB."""
# Rows of other kinds, and views that cost more, can be no part of a match, and are not exchanged.
FUNNEL = (
    "PARTITION BY user ORDER BY ts, id MEASURES A.id AS a, FIRST(id) AS first, LAST(B.id) AS b AFTER MATCH SKIP TO NEXT ROW"
    " PATTERN (A X* B) WITHIN INTERVAL '30' SECOND"
    " DEFINE A AS kind = 'view' AND price < 30, X AS kind <> 'buy' OR price > 60 OR price > A.price,"
    " B AS kind = 'buy' AND price <= A.price + 10"
)


def in_any_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def expected(spark: SparkSession, table: pa.Table, clause: str) -> list[str]:
    schema = arrow_schema(spark, spark.createDataFrame(table.slice(0, 1)).schema)
    return in_any_order(match_table(check(read(clause), schema), table.cast(schema)).to_pylist())


ABSENT = (
    "PARTITION BY user ORDER BY ts, id MEASURES FIRST(id) AS first, COUNT(*) AS n PATTERN (V {- X*? -} [^B])"
    " WITHIN INTERVAL '30' SECOND DEFINE V AS kind = 'view', B AS kind = 'buy'"
)


@pytest.mark.parametrize("clause", [RISE, ROWS, FUNNEL, ABSENT], ids=["one row", "all rows", "some rows", "absence"])
def test_table(spark: SparkSession, clause: str) -> None:
    table = events(1000)
    found = match_recognize(spark.createDataFrame(table), clause).matches.toArrow().to_pylist()
    assert in_any_order(found) == expected(spark, table, clause)


def test_rows_that_do_not_matter(spark: SparkSession) -> None:
    table = pa.concat_tables([events(300), events(20).set_column(3, "kind", pa.nulls(20, pa.string()))])
    df = spark.createDataFrame(table)
    schema = arrow_schema(spark, df.schema)
    clause = check(read(FUNNEL), schema)
    row = CurrentRow(clause)
    neutral = row.neutral(row.words(table.cast(schema)).to_numpy())
    assert 30 < neutral.sum() < 300
    assert row.matter_sql is not None
    assert df.where(row.matter_sql).count() == (~neutral).sum()


def check_some_rows(spark: SparkSession, tmp_path: Path, outputs: list[str]) -> None:
    table = events(1000)
    write_files(table, tmp_path / "in", random_cuts(1000, 3, seed=2))
    sinks = {name: Collect() for name in outputs}
    stream = stream_of(spark, tmp_path / "in").df
    match_recognize(stream, FUNNEL, **FEW).run(sinks, checkpoint=str(tmp_path / "cp"))
    found = in_any_order(sinks["matches"].rows)
    assert len(found) > 10
    assert found == expected(spark, table, FUNNEL)


def test_a_column_has_the_name_of_the_bits(spark: SparkSession) -> None:
    rows = pa.table({"ts": [1, 2, 3], "k": ["a", "b", "a"], WORDS: [7, 8, 9]})
    clause = f"ORDER BY ts MEASURES A.{WORDS} AS w PATTERN (A) DEFINE A AS k = 'a'"
    assert match_recognize(spark.createDataFrame(rows), clause).matches.collect() == [(7,), (9,)]
    assert match_recognize(rows, clause).matches["w"].to_pylist() == [7, 9]


def test_table_without_partition_by_and_with_sinks(spark: SparkSession) -> None:
    table = events(300)
    clause = RISE.removeprefix("PARTITION BY user ")
    matches, late = Collect(), Collect()
    match_recognize(spark.createDataFrame(table), clause).run({"matches": matches, "late": late})
    assert in_any_order(matches.rows) == expected(spark, table, clause)
    assert late.rows == []


def test_stream_in_two_runs_gives_the_rows_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    clause, table = ROWS, events(1000)
    late = table.slice(0, 3)
    write_files(table.slice(0, 600), tmp_path / "in", random_cuts(600, 3, seed=1))
    sinks = {"matches": Collect(), "late": Collect()}

    def run(drain: bool) -> None:
        stream = stream_of(spark, tmp_path / "in").df
        match_recognize(stream, clause, **FEW).run(sinks, checkpoint=str(tmp_path / "cp"), drain=drain)

    run(drain=False)
    assert sinks["matches"].rows
    write_files(pa.concat_tables([table.slice(600), late]), tmp_path / "in", [400], first=3)
    run(drain=True)
    assert in_any_order(sinks["matches"].rows) == expected(spark, table, clause)
    assert sorted(row["id"] for row in sinks["late"].rows) == sorted(late.column("id").to_pylist())
    for variable in ("header", "pages"):
        state = spark.read.format("statestore").option("path", str(tmp_path / "cp")).option("stateVarName", variable)
        assert state.load().count() == 0


PROCTIME = RISE.replace("MEASURES", "MEASURES MATCH_PROCTIME() AS found_at,")


def instants(df: DataFrame) -> list[int]:
    return [row.at for row in df.selectExpr("unix_micros(found_at) AS at").collect()]


def test_processing_time_of_a_table(spark: SparkSession) -> None:
    df = spark.createDataFrame(events(200))
    statement = f"SELECT * FROM clicks MATCH_RECOGNIZE ({PROCTIME})"
    by_sink: list[list[int]] = []
    begin = time.time_ns() // 1000
    found = [
        match_recognize(df, PROCTIME).matches,
        match_recognize(df, PROCTIME.removeprefix("PARTITION BY user ")).matches,
        sql(statement, spark, clicks=df),
        sql(statement, spark, clicks=df, dialect="flink"),
    ]
    assert [result.schema["found_at"].dataType for result in found] == [T.TimestampType()] * 4
    later = time.time_ns() // 1000
    queries = [instants(result) for result in found]
    match_recognize(df, PROCTIME).run({"matches": lambda rows, _: by_sink.append(instants(rows))})
    assert all(len(times) > 1 for times in [*queries, *by_sink])
    assert all(len(set(times)) == 1 and times[0] >= later // 1000 * 1000 for times in queries)  # that of the query
    assert all(begin < at < time.time_ns() // 1000 for times in [*queries, *by_sink] for at in times)


# ---------------------------------------------------------------------- statements

LETTERS = list(enumerate("aabbcabab"))
AB = "ORDER BY n MEASURES A.n AS a, B.n AS b PATTERN (A B) DEFINE A AS c = 'a', B AS c = 'b'"
ANSWER = [(1, 2), (5, 6), (7, 8)]


@pytest.fixture(scope="module")
def letters(spark: SparkSession) -> DataFrame:
    # One partition, so that a query is one task.
    schema = T.StructType([T.StructField("n", T.IntegerType()), T.StructField("c", T.StringType())])
    return spark.createDataFrame(LETTERS, schema).coalesce(1)


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        (f"SELECT * FROM letters MATCH_RECOGNIZE ({AB})", ANSWER),
        (f"select m.y, '{{}} match_recognize(' as s from Letters as l match_recognize ({AB}) as m (x, y) where m.x > 5;",
         [(8, "{} match_recognize(")]),
        (f"SELECT * FROM (SELECT n + 10 AS n, c FROM letters) MATCH_RECOGNIZE ({AB}) -- MATCH_RECOGNIZE (\n ORDER BY a LIMIT 1",
         [(11, 12)]),
        (f"WITH few AS (SELECT * FROM letters WHERE n > 2), m (x, y) AS (SELECT * FROM few MATCH_RECOGNIZE ({AB}))"
         f" SELECT m.x, count(*) FROM m JOIN few MATCH_RECOGNIZE ({AB}) AS o ON m.x = o.a GROUP BY ALL", [(5, 1), (7, 1)]),
        (f"SELECT * FROM (SELECT a AS n, 'a' AS c FROM letters MATCH_RECOGNIZE ({AB}) AS m)"
         " MATCH_RECOGNIZE (ORDER BY n MEASURES COUNT(*) AS n, SUM(n) AS s PATTERN (A+) DEFINE A AS c = 'a')", [(3, 13)]),
        ("SELECT * FROM range(4) MATCH_RECOGNIZE (ORDER BY id DESC MEASURES FIRST(id) AS f PATTERN (A+))", [(3,)]),
        (f"SELECT a FROM letters MATCH_RECOGNIZE ({AB}) WHERE a IN (WITH w AS (SELECT 1 AS x) SELECT max(b) - 1 FROM letters"
         f" CROSS JOIN w MATCH_RECOGNIZE (MEASURES A.x AS b PATTERN (A)) AS q)", []),
        (f"WITH letters AS (SELECT * FROM letters WHERE n > 2) SELECT a FROM (WITH letters AS (SELECT n + 1 AS n, c FROM letters)"
         f" SELECT * FROM letters MATCH_RECOGNIZE ({AB})) JOIN letters ON n = a", [(6,), (8,)]),
        ("SELECT * FROM VALUES (3, 'a'), (1, 'a'), (2, 'b') AS letters (n, c)"
         f" MATCH_RECOGNIZE ({AB}) JOIN (VALUES (2)) AS t (b) USING (b)", [(2, 1)]),
        ("SELECT * FROM letters AS l MATCH_RECOGNIZE (PARTITION BY L.c ORDER BY l.n MEASURES COUNT(*) AS k PATTERN (A+)"
         " DEFINE A AS l.n > 3) AS m MATCH_RECOGNIZE (PARTITION BY upper(m.c) AS u MEASURES MAX(m.k) AS k PATTERN (m+))",
         [("A", 2), ("B", 2), ("C", 1)]),
        ("SELECT m.*, x FROM letters l JOIN letters r ON l.n + 1 = r.n MATCH_RECOGNIZE (PARTITION BY l.c AS l, r.c ORDER BY l.n"
         " MEASURES COUNT(r.n) AS k PATTERN (A+)) AS m JOIN (VALUES (2)) AS t (x) ON m.k > x", [("a", "b", 3, 2)]),
        ("SELECT * FROM letters l FULL JOIN (VALUES (8), (9)) AS r (n) USING (n) MATCH_RECOGNIZE (ORDER BY n"
         " MEASURES n AS n, l.n AS l, r.n AS r PATTERN (A) DEFINE A AS r.n > 7)", [(8, 8, 8), (9, None, 9)]),
        ("SELECT * FROM (SELECT 1000L * n AS n, c FROM letters) MATCH_RECOGNIZE (ORDER BY n MEASURES A.n AS a,"
         " MATCH_TIMEOUT() AS t ONE ROW PER MATCH SHOW TIMEOUT MATCHES PATTERN (A [^A] B{2}) WITHIN INTERVAL '2' SECOND"
         " DEFINE A AS c = 'a', B AS c = 'b')", [(1000, False), (7000, True)]),
        ("WITH few AS (SELECT * FROM letters WHERE n > 4) SELECT * FROM few MATCH_RECOGNIZE (ORDER BY n MEASURES"
         " COUNT(*) AS k, (SELECT max(n) FROM letters) AS top, SUM(A.n - (SELECT min(n) FROM few)) AS s, (SELECT max(b) FROM"
         f" letters MATCH_RECOGNIZE ({AB})) AS b ALL ROWS PER MATCH PATTERN (A*) DEFINE A AS A.n > (SELECT 6))",
         [(5, 0, 8, None, 8, "a"), (6, 0, 8, None, 8, "b"), (7, 1, 8, 2, 8, "a"), (8, 2, 8, 5, 8, "b")]),
        ("WITH o AS (SELECT * FROM VALUES ('b'), ('b'), ('z'), (NULL) AS t(c)) SELECT coalesce(o.c, '-'), l.n, (SELECT count(*)"
         " FROM letters MATCH_RECOGNIZE (PARTITION BY c ORDER BY n MEASURES A.n AS n PATTERN (A) DEFINE A AS n < 4) AS m"
         " WHERE m.c = o.c) AS k FROM o, LATERAL (SELECT count(*) AS n FROM letters MATCH_RECOGNIZE (PARTITION BY c ORDER BY n"
         " MEASURES A.n AS n PATTERN (A) DEFINE A AS n < 3) AS m WHERE m.c = o.c) AS l",
         [("-", 0, 0), ("b", 1, 2), ("b", 1, 2), ("z", 0, 0)]),
    ],
    ids=["plain", "alias", "subquery", "common table expressions", "nested", "function", "inner with", "same names", "values",
         "names of tables", "join", "merged columns", "timeout",
         "subqueries", "outer row"],
)  # fmt: skip
def test_statement(spark: SparkSession, letters: DataFrame, statement: str, answer: list[tuple[Any, ...]]) -> None:
    before = len(spark.catalog.listTables())
    assert sorted(map(tuple, sql(statement, spark, letters=letters).collect())) == answer
    assert len(spark.catalog.listTables()) == before


def test_statement_without_a_clause_is_spark_s(spark: SparkSession) -> None:
    assert sql("SELECT '{x}' AS a, 1 AS b", spark).collect() == [("{x}", 1)]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("SELECT *\nFROM letters MATCH_RECOGNIZE (ORDER BY m PATTERN (A))", ColumnNotFoundError,
         "unknown column 'm'\n  line 2, column 40\n  FROM letters MATCH_RECOGNIZE (ORDER BY m PATTERN (A))\n" + " " * 41 + "^"),
        ("SELECT match_recognize(1) FROM letters", ExpressionSyntaxError, "must follow a table"),
        ("SELECT * FROM a WHERE b = 1 MATCH_RECOGNIZE (PATTERN (A))", ExpressionSyntaxError, "must follow a table"),
        ("SELECT * FROM letters a JOIN letters b ON a.n = b.n MATCH_RECOGNIZE (ORDER BY n PATTERN (A))", ColumnNotFoundError,
         "Hint: a.n or b.n"),
        ("SELECT * FROM letters AS o, LATERAL (SELECT * FROM letters MATCH_RECOGNIZE (ORDER BY n MEASURES 1 AS m PATTERN (A)"
         " DEFINE A AS n > o.n))", UnsupportedSyntaxError, "cannot read o.n, a column of the query around it"),
        ("SELECT * FROM letters MATCH_RECOGNIZE (MEASURES (SELECT max(n) FROM letters WHERE n < A.n) AS m PATTERN (A))",
         UnsupportedSyntaxError, "A.n is no column of the subquery"),
        ("SELECT * FROM letters AS l MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS n IN (SELECT 1))", UnsupportedSyntaxError,
         "subqueries are not supported"),
        ("SELECT (SELECT count(*) FROM (SELECT * FROM letters WHERE n > o.n) MATCH_RECOGNIZE (ORDER BY n PATTERN (A))) FROM"
         " letters AS o", UnsupportedSyntaxError, "cannot read o.n, a column of the query around it"),
        ("SELECT * FROM letters MATCH_RECOGNIZE (PATTERN (A)", ExpressionSyntaxError, "is not closed"),
        (f"TABLE letters MATCH_RECOGNIZE ({AB})", ExpressionSyntaxError, "without TABLE"),
        (f"SELECT * FROM {'(' * 200}letters MATCH_RECOGNIZE ({AB}){')' * 200}", ExpressionSyntaxError,
         "inside of more than 100 parentheses"),
        (f"CREATE TABLE t AS SELECT * FROM letters MATCH_RECOGNIZE ({AB})", StreamDefinitionError, "only to queries"),
        (f"CREATE OR REPLACE TEMP VIEW ab AS SELECT * FROM letters MATCH_RECOGNIZE ({AB})", ExpressionSyntaxError,
         "a view cannot contain MATCH_RECOGNIZE"),
        (f"CACHE TABLE ab AS SELECT * FROM letters MATCH_RECOGNIZE ({AB})", ExpressionSyntaxError, "createOrReplaceTempView"),
        (f"explain SELECT * FROM letters MATCH_RECOGNIZE ({AB})", ExpressionSyntaxError, "EXPLAIN cannot have MATCH_RECOGNIZE"),
    ],
)  # fmt: skip
def test_wrong_statement(
    spark: SparkSession, letters: DataFrame, statement: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        sql(statement, spark, letters=letters)
    assert message in str(caught.value)


def test_wrong_arguments(spark: SparkSession, letters: DataFrame) -> None:
    with pytest.raises(StreamDefinitionError, match="must be a DataFrame"):
        sql(f"SELECT * FROM letters MATCH_RECOGNIZE ({AB})", spark, letters=[1])  # type: ignore[arg-type] # that is tested
    for text, session in ((5, spark), ("SELECT 1", "spark")):
        with pytest.raises(StreamDefinitionError, match="must be a"):
            sql(text, session)  # type: ignore[arg-type] # that is tested
    with pytest.raises(StreamDefinitionError, match="there is no output 'timed_out'"):
        match_recognize(letters, AB).run({"timed_out": Collect()})
    with pytest.raises(StreamDefinitionError, match="max_rows must be between"):
        match_recognize(letters, AB, max_rows=0)
    with pytest.raises(StreamDefinitionError, match="there is no dialect 'oracle'\n  Dialects: standard, flink"):
        sql(f"SELECT * FROM letters MATCH_RECOGNIZE ({AB})", spark, letters=letters, dialect="oracle")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [{"drain": "letters"}, {"drain": None}, {"key_groups": "4"}, {"max_rows": "many"}, {"on_limit": 5}, {"dialect": 5},
     {"max_out_of_orderness": 5}, {"idle_after": 5}, {"watermark_by": "c"}, {"args": {"x": 1}}],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
@pytest.mark.parametrize("statement", ["SELECT * FROM letters", f"SELECT * FROM letters MATCH_RECOGNIZE ({AB})"])
def test_options_of_a_statement_are_checked(
    spark: SparkSession, letters: DataFrame, statement: str, options: dict[str, Any]
) -> None:
    (name, value) = next(iter(options.items()))
    with pytest.raises(StreamDefinitionError, match=name):
        sql(statement, spark, letters=letters, **{name: letters if value == "letters" else value})


@pytest.mark.parametrize(
    ("statement", "streaming"),
    [
        ("WITH s AS (SELECT * FROM arriving) SELECT * FROM letters MATCH_RECOGNIZE ({0}) JOIN s ON s.n = a", [False]),
        ("WITH x AS (SELECT * FROM arriving MATCH_RECOGNIZE ({0})), y AS (SELECT * FROM letters MATCH_RECOGNIZE ({0}))"
         " SELECT x.a FROM x JOIN y ON x.a = y.a", [True, False]),
        ("SELECT * FROM arriving MATCH_RECOGNIZE ({0}) x JOIN letters MATCH_RECOGNIZE ({0}) y ON x.a = y.a", [True, False]),
        ("WITH s AS (SELECT * FROM arriving), n AS (SELECT * FROM letters), t AS (SELECT letters.n, letters.c FROM letters, s)"

         " SELECT x.a FROM (SELECT s.n, upper(s.c) AS c FROM (n) AS s WHERE s.n IN (SELECT s.n FROM n AS s))"
         " MATCH_RECOGNIZE ({0}) x JOIN (SELECT * FROM t) MATCH_RECOGNIZE ({0}) y ON x.a = y.a", [False, True]),
    ],
)  # fmt: skip
def test_a_clause_is_over_a_stream_if_its_table_reads_one(
    spark: SparkSession,
    letters: DataFrame,
    statement: str,
    streaming: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def looked_at(df: DataFrame, *arguments: Any, **options: Any) -> Any:
        seen.append(df.isStreaming)
        return match_recognize(df, *arguments, **options)

    monkeypatch.setattr(statements, "match_recognize", looked_at)
    rate = spark.readStream.format("rate").load()
    # Over a stream, ORDER BY is the time.
    arriving = rate.selectExpr("value AS n", "'a' AS c")
    sql(statement.format(AB), spark, letters=letters.selectExpr("CAST(n AS BIGINT) AS n", "c"), arriving=arriving)
    assert seen == streaming


def test_the_dialect_of_flink(spark: SparkSession, letters: DataFrame) -> None:
    """A greedy loop gives no row back, and the search continues with the next row."""
    statement = """
        SELECT * FROM letters MATCH_RECOGNIZE (
            ORDER BY n MEASURES array_agg(c) AS letters PATTERN (A+ B) DEFINE A AS c IN ('a', 'b'))
    """
    found = [
        ["".join(row.letters) for row in sql(statement, spark, letters=letters, dialect=dialect).collect()]
        for dialect in ("standard", "flink")
    ]
    assert found == [["aabbc", "abab"], ["aabbc", "abbc", "bbc", "bc"]]


def test_patterns_of_a_statement_can_be_rules(spark: SparkSession, letters: DataFrame, tmp_path: Path) -> None:
    pattern = Pattern.begin("a").where("c = 'a'").next("b").where("c = 'b'")
    rule = PatternProcessor("ab", 3, pattern, select=("b.n AS n",))
    (tmp_path / "rules.json").write_text(json.dumps([rule.to_dict()]))
    statement = """
        SELECT m.processor_id AS rule, int(m.measures['n']) AS n
        FROM (SELECT n, c, timestamp_seconds(n) AS ts FROM letters) AS l
        MATCH_RECOGNIZE_DYNAMIC (ORDER BY l.ts pattern_processor_discoverer_factory = rules, on_error = 'disable') AS m
    """
    rules = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")
    found = sql(statement, spark, letters=letters, rules=rules)
    assert sorted(map(tuple, found.collect())) == [("ab", b) for _, b in ANSWER]
    with pytest.raises(ColumnNotFoundError, match=r"measures of rules are in a map: m.measures\['n'\]"):
        sql(statement.replace("m.measures['n']", "m.n"), spark, letters=letters, rules=rules)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "the name of an option is expected here"),
        ("factory = rules", "there is no option 'factory'"),
        ("store = '/s'", "pattern_processor_discoverer_factory is missing"),
        ("store = '/s', store = '/t'", "store is written twice"),
        ("pattern_processor_discoverer_factory rules", "must be followed by ="),
        ("pattern_processor_discoverer_factory = ", "the value of pattern_processor_discoverer_factory is missing"),
        ("pattern_processor_discoverer_factory = rules", "there is no discoverer factory 'rules'"),
        ("pattern_processor_discoverer_factory = rules store = '/s'", "a comma is missing between two options"),
        ("pattern_processor_discoverer_factory = letters", "there is no discoverer factory 'letters'"),
        ("pattern_processor_discoverer_factory = rules DEFINE", "unexpected text after the options"),
    ],
)
def test_wrong_dynamic_clause(spark: SparkSession, letters: DataFrame, options: str, message: str) -> None:
    statement = f"SELECT *\nFROM letters MATCH_RECOGNIZE_DYNAMIC (PARTITION BY c {options})"
    with pytest.raises(ExpressionSyntaxError) as caught:
        sql(statement, spark, letters=letters)
    assert message in str(caught.value)
    assert "line 2, column" in str(caught.value)


# ---------------------------------------------------------------------- clauses behind clauses

PAIRS = """
    PARTITION BY user ORDER BY ts, id MEASURES FIRST(ts) AS ts, FIRST(id) AS id, SUM(price) AS total
    PATTERN (A B* C) {} DEFINE A AS kind = 'view', B AS kind = 'view', C AS kind = 'buy'
"""
OF_PAIRS = """
    PARTITION BY user ORDER BY ts, id MEASURES FIRST(id) AS first, COUNT(*) AS n
    PATTERN (D U+) WITHIN INTERVAL '90' SECOND DEFINE U AS total > PREV(total)
"""


def nested(first: str) -> str:
    return f"SELECT * FROM (SELECT * FROM clicks MATCH_RECOGNIZE ({first}) WHERE id >= 0) MATCH_RECOGNIZE ({OF_PAIRS})"


@pytest.mark.parametrize("within", ["", "WITHIN INTERVAL '40' SECOND"])
def test_clause_behind_a_clause_whose_matches_can_wait_for_ever(
    spark: SparkSession, tmp_path: Path, within: str
) -> None:
    write_files(events(20), tmp_path / "in", [10])
    pairs = PAIRS.format(within)
    pairs = pairs.replace("C AS kind", "C AS NEXT(kind)") if within else pairs
    clicks = stream_of(spark, tmp_path / "in").df
    with pytest.raises(StreamDefinitionError) as caught:
        sql(nested(pairs), spark, clicks=clicks)
    assert str(caught.value) == (
        "[STREAM_DEFINITION] the rows of this stream can be late by any time, because MATCH_RECOGNIZE over a stream made them"
        " without WITHIN\n"
        "  A match is emitted when it is decided. Its rows can be from long before that, and would be"
        " dropped.\n"
        "  Hint: WITHIN in that clause, without NEXT and $, and without PREV in MEASURES; or write its result to a table,"
        " and read that as a stream"
    )


# ---------------------------------------------------------------------- notebooks and shells


class Shell:
    """What of IPython is used."""

    def __init__(self, **variables: Any) -> None:
        self.user_ns = variables
        self.magics: dict[str, Any] = {}

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        self.magics[f"{kind} {name}"] = function


def test_cells_of_notebooks(spark: SparkSession, letters: DataFrame) -> None:
    shell = Shell(letters=letters, text=letters, number=5)
    asterism.load_ipython_extension(shell)
    cell = shell.magics["cell asterism"]
    statement = f"SELECT a, b\nFROM letters MATCH_RECOGNIZE ({AB})\n"
    assert sorted(map(tuple, cell("", statement).collect())) == ANSWER
    assert cell(" pairs ", statement) is None
    assert cell("", "SELECT count(*) FROM pairs").collect() == [(3,)]
    with pytest.raises(StreamDefinitionError, match="not a name for the result: '5'"):
        cell("5", statement)


def test_wrong_command(tmp_path: Path) -> None:
    for table, message in (
        ("clicks", "is not a table"),
        ("clicks=nowhere.csv", "there is no file or folder 'nowhere.csv'"),
    ):
        result = CliRunner().invoke(main, ["sql", "SELECT 1", "--table", table])
        assert result.exit_code == 2
        assert message in result.output
