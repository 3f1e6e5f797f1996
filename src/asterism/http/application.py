"""An application as a table of routes: a function from requests to responses, without sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

from asterism.errors import AsterismError, PatternProcessorError
from asterism.http.access import Access, Principal, Right
from asterism.http.messages import Answer, AnswerError, Request, body_follows, error_fields, json_answer


class ChangedError(PatternProcessorError):
    """The state on which a change was based is not the current one."""


class AuthorizedCall(NamedTuple):
    """An authorized request.

    :param values: the values in the path
    """

    principal: Principal
    request: Request
    body: bytes
    values: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """
    :param right: required for it
    :param max_body: the maximum number of bytes of the body; 0: it has none
    """

    right: Right
    handle: Callable[[AuthorizedCall], Answer]
    max_body: int = 0


Routes = Mapping[str, Mapping[str, Route]]
"""By path, in which a name in braces stands for any value, and by method."""


class Application:
    """Answers requests with the routes for which they have the right: a function from requests to responses, in steps, so that a
    server reads no more of a request than needed. Only :meth:`answer` may block.

    :param statuses: the statuses of errors; others have 422
    """

    headers: Mapping[str, str] = MappingProxyType({})
    """Headers of all responses."""

    def __init__(self, routes: Routes, access: Access, statuses: Mapping[type[AsterismError], int]) -> None:
        self.routes, self.access, self.statuses = routes, access, statuses

    def public(self, request: Request) -> Answer | None:
        """The response, if the request needs no token.

        :raises AnswerError: the request fails in any case
        """
        return None

    def authorize(self, request: Request) -> None:
        """:raises AnswerError: the request has no known token, or comes from another site"""
        self.access.principal(request)
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise AnswerError(403, "the request comes from another site")

    def needs_body(self, request: Request) -> bool:
        """Whether the body must be read before :meth:`answer`.

        :raises AnswerError: the request fails regardless of the body
        """
        limit = self._route(request)[0].max_body
        if not body_follows(request, limit > 0):
            return False
        if int(request.headers["content-length"]) > limit:
            raise AnswerError(413, f"the body is too large (limit {limit:,} bytes)")
        return True

    def answer(self, request: Request, body: bytes) -> Answer:
        try:
            route, values = self._route(request)
            return route.handle(AuthorizedCall(self.access.principal(request), request, body, values))
        except AnswerError as error:
            return error.answer
        except AsterismError as error:
            return self.error_answer(error)

    def error_answer(self, error: AsterismError) -> Answer:
        status = next((code for kind, code in self.statuses.items() if isinstance(error, kind)), 422)
        return json_answer({"error": error_fields(error)}, status)

    def _route(self, request: Request) -> tuple[Route, Sequence[str]]:
        """The route and the values in the path, if there is one, and the request has the right for it."""
        if "?" in request.target:
            raise AnswerError(400, "a query (?) is not supported", "in an id, write %3F for ?")
        parts = request.target.split("/")
        matching = (path for path in self.routes if _matches(path.split("/"), parts))
        path = next(matching, None)
        if path is None:
            raise AnswerError(404, "unknown path", f"the paths are {', '.join(self.routes)}")
        names, methods = path.split("/"), self.routes[path]
        if request.method not in methods:
            allowed = ", ".join(methods)
            raise AnswerError(405, f"only {allowed} are supported", Allow=allowed)
        route = methods[request.method]
        principal = self.access.principal(request)
        if route.right not in principal.rights:
            raise AnswerError(403, f"the token {principal.name!r:.120} does not have the right to {route.right.value}")
        try:
            # A slash in a value is written as %2F.
            values = [unquote(p, errors="strict") for n, p in zip(names, parts, strict=True) if n[:1] == "{"]
        except UnicodeDecodeError:
            raise AnswerError(400, "the path is not valid UTF-8") from None
        return route, values


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    return len(names) == len(parts) and all(n == part or n[:1] == "{" for n, part in zip(names, parts, strict=True))
