"""From a chain of nodes to states and edges, built from the last node to the first.

An edge TAKEs the event, IGNOREs it, or PROCEEDs to another state that looks at the same event. The order of the edges
of a state is the order in which they are added here, and it is visible in the order of the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from .event import Condition, always, conjunction, negation
from .pattern import Contiguity, Node


class Kind(Enum):
    """What being in a state means."""

    NORMAL = auto()
    PENDING = auto()  # everything is there; only the absence at the end has to last until the window has passed
    STOP = auto()  # a forbidden event came: the partial match and what branched off it in this step is dropped
    FINAL = auto()


class Action(Enum):
    """What following an edge does with the event."""

    TAKE = auto()
    IGNORE = auto()
    PROCEED = auto()


@dataclass(eq=False, slots=True)
class Edge:
    """A way out of a state; with `max_gap`, only for events less than that after the last accepted one."""

    action: Action
    target: State
    condition: Condition
    max_gap: int | None = None


@dataclass(eq=False, slots=True)
class State:
    """A place where a partial match waits; with `max_gap`, for less than that since the last accepted event."""

    name: str
    pattern: str
    kind: Kind = Kind.NORMAL
    edges: list[Edge] = field(default_factory=list)
    max_gap: int | None = None

    def add(self, action: Action, target: State, condition: Condition) -> None:
        """Append an edge."""
        self.edges.append(Edge(action, target, condition))

    def __deepcopy__(self, _memo: object) -> State:
        """States do not change once built, so a copied matcher shares them."""
        return self

    def __repr__(self) -> str:
        return f"State({self.name!r})"


@dataclass(frozen=True, eq=False, slots=True)
class Automaton:
    """The start state and the FIRST_AND_LAST window (None: no limit)."""

    start: State
    window: int | None


@dataclass(frozen=True, eq=False, slots=True)
class _Scope:
    """The chain under construction: the root's, or a group's for one of its rounds."""

    chain: tuple[Node, ...]
    group: Node | None = None
    first_round: bool = True
    after: Node | None = None  # what follows the group in the chain around it

    def following(self, place: int) -> Node | None:
        return self.chain[place + 1] if place + 1 < len(self.chain) else self.after

    def heads_group(self, place: int) -> bool:
        return self.group is not None and place == 0


def build(chain: tuple[Node, ...], *, exact_gaps: bool = False) -> Automaton:
    """Compile the root's chain. *exact_gaps*: windowTime bounds every gap between repetitions, and no other gap."""
    return _Builder(exact_gaps).build(chain)


class _Builder:
    def __init__(self, exact_gaps: bool) -> None:
        self._exact_gaps = exact_gaps
        self._names: set[str] = set()
        self._stops: dict[str, State] = {}
        self._window: int | None = None
        # Sinks that a greedy loop restricted, with the unrestricted copies used once its until condition holds.
        self._unrestricted: dict[State, State] = {}

    def build(self, chain: tuple[Node, ...]) -> Automaton:
        final = self._state("$endState$", Kind.FINAL)
        self._window = chain[-1].first_and_last
        start = self._chain(_Scope(chain), final)
        return Automaton(start, self._window or None)

    # --- states ---

    def _state(self, pattern: str, kind: Kind = Kind.NORMAL) -> State:
        name, number = pattern, 0
        while name in self._names:
            name, number = f"{pattern}:{number}", number + 1
        self._names.add(name)
        return State(name, pattern, kind)

    def _waiting_state(self, node: Node, kind: Kind = Kind.NORMAL) -> State:
        """A state in which the node's bound on the gap holds (the extra ignore states never have one)."""
        state = self._state("GroupPattern" if node.body else node.name, kind)
        if not node.repeated:
            state.max_gap = node.previous_and_current
        elif not self._exact_gaps and state.name != state.pattern:
            # Flink gives windowTime to every repetition state but the one that happens to be made first, which is
            # the last repetition, resp. the loop state. So the entry state, before the first repetition, has it too.
            state.max_gap = node.gap
        return state

    def _bound_repetition(self, node: Node, state: State, extra: State, way_out: State | None) -> None:
        """Corrected windowTime: bound the gap before one repetition after the first, and nothing else.

        A partial match that could also go on to what follows must not die with the chance of another repetition:
        then the edges are bounded instead of the stay in the state.
        """
        if not self._exact_gaps or not node.gap:
            return
        extra.max_gap = node.gap
        if way_out is None or way_out.kind is Kind.FINAL:
            state.max_gap = node.gap
        else:
            state.max_gap = None
            for edge in state.edges:
                edge.max_gap = node.gap if edge.action is not Action.PROCEED else None

    def _stop_state(self, node: Node, condition: Condition) -> State:
        if node.name not in self._stops:
            self._stops[node.name] = stop = self._state(node.name, Kind.STOP)
            stop.add(Action.TAKE, stop, condition)
        return self._stops[node.name]

    def _copy(self, state: State) -> State:
        """The state under another name, with edges of its own."""
        copy = self._state(state.pattern, state.kind)
        for edge in state.edges:
            target = copy if edge.target is state else edge.target
            copy.edges.append(Edge(edge.action, target, edge.condition, edge.max_gap))
        if self._exact_gaps:
            # In Flink a copy has no bound: bounds are kept by name, and the copy has another.
            copy.max_gap = state.max_gap
        return copy

    # --- conditions ---

    def _within_group(self, scope: _Scope, condition: Condition) -> Condition:
        """The stop condition of a group holds everything inside it back (of the innermost group only)."""
        return _unless(scope.group.until if scope.group else None, condition)

    def _take(self, scope: _Scope, node: Node) -> Condition:
        return self._within_group(scope, node.condition)

    def _ignore(self, scope: _Scope, place: int, *, repetition: bool) -> Condition | None:
        """When an event may be passed over while waiting for the node; None: never.

        The head of a group waits on behalf of the group: as the edge into the group says in the first round, as the
        inner contiguity of the group says in later rounds and between the repetitions of the head itself.
        """
        node = scope.chain[place]
        owner = scope.group if scope.group is not None and scope.heads_group(place) else node
        inner = repetition or (owner is not node and not scope.first_round)
        match owner.inner if inner else owner.contiguity:
            case Contiguity.SKIP_TILL_NEXT:
                return self._within_group(scope, negation(node.condition))
            case Contiguity.SKIP_TILL_ANY:
                return self._within_group(scope, always)
            case _:
                return None

    # --- a chain ---

    def _chain(self, scope: _Scope, sink: State) -> State:
        for place in range(len(scope.chain) - 1, 0, -1):
            node = scope.chain[place]
            if node.contiguity is Contiguity.NOT_FOLLOW:
                sink = self._absence(scope, node, sink)
            elif node.contiguity is Contiguity.NOT_NEXT:
                sink = self._not_next(scope, node, sink)
            else:
                sink = self._node(scope, place, sink)
            # The smallest window counts. The last node of a chain is not looked at, but for the root's.
            window = scope.chain[place - 1].first_and_last
            if window is not None and (self._window is None or window < self._window):
                self._window = window
        return self._node(scope, 0, sink)

    def _absence(self, scope: _Scope, node: Node, sink: State) -> State:
        """NOT_FOLLOW: a state only at the end, and only if something ends the wait; else edges of other states."""
        if sink.kind is not Kind.FINAL or (node.previous_and_current is None and not self._window):
            return sink
        pending = self._waiting_state(node, Kind.PENDING)
        unwanted = self._take(scope, node)
        pending.add(Action.PROCEED, self._stop_state(node, unwanted), unwanted)
        pending.add(Action.IGNORE, pending, negation(unwanted))
        return pending

    def _not_next(self, scope: _Scope, node: Node, sink: State) -> State:
        state = self._waiting_state(node)
        unwanted = self._take(scope, node)
        # A PROCEED to the final state would complete the match one event too early.
        passed = Action.IGNORE if sink.kind is Kind.FINAL else Action.PROCEED
        state.add(passed, sink, negation(unwanted))
        state.add(Action.PROCEED, self._stop_state(node, unwanted), unwanted)
        return state

    def _node(self, scope: _Scope, place: int, sink: State) -> State:
        node = scope.chain[place]
        if node.looping:
            loop = self._loop(scope, place, self._without_absences(scope, place, sink))
            entry = self._times(scope, place, loop, sink)
        elif node.repeated:
            entry = self._times(scope, place, sink, sink)
        else:
            ignore = self._ignore(scope, place, repetition=False)
            entry = self._single(scope, place, sink, sink, self._take(scope, node), ignore, optional=node.optional)
        self._add_stops(scope, place, entry)
        return entry

    # --- a node ---

    def _single(
        self,
        scope: _Scope,
        place: int,
        sink: State,
        way_out: State,
        take: Condition,
        ignore: Condition | None,
        *,
        optional: bool,
        repetition: bool = False,
    ) -> State:
        """One occurrence of the node, *repetition*: after the first; if optional, it may be left out for *way_out*."""
        node = scope.chain[place]
        if node.body:
            return self._group(scope, place, sink, way_out, optional=optional, repetition=repetition)

        state = self._waiting_state(node)
        target = self._without_absences(scope, place, sink)
        state.add(Action.TAKE, target, take)
        if optional:
            self._add_way_out(scope, node, state, way_out)

        extra = state
        if ignore is not None:
            if optional or self._heads_optional_round(scope, place):
                # Once an event was ignored here, leaving the node out is another branch's business.
                extra = self._state(node.name)
                extra.add(Action.TAKE, target, take)
                extra.add(Action.IGNORE, extra, ignore)
                self._add_stops(scope, place, extra)
            state.add(Action.IGNORE, extra, ignore)
        if repetition:
            self._bound_repetition(node, state, extra, way_out if optional else None)
        return state

    def _heads_optional_round(self, scope: _Scope, place: int) -> bool:
        return scope.group is not None and place == 0 and scope.first_round and scope.group.optional

    def _add_way_out(self, scope: _Scope, node: Node, state: State, way_out: State) -> None:
        go_on = self._within_group(scope, always)
        if node.greedy and node.until is not None:
            unrestricted = self._unrestricted.get(way_out, way_out)
            state.add(Action.PROCEED, unrestricted, conjunction(go_on, node.until))
            go_on = conjunction(go_on, negation(node.until))
        state.add(Action.PROCEED, way_out, go_on)

    def _times(self, scope: _Scope, place: int, sink: State, way_out: State) -> State:
        """`least` to `most` occurrences in a row, the last of them leading to *sink*."""
        node = scope.chain[place]
        take = _unless(node.until, self._take(scope, node))
        inner_ignore = self._ignore(scope, place, repetition=True)
        if inner_ignore is not None:
            inner_ignore = _unless(node.until, inner_ignore)
        if node.greedy and node.least != node.most:
            self._restrict(node, way_out, take)

        for number in range(node.most, 1, -1):
            beyond = number > node.least
            sink = self._single(scope, place, sink, way_out, take, inner_ignore, optional=beyond, repetition=True)
            self._add_stop_of_following(scope, place, sink)
        # Unlike the others this one may ignore events for which the stop condition holds: the loop has not begun.
        ignore = self._ignore(scope, place, repetition=False)
        return self._single(scope, place, sink, way_out, take, ignore, optional=node.optional)

    def _loop(self, scope: _Scope, place: int, sink: State) -> State:
        """The state after enough repetitions: any number of further ones."""
        node = scope.chain[place]
        if node.body:
            return self._looping_group(scope, place, sink)

        take = _unless(node.until, self._take(scope, node))
        ignore = self._ignore(scope, place, repetition=True)
        state = self._waiting_state(node)
        if node.greedy:
            self._restrict(node, sink, self._take(scope, node))
        self._add_way_out(scope, node, state, sink)
        state.add(Action.TAKE, state, take)
        self._add_stop_of_following(scope, place, state)
        extra = state
        if ignore is not None:
            ignore = _unless(node.until, ignore)
            extra = self._state(node.name)
            extra.add(Action.TAKE, state, take)
            extra.add(Action.IGNORE, extra, ignore)
            state.add(Action.IGNORE, extra, ignore)
            self._add_stop_of_following(scope, place, extra)
        self._bound_repetition(node, state, extra, sink)
        return state

    def _restrict(self, node: Node, sink: State, take: Condition) -> None:
        """Greedy: what follows may neither take nor ignore an event that the loop would take."""
        if node.until is not None:
            self._unrestricted[sink] = self._copy(sink)
        for edge in sink.edges:
            edge.condition = conjunction(edge.condition, negation(take))

    # --- groups ---

    def _group(
        self, scope: _Scope, place: int, sink: State, way_out: State, *, optional: bool, repetition: bool
    ) -> State:
        """One round."""
        entry = self._round(scope, place, sink, first=not repetition)
        if optional:
            entry.add(Action.PROCEED, way_out, self._within_group(scope, always))
        return entry

    def _looping_group(self, scope: _Scope, place: int, sink: State) -> State:
        """A round that ends where it begins, by way of a state without events."""
        back = self._waiting_state(scope.chain[place])
        entry = self._round(scope, place, back, first=False)
        go_on = self._within_group(scope, always)
        entry.add(Action.PROCEED, sink, go_on)
        back.add(Action.PROCEED, entry, go_on)
        return entry

    def _round(self, scope: _Scope, place: int, sink: State, *, first: bool) -> State:
        group = scope.chain[place]
        if self._exact_gaps and group.gap:
            raise NotImplementedError(f"{group.name!r}: windowTime of a group has no corrected meaning")
        return self._chain(_Scope(group.body, group, first, scope.following(place)), sink)

    # --- absences in the middle ---

    def _absences_before(self, scope: _Scope, place: int) -> Sequence[Node]:
        """The NOT_FOLLOW nodes before this one, directly or with only optional nodes between."""
        found = []
        for node in reversed(scope.chain[:place]):
            if node.contiguity is Contiguity.NOT_FOLLOW:
                found.append(node)
            elif not node.optional:
                break
        return found

    def _add_stops(self, scope: _Scope, place: int, state: State) -> None:
        for node in self._absences_before(scope, place):
            unwanted = self._take(scope, node)
            state.add(Action.PROCEED, self._stop_state(node, unwanted), unwanted)

    def _add_stop_of_following(self, scope: _Scope, place: int, state: State) -> None:
        """Between repetitions the NOT_FOLLOW after the node holds already."""
        node = scope.following(place)
        if node is not None and node.contiguity is Contiguity.NOT_FOLLOW:
            unwanted = self._take(scope, node)
            state.add(Action.PROCEED, self._stop_state(node, unwanted), unwanted)

    def _without_absences(self, scope: _Scope, place: int, sink: State) -> State:
        """After an optional node took an event, the absences before it are over: copy *sink* without their edges."""
        names = {node.name for node in self._absences_before(scope, place)}
        if not names or not scope.chain[place].optional:
            return sink
        return self._copy_without_stops(sink, names)

    def _copy_without_stops(self, state: State, names: set[str]) -> State:
        copy = self._copy(state)
        kept = []
        for edge in copy.edges:
            if edge.action is Action.PROCEED:
                if edge.target.kind is Kind.STOP and edge.target.pattern in names:
                    continue
                if edge.target.kind is not Kind.STOP:
                    edge.target = self._copy_without_stops(edge.target, names)
            kept.append(edge)
        copy.edges = kept
        return copy


def _unless(until: Condition | None, condition: Condition) -> Condition:
    return condition if until is None else conjunction(negation(until), condition)


# --- events that are ignored ---


def stays(state: State, edges: Sequence[Edge]) -> bool:
    """Whether a partial match in *state* that follows *edges*, all of them IGNORE edges, can do after that exactly what it
    could do before.
    """
    targets = [edge.target for edge in edges]
    if not targets or any(edge.action is not Action.IGNORE for edge in edges):
        return False
    if targets == [state]:
        return True
    alike = [(each.kind, each.max_gap) for each in (state, *targets)]
    if alike != [(Kind.NORMAL, state.max_gap)] * len(alike):
        return False
    before, after = _ways(state), [_ways(target) for target in targets]
    consuming = [way for ways, _ in after for way in ways]
    return consuming == before[0] and all(stops == before[1] for _, stops in after)


_Way = tuple[Condition, str, Action, State, int | None]


def _ways(state: State) -> tuple[list[_Way], set[Condition]]:
    """The TAKE and IGNORE edges that can be followed from a state, in order, and the conditions of its ends by absence."""
    ways: list[_Way] = []
    stops: set[Condition] = set()
    todo: list[tuple[State, Condition]] = [(state, always)]
    while todo:
        source, condition = todo.pop()
        if source.kind is Kind.STOP:
            stops.add(condition)
            continue
        for edge in source.edges:
            whole = conjunction(condition, edge.condition)
            if edge.action is Action.PROCEED:
                todo.append((edge.target, whole))
            else:
                ways.append((whole, source.pattern, edge.action, edge.target, edge.max_gap))
    return ways, stops
