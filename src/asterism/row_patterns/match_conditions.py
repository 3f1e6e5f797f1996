"""Binds the conditions of a clause to the rows of its input, for the search.

A condition is a conjunction. Conjuncts that read rows near the current one become one bit for each row and variable. Conjuncts
that read only the current row may have been computed before (:mod:`asterism.row_patterns.current_row`). All other conjuncts
become a program for the stack machine of the kernel (:mod:`asterism.matching.condition_programs`). It reads slots, which are
computed for all rows, and *operands*, which depend on the match so far: the value of a row of the match, a count, a sum. If the
stack machine does not support a conjunct, or an expression fails, the search asks for the whole condition
(:mod:`asterism.row_patterns.search`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from asterism.columns.arrays import Ints, Mask, one_chunk
from asterism.columns.failures import evaluated_in_parts
from asterism.columns.groups import mask_of
from asterism.errors import ExpressionError, InvalidEventError
from asterism.expressions.aggregates.accumulators import sort_keys, words_of
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.expressions.names import Scope, columns_of, plain_column
from asterism.expressions.parsing import conjuncts
from asterism.expressions.types import FLOATS, INTEGERS, TIME_ZONE, is_decimal
from asterism.expressions.values import Sql, UnsupportedError
from asterism.matching.condition_programs import add_condition, held
from asterism.matching.instructions import Op, Programs
from asterism.matching.linking import stack_values
from asterism.row_patterns import kernels as k
from asterism.row_patterns import resolution
from asterism.row_patterns.automaton import ACCEPT, RowAutomaton
from asterism.row_patterns.checking import CheckedClause, VariableCondition
from asterism.row_patterns.current_row import ConditionBits, CurrentRow
from asterism.row_patterns.ordered_rows import OrderedRows
from asterism.row_patterns.time_bounds import TimeBound, time_bounds

MAX_KEY = 24  # numbers on which a failure depends; a failure with more is not remembered
_EDGES_FOR_STARTS = 1_000  # of an automaton for which each start may be tested whether a match can begin there
_NARROW = 18  # digits of a decimal that the stack machine holds

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BoundConditions:
    """The conditions of a clause over rows.

    :ivar bits: rows x variables, see :class:`asterism.row_patterns.kernels.RowTables`
    :ivar near: whether the bits are the whole conditions
    :ivar values: the slots, likewise
    :ivar groups: the numbers of the variables and subsets whose rows *conditions* read; None: all rows of the match
    """

    bits: Bits
    near: bool
    values: Ints
    conditions: k.ConditionTables
    groups: Mapping[str | None, int]


class ClauseConditions:
    """The conditions of a clause. They are compiled once, when they are first needed.

    :param current_row: computes the bits of the current row, which :meth:`bound` then takes; None: :meth:`bound` computes all
        conditions
    """

    def __init__(self, clause: CheckedClause, current_row: CurrentRow | None = None) -> None:
        self._clause, self.current_row = clause, current_row

    @cached_property
    def _divided(self) -> _DividedConditions:
        return _divided(self._clause, {} if self.current_row is None else self.current_row.bits)

    @cached_property
    def _programs(self) -> ConditionCompiler:
        compiler = ConditionCompiler(self._clause)
        for name, parts in self._divided.depending.items():
            if parts:
                compiler.add(name, parts)
        for bound in self.time_bounds:
            compiler.add_bound(bound)
        return compiler

    @cached_property
    def time_bounds(self) -> list[TimeBound]:
        return time_bounds(self._clause)

    def bound(self, ordered: OrderedRows, *, in_depth: bool = False) -> BoundConditions:
        """Bind the conditions to the rows of the input.

        :param in_depth: whether the search is depth-first even if the bits are the whole conditions
        """
        clause, divided, words = self._clause, self._divided, ordered.words
        columns = _RowColumns(ordered)
        bits = np.full((columns.count, len(clause.variables)), k.HOLDS, np.uint8)
        jointly = None if divided.joint is None else columns.together(divided.joint)
        for name, near in divided.near.items():
            if jointly is not None:
                column = mask_of(jointly[name]).astype(np.uint8)
            else:
                values, failed = columns.over_leaves(clause.conditions[name], near)
                column = mask_of(values).astype(np.uint8)
                column[failed] = k.UNKNOWN
            bits[:, clause.variables.index(name)] = column
        if self.current_row is not None:
            assert words is not None
            for name, known in self.current_row.bits.items():
                column = bits[:, clause.variables.index(name)]
                possible = self.current_row.possible(name, words)
                if known.whole:
                    column[:] = possible
                    continue
                column[self.current_row.certain(name, words)] = k.SURE if divided.depending[name] else k.HOLDS
                column[~possible] = k.FAILS
        whole = not any(divided.depending.values()) and not (bits == k.UNKNOWN).any()
        values, conditions = self._programs.bound(columns, remembers_all=in_depth)
        return BoundConditions(bits, whole, values, conditions, self._programs.groups)


@dataclass(frozen=True, slots=True)
class _JointConditions:
    """Conditions as expressions over the same columns, so that one query computes all of them.

    :ivar leaves: for each column, the leaf whose values it has
    :ivar numbers: for each variable, the number of its expression
    """

    expressions: Vectorized
    leaves: tuple[resolution.RowValue, ...]
    numbers: dict[str, int]


@dataclass(frozen=True, slots=True)
class _DividedConditions:
    """The conditions of a clause by variable, divided into conjuncts.

    :ivar near: the conjuncts that read rows near the current one, as an expression over the leaves
    :ivar depending: the conjuncts that depend on the match so far
    :ivar joint: all of *near*; None if they are few, or cannot be computed together
    """

    near: dict[str, Vectorized]
    depending: dict[str, list[exp.Expr]]
    joint: _JointConditions | None


def _divided(clause: CheckedClause, known: Mapping[str, ConditionBits]) -> _DividedConditions:
    """:param known: the bits of the current row; conjuncts that are bits are left out"""
    near: dict[str, Vectorized] = {}
    depending: dict[str, list[exp.Expr]] = {}
    trees: dict[str, exp.Expr] = {}
    for name, condition in clause.conditions.items():
        resolved, depending[name] = condition.resolved, []
        bits = known.get(name)
        if bits is not None and bits.whole:
            continue
        if condition.reach is not None:
            near[name], trees[name] = resolved.body, resolved.tree
            continue
        near_parts: list[exp.Expr] = []
        for number, part in enumerate(conjuncts(resolved.tree)):
            if bits is not None and number in bits.parts:
                continue
            leaves = [resolved.leaves[number] for number in _leaf_numbers(part)]
            (
                near_parts if all(resolution.is_near(leaf, condition.names) for leaf in leaves) else depending[name]
            ).append(part)
        if near_parts:
            trees[name] = near_parts[0] if len(near_parts) == 1 else exp.and_(*near_parts)
            near[name] = Vectorized(resolved.body.schema)
            with tried_before():
                near[name].add(trees[name], resolved.source.text)
    return _DividedConditions(near, depending, _joint(clause, trees) if len(trees) > 1 else None)


def _joint(clause: CheckedClause, trees: Mapping[str, exp.Expr]) -> _JointConditions | None:
    leaves: dict[tuple[int, int], resolution.RowValue] = {}
    fields: list[pa.Field] = []
    renamed: dict[str, exp.Expr] = {}
    for name, tree in trees.items():
        resolved = clause.conditions[name].resolved
        holder = exp.Paren(this=tree.copy())
        for column in list(holder.find_all(exp.Column)):
            number = _leaf_numbers(column)[0]
            leaf = resolved.leaves[number]
            assert isinstance(leaf, resolution.RowValue)
            read = leaf.number, leaf.place.steps
            if read not in leaves:
                fields.append(resolved.body.schema.field(number).with_name(f"leaf_{len(leaves)}"))
                leaves[read] = leaf
            column.set("this", exp.to_identifier(f"leaf_{[*leaves].index(read)}", quoted=True))
        renamed[name] = holder.this
    zones = {clause.conditions[name].resolved.body.zone for name in trees}
    if len(zones) > 1:
        return None
    expressions = Vectorized(pa.schema(fields, metadata={TIME_ZONE: zones.pop()}))
    try:
        with tried_before():
            numbers = {
                name: expressions.add(tree, clause.conditions[name].resolved.source.text)
                for name, tree in renamed.items()
            }
    except ExpressionError:  # together they are too large
        return None
    return _JointConditions(expressions, tuple(leaves.values()), numbers)


def _leaf_numbers(tree: exp.Expr) -> list[int]:
    return [int(column.name.removeprefix("leaf_")) for column in tree.find_all(exp.Column)]


# ---------------------------------------------------------------------------------------------------- values of rows


def evaluated_where_possible(expression: Vectorized, rows: pa.Table) -> tuple[pa.Array, Mask]:
    """(the values of the only expression of *expression* over *rows*, a mask of the rows in which it fails or may fail; there the
    value is NULL)
    """
    failed = np.zeros(rows.num_rows, np.bool_)
    columns: list[pa.Array] = []
    for part, column in evaluated_in_parts(lambda part: one_chunk(expression.evaluate(part)[0]), rows):
        failed[part] = column is None
        kind = expression.types[0]
        columns.append(pa.nulls(part.stop - part.start, kind) if column is None else column.cast(kind))
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns), failed


class _RowColumns:
    """Expressions over the rows, each computed once, with masks of the rows in which they fail."""

    def __init__(self, ordered: OrderedRows) -> None:
        self._values, self._ordered = ordered.clause.rows.values, ordered
        self._known: dict[int, tuple[pa.Array, Mask]] = {}
        self._moved: dict[int, pa.Array] = {}
        self.count = ordered.rows.num_rows

    def of_row(self, number: int) -> tuple[pa.Array, Mask]:
        if number not in self._known:
            self._known[number] = evaluated_where_possible(self._values.alone(number), self._ordered.rows)
        return self._known[number]

    def near(self, leaf: resolution.Leaf) -> tuple[pa.Array, Mask]:
        """A leaf of a condition that reads a row near the current one."""
        assert isinstance(leaf, resolution.RowValue)
        column, failed = self.of_row(leaf.number)
        steps = leaf.place.steps
        if not steps:
            return column, failed
        if steps not in self._moved:
            self._moved[steps] = self._ordered.shifted(steps)
        at = self._moved[steps]
        if failed.any():
            failed = mask_of(pa.chunked_array([pa.array(failed).take(at)]))
        else:
            failed = np.zeros(self.count, np.bool_)
        return column.take(at), failed

    def together(self, joint: _JointConditions) -> dict[str, pa.ChunkedArray] | None:
        """The conditions by variable; None if one fails in some row."""
        columns = [self.near(leaf) for leaf in joint.leaves]
        if not columns or any(failed.any() for _, failed in columns):
            return None
        table = pa.table([column for column, _ in columns], names=joint.expressions.schema.names)
        try:
            values = joint.expressions.evaluate(table)
        except InvalidEventError:
            return None
        return {name: values[number] for name, number in joint.numbers.items()}

    def over_leaves(self, condition: VariableCondition, expression: Vectorized) -> tuple[pa.ChunkedArray, Mask]:
        """The first expression over the leaves of a condition, and a mask of the rows in which it fails. It reads only leaves of
        rows near the current one.
        """
        read = columns_of(expression.texts[0])
        leaves = condition.resolved.leaves
        return self.over(expression, {number: self.near(leaves[number]) for number in read})

    def over(self, expression: Vectorized, columns: dict[int, tuple[pa.Array, Mask]]) -> tuple[pa.ChunkedArray, Mask]:
        """The first expression over some columns."""
        read = columns_of(expression.texts[0])
        nothing = pa.nulls(self.count)
        given = [columns[number][0] if number in read else nothing for number in range(len(expression.schema))]
        # If the expression reads no column, a column of NULLs provides the number of rows.
        table = pa.table(given or [nothing], names=expression.schema.names or ["rows"])
        column, failed = evaluated_where_possible(expression, table)
        for number in read:
            failed |= columns[number][1]
        return pa.chunked_array([column]), failed


# ---------------------------------------------------------------------------------------------------- programs

Operand = tuple[int, int, int, int, int, int]
"""A row of the operands of the kernel."""


@dataclass(slots=True)
class _VariableProgram:
    """The parts of the condition of one variable."""

    program: tuple[int, int] = (0, 0)
    start_program: tuple[int, int] = (0, 0)
    start_groups: frozenset[int] = frozenset()
    asks: bool = False
    reads_path: bool = False
    """whether it reads what no operand has"""
    read: set[Operand] = field(default_factory=set)


class ConditionCompiler:
    """Makes the tables of the kernel: first the programs, from a clause, then the slots, from its rows."""

    def __init__(self, clause: CheckedClause) -> None:
        self._clause = clause
        values = clause.rows.schema
        self._label = values.names.index(clause.rows.label)
        self._conditions = {name: _VariableProgram() for name in clause.variables}
        self._groups: list[str | None] = []
        self._operands: list[Operand] = []
        self._registers: list[tuple[int, int, int]] = []
        self._slots: dict[object, int] = {}
        self._slot_columns: list[Callable[[_RowColumns], tuple[pa.Array, Mask]]] = []
        self._operations: list[tuple[int, ...]] = []
        self._strings: dict[str, int] = {}
        self._bounds: list[tuple[int, ...]] = []
        self._bound_reads: list[tuple[int, ...]] = []

    def add(self, name: str, parts: Sequence[exp.Expr]) -> None:
        """Compile the conjuncts of the condition of a variable that depend on the match."""
        condition = self._clause.conditions[name]
        variable_program = self._conditions[name]
        compiled = self.compiled(condition, parts)
        if compiled is None and len(parts) > 1:
            supported = [part for part in parts if self.compiled(condition, [part]) is not None]
            compiled = self.compiled(condition, supported) if supported else None
            variable_program.asks = True
        if compiled is None:
            variable_program.asks = True
        else:
            variable_program.program = self._placed(compiled, variable_program)
        if variable_program.asks:
            self._add_read(condition, parts, variable_program)
        of_start = [part for part in parts if self._reads_only_the_start(condition, part)]
        compiled = self.compiled(condition, of_start) if of_start else None
        if compiled is not None:
            variable_program.start_program = self._placed(compiled, variable_program)
            variable_program.start_groups = frozenset(
                operand[k.GROUP] for operand in compiled.stages if operand[k.KIND] == k.VALUE_OF_ROW
            )

    def _add_read(
        self, condition: VariableCondition, parts: Sequence[exp.Expr], variable_program: _VariableProgram
    ) -> None:
        """Note what a condition reads of the match that the search asks for."""
        for number in {number for part in parts for number in _leaf_numbers(part)}:
            leaf = condition.resolved.leaves[number]
            if resolution.is_near(leaf, condition.names):
                continue
            operand = self._operand(leaf)
            if operand is None:
                variable_program.reads_path = True
            else:
                variable_program.read.add(operand)

    @property
    def groups(self) -> dict[str | None, int]:
        return {name: number for number, name in enumerate(self._groups)}

    def add_bound(self, bound: TimeBound) -> None:
        """Compile the bound of the time of a row of a variable, unless the stack machine does not support it."""
        condition = self._clause.conditions[bound.variable]
        leaves = {number: condition.resolved.leaves[number] for number in bound.reads}
        operands: dict[int, Operand] = {}
        for number, place in bound.reads.items():
            leaf = leaves[number]
            assert isinstance(leaf, resolution.RowValue)
            operand = self._operand(resolution.RowValue(place, leaf.number))
            assert operand is not None
            operands[number] = operand
        # The program of a value is that of a test of the value, without the test.
        test = exp.Is(this=exp.Paren(this=bound.limit.copy()), expression=exp.Null())
        compiled = self._compiled(condition, [test], operands)
        if compiled is None or compiled.programs.ops[-1][0] != Op.IS_NULL:
            return
        first, last = self._placed(compiled, _VariableProgram())
        variable = self._clause.variables.index(bound.variable)
        for operand in operands.values():
            self._bound_reads.append((len(self._bounds), operand[k.GROUP], operand[k.FROM_LAST], operand[k.SKIP]))
        self._bounds.append((variable, first, last - 1, int(bound.strict), bound.unit))

    def _reads_only_the_start(self, condition: VariableCondition, part: exp.Expr) -> bool:
        """Whether a conjunct reads only the number of the match and its first row, or a row that may be the first one."""
        leaves = [condition.resolved.leaves[number] for number in _leaf_numbers(part)]
        return bool(leaves) and all(
            isinstance(leaf, resolution.MatchNumber)
            or (
                isinstance(leaf, resolution.RowValue)
                and not (leaf.labelled or leaf.place.last or leaf.place.skip)
                and leaf.place.steps <= 0
            )
            for leaf in leaves
        )

    def _placed(self, compiled: _CompiledProgram, variable_program: _VariableProgram) -> tuple[int, int]:
        """Add a program to the operations: (the number of its first operation, the number behind its last operation)."""
        begin = len(self._operations)
        self._operations += [self._linked(compiled, operation, variable_program) for operation in compiled.programs.ops]
        return begin + compiled.programs.starts[0], begin + compiled.programs.ends[0]

    # ------------------------------------------------------------------------------------------------ compiling

    def compiled(self, condition: VariableCondition, parts: Sequence[exp.Expr]) -> _CompiledProgram | None:
        """A program for conjuncts; None if the stack machine cannot compute them."""
        operands = {}
        for number in sorted({number for part in parts for number in _leaf_numbers(part)}):
            leaf = condition.resolved.leaves[number]
            if resolution.is_near(leaf, condition.names):
                continue
            operand = self._operand(leaf)
            if operand is None:
                return None
            operands[number] = operand
        return self._compiled(condition, parts, operands)

    def _compiled(
        self, condition: VariableCondition, parts: Sequence[exp.Expr], operands: dict[int, Operand]
    ) -> _CompiledProgram | None:
        """:param operands: the leaves that depend on the match, by number"""
        resolved = condition.resolved
        schema = resolved.body.schema
        for number in operands:
            if is_decimal(schema.field(number).type) and schema.field(number).type.precision > _NARROW:
                narrow = pa.decimal128(_NARROW, schema.field(number).type.scale)
                schema = schema.set(number, pa.field(schema.field(number).name, narrow))
        stages = list(dict.fromkeys(operands.values()))
        names = tuple(f"stage_{number}" for number in range(len(stages)))
        programs = Programs(Scope(schema, names), Vectorized(schema), narrow=True)
        stage_of = {number: names[stages.index(operand)] for number, operand in operands.items()}
        # The machine computes with the value of a SUM; it can compute functions of the value of a row in advance.
        numbers = {
            number
            for number, operand in operands.items()
            if operand[k.KIND] not in (k.VALUE_OF_ROW, k.REGISTER_ROW, k.LABEL_OF_ROW)
            and not is_decimal(schema.field(number).type)
        }
        tree = _with_stages(parts, stage_of, numbers)
        try:
            with tried_before():
                add_condition(programs, tree, resolved.source.text)
        except (UnsupportedError, ExpressionError):
            return None
        compiled = _CompiledProgram(condition, programs, stages, operands)
        return compiled if self._is_sound(compiled) else None

    def _is_sound(self, compiled: _CompiledProgram) -> bool:
        """Whether all operands that are not rows are used unchanged. A program with ``upper`` of a label is not sound."""
        vectorized = compiled.programs.vectorized
        for operation in compiled.programs.ops:
            if operation[0] == Op.AGG and compiled.stages[operation[3]][k.KIND] not in (k.VALUE_OF_ROW, k.REGISTER_ROW):
                text = vectorized.texts[compiled.programs.slots[operation[4]]]
                leaf = next(iter(columns_of(text)), 0)
                if text != held(Sql(f"c{leaf}", vectorized.schema.field(leaf).type)).text:
                    return False
        return True

    def _operand(self, leaf: resolution.Leaf) -> Operand | None:
        """A leaf that depends on the match as an operand; None if there is none for it."""
        match leaf:
            case resolution.MatchNumber():
                return k.MATCH_NUMBER, 0, 0, 0, 0, 0
            case resolution.RowValue(place, number, labelled):
                values = self._clause.rows.values
                if labelled and plain_column(values.texts[number]) != self._label:
                    return None
                kind = k.LABEL_OF_ROW if labelled else k.VALUE_OF_ROW
                return kind, self._group(place.variable), int(place.last), place.skip, place.steps, 0
            case resolution.AggregateValue(variable, _, number):
                plain = self._clause.rows.plain_aggregates.get((variable, number))
                if plain is None:
                    return None
                if plain.number is None:
                    return k.COUNT_OF_GROUP, self._group(variable), 0, 0, 0, 0
                return self._running(variable, plain.function, plain.number)
            case _:  # conditions cannot have others
                return None

    def _running(self, variable: str | None, function: str, number: int) -> Operand | None:
        """The operand of an aggregate that is kept up row by row."""
        kind = self._clause.rows.values.types[number]
        addend: Callable[[pa.Array], pa.Array]
        if function == "count":
            register, use, addend = k.R_COUNT, k.REGISTER_COUNT, _zeros
        elif function in ("min", "max"):
            register, use, addend = k.R_SMALLEST if function == "min" else k.R_LARGEST, k.REGISTER_ROW, _sort_keys
        elif function == "avg" or kind in FLOATS:
            if kind not in (*INTEGERS, *FLOATS):
                return None
            use = k.REGISTER_MEAN if function == "avg" else k.REGISTER_VALUE
            register, addend = k.R_SUM_OF_DOUBLES, partial(pc.cast, target_type=pa.float64(), safe=False)
        elif kind in INTEGERS:
            register, use, addend = k.R_SUM, k.REGISTER_VALUE, partial(pc.cast, target_type=pa.int64())
        elif is_decimal(kind) and kind.precision <= _NARROW:
            register, use, addend = k.R_SUM, k.REGISTER_VALUE, _low_words
        else:
            return None

        def addends(columns: _RowColumns) -> tuple[pa.Array, Mask]:
            column, failed = columns.of_row(number)
            return addend(column), failed

        slot = self._slot(("addend", number, register), addends)
        row = self._group(variable), register, slot
        if row not in self._registers:
            self._registers.append(row)
        # The column of the operand has the argument in each row, for MIN and MAX.
        return use, self._group(variable), number, 0, 0, self._registers.index(row)

    def _group(self, variable: str | None) -> int:
        if variable not in self._groups:
            self._groups.append(variable)
        return self._groups.index(variable)

    def _slot(self, key: object, column: Callable[[_RowColumns], tuple[pa.Array, Mask]]) -> int:
        if key not in self._slots:
            self._slots[key] = len(self._slot_columns)
            self._slot_columns.append(column)
        return self._slots[key]

    # ------------------------------------------------------------------------------------------------ linking

    def _linked(
        self, compiled: _CompiledProgram, operation: Sequence[int], variable_program: _VariableProgram
    ) -> tuple[int, ...]:
        """An operation with the numbers of slots, operands and strings of all conditions."""
        if operation[0] == Op.STRING:
            text = compiled.programs.strings[operation[1]]
            return (*operation[:1], self._strings.setdefault(text, len(self._strings)), *operation[2:])
        if operation[0] == Op.SLOT:
            return (*operation[:1], self._computed(compiled, operation[1]), *operation[2:])
        if operation[0] == Op.AGG:
            operand = compiled.stages[operation[3]]
            variable_program.read.add(operand)
            if operand not in self._operands:
                self._operands.append(operand)
            of_row = operand[k.KIND] in (k.VALUE_OF_ROW, k.REGISTER_ROW)
            slot = self._computed(compiled, operation[4]) if of_row else 0
            return (*operation[:3], self._operands.index(operand), slot, operation[5])
        return tuple(operation)

    def _computed(self, compiled: _CompiledProgram, slot: int) -> int:
        """The slot of an expression of a program."""
        number = compiled.programs.slots[slot]
        expression = compiled.programs.vectorized.alone(number)
        plain = plain_column(expression.texts[0])
        if plain is not None:
            return self._slot(self._source(compiled, plain), partial(self._leaf, compiled, plain))

        def column(columns: _RowColumns) -> tuple[pa.Array, Mask]:
            leaves = {leaf: self._leaf(compiled, leaf, columns) for leaf in columns_of(expression.texts[0])}
            values, failed = columns.over(expression, leaves)
            return one_chunk(values), failed

        return self._slot((id(compiled), number), column)

    def _leaf(self, compiled: _CompiledProgram, number: int, columns: _RowColumns) -> tuple[pa.Array, Mask]:
        """The values of a leaf in the rows that it can read."""
        leaf = compiled.condition.resolved.leaves[number]
        if number not in compiled.operands:
            return columns.near(leaf)
        return columns.of_row(self._source(compiled, number)[1])

    def _source(self, compiled: _CompiledProgram, number: int) -> tuple[int, int]:
        """(distance from the row, number of the expression over rows) of a leaf."""
        leaf = compiled.condition.resolved.leaves[number]
        if isinstance(leaf, resolution.AggregateValue):
            plain = self._clause.rows.plain_aggregates[leaf.variable, leaf.number]
            assert plain.number is not None
            return 0, plain.number
        assert isinstance(leaf, resolution.RowValue)
        return (0 if number in compiled.operands else leaf.place.steps), leaf.number

    # ------------------------------------------------------------------------------------------------ the result

    def bound(self, columns: _RowColumns, *, remembers_all: bool) -> tuple[Ints, k.ConditionTables]:
        """(the values of the slots, the tables)

        :param remembers_all: also remember the failures of states after which the bits are the whole conditions. Otherwise, the
            ends of the earliest matches are sufficient.
        """
        variables = self._clause.variables
        texts = [*self._strings, *variables]
        slots = [column(columns) for column in self._slot_columns]
        values, ranks = stack_values([column for column, _ in slots], np.arange(columns.count), texts)
        for slot, (_, failed) in enumerate(slots):
            values[failed, 2 * slot + 1] = k.FAILED_VALUE
        operations = np.array(self._operations, np.int64).reshape(-1, 6)
        constant = operations[:, 0] == Op.STRING
        operations[constant, 0], operations[constant, 1] = Op.CONST, ranks[operations[constant, 1]]
        keys, first_key, remembers = self._keys(remembers_all)
        members = [[group is None or name in self._clause.names[group] for name in variables] for group in self._groups]
        conditions = k.ConditionTables(
            programs=np.array([self._conditions[name].program for name in variables], np.int64).reshape(-1, 2),
            start_programs=np.array(self._start_programs(), np.int64).reshape(-1, 2),
            asks=np.array([self._conditions[name].asks for name in variables], np.bool_),
            operations=operations,
            operands=np.array(self._operands, np.int64).reshape(-1, 6),
            registers=np.array(self._registers, np.int64).reshape(-1, 3),
            labels=ranks[len(self._strings) :],
            members=np.array(members, np.bool_).reshape(len(self._groups), len(variables)),
            keys=keys,
            first_key=first_key,
            remembers=remembers,
            bounds=np.array(self._bounds, np.int64).reshape(-1, 5),
            bound_reads=np.array(self._bound_reads, np.int64).reshape(-1, 4),
        )
        return values, conditions

    def _start_programs(self) -> list[tuple[int, int]]:
        """For each variable, the program of the conjuncts that are known at the first row of a match."""
        automaton = self._clause.automaton
        first_variables = {
            automaton.names[automaton.variables[target]]
            for target, _, _ in automaton.edges_of(automaton.start)
            if target != ACCEPT
        }
        names = self._clause.names
        of_first_row = {
            number for number, group in enumerate(self._groups) if group is None or first_variables <= names[group]
        }
        small = len(automaton.edges) <= _EDGES_FOR_STARTS
        programs = [self._conditions[name] for name in self._clause.variables]
        return [
            program.start_program if small and program.start_groups <= of_first_row else (0, 0) for program in programs
        ]

    def _keys(self, remembers_all: bool) -> tuple[Ints, Ints, Mask]:
        """The dependencies of the failures of each state: everything that the conditions of later states read."""
        automaton = self._clause.automaton
        depending = [bool(self._conditions[name].read or self._conditions[name].asks) for name in automaton.names]
        known: dict[int, list[tuple[int, int, int]] | None] = {}
        rows: list[tuple[int, int, int]] = []
        first, remembers = [0], []
        for behind in _variables_behind(automaton, depending):
            if behind not in known:
                known[behind] = self._key([name for number, name in enumerate(automaton.names) if behind >> number & 1])
            key = known[behind]
            rows += key or []
            first.append(len(rows))
            remembers.append((bool(behind) or remembers_all) and key is not None)
        return np.array(rows, np.int64).reshape(-1, 3), np.array(first, np.int64), np.array(remembers, np.bool_)

    def _key(self, names: Sequence[str]) -> list[tuple[int, int, int]] | None:
        """Everything that the conditions of these variables read of the match; None if it is too much to remember."""
        key: dict[tuple[int, int, int], None] = {}
        for name in names:
            if self._conditions[name].reads_path:
                return None
            for kind, group, last, skip, distance, register in sorted(self._conditions[name].read):
                match kind:
                    case k.MATCH_NUMBER:
                        key[k.K_MATCH_NUMBER, 0, 0] = None
                    case k.COUNT_OF_GROUP:
                        key[k.K_COUNT, group, 0] = None
                    case k.VALUE_OF_ROW | k.LABEL_OF_ROW:
                        if skip >= MAX_KEY or (kind == k.LABEL_OF_ROW and distance):
                            return None
                        row = k.K_LAST if last else k.K_FIRST
                        label = k.K_LABEL_OF_LAST if last else k.K_LABEL_OF_FIRST
                        for offset in range(skip + 1):
                            key[label if kind == k.LABEL_OF_ROW else row, group, offset] = None
                    case _:
                        key[k.K_REGISTER, register, 0] = None
        size = sum(2 if kind == k.K_REGISTER else 1 for kind, _, _ in key)
        return None if size > MAX_KEY else [*key]


@dataclass(frozen=True, slots=True)
class _CompiledProgram:
    """A program whose stages are operands."""

    condition: VariableCondition
    programs: Programs
    stages: Sequence[Operand]
    operands: dict[int, Operand]
    """by the number of the leaf"""


def _with_stages(parts: Sequence[exp.Expr], stage_of: dict[int, str], numbers: set[int]) -> exp.Expr:
    """The conjunction, with ``LAST(stage.leaf)`` or ``SUM(stage.leaf)`` instead of leaves that depend on the match."""
    holder = exp.Paren(this=exp.and_(*parts) if len(parts) > 1 else parts[0].copy())
    for column in list(holder.find_all(exp.Column)):
        number = _leaf_numbers(column)[0]
        if number in stage_of:
            of_stage = exp.Column(this=column.this.copy(), table=exp.to_identifier(stage_of[number], quoted=True))
            column.replace((exp.Sum if number in numbers else exp.Last)(this=of_stage))
    tree: exp.Expr = holder.this
    return tree


def _variables_behind(automaton: RowAutomaton, depending: Sequence[bool]) -> list[int]:
    """For each state, which of these variables the states and edges behind it have, as bits."""
    depending_of = [(1 << variable) if depending[variable] else 0 for variable in automaton.variables.tolist()]
    behind = [0] * len(depending_of)
    edges = np.column_stack([automaton.edges[:, [0, 2]], automaton.also]).tolist()
    first = automaton.first_edge.tolist()
    changed = True
    while changed:
        changed = False
        for state in reversed(range(len(depending_of))):
            variables = behind[state]
            for target, *unless in edges[first[state] : first[state + 1]]:
                if target != ACCEPT:
                    variables |= depending_of[target] | behind[target]
                for variable in unless:
                    if variable >= 0 and depending[variable]:
                        variables |= 1 << variable
            if variables != behind[state]:
                behind[state], changed = variables, True
    return behind


def _nulls(column: pa.Array) -> Mask:
    return mask_of(pa.chunked_array([pc.is_null(column)]))


def _zeros(column: pa.Array) -> pa.Array:
    return pa.array(np.zeros(len(column), np.int64), mask=_nulls(column))


def _sort_keys(column: pa.Array) -> pa.Array:
    return pa.array(sort_keys(column), mask=_nulls(column))


def _low_words(column: pa.Array) -> pa.Array:
    return pa.array(words_of(column)[:, 0], mask=_nulls(column))
