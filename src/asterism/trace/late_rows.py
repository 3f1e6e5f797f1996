"""When conditions that bound times make a match time out, for traces; see :mod:`asterism.row_patterns.time_bounds`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from asterism.errors import InvalidEventError
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.row_patterns.automaton import ACCEPT, Edge
from asterism.row_patterns.ordered_rows import OrderedRows, Path
from asterism.row_patterns.time_bounds import TimeBound, time_bounds


class LateRows:
    """The conditions of a clause that bound times, over the rows of one partition."""

    def __init__(self, ordered: OrderedRows, edges: Sequence[Sequence[Edge]]) -> None:
        clause, automaton = ordered.clause, ordered.clause.automaton
        self._clause, self._automaton, self._ordered, self._edges = clause, automaton, ordered, edges
        self._names = [automaton.names[variable] for variable in automaton.variables.tolist()]
        """the variable of each state"""
        self.limits: list[tuple[TimeBound, Vectorized]] = []
        """the bounds, and their limits as expressions over the leaves of the conditions"""
        for bound in time_bounds(clause):
            resolved = clause.conditions[bound.variable].resolved
            limit = Vectorized(resolved.body.schema)
            with tried_before():
                limit.add(bound.limit.copy(), resolved.source.text)
            self.limits.append((bound, limit))

    def times_out(self, start: int, number: int, states: Sequence[int], time: int) -> bool:
        """Whether a row at *time*, in microseconds, comes too late for every state that can follow *states*."""
        passed = [bound for bound, limit in self.limits if self._has_passed(bound, limit, start, number, states, time)]
        late = later = {bound.variable for bound in passed}
        if not late:
            return False
        while True:
            reached = self._reached(states[-1], late, later)
            fixed = [bound for bound in passed if not self._is_moved(bound, states, reached)]
            if len(fixed) == len(passed):
                break
            passed, later = fixed, {bound.variable for bound in fixed}
        leads_on = self._leading_on(later)
        goes_on = [target for target, _, _ in self._edges[states[-1]] if target != ACCEPT]
        return bool(goes_on) and not any(target in leads_on and self._names[target] not in late for target in goes_on)

    def _has_passed(
        self, bound: TimeBound, limit: Vectorized, start: int, number: int, states: Sequence[int], time: int
    ) -> bool:
        from asterism.row_patterns.search import leaves_of_path

        state = int(self._automaton.state_of[self._automaton.names.index(bound.variable)])
        path: Path = (start, 0, number, pa.array([*states, state], pa.int64()).to_numpy())
        leaves = leaves_of_path(self._ordered, path)
        try:
            limits = limit.evaluate(pa.table(leaves, schema=limit.schema))[0]
        except InvalidEventError:
            return False
        value = limits[0].cast(pa.int32() if pa.types.is_date(limits.type) else pa.int64()).as_py()
        return value is not None and (value - bound.strict) * bound.unit < time

    def _reached(self, state: int, late: set[str], later: set[str]) -> set[str]:
        """The variables that can take a row after a state."""
        seen: set[int] = set()
        todo = [target for target, _, _ in self._edges[state] if target != ACCEPT and self._names[target] not in late]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += [to for to, _, _ in self._edges[at] if to != ACCEPT and self._names[to] not in later]
        return {self._names[at] for at in seen}

    def _is_moved(self, bound: TimeBound, states: Sequence[int], reached: set[str]) -> bool:
        """Whether a row of these variables can move a bound."""
        for place in bound.reads.values():
            group = set(self._automaton.names) if place.variable is None else self._clause.names[place.variable]
            taken = sum(self._names[state] in group for state in states)
            if not reached.isdisjoint(group) and (place.last or taken <= place.skip):
                return True
        return False

    def _leading_on(self, later: set[str]) -> set[int]:
        """The states from which a match can be completed."""
        leading: set[int] = set()
        size = -1
        while len(leading) > size:
            size = len(leading)
            for state, edges in enumerate(self._edges):
                if any(to == ACCEPT or (to in leading and self._names[to] not in later) for to, _, _ in edges):
                    leading.add(state)
        return leading
