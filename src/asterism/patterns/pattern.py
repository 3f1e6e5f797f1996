"""The public class of the pattern language, with the operations on patterns.

Methods import readers and writers when they are called, so that ``import asterism`` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from asterism.arguments import shown
from asterism.errors import PatternError
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import PatternSequence
from asterism.text.view import View


class Pattern(PatternSequence, View):
    """A sequence of stages to find among the events of one key.

    >>> from datetime import timedelta
    >>> p = (Pattern.begin("fails").where("event = 'failed'").times_or_more(3).consecutive()
    ...      .next("login").where("event = 'accepted'").within(timedelta(minutes=10)))
    >>> [stage.name for stage in p.stages]
    ['fails', 'login']
    """

    __slots__ = ()

    # ------------------------------------------------------------------ as JSON

    def to_json(self) -> str:
        """Write the pattern in the graph format of dynamic Flink CEP, which docs/pattern_json.md describes.

        :raises PatternFormatError: the format cannot express it, such as a condition in Python
        :raises MalformedPatternError: the pattern is not complete

        >>> Pattern.from_json(Pattern.begin("a").next("b").to_json()) == Pattern.begin("a").next("b")
        True
        """
        from asterism.patterns.json_writing import pattern_to_json

        return pattern_to_json(self)

    @classmethod
    def from_json(cls, source: str | bytes | Mapping[str, Any]) -> Self:
        """Read a pattern from a graph.

        :param source: a string, UTF-8 bytes, or the result of :func:`json.loads`
        :raises PatternFormatError: it is not such a graph; ``path`` is the position
        :raises MalformedPatternError: the graph is valid, but the pattern has no meaning; ``path`` is the position

        >>> Pattern.from_json('{"type": "COMPOSITE", "nodes": []}')
        Traceback (most recent call last):
        ...
        asterism.errors.PatternFormatError: [PATTERN_FORMAT] root: a graph needs nodes
          At: /nodes
        """
        from asterism.patterns.json_reading import pattern_from_json

        return pattern_from_json(cls, source)

    # ------------------------------------------------------------------ human-readable output

    def explain(self, semantics: Semantics | None = None) -> str:
        """Describe the pattern as text: its stages, then its automaton.

        :param semantics: the semantics of the automaton; the default is that of ``CEP.pattern``
        :raises MalformedPatternError: the pattern is not complete

        >>> print(Pattern.begin("a").where("x > 1").next("b").explain())
        1. begin "a": once
             where x > 1
        2. next "b": once
             any event
        after a match: NO_SKIP: nothing is discarded
        <BLANKLINE>
        automaton (default semantics)
        c0: x > 1
        a START
          TAKE -> b if c0
        b NORMAL
          TAKE -> $end if always
        $end FINAL
        """
        from asterism.patterns.explain import explain

        return explain(self) if semantics is None else explain(self, semantics)

    def to_svg(self, what: Literal["stages", "automaton"] = "stages", semantics: Semantics | None = None) -> str:
        """Draw the pattern; notebooks show the drawing of a pattern that is the last line of a cell.

        :param what: the stages, as they were written, or the automaton with its states and edges
        :param semantics: of the automaton, as in :meth:`explain`
        :raises MalformedPatternError: the automaton of a pattern that is not complete
        :raises PatternError: *what* is neither of the two

        >>> Pattern.begin("a").next("b").to_svg().startswith("<svg ")
        True
        """
        from asterism.patterns.drawing import automaton_svg, stages_svg

        if what == "stages":
            return stages_svg(self)
        if what == "automaton":
            return automaton_svg(self) if semantics is None else automaton_svg(self, semantics)
        raise PatternError(f'a drawing must be of "stages" or "automaton", not {shown(what)}')

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        from asterism.patterns.drawing import to_html

        return to_html(self)
