"""Aggregates over groups: answers worked out by hand, and what does not depend on how the elements are divided.

That they are Spark's answers is compared in ``tests/expressions/test_aggregates_property.py``.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import ExpressionError, InvalidEventError
from asterism.expressions.aggregates import Aggregates
from asterism.expressions.types import TIME_ZONE

SCHEMA = pa.schema(
    [
        ("item", pa.string()),
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("x", pa.float64()),
        ("price", pa.decimal128(5, 2)),
        ("wide", pa.decimal128(38, 0)),
        ("ok", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
    ],
    metadata={TIME_ZONE: "Europe/Madrid"},
)


def elements(**columns: Sequence[Any]) -> pa.Table:
    rows = max(map(len, columns.values()), default=0)
    return pa.table([pa.array(columns.get(f.name, [None] * rows), f.type) for f in SCHEMA], schema=SCHEMA)


def numbers(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)


def answers(measure: str, table: pa.Table, segments: Sequence[int] | None = None, count: int = 1) -> list[Any]:
    """What the measure is of each group; all elements are in one group unless *segments* says otherwise."""
    groups = numbers([0] * len(table) if segments is None else segments)
    aggregates = Aggregates([measure], SCHEMA)
    partials = aggregates.fold(groups, count, table)
    assert partials.schema == aggregates.partial_schema
    order = np.argsort(groups, kind="stable")
    offsets = np.searchsorted(groups[order], np.arange(count + 1))
    rows = table.take(pa.array(order)).select(aggregates.kept_columns) if aggregates.kept_columns else None
    found = aggregates.finish(partials, offsets if aggregates.kept_columns else None, rows)
    assert found.schema == pa.schema(aggregates.fields)
    return list(found.column(0).to_pylist())


def answer(measure: str, **columns: Sequence[Any]) -> Any:
    return answers(measure, elements(**columns))[0]


# ---------------------------------------------------------------------------------------------------- functions


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("count(*)", [3, 1, 0]),
        ("count(n)", [2, 0, 0]),
        ("sum(n)", [8, None, None]),
        ("avg(n)", [4.0, None, None]),
        ("min(item)", ["cup", "pot", None]),
        ("max(item)", ["urn", "pot", None]),
        ("first(item)", ["tea", "pot", None]),
        ("last(item)", ["cup", "pot", None]),
        ("max_by(item, n)", ["tea", None, None]),
        ("min_by(item, n)", ["cup", None, None]),
        ("bool_and(n > 3)", [False, None, None]),
        ("bool_or(n > 3)", [True, None, None]),
        ("count_if(n > 3)", [1, 0, 0]),
        ("stddev(n)", [math.sqrt(2), None, None]),
        ("var_pop(n)", [1.0, None, None]),
        ("collect_list(item)", [["tea", "urn", "cup"], ["pot"], []]),
        ("percentile(n, 0.25)", [3.5, None, None]),
        ("median(n)", [4.0, None, None]),
        ("percentile_approx(n, 0.5)", [3, None, None]),
        ("approx_count_distinct(item)", [3, 1, 0]),
        ("count(DISTINCT item)", [3, 1, 0]),
    ],
)
def test_each_group_has_its_own_answer(measure: str, expected: list[Any]) -> None:
    """Elements of different groups may be mixed; the last group is empty."""
    table = elements(item=["tea", "pot", "urn", "cup"], n=[5, None, None, 3])
    found = answers(measure, table, [0, 1, 0, 0], 3)
    assert found == (pytest.approx(expected) if isinstance(expected[0], float) else expected)


def test_nan_is_the_largest_number() -> None:
    x = [1.0, math.nan, math.inf, None]
    assert math.isnan(answer("max(x)", x=x))
    assert answer("min(x)", x=x) == 1.0
    assert answer("max_by(n, x)", x=x, n=[1, 2, 3, 4]) == 2
    assert math.isnan(answer("percentile_approx(x, 1)", x=x))


def test_texts_are_ordered_by_their_bytes() -> None:
    assert answer("max(item)", item=["z", "Z", "ä", "\uffff", "😀"]) == "😀"
    assert answer("min(item)", item=["z", "Z", "ä"]) == "Z"


def test_of_equals_min_and_max_take_the_first_and_min_by_and_max_by_the_last() -> None:
    assert math.copysign(1, answer("max(x)", x=[-0.0, 0.0])) == -1
    assert answer("max_by(item, n)", item=["a", "b"], n=[7, 7]) == "b"
    assert answer("min_by(item, n)", item=["a", "b"], n=[7, 7]) == "b"


def test_max_by_may_give_null() -> None:
    assert answer("max_by(item, n)", item=["a", None], n=[1, 2]) is None
    assert answer("max_by(item, n)", item=["a", "b"], n=[1, None]) == "a"
    assert answer("max_by(tags, n)", tags=[["a"], []], n=[2, 1]) == ["a"]


def test_first_and_last_take_null_unless_told_not_to() -> None:
    n = [None, 1, 2, None]
    assert answer("first(n)", n=n) is None
    assert answer("last(n)", n=n) is None
    for text in ("first(n) IGNORE NULLS", "first_value(n IGNORE NULLS)", "any_value(n, TRUE)"):
        assert answer(text, n=n) == 1
    assert answer("last_value(n) FILTER (WHERE n < 2) IGNORE NULLS", n=n) == 1
    assert answer("last(n) RESPECT NULLS", n=n) is None


def test_filter_chooses_the_elements() -> None:
    assert answer("count(*) FILTER (WHERE n > 1)", n=[1, 2, None, 3]) == 2
    assert answer("sum(10 / n) FILTER (WHERE n <> 0)", n=[0, 5, 2]) == 7.0
    assert answer("first(item) FILTER (WHERE n = 2)", item=["a", "b"], n=[1, 2]) == "b"
    assert answer("collect_list(n) FILTER (WHERE ok)", n=[1, 2, 3], ok=[True, None, True]) == [1, 3]
    assert answer("count(*) FILTER (WHERE n > 9)", n=[1]) == 0


def test_distinct_looks_at_each_value_once() -> None:
    assert answer("count(DISTINCT n, item)", n=[1, 1, 1, None], item=["a", "a", "b", "c"]) == 2
    assert answer("sum(DISTINCT n)", n=[2, 2, 3, None]) == 5
    assert answer("avg(DISTINCT x)", x=[1.0, 1.0, 4.0]) == 2.5
    assert answer("count(DISTINCT x)", x=[math.nan, -math.nan, 0.0, -0.0]) == 2
    assert answer("collect_set(item)", item=["b", "a", "b", None]) == ["b", "a"]


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.none() | st.integers(-2, 2),
            st.none() | st.sampled_from(["a", "b", "\u00e9", "\U0001f600", "\uffff"]),
            st.none() | st.sampled_from([-0.0, 0.0, 1.5, math.nan, math.inf]),
            st.none() | st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")]),
        ),
        max_size=12,
    ),
    order=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["", "ASC", "DESC"]), st.sampled_from(["", "FIRST", "LAST"])),
        min_size=1,
        max_size=3,
    ),
)
def test_order_by_is_a_stable_sort(rows: list[tuple[Any, ...]], order: list[tuple[int, str, str]]) -> None:
    names = ["", "n", "item", "x", "price"]
    written = ", ".join(
        f"{names[at]} {direction} {f'NULLS {nulls}' if nulls else ''}" for at, direction, nulls in order
    )

    def key(value: Any) -> Any:
        if isinstance(value, float):
            return (math.isnan(value), 0.0 if math.isnan(value) else value)
        return value.encode() if isinstance(value, str) else value

    expected: list[list[int]] = []
    for group in range(3):
        members = [number for number, row in enumerate(rows) if row[0] == group]
        for at, direction, nulls in reversed(order):
            known = [number for number in members if rows[number][at] is not None]
            # A stable sort in descending order leaves equal elements in their order, too.
            known.sort(key=lambda number, at=at: key(rows[number][at]), reverse=direction == "DESC")
            missing = [number for number in members if rows[number][at] is None]
            first = nulls == "FIRST" or (not nulls and direction != "DESC")  # as in Spark
            members = [*missing, *known] if first else [*known, *missing]
        expected.append(members)
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names) if name}
    table = elements(big=range(len(rows)), **columns)
    groups = [row[0] for row in rows]
    assert answers(f"array_agg(big ORDER BY {written})", table, groups, 3) == expected
    firsts = [members[0] if members else None for members in expected]
    assert answers(f"first(big ORDER BY {written})", table, groups, 3) == firsts


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("array_agg(item ORDER BY n) FILTER (WHERE n > 1)", ["c", "b", "b"]),
        ("array_agg(DISTINCT item ORDER BY item DESC)", ["c", "b", "a"]),
        ("array_agg(item ORDER BY n DESC, item)", ["b", "b", "c", "a"]),
        ("last_value(item ORDER BY n NULLS LAST) IGNORE NULLS", "b"),
        ("array_agg(item ORDER BY n)[0] || first(item ORDER BY -n NULLS LAST)", "ab"),
    ],
)
def test_order_by_with_other_parts_of_a_call(measure: str, expected: Any) -> None:
    assert answer(measure, item=["b", "c", "a", "b", None], n=[3, 2, 1, 3, None]) == expected


def test_percentiles() -> None:
    x = [40.0, 10.0, 30.0, 20.0, None]
    assert [answer(f"percentile(x, {p})", x=x) for p in (0, 0.5, 0.9, 1)] == pytest.approx([10, 25, 37, 40])
    assert [answer(f"percentile_approx(x, {p})", x=x) for p in (0, 0.5, 0.51, 1)] == [10, 20, 30, 40]
    assert answer("median(price)", price=[Decimal("1.00"), Decimal("2.50")]) == 1.75


def test_variances() -> None:
    x = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    assert answer("stddev_pop(x)", x=x) == 2.0
    assert answer("var_pop(x)", x=x) == 4.0
    assert answer("variance(x)", x=x) == pytest.approx(32 / 7)
    assert answer("variance(x)", x=[3.0]) is None
    assert answer("var_pop(x)", x=[3.0]) == 0.0
    assert math.isnan(answer("var_pop(x)", x=[3.0, math.inf]))
    assert answer("var_pop(x)", x=[1e300, -1e300]) == math.inf


def test_the_variance_of_large_numbers_close_together_is_right() -> None:
    """And of small ones after a large one."""
    assert answer("var_samp(x)", x=[1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]) == 30.0
    x = np.concatenate([[1e9], np.tile([1.0, 2.0], 5000)])
    assert answer("var_pop(x)", x=x) == pytest.approx(np.var(x), rel=1e-8)


# ---------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("sum(n)", pa.int64()),
        ("sum(x)", pa.float64()),
        ("sum(price)", pa.decimal128(15, 2)),
        ("sum(wide)", pa.decimal128(38, 0)),
        ("avg(n)", pa.float64()),
        ("avg(price)", pa.decimal128(9, 6)),
        ("max(n)", pa.int32()),
        ("first(at)", pa.timestamp("us", "UTC")),
        ("collect_list(price)", pa.list_(pa.decimal128(5, 2))),
        ("count(*)", pa.int64()),
        ("sum(n) / count(*)", pa.float64()),
        ("first(tags)[0]", pa.string()),
    ],
)
def test_types_are_those_of_spark(measure: str, expected: pa.DataType) -> None:
    assert Aggregates([measure], SCHEMA).fields == [pa.field(measure, expected)]


def test_decimals_are_exact() -> None:
    assert answer("sum(price)", price=[Decimal("999.99")] * 3 + [Decimal("-0.01")]) == Decimal("2999.96")
    assert answer("avg(price)", price=[Decimal("1.00"), Decimal("1.00"), Decimal("0.00")]) == Decimal("0.666667")
    large = Decimal(10**37)
    small = Decimal("-1" + "0" * 37)
    assert answer("sum(wide)", wide=[large, small, large, Decimal(1), None]) == Decimal(10**37 + 1)
    assert answer("sum(wide)", wide=[small] * 9) == Decimal(-9 * 10**37)
    assert answer("max(wide)", wide=[small, large]) == large


def test_columns_that_spark_does_not_know_become_those_it_does() -> None:
    table = pa.table(
        {
            "u": pa.array([200, 100], pa.uint8()),
            "word": pa.array(["b", "a"]).dictionary_encode(),
            "ns": pa.array([1_001, 2_002], pa.timestamp("ns")),
        }
    )
    aggregates = Aggregates(["sum(u)", "max(u)", "min(word)", "max(ns)"], table.schema)
    assert [field.type for field in aggregates.fields] == [pa.int64(), pa.int16(), pa.string(), pa.timestamp("us")]
    found = aggregates.finish(aggregates.fold(numbers([0, 0]), 1, table))
    assert found.to_pylist()[0]["sum(u)"] == 300
    assert found.to_pylist()[0]["min(word)"] == "a"


# ---------------------------------------------------------------------------------------------------- failures


def test_a_sum_that_does_not_fit_fails_at_the_end() -> None:
    table = elements(big=[2**63 - 1, 1, 5], wide=[Decimal(10**38 - 1)] * 3)
    for measure in ("sum(big)", "sum(wide)", "avg(wide)"):
        aggregates = Aggregates([measure], SCHEMA)
        partials = aggregates.fold(numbers([0, 0, 1]), 2, table)
        with pytest.raises(InvalidEventError, match="does not fit"):
            aggregates.finish(partials)
        if measure != "avg(wide)":
            assert aggregates.finish(partials.slice(1)).num_rows == 1


def test_only_the_sum_itself_must_fit() -> None:
    assert answer("sum(big)", big=[2**63 - 1, 1, -5]) == 2**63 - 5
    assert answer("sum(big)", big=[-(2**63), -(2**63), 2**63 - 1, 1]) == -(2**63)


def test_what_fails_for_an_element_fails_when_it_is_folded() -> None:
    aggregates = Aggregates(["sum(1 / n)"], SCHEMA)
    with pytest.raises(InvalidEventError, match="division by zero"):
        aggregates.fold(numbers([0]), 1, elements(n=[0]))


def test_what_fails_for_a_result_fails_at_the_end() -> None:
    aggregates = Aggregates(["sum(n) / (count(*) - 1)"], SCHEMA)
    with pytest.raises(InvalidEventError, match="division by zero"):
        aggregates.finish(aggregates.fold(numbers([0]), 1, elements(n=[3])))


# ---------------------------------------------------------------------------------------------------- folds and merges


INCREMENTAL = [
    "count(*)", "sum(x)", "sum(big)", "sum(wide)", "avg(x)", "avg(price)", "min(item)", "max(x)", "first(item)",
    "last(n) IGNORE NULLS", "max_by(tags, x)", "stddev(x)", "bool_or(ok)", "approx_count_distinct(item)",
]  # fmt: skip


def some(rows: int) -> pa.Table:
    rng = np.random.default_rng(7)
    return elements(
        item=[None if r < 0.2 else f"item {r:.2f}" for r in rng.random(rows)],
        n=[None if r < 0.2 else int(r * 100) for r in rng.random(rows)],
        big=rng.integers(-(2**55), 2**55, rows).tolist(),
        x=[None if r < 0.1 else r * 10**9 for r in rng.random(rows)],
        price=[Decimal(int(r * 99999)).scaleb(-2) for r in rng.random(rows)],
        wide=[Decimal(int(r * 2**53)) * 10**20 for r in rng.random(rows)],
        ok=(rng.random(rows) < 0.5).tolist(),
        tags=[[f"{r:.1f}"] for r in rng.random(rows)],
    )


def test_folding_into_partials_is_folding_at_once_to_the_last_bit() -> None:
    table, groups = some(200), np.random.default_rng(1).integers(0, 5, 200)
    aggregates = Aggregates(INCREMENTAL, SCHEMA)
    partials = None
    for start in range(0, 200, 17):
        partials = aggregates.fold(groups[start : start + 17], 5, table.slice(start, 17), partials)
    assert partials == aggregates.fold(groups, 5, table)


def test_merging_is_folding_at_once_but_for_the_last_bits_of_doubles() -> None:
    table, groups = some(200), np.random.default_rng(1).integers(0, 5, 200)
    aggregates = Aggregates(INCREMENTAL, SCHEMA)
    folds = [aggregates.fold(groups[at : at + 50], 5, table.slice(at, 50)) for at in range(0, 200, 50)]
    merged = aggregates.finish(aggregates.merge(pa.concat_tables(folds), numbers([0, 1, 2, 3, 4] * 4), 5))
    at_once = aggregates.finish(aggregates.fold(groups, 5, table))
    for name in at_once.column_names:
        if pa.types.is_floating(at_once.column(name).type):
            assert merged.column(name).to_pylist() == pytest.approx(at_once.column(name).to_pylist(), rel=1e-12)
        else:
            assert merged.column(name) == at_once.column(name)


def test_partials_of_other_groups_may_stand_between() -> None:
    aggregates = Aggregates(["first(item)", "last(item)", "sum(n)", "approx_count_distinct(item)"], SCHEMA)
    partials = aggregates.fold(numbers([0, 1, 2, 3]), 4, elements(item=["a", "b", "c", "d"], n=[1, 2, 3, 4]))
    found = aggregates.finish(aggregates.merge(partials, numbers([2, 0, 2, 0]), 3))
    assert found.to_pydict() == {
        "first(item)": ["b", None, "a"],
        "last(item)": ["d", None, "c"],
        "sum(n)": [6, None, 4],
        "approx_count_distinct(item)": [2, 0, 2],
    }


def test_a_merged_null_counts_as_the_first_value() -> None:
    aggregates = Aggregates(["first(item)"], SCHEMA)
    partials = aggregates.fold(numbers([1, 2]), 3, elements(item=[None, "b"]))
    assert aggregates.finish(aggregates.merge(partials, numbers([0, 0, 0]), 1)).to_pylist() == [{"first(item)": None}]


def test_nothing_at_all() -> None:
    aggregates = Aggregates([*INCREMENTAL, "collect_list(n)", "count(DISTINCT n)", "median(n)"], SCHEMA)
    partials = aggregates.fold(numbers([]), 0, elements(n=[]))
    assert aggregates.merge(partials, numbers([]), 0) == partials
    rows = elements(n=[]).select(aggregates.kept_columns)
    assert aggregates.finish(partials, numbers([0]), rows).num_rows == 0
    two = aggregates.merge(partials, numbers([]), 2)
    found = aggregates.finish(two, numbers([0, 0, 0]), rows).to_pydict()
    assert (found["count(*)"], found["sum(x)"], found["collect_list(n)"]) == ([0, 0], [None, None], [[], []])


def test_partials_may_be_slices_in_chunks() -> None:
    table, groups = some(60), numbers([0, 1, 2] * 20)
    aggregates = Aggregates(INCREMENTAL, SCHEMA)
    partials = aggregates.fold(groups, 3, table)
    pieces = pa.concat_tables([partials.slice(2), partials.slice(0, 2)])
    assert aggregates.finish(pieces).to_pylist() == aggregates.finish(partials.take([2, 0, 1])).to_pylist()
    assert aggregates.merge(pieces, numbers([0, 1, 2]), 3) == pieces


# ---------------------------------------------------------------------------------------------------- what is kept


def test_incremental_measures_need_no_rows() -> None:
    aggregates = Aggregates(INCREMENTAL, SCHEMA)
    assert aggregates.kept_columns == []
    assert set(aggregates.read) == set(SCHEMA.names) - {"at"}


def test_other_measures_need_the_columns_that_they_read() -> None:
    aggregates = Aggregates(["sum(n)", "median(x) FILTER (WHERE ok)", "count(DISTINCT upper(item))"], SCHEMA)
    assert aggregates.kept_columns == ["item", "x", "ok"]
    assert aggregates.read == ["n"]


def test_rows_are_kept_even_if_only_their_number_matters() -> None:
    assert Aggregates(["collect_list(1)"], SCHEMA).kept_columns == ["item"]
    assert answer("collect_list(1)", item=["a", None]) == [1, 1]


def test_there_is_a_partial_even_if_nothing_is_incremental() -> None:
    for measures in ([], ["median(n)"], ["1 AS one"]):
        assert Aggregates(measures, SCHEMA).fold(numbers([]), 4, elements(n=[])).num_rows == 4
    assert answers("1 + 1 AS two", elements(n=[1]), [0], 2) == [2, 2]


def test_what_several_measures_need_is_kept_once() -> None:
    aggregates = Aggregates(["sum(x)", "avg(x)", "AVG( x )", "count(x)", "sum(x) / count(x)"], SCHEMA)
    assert aggregates.partial_schema.types == [pa.float64(), pa.int64()]


def test_fold_reads_only_what_it_needs() -> None:
    aggregates = Aggregates(["sum(n)", "count(*)"], SCHEMA)
    found = aggregates.finish(aggregates.fold(numbers([0, 0]), 1, pa.table({"n": pa.array([1, 2], pa.int32())})))
    assert found.to_pylist() == [{"sum(n)": 3, "count(*)": 2}]


def test_aggregates_travel() -> None:
    aggregates = pickle.loads(pickle.dumps(Aggregates([*INCREMENTAL, "median(n)", "sum(n) + 1"], SCHEMA)))
    assert aggregates.fold(numbers([0] * 9), 1, some(9)).num_rows == 1


# ---------------------------------------------------------------------------------------------------- sketches


@pytest.mark.parametrize("column", ["item", "n", "x", "wide"])
def test_a_sketch_is_as_exact_as_it_says(column: str) -> None:
    for size in (1, 10, 1000, 20_000):
        values: Sequence[Any] = range(size)
        if column in ("item", "wide"):
            values = [f"item {value}" if column == "item" else Decimal(value) for value in values]
        table = elements(**{column: [*values, *values]})
        assert answers(f"approx_count_distinct({column})", table)[0] == pytest.approx(
            size, rel=3 * 1.04 / math.sqrt(512)
        )
        found = answers(f"approx_count_distinct({column}, 0.01)", table)[0]
        assert found == pytest.approx(size, rel=3 * 1.04 / math.sqrt(2**14))


def test_equal_values_are_one_to_a_sketch() -> None:
    assert answer("approx_count_distinct(x)", x=[0.0, -0.0, math.nan, -math.nan, None]) == 2


# ---------------------------------------------------------------------------------------------------- texts


def test_expressions_around_aggregates() -> None:
    table: dict[str, Sequence[Any]] = {"n": [1, 2, 4], "item": ["a", "b", "c"], "x": [0.5, 0.25, 1.0]}
    assert answer("round(avg(n), 2)", **table) == 2.33
    assert answer("sum(IF(item = 'b', n, 0)) + count(*)", **table) == 5
    assert answer("(sum(x) - min(x)) / max(x)", **table) == 1.5
    assert answer("concat(min(item), ' (', max(item), ')')", **table) == "a (c)"
    assert answer("CASE WHEN count(*) > 2 THEN first(item) END", **table) == "a"
    assert answer("first(tags)[0]", tags=[["u", "v"]]) == "u"


def test_times_are_those_of_the_session() -> None:
    """Madrid is two hours ahead of UTC in summer."""
    at = [datetime(2024, 6, 30, 22, 30, tzinfo=UTC), datetime(2024, 6, 30, 21, tzinfo=UTC)]
    assert answer("day(max(at))", at=at) == 1
    assert answer("count(DISTINCT CAST(at AS DATE))", at=at) == 2
    assert answer("date_trunc('DAY', min(at))", at=at) == datetime(2024, 6, 29, 22, tzinfo=UTC)


def test_names() -> None:
    texts = ["sum(n) AS total", "count(*)", " max( n ) ", "`max`", "sum(n) AS `a b`"]
    names = [field.name for field in Aggregates([t for t in texts if t != "`max`"], SCHEMA).fields]
    assert names == ["total", "count(*)", "max( n )", "a b"]


def test_function_names_inside_texts_and_names_are_no_calls() -> None:
    schema = pa.schema([("sum", pa.int64()), ("a(b", pa.int64())])
    table = pa.table([[1, 2], [3, 4]], schema=schema)
    aggregates = Aggregates(["sum(sum)", "max('sum(1)')", "sum(`a(b`) AS `sum(`", "first('it''s (') AS f"], schema)
    found = aggregates.finish(aggregates.fold(numbers([0, 0]), 1, table))
    assert list(found.to_pylist()[0].values()) == [3, "sum(1)", 7, "it's ("]


def test_keywords_in_quotes_are_none() -> None:
    schema = pa.schema([("distinct", pa.int64()), ("nulls", pa.int64())])
    table = pa.table([[5, 5], [None, 2]], schema=schema)
    texts = [
        "count('distinct', nulls)",
        "count(`distinct`)",
        "first(nulls)",
        "first(nulls) IGNORE NULLS",
        "count(ALL nulls)",
    ]
    aggregates = Aggregates(texts, schema)
    found = aggregates.finish(aggregates.fold(numbers([0, 0]), 1, table))
    assert list(found.to_pylist()[0].values()) == [1, 2, None, 2, 1]


def test_comments_and_line_breaks() -> None:
    assert answer("sum(\n  n -- the number (\n)\n+ count(*) /* max( */", n=[1, 2]) == 5


def test_names_of_functions_in_any_case() -> None:
    assert answer("Sum(N) + COUNT(*)", n=[1, 2]) == 5


def test_errors_point_at_the_place() -> None:
    with pytest.raises(ExpressionError) as caught:
        Aggregates(["count(*) + sum(nn)"], SCHEMA)
    assert "did you mean 'n'?" in str(caught.value)
    with pytest.raises(ExpressionError) as caught:
        Aggregates(["count(*) + sum(item)"], SCHEMA)
    assert str(caught.value).splitlines() == [
        "[EXPRESSION_TYPE] SUM: a number is needed, not STRING",
        "  count(*) + sum(item)",
        "             ^",
        "  Hint: CAST it",
    ]
