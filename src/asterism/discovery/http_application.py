"""The responses of the endpoint, without sockets: a function from requests to responses. ``docs/rules.md`` has a table of
them.

A response of success is sent only after the change has been written to the file of the set.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote

from asterism.discovery.documents import MAX_BYTES, read_document
from asterism.discovery.listening import hash_of, hash_of_token
from asterism.discovery.rule_file import ChangedError, ConflictError, Precondition, StoredRuleFile, TooLargeError
from asterism.errors import AsterismError, PatternProcessorError
from asterism.rules.discovery_status import (
    DISABLED,
    KILLED,
    PENDING,
    REFUSED,
    SHADOW,
    WAITING,
    RuleState,
    Status,
)
from asterism.rules.durable_files import NotWrittenError
from asterism.rules.interfaces import PatternProcessorManager
from asterism.rules.kill_list import name_for

MAX_LOGGED = 20  # refused processors that are logged per request; the response contains all
_STATUS = {ConflictError: 409, ChangedError: 412, TooLargeError: 413, NotWrittenError: 500}
_TAG = re.compile(r'(?:W/)?"[^"\x00-\x20\x7f]*"')
_TAGS = re.compile(rf"{_TAG.pattern}(?:[ \t]*,[ \t]*{_TAG.pattern})*")
_log = logging.getLogger("asterism.discovery")


class Request(NamedTuple):
    """One request without its body.

    :param target: path and query as they were sent
    :param headers: by name in lower case; repeated headers are joined with commas
    """

    method: str
    target: str
    headers: Mapping[str, str]


class Answer(NamedTuple):
    status: HTTPStatus
    body: bytes = b""
    headers: Mapping[str, str] = {}


class AnswerError(Exception):
    """A response other than success."""

    def __init__(self, status: int, message: str, hint: str | None = None, **headers: str) -> None:
        super().__init__(status)
        error = {"message": message, "hint": hint} if hint else {"message": message}
        self.answer = json_answer({"error": error}, status, **headers)


class Application:
    """Answers requests, and sets *changed* when there may be another set."""

    def __init__(
        self, token: str, rules: StoredRuleFile, manager: PatternProcessorManager, changed: threading.Event
    ) -> None:
        self.rules, self.manager, self._changed = rules, manager, changed
        self.problem: Exception | None = None
        """The error that prevented the manager from receiving the newest set."""
        self._token = hash_of(token)

    def public(self, request: Request) -> Answer | None:
        return None

    def authorize(self, request: Request) -> None:
        """:raises AnswerError: the request does not have the token"""
        # Hashes have the same length, so the duration reveals nothing about the token.
        if not hmac.compare_digest(hash_of_token(request.headers), self._token):
            raise unauthorized()

    def needs_body(self, request: Request) -> bool:
        """Whether the body must be read before :meth:`answer`.

        :raises AnswerError: the request fails regardless of the body
        """
        self._route(request)
        if not body_follows(request, request.method == "PUT"):
            return False
        if int(request.headers["content-length"]) > MAX_BYTES:
            raise AnswerError(413, f"the body is too large (limit {MAX_BYTES:,} bytes)")
        return True

    def answer(self, request: Request, body: bytes) -> Answer:
        try:
            return self._route(request)(request, body)
        except AnswerError as error:
            return error.answer
        except AsterismError as error:
            self._changed.set()  # the new content of a file that was not completely written may count
            status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 422)
            return json_answer({"error": error_fields(error)}, status)

    def _route(self, request: Request) -> Callable[[Request, bytes], Answer]:
        """:raises AnswerError: the resource does not exist, or does not support the method"""
        if "?" in request.target:
            raise AnswerError(400, "a query (?) is not supported", "in an id, write %3F for ?")
        # A slash in an id is written as %2F.
        try:
            path = [unquote(part, errors="strict") for part in request.target.removeprefix("/").split("/")]
        except UnicodeDecodeError:
            raise AnswerError(400, "the path is not valid UTF-8") from None
        methods: Mapping[str, Callable[[Request, bytes], Answer]]
        match path:
            case ["health"]:
                methods = {"GET": self._health}
            case ["status"]:
                methods = {"GET": self._status}
            case ["metrics"]:
                methods = {"GET": self._metrics}
            case ["processors"]:
                methods = {"GET": self._get_all, "PUT": self._put_all}
            case ["processors", id]:
                methods = self._of_one(id, shadow=False)
            case ["processors", id, "shadow"]:
                methods = self._of_one(id, shadow=True)
            case ["processors", id, "promote"]:
                methods = {"POST": partial(self._promote, id)}
            case _:
                raise AnswerError(
                    404,
                    "unknown path",
                    "the paths are /processors, /processors/{id}, /processors/{id}/shadow, /processors/{id}/promote, /health, "
                    "/status and /metrics",
                )
        if request.method not in methods:
            allowed = ", ".join(methods)
            raise AnswerError(405, f"only {allowed} are supported", Allow=allowed)
        return methods[request.method]

    def _of_one(self, id: str, *, shadow: bool) -> Mapping[str, Callable[[Request, bytes], Answer]]:
        return {
            "GET": partial(self._get, id, shadow),
            "PUT": partial(self._put, id, shadow),
            "DELETE": partial(self._delete, id, shadow),
        }

    def _get_all(self, request: Request, body: bytes) -> Answer:
        return representation(self.rules.text, request)

    def _get(self, id: str, shadow: bool, request: Request, body: bytes) -> Answer:
        text = self.rules.get(id, shadow=shadow)
        if text is None:
            raise _missing(id, shadow=shadow)
        return representation(text, request)

    def _delete(self, id: str, shadow: bool, request: Request, body: bytes) -> Answer:
        if not self.rules.remove(id, precondition(request), shadow=shadow):
            raise _missing(id, shadow=shadow)
        self._changed.set()
        return Answer(HTTPStatus.NO_CONTENT)

    def _promote(self, id: str, request: Request, body: bytes) -> Answer:
        promoted = self.rules.promote(id, precondition(request))
        if promoted is None:
            raise _missing(id, shadow=True)
        self._changed.set()
        return json_answer({"id": id, "version": promoted.get("version")}, 200)

    def _put(self, id: str, shadow: bool, request: Request, body: bytes) -> Answer:
        document = read_document(body)
        if document.pointers != [""]:
            raise PatternProcessorError("one processor is expected")
        [item] = document.items
        new = self.rules.put(id, item, precondition(request), shadow=shadow)
        self._changed.set()
        return json_answer({"id": id, "version": item.get("version")}, 201 if new else 200)

    def _put_all(self, request: Request, body: bytes) -> Answer:
        document = read_document(body)
        if document.pointers == [""]:
            # A request with a forgotten id in the path would remove all other rules.
            raise PatternProcessorError(
                "a set is expected, not one processor",
                hint='use PUT /processors/{id} for one processor; a set is [...] or {"processors": [...]}',
            )
        report = self.rules.put_all(document.items, precondition(request))
        self._changed.set()
        for one in report.refused[:MAX_LOGGED]:
            _log.warning("refused: %s", one)
        if len(report.refused) > MAX_LOGGED:
            _log.warning("refused: %d more, listed in the response", len(report.refused) - MAX_LOGGED)
        refused = [
            {
                "id": one.id,
                "version": one.version,
                **({"shadow": True} if one.shadow else {}),
                **error_fields(one.error),
            }
            for one in report.refused
        ]
        found: dict[str, Any] = {}
        for what, slots in (("accepted", report.accepted), ("removed", report.removed)):
            found[what] = [id for id, shadow in slots if not shadow]
            shadows = [id for id, shadow in slots if shadow]
            found |= {f"{what}_shadows": shadows} if shadows else {}
        return json_answer({**found, "refused": refused}, 207 if refused else 200)

    def _health(self, request: Request, body: bytes) -> Answer:
        found: dict[str, Any] = {"status": "interrupted" if self.problem else "ok", "processors": len(self.rules)}
        if self.problem:
            found["error"] = str(self.problem)
        status = self.manager.current_status()
        if status is None:
            found["in_force"] = {one.id: one.version for one in self.manager.current_pattern_processors()}
        else:
            active = [one for one in status.rules if one.state in (one.active_state, DISABLED)]
            found["in_force"] = {one.id: one.version for one in active if not one.shadow}
            found[SHADOW] = {one.id: one.version for one in active if one.shadow}
            for state in (PENDING, WAITING):
                found[state] = {_name(one): one.version for one in status.rules if one.state == state}
            found[DISABLED] = {_name(one): one.reason for one in status.rules if one.state == DISABLED}
            found |= {KILLED: status.killed, REFUSED: status.refused}
            for count in ("matches", "events", "partial_matches"):
                found[count] = sum(getattr(one, count) for one in status.rules)
        return json_answer(found, 503 if "error" in found else 200)

    def _status(self, request: Request, body: bytes) -> Answer:
        return Answer(HTTPStatus.OK, self._known_status().to_bytes())

    def _metrics(self, request: Request, body: bytes) -> Answer:
        try:
            from asterism.discovery.prometheus import CONTENT_TYPE, text_of
        except ModuleNotFoundError:
            raise AnswerError(501, "prometheus-client is not installed", "pip install 'asterism[http]'") from None
        return Answer(HTTPStatus.OK, text_of(self._known_status()), {"Content-Type": CONTENT_TYPE})

    def _known_status(self) -> Status:
        status = self.manager.current_status()
        if status is None:
            raise AnswerError(404, "this endpoint is not part of a query")
        return status


def _missing(id: str, *, shadow: bool) -> AnswerError:
    return AnswerError(404, f"{id!r:.60} has no shadow" if shadow else f"there is no processor {id!r:.60}")


def _name(one: RuleState) -> str:
    return name_for(one.id, one.version if one.shadow else None)


def unauthorized() -> AnswerError:
    """The response to a request without a known token."""
    return AnswerError(401, "the token is missing or wrong", WWW_Authenticate="Bearer")


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
        raise ChangedError("the current ETag is different", headers["ETag"])
    if not _holds("If-None-Match", request, text):
        return Answer(HTTPStatus.NOT_MODIFIED, headers=headers)
    return Answer(HTTPStatus.OK, text, headers)


def precondition(request: Request) -> Precondition:
    return lambda text: _holds("If-Match", request, text) and _holds("If-None-Match", request, text)


def _holds(header: str, request: Request, text: bytes | None) -> bool:
    """Whether this precondition (RFC 9110) holds for *text*, or for None if there is none. A precondition that was not sent
    holds.
    """
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
