"""Measures of which only Spark can evaluate the outer part: ``round(distance(FIRST(a.x), LAST(b.x)))``, for a function
``distance`` of the session.

The calls of aggregates and navigation in such a measure, and the columns outside of them, become *inner measures*, with hidden
names. The operator computes these, and Spark the rest of the measure, from their columns, in a projection after the operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from asterism.columns.internal import internal
from asterism.errors import ExpressionError
from asterism.expressions.computed_columns import Names, PartFinder
from asterism.expressions.parsing import tokenize
from asterism.expressions.parts_for_spark import PartForSpark, check_of_event, check_queries
from asterism.expressions.structure import LITERALS, NOT_WORDS, Fragment, is_name, structure
from asterism.text.printable import quoted_name

_MODES = ("RUNNING", "FINAL")
_OF_SESSION = ("session", "system")
"""Names before those of variables."""
_DOTTED = re.compile(r"\w+(\.\w+)+")
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


class InnerMeasure(NamedTuple):
    """A part of a measure that the operator computes.

    :param start: its position in the measure
    """

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class OuterMeasure:
    """The outer part of a measure, as SQL over the columns of its inner measures.

    :ivar name: the name after AS; without it, the measure itself
    :ivar hidden: the texts of the inner measures, by their hidden names
    :ivar names: where its SQL has names that may be variables of the session: (begin, end) of each
    """

    name: str
    part: PartForSpark
    inner: tuple[InnerMeasure, ...]
    hidden: Mapping[str, str] = field(default_factory=dict)
    names: tuple[tuple[int, int], ...] = ()

    def with_variables(self, column_of: Callable[[str], str | None]) -> str:
        """The SQL with columns in place of variables.

        :param column_of: the column of a name, if it is a variable
        """
        sql = self.part.sql
        for begin, after in reversed(self.names):
            dotted = _DOTTED.match(sql, begin) if sql[begin:after].lower() in _OF_SESSION else None
            end = after if dotted is None else dotted.end()
            column = column_of(sql[begin:end])
            sql = sql if column is None else sql[:begin] + quoted_name(column) + sql[end:]
        return sql


class InnerMeasures:
    """The inner measures of several measures, each once."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """the hidden names, by the text of the measure"""

    def name_of(self, text: str) -> str:
        """The hidden name of an inner measure."""
        return self.names.setdefault(text, internal(f"measure_{len(self.names)}"))


def divided(
    text: str,
    refusal: ExpressionError,
    names: Names,
    inner: InnerMeasures,
    others: Collection[str] = (),
    outer: Mapping[str, OuterMeasure] | None = None,
) -> OuterMeasure:
    """Divide a measure into its outer part and inner measures.

    :param refusal: why the whole measure cannot be evaluated here
    :param others: names, in lower case, that are no columns of the events, but values of a match
    :param outer: earlier measures with an outer part, by their names in lower case
    :raises ExpressionError: there is no outer part

    >>> refusal = ExpressionError("unknown function distance")
    >>> measure = "distance(FIRST(a.x), LAST(b.x) FILTER (WHERE x > 1)) / b.y AS speed"
    >>> names = Names(frozenset("xy"), stages=frozenset("ab"), only_in_aggregates=True)
    >>> outer = divided(measure, refusal, names, InnerMeasures())
    >>> outer.part.sql.replace("__asterism_", "")
    'distance(`measure_0`, `measure_1`) / `measure_2`'
    >>> [measure.text for measure in outer.inner]
    ['FIRST(a.x)', 'LAST(b.x) FILTER (WHERE x > 1)', 'b.y']
    """
    tokens = tokenize(text)
    whole = structure(tokens)
    if whole is None:
        raise refusal
    check_queries(tokens, text)
    divider = _Divider(tokens, text, whole, names, others)
    written, found, hidden = _Written(text), list[InnerMeasure](), dict[str, str]()
    at = whole.begin
    while at < whole.end:
        end = divider.inner_measure(at)
        token = tokens[at]
        is_column = names.has_column(token.text)  # which comes before a measure with its name
        earlier = None if end != at + 1 or is_column else (outer or {}).get(token.text.lower())
        if earlier is not None:
            hidden |= earlier.hidden
            written.add("(", token.start, token.start)
            written.names += [(written.length + begin, written.length + end) for begin, end in earlier.names]
            written.add(f"{earlier.part.sql})", token.start, token.end + 1)
        elif end is not None:
            measure = InnerMeasure(text[token.start : tokens[end - 1].end + 1], token.start)
            found.append(measure)
            written.add(quoted_name(inner.name_of(measure.text)), token.start, tokens[end - 1].end + 1)
        else:
            check_of_event(tokens, at, at + 1, text, names)
            written.copy(token, is_name=divider.is_name(at))
        at = at + 1 if end is None else end
    if len(found) == 1 and len(written.parts) == 1:
        raise refusal
    name = tokens[-1].text if whole.end == len(tokens) - 2 else text.strip()
    part = PartForSpark("".join(written.parts), text, tuple(written.starts), refusal)
    hidden |= {inner.name_of(measure.text): measure.text for measure in found}
    return OuterMeasure(name, part, tuple(found), hidden, tuple(written.names))


class _Written:
    """SQL with single spaces in place of spaces and comments, and the positions of its characters in a text."""

    def __init__(self, text: str) -> None:
        self.text, self.parts, self.starts = text, list[str](), list[int]()
        self.names: list[tuple[int, int]] = []
        self._end: int | None = None

    @property
    def length(self) -> int:
        return len(self.starts)

    def copy(self, token: Token, *, is_name: bool) -> None:
        """Write a token.

        :param is_name: whether it may be a variable of the session
        """
        if self._end is not None and token.start < self._end:  # of 5L, the tokenizer makes several tokens
            return
        self._space(token.start)
        self.parts.append(self.text[token.start : token.end + 1])
        begin = self.length
        self.starts += range(token.start, token.end + 1)
        self.names += [(begin, self.length)] if is_name else []
        self._end = token.end + 1

    def add(self, sql: str, begin: int, end: int) -> None:
        """Write *sql* for a part of the text."""
        self._space(begin)
        self.parts.append(sql)
        self.starts += [begin] * len(sql)
        self._end = end

    def _space(self, begin: int) -> None:
        if self._end is not None and begin > self._end:
            self.parts.append(" ")
            self.starts.append(self._end)


class _Divider:
    def __init__(
        self, tokens: Sequence[Token], text: str, whole: Fragment, names: Names, others: Collection[str]
    ) -> None:
        self.tokens, self.names, self.whole, self.others = tokens, names, whole, others
        self.finder = PartFinder(tokens, text, names)
        self.bound = self.finder.lambda_names(whole)
        runs = self.finder.runs(whole, lambda run: self.finder.around_opaque(run.parts[0]) is not None)
        self.ends = {run.parts[0].begin: run.parts[0].end for run in runs} if names.opaque else {}
        """of the parts that Spark computes before, by their first tokens"""

    def inner_measure(self, at: int) -> int | None:
        """The token after the inner measure that begins at a token; None if none begins there."""
        token = self.tokens[at]
        if at in self.ends:
            return self.ends[at]
        if token.token_type in LITERALS or is_name(self.tokens, at):
            return None
        if self._is_mode(at):
            return self._after_call(at + 1)
        if self._is_aggregate(at):
            return self._after_call(at)
        if self.finder.stage_at(at) is not None or self._is_unknown_stage(at):
            return min(at + 3, self.whole.end)
        prefix = self.finder.prefix_at(at)
        if prefix is not None:
            return at + 2 * prefix.length + 1
        return at + 1 if self._is_value(at) else None

    def is_name(self, at: int) -> bool:
        """Whether a token may be a variable of the session: ``limit``, ``session.limit``."""
        token, before = self.tokens[at], self.tokens[at - 1] if at > self.whole.begin else None
        if token.token_type not in _NAMES or self.finder.is_call(at) or token.text.lower() in self.bound:
            return False
        return before is None or before.text.upper() not in ("AS", ".", ":")

    def _is_unknown_stage(self, at: int) -> bool:
        """Whether a name before a dot means nothing, so that it may be a misspelled stage."""
        name, end = self.tokens[at].text.lower(), at
        if not self.finder.is_before_dot(at) or name in (*self.bound, *_OF_SESSION) or self.names.has_column(name):
            return False
        while end + 2 < self.whole.end and self.tokens[end + 1].token_type is TokenType.DOT:
            end += 2
        return self.tokens[at].token_type in _NAMES and not (
            end + 1 < self.whole.end and self.tokens[end + 1].token_type is TokenType.L_PAREN
        )

    def _is_mode(self, at: int) -> bool:
        return self._word(at) in _MODES and self._is_aggregate(at + 1)

    def _is_aggregate(self, at: int) -> bool:
        return at < self.whole.end and self.finder.is_call(at) and self.tokens[at].text.lower() in self.names.aggregates

    def _is_value(self, at: int) -> bool:
        """Whether a token is a column, or another value of the match."""
        name = self.tokens[at].text.lower()
        if self.finder.is_call(at) or name in self.bound or self._word(at - 1) == "AS" or self._word(at + 1) == "=>":
            return False
        return self.names.has_column(name) or name in self.others

    def _word(self, at: int) -> str:
        if not self.whole.begin <= at < self.whole.end or self.tokens[at].token_type in NOT_WORDS:
            return ""
        return self.tokens[at].text.upper()

    def _after_call(self, at: int) -> int:
        """The token after a call, with FILTER, IGNORE NULLS and RESPECT NULLS."""
        end = self._after_bracket(at + 1)
        while True:
            if self._word(end) == "FILTER" and self.finder.is_call(end):
                end = self._after_bracket(end + 1)
            elif self._word(end) in ("IGNORE", "RESPECT") and self._word(end + 1) == "NULLS":
                end += 2
            else:
                return end

    def _after_bracket(self, at: int) -> int:
        depth = 0
        for place in range(at, self.whole.end):
            kind = self.tokens[place].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0:
                return place + 1
        return self.whole.end


@dataclass(frozen=True, slots=True)
class DividedMeasures:
    """The measures of an output.

    :ivar outer: those with an outer part, by name; the operator has a column with the value TRUE in their place
    :ivar hidden: the names of the inner measures
    :ivar only_matched: whether the operator also returns rows of no match, in which measures are NULL, and so is that column
    """

    outer: Mapping[str, OuterMeasure]
    hidden: frozenset[str]
    only_matched: bool = False


def divided_measures(
    texts: Sequence[str], names: Names, others: Collection[str], check: Callable[[str], object]
) -> tuple[list[str], DividedMeasures]:
    """(the measures of a pattern for its operator, what Spark computes after it)

    :param others: as for :func:`divided`
    :param check: raises an ExpressionError for a measure that cannot be evaluated here
    :raises ExpressionError: a measure has no outer part, or an inner measure cannot be evaluated here
    """
    inner, outer, kept = InnerMeasures(), dict[str, OuterMeasure](), []
    for text in texts:
        try:
            check(text)
        except ExpressionError as refusal:
            measure = divided(text, refusal, names, inner, others)
        else:
            kept.append(text)
            continue
        for part in measure.inner:
            try:
                check(part.text)
            except ExpressionError as error:
                raise error.moved(text, part.start) from None
        outer[measure.name] = measure
        kept.append(f"TRUE AS {quoted_name(measure.name)}")
    kept += [f"{text} AS {quoted_name(name)}" for text, name in inner.names.items()]
    return kept, DividedMeasures(outer, frozenset(inner.names.values()))
