"""Interruptions of sinks, as Spark recognizes them."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from asterism.errors import SinkError
from asterism.spark.session.interruptions import without_stack_traces


class Throwable:
    """One of Java, without a JVM."""

    _target_id = "o1"

    def __init__(self, text: str, cause: Throwable | None = None) -> None:
        self.text, self.cause = text, cause
        self._gateway_client: Any = self
        self.converters: list[object] = []
        self.is_connected = False

    def toString(self) -> str:
        return self.text

    def getCause(self) -> Throwable | None:
        return self.cause

    def send_command(self, command: str) -> str:
        return "ys" + self.text + "\\n\\tat org.apache.spark.Some.frame(Some.scala:1)" * 1000


INTERRUPTED = Throwable("java.lang.InterruptedException")
CANCELLED = Throwable("org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 1 cancelled")


def text_of(error: Exception, *, cause: Exception | None = None) -> str:
    """What Py4J sends to Spark when a sink raises this."""

    def sink(rows: Any, batch_id: int) -> None:
        raise error from cause

    rows: Any = None
    try:
        without_stack_traces(sink)(rows, 0)
    except Exception as raised:
        return "".join(traceback.format_exception(raised))
    raise AssertionError


def of_java(throwable: Throwable) -> Py4JJavaError:
    return Py4JJavaError("An error occurred while calling o55.count.\n", throwable)


@pytest.mark.parametrize(
    ("throwable", "name"),
    [
        (INTERRUPTED, "java.lang.InterruptedException"),
        (Throwable("java.io.IOException: failed", INTERRUPTED), "java.lang.InterruptedException"),
        (CANCELLED, "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED]"),
    ],
)
def test_an_interruption_has_no_stack_trace(throwable: Throwable, name: str) -> None:
    for text in (text_of(of_java(throwable)), text_of(SinkError("it failed"), cause=of_java(throwable))):
        known = "py4j.protocol.Py4JJavaError: An error occurred while calling"
        assert name in text.partition(known)[2]
        assert len(text.partition(known)[2]) < 500
        assert "in sink" in text


def test_other_errors_stay_as_they_are() -> None:
    assert "Some.scala" in text_of(of_java(Throwable("java.io.IOException: no space")))
    assert "it failed" in text_of(SinkError("it failed"))
