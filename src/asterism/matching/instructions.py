"""The instructions of the kernel's stack machine, and programs made of them.

The kernel is compiled with the numbers of :class:`Op` and :class:`Func`, so they must not change
(``tests/architecture/test_kernel_numbers.py``). :attr:`Programs.ops` documents the layout of an instruction;
:mod:`asterism.matching.condition_programs` emits them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from asterism.errors import PatternTooLargeError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import EVERY_STAGE, Scope
from asterism.expressions.values import Sql
from asterism.matching.asked_conditions import AskedCondition, OperandKind

STACK = 64  # the capacity of the kernel's stack
STAGES_IN_SUBSETS = 60  # they are bits of a number
EVENT_NUMBER = -2
"""In place of the slot of an aggregate: its value is the number of the event."""
FIRST_EVENT = -1
"""In place of the number of an absence: whether the event is the first one of its key."""
Instruction = tuple[int, int, int, int, int, int]


class Op(enum.IntEnum):
    """Operations of the stack machine; ``_F``: on doubles, which are stored as their 64 bits.

    PREVIOUS and FACT become SLOT when patterns are linked, see :mod:`asterism.matching.key_memory`.
    """

    CONST = 0
    NULL = 1
    STRING = 2
    SLOT = 3
    AGG = 4
    TO_FLOAT = 5
    ADD = 7
    SUB = 8
    MUL = 9
    NEG = 10
    ABS = 11
    ADD_F = 12
    SUB_F = 13
    MUL_F = 14
    DIV_F = 15
    NEG_F = 16
    ABS_F = 17
    EQ = 18
    LT = 19
    LE = 20
    EQ_F = 21
    LT_F = 22
    LE_F = 23
    NOT = 25
    AND = 26
    OR = 27
    IS_NULL = 28
    COALESCE = 29
    SELECT = 30
    PYTHON = 31
    IN = 32
    PREVIOUS = 33
    FACT = 34
    SCALED_TO_FLOAT = 35
    MATH = 36
    FLOOR = 37
    CEIL = 38
    ROUND = 39
    ASK = 40


class Func(enum.IntEnum):
    """Aggregates over the events of a stage."""

    FIRST = 0
    LAST = 1
    SUM = 2
    COUNT = 3
    AVG = 4
    MIN = 5
    MAX = 6


class Number(enum.IntEnum):
    """How the values of an aggregate are held: a DECIMAL is an integer whose mean has four digits more."""

    INTEGER = 0
    DOUBLE = 1
    DECIMAL = 2


class Kind(enum.Enum):
    """Types of the stack machine, in which every value has 64 bits."""

    INT = "number"
    FLOAT = "floating point number"
    BOOL = "Boolean"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DATE = "date"
    INTERVAL = "interval"
    NULL = "NULL"


def kind_of(data_type: pa.DataType) -> Kind | None:
    """The stack representation of an Arrow type; None if it is not supported."""
    return next((kind for is_kind, kind in _KINDS if is_kind(data_type)), None)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Kind | None], ...] = (
    (pa.types.is_boolean, Kind.BOOL),
    (pa.types.is_uint64, None),
    (pa.types.is_integer, Kind.INT),
    (pa.types.is_floating, Kind.FLOAT),
    (pa.types.is_decimal, Kind.FLOAT),
    (pa.types.is_string, Kind.STRING),
    (pa.types.is_large_string, Kind.STRING),
    (pa.types.is_string_view, Kind.STRING),
    (pa.types.is_timestamp, Kind.TIMESTAMP),
    (pa.types.is_date, Kind.DATE),
    (pa.types.is_null, Kind.NULL),
)


_MAY_FAIL = frozenset(
    {Op.PYTHON, Op.ASK, Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS, Op.SCALED_TO_FLOAT, Op.FLOOR, Op.CEIL}
)


@dataclass(slots=True)
class Programs:
    """The programs of all conditions of a pattern, with their constants, aggregates and slots; plain data."""

    scope: Scope
    vectorized: Vectorized
    can_ask: bool = False
    """whether DuckDB evaluates the conditions that the machine cannot compute, see :attr:`asked`"""
    narrow: bool = False
    """whether decimals of more than 18 digits are refused, because the caller evaluates such conditions"""
    ops: list[Instruction] = field(default_factory=list)
    """(operation, constant or slot; for aggregates: offset, function, stage, slot or -1, its Number; for SCALED_TO_FLOAT:
    the scale; for IN: -, the number of rows of its table, whether it has a NULL, whether it is floating, the distance to the
    table in rows; for ASK: its asked condition, -, the number of its operands, AND or OR if it is the right operand of one; for
    PREVIOUS: how many events before the current one, -, -, slot; for FACT: FIRST_EVENT, or an absence; for calculations: -, the
    number of bits of the type of an integer result; for MATH: the MathFunction, whether it takes two values; for ROUND: digits,
    whether halves go to the even digit)
    """
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    """constants, which STRING operations reference by index"""
    slots: list[int] = field(default_factory=list)
    """for each slot the number of the pure expression that fills it"""
    asked: list[AskedCondition] = field(default_factory=list)
    asked_values: list[int] = field(default_factory=list)
    """the numbers of the pure expressions that asked conditions read"""
    tables: list[tuple[Instruction, ...]] = field(default_factory=list)
    """the tables searched by IN: sorted constants, as the operations that would push them"""
    _strings: dict[str, int] = field(default_factory=dict)

    @property
    def may_fail(self) -> bool:
        """Whether a program calculates something that may not fit, divides, or calls Python."""
        return any(
            op[0] in _MAY_FAIL
            or (op[0] == Op.DIV_F and op[1] == 0)
            or (op[0] == Op.AGG and op[2] in (Func.SUM, Func.AVG) and op[5] != Number.DOUBLE)
            for op in self.ops
        )

    def string(self, value: str) -> int:
        """The index of a string constant."""
        if value not in self._strings:
            self._strings[value] = len(self.strings)
            self.strings.append(value)
        return self._strings[value]

    def table(self, rows: tuple[Instruction, ...]) -> int:
        """The index of a table for the current program."""
        if rows not in self.tables:
            self.tables.append(rows)
        return self.tables.index(rows)

    def stage_number(self, stage: str) -> int:
        """The number of a stage for the kernel, also of several stages together."""
        if stage == EVERY_STAGE:
            return -1
        if stage in self.scope.stages:
            return self.scope.stages.index(stage)
        members = [self.scope.stages.index(member) for member in dict(self.scope.subsets)[stage]]
        if max(members) >= STAGES_IN_SUBSETS:
            raise PatternTooLargeError(
                f'subset "{stage}" has a stage beyond the first {STAGES_IN_SUBSETS} stages of the pattern'
            )
        return -2 - sum(1 << member for member in members)

    @property
    def reads_previous(self) -> int:
        """The maximum offset of PREV; 0: it is not used."""
        asked = (one.before for part in self.asked for one in part.operands if one.kind is OperandKind.OF_PREVIOUS)
        return max((*(op[1] for op in self.ops if op[0] == Op.PREVIOUS), *asked), default=0)

    @property
    def stored(self) -> list[int]:
        """The numbers of the pure expressions whose values are stored with the events."""
        return list(dict.fromkeys([*self.slots, *self.asked_values]))

    def add(self, *ops: tuple[Op, int]) -> int:
        """Add a program of plain operations. Returns its number."""
        return self.append([(int(op), argument, 0, 0, 0, 0) for op, argument in ops])

    def append(self, code: Sequence[Instruction]) -> int:
        """Add a program. Returns its number."""
        self.starts.append(len(self.ops))
        self.ops += code
        self.ends.append(len(self.ops))
        return len(self.starts) - 1

    def slot(self, value: Sql, text: str) -> int:
        """The number of the slot for *value*, which is computed for each event."""
        number = self.vectorized.add_value(value, text)
        if number not in self.slots:
            self.slots.append(number)
        return self.slots.index(number)
