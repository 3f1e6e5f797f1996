"""An index of tests of texts: of hundreds of conditions, such as those of Sigma, it finds those that an event satisfies.

The tests ``contains``, ``starts_with``, ``suffix``, ``=`` and ``IN`` of a column with constants are answered for all conditions
together: all constants are searched in each distinct text at once. AND, OR and NOT are jumps between tests. Patterns are
tested only for events that may satisfy a condition with them. What is not a test of texts is assumed to be possible: a condition
with such a part is evaluated for the events that remain.

See docs/decisions/0145.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.caches import keep, recent
from asterism.columns.arrays import Ints, Mask, one_chunk
from asterism.columns.groups import mask_of
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import columns_of
from asterism.expressions.udfs import lower_case
from asterism.rules.binding.text_conditions import CONSTANTS, PATTERNS, ConditionNode, ConditionParser, TextTest

if TYPE_CHECKING:
    from asterism.rules.binding.text_kernels import ConditionPrograms, Constants

MIN_EXACT = 4
"""With fewer conditions, the index is not faster than evaluating all of them."""
MIN_CONDITIONS = 32
"""With fewer, of which DuckDB must evaluate some, the index is not faster either."""
MAX_INDEXES = 8
_ANCHORS = {"contains": 0, "starts_with": 1, "suffix": 2, "=": 3}


class TextIndex:
    """
    :param expressions: the conditions
    """

    def __init__(self, expressions: Vectorized) -> None:
        self._expressions = expressions
        known: dict[TextTest, int] = {}
        parser = ConditionParser(known, [pa.types.is_string(each.type) for each in expressions.schema])
        nodes = [parser.parse(text) for text in expressions.texts]
        self._tests = list(known)
        self._count = len(known)
        self._uses: dict[int, list[int]] = {}
        """For each test of constants the tests that are satisfied with it: itself, and alternatives of which it is one."""
        nodes = [self._merged(node) for node in nodes]
        lazy = {number for number, test in enumerate(self._tests) if test.what in PATTERNS}
        self._programs = _programs_of(nodes, lazy)
        self._patterns = {
            number: sorted(patterns) for number, node in enumerate(nodes) if (patterns := _tests_in(node) & lazy)
        }
        """For each condition with patterns these tests."""
        self._with_patterns = _programs_of(nodes, set())
        used = set(self._with_patterns.test.tolist())
        columns: dict[tuple[int, bool], list[tuple[TextTest, list[int]]]] = {}
        for number, test in enumerate(self._tests):
            if test.what in CONSTANTS:
                uses = [*self._uses.get(number, ()), *([number] if number in used else [])]
                columns.setdefault((test.column, test.lower), []).append((test, uses))
        self._columns = {column: _constants_of(some) for column, some in columns.items()}
        self._masks = [
            number for number, test in enumerate(self._tests) if number in used and test.what in ("null", "same")
        ]
        self.exact = [not _has_unknown(node) for node in nodes]
        self._evaluated = {
            number: _RestOfCondition.of(expressions, number)
            for number, is_exact in enumerate(self.exact)
            if not is_exact
        }

    def _merged(self, node: ConditionNode) -> ConditionNode:
        """The condition with one test in place of alternatives that are tests of constants."""
        parts = tuple(map(self._merged, node.parts))
        of_constants = [part.operator == "test" and self._is_of_constants(part.test) for part in parts]
        if node.operator != "OR" or sum(of_constants) < 2:
            return node._replace(parts=parts)
        group, self._count = self._count, self._count + 1
        for part, is_one in zip(parts, of_constants, strict=True):
            if is_one:
                self._uses.setdefault(part.test, []).append(group)
        rest = tuple(part for part, is_one in zip(parts, of_constants, strict=True) if not is_one)
        any_of = ConditionNode("test", test=group)
        return ConditionNode("OR", (any_of, *rest)) if rest else any_of

    def _is_of_constants(self, number: int) -> bool:
        # Alternatives that were merged already are not merged again.
        return number < len(self._tests) and self._tests[number].what in CONSTANTS

    def met(self, events: pa.Table) -> tuple[Ints, Ints]:
        """For each event the numbers of the conditions that it satisfies, ascending, as offsets and values.

        :raises InvalidEventError: a condition fails for an event
        """
        encoded = _EncodedEvents(events, self._expressions.schema.names)
        texts, at, tests = self._tests_of(encoded)
        masks = np.array([encoded.mask(self._tests[number]) for number in self._masks], np.bool_)
        found = _Found(texts, at, tests, masks.reshape(len(self._masks), events.num_rows), self._masks, self._count)
        offsets, met = found.conditions(self._programs)
        rows = np.repeat(np.arange(events.num_rows), np.diff(offsets))
        kept = np.ones(len(met), np.bool_)
        for number, places in _places_of(met, self._patterns):
            patterns = self._patterns[number]
            some = rows[places]
            answers = [encoded.at(self._tests[pattern].column, some) for pattern in patterns]
            matched = [_matches(self._tests[one], texts) for one, texts in zip(patterns, answers, strict=True)]
            kept[places] = found.at_rows(some, patterns, np.array(matched)).holds(self._with_patterns, number)
        rows, met = rows[kept], met[kept]
        kept = np.ones(len(met), np.bool_)
        for number, places in _places_of(met, self._evaluated):
            kept[places] = self._evaluated[number].holds(events, rows[places])
        counts = np.bincount(rows[kept], minlength=events.num_rows)
        return np.concatenate([[0], np.cumsum(counts)]), met[kept]

    def _tests_of(self, encoded: _EncodedEvents) -> tuple[Ints, Ints, Ints]:
        """The number of the text of each event in each column, -1 for NULL; and for each text the tests that it satisfies."""
        texts = np.full((len(self._columns), encoded.events.num_rows), -1, np.int64)
        counts, found, put = [np.zeros(1, np.int64)], [np.empty(0, np.int64)], 0
        for row, ((column, lower), constants) in enumerate(self._columns.items()):
            codes, dictionary = encoded.column(column)
            at, tests = _tests_of(dictionary, lower, constants, self._count)
            texts[row] = np.where(codes >= 0, codes + put, -1)
            counts.append(np.diff(at))
            found.append(tests)
            put += len(at) - 1
        return texts, np.cumsum(np.concatenate(counts)), np.concatenate(found)


class _EncodedEvents:
    """Events whose texts are numbers in dictionaries."""

    def __init__(self, events: pa.Table, names: Sequence[str]) -> None:
        self.events, self._names = events, names
        self._columns: dict[int, tuple[Ints, pa.Array]] = {}

    def column(self, number: int) -> tuple[Ints, pa.Array]:
        """The numbers of the texts, -1 for NULL, and the texts."""
        if number not in self._columns:
            encoded = pc.dictionary_encode(one_chunk(self.events.column(self._names[number])))
            codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
            self._columns[number] = codes, encoded.dictionary
        return self._columns[number]

    def at(self, number: int, rows: Ints) -> pa.Array:
        """The texts of some events."""
        codes, dictionary = self.column(number)
        return dictionary.take(pa.array(codes[rows], mask=codes[rows] < 0))

    def mask(self, test: TextTest) -> Mask:
        """The events that satisfy a test that is not one of constants."""
        if test.what == "null":
            nulls: Mask = self.events.column(self._names[test.column]).is_null().to_numpy()
            return nulls
        codes, texts = self.column(test.column)
        other_codes, others = self.column(test.number)
        both = pa.concat_arrays([_lower(texts), _lower(others)] if test.lower else [texts, others])
        numbers = np.append(pc.dictionary_encode(both).indices.to_numpy(), -1)
        same: Mask = (
            numbers[np.where(codes < 0, -1, codes)] == numbers[np.where(other_codes < 0, -1, other_codes + len(texts))]
        )
        return same & (codes >= 0)


class _Found(NamedTuple):
    """What :meth:`TextIndex.met` knows of events: the numbers of their texts, the tests that each text satisfies, and as *masks*
    the events that satisfy each of *mask_tests*.
    """

    texts: Ints
    at: Ints
    tests: Ints
    masks: Mask
    mask_tests: Sequence[int]
    tests_in_all: int

    def at_rows(self, rows: Ints, tests: Sequence[int], masks: Mask) -> _Found:
        """Some events, of which further *tests* are known."""
        together = np.ascontiguousarray(np.concatenate([self.masks[:, rows], masks]))
        return self._replace(texts=self.texts[:, rows], masks=together, mask_tests=[*self.mask_tests, *tests])

    def conditions(self, programs: ConditionPrograms) -> tuple[Ints, Ints]:
        """For each event the conditions that it satisfies, as offsets and values."""
        from asterism.rules.binding.text_kernels import conditions_of_events

        of_masks = np.array(self.mask_tests, np.int64)
        return conditions_of_events(
            np.ascontiguousarray(self.texts), self.at, self.tests, self.masks, of_masks, programs, self.tests_in_all
        )

    def holds(self, programs: ConditionPrograms, number: int) -> Mask:
        """The events that satisfy a condition."""
        offsets, _ = self.conditions(programs._replace(entries=programs.entries[number : number + 1]))
        return np.diff(offsets) > 0


def _places_of(met: Ints, conditions: Collection[int]) -> Iterator[tuple[int, Ints]]:
    """For each of some *conditions* its places in *met*, if there are any."""
    places = np.flatnonzero(np.isin(met, list(conditions)))
    if not len(places):
        return
    places = places[np.argsort(met[places], kind="stable")]
    numbers, begins = np.unique(met[places], return_index=True)
    yield from zip(numbers.tolist(), np.split(places, begins[1:]), strict=True)


def _matches(test: TextTest, texts: pa.Array) -> Mask:
    """The texts that match a pattern, by RE2, as in DuckDB."""
    texts = _lower(texts) if test.lower else texts
    (pattern,) = test.literals
    matched = pc.match_substring_regex(texts, pattern)
    return cast("Mask", pc.fill_null(matched, False).to_numpy(zero_copy_only=False))


def _lower(texts: pa.Array) -> pa.Array:
    return lower_case(pa.chunked_array([texts]))


@dataclass(frozen=True, slots=True)
class _RestOfCondition:
    """A condition that the index does not answer."""

    expression: Vectorized
    columns: frozenset[int]

    @classmethod
    def of(cls, expressions: Vectorized, number: int) -> _RestOfCondition:
        return cls(expressions.alone(number), frozenset(columns_of(expressions.texts[number])))

    def holds(self, events: pa.Table, rows: Ints) -> Mask:
        taken = pa.array(rows)
        schema = self.expression.schema
        some = [
            events.column(number).take(taken) if number in self.columns else pa.nulls(len(rows), each.type)
            for number, each in enumerate(schema)
        ]
        (answer,) = self.expression.evaluate(pa.table(some, schema=schema))
        return mask_of(answer)


def _tests_in(node: ConditionNode) -> set[int]:
    return set().union({node.test} if node.operator == "test" else (), *map(_tests_in, node.parts))


def _has_unknown(node: ConditionNode) -> bool:
    return node.operator == "?" or any(map(_has_unknown, node.parts))


# ---------------------------------------------------------------------------------------------------- programs


def _programs_of(nodes: Sequence[ConditionNode], lazy: Collection[int]) -> ConditionPrograms:
    """The conditions, in which tests that are *lazy* are possible."""
    from asterism.rules.binding.text_kernels import FALSE, TRUE, ConditionPrograms

    jumps: list[tuple[int, int, int]] = []
    entries = [_jump(node, TRUE, FALSE, jumps, lazy, possible=True) for node in nodes]
    table = np.array(jumps, np.int64).reshape(-1, 3)
    return ConditionPrograms(np.array(entries, np.int64), *(np.ascontiguousarray(column) for column in table.T))


def _jump(
    node: ConditionNode,
    if_met: int,
    if_not: int,
    jumps: list[tuple[int, int, int]],
    lazy: Collection[int],
    *,
    possible: bool,
) -> int:
    """Where the program of *node* begins, which goes on with one of two others. What is not known is *possible*."""
    if node.operator == "?" or node.test in lazy:
        return if_met if possible else if_not
    if node.operator == "test":
        if if_met == if_not:
            return if_met
        jumps.append((node.test, if_met, if_not))
        return len(jumps) - 1
    if node.operator == "NOT":
        return _jump(node.parts[0], if_not, if_met, jumps, lazy, possible=not possible)
    for part in reversed(node.parts):
        if node.operator == "AND":
            if_met = _jump(part, if_met, if_not, jumps, lazy, possible=possible)
        else:
            if_not = _jump(part, if_met, if_not, jumps, lazy, possible=possible)
    return if_met if node.operator == "AND" else if_not


# ---------------------------------------------------------------------------------------------------- constants


def _constants_of(tests: Iterable[tuple[TextTest, list[int]]]) -> Constants:
    """The tables of :mod:`asterism.rules.binding.text_kernels` for the tests of a column."""
    from asterism.rules.binding.text_kernels import BUCKET_BITS, MAX_GRAM, Constants, bucket_of

    constants: dict[tuple[bytes, int], dict[int, None]] = {}
    lengths: list[tuple[int, int]] = []
    for test, uses in tests:
        if test.what == "length":
            lengths += [(test.number, use) for use in uses]
        for literal in test.literals:
            constants.setdefault((literal.encode(), _ANCHORS[test.what]), {}).update(dict.fromkeys(uses))
    empty = constants.pop((b"", _ANCHORS["="]), {})
    frequent = Counter(gram for text, _ in constants for gram in _grams(text, MAX_GRAM))
    rows, uses_of_all = list[tuple[int, ...]](), list[int]()
    members: list[list[tuple[int, int]]] = [[] for _ in range(MAX_GRAM)]
    end = 0
    for number, ((text, anchor), satisfied) in enumerate(constants.items()):
        gram = min(_grams(text, MAX_GRAM), key=lambda gram: frequent[gram])
        place = text.index(gram)
        rows.append((end, end + len(text), place, anchor, len(uses_of_all), len(uses_of_all) + len(satisfied)))
        uses_of_all += satisfied
        end += len(text)
        members[len(gram) - 1].append((bucket_of(gram), number))
    buckets = np.zeros((MAX_GRAM, 2**BUCKET_BITS + 1), np.int32)
    order: list[int] = []
    for size, some in enumerate(members):
        counts = np.bincount([bucket for bucket, _ in some], minlength=2**BUCKET_BITS) if some else 0
        buckets[size, 1:] = np.cumsum(counts) if some else 0
        buckets[size] += len(order)
        order += [number for _, number in sorted(some)]
    return Constants(
        np.array(rows, np.int64).reshape(-1, 6),
        np.frombuffer(b"".join(text for text, _ in constants) or b"\0", np.uint8),
        buckets,
        np.array(order, np.int64),
        np.array([bool(some) for some in members], np.bool_),
        np.array(uses_of_all, np.int64),
        np.array(lengths, np.int64).reshape(-1, 2),
        np.array(list(empty), np.int64),
    )


def _grams(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(max(len(text) - size, 0) + 1)]


def _tests_of(texts: pa.Array, lower: bool, constants: Constants, count: int) -> tuple[Ints, Ints]:
    """For each text the tests that it satisfies, as offsets and values."""
    from asterism.rules.binding.text_kernels import tests_of_texts

    if not len(texts):
        return np.zeros(1, np.int64), np.empty(0, np.int64)
    if lower:
        texts = _lower(texts)
    _, offsets, data = texts.buffers()
    begins = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, np.uint8) if data is not None and data.size else np.frombuffer(b"\0", np.uint8)
    return tests_of_texts(begins, letters, constants, count)


def _are_exact(expressions: Vectorized) -> bool:
    """Whether all conditions are tests of texts only."""
    parser = ConditionParser({}, [pa.types.is_string(each.type) for each in expressions.schema])
    return not any(_has_unknown(parser.parse(text)) for text in expressions.texts)


_INDEXES: dict[tuple[str, ...], TextIndex] = {}


def text_index(expressions: Vectorized) -> TextIndex | None:
    """The index of conditions; None if evaluating all of them is as fast."""
    count = len(expressions.texts)
    if count < MIN_EXACT or (count < MIN_CONDITIONS and not _are_exact(expressions)):
        return None
    key = (*expressions.schema.names, *map(str, expressions.schema.types), *expressions.texts)
    index = recent(_INDEXES, key)
    return keep(_INDEXES, MAX_INDEXES, key, TextIndex(expressions)) if index is None else index
