"""The outputs and metrics that the class of an operator or of a function declares, while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asterism.operators.key_group import Group
from asterism.operators.stream_operator import TOOLS, RunningOperator, Tool, declared_in


class Emitted(NamedTuple):
    """Outputs and metrics with what a call has added to them."""

    tools: Sequence[Tool] = ()

    def add_to(self, group: Group) -> None:
        for tool in self.tools:
            tool.add_to(group)


class Tools:
    """The outputs and metrics of a running operator or function, whose attributes they become."""

    def __init__(self, runtime: RunningOperator) -> None:
        declared = declared_in(type(runtime.operator), TOOLS)
        self._tools: dict[str, Tool] = {name: tool.running_in(runtime) for name, tool in declared.items()}
        self.reset()
        runtime.operator.__dict__["_tools"] = self._tools

    def reset(self) -> None:
        """Discard what was added."""
        for tool in self._tools.values():
            tool.reset()

    def taken(self) -> Emitted:
        """What was added since the last call of this method or of :meth:`reset`.

        :raises OperatorError: a row does not fit its output
        """
        return Emitted([tool.taken() for tool in self._tools.values()])
