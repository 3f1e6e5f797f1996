"""Finds the correlations that refer to themselves, in time in proportion to their references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set


def cycles_of(graph: Mapping[int, Sequence[int]]) -> dict[int, Set[int]]:
    """For each node that leads to itself, all nodes that lead to it and to which it leads (Tarjan's algorithm).

    :param graph: the nodes to which each node refers; others refer to none

    >>> cycles_of({1: [2], 2: [3, 4], 3: [1], 4: [], 5: [5]})
    {3: frozenset({1, 2, 3}), 2: frozenset({1, 2, 3}), 1: frozenset({1, 2, 3}), 5: frozenset({5})}
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    waiting: list[int] = []
    is_waiting: set[int] = set()
    cycles: dict[int, Set[int]] = {}
    for root in graph:
        path = [] if root in order else [(root, iter(graph[root]))]
        while path:
            node, others = path[-1]
            if node not in order:
                order[node] = lowest[node] = len(order)
                waiting.append(node)
                is_waiting.add(node)
            for other in others:
                if other not in order:
                    path.append((other, iter(graph.get(other, ()))))
                    break
                if other in is_waiting:
                    lowest[node] = min(lowest[node], order[other])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == order[node]:
                    cycles |= _component(node, graph, waiting, is_waiting)
    return cycles


def _component(
    node: int, graph: Mapping[int, Sequence[int]], waiting: list[int], is_waiting: set[int]
) -> dict[int, Set[int]]:
    """The nodes after *node* that wait, which lead to one another; empty for a node that does not lead to itself."""
    nodes: list[int] = []
    while not nodes or nodes[-1] != node:
        nodes.append(waiting.pop())
        is_waiting.remove(nodes[-1])
    together = frozenset(nodes)
    return dict.fromkeys(nodes, together) if len(nodes) > 1 or node in graph.get(node, ()) else {}
