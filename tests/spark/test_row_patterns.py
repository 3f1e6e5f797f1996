"""MATCH_RECOGNIZE on Spark: a table, a stream in any micro-batches, and statements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

import asterism
from asterism import FilePatternProcessorDiscovererFactory, Pattern, PatternProcessor, match_recognize, sql
from asterism.cli.main import main
from asterism.errors import ColumnNotFoundError, ExpressionSyntaxError, StreamDefinitionError
from asterism.row_patterns.batch import match_table
from asterism.row_patterns.checking import check
from asterism.row_patterns.reading import read
from asterism.spark.row_schemas import arrow_schema
from tests.spark.streams import DISORDER, Collect, events, random_cuts, stream_of, write_files

pytestmark = pytest.mark.spark
FEW: dict[str, Any] = {"key_groups": 4, "max_out_of_orderness": DISORDER}
RISE = (
    "PARTITION BY user ORDER BY ts MEASURES MATCH_NUMBER() AS n, FIRST(id) AS first, LAST(id) AS last, SUM(price) AS total"
    " PATTERN (A B+) DEFINE B AS price > PREV(price)"
)
ROWS = (
    "PARTITION BY upper(user) AS who ORDER BY ts, id DESC MEASURES CLASSIFIER() AS label ALL ROWS PER MATCH WITH UNMATCHED ROWS"
    " PATTERN (V V* B) WITHIN INTERVAL '30' SECOND DEFINE V AS kind = 'view', B AS kind = 'buy'"
)


def in_any_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def expected(spark: SparkSession, table: pa.Table, clause: str) -> list[str]:
    schema = arrow_schema(spark, spark.createDataFrame(table.slice(0, 1)).schema)
    return in_any_order(match_table(check(read(clause), schema), table.cast(schema)).to_pylist())


@pytest.mark.parametrize("clause", [RISE, ROWS], ids=["one row", "all rows"])
def test_table(spark: SparkSession, clause: str) -> None:
    table = events(1000)
    found = match_recognize(spark.createDataFrame(table), clause).matches.toArrow().to_pylist()
    assert in_any_order(found) == expected(spark, table, clause)


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


def test_statement_over_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    table = events(600)
    write_files(table, tmp_path / "in", [300])
    found = Collect()
    result = sql(
        f"SELECT user, last - first AS ids FROM clicks MATCH_RECOGNIZE ({RISE}) AS m WHERE n > 1",
        spark, clicks=stream_of(spark, tmp_path / "in").df, drain=True, **FEW,
    )  # fmt: skip
    query = result.writeStream.foreachBatch(found).option("checkpointLocation", str(tmp_path / "cp"))
    query.trigger(availableNow=True).start().awaitTermination()
    rows = match_recognize(spark.createDataFrame(table), RISE).matches.where("n > 1").collect()
    assert len(rows) > 50
    assert sorted((row["user"], row["ids"]) for row in found.rows) == sorted((r.user, r.last - r.first) for r in rows)


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
    ],
    ids=["plain", "alias", "subquery", "common table expressions", "nested", "function", "inner with", "same names", "values"],
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
        ("SELECT * FROM a JOIN b ON a.x = b.x MATCH_RECOGNIZE (PATTERN (A))", ExpressionSyntaxError, "must follow a table"),
        ("SELECT * FROM letters MATCH_RECOGNIZE (PATTERN (A)", ExpressionSyntaxError, "is not closed"),
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


def test_the_dialect_of_flink(spark: SparkSession, letters: DataFrame) -> None:
    """A greedy loop gives no row back, and the search goes on with the next row."""
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
        FROM (SELECT n, c, timestamp_seconds(n) AS ts FROM letters)
        MATCH_RECOGNIZE_DYNAMIC (ORDER BY ts pattern_processor_discoverer_factory = rules, on_error = 'disable') AS m
    """
    rules = FilePatternProcessorDiscovererFactory(tmp_path / "rules.json")
    found = sql(statement, spark, letters=letters, rules=rules)
    assert sorted(map(tuple, found.collect())) == [("ab", b) for _, b in ANSWER]


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


def test_command_in_batch_and_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(events(300), tmp_path / "clicks.parquet")
    statement = f"SELECT * FROM clicks MATCH_RECOGNIZE ({RISE})"
    found = []
    for options in ([], ["--stream", "--max-out-of-orderness", "5s"]):
        out = tmp_path / "out.parquet"
        arguments = ["sql", statement, "--table", f"clicks={tmp_path / 'clicks.parquet'}", *options, "--out", str(out)]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        found.append(in_any_order(pq.read_table(out).to_pylist()))
        assert result.output == f"{len(found[-1])} rows written to {out}\n"
    assert found[0] == found[1] != []


def test_wrong_command(tmp_path: Path) -> None:
    for table, message in (
        ("clicks", "is not a table"),
        ("clicks=nowhere.csv", "there is no file or folder 'nowhere.csv'"),
    ):
        result = CliRunner().invoke(main, ["sql", "SELECT 1", "--table", table])
        assert result.exit_code == 2
        assert message in result.output
