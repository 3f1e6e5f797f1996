"""Whether the numbers in the rows of a savepoint refer to what is there.

The operators trust their state: a position beyond the end of a list would be read from the memory behind it. A savepoint comes
from files, which may be damaged, or written by something else.
"""

from __future__ import annotations

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.errors import StateError


def check_nodes(nodes: Ints, owners: Ints, events: Ints, sizes: Ints, stages: int) -> None:
    """
    :param nodes: event, stage (-1: an event that is remembered without one) and parent of each, as places among those of its key
    :param owners: the key of each
    :param events, sizes: how many events and nodes each key has
    :raises StateError: there is no such event, stage or parent, or a node is its own ancestor
    """
    event, stage, parent = nodes.T
    _check("event", event, (event >= 0) & (event < events[owners]))
    _check("stage", stage, (stage >= -1) & (stage < stages))
    _check("parent", parent, (parent >= -1) & (parent < sizes[owners]))
    begins = np.cumsum(sizes) - sizes
    parents = np.where(parent >= 0, begins[owners] + parent, -1)
    if (parents >= np.arange(len(nodes))).any() and _has_cycle(parents):
        raise _damaged("a node is its own ancestor")


def _has_cycle(parents: Ints) -> bool:
    """:param parents: the number of the parent of each node; -1: it has none"""
    end = len(parents)
    ancestor = np.append(np.where(parents >= 0, parents, end), end)
    for _ in range(end.bit_length()):  # 1, 2, 4, ... generations before
        ancestor = ancestor[ancestor]
    return bool((ancestor != end).any())


def check_matches(rows: Ints, owners: Ints, events: Ints, nodes: Ints) -> None:
    """
    :param rows: first event and last node of each match; without a node (-1), the event is no place
    :param owners, events, nodes: as for :func:`check_nodes`
    :raises StateError: there is no such event or node
    """
    event, node = rows.T
    _check("node", node, node < nodes[owners])
    _check("event", event, (node < 0) | ((event >= 0) & (event < events[owners])))


def check_below(name: str, numbers: Ints, ends: Ints | int) -> None:
    """:raises StateError: a number is not below its end"""
    _check(name, numbers, numbers < ends)


def check_progress(name: str, numbers: Ints, rows: Ints) -> None:
    """:raises StateError: the search of a key has come further than its *rows*"""
    _check(name, numbers, (numbers >= 0) & (numbers <= rows))


def check_sizes(name: str, numbers: Ints, rows: Ints) -> None:
    """:raises StateError: a number of rows is not that of a list"""
    _check(name, numbers, numbers == rows)


def _check(name: str, numbers: Ints, fits: Mask) -> None:
    if not fits.all():
        raise _damaged(f"{name} {int(numbers[~fits][0])}, which is not there")


def _damaged(what: str) -> StateError:
    return StateError(
        "a row of the savepoint is damaged",
        f"It refers to {what}.",
        "create the savepoint again; if another program has changed it, see the format in docs/savepoints.md",
    )
