"""Texts that are nearly expressions, patterns and rules: valid ones, and what is left of them after mutation."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

from tests.expressions.sql_expressions import SPARK_SCHEMA, Expressions

KINDS = ("condition", "measure", "pattern", "rule", "template")
_TEXT = r"""( ) [ ] { } , . ; : :: ' " ` \ $ ${x} @ # ? ! ~ + - * / % & | ^ = <> <=> || -> => := -- /* */ /*+ {# {% AND OR NOT IS
    NULL IN BETWEEN LIKE RLIKE ESCAPE CASE WHEN THEN ELSE END AS CAST TRY_CAST EXTRACT INTERVAL DATE TIMESTAMP DISTINCT ALL FROM
    SELECT WHERE FILTER OVER WITHIN GROUP ORDER BY LIMIT UNION COLLATE AT TIME ZONE FIRST( LAST( SUM( COUNT( AVG( MIN( MAX( IF(
    upper( concat( nvl( nvl2( repeat( replace( lpad( greatest( timestampdiff( datediff( a. b. a.* a.s b.i LAST(a.i,1) s t i l d
    m day at nt arr st mp 0 1 -1 2147483648 9223372036854775808 1e400 1e 1e99999999999999999999 .5 5. 1.5.5 0x1F 5L 5BD 1e400F
    1_000 NaN '' 'a' '%' '(a{1000}){1000}' '[a-z]{0,99}'"""
_PIECES = (
    *_TEXT.split(),
    "\u00e4",
    "\u00df",
    "\u65e5",
    "\U0001f600",
    "\u202e",
    "\u2028",
    "\u00a0",
    "\x00",
    "\x1b[2J",
    "\r",
    "\n",
    "\t",
    "\ufeff",
    "\udc80",
    "\u0663",
    "\uff11",
)


_WORD = re.compile(r"'(?:[^'\\]|\\.)*'|(?<![.\w])[a-z]\w*\b(?!\()")
_CALLS = (*("LAST(a.{})", "a.{}") * 4, "FIRST(a.{}, 1)", "MAX(a.{})", "COUNT(a.{})", "LAST(a.{}, 2)")
_EDGES = (*("STRICT", "SKIP_TILL_NEXT", "SKIP_TILL_ANY") * 4, "NOT_FOLLOW", "NOT_NEXT")
_SKIPS = ("NO_SKIP", "SKIP_TO_NEXT", "SKIP_PAST_LAST_EVENT", "SKIP_TO_FIRST")


class Texts:
    """Makes (kind, text) pairs from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.expressions = Expressions(self.rng)

    def one(self) -> tuple[str, str]:
        kind = self.rng.choice(KINDS)
        text = getattr(self, kind)()
        if self.rng.random() < 0.3:
            text = self.characters(text)
        return kind, text[:30_000]

    # -- SQL

    def condition(self, damage: float = 0.65) -> str:
        text = self.expressions.truth(self.rng.choice([0, 1, 2, 3]))
        if self.rng.random() < 0.4:
            text = self.over_stages(text)
        return self.damaged(text) if self.rng.random() < damage else text

    def measure(self) -> str:
        text = self.over_stages(self.expressions.any(self.rng.choice([0, 1, 2])), 0.98)
        name = self.rng.choice(["", " AS m", " AS `a\nb`", " m"])
        return (self.damaged(text) if self.rng.random() < 0.65 else text) + name

    def over_stages(self, text: str, share: float = 0.5) -> str:
        """A share of the columns become values of the stage a."""
        if text == "b":
            return f"LAST(a.i) IN ({', '.join(map(str, range(self.rng.choice([1, 5, 2000]))))})"
        calls = {name: self.rng.choice(_CALLS) for name in SPARK_SCHEMA.names if self.rng.random() < share}
        return _WORD.sub(lambda word: calls.get(word.group(), "{}").format(word.group()), text)

    def damaged(self, text: str) -> str:
        return mutated(self.rng, text) if self.rng.random() < 0.7 else self.giant(text)

    def giant(self, text: str) -> str:
        many = self.rng.choice([2, 10, 60, 300, 3000])
        before, after = self.rng.choice(
            [
                ("(", ")"), ("NOT ", ""), ("- ", ""), ("upper(", ")"), ("CASE WHEN TRUE THEN ", " END"), ("CAST(", " AS STRING)"),
                ("concat(s, ", ")"), ("repeat(", ", 10)"), ("replace(", ", 'a', 'aaaaaaaaaa')"), ("", " + 1"), ("", " OR b"),
                ("", "::STRING"), ("", "[0]"), ("", ".u"), ("", " || s"), ("b AND ", ""), ("/*", "*/"), ("'", "'"),
                ("INTERVAL ", ""),
                ("IF(b, s, ", ")"), ("coalesce(", ", s)"), ("a.", ""), ("", ", 1"), ("i IN (1, ", ")"), ("s RLIKE '(", "){100}'"),
                ("s RLIKE '[a-z]{0,99}' OR ", ""), ("s LIKE '%a%' AND ", ""), ("{", "}"), ("\n", "\n"), ("CASE ", ""),
                ("ARRAY<", ">"),
            ]
        )  # fmt: skip
        return before * many + text + after * many

    # -- JSON

    def pattern(self) -> str:
        return json.dumps(self.spoiled(self.graph(0)), ensure_ascii=self.rng.random() < 0.5)

    def rule(self) -> str:
        rule = {
            "id": self.rng.choice(["r1", "r\x1b1", "", "ü", "x" * 300]),
            "version": self.rng.choice([1, 0, -1, 2**31, "1"]),
            "key": self.rng.choice([["s"], [], ["upper(s)", self.condition()], "s"]),
            "select": self.rng.choice([[self.measure()], ["COUNT(a.*) AS n"], []]),
            "pattern": self.graph(0),
        }
        if self.rng.random() < 0.5:
            rule = {"id": "r1", "version": 1, "pattern": rule["pattern"]}
        return json.dumps(self.spoiled(rule), ensure_ascii=self.rng.random() < 0.5)

    def template(self) -> str:
        kinds = {"a": "number", "b": "string", "c": "boolean", "d": "duration", "e": "timestamp"}
        good: dict[str, Any] = {"a": -5, "b": "it's", "c": True, "d": "5 minutes", "e": "2026-01-31"}
        used = {name: kinds[name] for name in self.rng.sample(list(kinds), self.rng.choice([1, 2, 5]))}
        words = self.condition(0.1).split(" ")
        for name in used:
            words.insert(self.rng.randrange(len(words) + 1), f":{name}")
        tests = {"a": "i > :a", "b": "s = :b", "c": ":c", "d": "at > at - :d", "e": "at > :e"}
        text = self.rng.choice([" ".join(words), " AND ".join(tests[name] for name in used)])
        rows = [
            {"id": f"r{number}"} | {name: good[name] if self.rng.random() < 0.7 else self.junk() for name in used}
            for number in range(self.rng.choice([1, 2, 3]))
        ]
        condition = {"type": "SQL", "expression": text}
        graph = self.graph(0)
        graph["nodes"][0] = {
            "name": "a",
            "type": "ATOMIC",
            "quantifier": {"properties": ["SINGLE"]},
            "condition": condition,
        }
        item = {"id": "t", "version": 1, "parameters": used, "rows": rows, "pattern": graph}
        return json.dumps(self.spoiled(item), ensure_ascii=self.rng.random() < 0.5)

    def graph(self, depth: int) -> dict[str, Any]:
        count = self.rng.choice([1, 2, 2, 3, 3, 12])
        names = [f"{'abcdefghijkl'[at]}{depth or ''}" for at in range(count)]
        if self.rng.random() < 0.05:
            names[0] = self.rng.choice(["", "\x1b[31m", "a\nb", "a b", "\u202e", names[-1]])
        nodes = [self.node(name, depth) for name in names]
        edges = [
            {
                "source": one,
                "target": two,
                "type": self.rng.choice(_EDGES),
            }
            for one, two in itertools.pairwise(names)
        ]
        graph: dict[str, Any] = {"name": "root", "type": "COMPOSITE", "version": 1, "nodes": nodes, "edges": edges}
        graph["quantifier"] = {
            "consumingStrategy": "SKIP_TILL_NEXT",
            "properties": ["SINGLE"],
            "times": None,
            "untilCondition": None,
        }
        graph["afterMatchStrategy"] = {
            "type": self.rng.choice(_SKIPS),
            "patternName": names[0],
        }
        if self.rng.random() < 0.4:
            graph["window"] = {
                "type": "FIRST_AND_LAST",
                "time": {"unit": "MINUTES", "size": self.rng.choice([1, 10, 60, 0, -5, 10**30])},
            }
        return graph

    def node(self, name: str, depth: int) -> dict[str, Any]:
        if depth < 2 and self.rng.random() < 0.1:
            return self.graph(depth + 1) | {"name": name}
        times = self.rng.choice([1, 2, 2, 3, 1000, 10**9])
        properties = self.rng.choice(
            [["SINGLE"], ["SINGLE", "OPTIONAL"], ["LOOPING"], ["LOOPING", "GREEDY", "OPTIONAL"], ["TIMES"]]
        )
        quantifier = {
            "consumingStrategy": "SKIP_TILL_ANY" if self.rng.random() < 0.05 else "SKIP_TILL_NEXT",
            "properties": properties,
            "times": {"from": 1, "to": times},
            "untilCondition": None,
        }
        if properties != ["TIMES"]:
            quantifier["times"] = None
        condition = {"type": "SQL", "expression": self.condition(0.1)}
        return {
            "name": name,
            "quantifier": quantifier,
            "condition": self.rng.choice([None, condition, condition]),
            "type": "ATOMIC",
        }

    def spoiled(self, value: Any) -> Any:
        """A JSON value with a few parts exchanged for others."""
        if self.rng.random() < 0.5:
            return value
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            at, way = value, list[tuple[Any, Any]]()
            while isinstance(at, dict | list) and at and (not way or self.rng.random() < 0.7):
                key = self.rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
                way.append((at, key))
                at = at[key]
            if way:
                holder, key = way[-1]
                holder[key] = self.junk()
        return value

    def junk(self) -> Any:
        nested: Any = "x"
        for _ in range(self.rng.choice([1, 20, 900])):
            nested = [nested]
        return self.rng.choice([None, True, 0, -1, 1.5, 1e308, 2**70, "", "\x00", "\x1b[2J\n", "a" * 5000, [], {}, [None], {"a": 1}, nested, self.rng.choice(_PIECES)])  # fmt: skip

    # -- bytes

    def characters(self, text: str) -> str:
        """A few characters exchanged, left out or put in."""
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            at = self.rng.randrange(len(text) + 1)
            new = self.rng.choice(
                ["", "", chr(self.rng.randrange(128)), chr(self.rng.choice([0xE4, 0x2028, 0xD800, 0x1F600, 0x0, 0x1B]))]
            )
            text = text[:at] + new + text[at + self.rng.randrange(2) :]
        return text


def mutated(rng: random.Random, text: str) -> str:
    """Words left out, doubled, exchanged with others, or put in."""
    words = text.split(" ")
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(words))
        match rng.randrange(5):
            case 0:
                del words[at]
            case 1:
                words.insert(at, words[at])
            case 2:
                words[at] = rng.choice(_PIECES)
            case 3:
                words.insert(at, rng.choice(_PIECES))
            case 4:
                other = rng.randrange(len(words))
                words[at], words[other] = words[other], words[at]
        words = words or [""]
    return " ".join(words)
