"""Computed columns: the parts of expressions that read one event and that only Spark can evaluate. See docs/decisions/0110.

``haversine(lat, lon, 52.5, 13.4) < 10 AND LAST(a.price) < price`` has such a part, if ``haversine`` is a function of the Spark
session. Spark computes it as a column of the events, before the operator. The text of the condition does not change: the column
is named after the part (:data:`PREFIX` and its SQL), and where the schema of a scope has the column, the part is read as a
reference to it (:meth:`asterism.expressions.names.Scope.parse`). So a pattern stays plain data, its fingerprint does not change,
and errors have their positions in the text of the user.

An operator that is to accept such expressions

1. binds its expressions as always. If this succeeds, nothing else happens: what is supported here is evaluated here.
2. If it fails with an :class:`~asterism.errors.ExpressionError`, it looks for such parts in each text
   (:mod:`asterism.expressions.parts_for_spark`), lets Spark determine their types, and binds again, to the schema with these
   columns at its end. ``asterism.spark.host.computed_columns`` does all of this.
3. It parses all texts by :meth:`Scope.parse <asterism.expressions.names.Scope.parse>`, and uses :func:`visible` where all
   columns of the events are meant: results with whole events, functions that read any column, names in messages.

A part is *of one event* if it names no stage and calls no aggregate or navigation; or if it is an argument of one and names a
single stage throughout, whose name Spark does not get: ``SUM(size(split(a.path, '/')))`` reads ``:sql:size(split(path, '/'))``
of ``a``. Of several operands of an AND or an OR, those of one event are one part, from the first to the last one that only Spark
can evaluate, so that ``n <> 0 AND f(1 / n)`` does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from asterism.expressions.structure import LITERALS, QUOTED, Fragment, FragmentKind, is_name, structure
from asterism.expressions.types import type_of_column
from asterism.text.printable import quoted_name

PREFIX = ":sql:"
"""Begins the names of computed columns; the rest is SQL of Spark. (A colon, so that it is not a name of the events.)"""
AGGREGATES = frozenset(("first", "last", "sum", "count", "avg", "min", "max", "prev", "next"))
"""The calls, in lower case, in conditions over several events."""


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def is_computed(name: str) -> bool:
    """Whether a column is computed by Spark for an expression."""
    return name.startswith(PREFIX)


def sql_of_column(name: str) -> str:
    """The SQL of a computed column."""
    return name.removeprefix(PREFIX)


def computed_sql(schema: pa.Schema) -> frozenset[str]:
    """The SQL of the computed columns of a schema."""
    return frozenset(sql_of_column(name) for name in schema.names if is_computed(name))


def opaque_columns(schema: pa.Schema) -> frozenset[str]:
    """The columns, in lower case, of types that are not supported in expressions."""
    return frozenset(column.name.lower() for column in schema if type_of_column(column, "UTC") is None)


def visible(schema: pa.Schema) -> pa.Schema:
    """The columns of the events without those that are computed."""
    if not any(map(is_computed, schema.names)):
        return schema
    return pa.schema([column for column in schema if not is_computed(column.name)], schema.metadata)


class Prefix(NamedTuple):
    """Names before a column, which Spark does not get.

    :param length: their number
    :param column: the name of the column for Spark, if it is another one
    """

    length: int
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """The names that decide which parts of an expression are of one event, and which are computed.

    :param columns: the columns of the events that are not computed
    :param computed: the SQL of those that are
    :param stages: stages, and subsets of them
    :param aggregates: the calls, in lower case, that read several events
    :param only_in_aggregates: whether only arguments of aggregates are of one event, as in measures
    :param upper_case: whether stages that are not quoted are in upper case, as the variables of MATCH_RECOGNIZE
    :param of_event: those of the stages that outside of aggregates are the event itself
    :param prefix_of: for a dotted name, the names before the column that mean the event itself: those of a table
    :param inputs: if the columns are of several inputs, as in a join, the input of each, by its name in lower case. An event is a
        row of one input.
    :param opaque: the columns, in lower case, of types that are not supported here, if *only_in_aggregates*: outside of
        aggregates, the smallest part around such a column of one stage is computed, too, and has its value for the last event
    """

    columns: frozenset[str]
    computed: frozenset[str] = frozenset()
    stages: frozenset[str] = frozenset()
    aggregates: Collection[str] = AGGREGATES
    only_in_aggregates: bool = False
    upper_case: bool = False
    of_event: frozenset[str] = frozenset()
    prefix_of: Callable[[Sequence[str]], Prefix | None] | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    opaque: frozenset[str] = frozenset()
    _columns: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_columns", frozenset(name.lower() for name in self.columns))

    def has_column(self, name: str) -> bool:
        return name.lower() in self._columns

    def stage_of(self, token: Token) -> str | None:
        """The stage that a name means."""
        is_quoted = token.token_type is TokenType.IDENTIFIER
        name = token.text.upper() if self.upper_case and not is_quoted else token.text
        return name if name in self.stages else None


class EventPart(NamedTuple):
    """A part of one event: one or several runs of tokens, joined by a word, and the stage whose name is left out."""

    parts: tuple[Fragment, ...]
    joined_by: str
    stage: str | None


class PartFinder:
    """Finds the parts of an expression that are of one event.

    :param tokens: of *text*, from :func:`asterism.expressions.parsing.tokenize`
    """

    def __init__(self, tokens: Sequence[Token], text: str, names: Names) -> None:
        self.tokens, self.text, self.names = tokens, text, names

    # ------------------------------------------------------------------ what a part reads

    def stages(self, part: Fragment) -> set[str]:
        return {stage for at in range(part.begin, part.end) if (stage := self.stage_at(at)) is not None}

    def stage_at(self, at: int) -> str | None:
        """The stage before a dot."""
        return self.names.stage_of(self.tokens[at]) if self.is_before_dot(at) else None

    def is_before_dot(self, at: int) -> bool:
        """Whether a token is a name before a dot."""
        tokens = self.tokens
        if at + 1 >= len(tokens) or tokens[at + 1].token_type is not TokenType.DOT:
            return False
        return tokens[at].token_type not in LITERALS and not is_name(tokens, at)

    def prefix_at(self, at: int) -> Prefix | None:
        """The names from a token on that stand before a column, and do not name a stage."""
        if self.names.prefix_of is None or not self.is_before_dot(at) or self.stage_at(at) is not None:
            return None
        parts = [self.tokens[at].text]
        while at + 2 < len(self.tokens) and self.tokens[at + 1].token_type is TokenType.DOT:
            at += 2
            parts.append(self.tokens[at].text)
        return self.names.prefix_of(parts)

    def is_call(self, at: int) -> bool:
        following = self.tokens[at + 1 : at + 2]
        if not following or following[0].token_type is not TokenType.L_PAREN or is_name(self.tokens, at):
            return False
        return at == 0 or self.tokens[at - 1].token_type not in (TokenType.LIKE, TokenType.ILIKE)  # LIKE ANY (...)

    def may_be_column(self, part: Fragment) -> bool:
        """Whether SQL of Spark can stand for it: no query, no window, no aggregate or navigation, no star."""
        for at in range(part.begin, part.end):
            token = self.tokens[at]
            word = "" if token.token_type in QUOTED else token.text.upper()
            if self.is_call(at) and token.text.lower() in self.names.aggregates:
                return False
            if word == "SELECT" or (word == "OVER" and at > part.begin and self.is_call(at)):
                return False
            before = self.tokens[at - 1].token_type if at else None
            if token.token_type is TokenType.STAR and before in (TokenType.L_PAREN, TokenType.COMMA, TokenType.DOT):
                return False
            if token.token_type is TokenType.SEMICOLON:
                return False
        return part.end > part.begin and part.is_expression and not self._is_column(part)

    def _is_column(self, part: Fragment) -> bool:
        """Whether it is a column of the events, or a field of one: Spark has nothing to compute."""
        at = part.begin
        if part.end - at > 2 and self.stage_at(at) is not None:
            at += 2
        elif (prefix := self.prefix_at(at)) is not None:
            at += 2 * prefix.length
        dotted = all(token.token_type is TokenType.DOT for token in self.tokens[at + 1 : part.end : 2])
        return dotted and (part.end - at) % 2 == 1 and self.names.has_column(self.tokens[at].text)

    def lambda_names(self, part: Fragment) -> set[str]:
        return {name for _, names in self._lambdas(part) for name in names}

    def _lambdas(self, part: Fragment) -> list[tuple[range, set[str]]]:
        """The tokens of each lambda, and the names of its parameters, in lower case."""
        lambdas = []
        for at in range(part.begin, part.end):
            if self.tokens[at].token_type is not TokenType.ARROW:
                continue
            before, end, depth = at - 1, at + 1, 0
            if self.tokens[before].token_type is TokenType.R_PAREN:
                while before > part.begin and self.tokens[before].token_type is not TokenType.L_PAREN:
                    before -= 1
            while end < part.end and depth >= 0:
                kind = self.tokens[end].token_type
                depth += (kind in _OPENING) - (kind in _CLOSING)
                if depth == 0 and kind is TokenType.COMMA:
                    break
                end += 1
            begin = max(before, part.begin)
            lambdas.append((range(begin, end), {token.text.lower() for token in self.tokens[begin:at]}))
        return lambdas

    def columns(self, part: Fragment) -> Iterator[str]:
        """The columns without a stage, in lower case."""
        lambdas = self._lambdas(part)
        for at in range(part.begin, part.end):
            token, name = self.tokens[at], self.tokens[at].text.lower()
            if token.token_type in LITERALS or is_name(self.tokens, at) or self.stage_at(at) is not None:
                continue
            after_as = at > part.begin and self.tokens[at - 1].text.upper() == "AS"
            is_bound = any(at in tokens and name in names for tokens, names in lambdas)
            if self.names.has_column(name) and not is_bound and not self.is_call(at) and not after_as:
                yield name

    def inputs(self, part: Fragment) -> set[str]:
        """The inputs whose columns a part reads, if there are several."""
        return {self.names.inputs[name] for name in self.columns(part)} if self.names.inputs else set()

    def stage_of_argument(self, part: Fragment) -> tuple[bool, str | None]:
        """(whether an argument reads the events of a single stage, or of none, this stage)"""
        stages = self.stages(part)
        if not stages:
            return True, None
        has_prefix = any(self.prefix_at(at) is not None for at in range(part.begin, part.end))
        if len(stages) > 1 or has_prefix or any(self.columns(part)):
            return False, None
        return True, stages.pop()

    # ------------------------------------------------------------------ the text of a run

    def sql(self, run: EventPart) -> tuple[str, tuple[int, ...]]:
        """The SQL of a run, with single spaces in place of spaces and comments, and the positions of its characters."""
        written: list[str] = []
        starts: list[int] = []
        for number, part in enumerate(run.parts):
            if number:
                word = f" {run.joined_by} "
                written.append(word)
                starts += [starts[-1]] * len(word)
            end: int | None = None
            skipped_until = part.begin
            for at in range(part.begin, part.end):
                token = self.tokens[at]
                if at < skipped_until or (
                    end is not None and token.start < end
                ):  # of 5L, the parser makes several tokens
                    continue
                prefix = self._left_out(at, run)
                if prefix is not None:
                    skipped_until = at + 2 * prefix.length
                    if end is not None and token.start > end:
                        written.append(" ")
                        starts.append(token.start - 1)
                    end = None
                    if prefix.column is not None:
                        column = self.tokens[skipped_until]
                        written.append(quoted_name(prefix.column))
                        starts += [column.start] * len(written[-1])
                        end, skipped_until = column.end + 1, skipped_until + 1
                    continue
                if end is not None and token.start > end:
                    written.append(" ")
                    starts.append(end)
                end = token.end + 1
                written.append(self.text[token.start : end])
                starts += range(token.start, end)
        return "".join(written), tuple(starts)

    def _left_out(self, at: int, run: EventPart) -> Prefix | None:
        """The names from a token on that Spark does not get."""
        stage = self.stage_at(at)
        if stage is None:
            return self.prefix_at(at)
        return Prefix(1) if stage == run.stage or (run.stage is None and stage in self.names.of_event) else None

    # ------------------------------------------------------------------ which runs

    def _is_of_event(self, part: Fragment) -> bool:
        """Whether a part outside of aggregates is of one event."""
        if self.names.only_in_aggregates or not self.may_be_column(part):
            return False
        return self.stages(part) <= self.names.of_event and len(self.inputs(part)) < 2

    def runs(self, part: Fragment, wanted: Callable[[EventPart], bool]) -> Iterator[EventPart]:
        """The largest runs of one event that are *wanted*, outside of aggregates without names of stages."""
        if self._is_of_event(part):
            run = EventPart((part,), "", None)
            if wanted(run):
                yield run
            return
        of_opaque = self.around_opaque(part)
        if of_opaque is not None and wanted(of_opaque):
            yield of_opaque
            return
        rest = part.parts
        if part.kind in (FragmentKind.AND, FragmentKind.OR):
            pure = [operand for operand in part.parts if self._is_of_event(operand)]
            by_input: dict[frozenset[str], list[Fragment]] = {}
            for operand in pure:
                by_input.setdefault(frozenset(self.inputs(operand)), []).append(operand)
            for operands in by_input.values():
                for count in range(len(operands), 0, -1):
                    run = EventPart(tuple(operands[:count]), part.kind.name, None)
                    if wanted(run):
                        yield run
                        break
            rest = tuple(operand for operand in part.parts if operand not in pure)
        for inner in rest:
            yield from self.runs(inner, wanted)
        is_aggregated = False
        for call in part.calls:
            is_aggregated = call.name in self.names.aggregates or (call.name == "filter" and is_aggregated)
            for argument in call.arguments:
                yield from self.runs_of_argument(argument, wanted) if is_aggregated else self.runs(argument, wanted)

    def around_opaque(self, part: Fragment) -> EventPart | None:
        """The part of one stage, if it is the smallest one around an opaque column."""
        if not self.names.opaque or not self.may_be_column(part):
            return None
        inner = [other for other in _expressions_in(part) if not self._is_column(other)]
        bound = self.lambda_names(part)
        for at in range(part.begin, part.end):
            prefix = Prefix(1) if self.stage_at(at) is not None else self.prefix_at(at)
            name = self.tokens[at + 2 * prefix.length] if prefix is not None else self.tokens[at]
            is_bare = prefix is None
            if is_bare and (name.token_type in LITERALS or is_name(self.tokens, at) or name.text.lower() in bound):
                continue
            is_inner = any(other.begin <= at < other.end for other in inner)
            if name.text.lower() in self.names.opaque and not is_inner:
                of_one, stage = self.stage_of_argument(part)
                return EventPart((part,), "", stage) if of_one else None
        return None

    def runs_of_argument(
        self, part: Fragment, wanted: Callable[[EventPart], bool], *, of_stage: bool = False
    ) -> Iterator[EventPart]:
        """The same in an argument of an aggregate or navigation.

        :param of_stage: whether it is inside of a part that names a stage, so that every column must
        """
        of_one, stage = self.stage_of_argument(part)
        if of_one and self.may_be_column(part) and (stage is not None or not of_stage):
            run = EventPart((part,), "", stage)
            if wanted(run):
                yield run
            return
        of_stage = of_stage or bool(self.stages(part))
        arguments = [argument for call in part.calls for argument in call.arguments]  # as in PREV(LAST(f(a.x)))
        for inner in (*part.parts, *arguments):
            yield from self.runs_of_argument(inner, wanted, of_stage=of_stage)


def _expressions_in(part: Fragment) -> Iterator[Fragment]:
    """The largest expressions that a part consists of, also of ``x AS INT``."""
    for other in (*part.parts, *(argument for call in part.calls for argument in call.arguments)):
        if other.is_expression:
            yield other
        else:
            yield from _expressions_in(other)


def with_columns(tokens: Sequence[Token], text: str, names: Names) -> list[Token]:
    """The tokens with a quoted name in place of each part that is a computed column, at the position of this part."""
    whole = structure(tokens) if names.computed else None
    if whole is None:
        return list(tokens)
    finder = PartFinder(tokens, text, names)
    edits: list[tuple[int, int, list[Token]]] = []
    for run in finder.runs(whole, lambda run: finder.sql(run)[0] in names.computed):
        sql, _ = finder.sql(run)
        begin, end = run.parts[0].begin, run.parts[0].end
        first, last = tokens[begin], tokens[end - 1]
        column = Token(TokenType.IDENTIFIER, PREFIX + sql, last.line, last.col, first.start, last.end, [])
        at = None if run.stage is None else next(at for at in range(begin, end) if finder.stage_at(at) == run.stage)
        edits.append((begin, end, [*([] if at is None else tokens[at : at + 2]), column]))
        edits += [(part.begin - 1, part.end, []) for part in run.parts[1:]]  # with the AND or OR before it
    replaced = list(tokens)
    for begin, end, others in sorted(edits, key=lambda edit: edit[0], reverse=True):
        replaced[begin:end] = others  # from the end, so that the numbers of the tokens before stay the same
    return replaced
