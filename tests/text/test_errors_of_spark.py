"""Errors of this library are read from the texts of Spark's exceptions."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

import asterism.errors
from asterism.errors import (
    AsterismError,
    EvaluationFailedError,
    InvalidEventError,
    PatternFormatError,
    UserFunctionError,
    error_in,
    unwrapped,
)

CLASSES = [
    found
    for found in vars(asterism.errors).values()
    if isinstance(found, type) and issubclass(found, AsterismError)
]  # fmt: skip
TEXTS = st.text(max_size=60)


def of_spark(error: BaseException) -> str:
    """The text of Spark's exception for an error in a worker."""
    lines = "".join(traceback.format_exception(error))
    return (
        f"An exception was thrown from the Python worker:\n{lines}\n\tat org.apache.spark.api.python\n SQLSTATE: 39000"
    )


@given(kind=st.sampled_from(CLASSES), message=TEXTS, detail=st.none() | TEXTS, hint=st.none() | TEXTS)
def test_a_text_has_the_whole_error(
    kind: type[AsterismError], message: str, detail: str | None, hint: str | None
) -> None:
    error = kind(message, detail, hint)
    found = error_in(of_spark(error))
    assert type(found) is kind
    assert str(found) == str(error)


def test_the_position_in_a_document_is_kept() -> None:
    found = error_in(of_spark(PatternFormatError("no", "what", "do", "/nodes/1")))
    assert isinstance(found, PatternFormatError)
    assert (found.message, found.detail, found.hint, found.path) == ("no", "what", "do", "/nodes/1")


def test_of_several_errors_the_last_counts() -> None:
    """It is the one that the others led to."""
    try:
        try:
            raise EvaluationFailedError("division by zero")
        except EvaluationFailedError as error:
            raise InvalidEventError(
                'the event of "ann" has no time', "An event without a time has no place."
            ) from error
    except InvalidEventError as error:
        found = error_in(of_spark(error))
    assert type(found) is InvalidEventError
    assert found.detail == "An event without a time has no place."


@pytest.mark.parametrize(
    "text", ["java.lang.OutOfMemoryError", "asterism.errors.NoSuchError: [X] no", "asterism.errors.Path: [X] no"]
)
def test_other_texts(text: str) -> None:
    assert error_in(text) is None


def test_errors_are_raised_from_those_of_spark() -> None:
    of_worker = PySparkException(of_spark(EvaluationFailedError("division by zero", hint="try_divide")))
    with pytest.raises(EvaluationFailedError, match="division by zero") as caught, unwrapped():
        raise of_worker
    assert caught.value.__cause__ is of_worker


@pytest.mark.parametrize(
    "error", [PySparkException("no"), ValueError(of_spark(InvalidEventError("x"))), KeyboardInterrupt()]
)
def test_other_exceptions_stay_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, unwrapped():
        raise error
    assert caught.value is error


def test_a_function_of_the_session_that_fails_is_explained() -> None:
    pytest.importorskip("pyspark")
    from pyspark.errors import PythonException

    from asterism.spark.session.unwrapping import explained

    trace = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "/home/me/job.py", line 9, in inverse\n    raise ValueError("zero")\nValueError: zero\n'
    )
    with pytest.raises(UserFunctionError) as caught, explained(["n <> 0 AND inverse(n) > 1"]):
        raise PythonException(trace)
    lines = str(caught.value).splitlines()
    assert lines[0] == "[USER_FUNCTION] a function of the session has failed: ValueError: zero"
    assert lines[1:3] == [
        "  /home/me/job.py, line 9, in inverse",
        "  Spark computes: n <> 0 AND inverse(n) > 1",
    ]
    assert isinstance(caught.value.__cause__, PythonException)
    for parts, text in ([], trace), (["f(x)"], trace.replace("/home/me/", "/x/asterism/")), (["f(x)"], "out of memory"):
        with pytest.raises(PythonException), explained(parts):
            raise PythonException(text)
