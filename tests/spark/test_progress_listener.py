"""What a listener passes on, without Spark."""

from __future__ import annotations

import logging
from typing import Any
from unittest import mock

import pytest

from asterism.spark.session.progress_listener import Observer, ProgressListener


class Failing:
    def add(self, progress: Any) -> None:
        raise KeyError("numInputRows")

    def idle(self, run: str, time: str) -> None:
        raise TypeError

    def end(self, run: str, error: str | None) -> None:
        raise ValueError


def test_an_observer_that_fails_does_not_keep_progress_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    listener, other = ProgressListener(), mock.create_autospec(Observer, instance=True)
    listener.observers += [Failing(), other]
    progress = mock.Mock(id="f3a1")
    event = mock.Mock(progress=progress, id="f3a1", runId="run", timestamp="12:00", exception=None)
    with caplog.at_level(logging.ERROR, "asterism.spark"):
        for _ in range(2):
            listener.onQueryProgress(event)
            listener.onQueryIdle(event)
            listener.onQueryTerminated(event)
    calls = [mock.call.add(progress), mock.call.idle("run", "12:00"), mock.call.end("run", None)]
    assert other.mock_calls == 2 * calls
    # Once, not for each micro-batch.
    assert caplog.messages == ["the progress of query f3a1 was not counted by Failing"] * 3
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError, TypeError, ValueError]
