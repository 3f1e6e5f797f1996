"""Match functions with outputs and metrics of their own, for matches and for timed-out partial matches.

Source: Flink's ``PatternProcessFunction`` and ``TimedOutPartialMatchHandler``. See docs/decisions/0104.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from asterism.arguments import described, expect, shown
from asterism.errors import AsterismError, OperatorError, StreamDefinitionError, UserFunctionError
from asterism.matching.outputs import OutputKind, returned_rows
from asterism.operators.rich_functions import OpenContext, RichFunction
from asterism.operators.state.keyed_state import State
from asterism.operators.stream_operator import (
    Counter,
    Gauge,
    Histogram,
    Input,
    Output,
    check_function,
    declared_in,
)
from asterism.operators.tools import Emitted, Tools


@dataclass(frozen=True, slots=True)
class MatchContext:
    """The context of a call of a :class:`PatternProcessFunction`.

    :ivar current_processing_time: the processing time of the micro-batch, in UTC. Rows that depend on it depend on when the
        stream is read.
    :ivar processor_id: and *processor_version*: the rule whose matches these are; None without rules
    """

    current_processing_time: datetime
    processor_id: str | None = None
    processor_version: int | None = None


class PatternProcessFunction(ABC):
    """A match function with any number of outputs. A subclass declares outputs and metrics as class attributes, as a
    :class:`asterism.StreamOperator` does.

    >>> from datetime import timedelta
    >>> import pyarrow as pa
    >>> from asterism import Counter, Output, Pattern, PatternProcessFunction
    >>> from asterism.testing import PatternHarness
    >>> class Payments(PatternProcessFunction):
    ...     large = Output("match_id STRING, amount DOUBLE")
    ...     unpaid = Output("id STRING")
    ...     seen = Counter()
    ...
    ...     def process_matches(self, matches, ctx):
    ...         self.seen.inc(matches.num_rows)
    ...         for match in matches.to_pylist():
    ...             if match["pay"][0]["value"] > 100:
    ...                 self.large.collect(match_id=match["match_id"], amount=match["pay"][0]["value"])
    ...         return matches.select(["key", "match_time"])
    ...
    ...     def process_timed_out_matches(self, matches, ctx):
    ...         self.unpaid.collect_batch(pa.table({"id": matches["key"]}))
    >>> pattern = Pattern.begin("order").where("kind = 'o'").next("pay").where("kind = 'p'")
    >>> pattern = pattern.within(timedelta(minutes=10))
    >>> harness = PatternHarness(pattern, process=Payments(), schema="key STRING, match_time TIMESTAMP")
    >>> harness = harness.send("ann.o1@1s ann.p300@2s bob.o1@3s bob.p5@4s eve.o1@5s").end()
    >>> [row["key"] for row in harness.processed]
    ['ann', 'bob']
    >>> [row["amount"] for row in harness.rows("large")], harness.rows("unpaid"), harness.metrics["seen"]
    ([300.0], [{'id': 'eve'}], 2)

    Functions are called with many matches at once, of any keys; the division into calls is arbitrary, so each row may depend only
    on its match. Both functions are called whichever outputs are taken, so results do not depend on it. A function may be called
    again for the same matches, for example after a failure: what an earlier call has emitted and counted is then discarded.

    A function has no state. The rows of an output with state are the input of a :class:`asterism.StreamOperator`.

    :raises StreamDefinitionError: when the class is defined, if its declarations are inconsistent

    Source: Flink's ``PatternProcessFunction``, ``TimedOutPartialMatchHandler``; ``ctx.output(tag, value)`` is
    ``self.large.collect(...)``.
    """

    def open(self, context: OpenContext) -> None:  # noqa: B027 - most have nothing to do
        """Called before the first matches: see :class:`asterism.OpenContext`."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Called once after the last matches, also after a failure, if the function was opened."""

    @abstractmethod
    def process_matches(self, matches: pa.Table, ctx: MatchContext) -> pa.Table | None:
        """Called with complete matches.

        :param matches: a row for each match, with the columns of :attr:`asterism.PatternStream.matches`
        :return: the rows of the main output, or None if there is none. In a rule, they become the ``result`` of its matches, as
            those of a plain function do; None: ``result`` is NULL.
        """

    def process_timed_out_matches(self, matches: pa.Table, ctx: MatchContext) -> None:  # noqa: B027 - it is optional
        """Called with partial matches that timed out. It emits rows to outputs, and returns nothing.

        :param matches: a row for each, with the columns of :attr:`asterism.PatternStream.timed_out`. A rule has them only if it
            has ``timed_out``.
        """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in declared_in(cls, (Output, Counter, Gauge, Histogram)):
            if hasattr(PatternProcessFunction, name):
                raise StreamDefinitionError(
                    f'{cls.__name__} declares "{name}", which is a method of every match function',
                    hint=f'name it "{name}_"',
                )
        for name, declared in declared_in(cls, (Input, State)).items():
            raise StreamDefinitionError(
                f'{cls.__name__} declares "{name}", but a match function has no {type(declared).__name__}',
                hint="it declares outputs and metrics; for state, connect the output to a StreamOperator",
            )
        check_function(cls.process_matches)
        check_function(cls.process_timed_out_matches)


MatchFunctionLike = Callable[[pa.Table], pa.Table] | PatternProcessFunction
"""A match function: one without or with outputs of its own."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A match function of a query with its main output.

    :ivar schema: the columns of the main output; None: there is none
    :ivar output: the name of the main output
    :raises StreamDefinitionError: the function is not a :class:`PatternProcessFunction`
    """

    function: PatternProcessFunction
    schema: pa.Schema | None = None
    output: str = OutputKind.MATCHES.value

    def __post_init__(self) -> None:
        expect(StreamDefinitionError, self.function, PatternProcessFunction, "expected a PatternProcessFunction")


class Processed(NamedTuple):
    """What a call returned, and what it emitted."""

    rows: Any
    emitted: Emitted


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """The outputs and metrics of one or several functions, by name."""

    outputs: Mapping[str, pa.Schema]
    counters: Mapping[str, Counter]
    gauges: Mapping[str, Gauge]
    histograms: Mapping[str, Histogram]


class MatchFunction(RichFunction):
    """A :class:`PatternProcessFunction` in one process: the call in which its outputs and metrics are used."""

    kind, when = "function", "the function processes matches"
    writes_broadcast = repeats = False

    def __init__(self, function: PatternProcessFunction, schema: pa.Schema) -> None:
        super().__init__(function, schema)
        declared = type(function)
        outputs = {name: output.schema for name, output in declared_in(declared, Output).items()}
        self.declared = DeclaredTools(outputs, *(declared_in(declared, kind) for kind in (Counter, Gauge, Histogram)))
        self.handles_timeouts = (
            declared.process_timed_out_matches is not PatternProcessFunction.process_timed_out_matches
        )
        self.operator: object = None
        self.running = False

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"operator": None, "_tools": None, "running": False}

    def _prepare(self, function: Any) -> None:
        self.operator = function
        self._tools = Tools(self)

    def process(self, matches: pa.Table, ctx: MatchContext, *, timed_out: bool = False) -> Processed:
        """Call the function. What it emits is that of this call alone.

        :raises OperatorError: it failed, or a row does not fit its output
        """
        function = self.opened()
        name = "process_timed_out_matches" if timed_out else "process_matches"
        self._tools.reset()
        self.running = True
        try:
            returned: object = getattr(function, name)(matches, ctx)
        except AsterismError:
            raise
        except Exception as error:
            raise UserFunctionError(f"{self.__qualname__}.{name} failed", described(error)) from error
        finally:
            self.running = False
        if timed_out and returned is not None:
            raise UserFunctionError(
                f"{self.__qualname__}.{name} returned {shown(returned)}, which no output has",
                hint="emit rows with an output: self.unpaid.collect(...); return nothing",
            )
        return Processed(returned, self._tools.taken())

    def __call__(self, matches: pa.Table) -> Any:
        raise AssertionError("a PatternProcessFunction is called by process()")


def check_names(function: MatchFunction, outputs: Iterable[str], metrics: Iterable[str]) -> None:
    """:raises StreamDefinitionError: an output or a metric has the name of one that a query has anyway"""
    declared = function.declared
    metrics_of_function = {*declared.counters, *declared.gauges, *declared.histograms}
    for what, names, known in (("output", declared.outputs, outputs), ("metric", metrics_of_function, metrics)):
        used = sorted({*names} & {*known})
        if used:
            raise StreamDefinitionError(
                f'{function.__qualname__} declares the {what} "{used[0]}", which a query has anyway',
                hint=f"use another name: {used[0]}_ = {'Output(...)' if what == 'output' else 'Counter()'}",
            )


def declared_by(functions: Iterable[MatchFunction]) -> DeclaredTools:
    """What *functions* declare. Several may declare the same output or metric.

    :raises StreamDefinitionError: they declare it differently
    """
    whole = DeclaredTools({}, {}, {}, {})
    seen: dict[str, tuple[Any, str]] = {}
    for function in functions:
        declared = function.declared
        described = {
            **{name: ("output", str(schema)) for name, schema in declared.outputs.items()},
            **dict.fromkeys(declared.counters, "counter"),
            **{name: ("gauge", gauge.aggregate) for name, gauge in declared.gauges.items()},
            **{name: ("histogram", histogram.buckets) for name, histogram in declared.histograms.items()},
        }
        for name, what in described.items():
            former, owner = seen.setdefault(name, (what, function.__qualname__))
            if former != what:
                raise StreamDefinitionError(
                    f'{owner} and {function.__qualname__} declare "{name}" differently',
                    "Functions share an output or a metric of the same name.",
                    "use another name, or the same columns",
                )
        for field in fields(DeclaredTools):
            getattr(whole, field.name).update(getattr(declared, field.name))
    return whole


def rows_of_main_output(function: MatchFunction, rows: Any, schema: pa.Schema | None) -> pa.Table | None:
    """What :meth:`PatternProcessFunction.process_matches` returned, with the columns of the main output.

    :param schema: these columns; None: there is no main output
    :raises OperatorError: the rows do not fit
    """
    name = f"{function.__qualname__}.process_matches"
    if schema is not None:
        return returned_rows(f"match function {name}", rows, schema)
    if rows is not None:
        raise OperatorError(
            f"{name} returned rows, but there is no main output",
            hint='give it a schema: process(function, "n BIGINT"); or emit rows only with outputs',
        )
    return None
