"""Messages about lookups that have changed."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from asterism.errors import CheckpointMismatchError
from tests.kit import Golden
from tests.rules.driver import at
from tests.rules.test_lookup_changes import EVERY, REFUSED, again, driver
from tests.rules.test_lookups import ABOVE, LIMITS, e

golden = Golden(Path(__file__))
TEXTS = [*REFUSED, "without_definition"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_rule_in_force_reads_cannot_change(name: str) -> None:
    old, after, rules = REFUSED[name]
    made = driver((old,)).batch(sets=[*rules, EVERY]).batch([e(1, "ann", 1), e(1, "bob", 1)], watermark=0)
    before = copy.deepcopy(made.stores)
    changed = again(made, after)
    golden.error(name, lambda: changed.batch([e(2, "ann", 1)]))
    assert [store.read_header() for store in made.stores] == [store.read_header() for store in before]
    # As the driver compares them, before anything starts.
    with pytest.raises(CheckpointMismatchError):
        changed.operator.check_rules(made.operator.definition, rules)


def test_a_rule_whose_time_comes_counts() -> None:
    later = replace(ABOVE, version=2, timestamp=at(50)).as_data()
    made = driver((LIMITS,)).batch([e(1, "ann", 1)], sets=[later])
    with pytest.raises(CheckpointMismatchError) as caught:  # of a key group in which nothing waits
        again(made, ()).batch([e(2, "ann", 1)])
    golden.check("without_definition", str(caught.value))
