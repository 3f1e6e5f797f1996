"""Functions of a user's that fail. The texts of errors name their lines, so nothing is added above."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from asterism.windows.triggers import TriggerResult


def fails(*_: Any) -> Any:
    raise KeyError("color")


def timer_without_zone(ctx: Any) -> Any:
    ctx.register_event_time_timer(datetime(2025, 1, 1))


def event_time_timer(ctx: Any) -> TriggerResult:
    ctx.register_event_time_timer(datetime(2025, 1, 1, tzinfo=UTC))
    return TriggerResult.CONTINUE


def processing_time_timer(ctx: Any) -> TriggerResult:
    ctx.register_processing_time_timer(datetime(2025, 1, 1, tzinfo=UTC))
    return TriggerResult.CONTINUE
