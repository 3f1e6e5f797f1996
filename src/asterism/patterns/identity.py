"""The text by which a checkpoint recognises its pattern. See docs/decisions/0047."""

from __future__ import annotations

from dataclasses import fields

from asterism.patterns.sequence import PatternSequence, Quantifier, Stage, Taking

_ADDED = {"inclusive", "combination", "from_first", "to_last", "subsets"}
"""Fields that release 0.1.0 did not have."""


def pattern_identity(value: object) -> str:
    """The text of a pattern, which must never change: it is part of the fingerprint of a checkpoint.

    It is the ``repr`` of release 0.1.0. Fields that were added later appear only if they do not have their default.

    >>> pattern_identity(Quantifier())
    "Quantifier(kind=<QuantifierKind.SINGLE: 'SINGLE'>, at_least=1, at_most=1, optional=False, greedy=False, \
inner=<Contiguity.SKIP_TILL_NEXT: 'SKIP_TILL_NEXT'>, gap=None)"
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(pattern_identity, value))}{',' if len(value) == 1 else ''})"
    if not isinstance(value, PatternSequence | Stage | Quantifier):
        return repr(value)
    texts = []
    for field in fields(value):
        content = getattr(value, field.name)
        if field.name == "taking" and content in (Taking.ALL, Taking.GREEDY):
            texts.append(f"greedy={content is Taking.GREEDY}")
        elif field.name not in _ADDED or content != field.default:
            texts.append(f"{field.name}={pattern_identity(content)}")
    return f"{type(value).__qualname__}({', '.join(texts)})"
