"""The fields that the detections of a rule read, as pySigma has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from asterism.sigma.conditions import column_of

if TYPE_CHECKING:
    from sigma.rule import SigmaRule


def items_of(rule: SigmaRule) -> Iterator[tuple[str, Any]]:
    """The items of all detections, each with the name of its detection."""
    for name, detection in rule.detection.detections.items():
        parts: list[Any] = [detection]
        for part in parts:  # which grows
            if hasattr(part, "detection_items"):
                parts += part.detection_items
            elif part.field is not None:
                yield name, part


def columns_read(item: Any) -> list[str]:
    """The columns of an item in SQL: that of its field, and those to which its values refer."""
    referred = [value.field for value in item.value if hasattr(value, "field")]
    return [column_of(name) for name in [item.field, *referred]]
