"""Conditions over the events of a stage, compiled for the kernel's stack machine.

A value on the stack has 64 bits: integers, Booleans, dates (days), times and intervals (microseconds) are held as integers,
floating point numbers as doubles, texts by their rank, decimals of up to 18 digits as integers of their last digit. What the
machine cannot compute can often be computed for each event in advance: ``upper(LAST(a.x))`` is ``LAST(upper(a.x))``.
"""

from __future__ import annotations

import contextlib
import decimal
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from asterism.errors import ExpressionError, ExpressionSyntaxError, ExpressionTypeError
from asterism.expressions.functions import FUNCTIONS
from asterism.expressions.names import aggregate_of, columns_of, has_aggregate
from asterism.expressions.parsing import AGGREGATES
from asterism.expressions.translation import ARITHMETIC, COMPARISONS, DOCUMENTATION, Translator, position_of
from asterism.expressions.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DAYS,
    DOUBLE,
    FLOAT,
    FLOATS,
    INTEGERS,
    INTERVALS,
    MONTHS,
    NTZ,
    NULL,
    STRING,
    TIME,
    bounded,
    common_type,
    decimal_of,
    is_decimal,
    is_instant,
    is_nested,
    is_numeric,
    is_temporal,
    name_of,
)
from asterism.expressions.values import Sql, UnsupportedError, cast, exact_decimal, is_fixed, strict
from asterism.matching.instructions import STACK, Func, Instruction, Op, Programs

MAX_OPERATIONS = 5000  # of one program; what is used twice is computed twice
_DIGITS = 18  # decimals of so many digits are integers on the stack
_EXACT = 15  # decimals and integers of so many digits compare as doubles as they do themselves
_MAX_COMPUTED = 500  # each takes a query
_FEW = 4  # so few constants of an IN are compared one by one
_DAY = 86_400_000_000  # microseconds

Code = Callable[[], list[Instruction]]


def add_condition(programs: Programs, node: exp.Expr, text: str) -> int:
    """Compile a resolved Boolean expression; the number of its program."""
    programs.tables = []
    code = compile_condition(programs, node, text)
    programs.starts.append(len(programs.ops))
    programs.ends.append(len(programs.ops) + len(code))
    programs.texts.append(text)
    # Tables stand behind the program that searches them, and are found by their distance, wherever both are moved.
    at = [len(code)]
    for table in programs.tables:
        at.append(at[-1] + len(table))
    programs.ops += [(*op[:5], at[op[5]] - number) if op[0] == Op.IN else op for number, op in enumerate(code)]
    programs.ops += itertools.chain.from_iterable(programs.tables)
    return len(programs.starts) - 1


def compile_condition(programs: Programs, node: exp.Expr, text: str) -> list[Instruction]:
    """The program of a resolved Boolean expression; its slots and texts are entered in *programs*."""
    compiler = _Compiler(programs, text)
    part = compiler.part(node)
    if part.type not in (BOOLEAN, NULL):
        raise ExpressionTypeError.at(f"a condition must be BOOLEAN, this one is {name_of(part.type)}", text)
    code = part.code()
    if len(code) > MAX_OPERATIONS:
        raise ExpressionSyntaxError.at("the expression is too long once it is written out", text)
    if _depth(code) > STACK:
        raise ExpressionSyntaxError.at("the expression is too deeply nested", text)
    return code


def _depth(code: Sequence[Instruction]) -> int:
    """How many values are on the stack at most."""
    depth = deepest = 0
    for operation, *_ in code:
        depth += _GROWS.get(Op(operation), -1)
        deepest = max(deepest, depth)
    return deepest


_GROWS = dict.fromkeys((Op.CONST, Op.NULL, Op.STRING, Op.SLOT, Op.AGG), 1) | {Op.SELECT: -2} | dict.fromkeys(
    (Op.TO_FLOAT, Op.TO_FLOAT_BELOW, Op.NEG, Op.ABS, Op.NEG_F, Op.ABS_F, Op.SWAP, Op.NOT, Op.IS_NULL, Op.IN), 0
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a condition: its type in Spark, and what puts its value on the stack."""

    type: pa.DataType
    code: Code
    cast: Callable[[pa.DataType], Part] | None = None
    """to another type, where that happens before the value gets onto the stack"""
    decimal: pa.DataType | None = None
    """the type in which decimal arithmetic takes the value"""
    constant: Any = None
    known: bool = False
    """Is *constant* the value, which depends on nothing?"""


def _op(operation: Op, argument: int = 0) -> Instruction:
    return int(operation), argument, 0, 0, 0, 0


class _Compiler:
    def __init__(self, programs: Programs, text: str) -> None:
        self.programs = programs
        self.vectorized = programs.vectorized
        self.zone = programs.vectorized.zone
        self.text = text
        self.computed = 0
        self.guards: list[Part] = []
        """Without these being TRUE the part at hand does not matter, so it must not fail."""

    def part(self, node: exp.Expr) -> Part:
        node = node.unnest()
        if not has_aggregate(node):
            return self.pure(node)
        try:
            return self.over_stages(node)
        except (UnsupportedError, ExpressionError) as problem:
            instead = self.in_advance(node)
            if instead is not None:
                return instead
            if isinstance(problem, ExpressionError):
                raise
            raise ExpressionTypeError.at(problem.problem, self.text, position_of(node), problem.hint) from None

    # ------------------------------------------------------------------ values from events

    def pure(self, node: exp.Expr) -> Part:
        """A value of the current event, computed in advance. What divides is computed here: it may not matter."""
        value = self.vectorized.translate(node, self.text)
        if value.raises and node.find(exp.Div) is not None:
            with contextlib.suppress(UnsupportedError, ExpressionError):
                return self.over_stages(node)
        return self.leaf(value)

    def in_advance(self, node: exp.Expr) -> Part | None:
        """``f(LAST(a.x), LAST(a.y))`` as ``LAST(f(a.x, a.y))``, if that is the same also where the stage is empty."""
        aggregates = list(node.find_all(*AGGREGATES))
        found = {(type(inner), read.stage, read.offset) for inner in aggregates for read in [aggregate_of(inner)]}
        if len(found) != 1 or not all(column.table for column in node.find_all(exp.Column)):
            return None
        (kind, stage, offset) = next(iter(found))
        if kind not in (exp.First, exp.Last):
            return None
        holder = exp.Paren(this=node.copy())
        for inner in list(holder.find_all(*AGGREGATES)):
            argument = aggregate_of(inner).argument
            assert argument is not None
            inner.replace(argument)
        try:
            value = self.vectorized.translate(holder.this, self.text)
        except ExpressionError:
            return None
        if value.raises or not value.strict:
            return None
        return self.leaf(value, (Func[AGGREGATES[kind]], stage, offset))

    def leaf(self, value: Sql, aggregate: tuple[Func, str, int] | None = None) -> Part:
        """A value of the current event, or the one of an aggregate that picks an event of a stage."""

        def recast(to: pa.DataType) -> Part:
            monotone = is_numeric(to) or value.type in (to, DATE)
            if aggregate is not None and aggregate[0] in (Func.MIN, Func.MAX) and not (monotone or is_fixed(self.zone)):
                raise UnsupportedError(
                    f"{aggregate[0].name} of {name_of(value.type)} cannot become {name_of(to)}", "FIRST or LAST"
                )
            converted = cast(value, to, self.zone)
            if converted.raises and aggregate is not None and not value.raises:
                inner = f"{aggregate[0].name}(CAST({aggregate[1]}... AS {name_of(to)}))"
                raise UnsupportedError("the CAST can fail, also for events that are not in the stage", inner)
            return self.leaf(converted, aggregate)

        if aggregate is None and not columns_of(value.text):
            with contextlib.suppress(ExpressionError):  # what fails, fails for each event
                constant = self._constant(value)
                return Part(value.type, lambda: [self._push(constant)], recast, _exact(value), constant, known=True)

        def code() -> list[Instruction]:
            slot = self.programs.slot(_held(value), self.text)
            if aggregate is None:
                return [_op(Op.SLOT, slot)]
            return [self._aggregate(aggregate[0], aggregate[1], slot, value.type in FLOATS, aggregate[2])]

        return Part(value.type, code, recast, _exact(value))

    def _constant(self, value: Sql) -> Any:
        """What does not depend on events, as it is held on the stack."""
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
        self.computed += 1
        if self.computed > _MAX_COMPUTED:
            raise ExpressionSyntaxError.at(
                f"more than {_MAX_COMPUTED} constants that must be computed",
                self.text,
                hint="write them as plain numbers",
            )
        found = self.vectorized.constant(_held(value))
        return (
            found.cast(pa.int64()).as_py()
            if pa.types.is_timestamp(found.type)
            else (found.cast(pa.int32()).as_py() if pa.types.is_date(found.type) else found.as_py())
        )

    def _push(self, value: Any) -> Instruction:
        if value is None:
            return _op(Op.NULL)
        if isinstance(value, str):
            return _op(Op.STRING, self.programs.string(value))
        if isinstance(value, float):
            return _op(Op.CONST, struct.unpack("<q", struct.pack("<d", value))[0])
        return _op(Op.CONST, int(value))

    def _aggregate(self, func: Func, stage: str, slot: int, floating: bool, offset: int = 0) -> Instruction:
        number = self.programs.scope.stages.index(stage)
        return int(Op.AGG), offset, int(func), number, slot, int(floating)

    def aggregate(self, node: exp.Expr) -> Part:
        name, stage, argument, offset = aggregate_of(node)
        func = Func[name]
        if argument is None:
            return Part(BIGINT, lambda: [self._aggregate(func, stage, -1, False)])
        value = self.vectorized.translate(argument, self.text)
        if func is Func.COUNT:
            counted = value
            if is_nested(value.type) or value.type == NULL:
                counted = Sql(f"nullif(({value.text} IS NULL), TRUE)", BOOLEAN, None, value.raises)
            return Part(
                BIGINT, lambda: [self._aggregate(func, stage, self.programs.slot(_held(counted), self.text), False)]
            )
        if func in (Func.SUM, Func.AVG):
            if not is_numeric(value.type) and value.type != NULL:
                raise UnsupportedError(f"{name} needs numbers, not {name_of(value.type)}")
            whole = value.type in INTEGERS
            summed = value if whole else cast(value, DOUBLE, self.zone)
            return Part(
                BIGINT if whole and func is Func.SUM else DOUBLE,
                lambda: [self._aggregate(func, stage, self.programs.slot(_held(summed), self.text), not whole)],
            )
        return self.leaf(value, (func, stage, offset))

    # ------------------------------------------------------------------ operations

    def over_stages(self, node: exp.Expr) -> Part:
        node = node.unnest()
        if type(node) in AGGREGATES:
            return self.aggregate(node)
        if type(node) in COMPARISONS:
            return self.compare(COMPARISONS[type(node)], *self.both(node))
        if type(node) in ARITHMETIC:
            return self.arithmetic(ARITHMETIC[type(node)], *self.both(node))
        match node:
            case exp.And() | exp.Or():
                return self.junction(node)
            case exp.Not():
                return self.negation(self.boolean(self.part(node.this), "NOT"))
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                same = self.null_safe(self.part(node.this), self.part(node.expression))
                return same if isinstance(node, exp.NullSafeEQ) else self.negation(same)
            case exp.Is():
                return self.is_(node)
            case exp.Between():
                low, high = self.part(node.args["low"]), self.part(node.args["high"])
                value = self.part(node.this)
                return self.both_true(self.compare(">=", value, low), self.compare("<=", value, high))
            case exp.In():
                return self.is_in(*self.unify([self.part(n) for n in (node.this, *node.expressions)], "IN", True))
            case exp.Neg():
                return self.negative(self.part(node.this))
            case exp.Case():
                return self.case(node)
            case exp.Cast() if not node.args.get("safe"):
                return self.convert(self.part(node.this), self._translator().type_of(node))
            case exp.Anonymous():
                return self.call(node)
        raise self.unsupported(node)

    def both(self, node: exp.Expr) -> tuple[Part, Part]:
        left = self.part(node.this)
        with self.only_if(self.negation(self.is_null(left))):
            return left, self.part(node.expression)

    def unsupported(self, node: exp.Expr) -> UnsupportedError:
        name = str(node.this) if isinstance(node, exp.Anonymous) else _word(node)
        return UnsupportedError(
            f"{name.upper()} is not supported over events of a stage",
            "of FIRST or LAST alone it is, where it cannot fail; or put it inside: LAST(f(a.x))",
        )

    def call(self, node: exp.Anonymous) -> Part:
        name = FUNCTIONS[str(node.this).lower()].name
        arguments = node.expressions
        try:
            return self._call(name, arguments)
        except _ArityError:
            raise UnsupportedError(
                f"{name.upper()} does not take {len(arguments)} arguments", FUNCTIONS[name].usage
            ) from None

    def _call(self, name: str, arguments: list[exp.Expr]) -> Part:
        match name, arguments:
            case "abs", [x]:
                part = self.part(x)
                if part.type not in (*INTEGERS, *FLOATS, *INTERVALS) and not _is_narrow(part.type):
                    raise UnsupportedError(f"ABS needs a number, not {name_of(part.type)}")
                return Part(part.type, lambda: [*part.code(), _op(Op.ABS_F if part.type in FLOATS else Op.ABS)])
            case "coalesce", [first, *others]:
                return self.coalesce([first, *others])
            case "ifnull", [_, _]:
                return self.coalesce(arguments)
            case "if", [condition, yes, no]:
                return self.select([(condition, yes)], no, "IF")
            case "nullif", [a, b]:
                value = self.part(a)
                return self.chosen(self.compare("=", value, self.part(b)), _null(value.type), value)
            case "nvl2", [a, b, c]:
                given = self.negation(self.is_null(self.part(a)))
                return self.chosen(given, *self.unify([self.part(b), self.part(c)], "NVL2"))
            case "greatest" | "least", [_, _, *_]:
                values = self.unify([self.part(argument) for argument in arguments], name.upper())
                best = values[0]
                for value in values[1:]:
                    better = self.compare("<" if name == "greatest" else ">", best, value)
                    both = self.chosen(better, value, best)
                    best = self.chosen(self.is_null(best), value, self.chosen(self.is_null(value), best, both))
                return best
            case "try_divide", [a, b]:
                return self.divide(self.part(a), self.part(b), failing=False)
            case "isnull", [a]:
                return self.is_null(self.part(a))
            case "isnotnull", [a]:
                return self.negation(self.is_null(self.part(a)))
            case "equal_null", [a, b]:
                return self.null_safe(self.part(a), self.part(b))
            case (
                (
                    "abs"
                    | "coalesce"
                    | "ifnull"
                    | "if"
                    | "nullif"
                    | "nvl2"
                    | "greatest"
                    | "least"
                    | "try_divide"
                    | "isnull"
                ),
                _,
            ):
                raise _ArityError
        raise UnsupportedError(
            f"{name.upper()} is not supported over events of a stage",
            "of FIRST or LAST alone it is, where it cannot fail; or put it inside: LAST(f(a.x))",
        )

    # -- logic

    @contextlib.contextmanager
    def only_if(self, condition: Part) -> Iterator[None]:
        self.guards.append(condition)
        try:
            yield
        finally:
            self.guards.pop()

    def boolean(self, part: Part, where: str) -> Part:
        if part.type == NULL:
            return _null(BOOLEAN)
        if part.type != BOOLEAN:
            raise UnsupportedError(f"{where} needs BOOLEAN, not {name_of(part.type)}")
        return part

    def junction(self, node: exp.And | exp.Or) -> Part:
        """AND or OR of all that it joins; what comes after a part that decides does not matter."""
        is_and = isinstance(node, exp.And)
        word, operation = ("AND", Op.AND) if is_and else ("OR", Op.OR)
        codes: list[Code] = []
        with contextlib.ExitStack() as stack:
            for inner in node.flatten():
                part = self.boolean(self.part(inner), word)
                codes.append(part.code)
                undecided = self.or_else(part, True) if is_and else self.negation(self.or_else(part, False))
                stack.enter_context(self.only_if(undecided))
        return Part(BOOLEAN, lambda: _chain(codes, operation))

    def negation(self, part: Part) -> Part:
        return Part(BOOLEAN, lambda: [*part.code(), _op(Op.NOT)])

    def both_true(self, a: Part, b: Part) -> Part:
        return Part(BOOLEAN, lambda: [*a.code(), *b.code(), _op(Op.AND)])

    def or_else(self, part: Part, value: bool) -> Part:
        """*value* instead of NULL."""
        return Part(BOOLEAN, lambda: [*part.code(), _op(Op.CONST, int(value)), _op(Op.COALESCE)])

    def is_null(self, part: Part) -> Part:
        return Part(BOOLEAN, lambda: [*part.code(), _op(Op.IS_NULL)])

    def is_(self, node: exp.Is) -> Part:
        part = self.part(node.this)
        if isinstance(node.expression, exp.Null):
            return self.is_null(part)
        truth = bool(node.expression.this)
        same = self.or_else(self.boolean(part, "IS"), not truth)
        return same if truth else self.negation(same)

    def null_safe(self, a: Part, b: Part) -> Part:
        equal = self.or_else(self.compare("=", a, b), False)
        return self.chosen(self.is_null(a), self.is_null(b), equal)

    # -- choices

    def chosen(self, condition: Part, yes: Part, no: Part) -> Part:
        """*yes* where the condition is TRUE, otherwise *no*; both of one type."""

        def recast(to: pa.DataType) -> Part:
            return self.chosen(condition, self.convert(yes, to), self.convert(no, to))

        return Part(
            yes.type if yes.type != NULL else no.type,
            lambda: [*condition.code(), *yes.code(), *no.code(), _op(Op.SELECT)],
            recast,
        )

    def case(self, node: exp.Case) -> Part:
        of = node.this
        branches = [
            (branch.this if of is None else exp.EQ(this=of, expression=branch.this), branch.args["true"])
            for branch in node.args["ifs"]
        ]
        return self.select(branches, node.args.get("default"), "CASE")

    def select(self, branches: list[tuple[exp.Expr, exp.Expr]], otherwise: exp.Expr | None, where: str) -> Part:
        conditions, values = [], []
        with contextlib.ExitStack() as stack:
            for when, then in branches:
                condition = self.boolean(self.part(when), where)
                with self.only_if(condition):
                    values.append(self.part(then))
                conditions.append(condition)
                stack.enter_context(self.only_if(self.negation(self.or_else(condition, False))))
            values.append(_null(NULL) if otherwise is None else self.part(otherwise))
        *values, result = self.unify(values, where)
        for condition, value in zip(reversed(conditions), reversed(values), strict=True):
            result = self.chosen(condition, value, result)
        return result

    def coalesce(self, arguments: list[exp.Expr]) -> Part:
        values: list[Part] = []
        with contextlib.ExitStack() as stack:
            for argument in arguments:
                values.append(self.part(argument))
                stack.enter_context(self.only_if(self.is_null(values[-1])))
        return self.first_of(self.unify(values, "COALESCE"))

    def first_of(self, values: list[Part]) -> Part:
        """The first that is not NULL, of values of one type."""

        def recast(to: pa.DataType) -> Part:
            return self.first_of([self.convert(value, to) for value in values])

        codes = [value.code for value in values]
        return Part(values[0].type, lambda: _chain(codes, Op.COALESCE), recast)

    # -- comparison

    def compare(self, operator: str, a: Part, b: Part) -> Part:
        a, b = self.unify([a, b], operator, True)
        floating = a.type in FLOATS
        equal, less, at_most = (Op.EQ_F, Op.LT_F, Op.LE_F) if floating else (Op.EQ, Op.LT, Op.LE)
        ends = {
            "=": [equal], "<>": [equal, Op.NOT], "<": [less], "<=": [at_most], ">": [Op.SWAP, less], ">=": [Op.SWAP, at_most],
        }[operator]  # fmt: skip
        return Part(BOOLEAN, lambda: [*a.code(), *b.code(), *map(_op, ends)])

    def is_in(self, value: Part, *choices: Part) -> Part:
        """What stands literally in the list is a table that is searched; what does not is compared one by one."""
        fixed = [choice for choice in choices if choice.known]
        tests = [self.compare("=", value, choice).code for choice in choices if not choice.known]
        if len(fixed) < _FEW:
            tests = [self.compare("=", value, choice).code for choice in choices]
        else:
            constants = [choice.constant for choice in fixed]
            # -0.0 is equal to 0.0; NaN is equal to itself, and the largest.
            items = {item + 0.0 if isinstance(item, float) else item for item in constants if item == item}
            table = sorted(item for item in items if item is not None)
            table += [item for item in constants if item != item][:1]
            has_null, floating = int(None in items), int(value.type in FLOATS)
            rows = tuple(self._push(item) for item in table)

            def search() -> list[Instruction]:
                return [*value.code(), (int(Op.IN), 0, len(rows), has_null, floating, self.programs.table(rows))]

            tests.insert(0, search)
        return Part(BOOLEAN, lambda: _chain(tests, Op.OR))

    def unify(self, parts: list[Part], where: str, comparing: bool = False) -> list[Part]:
        """Bring values to the type that Spark finds for all of them."""
        kinds = list(dict.fromkeys(part.type for part in parts))
        found: pa.DataType | None = NULL
        for kind in sorted(kinds, key=lambda kind: kind != STRING):
            found = None if found is None or is_nested(kind) else common_type(found, kind)
        texts = [part for part in parts if part.type == STRING and not isinstance(part.constant, str)]
        if found is None or (found != STRING and texts):
            names = " and ".join(name_of(kind) for kind in kinds if kind != NULL)
            hint = "compare its parts" if any(is_nested(kind) for kind in kinds) else "CAST one of them"
            raise UnsupportedError(f"{where} cannot take {names} together", hint)
        if is_decimal(found) and found.precision > _DIGITS and any(part.cast is None for part in parts):
            exact = all(
                kind in INTEGERS or (is_decimal(kind) and kind.precision <= _EXACT) or kind == NULL for kind in kinds
            )
            if not comparing or not exact:
                raise UnsupportedError(
                    f"{where} would need {name_of(found)} over events of a stage", "CAST(... AS DOUBLE)"
                )
            found = DOUBLE
        return [self.convert(part, found) for part in parts]

    def convert(self, part: Part, to: pa.DataType) -> Part:
        """Bring a value to another type."""
        have = part.type
        if have == to:
            return part
        if have == NULL:
            return _null(to)
        if part.cast is not None:
            return part.cast(to)
        if (have in INTEGERS and to == BIGINT) or (have in INTERVALS and to in INTERVALS):
            return Part(to, part.code)
        if have in INTEGERS and to in FLOATS:
            return Part(DOUBLE, lambda: [*part.code(), _op(Op.TO_FLOAT)])
        if is_decimal(have) and have.precision <= _EXACT and to == DOUBLE:
            divide = [_op(Op.TO_FLOAT), self._push(10.0**have.scale), _op(Op.DIV_F, 1)]
            return Part(DOUBLE, lambda: [*part.code(), *divide])
        if is_decimal(to) and to.precision <= _DIGITS and (is_decimal(have) or have in INTEGERS):
            shift = to.scale - decimal_of(have).scale
            if shift >= 0:
                return Part(to, lambda: [*part.code(), _op(Op.CONST, 10**shift), _op(Op.MUL)])
        raise UnsupportedError(
            f"{name_of(have)} cannot become {name_of(to)} over events of a stage", "CAST the columns in it"
        )

    # -- arithmetic

    def arithmetic(self, operator: str, a: Part, b: Part) -> Part:
        if operator in ("%", "DIV"):
            raise self._no_operator(operator)
        if operator != "/" and any(is_temporal(part.type) or part.type in (*INTERVALS, MONTHS) for part in (a, b)):
            return self.time_arithmetic(operator, a, b)
        for part in (a, b):
            if not is_numeric(part.type) and part.type != NULL:
                hint = "CAST it" if part.type == STRING else None
                raise UnsupportedError(f"{operator} needs numbers, not {name_of(part.type)}", hint)
        if operator == "/":
            return self.divide(a, b, failing=True)
        kinds = [part.type for part in (a, b) if part.type != NULL] or [DOUBLE]
        a, b = (_null(kinds[0]) if part.type == NULL else part for part in (a, b))
        kind = common_type(a.type, b.type)
        if is_decimal(kind):
            return self.decimal_arithmetic(operator, a, b)
        if kind == FLOAT:
            raise UnsupportedError(
                f"{operator} of two FLOAT is not supported over events of a stage", "CAST(... AS DOUBLE)"
            )
        kind = BIGINT if kind in INTEGERS else DOUBLE
        a, b = self.convert(a, kind), self.convert(b, kind)
        plain, floating = {"+": (Op.ADD, Op.ADD_F), "-": (Op.SUB, Op.SUB_F), "*": (Op.MUL, Op.MUL_F)}[operator]
        return Part(kind, lambda: [*a.code(), *b.code(), _op(floating if kind == DOUBLE else plain)])

    def _no_operator(self, operator: str) -> UnsupportedError:
        return UnsupportedError(
            f"{operator} is not supported over events of a stage",
            f"of FIRST or LAST alone it is, where it cannot fail; or put it inside: LAST(a.x {operator} 2)",
        )

    def divide(self, a: Part, b: Part, *, failing: bool) -> Part:
        word = "/" if failing else "TRY_DIVIDE"
        kinds = (a.type, b.type)
        if not all(is_numeric(kind) or kind == NULL for kind in kinds):
            raise UnsupportedError(f"{word} needs numbers")
        if any(is_decimal(kind) for kind in kinds) and not any(kind in FLOATS for kind in kinds):
            raise UnsupportedError(
                f"{word} of decimals is not supported over events of a stage", "CAST one of them to DOUBLE"
            )
        a, b = self.convert(a, DOUBLE), self.convert(b, DOUBLE)
        if not failing:
            return Part(DOUBLE, lambda: [*a.code(), *b.code(), _op(Op.DIV_F, 1)])
        guards = [guard.code for guard in self.guards]

        def code() -> list[Instruction]:
            divisor = b.code()
            if guards and not (b.constant is not None and b.constant != 0):
                divisor = [*_chain(guards, Op.AND), *divisor, self._push(1.0), _op(Op.SELECT)]
            return [*a.code(), *divisor, _op(Op.DIV_F, 0)]

        return Part(DOUBLE, code)

    def decimal_arithmetic(self, operator: str, a: Part, b: Part) -> Part:
        x, y = a.decimal or decimal_of(a.type), b.decimal or decimal_of(b.type)
        scale = x.scale + y.scale if operator == "*" else max(x.scale, y.scale)
        whole = max(x.precision - x.scale, y.precision - y.scale)
        digits = x.precision + y.precision if operator == "*" else whole + scale
        if digits + 1 > _DIGITS:
            kind = name_of(bounded(digits + 1, scale))
            raise UnsupportedError(
                f"{operator} would need {kind} over events of a stage", "CAST one side to DOUBLE, or a BIGINT to INT"
            )
        if operator == "*":
            a, b = self.convert(a, x), self.convert(b, y)
        else:
            wide = pa.decimal128(digits, scale)
            a, b = self.convert(a, wide), self.convert(b, wide)
        operation = {"+": Op.ADD, "-": Op.SUB, "*": Op.MUL}[operator]
        return Part(pa.decimal128(digits + 1, scale), lambda: [*a.code(), *b.code(), _op(operation)])

    def negative(self, part: Part) -> Part:
        if part.type in FLOATS:
            return Part(part.type, lambda: [*part.code(), _op(Op.NEG_F)])
        if part.type not in (*INTEGERS, *INTERVALS) and not _is_narrow(part.type):
            raise UnsupportedError(f"- needs a number, not {name_of(part.type)}")
        return Part(part.type, lambda: [*part.code(), _op(Op.NEG)])

    def time_arithmetic(self, operator: str, a: Part, b: Part) -> Part:
        if MONTHS in (a.type, b.type):
            raise UnsupportedError(
                "an interval in months has no fixed length", "put it inside: LAST(a.x + INTERVAL 1 MONTH)"
            )
        plain = Op.ADD if operator == "+" else Op.SUB
        if operator == "*":
            interval, number = (a, b) if a.type in INTERVALS else (b, a)
            if interval.type in INTERVALS and number.type in INTEGERS:
                return Part(TIME, lambda: [*interval.code(), *number.code(), _op(Op.MUL)])
        elif a.type in INTERVALS and b.type in INTERVALS:
            return Part(a.type if a.type == b.type else TIME, lambda: [*a.code(), *b.code(), _op(plain)])
        elif operator == "+" and is_temporal(b.type) and not is_temporal(a.type):
            return self.time_arithmetic(operator, b, a)
        elif is_temporal(a.type) and b.type in INTERVALS:
            return self.shifted(plain, a, b)
        elif a.type == DATE and b.type in INTEGERS:
            return Part(DATE, lambda: [*a.code(), *b.code(), _op(plain)])
        elif operator == "-" and a.type == b.type == DATE:
            return Part(DAYS, lambda: [*a.code(), *b.code(), _op(Op.SUB), _op(Op.CONST, _DAY), _op(Op.MUL)])
        elif operator == "-" and is_temporal(a.type) and is_temporal(b.type):
            kind = common_type(a.type, b.type)
            if {is_instant(part.type) for part in (a, b)} != {True, False} or DATE in (a.type, b.type):
                # Spark takes the difference of what the clocks show.
                a, b = (self.clock(self.convert(part, kind)) for part in (a, b))
                return Part(TIME, lambda: [*a.code(), *b.code(), _op(Op.SUB)])
        raise UnsupportedError(f"{operator} cannot take {name_of(a.type)} and {name_of(b.type)} together")

    def clock(self, part: Part) -> Part:
        return part if is_fixed(self.zone) else self.convert(part, NTZ)

    def shifted(self, operation: Op, moment: Part, interval: Part) -> Part:
        if moment.type == DATE:
            if interval.type == DAYS and isinstance(interval.constant, int):
                days = interval.constant // _DAY
                return Part(DATE, lambda: [*moment.code(), _op(Op.CONST, days), _op(operation)])
            moment = self.convert(moment, pa.timestamp("us", self.zone))
        hours = isinstance(interval.constant, int) and abs(interval.constant) < _DAY
        if is_instant(moment.type) and not is_fixed(self.zone) and not hours:
            # A day is not always 24 hours long there.
            raise UnsupportedError(
                "an interval of days is not supported over events of a stage", "INTERVAL 23 HOURS at most"
            )
        return Part(moment.type, lambda: [*moment.code(), *interval.code(), _op(operation)])

    def _translator(self) -> Translator:
        return Translator(self.vectorized.schema, self.zone, self.text)


class _ArityError(Exception):
    """A function with a wrong number of arguments."""


def _is_narrow(data_type: pa.DataType) -> bool:
    """Is it a decimal that is an integer on the stack?"""
    return is_decimal(data_type) and bool(data_type.precision <= _DIGITS)


def _exact(value: Sql) -> pa.DataType | None:
    return exact_decimal(value) if value.type in INTEGERS or is_decimal(value.type) else None


def _null(data_type: pa.DataType) -> Part:
    return Part(data_type, lambda: [_op(Op.NULL)], _null, known=True)


def _chain(codes: Sequence[Code], operation: Op) -> list[Instruction]:
    """All values one after the other, joined two by two."""
    code = codes[0]()
    for other in codes[1:]:
        code += [*other(), _op(operation)]
    return code


def _word(node: exp.Expr) -> str:
    return {"regexplike": "RLIKE", "trycast": "CAST", "dpipe": "||"}.get(node.key, node.key)


def _sortable(number: int) -> str:
    """A text that sorts as the number does: of a negative one with each digit the other way round."""
    digits = str(abs(number)).rjust(39, "0")
    return "-" + digits.translate(_OTHER_WAY_ROUND) if number < 0 else "0" + digits


_OTHER_WAY_ROUND = str.maketrans("0123456789", "9876543210")


def _held(value: Sql) -> Sql:
    """The value in a type that fits on the stack."""
    kind = value.type
    if kind in INTERVALS:
        return strict("({0} + 0)", BIGINT, value)
    if is_decimal(kind):
        if kind.precision <= _DIGITS:
            return strict(
                f"CAST(({{0}} * CAST({10**kind.scale} AS DECIMAL({kind.scale + 1},0))) AS BIGINT)", BIGINT, value
            )
        # As _sortable: texts that sort as the numbers do.
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
