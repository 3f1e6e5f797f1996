"""Rules in files: a query in EQL (``.eql``), and a detection rule as Elastic publishes them, in TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asterism.errors import PatternProcessorError
from asterism.text.printable import shortened
from asterism.text.strict_json import DocumentSyntaxError, text_of

SUFFIXES = (".eql", ".toml")
MAX_DOTS = 30
"""The maximum number of dots in a line, apart from texts. tomllib takes memory for the square of the parts of a key."""
_MAX_LABEL = 1_000
_STRINGS = re.compile(
    r"""'''.*?'''|"{3}(?:\\.|[^\\])*?"{3}|'[^'\n]*'|"(?:\\.|[^"\\\n])*"|#[^\n]*""", re.DOTALL
)  # also comments


def document_of(source: bytes, file: Path) -> dict[str, Any]:
    """The document of the rule in a file, with ``id``, ``eql`` and ``labels``, without a version.

    :raises PatternProcessorError: it cannot be read, or is in another language
    """
    try:
        text = text_of(source, language="EQL" if file.suffix == ".eql" else "TOML")
    except DocumentSyntaxError as error:
        raise PatternProcessorError(error.message, error.detail, error.hint) from None
    if file.suffix == ".eql":
        return {"id": file.stem, "eql": text}
    if any(line.count(".") > MAX_DOTS for line in _STRINGS.sub("", text).split("\n")):
        raise PatternProcessorError(f"a line of the TOML has more than {MAX_DOTS} dots outside of texts")
    try:
        rule = tomllib.loads(text).get("rule")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PatternProcessorError("the TOML cannot be read", str(error)[:300]) from None
    if not isinstance(rule, dict):
        raise PatternProcessorError("the file has no [rule]")
    if rule.get("type") != "eql" or rule.get("language", "eql") != "eql":
        kind = rule.get("type") if rule.get("type") != "eql" else rule.get("language")
        raise PatternProcessorError(f"the rule is of the type {kind!r:.60}, not eql", hint="write it in EQL or SQL")
    id, query = rule.get("rule_id"), rule.get("query")
    if not isinstance(id, str) or not isinstance(query, str):
        raise PatternProcessorError("a rule needs rule_id and query, which are strings")
    return {"id": id, "eql": query.strip() + "\n", "labels": _labels(rule)}


def _labels(rule: Mapping[str, Any]) -> dict[str, str]:
    """The labels of a rule, with the names that those of a Sigma rule have."""
    values = {
        "title": rule.get("name"),
        "level": rule.get("severity"),
        "tags": ", ".join(_texts(rule.get("tags"))),
        "techniques": ", ".join(_techniques(rule.get("threat"))),
        "falsepositives": "; ".join(_texts(rule.get("false_positives"))),
        "author": ", ".join(_texts(rule.get("author"))),
        "description": rule.get("description"),
        "references": " ".join(_texts(rule.get("references"))),
    }
    texts = {name: value.strip() for name, value in values.items() if isinstance(value, str) and value.strip()}
    return {name: shortened(text, _MAX_LABEL) for name, text in texts.items()}


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _tables(values: Any) -> Iterator[Mapping[str, Any]]:
    yield from (value for value in values if isinstance(value, dict)) if isinstance(values, list) else ()


def _techniques(threats: Any) -> Iterator[str]:
    """The techniques and sub-techniques of ATT&CK, such as T1059.001 in place of T1059."""
    for threat in _tables(threats):
        for technique in _tables(threat.get("technique")):
            finer = [part["id"] for part in _tables(technique.get("subtechnique")) if isinstance(part.get("id"), str)]
            yield from finer or ([technique["id"]] if isinstance(technique.get("id"), str) else [])
