"""Whether the numbers in the rows of a savepoint refer to what is there.

The operators trust their state: a position beyond the end of a list would be read from the memory behind it. A savepoint comes
from files, which may be damaged, or written by something else.
"""

from __future__ import annotations

import numpy as np

from asterism.columns.arrays import Ints, Mask
from asterism.errors import StateError

_ANY = -(2**62)


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


def check_matches(rows: Ints, owners: Ints, events: Ints, nodes: Ints, *, waiting: bool) -> None:
    """
    :param rows: first event, last node and state of each match; without a node (a negative number), the event is no place
    :param owners, events, nodes: as for :func:`check_nodes`
    :param waiting: whether they are complete, so that each has a node
    :raises StateError: there is no such event or node
    """
    event, node, state = rows.T
    # Only the row that counts the matches of a key (-1) has no node but another number. A start state has no node (-1).
    least = 0 if waiting else np.where(state == -1, _ANY, np.where(state < 0, 0, -1))
    _check("node", node, (node >= least) & (node < nodes[owners]))
    _check("event", event, (node < 0) | ((event >= 0) & (event < events[owners])))


def check_within(name: str, numbers: Ints, begins: Ints | int, ends: Ints | int) -> None:
    """:raises StateError: a number is before its begin, or not below its end"""
    _check(name, numbers, (numbers >= begins) & (numbers < ends))


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
