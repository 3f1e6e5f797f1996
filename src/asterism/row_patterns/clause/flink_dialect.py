"""The dialect of Flink SQL: unchanged statements of Flink SQL return Flink's results.

Flink runs a clause on its CEP library, which does not determine the preferred match of the standard:

* Without AFTER MATCH, the search continues with the next row.
* A greedy loop does not give rows back. The row after it must not satisfy the condition of the loop, also after the last
  repetition of ``{n,m}``.
* ``B?`` is not greedy: of two matches that begin at the same row, the one without B ends first.
* WITHIN excludes its bound.

Syntax that Flink SQL rejects (groups, alternation, PERMUTE, a greedy loop at the end, ALL ROWS PER MATCH, PREV, NEXT) has the
meaning that the standard defines.

Source: ``MatchUtil`` and ``StreamExecMatch`` of Flink 2.3, and the results of Flink that its documentation shows.
"""

from __future__ import annotations

from dataclasses import replace

from asterism.row_patterns.clause.clause import Concatenation, NotNext, PatternNode, Quantified, Skip, SkipTo, Variable

DEFAULT_SKIP = Skip(SkipTo.NEXT_ROW)


def as_in_flink(pattern: PatternNode) -> PatternNode:
    """A pattern as Flink matches it.

    >>> from asterism.row_patterns.clause.reading import read
    >>> print(as_in_flink(read("PATTERN (A? B+ C*? D{2} E)").pattern))
    A?? B+ <not B> C*? D{2} E
    """
    if not isinstance(pattern, Concatenation):
        return pattern
    parts: list[PatternNode] = []
    for part in pattern.of[:-1]:
        if not isinstance(part, Quantified) or not part.greedy or not isinstance(part.of, Variable):
            parts.append(part)
        elif (part.least, part.most) == (0, 1):
            parts.append(replace(part, greedy=False))
        else:
            parts.append(part)
            if part.least != part.most:
                parts.append(NotNext(part.of.name, implied=True, start=part.start))
    return replace(pattern, of=(*parts, pattern.of[-1]))
