"""Samples of EQL: events of the same keys in any order.

For each key there is at most one sample, as in Elasticsearch by default. Which events it has is not specified there; here each
item takes the earliest event that no other item needs.

Source: https://www.elastic.co/guide/en/elasticsearch/reference/current/eql-syntax.html#eql-samples
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asterism.elastic import syntax
from asterism.elastic.conditions import ConditionWriter
from asterism.elastic.sequences import keys_of, with_keys


@dataclass(frozen=True, slots=True)
class SampleItem:
    """
    :ivar condition: SQL over an event, with that its keys are not NULL unless they are optional
    :ivar keys: the keys in SQL
    """

    condition: str
    keys: Sequence[str]


def items_of(sample: syntax.EqlSample, writer: ConditionWriter) -> list[SampleItem]:
    """:raises ExpressionError: a condition or a key is invalid"""
    items = []
    for step in sample.steps:
        keys = keys_of(sample, step, writer)
        items.append(SampleItem(with_keys(writer.event(step.query), keys, (*sample.by, *step.by)), keys))
    return items


def chosen(candidates: Sequence[Sequence[int]]) -> list[int] | None:
    """A different event for each item, or None.

    :param candidates: the events of each item, in order of preference; as many as there are items suffice

    >>> chosen([[1, 2], [1]]), chosen([[1], [1]])
    ([2, 1], None)
    """
    item_of: dict[int, int] = {}

    def find(item: int, seen: set[int]) -> bool:
        for event in candidates[item]:
            if event not in seen:
                seen.add(event)
                if event not in item_of or find(item_of[event], seen):
                    item_of[event] = item
                    return True
        return False

    if not all(find(item, set()) for item in range(len(candidates))):
        return None
    events = {item: event for event, item in item_of.items()}
    return [events[item] for item in range(len(candidates))]
