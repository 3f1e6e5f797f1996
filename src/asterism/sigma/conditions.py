"""The condition of a Sigma detection as an SQL condition over one event.

A condition of Sigma is either true or false: a field that an event lacks satisfies nothing, so that ``not`` of it is true. In
SQL, it is NULL, and so is ``NOT`` of it. Hence the operand of each ``NOT`` is wrapped in ``COALESCE(..., FALSE)``; AND and OR
need nothing, because a condition counts only if it is TRUE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from asterism.errors import PatternProcessorError
from asterism.text.printable import quoted_name
from asterism.text.sql import ipv4_condition, number_literal, regex_text, text_literal

if TYPE_CHECKING:
    from sigma.types import SigmaCIDRExpression, SigmaFieldReference, SigmaRegularExpression, SigmaString

EXACT_DOUBLE = 2**53
"""All integers up to this one are exact as a DOUBLE."""
_TRUE, _FALSE = "TRUE", "FALSE"


def column_of(field: str) -> str:
    """The column of a field. A dot leads into a STRUCT.

    >>> column_of("CommandLine"), column_of("winlog.event_data.Image")
    ('`CommandLine`', '`winlog`.`event_data`.`Image`')
    """
    parts = field.split(".")
    return ".".join(map(quoted_name, parts if all(parts) else [field]))


class ConditionTranslator:
    """
    :param keyword_columns: the columns in which values without a field are searched
    """

    def __init__(self, keyword_columns: Sequence[str] = ()) -> None:
        self.keyword_columns = keyword_columns

    def sql(self, condition: Any) -> str:
        """The condition in SQL, from the tree of pySigma.

        :raises PatternProcessorError: it cannot be expressed
        :raises sigma.exceptions.SigmaError: it is invalid
        """
        from sigma import conditions

        match condition:
            case conditions.ConditionOR():
                return _joined(" OR ", self._alternatives(condition.args), _FALSE)
            case conditions.ConditionAND():
                return _joined(" AND ", [self.sql(part) for part in _parts(condition)], _TRUE)
            case conditions.ConditionNOT():
                (inner,) = condition.args
                return f"NOT COALESCE({_bare(self.sql(inner))}, FALSE)"
            case conditions.ConditionFieldEqualsValueExpression():
                return self._field(condition.field, condition.value)
            case conditions.ConditionValueExpression():
                return self._keyword(condition.value)
        raise PatternProcessorError("the Sigma rule has no condition")

    def _alternatives(self, parts: Iterable[Any]) -> list[str]:
        """The parts of an OR. Plain texts, and numbers, of the same field become one IN."""
        literals: dict[str, list[str]] = {}
        written: list[str] = []
        for part in parts:
            equality = None if part is None else _equality(part)
            if equality is not None:
                if equality[0] not in literals:
                    written.append(equality[0])  # replaced below
                literals.setdefault(equality[0], []).append(equality[1])
            elif part is not None:
                written.append(self.sql(part))
        return [_in_list(text, literals[text]) if text in literals else text for text in written]

    def _field(self, field: str, value: Any) -> str:
        from sigma import types

        column = column_of(field)
        match value:
            case types.SigmaString():
                return text_condition(column, value)
            case types.SigmaTimestampPart():
                part = value.timestamp_part.name.replace("WEEK", "WEEKOFYEAR")
                return f"{part}(TRY_CAST({column} AS TIMESTAMP)) = {value.number}"
            case types.SigmaNumber():
                return _compared(column, "=", value.number)
            case types.SigmaBool():
                return f"LOWER(CAST({column} AS STRING)) = '{str(value.boolean).lower()}'"
            case types.SigmaRegularExpression():
                return _regex_condition(column, value)
            case types.SigmaCIDRExpression():
                return cidr_condition(column, value)
            case types.SigmaCompareExpression():
                operators = {"LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NEQ": "<>"}
                return _compared(column, operators[value.op.name], value.number.number)
            case types.SigmaFieldReference():
                return _reference(column, value)
            case types.SigmaNull():
                return f"{column} IS NULL"
            case types.SigmaExists():
                return f"{column} IS {'NOT ' if value.exists else ''}NULL"
            case types.SigmaExpansion():
                return self.sql(_or(field, value.values))
            case types.SigmaQueryExpression():
                return f"({value.finalize(field=column)})"
        raise PatternProcessorError(f"values of type {type(value).__name__} are not supported")

    def _keyword(self, value: Any) -> str:
        """A value without a field, which is searched anywhere in the message."""
        from sigma import types

        if isinstance(value, types.SigmaQueryExpression):
            return f"({value.finalize()})"
        if not self.keyword_columns:
            raise PatternProcessorError(
                "the rule searches keywords, and it is not known in which columns",
                "A value without a field is searched in the whole message of an event.",
                'keyword_columns=["message"], or --keyword-column message',
            )
        if isinstance(value, types.SigmaExpansion):
            return _joined(" OR ", [self._keyword(part) for part in value.values], _FALSE)
        if isinstance(value, types.SigmaNumber):
            value = types.SigmaString(str(value.number))
        if isinstance(value, types.SigmaString):
            anything = types.SpecialChars.WILDCARD_MULTI
            value = value if value.startswith(anything) else anything + value
            value = value if value.endswith(anything) else value + anything
        elif not isinstance(value, types.SigmaRegularExpression):
            raise PatternProcessorError(f"a keyword cannot be a {type(value).__name__.removeprefix('Sigma')}")
        return _joined(" OR ", [self._field(column, value) for column in self.keyword_columns], _FALSE)


def _parts(condition: Any) -> list[Any]:
    return [part for part in condition.args if part is not None]


def _or(field: str, values: Sequence[Any]) -> Any:
    from sigma.conditions import ConditionFieldEqualsValueExpression, ConditionOR

    return ConditionOR([ConditionFieldEqualsValueExpression(field, value) for value in values])


def _joined(operator: str, parts: Sequence[str], nothing: str) -> str:
    if len(parts) <= 1:
        return parts[0] if parts else nothing
    return f"({operator.join(parts)})"


def _bare(sql: str) -> str:
    """Without the parentheses that :func:`_joined` has written, within a call."""
    if not sql.startswith("(") or not sql.endswith(")"):
        return sql
    depth, quote, escaped = 0, "", False
    for position, letter in enumerate(sql):
        if quote:
            if escaped:
                escaped = False
            elif letter == "\\" and quote == "'":
                escaped = True
            elif letter == quote:
                quote = ""
        elif letter in "'`":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
            if depth == 0 and position < len(sql) - 1:
                return sql
    return sql[1:-1]


def _in_list(column: str, literals: Sequence[str]) -> str:
    literals = list(dict.fromkeys(literals))
    return f"{column} = {literals[0]}" if len(literals) == 1 else f"{column} IN ({', '.join(literals)})"


def _number_column(column: str, number: float) -> str:
    """The column, which may be a number or a text, as a number."""
    if not isinstance(number, int) or abs(number) <= EXACT_DOUBLE:
        return f"TRY_CAST({column} AS DOUBLE)"
    if abs(number) >= 10**38:
        raise PatternProcessorError(f"the number {number} is out of range")
    return f"TRY_CAST({column} AS DECIMAL(38, 0))"


def _compared(column: str, operator: str, number: float) -> str:
    return f"{_number_column(column, number)} {operator} {number_literal(number)}"


def _text_column(column: str, *, cased: bool) -> str:
    text = f"CAST({column} AS STRING)"
    return text if cased else f"LOWER({text})"


def _cased(value: SigmaString) -> bool:
    from sigma.types import SigmaCasedString

    return isinstance(value, SigmaCasedString)


def _pieces(value: SigmaString) -> list[str | None]:
    """The parts of a text: strings, None for ``*``, and '' for ``?``. Repeated ``*`` are one."""
    from sigma.types import Placeholder, SpecialChars

    pieces: list[str | None] = []
    for part in value.s:
        if isinstance(part, Placeholder):
            raise PatternProcessorError(
                f"the placeholder %{part.name}% has no values",
                hint="a pipeline with the transformation value_placeholders",
            )
        if isinstance(part, SpecialChars):
            if part is SpecialChars.WILDCARD_SINGLE:
                pieces.append("")
            elif pieces[-1:] != [None]:
                pieces.append(None)
        elif part:
            pieces.append(part if _cased(value) else part.lower())
    return pieces


def _equality(condition: Any) -> tuple[str, str] | None:
    """The column and the literal of a comparison with a number, or with a text without wildcards."""
    from sigma.conditions import ConditionFieldEqualsValueExpression
    from sigma.types import SigmaNumber, SigmaString, SigmaTimestampPart

    if not isinstance(condition, ConditionFieldEqualsValueExpression):
        return None
    column, value = column_of(condition.field), condition.value
    if isinstance(value, SigmaNumber) and not isinstance(value, SigmaTimestampPart):
        return _number_column(column, value.number), number_literal(value.number)
    if not isinstance(value, SigmaString) or None in (pieces := _pieces(value)) or "" in pieces:
        return None
    return _text_column(column, cased=_cased(value)), text_literal("".join(map(str, pieces)))


def text_condition(column: str, value: SigmaString) -> str:
    """The comparison with a text that may have wildcards."""
    text = _text_column(column, cased=_cased(value))
    pieces = _pieces(value)
    match pieces:
        case []:
            return f"{text} = ''"
        case [None]:
            return f"{column} IS NOT NULL"
        case [None, str(inner), None] if inner:
            return f"CONTAINS({text}, {text_literal(inner)})"
        case [str(inner), None] if inner:
            return f"STARTSWITH({text}, {text_literal(inner)})"
        case [None, str(inner)] if inner:
            return f"ENDSWITH({text}, {text_literal(inner)})"
        case [str(inner)] if inner:
            return f"{text} = {text_literal(inner)}"
    escapes = str.maketrans({letter: "\\" + letter for letter in "%_\\"})
    pattern = "".join("%" if piece is None else piece.translate(escapes) or "_" for piece in pieces)
    return f"{text} LIKE {text_literal(pattern)}"


def _regex_condition(column: str, value: SigmaRegularExpression) -> str:
    if value.contains_placeholder():
        raise PatternProcessorError("a regular expression has a placeholder without values")
    flags = "".join(sorted(value.sigma_to_re_flag[flag] for flag in value.flags))
    return f"CAST({column} AS STRING) RLIKE {text_literal(regex_text(str(value.regexp), flags))}"


def _reference(column: str, value: SigmaFieldReference) -> str:
    """The comparison with another field of the event."""
    text, other = (_text_column(name, cased=False) for name in (column, column_of(value.field)))
    if value.starts_with and value.ends_with:
        return f"CONTAINS({text}, {other})"
    if value.starts_with or value.ends_with:
        return f"{'STARTSWITH' if value.starts_with else 'ENDSWITH'}({text}, {other})"
    return f"{text} = {other}"


def cidr_condition(column: str, value: SigmaCIDRExpression) -> str:
    """Whether an IP address, as a text, is in a network. IPv6 addresses are as in RFC 5952."""
    from sigma.types import SigmaString

    network = value.network
    if not isinstance(network, IPv4Network):
        patterns = [text_condition(column, SigmaString(pattern)) for pattern in value.expand()]
        return _joined(" OR ", patterns, _FALSE)
    return ipv4_condition(column, network)
