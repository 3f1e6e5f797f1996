"""Every contract without Spark: whole, element by element, cut at random, restored after each step, over key groups and pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pytest

from asterism.operators.stream_operator import Output
from asterism.testing import check_operator_independence
from tests.contracts.contracts import CONTRACTS, Contract
from tests.kit import FACTOR


def counted(rows: Iterable[Any]) -> Counter[str]:
    """Rows in any order."""
    return Counter(str([one.isoformat() if isinstance(one, datetime) else one for one in _values(row)]) for row in rows)


def _values(row: Any) -> Iterable[Any]:
    return row.values() if isinstance(row, Mapping) else row


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
def test_contract(contract: Contract) -> None:
    spread = ((3, 1), (2, 3), *((1, 3),) * (FACTOR > 1)) if contract.spread else ()
    cuts = 2 if FACTOR == 1 else 5
    harness = check_operator_independence(contract.operator, contract.steps, contract.inputs, cuts=cuts, spread=spread)
    for name in contract.operator.declared(Output):
        assert counted(harness.rows(name)) == counted(contract.expected.get(name, ())), name
    assert dict(harness.metrics) == dict(contract.counts)
    assert harness.is_empty  # the stream has ended


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(contract.name for contract in CONTRACTS).items() if count > 1] == []
