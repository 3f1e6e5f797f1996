"""Clauses from people who mean harm, or whose program wrote them: each is refused quickly, with a message of bounded length."""

from __future__ import annotations

import pytest

from asterism.errors import AsterismError
from asterism.row_patterns.checking import check
from asterism.row_patterns.operator import RowPatternOperator
from asterism.row_patterns.statements import clauses_in
from asterism.testing import EVENTS
from tests.kit import bounded

MAX_LENGTH = 3000
"""Characters of a message with its detail and hint."""

AB = "PATTERN (A B) DEFINE A AS kind = 'a', B AS "
SOME = "ORDER BY ts MEASURES A.value AS v "


def nested(depth: int, inner: str = "A", begin: str = "(", end: str = ")") -> str:
    return begin * depth + inner + end * depth


def names(count: int) -> list[str]:
    return [f"V{number}" for number in range(count)]


# ---------------------------------------------------------------------- what has a position

AT_A_PLACE = {
    # size
    "a name of 40,000 characters": SOME + f"PATTERN ({'a' * 40_000}) DEFINE B AS TRUE",
    "an unknown column of 15,000 characters": f"{SOME}{AB}{'x' * 15_000} > 1",
    "an unknown function of 15,000 characters": f"{SOME}{AB}{'x' * 15_000}(1) > 1",
    "8,000 variables": f"{SOME}PATTERN ({' '.join(names(8000))})",
    "1,000 measures": f"MEASURES {', '.join(f'A.value AS m{n}' for n in range(1000))} PATTERN (A)",
    "a list of 3,000 numbers and a gap": f"{SOME}{AB}value IN ({', '.join(map(str, range(3000)))},,)",
    "300 columns in an expression": f"{SOME}{AB}{' AND '.join(f'LAST(value, {n}) > 1' for n in range(300))}",
    # nesting
    "10,000 parentheses in the pattern": f"{SOME}PATTERN {nested(10_000)}",
    "60 parentheses in the pattern": f"{SOME}PATTERN {nested(60)}",
    "10,000 parentheses that nobody closes": f"{SOME}PATTERN {'(' * 10_000}A",
    "10,000 exclusions": f"{SOME}PATTERN ({nested(10_000, 'A', '{-', '-}')})",
    "200 PERMUTE in PERMUTE": f"{SOME}PATTERN ({nested(200, 'A', 'PERMUTE(B, ')})",
    "5,000 parentheses in a condition": f"{SOME}{AB}{nested(5000, 'TRUE')}",
    "2,000 calls in calls": f"{SOME}{AB}{nested(2000, 'value', 'abs(')} > 1",
    "4,000 NOT": f"{SOME}{AB}{'NOT ' * 4000}TRUE",
    "5,000 minus signs": f"{SOME}{AB}value > {'- ' * 5000}1",
    "500 CASE": f"{SOME}{AB}{nested(500, 'TRUE', 'CASE WHEN ', ' THEN TRUE END')}",
    "4,000 additions": f"{SOME}{AB}value{' + 1' * 4000} > 1",
    # quantifiers
    "{0,1000000000}": f"{SOME}PATTERN (A{{0,1000000000}})",
    "{99999999999999999999999}": f"{SOME}PATTERN (A{{99999999999999999999999}})",
    "a power of repetitions": f"{SOME}PATTERN ((((A{{100}}){{100}}){{100}}){{100}})",
    "repetitions of what takes no row": f"{SOME}PATTERN (((A*)*){{9999}} B{{9999}})",
    "{5,2}": f"{SOME}PATTERN (A{{5,2}})",
    "{-1}": f"{SOME}PATTERN (A{{-1}})",
    "{1.5}": f"{SOME}PATTERN (A{{1.5}})",
    "many quantifiers": f"{SOME}PATTERN (A*+?*+?)",
    "a quantifier of nothing": f"{SOME}PATTERN (+ A)",
    # the pattern
    "PERMUTE of 20": f"{SOME}PATTERN (PERMUTE({', '.join(names(20))}))",
    "PERMUTE of PERMUTE of 10": f"{SOME}PATTERN (PERMUTE({', '.join(['PERMUTE(A, B, C, D, E, F, G, H, I, J)'] * 10)}))",
    "PERMUTE of nothing": f"{SOME}PATTERN (PERMUTE())",
    "alternatives of nothing": f"{SOME}PATTERN (A | | B",
    "no pattern": "ORDER BY ts MEASURES 1 AS one",
    "two patterns": f"{SOME}PATTERN (A) PATTERN (B)",
    "SKIP TO a variable that is not there": f"{SOME}AFTER MATCH SKIP TO LAST Z PATTERN (A B)",
    "SKIP TO a subset of nothing": f"{SOME}AFTER MATCH SKIP TO U PATTERN (A B) SUBSET U = ()",
    "a subset of itself": f"{SOME}PATTERN (A B) SUBSET U = (U, A)",
    "excluded rows that are neither": f"{SOME}ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {{- B -}})",
    # names and expressions
    "an unknown variable": f"{SOME}{AB}C.value > 1",
    "an unknown definition": f"{SOME}PATTERN (A) DEFINE Z AS TRUE",
    "two definitions": f"{SOME}PATTERN (A) DEFINE A AS TRUE, a AS FALSE",
    "an aggregate of an aggregate": f"{SOME}{AB}SUM(SUM(value)) > 1",
    "an aggregate of a navigation": f"{SOME}{AB}MAX(PREV(value)) > 1",
    "a navigation of a navigation": f"{SOME}{AB}PREV(PREV(value)) > 1",
    "two variables in an aggregate": f"{SOME}{AB}SUM(A.value + B.value) > 1",
    "an offset of 10^30": f"{SOME}{AB}PREV(value, 1{'0' * 30}) > 1",
    "an offset from a column": f"{SOME}{AB}PREV(value, value) > 1",
    "an interval of 10^30 days": f"{SOME}PATTERN (A B) WITHIN INTERVAL '1{'0' * 30}' DAY",
    "a negative interval": f"{SOME}PATTERN (A B) WITHIN INTERVAL '-1' DAY",
    "a subquery": f"{SOME}{AB}value > (SELECT max(value) FROM secrets)",
    "a second statement": f"{SOME}{AB}TRUE; DROP TABLE secrets",
    "a file": f"{SOME}{AB}read_text('/etc/passwd') = ''",
    "a setting": f"{SOME}{AB}kind = '${{spark.secret}}'",
    "a window": f"{SOME}{AB}SUM(value) OVER (ORDER BY ts) > 1",
    # characters
    "half a character": f"{SOME}{AB}kind = '\ud83d'",
    "a NUL": f"{SOME}PATTERN (A\0B) DEFINE A AS TRUE",
    "letters that look like others": f"{SOME}PATTERN (\N{CYRILLIC CAPITAL LETTER A} B) DEFINE A AS TRUE",
    "a letter that becomes two in upper case": f"{SOME}PATTERN (\u00df B) DEFINE C AS TRUE",
    "a letter that is written backwards": f"{SOME}PATTERN (A \u202e B) DEFINE A AS TRUE",
    "Windows line ends": "ORDER BY ts\r\nMEASURES A.value AS v\r\nPATTERN (A B)\r\nDEFINE B AS valu > 1\r\n",
    "old line ends": "ORDER BY ts\rMEASURES A.value AS v\rPATTERN (A B)\rDEFINE B AS valu > 1",
    "a line of 40,000 characters": f"{SOME}{' ' * 40_000}PATTERN (A B) DEFINE B AS valu > 1",
    "20,000 lines": f"{SOME}{chr(10) * 20_000}PATTERN (A B) DEFINE B AS valu > 1",
    # statements
    "a clause that does not end": f"SELECT * FROM t MATCH_RECOGNIZE ({SOME}PATTERN (A",
    "200 clauses": "SELECT * FROM t " + f"MATCH_RECOGNIZE ({SOME}PATTERN (A)) " * 200,
    "a clause in a clause": f"SELECT * FROM t MATCH_RECOGNIZE ({SOME}{AB}value > MATCH_RECOGNIZE (PATTERN (A)))",
    "rules in a statement": "SELECT * FROM t MATCH_RECOGNIZE_DYNAMIC (ORDER BY ts x = y)",
}

# ---------------------------------------------------------------------- what is wrong as a whole

AS_A_WHOLE = {
    "nothing": "",
    "spaces": " \n\t ",
    "a comment": "-- nothing",
    "a megabyte of spaces": " " * 1_000_000,
    "a megabyte of letters": "a" * 1_000_001,
    "a megabyte of parentheses": "(" * 1_000_000,
    "a megabyte of commas in a clause": f"SELECT * FROM t MATCH_RECOGNIZE ({',' * 900_000})",
    "an unclosed comment": f"{SOME}/* PATTERN (A B)",
    "an unclosed string": f"{SOME}{AB}kind = 'b",
    "an unclosed name": f"{SOME}PATTERN (`A B)",
    "10,000 comments in comments": f"{SOME}{'/*' * 10_000} PATTERN (A)",
}


def refusal(text: str) -> AsterismError:
    def read() -> None:
        for _, one in clauses_in(text):
            RowPatternOperator(check(one.clause, EVENTS), EVENTS)

    with bounded(), pytest.raises(AsterismError) as caught:
        read()
    assert len(str(caught.value)) < MAX_LENGTH
    assert caught.value.message
    assert all(line.isprintable() for line in str(caught.value).split("\n"))
    return caught.value


@pytest.mark.parametrize("name", AT_A_PLACE)
def test_refused_at_its_place(name: str) -> None:
    lines = (refusal(AT_A_PLACE[name]).detail or "").split("\n")
    assert any(line.strip() == "^" for line in lines)


@pytest.mark.parametrize(
    "name", [name for name, text in AS_A_WHOLE.items() if len(text) < 900_000 or not text.strip("a ")]
)
def test_refused_as_a_whole(name: str) -> None:
    refusal(AS_A_WHOLE[name])
