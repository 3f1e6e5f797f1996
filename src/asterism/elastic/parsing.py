"""Reads the text of an EQL query.

The grammar is that of Elasticsearch 8, without ``join``, ``fork`` and the lineage operators (``child of``) of Endgame's EQL.
Source: https://www.elastic.co/guide/en/elasticsearch/reference/current/eql-syntax.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple, NoReturn

from asterism.elastic import syntax
from asterism.errors import ExpressionSyntaxError, UnsupportedSyntaxError

MAX_TEXT = 100_000
"""The maximum number of characters of a query."""
MAX_DEPTH = 40
"""The maximum nesting of an expression."""
MAX_OPERATIONS = 40
"""The maximum number of arithmetic operations of a query."""
MAX_DIGITS = 40
"""The maximum number of characters of a number."""
MAX_STEPS = 20
"""The maximum number of items of a sequence or a sample."""
MAX_RUNS = 100
"""The maximum number in ``with runs``, as in Elasticsearch."""
_TOKEN = re.compile(
    r'''(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<raw>"""(?:[^\r\n]*?)""""?"?)
    |(?P<text>"(?:\\.|[^"\\\r\n])*")
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<quoted>`(?:[^`\r\n]|``)+`)
    |(?P<name>[A-Za-z_@][A-Za-z0-9_@]*)
    |(?P<sign>!\[|==|!=|<=|>=|[-+*/%<>=:,.()\[\]|~?!])''',
    re.VERBOSE | re.DOTALL,
)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'"}
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_KEYWORDS = {"and", "or", "not", "in", "like", "regex", "where", "true", "false", "null", "by", "with", "until", "of"}
_PIPES = {"head": 1, "tail": 1}


class _EqlToken(NamedTuple):
    kind: str
    text: str
    start: int


def parse(text: str) -> syntax.EqlQuery:
    """Read a query.

    :raises ExpressionSyntaxError: it is invalid; UnsupportedSyntaxError: it is EQL that is not supported. Both have the position

    >>> parse("process where pid == 4 | head 1").pipes
    (EqlPipe(name='head', arguments=(EqlLiteral(value=1),)),)
    """
    return _EqlParser(text).query()


def parts_at_parameters(text: str) -> tuple[str, ...]:
    """A text of a template, of which every second part is the name of a parameter. A parameter stands for an operand.

    :raises ExpressionSyntaxError: the text has other characters than a query

    >>> parts_at_parameters('process where name : (:one, ":no") and pid > :limit')
    ('process where name : (', 'one', ', ":no") and pid > ', 'limit', '')
    """
    tokens, parts, end = _EqlParser(text).tokens, [], 0
    before = _EqlToken("sign", "", 0)
    for token, name in pairwise(tokens):
        is_operand = (before.kind != "sign" and before.text.lower() not in _KEYWORDS) or before.text in (")", "]")
        if token.text == ":" and name.kind == "name" and name.start == token.start + 1 and not is_operand:
            parts += [text[end : token.start], name.text]
            end = name.start + len(name.text)
        before = token
    return (*parts, text[end:])


def literal(value: str | float | bool) -> str:
    r"""A value as it is written in a query.

    >>> print(literal('say "*"\\'), literal(True), literal(-1.5))
    "say \"*\"\\" true -1.5
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    escapes = {letter: f"\\{name}" for name, letter in _ESCAPES.items() if letter != "'"}
    return '"' + "".join(escapes.get(letter, letter) for letter in value) + '"'


class _EqlParser:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT:
            raise ExpressionSyntaxError(f"the query has {len(text):,} characters (limit {MAX_TEXT:,})")
        self.text, self.at, self.depth, self.operations = text, 0, 0, 0
        self.tokens = self._tokens()

    def _tokens(self) -> Sequence[_EqlToken]:
        tokens, position = [], 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None or (match.lastgroup == "sign" and self.text.startswith("/*", position)):
                problem, hint = "unexpected character", None
                if self.text.startswith("/*", position):
                    problem = "the comment is not closed"
                if self.text[position] == "'":
                    problem, hint = "strings are written in double quotes", 'write "..."'
                elif self.text[position] == '"':
                    problem = "the string is not closed"
                raise ExpressionSyntaxError.at(problem, self.text, position, hint)
            kind = str(match.lastgroup)
            if kind == "number" and (len(match[0]) > MAX_DIGITS or math.isinf(float(match[0]))):
                raise ExpressionSyntaxError.at("the number is too large", self.text, position)
            if kind != "space":
                tokens.append(_EqlToken(kind, match[0], position))
            position = match.end()
        tokens.append(_EqlToken("end", "", len(self.text)))
        return tokens

    # ------------------------------------------------------------------ tokens

    @property
    def token(self) -> _EqlToken:
        return self.tokens[self.at]

    def next(self) -> _EqlToken:
        token = self.token
        self.at += token.kind != "end"
        return token

    def is_sign(self, *signs: str) -> bool:
        return self.token.kind == "sign" and self.token.text in signs

    def is_word(self, *words: str) -> bool:
        return self.token.kind == "name" and self.token.text.lower() in words

    def take(self, sign: str) -> bool:
        if self.is_sign(sign):
            self.next()
            return True
        return False

    def take_word(self, word: str) -> bool:
        if self.is_word(word):
            self.next()
            return True
        return False

    def expect(self, sign: str) -> _EqlToken:
        if not self.is_sign(sign):
            self.fail(f"expecting {sign}")
        return self.next()

    def fail(self, problem: str, token: _EqlToken | None = None, hint: str | None = None) -> NoReturn:
        raise ExpressionSyntaxError.at(problem, self.text, (token or self.token).start, hint)

    def unsupported(self, problem: str, token: _EqlToken | None = None, hint: str | None = None) -> NoReturn:
        raise UnsupportedSyntaxError.at(problem, self.text, (token or self.token).start, hint)

    # ------------------------------------------------------------------ queries

    def query(self) -> syntax.EqlQuery:
        of: syntax.EqlEventQuery | syntax.EqlSequence | syntax.EqlSample
        start = self.token
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        is_event = following.kind == "name" and following.text.lower() == "where"
        if not is_event and self.take_word("sequence"):
            of = self._sequence(start)
        elif not is_event and self.take_word("sample"):
            by = self._by()
            of = syntax.EqlSample(by, self._steps(are_ordered=False), start=start.start)
            self._check_keys(of.by, of.steps, start)
        elif not is_event and self.is_word("join"):
            self.unsupported("join is not supported")
        else:
            of = self._event_query()
        pipes = []
        while self.take("|"):
            pipes.append(self._pipe())
        if self.token.kind != "end":
            self.fail("unexpected text after the query")
        return syntax.EqlQuery(self.text, of, tuple(pipes))

    def _event_query(self) -> syntax.EqlEventQuery:
        token = self.next()
        if token.kind == "name":
            category = None if token.text.lower() == "any" else token.text
        elif token.kind in ("text", "raw"):
            category = self._text_of(token)
        elif token.kind == "quoted":
            category = token.text[1:-1].replace("``", "`")
        else:
            self.fail("expecting an event category and where", token, "any where true")
        if not self.take_word("where"):
            self.fail(
                "expecting where", hint="an event query is: category where condition; any stands for all categories"
            )
        condition, last = self._or(), self.tokens[self.at - 1]
        return syntax.EqlEventQuery(category, condition, start=token.start, end=last.start + len(last.text))

    def _sequence(self, start: _EqlToken) -> syntax.EqlSequence:
        by, maxspan = self._by(), None
        if self.take_word("with"):
            maxspan = self._maxspan()
            by = by or self._by()
        steps = self._steps(are_ordered=True)
        until = None
        if self.take_word("until"):
            [until] = self._step(is_until=True)
        if len(steps) < 2:
            self.fail("a sequence has at least two events", start)
        if all(step.absent for step in steps):
            self.fail("a sequence has an event that is not absent", start)
        if any(step.absent for step in steps) and maxspan is None:
            self.fail("an absent event requires `with maxspan`", start, "sequence with maxspan=5m ...")
        self._check_keys(by, [*steps, *([until] if until is not None else [])], start)
        return syntax.EqlSequence(by, maxspan, steps, until, start=start.start)

    def _check_keys(self, by: Sequence[syntax.EqlNode], steps: Sequence[syntax.EqlStep], start: _EqlToken) -> None:
        counts = {len(step.by) for step in steps}
        if len(counts) > 1:
            self.fail("the events have different numbers of keys", start, "give each event as many keys: [ ] by pid")

    def _maxspan(self) -> timedelta:
        if not self.take_word("maxspan"):
            self.fail("expecting maxspan", hint="with maxspan=5m")
        self.expect("=")
        token = self.next()
        unit = self.next()
        if token.kind != "number" or unit.kind != "name" or unit.text not in _UNITS or token.text.strip("0.") == "":
            self.fail("maxspan is a number with a unit: ms, s, m, h or d", token, "with maxspan=5m")
        seconds = float(token.text) * _UNITS[unit.text]
        if seconds > timedelta.max.total_seconds() / 2:
            self.fail("maxspan is too long", token)
        return timedelta(seconds=seconds)

    def _steps(self, *, are_ordered: bool) -> tuple[syntax.EqlStep, ...]:
        steps: list[syntax.EqlStep] = []
        items = 0
        while self.is_sign("[", "!["):
            items += 1
            if items > MAX_STEPS:
                self.fail(f"more than {MAX_STEPS} items", hint="with runs=3, for the same event three times")
            steps += self._step(is_ordered=are_ordered)
        if not steps:
            self.fail("expecting [", hint="[process where true]")
        return tuple(steps)

    def _step(self, *, is_ordered: bool = True, is_until: bool = False) -> list[syntax.EqlStep]:
        start = self.next()
        absent = start.text == "!["
        if start.text not in ("[", "![") or (absent and (is_until or not is_ordered)):
            self.fail("expecting [", start)
        query = self._event_query()
        self.expect("]")
        if self.is_word("fork", "as"):
            self.unsupported(f"{self.token.text} is not supported")
        by, runs = self._by(), 1
        if self.take_word("with"):
            if not self.take_word("runs"):
                self.fail("expecting runs", hint="with runs=3")
            self.expect("=")
            token = self.next()
            if token.kind != "number" or not token.text.isdecimal() or not 1 <= int(token.text) <= MAX_RUNS:
                self.fail(f"runs is an integer from 1 to {MAX_RUNS}", token)
            if not is_ordered or is_until:
                self.fail("runs is for events of a sequence", token)
            runs = 1 if absent else int(token.text)  # an event that is absent is absent each time
            by = by or self._by()
        return [syntax.EqlStep(query, by, absent, start=start.start)] * runs

    def _by(self) -> tuple[syntax.EqlNode, ...]:
        return tuple(self._list()) if self.take_word("by") else ()

    def _list(self) -> list[syntax.EqlNode]:
        values = [self._or()]
        while self.take(","):
            values.append(self._or())
        return values

    def _pipe(self) -> syntax.EqlPipe:
        token = self.next()
        name = token.text.lower()
        if token.kind != "name":
            self.fail("expecting the name of a pipe", token)
        if name not in ("head", "tail", "count", "unique", "filter", "sort"):
            self.unsupported(f"the pipe {name} is not supported", token, "head, tail, count, unique, filter or sort")
        arguments = [] if self.is_sign("|") or self.token.kind == "end" else self._list()
        if name in ("head", "tail"):
            value: object = (
                arguments[0].value if len(arguments) == 1 and isinstance(arguments[0], syntax.EqlLiteral) else None
            )
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                self.fail(f"{name} needs a number of events", token, f"| {name} 10")
        elif name == "count" and arguments:
            self.fail("count has no arguments", token)
        elif name == "filter" and len(arguments) != 1:
            self.fail("filter needs a condition", token, "| filter pid > 4")
        elif name in ("unique", "sort") and not arguments:
            self.fail(f"{name} needs fields", token, f"| {name} pid")
        return syntax.EqlPipe(name, tuple(arguments), start=token.start)

    # ------------------------------------------------------------------ expressions

    def _or(self) -> syntax.EqlNode:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("the expression is nested too deeply")
        node = self._junction("or", lambda: self._junction("and", self._not))
        self.depth -= 1
        return node

    def _junction(self, word: str, part: Callable[[], syntax.EqlNode]) -> syntax.EqlNode:
        start, parts = self.token, [part()]
        while self.take_word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else syntax.EqlJunction(word, tuple(parts), start=start.start)

    def _not(self) -> syntax.EqlNode:
        start, count = self.token, 0
        while self.take_word("not"):
            count += 1
        node = self._comparison()
        return syntax.EqlNot(node, start=start.start) if count % 2 else node

    def _comparison(self) -> syntax.EqlNode:
        left = self._sum()
        token = self.token
        if self.is_sign("="):
            self.fail("= is not a comparison", hint="==, or : regardless of case")
        if self.is_sign(*_COMPARISONS):
            operator = self.next().text
            return syntax.EqlOperation(operator, left, self._sum(), start=token.start)
        negated = self.is_word("not")
        if negated:
            following = self.tokens[self.at + 1]
            if not (following.kind == "name" and following.text.lower() in ("in", "like", "regex")):
                return left
            self.next()
        if self.is_sign(":") or self.is_word("in", "like", "regex"):
            operator = self.next().text.lower()
            if operator != ":" and self.take("~"):
                operator += "~"
            node: syntax.EqlNode
            if operator.startswith("in"):
                self.expect("(")
                node = syntax.EqlOneOf(left, tuple(self._list()), operator == "in~", start=token.start)
                self.expect(")")
            else:
                node = syntax.EqlMatches(operator, left, self._patterns(operator), start=token.start)
            return syntax.EqlNot(node, start=token.start) if negated else node
        return left

    def _patterns(self, operator: str) -> tuple[syntax.EqlLiteral, ...]:
        start = self.token
        values = self._in_parentheses() if self.take("(") else [self._sum()]
        patterns = [value for value in values if isinstance(value, syntax.EqlLiteral)]
        is_text = operator != ":"
        if len(patterns) < len(values) or (is_text and not all(isinstance(p.value, str) for p in patterns)):
            self.fail(f"the right side of {operator} is a text, or several in parentheses", start)
        return tuple(patterns)

    def _in_parentheses(self) -> list[syntax.EqlNode]:
        values = self._list()
        self.expect(")")
        return values

    def _sum(self) -> syntax.EqlNode:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._sign))

    def _chain(self, operators: tuple[str, ...], part: Callable[[], syntax.EqlNode]) -> syntax.EqlNode:
        node = part()
        while self.is_sign(*operators):
            operator = self.next()
            self.operations += 1
            if self.operations > MAX_OPERATIONS:
                self.fail(f"more than {MAX_OPERATIONS} operations", operator)
            node = syntax.EqlOperation(operator.text, node, part(), start=operator.start)
        return node

    def _sign(self) -> syntax.EqlNode:
        token, minus = self.token, False
        while self.is_sign("+", "-"):
            minus ^= self.next().text == "-"
        of = self._atom()
        if not minus:
            return of
        if isinstance(of, syntax.EqlLiteral) and type(of.value) in (int, float):
            return syntax.EqlLiteral(-of.value, start=token.start)  # type: ignore[operator]
        return syntax.EqlNegative(of, start=token.start)

    def _atom(self) -> syntax.EqlNode:
        token = self.next()
        match token.kind:
            case "number":
                is_integer = token.text.isdecimal()
                return syntax.EqlLiteral(int(token.text) if is_integer else float(token.text), start=token.start)
            case "text" | "raw":
                return syntax.EqlLiteral(self._text_of(token), start=token.start)
            case "sign" if token.text == "(":
                node = self._or()
                self.expect(")")
                return node
            case "sign" if token.text == "?":
                return self._field(self.next(), token, optional=True)
            case "name" | "quoted":
                return self._named(token)
        return self.fail("unexpected end of the query" if token.kind == "end" else f"unexpected {token.text}", token)

    def _named(self, token: _EqlToken) -> syntax.EqlNode:
        word = token.text.lower() if token.kind == "name" else ""
        if word in ("true", "false"):
            return syntax.EqlLiteral(word == "true", start=token.start)
        if word == "null":
            return syntax.EqlLiteral(None, start=token.start)
        if word in _KEYWORDS:
            self.fail(f"unexpected {token.text}", token)
        if token.kind == "name" and self.is_word("of"):
            self.unsupported(
                f"{token.text} of is not supported", token, "use a sequence with the keys of both processes"
            )
        any_case = self.is_sign("~") and self.tokens[self.at + 1].text == "("
        if any_case:
            self.next()
        if token.kind == "name" and self.take("("):
            arguments = [] if self.is_sign(")") else self._list()
            self.expect(")")
            return syntax.EqlFunctionCall(token.text, tuple(arguments), any_case, start=token.start)
        return self._field(token, token)

    def _field(self, token: _EqlToken, start: _EqlToken, *, optional: bool = False) -> syntax.EqlFieldName:
        if token.kind not in ("name", "quoted"):
            self.fail("expecting a field", token)
        parts: list[str | int] = [self._name_of(token)]
        while self.is_sign(".", "["):
            if self.is_sign("["):
                index = self.tokens[self.at + 1]
                closing = self.tokens[min(self.at + 2, len(self.tokens) - 1)]
                # Otherwise the bracket begins an event, as in "sequence by pid [process where true]".
                if not (index.kind == "number" and index.text.isdecimal() and closing.text == "]"):
                    break
                self.at += 3
                parts.append(int(index.text))
                continue
            self.next()
            part = self.next()
            if part.kind not in ("name", "quoted"):
                self.fail("expecting the name of a field", part)
            parts.append(self._name_of(part))
        return syntax.EqlFieldName(tuple(parts), optional, start=start.start)

    @staticmethod
    def _name_of(token: _EqlToken) -> str:
        return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text

    def _text_of(self, token: _EqlToken) -> str:
        if token.kind == "raw":
            return token.text[3:-3]

        def unescaped(match: re.Match[str]) -> str:
            code = match[1]
            if code in _ESCAPES:
                return _ESCAPES[code]
            if code.startswith("u{") and int(code[2:-1], 16) <= 0x10FFFF:
                return chr(int(code[2:-1], 16))
            raise ExpressionSyntaxError.at(f"unknown escape \\{code}", self.text, token.start + 1 + match.start())

        return re.sub(r"\\(u\{[0-9A-Fa-f]{2,8}\}|.)", unescaped, token.text[1:-1])
