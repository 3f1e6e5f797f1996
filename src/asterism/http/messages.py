"""Requests and responses, ETags and preconditions (RFC 9110)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, NamedTuple

from asterism.errors import AsterismError

_TAG = re.compile(r'(?:W/)?"[^"\x00-\x20\x7f]*"')
_TAGS = re.compile(rf"{_TAG.pattern}(?:[ \t]*,[ \t]*{_TAG.pattern})*")
Precondition = Callable[[bytes | None], bool]
"""Whether a request may change this content, or None if there is none."""


class Request(NamedTuple):
    """One request without its body.

    :param target: path and query as they were sent
    :param headers: by name in lower case; repeated headers are joined with commas
    :param gone: has a result as soon as the client has closed the connection, so that nobody waits for the response
    """

    method: str
    target: str
    headers: Mapping[str, str]
    gone: Future[None] | None = None


class Answer(NamedTuple):
    status: HTTPStatus
    body: bytes = b""
    headers: Mapping[str, str] = {}


class AnswerError(Exception):
    """A response other than success."""

    def __init__(self, status: int, message: str, hint: str | None = None, **headers: str) -> None:
        super().__init__(status)
        self.message = message
        error = {"message": message, "hint": hint} if hint else {"message": message}
        self.answer = json_answer({"error": error}, status, **headers)


def body_follows(request: Request, is_expected: bool) -> bool:
    """Whether a body in JSON follows.

    :param is_expected: whether the method has a body; otherwise, it is not read
    :raises AnswerError: its length is unknown, or it is not sent as JSON
    """
    length = request.headers.get("content-length", "" if is_expected else "0")
    if not length or "transfer-encoding" in request.headers:
        raise AnswerError(411, "a Content-Length is required")
    if not is_expected:
        return False
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise AnswerError(415, "the body must be sent as application/json")
    return True


def json_answer(value: Any, status: int, **headers: str) -> Answer:
    body = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")
    return Answer(HTTPStatus(status), body, {name.replace("_", "-"): text for name, text in headers.items()})


def error_fields(error: AsterismError) -> dict[str, Any]:
    parts = {
        "code": error.code,
        "message": error.message,
        "detail": error.detail,
        "path": getattr(error, "path", None),
        "hint": error.hint,
    }
    return {name: value for name, value in parts.items() if value is not None and (value or name != "path")}


# ---------------------------------------------------------------------- ETags


def representation(text: bytes, request: Request) -> Answer:
    """Respond with the content, or that the client already has it."""
    headers = {"ETag": etag_of(text)}
    if not _holds("If-Match", request, text):
        raise AnswerError(412, f"the current ETag is different: {headers['ETag']}")
    if not _holds("If-None-Match", request, text):
        return Answer(HTTPStatus.NOT_MODIFIED, headers=headers)
    return Answer(HTTPStatus.OK, text, headers)


def precondition(request: Request) -> Precondition:
    return lambda text: _holds("If-Match", request, text) and _holds("If-None-Match", request, text)


def _holds(header: str, request: Request, text: bytes | None) -> bool:
    """Whether this precondition (RFC 9110) holds for *text*, or for None if there is none, or was not sent."""
    given = request.headers.get(header.lower())
    if given is None:
        return True
    if given != "*" and not _TAGS.fullmatch(given):
        raise AnswerError(400, f"{header} must contain ETags", 'in quotation marks: "..."')
    tags = {"*"} if given == "*" else set(_TAG.findall(given))
    there = set() if text is None else {"*", etag_of(text)}
    if header == "If-Match":
        return not tags.isdisjoint(there)
    return tags.isdisjoint(there | {f"W/{tag}" for tag in there})


def etag_of(text: bytes) -> str:
    return f'"{hashlib.sha256(text).hexdigest()[:32]}"'
