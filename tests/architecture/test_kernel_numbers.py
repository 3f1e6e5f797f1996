"""The numbers of other files that kernels are compiled with."""

from __future__ import annotations

import enum

import pytest

from asterism.expressions.math_functions import MathFunction
from asterism.matching.instructions import Func, Number, Op
from asterism.patterns.automaton import Action, NfaStateKind
from asterism.patterns.sequence import SkipKind
from asterism.windows import trigger_table
from asterism.windows.trigger_table import CallPhase, TriggerPart

NUMBERS: dict[type[enum.Enum], dict[str, int]] = {
    Op: {
        "CONST": 0, "NULL": 1, "STRING": 2, "SLOT": 3, "AGG": 4, "TO_FLOAT": 5, "ADD": 7, "SUB": 8, "MUL": 9,
        "NEG": 10, "ABS": 11, "ADD_F": 12, "SUB_F": 13, "MUL_F": 14, "DIV_F": 15, "NEG_F": 16, "ABS_F": 17, "EQ": 18, "LT": 19,
        "LE": 20, "EQ_F": 21, "LT_F": 22, "LE_F": 23, "NOT": 25, "AND": 26, "OR": 27, "IS_NULL": 28, "COALESCE": 29,
        "SELECT": 30, "PYTHON": 31, "IN": 32, "PREVIOUS": 33, "FACT": 34, "SCALED_TO_FLOAT": 35, "MATH": 36,
        "FLOOR": 37, "CEIL": 38, "ROUND": 39, "ASK": 40,
    },
    Func: {"FIRST": 0, "LAST": 1, "SUM": 2, "COUNT": 3, "AVG": 4, "MIN": 5, "MAX": 6},
    MathFunction: {
        "SQRT": 0, "EXP": 1, "LN": 2, "LOG10": 3, "LOG2": 4, "LOG1P": 5, "EXPM1": 6, "SIN": 7, "COS": 8, "TAN": 9, "COT": 10,
        "SEC": 11, "CSC": 12, "ASIN": 13, "ACOS": 14, "ATAN": 15, "SINH": 16, "COSH": 17, "TANH": 18, "ASINH": 19, "ACOSH": 20,
        "ATANH": 21, "CBRT": 22, "RADIANS": 23, "DEGREES": 24, "SIGN": 25, "RINT": 26, "POW": 40, "ATAN2": 41, "HYPOT": 42,
        "LOG": 43,
    },
    Number: {"INTEGER": 0, "DOUBLE": 1, "DECIMAL": 2},
    Action: {"TAKE": 0, "IGNORE": 1, "PROCEED": 2},
    NfaStateKind: {"START": 0, "NORMAL": 1, "PENDING": 2, "STOP": 3, "FINAL": 4, "LAST": 5},
    SkipKind: {
        "NO_SKIP": 0, "SKIP_TO_NEXT": 1, "SKIP_PAST_LAST_EVENT": 2, "SKIP_TO_FIRST": 3, "SKIP_TO_LAST": 4,
        "FIRST_MATCH_ONLY": 5,
    },
    TriggerPart: {
        "NEVER": 0, "COUNT": 1, "FIRST_EVENT": 2, "FIRST_PROCESSING": 3, "END_EVENT": 4, "END_PROCESSING": 5, "EACH_EVENT": 6,
        "EACH_PROCESSING": 7, "DELTA": 8, "ALL": 9, "ANY": 10, "USER_DEFINED": 11, "SEQUENCE": 12, "ONCE": 13, "UNTIL": 14,
    },
    CallPhase: {"BEFORE": 0, "PROCESSING_TIME": 1, "ELEMENTS": 2, "AFTER": 3},
}  # fmt: skip
"""Of SkipKind, whose values are no numbers, the place in their order."""


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.__name__)
def test_numbers_that_the_kernel_is_compiled_with(kind: type[enum.Enum]) -> None:
    found = {
        member.name: member.value if isinstance(member.value, int) else number for number, member in enumerate(kind)
    }
    assert found == NUMBERS[kind], (
        f"kernels are compiled with the numbers of {kind.__name__}: renumbering needs a change of their file, "
        "because compiled code is cached per file"
    )


def test_columns_and_roles_of_triggers() -> None:
    names = [
        "PLAIN", "EARLY", "LATE", "FINAL", "STEP",
        "KIND", "NUMBER", "PARENT", "ROLE", "WORD", "END_ROW", "END_WORD", "COLUMN",
    ]  # fmt: skip
    assert [getattr(trigger_table, name) for name in names] == [*range(5), *range(8)]
    assert trigger_table.NO_MOMENT == 2**63 - 1
