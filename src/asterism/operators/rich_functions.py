"""User functions that are opened before their first call and closed after the last one.

A function is opened where it is called: in the worker of a task, in a test, or on the driver when a rule is checked. It is opened
as a copy, so that what it keeps (a connection, a model) is never sent to another process.

Source: Flink's ``RichFunction`` and ``OpenContext`` (FLIP-344).
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from asterism.arguments import described, function_name
from asterism.errors import StreamDefinitionError, UserFunctionError


@dataclass(frozen=True, slots=True)
class OpenContext:
    """What a function learns in ``open(context)``.

    :ivar schema: the columns of the events, as an Arrow schema

    A match function or a condition in Python can be an object with the methods ``open(context)`` and ``close()``. Each is
    optional. ``open`` is called before the first call of the function, and ``close`` once after the last one, also after a
    failure.

    On Spark, a function is opened in each task that calls it, and closed at the end of this task. A task has one partition of
    one micro-batch (or of a table), with several key groups, and a worker process runs one task after another. So a query opens
    its functions again in each micro-batch. What is expensive, such as a model, can be kept for all tasks of a process in a
    variable of a module, for example by ``functools.cache``. A function that is not called in a task is not opened there. If
    the process of a task is killed, ``close`` is not called.

    Each time, ``open`` is called with a copy of the object, as it was when the query was defined. Attributes that it sets belong
    to this copy, and need not be picklable.

    >>> from asterism import Pattern
    >>> from asterism.testing import match
    >>> class IsBlocked:
    ...     def open(self, context):
    ...         self.blocked = {"a2"}  # read from a file or a database
    ...
    ...     def __call__(self, events):
    ...         pairs = zip(events["kind"].to_pylist(), events["value"].to_pylist())
    ...         return [f"{kind}{value:.0f}" in self.blocked for kind, value in pairs]
    ...
    ...     def close(self):
    ...         self.blocked = None  # close the connection
    >>> match(Pattern.begin("any").where(IsBlocked()), "a1 a2 a3").matches
    ['a2']
    """

    schema: pa.Schema


class Openable(ABC):
    """A function that is opened before it is called."""

    @abstractmethod
    def opened(self) -> Callable[..., Any]:
        """The function to call. It is opened first, if it is not open yet.

        :raises UserFunctionError: ``open`` failed
        """


class RichFunction(Openable):
    """A user function with ``open`` or ``close``, in one process.

    :param schema: the columns of the events
    :raises StreamDefinitionError: the arguments of ``open`` or ``close`` are others
    """

    def __init__(self, function: Any, schema: pa.Schema) -> None:
        self.__wrapped__ = function  # inspect.signature finds it
        self.__qualname__, self.__module__ = function_name(function), type(function).__module__
        self._context = OpenContext(schema)
        self._opened: Any = None
        for name, arguments in (("open", 2), ("close", 1)):
            method = _method(function, name)
            if method is not None:
                _check_arguments(function, name, method, arguments)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def __call__(self, *arguments: Any) -> Any:
        return self.opened()(*arguments)

    def opened(self) -> Any:
        if self._opened is None:
            function = copy.copy(self.__wrapped__)
            self._prepare(function)
            if _method(function, "open") is not None:
                try:
                    function.open(self._context)
                except Exception as error:
                    raise UserFunctionError(f"{self.__qualname__}.open failed", described(error)) from error
            self._opened = function
        return self._opened

    def _prepare(self, function: Any) -> None:
        """Called before the copy *function* is opened."""

    def close(self) -> None:
        """Close the function, if it is open.

        :raises UserFunctionError: ``close`` failed
        """
        function, self._opened = self._opened, None
        if function is not None and _method(function, "close") is not None:
            try:
                function.close()
            except Exception as error:
                raise UserFunctionError(f"{self.__qualname__}.close failed", described(error)) from error


def _check_arguments(function: object, name: str, method: Callable[..., Any], arguments: int) -> None:
    what = f"{function_name(function)}.{name}"
    try:
        inspect.signature(method).bind(*[None] * arguments)
    except ValueError:  # a method that is not written in Python
        return
    except TypeError as error:
        raise StreamDefinitionError(
            f"{what} cannot be called", str(error), "define open(self, context) and close(self)"
        ) from None
    if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
        raise StreamDefinitionError(f"{what} must be a plain function")


def rich(function: Any, schema: pa.Schema) -> Any:
    """The *function*, as a :class:`RichFunction` if it has ``open`` or ``close``."""
    if isinstance(function, Openable):
        return function
    has_some = any(_method(function, name) is not None for name in ("open", "close"))
    return RichFunction(function, schema) if has_some else function


def _method(function: object, name: str) -> Callable[..., Any] | None:
    method = getattr(type(function), name, None)
    return method if callable(method) else None


def ready(function: Any) -> Any:
    """The function to call for *function*: opened, if it has ``open``.

    :raises UserFunctionError: ``open`` failed
    """
    return function.opened() if isinstance(function, Openable) else function


def close_all(functions: Iterable[object]) -> None:
    """Close all functions that are open, also if closing one of them fails.

    :raises UserFunctionError: ``close`` of one of them failed
    """
    with ExitStack() as stack:
        for function in functions:
            if isinstance(function, RichFunction):
                stack.callback(function.close)
