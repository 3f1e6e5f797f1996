"""Reads conditions that compare fields without the parser, which takes most of the time to bind a rule in EQL.

They are AND, OR and NOT of comparisons of columns, and of fields of STRUCTs, with literals, as :mod:`asterism.elastic.conditions`
writes them. The syntax tree is the one that the parser gives, with the positions that messages use. Any deviation, also an
error, leaves the whole condition to the parser.

See docs/decisions/0183.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from asterism.expressions.parsing import MAX_TEXT
from asterism.expressions.routines.user_functions import listed_functions
from asterism.expressions.templates import NOT_COALESCE, OR_FALSE, OtherFormError, QuickReader, unescaped

_NAME = r"`[^`\0\n\r\ud800-\udfff]+`"
_LITERAL = r"'(?:[^'\\\0\ud800-\udfff]|\\[\\'])*'"
_NUMBER = r"\d{1,18}"
_END = r"(?=[),]| AND | OR |\Z)"
_COLUMN = re.compile(rf"{_NAME}(?:\.{_NAME})*")
_OPERAND = re.compile(rf"(?P<lower>LOWER\()?(?P<column>{_COLUMN.pattern})(?(lower)\))")
_CALL = re.compile(rf"(?P<name>STARTSWITH|ENDSWITH|CONTAINS)\((?P<of>{_OPERAND.pattern}), (?P<text>{_LITERAL})\){_END}")
_TEST = re.compile(
    rf"(?P<of>{_OPERAND.pattern})(?: (?P<operator>=|<>|<=|>=|<|>|LIKE) (?P<value>{_LITERAL}|TRUE|FALSE|{_NUMBER})"
    rf"| IN \((?P<values>{_LITERAL}(?:, {_LITERAL})*|{_NUMBER}(?:, {_NUMBER})*)\)| IS (?P<is_not>NOT )?(?P<null>NULL)){_END}"
)
_CONSTANT = re.compile(rf"(?:TRUE|FALSE){_END}")
_REGEX = re.compile(rf"CONCAT\((?P<of>{_OPERAND.pattern}), (?P<end>'x')\) RLIKE (?P<pattern>{_LITERAL}){_END}")
_VALUES = re.compile(rf"{_LITERAL}|{_NUMBER}")
_PART = re.compile(_NAME)
_OPERATORS = {
    "=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE, "LIKE": exp.Like,
}  # fmt: skip


def quick_tree(text: str) -> exp.Expr | None:
    """The syntax tree of a condition; None if it has another form.

    >>> quick_tree("(`process`.`pid` >= 4 AND LOWER(`name`) LIKE 'cmd%')").this.expression
    Like(
      this=Anonymous(
        this=LOWER,
        expressions=[
          Column(
            this=Identifier(this='name', quoted=True))]),
      expression=Literal(this='cmd%', is_string=True))
    >>> quick_tree("`a` = 1 + 1") is None
    True
    """
    if len(text) > MAX_TEXT or "${" in text or listed_functions():
        return None
    reader = _TreeReader(text)
    try:
        tree = reader.several(0)
    except OtherFormError:
        return None
    return tree if reader.at == len(text) else None


class _TreeReader(QuickReader[exp.Expr]):
    def joined(self, operator: str, parts: Sequence[exp.Expr]) -> exp.Expr:
        kind = exp.And if operator == "AND" else exp.Or
        return reduce(lambda left, right: kind(this=left, expression=right), parts)

    def one(self, depth: int) -> exp.Expr:
        if self.take("("):
            return self._parenthesized(depth)
        if self.take("NOT ("):
            return exp.Not(this=self._parenthesized(depth))
        begin = self.at + len("NOT ")
        if self.take(NOT_COALESCE):
            inner = self.several(depth + 1)
            self.expect(OR_FALSE)
            return exp.Not(this=self._call("COALESCE", [inner, exp.Boolean(this=False)], begin, self.at))
        for pattern, read in (
            (_TEST, self._test),
            (_CALL, self._text_test),
            (_REGEX, self._regex),
            (_CONSTANT, self._constant),
        ):
            matched = pattern.match(self.text, self.at)
            if matched is not None:
                self.at = matched.end()
                return read(matched)
        raise OtherFormError

    def _parenthesized(self, depth: int) -> exp.Expr:
        node = exp.Paren(this=self.several(depth + 1))
        node.meta["typed"] = True
        self.expect(")")
        return node

    def _test(self, matched: re.Match[str]) -> exp.Expr:
        of = self._operand(matched)
        if matched["null"]:
            test = exp.Is(this=of, expression=exp.Null())
            return exp.Not(this=test) if matched["is_not"] else test
        if matched["values"]:
            begin = matched.start("values")
            return exp.In(
                this=of,
                expressions=[
                    self._value(each[0], *each.span())
                    for each in _VALUES.finditer(self.text, begin, matched.end("values"))
                ],
            )
        value = self._value(matched["value"], *matched.span("value"))
        return _OPERATORS[matched["operator"]](this=of, expression=value)

    def _text_test(self, matched: re.Match[str]) -> exp.Expr:
        arguments = [self._operand(matched), self._literal(*matched.span("text"))]
        return self._call(matched["name"], arguments, matched.start(), matched.end())

    def _regex(self, matched: re.Match[str]) -> exp.Expr:
        arguments = [self._operand(matched), self._literal(*matched.span("end"))]
        of = self._call("CONCAT", arguments, matched.start(), matched.end("end") + 1)
        return exp.RegexpLike(this=of, expression=self._literal(*matched.span("pattern")))

    def _constant(self, matched: re.Match[str]) -> exp.Expr:
        return exp.Boolean(this=matched[0] == "TRUE")

    def _operand(self, matched: re.Match[str]) -> exp.Expr:
        column = self._column(*matched.span("column"))
        return self._call("LOWER", [column], *matched.span("of")) if matched["lower"] else column

    def _column(self, begin: int, end: int) -> exp.Expr:
        parts = [
            _placed(exp.to_identifier(part[0][1:-1], quoted=True), *part.span())
            for part in _PART.finditer(self.text, begin, end)
        ]
        named, fields = parts[:4], parts[4:]
        node: exp.Expr = exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(named), strict=False)))
        for part in fields:
            node = exp.Dot(this=node, expression=part)
        return node

    def _value(self, text: str, begin: int, end: int) -> exp.Expr:
        if text in ("TRUE", "FALSE"):
            return exp.Boolean(this=text == "TRUE")
        return self._literal(begin, end) if text[0] == "'" else _placed(exp.Literal.number(text), begin, end)

    def _literal(self, begin: int, end: int) -> exp.Expr:
        return _placed(exp.Literal.string(unescaped(self.text[begin:end])), begin, end)

    def _call(self, name: str, arguments: list[exp.Expr], begin: int, end: int) -> exp.Expr:
        call = _placed(exp.Anonymous(this=name, expressions=arguments), begin, begin + len(name))
        call.meta["call_end"] = end
        return call


def _placed(node: exp.Expr, begin: int, end: int) -> exp.Expr:
    """The node with its place in the text, as the parser notes it."""
    node.meta.update(start=begin, end=end - 1)
    return node
