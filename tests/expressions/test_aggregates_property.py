"""Aggregates give what Spark's own ``groupBy(...).agg(...)`` gives on the same rows: types, values, NULL and failures.

However the elements are divided: each table goes through random folds and merges, and through folds into what was there. And as
measures of matches, of which each group is one.
"""

from __future__ import annotations

import logging
import math
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlglot import exp

from asterism.columns.time import TimeColumn
from asterism.errors import InvalidEventError
from asterism.expressions.aggregates import FUNCTIONS, Aggregates
from asterism.expressions.parsing import parse
from asterism.expressions.translation import position_of
from asterism.matching.matcher import MatchColumns, Step
from asterism.matching.outputs import MatchOutput, OutputKind, OutputSpec
from tests.expressions.sql_expressions import SPARK_SCHEMA, table
from tests.kit import FACTOR

pytestmark = pytest.mark.spark

GROUPS = 7
"""The last one of them has no elements."""

NUMBERS = "yhilfdempw"
SMALL = "yhifdemp"
"""Columns whose sums fit."""
ORDERED = [*NUMBERS, "b", "s", "t", "day", "at", "nt"]
ANY = [*ORDERED, "arr", "ars", "st", "mp"]
SHARES = ["0", "1", "0.5", "0.25", "0.9", "0.1", "0.333", "1e-1", "0.75", "0.99"]

EXACT = [
    "count(*)",
    "count(1)",
    "count(*) FILTER (WHERE b)",
    "count(i, s)",
    "count_if(b)",
    "count_if(i > 0 AND s <> 'a')",
    "bool_and(b)",
    "every(i > 0)",
    "bool_or(b)",
    "some(b)",
    "any(i > 0)",
    *(f"count({name})" for name in ANY),
    *(f"{function}({name})" for function in ("min", "max") for name in ORDERED),
    *(f"{function}({name})" for function in ("first", "last_value", "any_value") for name in ANY),
    *(f"{function}({name}) IGNORE NULLS" for function in ("first_value", "last") for name in ANY),
    "first(i, true)",
    "last(i IGNORE NULLS)",
    "first(s) FILTER (WHERE b) IGNORE NULLS",
    *(f"max_by({name}, {by})" for name, by in zip(ANY, [*ORDERED[3:], *ORDERED[:7]], strict=True)),
    *(f"min_by({name}, {by})" for name, by in zip(ANY, [*ORDERED[5:], *ORDERED[:9]], strict=True)),
    *(f"sum({name})" for name in SMALL),
    *(f"avg({name})" for name in SMALL),
    "avg(l) FILTER (WHERE l > 0)",
    "mean(i) FILTER (WHERE i > 0)",
    "sum(IF(b, i, 0))",
    "sum(10 / i) FILTER (WHERE i <> 0)",
    "sum(NULL)",
    "sum(m * 2) + count(*)",
    "sum(i) / count(*)",
    "round(avg(i), 2)",
    "max(st.u)",
    "first(st).v",
    "max_by(st, i).u",
    "concat(min(s), '-', max(s))",
    "coalesce(sum(e), 0) > 1 AND bool_or(b)",
    "CASE WHEN count(*) > 5 THEN max(i) END",
    "get(collect_list(s), 0)",
    "1",
    *(f"collect_list({name})" for name in ANY),
    "array_agg(i)",
    "collect_list(i) FILTER (WHERE b)",
    *(f"percentile({name}, {share})" for name, share in zip(NUMBERS, SHARES, strict=True)),
    *(f"median({name})" for name in SMALL),
    *(f"percentile_approx({name}, {share})" for name, share in zip("yhimpyhimp", SHARES, strict=True)),
    # In Spark it takes the way of DOUBLE, and NaN has no certain place.
    "percentile_approx(e, 0.9) FILTER (WHERE NOT isnan(e))",
    "percentile_approx(d, 0.3, 10000) FILTER (WHERE NOT isnan(d))",
    "approx_percentile(day, 0.6)",
    "approx_percentile(f, 0.6, 100) FILTER (WHERE f <= 2)",
]  # fmt: skip
OF_NO_STAGE = ("count(1)", "sum(NULL)")
"""They name no column, so that in a measure of matches nothing says which events are meant."""
SETS = [f"collect_set({name})" for name in ORDERED] + ["collect_list(DISTINCT i)"]
NEAR = [
    *(f"{function}({name})" for function in ("stddev", "stddev_pop", "variance", "var_pop") for name in "yhiemp"),
    *(f"{function}(i)" for function in ("std", "stddev_samp", "var_samp")),
    *(f"var_pop({name})" for name in "lf"),
]
DISTINCT = [
    *(f"count(DISTINCT {name})" for name in ORDERED),
    "count(DISTINCT i, s)",
    "sum(DISTINCT i)",
    "sum(DISTINCT m)",
    "avg(DISTINCT i)",
    "sum(DISTINCT i) FILTER (WHERE b)",
    "max(DISTINCT s)",
    "stddev(DISTINCT i)",
    "avg(DISTINCT e)",
]
FAILING = [
    "sum(l) FILTER (WHERE l > 0)",
    "sum(w * 1000000) FILTER (WHERE w > 0)",
    "avg(w)",
    "sum(i) / count_if(i > 100)",
    "sum(1 / i)",
    "sum(CAST(s AS INT))",
]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that evaluates without generating code, which takes most of the time of so many expressions."""
    names = ["spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"]
    before = {name: spark.conf.get(name) for name in names}
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    logging.disable(logging.CRITICAL)  # each failure that is meant would be logged
    yield spark
    logging.disable(logging.NOTSET)
    for name, value in before.items():
        spark.conf.set(name, value or "")


def grouped(rng: random.Random, rows: int) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """Elements and their groups; one group has a single element, with nothing but NULL."""
    elements = table(rng, "UTC", rows)
    groups = np.array([0, *(rng.randrange(1, GROUPS - 1) for _ in range(rows - 1))])
    return elements, groups


def by_spark(session: SparkSession, elements: pa.Table, groups: Any, measures: list[str]) -> pa.Table:
    """One row per group in Spark, with the group."""
    rows = session.createDataFrame(elements, SPARK_SCHEMA)
    numbers = session.createDataFrame(pa.table({"row": elements.column("row"), "g": groups}))
    columns = [F.expr(text).alias(f"r{n}") for n, text in enumerate(measures)]
    joined = rows.join(F.broadcast(numbers), "row").coalesce(1).sortWithinPartitions("row")
    return joined.groupBy("g").agg(*columns).toArrow().sort_by("g")


def some_of_each(rng: random.Random, measures: list[str]) -> list[str]:
    """Two measures for each function."""
    kinds: dict[str, list[str]] = {}
    for text in measures:
        kinds.setdefault(re.split(r"[( ]", text)[0], []).append(text)
    return [text for texts in kinds.values() for text in rng.sample(texts, min(len(texts), 2))]


def divided(rng: random.Random, aggregates: Aggregates, elements: pa.Table, groups: Any, into: bool) -> pa.Table:
    """Partials of all groups, the elements folded bit by bit."""
    cuts = sorted(rng.randrange(len(groups) + 1) for _ in range(rng.randrange(4)))
    pieces = list(zip([0, *cuts], [*cuts, len(groups)], strict=True))
    if into:
        partials = None
        for start, end in pieces:
            partials = aggregates.fold(groups[start:end], GROUPS, elements.slice(start, end - start), partials)
        assert partials is not None
        return partials
    folded = [aggregates.fold(groups[start:end], GROUPS, elements.slice(start, end - start)) for start, end in pieces]
    return aggregates.merge(pa.concat_tables(folded), np.tile(np.arange(GROUPS), len(pieces)), GROUPS)


def results(aggregates: Aggregates, partials: pa.Table, elements: pa.Table, groups: Any) -> pa.Table:
    order = np.argsort(groups, kind="stable")
    offsets = np.searchsorted(groups[order], np.arange(GROUPS + 1))
    finished = aggregates.finish(partials, offsets, elements.take(pa.array(order)).select(aggregates.kept_columns))
    assert finished.schema == pa.schema(aggregates.fields)
    return finished


def of_matches(rng: random.Random, measures: list[str], elements: pa.Table, groups: Any, count: int) -> pa.Table:
    """Each group is a match: its elements are the events of stage a, and stage b took some others."""
    texts = []
    for text in measures:
        starts = {position_of(column) for column in parse(text, FUNCTIONS).find_all(exp.Column)}
        prefixed = "".join("a." * (at in starts) + letter for at, letter in enumerate(text))
        texts.append(prefixed.replace("(*)", "(a.*)"))
    time = TimeColumn("time", pa.timestamp("us", "UTC"))
    output = MatchOutput(OutputSpec(OutputKind.MATCHES, tuple(texts)), elements.schema, (), time, ["a", "b"])
    assert output.measures is not None
    events, stages, offsets = [], [], [0]
    for group in range(count):
        of_a = np.flatnonzero(groups == group).tolist()
        of_b = rng.choices(range(len(groups)), k=rng.randrange(3))
        events += of_a + of_b
        stages += [0] * len(of_a) + [1] * len(of_b)
        offsets.append(len(events))
    none = np.zeros(count, np.int64)
    parts = [np.array(numbers, np.int64) for numbers in (offsets, events, events, stages)]
    found = MatchColumns(none, none, *parts)
    renamed = elements.rename_columns(["e:" + name for name in elements.column_names])
    step = Step(pa.table({}), renamed, np.zeros(len(elements), np.int64), found, found, [], [], 0)
    base = pa.table([pa.nulls(count, field.type) for field in output.base_schema], schema=output.base_schema)
    return pa.table(output.measures.build(base, step, found), schema=pa.schema(output.measures.fields))


def same(a: Any, b: Any, near: bool = False) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        if near and math.isfinite(a) and math.isfinite(b):
            return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def in_order(values: Any) -> Any:
    return sorted(values, key=repr) if isinstance(values, list) else values


def compare(
    session: SparkSession, rng: random.Random, elements: pa.Table, groups: Any, measures: list[str], kind: str = ""
) -> None:
    aggregates = Aggregates(measures, elements.schema)
    expected = by_spark(session, elements, groups, measures)
    there = expected.column("g").to_pylist()
    for how in ("at once", "into", "merged", "of matches"):
        chosen = list(enumerate(measures))
        if how == "of matches":
            chosen = [(n, text) for n, text in chosen if text not in OF_NO_STAGE]
            whole = of_matches(rng, [text for _, text in chosen], elements, groups, GROUPS)
        else:
            divide = how != "at once"
            partials = (
                divided(rng, aggregates, elements, groups, how == "into")
                if divide
                else aggregates.fold(groups, GROUPS, elements)
            )
            whole = results(aggregates, partials, elements, groups)
        found = whole.take(pa.array(there))
        differences = []
        for (n, text), column in zip(chosen, found.columns, strict=True):
            other = expected.column(f"r{n}")
            if not alike(column.type, other.type):
                differences.append(f"{text}: {column.type} instead of {other.type}")
                continue
            near = kind == "near" or (how == "merged" and pa.types.is_floating(column.type))
            for a, b in zip(column.to_pylist(), other.to_pylist(), strict=True):
                if not (same(in_order(a), in_order(b)) if kind == "unordered" else same(a, b, near)):
                    differences.append(f"{how}: {text}: {a} instead of {b}")
                    break
        assert not differences, "\n".join(differences)


def alike(a: pa.DataType, b: pa.DataType) -> bool:
    """The same but for the names of parts, and whether they can be NULL."""
    if pa.types.is_list(a) or pa.types.is_struct(a) or pa.types.is_map(a):
        return a.id == b.id
    return bool(a == b)


@settings(max_examples=FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_all_functions(session: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    elements, groups = grouped(rng, rng.choice([1, 20, 40, 60]))
    compare(session, rng, elements, groups, some_of_each(rng, EXACT))


@settings(max_examples=FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_functions_that_are_not_the_same_to_the_last_bit(session: SparkSession, seed: int) -> None:
    """Variances, computed in another way."""
    rng = random.Random(seed)
    compare(session, rng, *grouped(rng, 40), NEAR, "near")


@settings(max_examples=FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_sets(session: SparkSession, seed: int) -> None:
    """In Spark they have no order."""
    rng = random.Random(seed)
    compare(session, rng, *grouped(rng, 40), SETS, "unordered")


@settings(max_examples=FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_distinct(session: SparkSession, seed: int) -> None:
    """Apart from the others: with DISTINCT Spark plans in another way, and elements lose their order."""
    rng = random.Random(seed)
    compare(session, rng, *grouped(rng, 40), DISTINCT, "near")


@settings(max_examples=FACTOR, phases=[Phase.generate])
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("text", FAILING)
def test_failures(session: SparkSession, text: str, seed: int) -> None:
    """What Spark fails for fails here, and the other way round."""
    rng = random.Random(seed)
    elements, _ = grouped(rng, rng.choice([2, 4, 8]))
    groups = np.zeros(len(elements), np.int64)
    try:
        expected = by_spark(session, elements, groups, [text]).column("r0").to_pylist()
    except PySparkException:
        expected = None
    aggregates = Aggregates([text], elements.schema)
    for into in (True, False):
        try:
            partials = divided(rng, aggregates, elements, groups, into)
            found = aggregates.finish(partials.slice(0, 1)).column(0).to_pylist()
        except InvalidEventError:
            found = None
        assert found == expected
    try:
        found = of_matches(rng, [text], elements, groups, 1).column(0).to_pylist()
    except InvalidEventError:
        found = None
    assert found == expected


@settings(max_examples=10 * FACTOR)
@given(st.integers(0, 2**32))
def test_sketches_are_nearly_right(seed: int) -> None:
    """And exactly the same however the elements are divided."""
    rng = random.Random(seed)
    elements, groups = grouped(rng, 40)
    sketches = Aggregates([f"approx_count_distinct({name})" for name in ORDERED], elements.schema)
    exact = Aggregates([f"count(DISTINCT {name})" for name in ORDERED], elements.schema)
    partials = sketches.fold(groups, GROUPS, elements)
    assert divided(rng, sketches, elements, groups, into=True) == partials
    assert divided(rng, sketches, elements, groups, into=False) == partials
    found = results(sketches, partials, elements, groups)
    measures = [f"approx_count_distinct({name})" for name in ORDERED]
    assert of_matches(rng, measures, elements, groups, GROUPS).columns == found.columns
    expected = results(exact, exact.fold(groups, GROUPS, elements), elements, groups)
    for a, b in zip(found.columns, expected.columns, strict=True):
        assert np.abs(np.subtract(a, b)).max() <= 1


def test_every_function_is_compared() -> None:
    called = {text.partition("(")[0] for text in [*EXACT, *NEAR, *SETS]}
    assert set(FUNCTIONS) - called == {"approx_count_distinct"}
