"""Compiles conditions over the events of a stage for the stack machine of the kernel.

:class:`~asterism.expressions.translation.Translator` determines the types, as for any other expression. It returns a tree of
operations whose operands have the required types, for which this module emits instructions.

A value on the stack has 64 bits. Integers, Booleans, dates (days), times and intervals (microseconds) are integers,
floating-point numbers are doubles, strings are represented by their rank, and decimals of up to 18 digits by their unscaled
value. An operation that the machine does not have can often be computed per event in advance: ``upper(LAST(a.x))`` is
``LAST(upper(a.x))``. For a pattern, DuckDB computes the smallest Boolean part that has other operations
(:mod:`asterism.matching.asked_conditions`).
"""

from __future__ import annotations

import contextlib
import decimal
import itertools
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from asterism.columns.time import DAY
from asterism.errors import ExpressionError, ExpressionSyntaxError, ExpressionTypeError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.math_functions import MATH_FUNCTIONS
from asterism.expressions.names import COLUMN, PREVIOUS, aggregate_of, columns_of, plain_column
from asterism.expressions.parsing import AGGREGATES, sql_of
from asterism.expressions.translation import ARITHMETIC, DOCUMENTATION, Translator, position_of
from asterism.expressions.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FLOATS,
    INTEGERS,
    INTERVALS,
    MAX_DIGITS,
    MONTHS,
    NULL,
    STRING,
    aggregate_type,
    given_type,
    is_decimal,
    is_instant,
    is_nested,
    is_numeric,
    is_temporal,
    name_of,
    spark_type,
)
from asterism.expressions.values import Cost, Operation, Sql, UnsupportedError, cast, is_fixed, limited, made_by, strict
from asterism.matching.asked_conditions import AskedCondition, Operand, OperandKind
from asterism.matching.instructions import EVENT_NUMBER, STACK, Func, Instruction, Number, Op, Programs

MAX_OPERATIONS = 5000  # in one program; a value that is used twice is computed twice
_MAX_STEPS = 4 * MAX_OPERATIONS  # to compile a program
_DIGITS = 18  # the maximum precision of decimals that are integers on the stack
_EXACTLY = decimal.Context(prec=2 * MAX_DIGITS)
_EXACT = 15  # decimals and integers of up to this many digits compare exactly as doubles
_MAX_COMPUTED = 500  # each takes a query
_FEW = 4  # up to this many constants of an IN are compared one by one

Code = Callable[[], list[Instruction]]
"""Emits the code that pushes a value. Slots are numbered when it is called, so that discarded code uses none."""


def add_condition(programs: Programs, node: exp.Expr, text: str) -> int:
    """Compile a resolved Boolean expression. Returns the number of its program."""
    programs.tables = []
    code = compile_condition(programs, node, text)
    # Tables are placed after the program that searches them and addressed by distance, so that both can be moved together.
    at = [len(code)]
    for table in programs.tables:
        at.append(at[-1] + len(table))
    program = programs.append(
        [(*op[:5], at[op[5]] - number) if op[0] == Op.IN else op for number, op in enumerate(code)]
    )
    programs.ops += itertools.chain.from_iterable(programs.tables)
    return program


def compile_condition(programs: Programs, node: exp.Expr, text: str) -> list[Instruction]:
    """The program of a resolved Boolean expression; adds its slots and strings to *programs*."""
    translator = StageTranslator(programs.scope.schema, programs.vectorized.zone, text)
    value = translator.translate(node)
    if value.type not in (BOOLEAN, NULL):
        raise ExpressionTypeError.at(f"a condition must be BOOLEAN, not {name_of(value.type)}", text)
    try:
        code = _Emitter(programs, translator).program(value)
    except (UnsupportedError, ExpressionError):
        # Only now, so that what the machine computes, and thereby what is stored of events, does not change.
        asked = _asked_program(programs, translator, value) if programs.can_ask else None
        if asked is None:
            raise
        code = asked
    if _depth(code) > STACK:
        raise ExpressionSyntaxError.at("the expression is nested too deeply", text)
    return code


def _asked_program(programs: Programs, translator: StageTranslator, value: Sql) -> list[Instruction] | None:
    """A program that asks for the Boolean parts that the machine cannot compute; None: DuckDB cannot compute one either."""
    try:
        return _Emitter(programs, translator, asks=True).program(value)
    except (UnsupportedError, ExpressionError):
        return None


def _depth(code: Sequence[Instruction]) -> int:
    """The maximum number of values on the stack."""
    depth = deepest = 0
    for operation, _, takes_two, operands, *_ in code:
        if operation == Op.ASK:
            depth += 1 - operands
        else:
            depth += -takes_two if operation == Op.MATH else _GROWS.get(Op(operation), -1)
        deepest = max(deepest, depth)
    return deepest


_GROWS = dict.fromkeys((Op.CONST, Op.NULL, Op.STRING, Op.SLOT, Op.AGG, Op.PREVIOUS), 1) | {Op.SELECT: -2} | dict.fromkeys(
    (Op.TO_FLOAT, Op.SCALED_TO_FLOAT, Op.NEG, Op.ABS, Op.NEG_F, Op.ABS_F, Op.NOT, Op.IS_NULL, Op.IN, Op.FLOOR, Op.CEIL,
     Op.ROUND), 0
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------- types


class Pick(NamedTuple):
    """FIRST, LAST, MIN or MAX: the value of one event of a stage."""

    func: Func
    stage: str
    offset: int


class StageTranslator(Translator):
    """Types expressions over the events of stages.

    Each value that depends on such events becomes a separate column, numbered after the columns of the events. This keeps
    the SQL short, however deeply expressions are nested.
    """

    def __init__(self, schema: pa.Schema, zone: str, source: str) -> None:
        super().__init__(schema, zone, source)
        self.contents: list[Sql] = []
        """the values of these columns; for an aggregate, its argument"""
        self.picks: dict[int, Pick | None] = {}
        """the aggregates by the number of their column; None: it depends on all events of the stage"""

    def is_pure(self, value: Sql) -> bool:
        """Whether the value depends on the current event only."""
        return all(number < len(self.schema) for number in columns_of(value.text))

    def visit(self, node: exp.Expr) -> Sql:
        if type(node) in AGGREGATES:
            return self._aggregate(node)
        value = super().visit(node)
        if self.is_pure(value):
            return replace(value, node=node)
        return value if plain_column(value.text) is not None else self._as_column(replace(value, node=node), value)

    def _aggregate(self, node: exp.Expr) -> Sql:
        name, stage, argument, offset = aggregate_of(node)
        content = Sql("TRUE", BOOLEAN, ()) if argument is None else self.translate(argument)
        data_type = aggregate_type(name, content.type)
        if data_type is None:
            raise UnsupportedError(f"{name} needs numbers, not {name_of(content.type)}")
        value = replace(content, type=data_type, constant=None, operation=None, strict=True)
        computed = name in ("COUNT", "SUM", "AVG")
        if computed:
            value = made_by(name, value, content)
        self.picks[self._next] = None if computed else Pick(Func[name], stage, offset)
        return self._as_column(replace(value, node=node), content)

    @property
    def _next(self) -> int:
        return len(self.schema) + len(self.contents)

    def _as_column(self, value: Sql, content: Sql) -> Sql:
        column = replace(value, text=f"c{self._next}", nulls=None, cost=Cost())
        self.contents.append(content)
        return column

    def for_one_event(self, value: Sql) -> tuple[Sql, Pick] | None:
        """``f(LAST(a.x))`` as ``f(a.x)`` and the :class:`Pick` of the event; None if it depends on more than one event."""
        picks: set[Pick | None] = set()
        written: dict[int, Sql] = {}

        def content_of(number: int) -> Sql:
            if number not in written:
                content = self.contents[number - len(self.schema)]
                if number in self.picks:
                    picks.add(self.picks[number])
                written[number] = content if number in self.picks else write_out(content)
            return written[number]

        def write_out(value: Sql) -> Sql:
            cost = value.cost

            def text_of(column: re.Match[str]) -> str:
                nonlocal cost
                if column.group(1) is None:
                    return column.group()
                number = int(column.group(1))
                if number < len(self.schema):
                    picks.add(None)
                    return column.group()
                content = content_of(number)
                cost += content.cost
                return content.text

            return limited(replace(value, text=COLUMN.sub(text_of, value.text), nulls=None, cost=cost))

        with contextlib.suppress(UnsupportedError):
            of_event = write_out(value)
            pick = picks.pop()
            if pick is not None and not picks:
                return of_event, pick
        return None


# ---------------------------------------------------------------------------------------------------- instructions


def _op(operation: Op, argument: int = 0) -> Instruction:
    return int(operation), argument, 0, 0, 0, 0


_COMPARISONS = {
    "=": [Op.EQ], "<>": [Op.EQ, Op.NOT], "<": [Op.LT], "<=": [Op.LE], ">": [Op.LE, Op.NOT], ">=": [Op.LT, Op.NOT],
}  # fmt: skip
_ON_DOUBLES = {
    Op.ADD: Op.ADD_F, Op.SUB: Op.SUB_F, Op.MUL: Op.MUL_F, Op.NEG: Op.NEG_F, Op.ABS: Op.ABS_F, Op.EQ: Op.EQ_F, Op.LT: Op.LT_F,
    Op.LE: Op.LE_F,
}  # fmt: skip
_ARITHMETIC = {"+": Op.ADD, "-": Op.SUB, "*": Op.MUL}
_CHOICES = ("CASE", "COALESCE", "GREATEST", "LEAST")
_ROUNDINGS = {"FLOOR": Op.FLOOR, "CEIL": Op.CEIL, "ROUND": Op.ROUND, "BROUND": Op.ROUND}
_MOST_DIGITS = 12  # for which round_double is exact


class _Emitter:
    """Emits the instructions for a typed value."""

    def __init__(self, programs: Programs, translator: StageTranslator, *, asks: bool = False) -> None:
        """:param asks: whether DuckDB evaluates the Boolean parts that the machine cannot compute"""
        self.programs, self.asks = programs, asks
        self.vectorized = programs.vectorized
        self.translator = translator
        self.zone = translator.zone
        self.text = translator.source
        self.constants: dict[str, tuple[Any] | None] = {}
        self.queries = 0
        self.known: dict[int, tuple[Sql, Code | Exception]] = {}
        """a cache of :meth:`computed`, by value, because an operand can be requested more than once"""

    def program(self, value: Sql) -> list[Instruction]:
        """The instructions for the value of a whole condition."""
        return self.limited(self.code(value))()

    def code(self, value: Sql) -> Code:
        if self.translator.is_pure(value):
            if value.node is None and value.operation is not None and value.operation.name == "IS NOT NULL":
                return self.computed(value)  # NVL2: computing it in advance would change the slots of stored events
            if value.raises and _divides(value):  # where AND or CASE excludes the event, a division must not fail
                with contextlib.suppress(UnsupportedError, ExpressionError):
                    return self.computed(value)
            return self.of_event(value)
        try:
            try:
                return self.mathematical_in_advance(value) or self.computed(value)
            except (UnsupportedError, ExpressionError):
                instead = None if self.is_cast_of_computed(value) else self.in_advance(value)
                if instead is None:
                    raise
                return instead
        except (UnsupportedError, ExpressionError) as problem:
            if self.asks and value.type == BOOLEAN and value.node is not None:
                return self.ask(value.node)
            if not isinstance(problem, UnsupportedError):
                raise
            if value.node is None:
                raise
            raise ExpressionTypeError.at(problem.problem, self.text, position_of(value.node), problem.hint) from None

    def mathematical_in_advance(self, value: Sql) -> Code | None:
        """A mathematical function of one event, whose values are stored. Of several events, the machine computes it."""
        if value.operation is None or value.operation.name not in (*MATH_FUNCTIONS, *_ROUNDINGS):
            return None
        with contextlib.suppress(UnsupportedError):
            return self.in_advance(value)
        return None

    def is_cast_of_computed(self, value: Sql) -> bool:
        """Whether it is an implicit cast of a computed value: the operation that takes it may then be computed in advance."""
        given = _given(value)
        with contextlib.suppress(UnsupportedError, ExpressionError):
            return given is not value and bool(self.computed(given))
        return False

    # ------------------------------------------------------------------ values from events

    def of_event(self, value: Sql) -> Code:
        """A constant, or a value of the current event, which is computed in advance."""
        constant = self.constant(value)
        if constant is not None:
            return lambda: [self.push(constant[0])]
        stored = held(value)
        return lambda: [_op(Op.SLOT, self.programs.slot(stored, self.text))]

    def constant(self, value: Sql) -> tuple[Any] | None:
        """The stack representation of a value that does not depend on events; None if it does."""
        if value.text not in self.constants:
            computed = None
            if not columns_of(value.text):
                with contextlib.suppress(ExpressionError):  # an expression that fails here fails for each event
                    computed = (self._constant(value),)
            self.constants[value.text] = computed
        return self.constants[value.text]

    def _constant(self, value: Sql) -> Any:
        if value.type == NULL:
            return None
        if value.number is not None:
            return value.number
        if isinstance(value.constant, str):
            return value.constant
        if isinstance(value.constant, decimal.Decimal):
            if value.type in INTEGERS:
                return int(value.constant)
            if value.type == DOUBLE:
                return float(value.constant)
            if is_decimal(value.type):
                number = int("".join(f"{value.constant:.{value.type.scale}f}".split(".")))
                return number if _is_narrow(value.type) else _sortable(number)
        self.queries += 1
        if self.queries > _MAX_COMPUTED:
            raise ExpressionSyntaxError.at(
                f"more than {_MAX_COMPUTED:,} computed constants",
                self.text,
                hint="write them as plain numbers",
            )
        scalar = self.vectorized.constant(held(value))
        if pa.types.is_timestamp(scalar.type):
            return scalar.cast(pa.int64()).as_py()
        return scalar.cast(pa.int32()).as_py() if pa.types.is_date(scalar.type) else scalar.as_py()

    def push(self, constant: Any) -> Instruction:
        if constant is None:
            return _op(Op.NULL)
        if isinstance(constant, str):
            return _op(Op.STRING, self.programs.string(constant))
        if isinstance(constant, float):
            return _op(Op.CONST, struct.unpack("<q", struct.pack("<d", constant))[0])
        return _op(Op.CONST, int(constant))

    def in_advance(self, value: Sql) -> Code | None:
        """``f(LAST(a.x), LAST(a.y))`` as ``LAST(f(a.x, a.y))``, if both give the same result for an empty stage, too."""
        for_event = self.translator.for_one_event(value)
        if for_event is None:
            return None
        content, pick = for_event
        casts = [value]  # the casts of the picked value, from the outside in
        while casts[-1].operation is not None and casts[-1].operation.name == "CAST":
            casts += casts[-1].operation.operands
        picked = casts[-1]
        if plain_column(picked.text) not in self.translator.picks:
            if content.raises or not content.strict or pick.func not in (Func.FIRST, Func.LAST):
                return None
        elif content.raises and not picked.raises:
            inner = f"{pick.func.name}(CAST({pick.stage}... AS {name_of(value.type)}))"
            raise UnsupportedError("the CAST can fail, also for events that are not in the stage", inner)
        elif pick.func in (Func.MIN, Func.MAX):
            for to, have in itertools.pairwise(casts):
                if not self.keeps_order(have.type, to.type):
                    raise UnsupportedError(
                        f"{pick.func.name} of {name_of(have.type)} cannot become {name_of(to.type)}", "FIRST or LAST"
                    )
        return self.aggregate(pick.func, pick.stage, content, pick.offset)

    def keeps_order(self, have: pa.DataType, to: pa.DataType) -> bool:
        """Whether a cast preserves the order, so that the least value remains the least."""
        if have == to or (is_numeric(to) and have != STRING):
            return True
        return is_temporal(have) and is_temporal(to) and (have == DATE or is_fixed(self.zone))

    def aggregate(self, func: Func, stage: str, content: Sql | None, offset: int = 0) -> Code:
        stored = None if content is None else held(content)
        kind = Number.INTEGER
        if content is not None and func is not Func.COUNT:
            kind = Number.DOUBLE if content.type in FLOATS else Number.DECIMAL if is_decimal(content.type) else kind

        def code() -> list[Instruction]:
            slot = -1 if stored is None else self.programs.slot(stored, self.text)
            if stage == PREVIOUS:
                return [(int(Op.PREVIOUS), offset + 1, 0, 0, slot, 0)]
            number = self.programs.stage_number(stage)
            return [(int(Op.AGG), offset, int(func), number, slot, int(kind))]

        return code

    # ------------------------------------------------------------------ asked conditions

    def ask(self, node: exp.Expr) -> Code:
        """A Boolean expression that DuckDB evaluates. UnsupportedError: the machine does not hold one of its operands."""
        holder = exp.Paren(this=node.copy())
        schema = self.translator.schema
        operands = self.operands_of_aggregates(holder)
        of_aggregates = {
            id(column) for inside in holder.find_all(*AGGREGATES) for column in inside.find_all(exp.Column)
        }
        for column in holder.find_all(exp.Column):
            if id(column) not in of_aggregates and column.name not in operands and column.name in schema.names:
                content = Sql(f"c{schema.names.index(column.name)}", schema.field(column.name).type)
                operands[column.name] = self.operand(OperandKind.OF_EVENT, content), content, None
        prefix = "_" * (1 + max(map(len, schema.names), default=0))  # a prefix that no column of the events has
        names = {
            key: key if operand.kind is OperandKind.OF_EVENT else f"{prefix}{number}"
            for number, (key, (operand, _, _)) in enumerate(operands.items())
        }
        for aggregate in list(holder.find_all(*AGGREGATES)):
            aggregate.replace(exp.Column(this=exp.to_identifier(names[sql_of(aggregate)], quoted=True)))
        fields = [pa.field(names[key], operand.type) for key, (operand, _, _) in operands.items()]
        expression = Vectorized(pa.schema([*fields, pa.field(prefix, pa.int8())], schema.metadata))
        expression.add(holder.this, self.text)
        text = sql_of(node)

        def code() -> list[Instruction]:
            given = tuple(self.stored(operand, content) for operand, content, _ in operands.values())
            pushed = [push() for _, _, push in operands.values() if push is not None]
            asked = AskedCondition(text, expression, given, len(pushed))
            if asked not in self.programs.asked:
                self.programs.asked.append(asked)
            ask = int(Op.ASK), self.programs.asked.index(asked), 0, len(pushed), 0, 0
            return [*itertools.chain.from_iterable(pushed), ask]

        return code

    def operands_of_aggregates(self, tree: exp.Expr) -> dict[str, tuple[Operand, Sql | None, Code | None]]:
        """For each aggregate, by its SQL: the operand, the values that it picks from, and the code that pushes it."""
        operands: dict[str, tuple[Operand, Sql | None, Code | None]] = {}
        for aggregate in tree.find_all(*AGGREGATES):
            key = sql_of(aggregate)
            if key in operands:
                continue
            name, stage, argument, offset = aggregate_of(aggregate)
            place = sum(code is not None for _, _, code in operands.values())
            if stage != PREVIOUS and name in ("SUM", "COUNT", "AVG"):
                value = self.translator.visit(aggregate)
                number = Operand(OperandKind.NUMBER, given_type(value.type, self.zone), at=place)
                operands[key] = number, None, self.computed(value)
                continue
            assert argument is not None
            content = self.translator.translate(argument)
            if stage == PREVIOUS:
                operands[key] = self.operand(OperandKind.OF_PREVIOUS, content, before=offset + 1), content, None
            elif name in ("FIRST", "LAST"):
                picked = self.picked(Func[name], stage, offset)
                operands[key] = self.operand(OperandKind.OF_PICKED, content, at=place), content, picked
            else:
                extreme = self.aggregate(Func[name], stage, content)
                operands[key] = self.operand(OperandKind.EXTREME, content, at=place), content, extreme
        return operands

    def operand(self, kind: OperandKind, content: Sql, **place: int) -> Operand:
        data_type = self.vectorized.type_of_value(content, self.text)
        return Operand(kind, spark_type(data_type, self.zone) or data_type, **place)

    def stored(self, operand: Operand, content: Sql | None) -> Operand:
        """The operand with the numbers of its values, which are stored with the events."""
        if content is None:
            return operand
        number = self.vectorized.add_value(content, self.text)
        if number not in self.programs.asked_values:
            self.programs.asked_values.append(number)
        is_extreme = operand.kind is OperandKind.EXTREME
        slot = self.programs.slot(held(content), self.text) if is_extreme else -1
        return replace(operand, value=number, slot=slot)

    def picked(self, func: Func, stage: str, offset: int) -> Code:
        """The number of the event that FIRST or LAST picks."""
        return lambda: [(int(Op.AGG), offset, int(func), self.programs.stage_number(stage), EVENT_NUMBER, 0)]

    # ------------------------------------------------------------------ operations

    def computed(self, value: Sql) -> Code:
        """The code of a value computed by the machine, by the operation of the value."""
        if id(value) not in self.known:
            if len(self.known) >= _MAX_STEPS:
                raise self.too_long()
            try:
                self.known[id(value)] = value, self._computed(value)
            except (UnsupportedError, ExpressionError) as problem:
                self.known[id(value)] = value, problem
        code = self.known[id(value)][1]
        if isinstance(code, Exception):
            raise code
        return code

    def _computed(self, value: Sql) -> Code:
        if value.operation is None:
            raise self.unsupported(value.node)
        name, operands = value.operation
        match name:
            case "AND" | "OR":
                return _chain([self.code(operand) for operand in operands], Op.AND if name == "AND" else Op.OR)
            case "BETWEEN":
                return self.between(*operands)
            case "NOT":
                return _not(self.code(operands[0]))
            case "IS NULL":
                return _is_null(self.code(operands[0]))
            case "IS NOT NULL":
                return _not(_is_null(self.code(operands[0])))
            case "IS TRUE":
                return _or_else(self.code(operands[0]), False)
            case "IS FALSE":
                return _not(_or_else(self.code(operands[0]), True))
            case "IS NOT DISTINCT FROM":
                return self.same(*operands)
            case "IS DISTINCT FROM":
                return _not(self.same(*operands))
            case "IN":
                return self.is_in(*self.alike(operands))
            case "CASE" | "COALESCE" | "GREATEST" | "LEAST":
                return self.choice(name, operands, operands)
            case "CAST":
                choice = self.choice_cast(value)
                return self.cast(value, operands[0]) if choice is None else self.choice(*choice)
            case "NEGATIVE" | "ABS":
                return self.unary(Op.NEG if name == "NEGATIVE" else Op.ABS, value, operands[0])
            case "/" | "TRY_DIVIDE":
                return self.divide(*map(self.code, operands), failing=name == "/")
            case "+" | "-" | "*":
                return self.arithmetic(name, value, *operands)
            case "SUM" | "COUNT" | "AVG":
                return self.over_all(value, operands[0])
            case _ if name in MATH_FUNCTIONS or name in _ROUNDINGS:
                return self.mathematical(name, operands)
        return self.comparison(name, operands)

    def unsupported(self, node: exp.Expr | None) -> UnsupportedError:
        name, inside = "this", "f(a.x)"
        if isinstance(node, exp.Div):
            return UnsupportedError(
                "/ of decimals is not supported over events of a stage", "CAST one of them to DOUBLE"
            )
        if node is not None:
            words = {"regexplike": "RLIKE", "trycast": "CAST", "dpipe": "||"}
            name = str(node.this) if isinstance(node, exp.Anonymous) else words.get(node.key, node.key)
        if node is not None and type(node) in ARITHMETIC:
            name = ARITHMETIC[type(node)]
            inside = f"a.x {name} 2"
        return UnsupportedError(
            f"{name.upper()} is not supported over events of a stage",
            f"put it inside: LAST({inside}); outside, it is supported only over FIRST or LAST, if it cannot fail",
        )

    # -- decimals of more digits than the stack holds
    #
    # Those that the machine computes are integers all the same: numbers of units of 10 ** -scale, of which every operation checks
    # that they fit into 64 bits.

    def is_scaled(self, value: Sql) -> bool:
        """Whether it is a decimal of more than 18 digits that the machine computes. Others are strings (:func:`held`)."""
        if not is_decimal(value.type) or _is_narrow(value.type) or value.operation is None or self.programs.narrow:
            return False
        name, operands = value.operation
        if name == "CASE":
            operands = (*operands[1:-1:2], operands[-1])
        if name in (*_CHOICES, "CAST"):
            return any(map(self.is_scaled, operands))
        return not self.translator.is_pure(value) and name in (*_ARITHMETIC, "NEGATIVE", "ABS", "SUM", "AVG")

    def codes(self, values: Sequence[Sql]) -> list[Code]:
        """The code of values of one type."""
        if any(map(self.is_scaled, values)):
            return [self.scaled(value, values[0].type.scale) for value in values]
        return [self.code(value) for value in values]

    def scaled(self, value: Sql, scale: int) -> Code:
        """A number as an integer, in units of ``10 ** -scale``. UnsupportedError: it would be rounded, or is a long column."""
        given = _given(value)
        kind = given.type
        constant = self.scaled_constant(given, scale)
        if constant is not None:
            return lambda: [self.push(constant[0])]
        is_held = kind in INTEGERS or _is_narrow(kind)
        shift = scale - (kind.scale if is_decimal(kind) else 0)
        if not 0 <= shift <= _DIGITS or not (is_held or given.operation is not None):
            raise UnsupportedError(
                f"{name_of(kind)} has too many digits beside a computed DECIMAL over events of a stage",
                f"CAST it to DOUBLE, or to a DECIMAL of at most {_DIGITS} digits",
            )
        code = self.code(given) if is_held or self.is_scaled(given) else self.computed(given)
        factor = _op(Op.CONST, 10**shift), _op(Op.MUL)
        return (lambda: [*code(), *factor]) if shift else code

    def scaled_constant(self, value: Sql, scale: int) -> tuple[int | None] | None:
        if self.constant(value) == (None,):
            return (None,)
        if not isinstance(value.constant, decimal.Decimal):
            return None
        number = value.constant.scaleb(scale, _EXACTLY)
        return (int(number),) if number == number.to_integral_value() and abs(number) < 2**63 else None

    def scaled_arithmetic(self, operator: str, kind: pa.DataType, a: Sql, b: Sql) -> Code:
        scales = (a.type.scale, b.type.scale) if operator == "*" else (kind.scale, kind.scale)
        if kind.scale != (sum(scales) if operator == "*" else max(a.type.scale, b.type.scale)):
            raise UnsupportedError(
                f"{operator} would round its result over events of a stage",
                "CAST one side to DOUBLE, or to fewer digits",
            )
        left, right = self.scaled(a, scales[0]), self.scaled(b, scales[1])
        return lambda: [*left(), *right(), _op(_ARITHMETIC[operator])]

    def cast_scaled(self, value: Sql, inner: Sql) -> Code:
        have, to = inner.type, value.type
        if to == DOUBLE:
            code = self.code(inner)
            return lambda: [*code(), _op(Op.SCALED_TO_FLOAT, have.scale)]
        if is_decimal(to) and to.scale >= have.scale and to.precision - to.scale >= have.precision - have.scale:
            return self.scaled(inner, to.scale)
        raise UnsupportedError(
            f"{name_of(have)} cannot become {name_of(to)} over events of a stage", "CAST the columns in it"
        )

    # -- aggregates over all events of a stage

    def over_all(self, value: Sql, content: Sql) -> Code:
        assert value.node is not None
        name, stage, argument, _ = aggregate_of(value.node)
        if name == "COUNT":
            if is_nested(content.type) or content.type == NULL:
                content = Sql(f"nullif(({content.text} IS NULL), TRUE)", BOOLEAN, None, content.raises)
        elif is_decimal(content.type):
            if not _is_narrow(content.type):
                raise UnsupportedError(
                    f"{name} of {name_of(content.type)} is not supported over events of a stage",
                    f"CAST it to DOUBLE, or to a DECIMAL of at most {_DIGITS} digits",
                )
        elif content.type not in INTEGERS:
            content = cast(content, DOUBLE, self.zone)
        return self.aggregate(Func[name], stage, None if argument is None else content)

    # -- choices

    def choice(self, name: str, operands: Sequence[Sql], results: Sequence[Sql]) -> Code:
        """The one of *results* whose index is that of the chosen one of *operands*."""
        if name == "CASE":
            chosen = iter(self.as_long([*results[1:-1:2], results[-1]]))
            return self.case([*itertools.chain.from_iterable(zip(results[:-1:2], chosen, strict=False)), *chosen])
        if name == "COALESCE":
            return _chain(self.codes(self.as_long(results)), Op.COALESCE)
        return self.extreme("<" if name == "GREATEST" else ">", self.as_long(operands), self.as_long(results))

    def choice_cast(self, value: Sql) -> tuple[str, Sequence[Sql], Sequence[Sql]] | None:
        """A choice whose result is cast, as a choice of cast results, which can often be computed in advance."""
        name, operands = value.operation or Operation("", ())
        if name in _CHOICES:
            return name, operands, operands
        choice = self.choice_cast(operands[0]) if name == "CAST" else None
        if choice is None:
            return None
        is_case, last = choice[0] == "CASE", len(choice[2]) - 1
        results = [
            part if is_case and at % 2 == 0 and at < last else cast(part, value.type, self.zone)
            for at, part in enumerate(choice[2])
        ]
        return choice[0], choice[1], results

    def case(self, operands: Sequence[Sql]) -> Code:
        conditions = [self.code(when) for when in operands[:-1:2]]
        *chosen, result = self.codes([*operands[1:-1:2], operands[-1]])
        for condition, then in zip(reversed(conditions), reversed(chosen), strict=True):
            result = self.select(condition, then, result)
        return result

    def extreme(self, operator: str, operands: Sequence[Sql], results: Sequence[Sql]) -> Code:
        """The element of *results* that belongs to the greatest or least non-NULL operand."""
        (best, result), *others = zip(self.codes(operands), self.codes(results), strict=True)
        for code, chosen in others:
            better = self.compare(operator, best, code, operands[0].type)
            first = _is_null(best)
            result = self.select(first, chosen, self.select(better, chosen, result))
            best = self.select(first, code, self.select(better, code, best))
        return result

    def select(self, condition: Code, yes: Code, no: Code) -> Code:
        """*yes* if the condition is TRUE, otherwise *no*."""
        return self.limited(lambda: [*condition(), *yes(), *no(), _op(Op.SELECT)])

    def limited(self, code: Code) -> Code:
        """Limit the size of the code: a value that is used twice is emitted twice, which could exhaust memory."""

        def checked() -> list[Instruction]:
            written = code()
            if len(written) > MAX_OPERATIONS:
                raise self.too_long()
            return written

        return checked

    def too_long(self) -> ExpressionSyntaxError:
        return ExpressionSyntaxError.at("the expression is too long after expansion", self.text)

    # -- comparison

    def alike(self, values: Sequence[Sql]) -> Sequence[Sql]:
        """Operands of a comparison, with decimals that are too long for the stack as doubles if that is equally exact."""
        values, kind = self.as_long(values), values[0].type
        if is_decimal(kind) and (not _is_narrow(kind) or any(map(self.is_longer, values))):
            given = [_given(value) for value in values]
            if any(map(self.is_computed, given)) and all(map(_is_exact, given)):
                return [cast(value, DOUBLE, self.zone) for value in given]
        return values

    def as_long(self, values: Sequence[Sql]) -> Sequence[Sql]:
        """Integers next to a computed one, widened to 64 bits."""
        if values[0].type in INTEGERS and any(self.is_long(_given(value)) for value in values):
            return [self.long(value) for value in values]
        return values

    def long(self, value: Sql) -> Sql:
        """An integer as the machine computes with it."""
        given = _given(value)
        return given if self.is_long(given) else cast(given, BIGINT, self.zone)

    def is_long(self, value: Sql) -> bool:
        """Whether it is an integer computed by the machine, which has 64 bits, whatever its type."""
        if value.type not in INTEGERS or value.operation is None or self.translator.is_pure(value):
            return False
        return value.operation.name in _ARITHMETIC or any(map(self.is_long, value.operation.operands))

    def is_longer(self, value: Sql) -> bool:
        """Whether it is a decimal made from such an integer, which may exceed the digits of its type."""
        given = _given(value)
        return given is not value and is_decimal(value.type) and self.is_long(given)

    def is_computed(self, value: Sql) -> bool:
        """Whether it is computed on the stack and not per event in advance."""
        if value.operation is None or (self.translator.is_pure(value) and not (value.raises and _divides(value))):
            return False
        name, operands = value.operation
        if name == "CASE":
            operands = (*operands[1:-1:2], operands[-1])  # without the conditions
        return name not in (*_CHOICES, "CAST") or any(map(self.is_computed, operands))

    def between(self, *tests: Sql) -> Code:
        codes = []
        for test in tests:
            assert test.operation is not None
            codes.append(self.comparison(*test.operation))
        return _chain(codes, Op.AND)

    def comparison(self, operator: str, operands: Sequence[Sql]) -> Code:
        operands = self.alike(operands)
        a, b = self.codes(operands)
        return self.compare(operator, a, b, operands[0].type)

    def compare(self, operator: str, a: Code, b: Code, data_type: pa.DataType) -> Code:
        ends = [_typed(operation, data_type) for operation in _COMPARISONS[operator]]
        return lambda: [*a(), *b(), *ends]

    def same(self, a: Sql, b: Sql) -> Code:
        equal = _or_else(self.comparison("=", [a, b]), False)
        return self.select(_is_null(self.code(_given(a))), _is_null(self.code(_given(b))), equal)

    def is_in(self, value: Sql, *choices: Sql) -> Code:
        """Search the literals of the list in a table; compare the other items one by one."""
        fixed = [constant for constant in map(self.constant, choices) if constant is not None]
        if len(fixed) < _FEW or any(map(self.is_scaled, [value, *choices])):
            searched, *others = self.codes([value, *choices])
            return _chain([self.compare("=", searched, other, value.type) for other in others], Op.OR)
        searched, *others = map(self.code, [value, *(choice for choice in choices if self.constant(choice) is None)])
        tests = [self.compare("=", searched, other, value.type) for other in others]
        constants = [constant for (constant,) in fixed]
        # -0.0 is equal to 0.0; NaN is equal to itself and larger than every other value.
        items = {item + 0.0 if isinstance(item, float) else item for item in constants if item == item}
        table = sorted(item for item in items if item is not None)
        table += [item for item in constants if item != item][:1]
        has_null, floating = int(None in items), int(value.type in FLOATS)
        rows = tuple(self.push(item) for item in table)

        def search() -> list[Instruction]:
            return [*searched(), (int(Op.IN), 0, len(rows), has_null, floating, self.programs.table(rows))]

        return _chain([search, *tests], Op.OR)

    # -- numbers and times

    def cast(self, value: Sql, inner: Sql) -> Code:
        have, to = inner.type, value.type
        if self.is_scaled(inner):
            return self.cast_scaled(value, inner)
        code = self.computed(inner)
        if (have in INTEGERS and to in INTEGERS and INTEGERS.index(have) <= INTEGERS.index(to)) or (
            have == FLOAT and to == DOUBLE
        ):
            return code
        if have in INTEGERS and to == DOUBLE:
            return lambda: [*code(), _op(Op.TO_FLOAT)]
        if is_decimal(have) and have.precision <= _EXACT and to == DOUBLE:
            divide = [_op(Op.TO_FLOAT), self.push(10.0**have.scale), _op(Op.DIV_F, 1)]
            return lambda: [*code(), *divide]
        if _is_narrow(to) and (is_decimal(have) or have in INTEGERS) and not self.is_longer(value):
            shift = to.scale - (have.scale if is_decimal(have) else 0)
            if shift >= 0:
                return lambda: [*code(), _op(Op.CONST, 10**shift), _op(Op.MUL)]
        raise UnsupportedError(
            f"{name_of(have)} cannot become {name_of(to)} over events of a stage", "CAST the columns in it"
        )

    def unary(self, operation: Op, value: Sql, operand: Sql) -> Code:
        kinds = (*INTEGERS, *FLOATS, *INTERVALS)
        if value.type not in kinds and not _is_narrow(value.type) and not self.is_scaled(operand):
            word = "ABS" if operation is Op.ABS else "-"
            raise UnsupportedError(f"{word} of {name_of(value.type)} is not supported over events of a stage")
        code = self.code(operand)
        return lambda: [*code(), _calculation(operation, value.type)]

    def mathematical(self, name: str, operands: Sequence[Sql]) -> Code:
        if name in ("ROUND", "BROUND"):
            digits = operands[1].constant
            assert isinstance(digits, decimal.Decimal)
            if abs(digits) > _MOST_DIGITS:
                raise UnsupportedError(
                    f"{name} to more than {_MOST_DIGITS} digits is not supported over events of a stage"
                )
            end: Instruction = (int(Op.ROUND), int(digits), int(name == "BROUND"), 0, 0, 0)
            operands = operands[:1]
        elif name in _ROUNDINGS:
            end = _op(_ROUNDINGS[name])
        else:
            end = (int(Op.MATH), int(MATH_FUNCTIONS[name]), int(MATH_FUNCTIONS[name].takes_two), 0, 0, 0)
        codes = [self.code(operand) for operand in operands]
        return lambda: [*itertools.chain.from_iterable(code() for code in codes), end]

    def divide(self, dividend: Code, divisor: Code, *, failing: bool) -> Code:
        if not failing:
            return lambda: [*dividend(), *divisor(), _op(Op.DIV_F, 1)]

        def code() -> list[Instruction]:
            by = divisor()  # first: the order of the slots is that of stored events
            return [*dividend(), *by, _op(Op.DIV_F, 0)]

        return code

    def arithmetic(self, operator: str, value: Sql, a: Sql, b: Sql) -> Code:
        kind, operation = value.type, _ARITHMETIC[operator]
        if kind == FLOAT:
            raise UnsupportedError(
                f"{operator} of two FLOAT is not supported over events of a stage", "CAST(... AS DOUBLE)"
            )
        if MONTHS in (a.type, b.type):
            raise UnsupportedError(
                "an interval in months has no fixed length", "put it inside: LAST(a.x + INTERVAL 1 MONTH)"
            )
        if kind in INTEGERS:  # they have 64 bits here
            a, b = (self.long(part) for part in (a, b))
        elif is_decimal(kind):
            if kind.precision > _DIGITS and not self.programs.narrow:
                return self.scaled_arithmetic(operator, kind, a, b)
            if kind.precision > _DIGITS or self.is_longer(a) or self.is_longer(b):
                raise UnsupportedError(
                    f"{operator} would need more than {_DIGITS} digits over events of a stage",
                    "CAST one side to DOUBLE, or a BIGINT to INT",
                )
            if operator != "*":
                wide = pa.decimal128(kind.precision - 1, kind.scale)
                a, b = (cast(_given(part), wide, self.zone) for part in (a, b))
        elif is_temporal(kind) and b.type in INTERVALS:
            return self.shifted(operation, a, b)
        left, right = self.code(a), self.code(b)
        ends = [_calculation(operation, kind)]
        if a.type == b.type == DATE:
            ends += [_op(Op.CONST, DAY), _op(Op.MUL)]
        return lambda: [*left(), *right(), *ends]

    def shifted(self, operation: Op, moment: Sql, interval: Sql) -> Code:
        constant = self.constant(interval)
        length = constant[0] if constant is not None else None
        left, right = self.code(moment), self.code(interval)
        if moment.type == DATE:
            if length is None:
                raise UnsupportedError("only a fixed number of days can be added to a DATE over events of a stage")
            return lambda: [*left(), _op(Op.CONST, length // DAY), _op(operation)]
        if is_instant(moment.type) and not is_fixed(self.zone) and not (length is not None and abs(length) < DAY):
            # In such a zone a day does not always have 24 hours.
            raise UnsupportedError(
                "an interval of days is not supported over events of a stage", "use at most INTERVAL 23 HOURS"
            )
        return lambda: [*left(), *right(), _op(operation)]


def _typed(operation: Op, data_type: pa.DataType) -> Instruction:
    return _op(_ON_DOUBLES.get(operation, operation) if data_type in FLOATS else operation)


def _calculation(operation: Op, data_type: pa.DataType) -> Instruction:
    """With the number of bits of an integer result, which has 64 bits on the stack whatever its type."""
    bits = data_type.bit_width if data_type in INTEGERS else 0
    return (*_typed(operation, data_type)[:2], bits, 0, 0, 0)


def _not(code: Code) -> Code:
    return lambda: [*code(), _op(Op.NOT)]


def _is_null(code: Code) -> Code:
    return lambda: [*code(), _op(Op.IS_NULL)]


def _or_else(code: Code, value: bool) -> Code:
    """Replace NULL by *value*."""
    return lambda: [*code(), _op(Op.CONST, int(value)), _op(Op.COALESCE)]


def _chain(codes: Sequence[Code], operation: Op) -> Code:
    """All values in turn, combined pairwise by *operation*."""

    def code() -> list[Instruction]:
        joined = list(codes[0]())
        for other in codes[1:]:
            joined += [*_if_it_matters(other(), operation), _op(operation)]
        return joined

    return code


def _if_it_matters(code: list[Instruction], operation: Op) -> list[Instruction]:
    """The right operand of an AND or OR, with which nothing is asked if the left one decides."""
    at = len(code) - 1
    while at > 0 and code[at][0] in (Op.NOT, Op.IS_NULL):
        at -= 1
    if operation in (Op.AND, Op.OR) and code[at][0] == Op.ASK:
        code[at] = (*code[at][:4], int(operation), 0)
    return code


# ---------------------------------------------------------------------------------------------------- how values are held


def _given(value: Sql) -> Sql:
    """The value before its conversion to the type that an operation takes."""
    implicit = value.node is None and value.operation is not None and value.operation.name == "CAST"
    return _given(value.operation.operands[0]) if implicit and value.operation is not None else value


def _divides(value: Sql) -> bool:
    if value.node is not None:
        return value.node.find(exp.Div) is not None
    return value.operation is not None and any(map(_divides, value.operation.operands))


def _is_exact(value: Sql) -> bool:
    """Whether comparisons as doubles give the correct result. Integers have no fraction that could be lost."""
    if isinstance(value.constant, decimal.Decimal):
        return value.constant % 1 == 0 or len(value.constant.as_tuple().digits) <= _EXACT
    return value.type in (*INTEGERS, NULL) or (is_decimal(value.type) and value.type.precision <= _EXACT)


def _is_narrow(data_type: pa.DataType) -> bool:
    """Whether it is a decimal that is an integer on the stack."""
    return is_decimal(data_type) and bool(data_type.precision <= _DIGITS)


def _sortable(number: int) -> str:
    """A string that sorts like the number: the digits of negative numbers are complemented."""
    digits = str(abs(number)).rjust(39, "0")
    return "-" + digits.translate(_OTHER_WAY_ROUND) if number < 0 else "0" + digits


_OTHER_WAY_ROUND = str.maketrans("0123456789", "9876543210")


def held(value: Sql) -> Sql:
    """The value in a type that fits on the stack."""
    kind = value.type
    if kind in INTERVALS:
        return strict("({0} + 0)", BIGINT, value)
    if is_decimal(kind):
        if kind.precision <= _DIGITS:
            return strict(
                f"CAST(({{0}} * CAST({10**kind.scale} AS DECIMAL({kind.scale + 1},0))) AS BIGINT)", BIGINT, value
            )
        # Strings that sort like the numbers, as in _sortable.
        digits = "lpad(replace(replace(CAST({0} AS VARCHAR), '.', ''), '-', ''), 39, '0')"
        text = (
            f"CASE WHEN {{0}} < 0 THEN '-' || translate({digits}, '0123456789', '9876543210') ELSE '0' || {digits} END"
        )
        return strict(f"({text})", STRING, value)
    if kind == FLOAT:
        return strict("CAST({0} AS DOUBLE)", DOUBLE, value)
    if is_nested(kind) or pa.types.is_binary(kind) or kind == MONTHS:
        raise UnsupportedError(f"values of type {name_of(kind)} cannot be compared with earlier events", DOCUMENTATION)
    return value
