"""The partial matches of rules in the pages of a key group, as rows for ``read_state``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.keys import KEY
from asterism.columns.time import TimeColumn
from asterism.errors import AsterismError
from asterism.expressions.routines.user_functions import declared
from asterism.matching.page import Page
from asterism.matching.spec import PROCESSING_TIME
from asterism.matching.stored_matches import described_automaton, described_memory, matches_schema, partial_matches
from asterism.operators.operator import EVENTS
from asterism.operators.state.state_definition import UNKNOWN_COLUMNS, StateDefinition
from asterism.operators.stored_state import RULE_KEY, rule_keys
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.stored_searches import searches_of
from asterism.rules.binding.binding import (
    BoundClauseProcessor,
    BoundPatternProcessor,
    BoundProcessor,
    ProcessorCompiler,
)
from asterism.rules.binding.replication import stored_columns
from asterism.rules.definition.processor import RuleName
from asterism.rules.matching.selections import ENTRY, KEYS
from asterism.rules.matching.state_pages import clauses_from, entries_of_page, names_of_page
from asterism.rules.sets.sets import Entry, processor_of

Processors = Mapping[RuleName, str]
"""The texts of processors, by id, version, and the set that added them."""


def processors_in(pages: Iterable[bytes]) -> dict[RuleName, str]:
    entries: list[Entry] = [entry for page in pages for entry in entries_of_page(page)[1]]
    return {entry.name: entry.processor.text for entry in entries}


def matches_of_rules(
    definition: StateDefinition | None, processors: Processors, value: bytes, event: pa.DataType | None
) -> pa.Table:
    names, content = names_of_page(value)
    if not content:
        return matches_schema(RULE_KEY, event).empty_table()
    kept = UNKNOWN_COLUMNS
    if definition is not None:
        kept = stored_columns(definition.tables[EVENTS])
    page = Page.from_bytes(content, KEYS, kept)
    semantics = Semantics.DEFAULT if definition is None else Semantics(definition.details["semantics"])
    automata = [automaton_of(processors[name], semantics) if name in processors else None for name in names]
    return partial_matches(
        page,
        rule_keys(page.keys.column(KEY)),
        automata,
        page.keys.column(ENTRY).to_numpy().astype(np.int64),
        [name[:2] for name in names],
        event,
    )


@lru_cache(maxsize=10_000)
def automaton_of(text: str, semantics: Semantics) -> dict[str, Any] | None:
    """The automaton of a processor, by :func:`described_automaton`; None: it has no pattern."""
    pattern = processor_of(text).pattern
    return None if pattern is None else described_automaton(compile_pattern(pattern, semantics))


def searches_of_rules(
    definition: StateDefinition | None, processors: Processors, value: bytes, event: pa.DataType | None
) -> pa.Table:
    """The undecided matches in a page of the processors with a clause. The *definition* has the columns of their rows."""
    tables = [matches_schema(RULE_KEY, event).empty_table()]
    for name, state in clauses_from(value).items():
        clause = clause_definition(definition, processors.get(name))
        if clause is not None:
            tables.append(searches_of(clause, state.value, None, name[:2]))
    return pa.concat_tables(tables, promote_options="default")


def clause_definition(
    definition: StateDefinition | None, text: str | None, udfs: Mapping[str, pa.DataType] | None = None
) -> StateDefinition | None:
    """The definition of the state of a processor with a clause; None: it uses what only the program registers.

    :param udfs: the types of the functions in Python that the clause may call
    """
    bound = None if definition is None or text is None else _bound(definition, text, udfs)
    return bound.clause.operator.definition if isinstance(bound, BoundClauseProcessor) else None


def memory_of(definition: StateDefinition, text: str, udfs: Mapping[str, pa.DataType]) -> dict[str, Any] | None:
    """What keys remember beside the partial matches of a processor, by :func:`described_memory`; None: it uses what only the
    program registers.
    """
    bound = _bound(definition, text, udfs)
    return described_memory(bound.pattern) if isinstance(bound, BoundPatternProcessor) else None


def _bound(definition: StateDefinition, text: str, udfs: Mapping[str, pa.DataType] | None) -> BoundProcessor | None:
    """None: it uses what only the program registers."""
    details, schema = definition.details, definition.tables[EVENTS]
    time = PROCESSING_TIME
    if details["time"] is not None:
        time = TimeColumn(details["time"], schema.field(details["time"]).type, details["unit"])
    compiler = ProcessorCompiler(
        schema, details["keys"], time, Semantics(details["semantics"]), {}, udfs=declared(udfs or {})
    )
    try:
        return compiler.bind(processor_of(text))
    except AsterismError:
        return None
