"""The rows by key of each kind of operator."""

from __future__ import annotations

from asterism.errors import StateError
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.savepoints.key_states import (
    JoinStates,
    KeyStates,
    OperatorStates,
    PatternStates,
    RowPatternStates,
    WindowsStates,
)
from asterism.savepoints.rule_sets import RuleSets
from asterism.savepoints.rule_states import RuleStates

_KINDS: dict[OperatorKind, type[KeyStates]] = {
    OperatorKind.PATTERN: PatternStates,
    OperatorKind.ROW_PATTERN: RowPatternStates,
    OperatorKind.WINDOWS: WindowsStates,
    OperatorKind.JOIN: JoinStates,
    OperatorKind.OPERATOR: OperatorStates,
}


def key_states(definition: StateDefinition, rules: RuleSets | None = None) -> KeyStates:
    """
    :param rules: those of a query with rules
    :raises StateError: a query with rules has none
    """
    if definition.kind is not OperatorKind.RULES:
        return _KINDS[definition.kind](definition)
    if rules is None:
        raise StateError(
            "the state is that of rules, but their sets are missing", hint="restore the folder of the sets of rules"
        )
    return RuleStates(definition, rules)
