"""What a user reads when a clause is not well formed: the text of every error, as a whole."""

from __future__ import annotations

import pytest

from asterism.row_patterns.clause.reading import read
from tests.kit import Golden, Provocation

PATTERNS = {
    "comma": "A, B",
    "two_bars": "A || B",
    "empty_alternative": "A | ",
    "empty_pattern": "",
    "empty_permute": "PERMUTE()",
    "two_quantifiers": "A*+",
    "three_question_marks": "A???",
    "quantifier_first": "* A",
    "limits_reversed": "A{3,2}",
    "limit_of_zero": "A{0}",
    "no_limits": "A{}",
    "limit_with_suffix": "A{2L}",
    "limit_with_fraction": "A{1.5}",
    "limit_too_large": "A{9999999}",
    "negation_without_caret": "A [B] C",
    "negation_of_two": "A [^B C]",
    "negation_not_closed": "A [^B",
    "negation_repeated": "A [^B]* C",
    "until_of_bounded_loop": "A{2,5}{C}",
    "until_without_loop": "A {C}",
    "until_not_closed": "A+{C B",
    "double_quotes": 'A "b"',
    "string": "A 'b'",
    "number": "A 5",
    "arrow": "A -> B",
    "word_or": "A OR B",
    "word_not": "A NOT B",
    "word_and": "A AND B",
    "exclusion_not_closed": "A {- B C",
    "exclusion_closed_by_brace": "A {- B } C",
    "group_not_closed": "(A (B C)",
    "too_deep": "(" * 60 + "A" + ")" * 60,
}
CLAUSES = {
    "no_pattern": "MEASURES A.x AS x",
    "nothing": "",
    "not_closed": "MATCH_RECOGNIZE (PATTERN (A)",
    "no_parenthesis": "MATCH_RECOGNIZE PATTERN (A)",
    "pattern_without_parenthesis": "PATTERN A B",
    "pattern_not_closed": "PATTERN (A B DEFINE A AS x > 1",
    "closed_too_often": "PATTERN (A)) DEFINE A AS x > 1",
    "wrong_order": "PATTERN (A)\nDEFINE A AS x > 1\nMEASURES A.x AS y",
    "twice": "PATTERN (A) PATTERN (B)",
    "unknown_word": "PATTERN (A) WHERE x > 1",
    "measure_without_name": "MEASURES A.x, B.y AS y PATTERN (A B)",
    "measure_named_by_string": "MEASURES A.x AS 'y' PATTERN (A)",
    "measure_missing": "MEASURES PATTERN (A)",
    "condition_missing": "PATTERN (A) DEFINE A AS",
    "definition_without_as": "PATTERN (A) DEFINE A x > 1",
    "subset_without_parentheses": "PATTERN (A B) SUBSET U = A, B",
    "subset_without_equals": "PATTERN (A B) SUBSET U (A, B)",
    "subset_not_closed": "PATTERN (A B) SUBSET U = (A B)",
    "skip_to_nothing": "AFTER MATCH SKIP TO PATTERN (A)",
    "skip_elsewhere": "AFTER MATCH SKIP TO LAST, PATTERN (A)",
    "after_match_no": "AFTER MATCH NO PATTERN (A)",
    "after_match": "AFTER MATCH PATTERN (A)",
    "rows_incomplete": "ALL ROWS PATTERN (A)",
    "show_timeouts": "ONE ROW PER MATCH SHOW TIMEOUTS PATTERN (A)",
    "limit_duration": "LIMIT DURATION(minute, 5) PATTERN (A)",
    "esper_interval": "PATTERN (A) INTERVAL 5 MINUTES",
    "esper_all_matches": "ALL MATCHES PATTERN (A)",
    "vertica_pattern": "PATTERN p AS (A)",
    "vertica_results": "PATTERN (A) RESULTS ALL ROWS",
    "duckdb_auto": "PATTERN (A) DEFINE AUTO",
    "duckdb_defines": "PATTERN (A) DEFINES A AS x > 1",
    "one_rows": "ONE ROWS PER MATCH PATTERN (A)",
    "misspelled_first": "PARTITON BY x PATTERN (A)",
    "misspelled_pattern": "ORDER BY x PATERN (A B)",
    "misspelled_after_measures": "MEASURES A.x AS y, B.x PATERN (A B)",
    "misspelled_define": "PATTERN (A) DEFIN A AS x > 1",
    "seek": "SEEK PATTERN (A)",
    "string_not_closed": "PATTERN (A) DEFINE A AS x = 'a",
    "comment_not_closed": "PATTERN (A) /* DEFINE A AS TRUE",
    "setting": "PATTERN (A) DEFINE A AS x = '${spark.secret}'",
    "hint_comment": "PATTERN (A /*+ fast */)",
    "too_long": "PATTERN (" + "A " * 60_000 + ")",
    "far_to_the_right": "PATTERN (" + "A " * 300 + ", B)",
}
TEXTS: dict[str, Provocation] = {
    name: lambda text=text: read(text)  # type: ignore[misc]  # mypy does not know the default
    for name, text in ({name: f"PATTERN ({text})" for name, text in PATTERNS.items()} | CLAUSES).items()
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
