"""Reads texts and says what became of them: ``python -m tests.fuzz.worker``, a JSON list [kind, text] per line of input.

The answer to each is a line ``{"outcome": ..., "seconds": ...}``: ``taken``, ``refused``, or what must not happen.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import traceback
from functools import partial

import pyarrow as pa

from asterism.columns.time import TimeColumn
from asterism.errors import AsterismError
from asterism.expressions.evaluation import sample
from asterism.matching.binding import BoundPattern
from asterism.matching.outputs import MatchOutput, OutputKind, OutputSpec
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.checking.validation import check, check_processor
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import RefusedProcessor, processors_from
from asterism.text.strict_json import DocumentSyntaxError, decode, place_in, text_of
from tests.expressions.sql_expressions import arrow_schema

MAX_MEMORY = 6 * 1024**3  # address space; DuckDB, Arrow and numba reserve much and use little of it
MAX_MESSAGE = 30_000  # characters
SCHEMA = arrow_schema("Europe/Madrid")
TIME = TimeColumn("at", pa.timestamp("us", "UTC"))
STAGES = ("a", "b")


def condition(text: str) -> None:
    pattern = Pattern.begin("a").where("i > 0").next("b").where(text)
    BoundPattern.of_pattern(pattern, SCHEMA).prepare(sample(SCHEMA))


def measure(text: str) -> None:
    measures = MatchOutput(OutputSpec(OutputKind.MATCHES, (text,)), SCHEMA, ("s",), TIME, STAGES).measures
    assert measures is not None
    for vectorized in measures.expressions:
        vectorized.evaluate(sample(vectorized.schema))


def pattern(text: str) -> None:
    found = check(text, SCHEMA)
    for problem in found.problems:
        shown(str(problem))
    if found.problems:
        raise RefusedError
    assert found.pattern is not None
    BoundPattern.of_pattern(found.pattern, SCHEMA).prepare(sample(SCHEMA))


def rule(text: str) -> None:
    try:
        item = decode(text_of(text))
    except DocumentSyntaxError as error:
        shown(f"{error.message} {error.detail} {error.hint}")
        raise RefusedError from None
    found = check_processor(item, partial(place_in, text), SCHEMA)
    for problem in found.problems:
        shown(str(problem))
    if found.processor is None:
        raise RefusedError
    ProcessorCompiler(SCHEMA, ("s",), TIME, Semantics.DEFAULT, {}).try_out(found.processor)


def template(text: str) -> None:
    try:
        item = decode(text_of(text))
    except DocumentSyntaxError as error:
        shown(f"{error.message} {error.detail} {error.hint}")
        raise RefusedError from None
    found = processors_from([item])
    compiler = ProcessorCompiler(SCHEMA, ("s",), TIME, Semantics.DEFAULT, {})
    good = [one for one in found if isinstance(one, PatternProcessor)]
    for one in found:
        if isinstance(one, RefusedProcessor):
            shown(str(one.error))
            shown(str(one))
    for one in good:
        compiler.try_out(one)
    if not good:
        raise RefusedError


class RefusedError(Exception):
    pass


def shown(message: str) -> None:
    """Whoever wrote the text must not write to a terminal, or fill a log."""
    assert message.replace("\n", "").isprintable(), f"not printable: {message!r}"
    assert len(message) <= MAX_MESSAGE, f"{len(message)} characters"


def outcome(kind: str, text: str) -> str:
    try:
        {"condition": condition, "measure": measure, "pattern": pattern, "rule": rule, "template": template}[kind](text)
    except RefusedError:
        return "refused"
    except AsterismError as error:
        shown(str(error))
        return "refused"
    return "taken"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    outcome("condition", "upper(s) = 'A' AND hour(at) > 1")  # what is needed once is not to be counted
    for line in sys.stdin:
        kind, text = json.loads(line)
        begin = time.process_time()
        try:
            found = outcome(kind, text)
        except BaseException:
            found = traceback.format_exc(limit=-4)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"outcome": found, "seconds": time.process_time() - begin, "memory": memory}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
