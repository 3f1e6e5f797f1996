"""Pattern processors bound to a stream's schema: what each asks of events, by which key it groups them, what it answers.

Source: FLIP-200.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from asterism.columns.keys import KEY
from asterism.columns.time import TimeColumn
from asterism.errors import ExpressionError, PatternProcessorError
from asterism.expressions.evaluation import TRIAL, Vectorized, tried_before
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.matching.binding import BoundPattern
from asterism.matching.outputs import MatchOutput, OutputKind, OutputSpec
from asterism.matching.plan import Limits
from asterism.patterns.compiler import check_pattern
from asterism.patterns.semantics import Semantics
from asterism.rules.processor import MAX_PROCESSORS, PatternProcessor

NO_KEY = "!"
"""In place of the key text of an event whose key could not be computed."""


def selector_of(processor: PatternProcessor, keys: Sequence[str]) -> tuple[str, ...]:
    """The expressions that a processor groups by: its own, or the stream's key columns."""
    return processor.key if processor.key is not None else tuple(map(_column_as_sql, keys))


def _column_as_sql(name: str) -> str:
    """As a rule would write it, so that both have the same copies of events."""
    try:
        found = parse(name)
    except ExpressionError:
        found = None
    plain = isinstance(found, exp.Column) and not found.table and found.name == name
    return name if plain else f"`{name.replace('`', '``')}`"


def number_of(*texts: str) -> int:
    """A 64-bit number that stands for texts; the same in every process.

    >>> number_of("user_id")
    3704046387848550483
    """
    return int.from_bytes(hashlib.sha256(json.dumps(texts).encode()).digest()[:8], "big", signed=True)


@dataclass(frozen=True, slots=True)
class BoundProcessor:
    """A processor bound to the schema of the events.

    :param selector: the expressions that it groups by, and *number* of them
    :param conditions: for each condition bit of its pattern the number of what it asks; equal conditions of all processors
        have one number
    :param needs_all: must it see events that meet none of its conditions?
    """

    processor: PatternProcessor
    pattern: BoundPattern
    outputs: Mapping[str, MatchOutput]
    selector: tuple[str, ...]
    number: int
    conditions: tuple[int, ...]
    needs_all: bool

    def stages_with(self, number: int) -> str:
        """The stages that ask for a condition."""
        names = self.pattern.stages_with(self.conditions.index(number))
        return " and ".join(f'stage "{name}"' for name in names)

    @property
    def name(self) -> str:
        return f'the pattern processor "{self.processor.id}" version {self.processor.version}'


class ProcessorCompiler:
    """Binds processors to a stream's schema; the same object for the coordinator, which refuses what it cannot bind.

    :param keys: the stream's own key
    :param functions: what processors may name as their function: from a table of matches to a table of as many rows
    :param max_partial_matches: how many partial matches a key may have of a processor, which may ask for fewer; None: any number
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: TimeColumn,
        semantics: Semantics,
        functions: Mapping[str, Callable[[pa.Table], pa.Table]],
        max_partial_matches: int | None = None,
    ) -> None:
        self.schema, self.keys, self.time = schema, list(keys), time
        self.semantics, self.functions = semantics, dict(functions)
        self.max_partial_matches = max_partial_matches
        self._selectors: dict[tuple[str, ...], tuple[Vectorized, list[int]]] = {}
        columns = schema.to_string(show_schema_metadata=True)
        self.definition = repr((semantics, self.keys, time, columns, max_partial_matches))

    def bind(self, processor: PatternProcessor) -> BoundProcessor:
        """As :meth:`compile`, of a processor that was tried out; kept for as long as the process lives, for processors that are
        one object.

        (:func:`asterism.rules.sets.processor_of` makes equal ones one object, and to compare patterns takes time.)
        """
        key = (self.definition, id(processor))
        found = _BOUND.get(key)
        if found is None or found.processor is not processor:
            while len(_BOUND) > 2 * MAX_PROCESSORS:
                _BOUND.pop(next(iter(_BOUND)))
            with tried_before():
                found = _BOUND[key] = self.compile(processor)
        return found

    def compile(self, processor: PatternProcessor) -> BoundProcessor:
        """:raises AsterismError: the pattern, a key or a measure means nothing for these events"""
        check_pattern(processor.pattern)
        selector = selector_of(processor, self.keys)
        self.key_expressions(selector)
        if processor.function is not None and processor.function not in self.functions:
            raise PatternProcessorError(
                f"the function {processor.function!r:.120} is not known",
                f"Known: {', '.join(sorted(self.functions)) or 'none'}",
                "functions={name: function} in CEP.pattern_processors",
            )
        stages = [stage.name for stage in processor.pattern.atoms()]
        kinds = [OutputKind.MATCHES, *([OutputKind.TIMED_OUT] if processor.timed_out else [])]
        measures = processor.select or None
        outputs = {
            kind.value: MatchOutput(
                OutputSpec(kind, measures=measures),
                self.schema,
                (),
                self.time,
                stages,
                id_keys=[KEY],
                id_names=[processor.id, processor.version],
            )
            for kind in kinds
        }
        limits = [limit for limit in (self.max_partial_matches, processor.max_partial_matches) if limit is not None]
        pattern = BoundPattern.of_pattern(
            processor.pattern,
            self.schema,
            self.semantics,
            limits=Limits(min(limits, default=None)),
            carried=tuple(self.schema.names),
        )
        conditions = tuple(number_of(pattern.vectorized.texts[source]) for source in pattern.bit_sources)
        return BoundProcessor(
            processor, pattern, outputs, selector, number_of(*selector), conditions, not pattern.relevant_only
        )

    def try_out(self, processor: PatternProcessor) -> BoundProcessor:
        """As :meth:`compile`, and its expressions are computed for a few made-up events.

        :raises AsterismError: also if that takes longer than a rule may take
        """
        with tried_before():  # all at once, below
            bound = self.compile(processor)
        expressions = [bound.pattern.vectorized, self.key_expressions(bound.selector)[0]]
        for output in bound.outputs.values():
            if output.measures is not None:
                expressions += output.measures.expressions
        left = TRIAL
        for vectorized in expressions:
            left -= vectorized.try_out(left)
        return bound

    def key_expressions(self, selector: tuple[str, ...]) -> tuple[Vectorized, list[int]]:
        """A selector's expressions, and the number of each among the distinct ones."""
        if selector not in self._selectors:
            expressions, scope = Vectorized(self.schema), Scope(self.schema)
            numbers = [expressions.add(scope.resolve(parse(text), text), text) for text in selector]
            self._selectors[selector] = expressions, numbers
        return self._selectors[selector]


_BOUND: dict[tuple[str, int], BoundProcessor] = {}
