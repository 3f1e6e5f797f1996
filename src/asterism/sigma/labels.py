"""The labels of matches of a Sigma rule."""

from __future__ import annotations

from typing import Any

from asterism.text.printable import shortened

_MAX_LABEL = 1_000
_TECHNIQUE = "t"


def labels_of(rule: Any) -> dict[str, str]:
    """What a reader of a match needs to know about the rule, each as a text of up to 1,000 characters.

    ``tags`` has all tags, ``techniques`` those of ATT&CK, as in ``T1059.001``.
    """
    logsource = getattr(rule, "logsource", None)
    parts = [] if logsource is None else [logsource.product, logsource.category, logsource.service]
    techniques = [
        tag.name.upper()
        for tag in rule.tags
        if tag.namespace == "attack" and tag.name[:1].lower() == _TECHNIQUE and tag.name[1:2].isdigit()
    ]
    values = {
        "title": rule.title,
        "level": "" if rule.level is None else rule.level.name.lower(),
        "status": "" if rule.status is None else rule.status.name.lower(),
        "tags": ", ".join(map(str, rule.tags)),
        "techniques": ", ".join(techniques),
        "falsepositives": "; ".join(map(str, rule.falsepositives)),
        "author": rule.author or "",
        "description": rule.description or "",
        "references": " ".join(map(str, rule.references)),
        "logsource": "/".join(part for part in parts if part),
    }
    return {name: shortened(str(value).strip(), _MAX_LABEL) for name, value in values.items() if value}
