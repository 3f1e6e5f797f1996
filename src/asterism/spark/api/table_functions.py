"""Operators as table functions: ``FROM TABLE(sessions(TABLE clicks PARTITION BY user, on_time => DESCRIPTOR(ts)))``.

The arguments are read from the tokens of the statement; Spark evaluates the tables and constants in them.

Source: Flink's process table functions (FLIP-440); Spark's table-valued functions.

See docs/decisions/0103.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot.tokenizer_core import Token, TokenType

from asterism.arguments import described, shown
from asterism.errors import ExpressionSyntaxError, StreamDefinitionError
from asterism.operators.stream_operator import Input, Output, StreamOperator
from asterism.row_patterns.statements import StatementTokens, word_of
from asterism.spark.host.chaining import has_upstream
from asterism.streams.data_streams import BroadcastStream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import connect

TableFunction: TypeAlias = "type[StreamOperator] | Callable[..., StreamOperator]"
"""A subclass of StreamOperator, or a function that returns an operator: the parameters are the constants of a call."""
ON_TIME, OUTPUT = "on_time", "output"
"""Arguments that every call can have."""
MAX_ARGUMENTS = 100
_functions: dict[str, TableFunction] = {}
_OPENING = TokenType.L_PAREN
_CALL = "TABLE(my_operator(TABLE clicks PARTITION BY user, on_time => DESCRIPTOR(ts)))"


def register_function(name: str, operator: TableFunction) -> None:
    """Make an operator a table function of :func:`asterism.sql` in this process, for example
    ``register_function("sessions", Sessions)`` for ``SELECT * FROM TABLE(sessions(TABLE clicks PARTITION BY user))``.

    A function with the same name is replaced. Names of functions have no case.

    :param name: an identifier
    :param operator: a subclass of :class:`StreamOperator`, or a function that returns an operator. Its parameters are
        arguments of a call, which must be constants; the inputs of the operator are the tables.
    :raises StreamDefinitionError: it has no name that SQL can have, or it is not an operator

    Runnable examples: docs/operators.md. Source: Flink's process table functions (FLIP-440).
    """
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 100:
        raise StreamDefinitionError(
            f"the name of a table function must be an identifier, not {shown(name)}",
            hint='register_function("sessions", Sessions)',
        )
    check_function(name, operator)
    _functions[name.lower()] = operator


def check_function(name: str, operator: Any) -> None:
    """:raises StreamDefinitionError: it cannot be a table function"""
    if not callable(operator) or (isinstance(operator, type) and not issubclass(operator, StreamOperator)):
        raise StreamDefinitionError(
            f"the table function {name!r:.100} must be a subclass of StreamOperator or return an operator, not {shown(operator)}",
            hint=f"register_function({name!r:.100}, Sessions), without parentheses after the class",
        )
    taken = sorted({ON_TIME, OUTPUT} & _parameters(operator).keys())
    if taken:
        raise StreamDefinitionError(
            f"the table function {name!r:.100} has a parameter {taken[0]!r}",
            f"{ON_TIME} and {OUTPUT} are arguments of every call.",
            f"name it {taken[0] + '_'!r}",
        )


def registered(given: Mapping[str, Any]) -> dict[str, TableFunction]:
    """The functions by their names in lower case: those that are registered, and those that are *given* to a statement."""
    return _functions | {name.lower(): value for name, value in given.items() if is_function(value)}


def is_function(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, StreamOperator)


def _parameters(operator: TableFunction) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(operator).parameters


# ---------------------------------------------------------------------- calls in a statement


class NamedColumn(NamedTuple):
    """A column that a call names, and its place in the statement."""

    name: str
    start: int


@dataclass(frozen=True, slots=True)
class TableArgument:
    """
    :ivar begin, end: the text of the table: a name, or a query in parentheses
    :ivar at: a token of it
    :ivar keys: the columns of PARTITION BY; None: there is none
    :ivar time: the column of ORDER BY
    """

    begin: int
    end: int
    at: int
    keys: Sequence[NamedColumn] | None
    time: NamedColumn | None


@dataclass(frozen=True, slots=True)
class Argument:
    """
    :ivar name: None: it is positional
    :ivar value: a table, the columns of DESCRIPTOR, or the text of a constant
    """

    name: str | None
    start: int
    value: TableArgument | Sequence[NamedColumn] | str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call from *begin* to *end* in the text, with TABLE(...) around it; *keyword* is the index of the token of its name."""

    keyword: int
    name: str
    start: int
    begin: int
    end: int
    arguments: Sequence[Argument]


def calls_in(source: str, statement: StatementTokens, names: Iterable[str]) -> Iterator[FunctionCall]:
    """The calls of the functions *names* in a statement. Calls of other functions are Spark's."""
    known = set(names)
    for at, close in _calls(statement):
        if _name_of(statement.tokens[at]).lower() in known:
            yield _CallReader(source, statement).call(at, close)


def unknown_function(source: str, statement: StatementTokens, names: Iterable[str]) -> ExpressionSyntaxError | None:
    """The error, if a statement that Spark has refused calls a function with a name that is nearly one of *names*."""
    known = list(names)
    for at, _ in _calls(statement):
        name = _name_of(statement.tokens[at])
        close = [] if name.lower() in known else difflib.get_close_matches(name.lower(), known, n=1)
        if close:
            problem = f"there is no table function {name!r:.100}"
            return ExpressionSyntaxError.at(problem, source, statement.tokens[at].start, f"did you mean {close[0]}?")
    return None


def _calls(statement: StatementTokens) -> Iterator[tuple[int, int]]:
    """The calls that are tables: the token of the name, and the last one. They have TABLE(...) around them, or tables as
    arguments.
    """
    tokens, closed_at = statement.tokens, statement.closed_at
    with_tables = {
        statement.opened_by[at]
        for at in range(1, len(tokens))
        if word_of(tokens[at]) == "TABLE" and tokens[at - 1].token_type in (_OPENING, TokenType.COMMA, TokenType.FARROW)
    }
    for at in range(len(tokens) - 1):
        if at + 1 not in closed_at or not _name_of(tokens[at]):
            continue
        within = at >= 2 and tokens[at - 1].token_type is _OPENING and word_of(tokens[at - 2]) == "TABLE"
        if within or at + 1 in with_tables:
            yield at, closed_at[at + 1]


def _name_of(token: Token) -> str:
    is_name = token.token_type is TokenType.IDENTIFIER or (
        token.token_type not in (TokenType.STRING, TokenType.RAW_STRING, TokenType.NUMBER, TokenType.TABLE)
        and re.fullmatch(r"[^\W\d]\w*", token.text)
    )
    return token.text if is_name else ""


class _CallReader:
    """Reads a call."""

    def __init__(self, source: str, statement: StatementTokens) -> None:
        self.source, self.statement, self.tokens, self.at = source, statement, statement.tokens, 0

    def call(self, at: int, close: int) -> FunctionCall:
        name = self.tokens[at]
        first, last = at, close
        around = self.statement.opened_by[at]
        if around >= 1 and around == at - 1 and word_of(self.tokens[around - 1]) == "TABLE":
            first, last = around - 1, close + 1
            if self.statement.closed_at.get(around) != last:
                raise self._error("TABLE(...) around a table function must contain nothing else", last, _CALL)
        self.at = at + 2
        arguments = []
        while self.at < close:
            arguments.append(self._argument(close))
            if len(arguments) > MAX_ARGUMENTS:
                raise self._error(f"more than {MAX_ARGUMENTS} arguments", self.at)
            if self.at < close and self.tokens[self.at].token_type is not TokenType.COMMA:
                raise self._error(
                    f"expected a comma or the end of the call, found {self.tokens[self.at].text:.100}", self.at
                )
            if self.at < close:
                self.at += 1
                if self.at == close:
                    raise self._error("an argument is missing", close)
        begin, end = self.tokens[first].start, self.tokens[last].end + 1
        return FunctionCall(at, name.text, name.start, begin, end, arguments)

    def _error(self, problem: str, at: int, hint: str | None = None) -> ExpressionSyntaxError:
        return ExpressionSyntaxError.at(problem, self.source, self.tokens[at].start, hint)

    def _argument(self, close: int) -> Argument:
        start = self.tokens[self.at].start
        name = None
        if self.tokens[self.at + 1].token_type is TokenType.FARROW:
            name = _name_of(self.tokens[self.at])
            if not name:
                raise self._error("the name of an argument must be an identifier", self.at)
            self.at += 2
        word = word_of(self.tokens[self.at])
        if word == "TABLE":
            return Argument(name, start, self._table(close))
        if word == "DESCRIPTOR" and self.at + 1 in self.statement.closed_at:
            self.at += 1
            return Argument(name, start, self._columns_in_parentheses())
        first = self.at
        while self.at < close and not (
            self.tokens[self.at].token_type is TokenType.COMMA
            and self.statement.opened_by[self.at] == self.statement.opened_by[first]
        ):
            self.at += 1
        if self.at == first:
            raise self._error("an argument is missing", first)
        return Argument(name, start, self.source[self.tokens[first].start : self.tokens[self.at - 1].end + 1])

    def _table(self, close: int) -> TableArgument:
        self.at += 1
        first = self.at
        if first in self.statement.closed_at:
            self.at = self.statement.closed_at[first] + 1
        else:
            self._name("TABLE needs the name of a table, or a query in parentheses")
            while self.tokens[self.at].token_type is TokenType.DOT:
                self.at += 1
                self._name("the name of a table is incomplete")
        begin, end = self.tokens[first].start, self.tokens[self.at - 1].end + 1
        keys: Sequence[NamedColumn] | None = None
        time = None
        words = [" ".join(word_of(token).split()) for token in self.tokens[self.at : self.at + 3]]
        if words == ["WITH", "SINGLE", "PARTITION"]:
            self.at += 3
            keys = []
        elif words and words[0] == "PARTITION BY":
            self.at += 1
            keys = self._columns_in_parentheses() if self.at in self.statement.closed_at else self._columns(close)
        if " ".join(word_of(self.tokens[self.at]).split()) == "ORDER BY":
            self.at += 1
            inside = self.at in self.statement.closed_at
            columns = self._columns_in_parentheses() if inside else [self._column()]
            if len(columns) != 1:
                raise self._error("ORDER BY of a table is its event time, a single column", self.at - 1)
            time = columns[0]
            self.at += word_of(self.tokens[self.at]) == "ASC"
            if word_of(self.tokens[self.at]) == "DESC":
                raise self._error("ORDER BY of a table is its event time, in ascending order", self.at)
        return TableArgument(begin, end, first, keys, time)

    def _name(self, problem: str) -> str:
        name = _name_of(self.tokens[self.at])
        if not name:
            raise self._error(problem, self.at, _CALL)
        self.at += 1
        return name

    def _column(self) -> NamedColumn:
        """A column, perhaps after the name of its table."""
        start = self.tokens[self.at].start
        name = self._name("expected the name of a column")
        while self.tokens[self.at].token_type is TokenType.DOT:
            self.at += 1
            name = self._name("expected the name of a column")
        return NamedColumn(name, start)

    def _columns(self, close: int) -> list[NamedColumn]:
        """Columns until something that begins another argument."""
        columns = [self._column()]
        while self.tokens[self.at].token_type is TokenType.COMMA and self.at + 1 < close:
            following, after = self.tokens[self.at + 1], self.tokens[self.at + 2].token_type
            if (
                not _name_of(following)
                or after is TokenType.FARROW
                or word_of(following) == "TABLE"
                or after is _OPENING
            ):
                break
            self.at += 1
            columns.append(self._column())
        return columns

    def _columns_in_parentheses(self) -> list[NamedColumn]:
        end = self.statement.closed_at[self.at]
        self.at += 1
        columns = [self._column()]
        while self.tokens[self.at].token_type is TokenType.COMMA:
            self.at += 1
            columns.append(self._column())
        if self.at != end:
            raise self._error("expected the name of a column", self.at)
        self.at += 1
        return columns


# ---------------------------------------------------------------------- a call as a DataFrame


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The options of a statement for the watermarks of its streams."""

    max_out_of_orderness: timedelta = timedelta(0)
    idle_after: timedelta | None = None
    watermark_by: Sequence[str] = ()

    def of(self, df: DataFrame) -> dict[str, Any]:
        """The options for one of its tables, which has an event time."""
        is_read = df.isStreaming and not has_upstream(df)
        return {
            "max_out_of_orderness": self.max_out_of_orderness,
            "idle_after": self.idle_after if df.isStreaming else None,
            "watermark_by": self.watermark_by if is_read else (),
        }


@dataclass(frozen=True, slots=True)
class CallRunner:
    """Connects the operators of the calls of a statement to their tables.

    :param read: the table between two places of the statement, as seen from a token
    """

    source: str
    functions: Mapping[str, TableFunction]
    spark: SparkSession
    read: Callable[[int, int, int], DataFrame]
    options: Mapping[str, Any] = field(default_factory=dict)
    watermarks: Watermarks = field(default_factory=Watermarks)

    def run(self, call: FunctionCall) -> DataFrame:
        """
        :raises ExpressionSyntaxError: an argument is wrong
        """
        function = self.functions[call.name.lower()]
        tables = [each for each in call.arguments if isinstance(each.value, TableArgument)]
        times: Sequence[NamedColumn] = ()
        output: str | None = None
        constants = []
        for argument in call.arguments:
            name = (argument.name or "").lower()
            if name == ON_TIME or isinstance(argument.value, list):
                times = self._times(argument, name)
            elif isinstance(argument.value, str) and name == OUTPUT:
                output = str(self._constant(argument))
            elif isinstance(argument.value, str):
                constants.append(argument)
        operator = self._operator(call, function, constants)
        inputs: dict[str, Input] = operator.declared(Input)
        named = self._by_name(call, inputs, tables)
        streams, used = {}, set()
        for name, argument in named.items():
            assert isinstance(argument.value, TableArgument)
            streams[name], time = self._stream(inputs[name], argument, argument.value, times)
            used.add(time)
        for column in times:
            if column not in used:
                problem = f"no table of the call has the column {column.name!r:.100}"
                raise ExpressionSyntaxError.at(problem, self.source, column.start)
        outputs = list(operator.declared(Output))
        if output is None and len(outputs) != 1:
            problem = f"{call.name} has {len(outputs)} outputs"
            hint = f"{OUTPUT} => {outputs[0]!r}" if outputs else "declare one: rows = Output(...)"
            raise ExpressionSyntaxError.at(problem, self.source, call.start, hint)
        if output is not None and output not in outputs:
            start = next(each.start for each in call.arguments if (each.name or "").lower() == OUTPUT)
            problem = f"{call.name} has no output {output!r:.100}"
            raise ExpressionSyntaxError.at(problem, self.source, start, self._nearly(output, outputs))
        rows: DataFrame = connect(operator, streams, **self.options).output(outputs[0] if output is None else output)
        return rows

    def _nearly(self, name: str, known: Iterable[str]) -> str:
        known = list(known)
        close = difflib.get_close_matches(name.lower(), known, n=1)
        return f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}" if known else "there are none"

    def _times(self, argument: Argument, name: str) -> Sequence[NamedColumn]:
        if name != ON_TIME or isinstance(argument.value, str | TableArgument):
            problem = "DESCRIPTOR is the event time" if name != ON_TIME else f"{ON_TIME} must be the event time"
            raise ExpressionSyntaxError.at(problem, self.source, argument.start, f"{ON_TIME} => DESCRIPTOR(ts)")
        return argument.value

    def _operator(self, call: FunctionCall, function: TableFunction, constants: Sequence[Argument]) -> StreamOperator:
        parameters = list(_parameters(function))
        by_lower = {name.lower(): name for name in parameters}
        values: dict[str, Any] = {}
        for argument in constants:
            if argument.name is None:
                name = next((each for each in parameters if each not in values), None)
                if name is None:
                    problem = (
                        f"{call.name} takes {len(parameters)} constants"
                        if parameters
                        else f"{call.name} takes no constants"
                    )
                    raise ExpressionSyntaxError.at(problem, self.source, argument.start, "a table is TABLE clicks")
            else:
                name = by_lower.get(argument.name.lower())
                if name is None:
                    raise self._unknown(call, argument, [*parameters, ON_TIME, OUTPUT])
                if name in values:
                    problem = f"the argument {argument.name!r:.100} is given twice"
                    raise ExpressionSyntaxError.at(problem, self.source, argument.start)
            values[name] = self._constant(argument)
        try:
            operator = function(**values)
        except StreamDefinitionError:
            raise
        except Exception as error:
            problem = f"{call.name} cannot be created: {described(error)}"
            raise ExpressionSyntaxError.at(problem, self.source, call.start) from error
        if not isinstance(operator, StreamOperator):
            raise StreamDefinitionError(
                f"the table function {call.name!r:.100} returned {shown(operator)}, not an operator"
            )
        return operator

    def _unknown(self, call: FunctionCall, argument: Argument, known: Iterable[str]) -> ExpressionSyntaxError:
        problem = f"{call.name} has no argument {argument.name!r:.100}"
        return ExpressionSyntaxError.at(problem, self.source, argument.start, self._nearly(argument.name or "", known))

    def _constant(self, argument: Argument) -> Any:
        """The value of an expression without columns."""
        try:
            row = self.spark.sql(f"SELECT {argument.value} AS value").first()
        except PySparkException as error:
            condition = re.match(r"\[[\w.]+\]", str(error))  # Spark 3.5 has no getCondition()
            problem = f"the argument must be a constant of Spark SQL{' ' + condition[0] if condition else ''}"
            raise ExpressionSyntaxError.at(problem, self.source, argument.start) from None
        assert row is not None
        return row[0]

    def _by_name(
        self, call: FunctionCall, inputs: Mapping[str, Input], tables: Sequence[Argument]
    ) -> dict[str, Argument]:
        by_lower = {name.lower(): name for name in inputs}
        arguments: dict[str, Argument] = {}
        for argument in tables:
            if argument.name is None:
                name = next((each for each in inputs if each not in arguments), None)
                if name is None:
                    problem = f"{call.name} has {len(inputs)} input{'s' * (len(inputs) != 1)}"
                    raise ExpressionSyntaxError.at(problem, self.source, argument.start, f"inputs: {', '.join(inputs)}")
            else:
                name = by_lower.get(argument.name.lower())
                if name is None:
                    raise self._unknown(call, argument, inputs)
                if name in arguments:
                    problem = f"the input {name!r:.100} has two tables"
                    raise ExpressionSyntaxError.at(problem, self.source, argument.start)
            arguments[name] = argument
            self._check_keys(call, inputs[name], argument)
        missing = [name for name in inputs if name not in arguments]
        if missing:
            problem = f"{call.name} has no table for its input {missing[0]!r:.100}"
            by = "" if inputs[missing[0]].broadcast else " PARTITION BY ..."
            raise ExpressionSyntaxError.at(problem, self.source, call.start, f"{missing[0]} => TABLE ...{by}")
        return arguments

    def _check_keys(self, call: FunctionCall, declared: Input, argument: Argument) -> None:
        table = argument.value
        assert isinstance(table, TableArgument)
        if declared.broadcast and table.keys is not None:
            problem = f"the input {declared.name!r} of {call.name} is broadcast and has no PARTITION BY"
            raise ExpressionSyntaxError.at(problem, self.source, argument.start)
        if not declared.broadcast and table.keys is None:
            problem = f"the input {declared.name!r} of {call.name} is keyed and needs PARTITION BY"
            text = self.source[table.begin : table.end]
            hint = f"TABLE {text:.100} PARTITION BY user; or WITH SINGLE PARTITION, for one key"
            raise ExpressionSyntaxError.at(problem, self.source, argument.start, hint)

    def _stream(
        self,
        declared: Input,
        argument: Argument,
        table: TableArgument,
        times: Sequence[NamedColumn],
    ) -> tuple[KeyedStream | BroadcastStream, NamedColumn | None]:
        """The stream of a table, and the column of *times* that is its event time."""
        df = self.read(table.begin, table.end, table.at)
        for name in declared.schema.names:
            actual = _find(name, df.columns)
            if actual not in (None, name):
                df = df.withColumnRenamed(actual, name)
        time_columns = [column for column in times if _find(column.name, df.columns) is not None]
        if len(time_columns) > 1:
            problem = f"the table has two of the columns of {ON_TIME}: {time_columns[0].name:.100}, {time_columns[1].name:.100}"
            raise ExpressionSyntaxError.at(problem, self.source, argument.start, f"{ON_TIME} => DESCRIPTOR(ts)")
        if time_columns and table.time is not None:
            problem = f"the event time of a table is its ORDER BY or a column of {ON_TIME}, not both"
            raise ExpressionSyntaxError.at(problem, self.source, table.time.start)
        time = time_columns[0] if time_columns else table.time
        options: dict[str, Any] = {"time": None if time is None else self._column(time, df)}
        if time is not None:
            options |= self.watermarks.of(df)
        stream: KeyedStream | BroadcastStream
        if declared.broadcast:
            stream = BroadcastStream(df, **options)
        else:
            stream = KeyedStream(df, key=[self._column(column, df) for column in table.keys or ()], **options)
        return stream, time_columns[0] if time_columns else None

    def _column(self, column: NamedColumn, df: DataFrame) -> str:
        actual = _find(column.name, df.columns)
        if actual is None:
            problem = f"the table has no column {column.name!r:.100}"
            raise ExpressionSyntaxError.at(problem, self.source, column.start, self._nearly(column.name, df.columns))
        return actual


def _find(name: str, columns: Sequence[str]) -> str | None:
    """The column with this name; or the only one whose name is equal if case is ignored."""
    if name in columns:
        return name
    equal_but_for_case = [column for column in columns if column.lower() == name.lower()]
    return equal_but_for_case[0] if len(equal_but_for_case) == 1 else None
