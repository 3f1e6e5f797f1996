"""The contents of the firings of a window operator: the computations, and the part of them that is kept as state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from asterism.arguments import expect
from asterism.columns.schemas import schema_of
from asterism.errors import StreamDefinitionError
from asterism.expressions.aggregates import Aggregates
from asterism.expressions.computed_columns import visible
from asterism.operators.state.keyed_state import StateSpec
from asterism.windows.folds import Computation, Fold, Folding, Reduction
from asterism.windows.panes import Partials
from asterism.windows.process_function import ProcessWindowFunction, states_of
from asterism.windows.session_ids import SESSION_COLUMNS
from asterism.windows.spec import WindowFunction, WindowSpec

WINDOW_START, WINDOW_END, FIRING, KIND, IS_LAST = "window_start", "window_end", "firing", "kind", "is_last"
OWN_COLUMNS = (WINDOW_START, WINDOW_END, FIRING, KIND, IS_LAST)


@dataclass(frozen=True, slots=True)
class FiringContents:
    """The computations of a firing, bound to the columns of a stream."""

    computation: Computation | None
    """None: the function takes the elements"""
    function: WindowFunction | None
    schema: pa.Schema
    """the computed columns"""
    names: tuple[str, ...]
    """those of them that are columns of the output; a reduced element contains its key, which the output has anyway"""
    partials: Partials | None
    """what is kept instead of elements"""
    states: Mapping[str, StateSpec]
    """the states of the function"""
    needed: frozenset[str]
    """the columns of the elements that are read"""

    @classmethod
    def of(cls, spec: WindowSpec) -> FiringContents:
        """
        :raises StreamDefinitionError: the computation is missing, ambiguous or invalid
        :raises ExpressionError: a measure does not match the columns of the elements
        """
        _check_function(spec)
        computation = _computation_of(spec)
        needed, partials = set(visible(spec.schema).names), None
        if computation is not None:
            needed = {*computation.read, *computation.kept_columns}
            if not computation.kept_columns and spec.evictor is None:
                partials = Partials(computation)
        if spec.output is not None:
            schema = schema_of(spec.output)
        else:
            assert computation is not None
            schema = pa.schema(computation.fields)
        is_element = spec.reduce is not None and spec.function is None
        names = tuple(name for name in schema.names if not (is_element and name in spec.keys))
        _check_names(spec, names, computation)
        return cls(computation, spec.function, schema, names, partials, states_of(spec.function), frozenset(needed))

    @property
    def partial_names(self) -> list[str]:
        """The meaning of each partial of a pane, independent of its position."""
        return [] if self.partials is None else self.partials.computation.partial_names

    @property
    def kept(self) -> str:
        """The contents of a window that are kept as state."""
        if self.partials is None:
            return "the elements of each window"
        if isinstance(self.computation, Reduction):
            return "one element of each window"
        if isinstance(self.computation, Folding):
            return f"an accumulator of each window: {', '.join(map(str, self.computation.fields))}"
        return "aggregates"


def _check_function(spec: WindowSpec) -> None:
    given = sum(what is not None for what in (spec.measures, spec.reduce, spec.fold))
    if given > 1 or (not given and spec.function is None):
        raise StreamDefinitionError(
            "exactly one of measures, a function, a reduce function and a fold is required",
            hint='measures=["count(*) AS n", "sum(amount) AS total"]',
        )
    if (spec.function is None) != (spec.output is None):
        raise StreamDefinitionError(
            "a window function requires output columns, and only a window function can have them",
            hint='output="n BIGINT, mean DOUBLE"',
        )
    if spec.function is not None and not (callable(spec.function) or isinstance(spec.function, ProcessWindowFunction)):
        raise StreamDefinitionError(f"the window function cannot be called: {spec.function!r}")


def _computation_of(spec: WindowSpec) -> Computation | None:
    if spec.reduce is not None:
        if not callable(spec.reduce):
            raise StreamDefinitionError(f"the reduce function cannot be called: {spec.reduce!r}")
        return Reduction(spec.reduce, visible(spec.schema))
    if spec.fold is not None:
        expect(StreamDefinitionError, spec.fold, Fold, "fold must be a Fold", 'Fold("n BIGINT", {"n": 0}, add)')
        if spec.fold.merge is None and spec.windows.merges:
            raise StreamDefinitionError(
                "a fold of session windows needs a function that merges accumulators",
                "Sessions merge, and each has an accumulator.",
                "Fold(..., merge=lambda a, b: {...})",
            )
        return Folding(spec.fold, list(visible(spec.schema).names))
    if spec.measures is not None:
        return Aggregates(_checked_measures(spec.measures, spec.keys), spec.schema)
    return None


def _check_names(spec: WindowSpec, names: Sequence[str], computation: Computation | None) -> None:
    is_element = spec.reduce is not None and spec.function is None
    firing_columns = [*OWN_COLUMNS, *(SESSION_COLUMNS if spec.session_ids else ())]
    of_stream = [*firing_columns, *spec.keys, *(names if is_element else [])]
    _check_alike(of_stream, 'rename the column of the stream; of a key: key="{0} AS {1}"', firing_columns)
    if not is_element:
        where = "use another name: sum(amount) AS total" if spec.function is None else "use another name in the schema"
        _check_alike([*of_stream, *names], where, firing_columns)
    if spec.function is not None and computation is not None and spec.reduce is None:
        _check_alike([*spec.keys, *(field.name for field in computation.fields)], "use another name")


def _check_alike(names: Sequence[str], hint: str, firing_columns: Sequence[str] = OWN_COLUMNS) -> None:
    """Refuse names that Spark treats as equal."""
    seen: dict[str, str] = {}
    for name in names:
        former = seen.get(name.lower())
        if former is not None:
            alike = repr(name) if former == name else f"{former!r} and {name!r}, which are equal in Spark"
            raise StreamDefinitionError(
                f"two columns of the result are named {alike}",
                f"A row has the key, {', '.join(firing_columns)}, and the computed columns.",
                hint.format(name, "event_" + name),
            )
        seen[name.lower()] = name


def _checked_measures(measures: object, keys: Sequence[str]) -> list[str]:
    example = '"count(*) AS n", "sum(amount) AS total"'
    if not isinstance(measures, list | tuple):
        raise StreamDefinitionError(f"measures must be a list of SQL strings, not {measures!r}", hint=f"[{example}]")
    if not measures:
        raise StreamDefinitionError("at least one measure is required", hint=example)
    for measure in measures:
        if not isinstance(measure, str):
            raise StreamDefinitionError(f"a measure must be an SQL string, not {measure!r}", hint=example)
        if measure.strip().strip("`").lower() in [key.lower() for key in keys]:
            raise StreamDefinitionError(
                f"the key {measure.strip()} is not a measure", hint="remove it: the result already contains the key"
            )
    return list(measures)
