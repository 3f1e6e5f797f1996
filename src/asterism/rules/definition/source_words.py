"""How a rule that was written in Sigma or EQL is shown: not as the pattern or the clause that it has become.

See docs/decisions/0157.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from asterism.elastic import wording as eql
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.wording import VariableWords
from asterism.rules.definition.processor import PatternProcessor
from asterism.sigma import wording as sigma
from asterism.text.printable import shortened

MAX_LINE = 400
"""The maximum number of characters of a line below the words of a rule. The words have what is longer."""


@dataclass(frozen=True, slots=True)
class SourceWords:
    """
    :ivar draw: makes the drawing, an SVG; None: it is that of the pattern or the clause
    :ivar text: the rule in words; empty: those of the pattern or the clause
    :ivar variables: the words for the variables of the clause
    :ivar line: a line of a trace or of an explanation in the words of the language
    """

    draw: Callable[[], str] | None = None
    text: str = ""
    variables: VariableWords = field(default_factory=VariableWords)
    line: Callable[[str], str] = str

    def above(self, text: str) -> str:
        """The rule in words, if there are some, above the *text* of the pattern or the clause, with lines of bounded length."""
        if not self.text:
            return text
        lines = [shortened(self.line(line), MAX_LINE) for line in text.splitlines()]
        return "\n".join([self.text, "", "It runs as:", "", *lines])


PLAIN = SourceWords()
"""Of a rule that was written as a graph or as SQL."""


def eql_of(item: Any) -> str | None:
    """The query of a rule in EQL; None: it is written in another language.

    :param item: the valid JSON form of the rule
    """
    text = item.get("eql") if isinstance(item, Mapping) else None
    return text if isinstance(text, str) else None


def words_of(item: Any, processor: PatternProcessor) -> SourceWords:
    """
    :param item: the valid JSON form of the rule
    :raises AsterismError: its text cannot be read
    """
    if not isinstance(item, Mapping):
        return PLAIN
    if (text := eql_of(item)) is not None:
        draw = partial(eql.query_svg, text)
        return SourceWords(draw, eql.query_words(text), eql.variable_words(text), eql.in_eql)
    if isinstance(item.get("sigma"), str):
        return sigma_words(item["sigma"], None, processor)
    return PLAIN


def sigma_words(text: str, id: str | None, processor: PatternProcessor) -> SourceWords:
    """
    :param text: a Sigma rule, with those to which it refers
    :param id: that of the rule; None: the only one to which no other one refers
    :param processor: what the rule has become
    :raises AsterismError: the text cannot be read
    """
    source = sigma.SigmaSource.of(text, id)
    variables = VariableWords() if processor.sql is None else sigma.variable_words(read(processor.sql).variables)
    return SourceWords(partial(sigma.rule_svg, source), sigma.rule_words(source), variables, sigma.in_sigma)
