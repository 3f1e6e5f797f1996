"""Spark evaluates the conditions of a pattern with the same result as the operator does."""

from __future__ import annotations

import random
import re
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism import CEP, KeyedStream, Pattern, match_recognize
from asterism.errors import AsterismError
from asterism.matching.binding import BoundPattern
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.current_row import WORDS, CurrentRow
from asterism.spark.session.settings import settings
from tests.expressions.sql_expressions import ROW, table
from tests.rules.test_condition_index import condition
from tests.spark.streams import STRICT, events, stream_of, write_files

STRICT_CLAUSE = (
    "PARTITION BY user ORDER BY ts MEASURES A.id AS a PATTERN (A B) WITHIN INTERVAL '5' MINUTE"
    " DEFINE A AS kind = 'view', B AS kind = 'cart'"
)
SCHEMA = pa.schema({"user": pa.string(), "x": pa.int64(), "y": pa.float64(), "ts": pa.timestamp("us", "UTC")})


def stages(conditions: list[str]) -> Pattern:
    first, *others = (f"s{number}" for number in range(len(conditions)))
    pattern = Pattern.begin(first).where(conditions[0])
    return reduce(
        lambda so_far, one: so_far.next(one[0]).where(one[1]), zip(others, conditions[1:], strict=True), pattern
    )


def bits_of(*conditions: str, schema: pa.Schema = SCHEMA) -> list[str] | None:
    return BoundPattern.of_pattern(stages(list(conditions)), schema).bits_sql


def test_conditions_that_are_ranges_of_columns_are_spark_sql() -> None:
    assert bits_of("x = 1 AND y < 2.5D", "x > 7", "x = 1 AND y < 2.5D") == [
        "IF(`x` = 1 AND `y` < CAST(2.5 AS DOUBLE), 1L, 0L) + IF(`x` > 7, 2L, 0L)"
    ]
    of_both = bits_of("x = 1", "x = 2 AND y > LAST(s0.y)")
    assert of_both == ["IF(`x` = 2, 1L, 0L) + IF(`x` = 1, 2L, 0L)"]


@pytest.mark.parametrize(
    "second", ["x + 1 = 2", "10 / x > 2", "upper(user) = 'A'", "x = 2 AND y / 2 > LAST(s0.y) AND sqrt(y) > LAST(s0.y)"]
)
def test_what_may_fail_or_is_computed_stays_in_python(second: str) -> None:
    assert bits_of("x = 1", second) is None


def test_a_column_of_the_events_can_have_the_name_of_the_bits() -> None:
    assert bits_of("x = 1", schema=SCHEMA.append(pa.field("__bits0", pa.int64()))) is None


@pytest.mark.spark
def test_spark_and_the_operator_agree(spark: SparkSession, tmp_path: Path) -> None:
    check_agreement(spark, tmp_path, "Europe/Madrid")


def check_agreement(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    rng = random.Random(zone)
    data = table(rng, zone, 300)
    pq.write_table(data, tmp_path / "data.parquet")
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        df = spark.read.parquet(str(tmp_path / "data.parquet"))
        chosen: list[str] = []
        while len(chosen) < 150:
            text = condition(rng, rng.randint(0, 2))
            try:
                if bits_of(text, schema=data.schema) is not None:
                    chosen.append(text)
            except AsterismError:
                continue
        operator = CepOperator(
            stages(chosen),
            data.schema,
            time=None,
            outputs={"matches": OutputSpec(OutputKind.MATCHES, measures=("1 AS n",))},
        )
        names = [field.name for field in operator.pattern.bit_fields]
        assert operator.pattern.bits_sql is not None
        assert len(names) > 1
        found = df.select(*[F.expr(text).alias(n) for n, text in zip(names, operator.pattern.bits_sql, strict=True)])
        expected = operator.prepare(EVENTS, df.toArrow())
        for name, words in zip(names, found.toArrow().columns, strict=True):
            assert words.to_pylist() == expected.column(name).to_pylist()
        assert sum(word.bit_count() for name in names for word in expected.column(name).to_pylist()) > 1000
        check_words(df, chosen[:60], data.schema)


def check_words(df: DataFrame, conditions: list[str], schema: pa.Schema) -> None:
    """The same for a clause."""
    names = [f"V{number}" for number in range(len(conditions))]
    define = ", ".join(f"{name} AS {text}" for name, text in zip(names, conditions, strict=True))
    text = f"ORDER BY {ROW} MEASURES V0.{ROW} AS found PATTERN ({' '.join(names)}) DEFINE {define}"
    row = CurrentRow(check(read(text), schema))
    assert row.words_sql is not None
    words = df.select(F.expr(row.words_sql).alias(WORDS)).toArrow()
    assert words.column(WORDS).type == row.word_type
    found = words.column(WORDS).to_pylist()
    assert found == row.words(df.toArrow()).to_pylist()
    assert sum(map(int.bit_count, found)) > 500


@pytest.mark.spark
@pytest.mark.parametrize("as_clause", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_columns_of_conditions_are_not_transferred(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], streaming: bool, as_clause: bool
) -> None:
    write_files(events(50), tmp_path / "in", [])
    df = stream_of(spark, tmp_path / "in").df if streaming else spark.read.parquet(str(tmp_path / "in"))
    if as_clause:
        match_recognize(df, STRICT_CLAUSE).matches.explain()
    else:
        CEP.pattern(KeyedStream(df, "user", "ts"), STRICT).select("match_id").explain()
    transferred = re.search(r"MapInArrow (?:runner|packer|matcher)\((.*?)\)", capsys.readouterr().out)
    assert transferred is not None
    columns = re.findall(r"(\w+)#", transferred[1])
    assert (WORDS if as_clause else "__bits0") in columns
    assert "kind" not in columns
