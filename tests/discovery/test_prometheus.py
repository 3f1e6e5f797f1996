"""The text for Prometheus, as its own parser reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from asterism.discovery.rest import prometheus
from asterism.rules.sets.discovery_status import LookupState, RuleState, Status


def samples(status: Status) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(prometheus.text_of(status).decode())
    return {
        (one.name.removeprefix("asterism_"), tuple(sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


def of(id: str, version: str) -> tuple[tuple[str, str], ...]:
    return ("rule", id), ("version", version)


def test_states_and_counts() -> None:
    id = 'a "quoted" \\ rule {é}'
    rules = [
        RuleState(id, 1, "disabled", disabled_groups=2, matches=5, errors=3, timed_out=4, partial_matches=7),
        RuleState(id, 2, "waiting", begins="2026-01-01T00:00:00+00:00"),
        RuleState("b", 1, "in force", matches=1, last_match="1970-01-01T00:01:40+00:00"),
        RuleState("b", 2, "shadow", shadow=True, shadow_matches=9),
        RuleState("c", None, "refused"),
    ]
    lookups = {"limits": LookupState(3, 1000, "1970-01-01T00:00:02+00:00"), "new": LookupState(error="gone")}
    found = samples(Status("valid", 9, last_poll="1970-01-01T00:00:01.5+00:00", rules=rules, lookups=lookups))
    assert {key: value for key, value in found.items() if key[0].startswith("lookup")} == {
        ("lookup_rows", (("lookup", "limits"),)): 1000,
        ("lookup_rows", (("lookup", "new"),)): 0,
        ("lookup_last_read_timestamp_seconds", (("lookup", "limits"),)): 2,
    }
    assert found["discovery", (("state", "valid"),)] == 1
    assert found["discovery", (("state", "stale"),)] == 0
    assert (found["rule_set", ()], found["last_poll_timestamp_seconds", ()]) == (9, 1.5)
    states = {labels[0][1]: value for (name, labels), value in found.items() if name == "rules"}
    assert {state for state, count in states.items() if count} == {
        "waiting",
        "in force",
        "shadow",
        "disabled",
        "refused",
    }
    assert states.keys() >= {"pending", "expired", "killed"}
    names = ("matches_total", "timed_out_total", "errors_total", "partial_matches", "disabled_key_groups")
    assert [found[f"rule_{name}", of(id, "1")] for name in names] == [5, 4, 3, 7, 2]
    assert [found[f"rule_{name}", of("b", "2")] for name in ("matches_total", "shadow_matches_total")] == [0, 9]
    last = {labels: value for (name, labels), value in found.items() if name == "rule_last_match_timestamp_seconds"}
    assert last == {of("b", "1"): 100}


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_VERSIONS", 2)
    found = samples(Status(rules=[RuleState(f"rule {n}", n, "in force", matches=n) for n in range(1, 6)]))
    counts = {labels: value for (name, labels), value in found.items() if name == "rule_matches_total"}
    assert counts == {of("rule 1", "1"): 1, of("rule 2", "2"): 2, of("(others)", ""): 12}
