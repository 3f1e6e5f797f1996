"""Random row patterns."""

from __future__ import annotations

from hypothesis import strategies as st

from asterism.row_patterns.clause.clause import (
    Alternation,
    Concatenation,
    EmptyPattern,
    Exclusion,
    NotNext,
    PartitionEnd,
    PartitionStart,
    PatternNode,
    Permutation,
    Quantified,
    Variable,
)


def concatenation(parts: list[PatternNode]) -> PatternNode:
    """As the reader makes it: a part that is a concatenation itself needs no parentheses."""
    flat = [inner for part in parts for inner in (part.of if isinstance(part, Concatenation) else (part,))]
    return Concatenation(tuple(flat))


def alternation(parts: list[PatternNode]) -> PatternNode:
    flat = [inner for part in parts for inner in (part.of if isinstance(part, Alternation) else (part,))]
    return Alternation(tuple(flat))


def quantified(of: PatternNode, least: int, more: int | None, greedy: bool) -> PatternNode:
    return Quantified(of, least, None if more is None else max(least + more, 1), greedy)


def patterns_with_absence(names: str = "ABC", leaves: int = 5) -> st.SearchStrategy[PatternNode]:
    """Patterns that also have ``[^B]``, gaps, and ``A+{B}``; some of them are refused."""
    variables = st.sampled_from([Variable(name) for name in names])
    absent = st.sampled_from([NotNext(name) for name in names])
    gaps = st.builds(
        lambda name, greedy: Exclusion(Quantified(Variable(name), 0, None, greedy)),
        st.sampled_from(names),
        st.booleans(),
    )
    nothing: list[PatternNode] = []
    after: st.SearchStrategy[list[PatternNode]] = st.one_of(
        st.just(nothing), st.just(nothing), absent.map(lambda one: [one]), st.tuples(gaps, absent).map(list)
    )

    def with_absence(parts: list[tuple[PatternNode, list[PatternNode]]]) -> PatternNode:
        return concatenation([one for part, more in parts for one in (part, *more)])

    def larger(inner: st.SearchStrategy[PatternNode]) -> st.SearchStrategy[PatternNode]:
        several = st.lists(inner, min_size=2, max_size=3)
        untils = st.one_of(st.none(), st.sampled_from(names))
        return st.one_of(
            st.lists(st.tuples(inner, after), min_size=1, max_size=3).map(with_absence),
            st.lists(st.tuples(inner, after), min_size=1, max_size=3).map(with_absence),
            several.map(alternation),
            inner.map(Exclusion),
            st.builds(quantified, inner, st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2)), st.booleans()),
            st.builds(
                lambda of, least, greedy, until: Quantified(of, least, None, greedy, until),
                inner.filter(lambda node: not isinstance(node, NotNext)), st.integers(0, 2), st.booleans(), untils,
            ),
        )  # fmt: skip

    leaf = st.one_of(variables, variables, variables, st.just(PartitionEnd()))
    return st.recursive(leaf, larger, max_leaves=leaves)


def patterns(names: str = "ABC", leaves: int = 6) -> st.SearchStrategy[PatternNode]:
    """Patterns over variables with these names of one letter."""
    variables = st.sampled_from([Variable(name) for name in names])
    marks = st.sampled_from([EmptyPattern(), PartitionStart(), PartitionEnd()])

    def larger(inner: st.SearchStrategy[PatternNode]) -> st.SearchStrategy[PatternNode]:
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            several.map(concatenation),
            several.map(alternation),
            several.map(tuple).map(Permutation),
            inner.map(Exclusion),
            st.builds(quantified, inner, st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2)), st.booleans()),
        )

    return st.recursive(st.one_of(variables, variables, variables, marks), larger, max_leaves=leaves)
