"""Functions in Python that a query lists for its rules, and that tests without Spark hand over."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from asterism import Pattern
from asterism.errors import AsterismError, EvaluationFailedError, ExpressionError, StreamDefinitionError
from asterism.expressions.aggregates import CALLS_OF_MATCHES
from asterism.expressions.aggregates import FUNCTIONS as AGGREGATES
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.functions import FUNCTIONS
from asterism.expressions.names import Scope
from asterism.expressions.routines.user_functions import (
    Purpose,
    UserFunctions,
    checked,
    declared,
    listed,
    types_of_signatures,
)
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.binding.clauses import ANY_TIME
from asterism.rules.checking.validation import check_processor
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.rule_tests import RuleTest
from asterism.testing import match
from asterism.testing.rule_harness import run_rule_test
from asterism.text.strict_json import nowhere
from asterism.trace import trace

EVENTS = pa.table(
    {
        "n": pa.array([0, 4, None], pa.int32()),
        "x": pa.array([0.5, float("nan"), None]),
        "text": ["a", "", None],
        "price": pa.array([Decimal("1.50"), Decimal("-2.00"), None], pa.decimal128(10, 2)),
        "ts": pa.array(
            [datetime(2024, 7, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC), None],
            pa.timestamp("us", "Europe/Madrid"),
        ),
        "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
    }
)


def risk(kind: str | None) -> int | None:
    return None if kind is None else {"a": 1, "b": 5}.get(kind, 9)


def inverse(x: float) -> float:
    return 1 / x


def evaluated(text: str, udfs: Mapping[str, Any]) -> list[Any]:
    with listed(checked(udfs)):
        expressions, scope = Vectorized(EVENTS.schema), Scope(EVENTS.schema)
        expressions.add(scope.resolve(scope.parse(text), text), text)
    return expressions.evaluate(EVENTS)[0].to_pylist()


@pytest.mark.parametrize("column", EVENTS.column_names)
def test_values_are_those_that_spark_passes(column: str) -> None:
    """NULL is None, a TIMESTAMP a local time of the session without a zone, everything else the value itself."""
    seen: list[Any] = []

    def see(value: Any) -> bool:
        seen.append(value)
        return value is None

    assert evaluated(f"see({column})", {"see": (see, "boolean")}) == [False, False, True]
    expected = EVENTS.column(column).to_pylist()
    if column == "ts":
        expected = [None if value is None else value.replace(tzinfo=None) for value in expected]
    assert str(seen[-3:]) == str(expected)


@pytest.mark.parametrize(
    ("result", "value", "expected"),
    [
        ("int", 3, 3),
        ("double", 3, 3.0),
        ("string", "é", "é"),
        ("boolean", None, None),
        ("decimal(10,2)", Decimal("1.5"), Decimal("1.50")),
        ("array<string>", ["a", None], ["a", None]),
        ("map<string,int>", {"a": 1}, [("a", 1)]),
        ("timestamp", datetime(2024, 7, 1, 2), datetime(2024, 7, 1, tzinfo=UTC)),
        ("timestamp", datetime(2024, 7, 1, tzinfo=UTC), datetime(2024, 7, 1, tzinfo=UTC)),
        ("timestamp_ntz", datetime(2024, 7, 1, 2), datetime(2024, 7, 1, 2)),
    ],
)
def test_types_of_results(result: str, value: Any, expected: Any) -> None:
    assert evaluated("f(n)", {"f": (lambda n: value, result)}) == [expected] * 3


@pytest.mark.parametrize(
    ("result", "value"),
    [("int", "x"), ("int", 2**31), ("int", 1.5), ("string", 1), ("timestamp", "2024"), ("string", "x" * 10_001)],
)
def test_a_wrong_result_is_an_error(result: str, value: Any) -> None:
    with pytest.raises(EvaluationFailedError, match="f returned a value") as caught:
        evaluated("f(n)", {"f": (lambda n: value, result)})
    assert caught.value.detail == "f(n)"


def test_an_exception_has_its_place() -> None:
    with pytest.raises(EvaluationFailedError) as caught:
        evaluated("inverse(CAST(n AS DOUBLE)) > 1", {"inverse": inverse})
    assert (
        str(caught.value)
        .splitlines()[0]
        .startswith("[EVALUATION_FAILED] an expression could not be computed: inverse failed: ZeroDivisionError")
    )
    assert "test_user_functions.py, line" in caught.value.message
    assert "also called for NULL" in str(caught.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "coalesce(n, 0) <> 0 AND inverse(n) > 0",
        "CASE WHEN n <> 0 THEN inverse(n) END > 0",
        "coalesce(if(n = 0, 0, NULL), if(n = 4, inverse(n), NULL)) > 0",
    ],
)
def test_a_branch_that_is_not_reached_cannot_fail(text: str) -> None:
    assert evaluated(text, {"inverse": inverse})[:2] in ([False, True], [None, True])


def test_functions_of_pyspark() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql import types as T
    from pyspark.sql.functions import pandas_udf, udf

    def doubled(x: pd.Series) -> pd.Series:
        return x * 2

    twice = pandas_udf(doubled, T.DoubleType())
    assert evaluated("twice(coalesce(x, 1.5D))", {"twice": twice})[::2] == [1.0, 3.0]
    assert evaluated("risk(text)", {"risk": udf(risk, T.LongType(), useArrow=False)}) == [1, 9, None]
    with pytest.raises(StreamDefinitionError, match="not deterministic"):
        checked({"f": udf(risk, T.LongType(), useArrow=False).asNondeterministic()})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"upper": risk}, "has a meaning in SQL"),
        ({"sum": risk}, "has a meaning in SQL"),
        ({"case": risk}, "has a meaning in SQL"),
        ({"a b": risk}, "cannot be the name"),
        ({"f": lambda x: x}, "the type of the result of f is not known"),
        ({"f": 3}, "must be a function"),
        ({"f": (risk, "nonsense")}, "not a Spark SQL type"),
        ({"f": (risk, "struct<a:int>")}, "cannot return"),
        ({"f": risk, "F": risk}, "two functions"),
        ([risk], "must be a dict"),
    ],
)
def test_what_cannot_be_listed(given: Any, problem: str) -> None:
    with pytest.raises(StreamDefinitionError, match=problem):
        checked(given)


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, *AGGREGATES, *CALLS_OF_MATCHES}))
def test_names_of_functions_in_sql_cannot_be_listed(name: str) -> None:
    with pytest.raises(StreamDefinitionError, match="has a meaning in SQL"):
        checked({name: risk})


# ---------------------------------------------------------------------------------------------------- in rules and kits

RULE = PatternProcessor(
    "r",
    1,
    Pattern.begin("low").where("risk(kind) = 1").followed_by("high").where("risk(kind) > risk(LAST(low.kind)) + value"),
    select=("risk(high.kind) AS risk",),
)
CLAUSE = PatternProcessor(
    "s",
    1,
    sql="MEASURES risk(HIGH.kind) AS risk PATTERN (LOW HIGH) DEFINE HIGH AS risk(kind) > risk(PREV(kind)) + value",
)
UDFS = {"risk": risk}


def compiler(udfs: UserFunctions) -> ProcessorCompiler:
    schema = pa.schema([("kind", pa.string()), ("value", pa.int64())])
    return ProcessorCompiler(schema, (), ANY_TIME, Semantics.DEFAULT, {}, udfs=udfs)


@pytest.mark.parametrize("rule", [RULE, CLAUSE])
def test_rules_call_what_the_query_lists(rule: PatternProcessor) -> None:
    expected = RuleTest("t", "a1 b3", ({"risk": 5},))
    assert run_rule_test(rule, expected, udfs=UDFS).failure == ()
    failure = "\n".join(run_rule_test(rule, expected).failure)
    assert "unknown function risk" in failure
    assert "udfs={name: function}); listed: none" in failure
    with pytest.raises(ExpressionError, match="unknown function risk"):
        compiler(checked({"other": risk})).try_out(rule)


def test_patterns_and_traces_without_spark() -> None:
    assert RULE.pattern is not None
    harness = match(RULE.pattern, "a1 b3", udfs=UDFS, select=RULE.select)
    assert (harness.matches, harness.again().send("a1 b9").end().matches) == (["a1 b3"], [])
    events = [{"kind": "a", "value": 1}, {"kind": "b", "value": 3}]
    assert "risk(kind) = 1" in str(trace(RULE.pattern, [events[1]], time=None, udfs=UDFS))
    assert "low=[1] high=[2]" in str(trace(RULE.pattern, events, time=None, udfs=UDFS))
    for kit in (lambda: match(RULE.pattern, "a1"), lambda: trace(RULE.pattern, events, time=None)):  # type: ignore[arg-type]
        with pytest.raises(ExpressionError) as caught:
            kit()
        assert str(Purpose.WITHOUT_SPARK) in str(caught.value.hint)


def test_two_queries_with_functions_of_one_name() -> None:
    """Caches of parsed and of bound expressions keep them apart."""
    assert RULE.pattern is not None
    assert match(RULE.pattern, "a1 b3", udfs=UDFS).matches == ["a1 b3"]
    assert match(RULE.pattern, "a1 b3", udfs={"risk": (lambda kind: 2, "int")}).matches == []
    assert match(RULE.pattern, "a1 b3", udfs=UDFS).matches == ["a1 b3"]


def test_a_bound_rule_is_the_same_after_a_restart() -> None:
    """Waiting events are stored with the numbers of their conditions."""
    bound, again = (compiler(checked(UDFS, Purpose.RULES)).try_out(RULE) for _ in range(2))
    assert (bound.conditions, bound.evaluated) == (again.conditions, again.evaluated)
    other = compiler(checked(UDFS)).try_out(replace(RULE, pattern=Pattern.begin("high").where("risk(kind) = 2")))
    assert not {*other.conditions} & {*bound.conditions}


def test_functions_are_pickled_with_the_code_of_the_query() -> None:
    functions = checked(UDFS, Purpose.RULES)
    sent = pickle.loads(pickle.dumps(functions))
    assert sent == functions
    assert compiler(sent).try_out(RULE)


def test_declared_functions_are_enough_to_check() -> None:
    compiler(declared({"risk": pa.int64()})).try_out(RULE)
    with pytest.raises(AsterismError, match="needs numbers"):
        compiler(declared({"risk": pa.list_(pa.int64())})).try_out(RULE)


@pytest.mark.parametrize("rule", [RULE, CLAUSE])
def test_validation_knows_declared_functions(rule: PatternProcessor) -> None:
    def problems(functions: UserFunctions, schema: pa.Schema | None) -> Sequence[str]:
        with listed(functions):
            return [problem.message for problem in check_processor(rule.to_dict(), nowhere, schema).problems]

    known = declared(types_of_signatures({"risk": checked(UDFS)["risk"].signature}))
    schema = pa.schema([("kind", pa.string()), ("value", pa.int64())])
    for given in (None, schema):
        assert problems(known, given) == []
        assert any("unknown function risk" in problem for problem in problems(checked({}), given))


def test_a_rule_that_was_accepted_is_refused_if_the_query_does_not_list_its_function_any_more() -> None:
    assert compiler(checked(UDFS)).knows(RULE)
    assert not compiler(checked({})).knows(RULE)
    assert compiler(checked({})).knows(replace(RULE, pattern=Pattern.begin("high"), select=("COUNT(high.*) AS n",)))


def test_an_endpoint_accepts_rules_that_call_what_the_query_lists(tmp_path: Path) -> None:
    from asterism.discovery.rest.rule_file import StoredRuleFile

    schema = pa.schema([("kind", pa.string()), ("value", pa.int64())])
    for number, udfs in enumerate((UDFS, {})):
        known = checked(udfs, Purpose.RULES)
        stored = StoredRuleFile(
            tmp_path / f"{number}.json", lambda: (schema, Semantics.DEFAULT), lambda known=known: known
        )
        if udfs:
            assert stored.checked(RULE.to_dict()).item == RULE.to_dict()
        else:
            with pytest.raises(AsterismError, match="unknown function risk"):
                stored.checked(RULE.to_dict())
