"""A condition over the one event of a stage says what the same condition says of two rows side by side."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.columns.time import END_OF_TIME
from asterism.errors import ExpressionError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.operators.operator import EVENTS, Arrival, Now
from asterism.operators.state.state_store import MemoryStore
from asterism.patterns.pattern import Pattern
from tests.expressions.sql_expressions import SPARK_SCHEMA, Expressions, table

COLUMNS = tuple(SPARK_SCHEMA.names[1:])  # without ROW
_COLUMN = re.compile(r"'(?:[^'\\]|\\.|'')*'|(?<![\w.'])(?<!AS )(" + "|".join(COLUMNS) + r")\b(?!\s*\()", re.DOTALL)


def split(rng: random.Random, text: str) -> tuple[str, str]:
    """(a condition over stages, the same over a row that has the columns of the stage's event too, called ``a_...``)

    About half of the columns are taken from the event of stage ``a``, and now and then from stage ``z``, which has none.
    """
    over, beside = [], []
    at = 0
    for found in _COLUMN.finditer(text):
        name = found.group(1)
        if name is None:
            continue
        stage = rng.choice(["", "a", "a", "a", "z"] if rng.random() < 0.2 else ["", "a"])
        picks = ["FIRST", "LAST", "LAST"] + (["MIN", "MAX"] if name in COLUMNS[1:18] else [])
        kept = text[at : found.start()]
        over += [kept, f"{rng.choice(picks)}({stage}.{name})" if stage else name]
        beside += [kept, f"{stage}_{name}" if stage else name]
        at = found.end()
    return "".join([*over, text[at:]]), "".join([*beside, text[at:]])


def pairs(rng: random.Random, zone: str, count: int = 30) -> tuple[pa.Table, pa.Table, pa.Table]:
    """(events of stage ``a``, events after them, both side by side and the columns of an empty stage ``z``)"""
    first, second = (table(rng, zone, count).drop_columns(["row"]) for _ in range(2))
    metadata = first.schema.metadata
    columns = {
        **{f"a_{name}": first.column(name) for name in COLUMNS},
        **{name: second.column(name) for name in COLUMNS},
    }
    columns |= {f"z_{name}": pa.nulls(count, first.schema.field(name).type) for name in COLUMNS}
    keys = pa.array(range(count))

    def events(rows: pa.Table, stage: str, time: int) -> pa.Table:
        rows = rows.append_column("key", keys).append_column("ts", pa.array([time] * count))
        return rows.append_column("stage", pa.array([stage] * count)).replace_schema_metadata(metadata)

    return events(first, "a", 1), events(second, "z", 2), pa.table(columns).replace_schema_metadata(metadata)


def matched(condition: str, first: pa.Table, second: pa.Table) -> set[int]:
    """The keys for which the condition holds of the second event."""
    pattern = Pattern.begin("a").where("stage = 'a'").next("z").where("stage = 'z'").where(condition)
    operator = CepOperator(
        pattern,
        first.schema,
        time="ts",
        keys=["key"],
        outputs={"m": OutputSpec(OutputKind.MATCHES, ("COUNT(a.*) AS n",))},
    )
    store = MemoryStore()
    events = operator.prepare(EVENTS, pa.concat_tables([first, second]))
    operator.process(store, [Arrival(EVENTS, events)], Now())
    result = operator.process(store, [], Now(END_OF_TIME))
    return set(result.outputs["m"].column("key").to_pylist()) if "m" in result.outputs else set()


def holds(text: str, rows: pa.Table) -> set[int]:
    vectorized = Vectorized(rows.schema)
    vectorized.add(Scope(rows.schema).resolve(parse(text), text), text)
    values = vectorized.evaluate(rows)[0].to_pylist()
    return {row for row, value in enumerate(values) if value}


@given(st.integers(0, 2**32), st.sampled_from(["UTC", "Europe/Madrid"]))
def test_a_condition_over_a_stage_is_that_over_its_event(seed: int, zone: str) -> None:
    """Where it fails for an event, and where it is refused, there is nothing to compare."""
    rng = random.Random(seed)
    first, second, beside = pairs(rng, zone)
    text, row_text = split(rng, Expressions(rng).truth(rng.choice([1, 2, 2, 3])))
    if text == row_text:
        return
    try:
        expected = holds(row_text, beside)
        found = matched(text, first, second)
    except (ExpressionError, InvalidEventError):
        return
    assert found == expected, text


@pytest.mark.parametrize(
    ("text", "row_text"),
    [
        ("upper(LAST(a.s)) = upper(s)", "upper(a_s) = upper(s)"),
        ("LAST(a.s) LIKE '%a%'", "a_s LIKE '%a%'"),
        ("LAST(a.m) = m", "a_m = m"),
        ("w > LAST(a.w) OR LAST(a.w) < 0.5", "w > a_w OR a_w < 0.5"),
        ("m - LAST(a.m) > 1.24", "m - a_m > 1.24"),
        ("LAST(a.i) > 0.5", "a_i > 0.5"),
        ("day > LAST(a.at) OR LAST(a.day) < '2024-01-01'", "day > a_at OR a_day < '2024-01-01'"),
        ("at - LAST(a.at) < INTERVAL 1 DAY", "at - a_at < INTERVAL 1 DAY"),
        ("at > LAST(a.at) + INTERVAL 1 DAY", "at > a_at + INTERVAL 1 DAY"),
        ("LAST(a.e) <> 0 AND e / LAST(a.e) > 1", "a_e <> 0 AND e / a_e > 1"),
        ("CASE WHEN LAST(a.e) = 0 THEN b ELSE 1 / LAST(a.e) > 0 END", "CASE WHEN a_e = 0 THEN b ELSE 1 / a_e > 0 END"),
        ("LAST(a.i) % 2 = 0", "a_i % 2 = 0"),
        ("greatest(LAST(a.l), i) = i", "greatest(a_l, i) = i"),
        ("LAST(a.s) <=> s", "a_s <=> s"),
        ("LAST(a.st.u) = st.u", "a_st.u = st.u"),
        ("hour(LAST(a.at)) = hour(at)", "hour(a_at) = hour(at)"),
        ("concat(LAST(a.s), '-', LAST(a.t)) > s", "concat(a_s, '-', a_t) > s"),
        ("(LAST(a.d) > d) IS NOT TRUE", "(a_d > d) IS NOT TRUE"),
        ("LAST(a.f) > f OR LAST(a.f) = 0.1", "a_f > f OR a_f = 0.1"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Madrid"])
def test_conditions_over_a_stage(text: str, row_text: str, zone: str) -> None:
    first, second, beside = pairs(random.Random(11), zone, 400)
    expected = holds(row_text, beside)
    assert expected
    assert matched(text, first, second) == expected
