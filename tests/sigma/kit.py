"""Sigma rules as the tests write them."""

from __future__ import annotations

from typing import Any

import yaml

from asterism.sigma.collection import Outcome, RefusedRule, TranslatedRule, translated
from asterism.sigma.documents import documents_of
from asterism.sigma.pipelines import SigmaOptions


def rule(name: str = "one", **detection: Any) -> dict[str, Any]:
    return {"title": name.title(), "name": name, "logsource": {"category": "test"}, "detection": detection}


def outcomes(*documents: dict[str, Any] | str, **options: Any) -> list[Outcome]:
    text = "\n---\n".join(one if isinstance(one, str) else yaml.safe_dump(one, sort_keys=False) for one in documents)
    return [outcome for _, outcome in translated(documents_of(text, "rules.yml"), SigmaOptions.of(**options))]


def translation(*documents: dict[str, Any] | str, **options: Any) -> TranslatedRule:
    (outcome,) = outcomes(*documents, **options)
    if isinstance(outcome, RefusedRule):
        raise outcome.error
    return outcome


def condition(detection: dict[str, Any], **options: Any) -> str:
    pattern = translation(rule(**detection), **options).pattern
    assert pattern is not None
    text: str = pattern.stages[0].condition.text  # type: ignore[union-attr]
    return text
