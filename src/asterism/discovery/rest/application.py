"""The REST interface of rules, which the endpoint of a query and the console have in common. ``docs/rules/sources.md`` lists
the requests.

See docs/decisions/0108.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from asterism.discovery.editing.rule_set import Addition, Change, RuleSet, StoredRule, no_shadow
from asterism.discovery.sources.documents import MAX_BYTES, read_document
from asterism.errors import AsterismError, PatternProcessorError, RuleNotFoundError, VersionConflictError
from asterism.files.durable_files import NotWrittenError
from asterism.http.access import Access, Right
from asterism.http.application import Application, AuthorizedCall, ChangedError, Route, Routes
from asterism.http.messages import Answer, AnswerError, error_fields, json_answer, precondition, representation
from asterism.rules.checking.validation import InvalidProcessorError
from asterism.rules.definition.processor import MAX_PROCESSORS, Slot
from asterism.rules.sets.discovery_status import DISABLED, KILLED, PENDING, REFUSED, SHADOW, WAITING, RuleState, Status
from asterism.rules.sets.interfaces import is_shadow
from asterism.rules.sets.kill_list import name_for
from asterism.text.printable import one_line

MAX_LOGGED = 20
"""Refused rules that are logged per request; the response contains all."""
_R = TypeVar("_R")
_log = logging.getLogger("asterism.discovery")


class TooLargeError(PatternProcessorError):
    """The set would be too large to be read again."""


STATUSES: Mapping[type[AsterismError], int] = {
    RuleNotFoundError: 404,
    VersionConflictError: 409,
    ChangedError: 412,
    TooLargeError: 413,
    NotWrittenError: 500,
}


class RuleApplication(Application):
    """The REST interface of rules, with further routes, and with the statuses of further errors."""

    def __init__(
        self,
        resources: RuleResources,
        access: Access,
        more: Routes = MappingProxyType({}),
        statuses: Mapping[type[AsterismError], int] = MappingProxyType({}),
    ) -> None:
        super().__init__({**more, **resources.routes()}, access, {**STATUSES, **statuses})

    def error_answer(self, error: AsterismError) -> Answer:
        answer = super().error_answer(error)
        if not isinstance(error, InvalidProcessorError):
            return answer
        return json_answer({"error": error_fields(error), **error.checked.to_dict()}, answer.status)


class RuleStore(Protocol):
    def rule_set(self) -> RuleSet:
        """The current rules."""

    def checked(self, item: Any, author: str | None) -> Addition:
        """:raises AsterismError: it is not a valid rule or template. *author*: who adds it; None: unknown"""

    def change(
        self, change: Change[_R], author: str | None, ids: Collection[str] | None = None, *, adds: bool = False
    ) -> _R:
        """See :meth:`KeptRules.change <asterism.discovery.editing.kept_rules.KeptRules.change>`."""


class RuleResources:
    """The rules and the state of their query as resources.

    :param query: the status of the query that uses them; it raises an :class:`AnswerError`, 404 if there is no query
    """

    def __init__(self, rules: RuleStore, query: Callable[[], Status]) -> None:
        self.rules, self.query = rules, query
        self.problem: Exception | None = None
        """Why the query does not have the newest rules."""

    def routes(self) -> Routes:
        read, write = Right.READ, Right.WRITE

        def of_one(*, shadow: bool) -> Mapping[str, Route]:
            return {
                "GET": Route(read, partial(self._get, shadow=shadow)),
                "PUT": Route(write, partial(self._put, shadow=shadow), MAX_BYTES),
                "DELETE": Route(write, partial(self._delete, shadow=shadow)),
            }

        return {
            "/processors": {"GET": Route(read, self._get_all), "PUT": Route(write, self._put_all, MAX_BYTES)},
            "/processors/{id}": of_one(shadow=False),
            "/processors/{id}/shadow": of_one(shadow=True),
            "/processors/{id}/versions/{version}": {
                "GET": Route(read, self._get_version),
                "DELETE": Route(write, self._delete_version),
            },
            "/processors/{id}/promote": {"POST": Route(write, self._promote)},
            "/health": {"GET": Route(read, self._health)},
            "/status": {"GET": Route(read, self._status)},
            "/metrics": {"GET": Route(read, self._metrics)},
        }

    # ------------------------------------------------------------------ rules

    def _get_all(self, call: AuthorizedCall) -> Answer:
        return representation(self.rules.rule_set().text, call.request)

    def _put_all(self, call: AuthorizedCall) -> Answer:
        """Replace the set, or nothing if a rule is invalid."""
        document = read_document(call.body)
        if document.pointers == [""]:
            # A request with a forgotten id in the path would remove all other rules.
            raise PatternProcessorError(
                "a set is expected, not one processor",
                hint='use PUT /processors/{id} for one processor; a set is [...] or {"processors": [...]}',
            )
        if len(document.items) > MAX_PROCESSORS:
            raise PatternProcessorError(f"more than {MAX_PROCESSORS:,} processors")
        additions, refused = [], []
        for number, item in enumerate(document.items, 1):
            try:
                additions.append(self.rules.checked(item, call.principal.author))
            except AsterismError as error:
                refused.append(_refusal(item, number, error))
        if refused:
            return _all_refused(refused, len(document.items))
        is_expected = precondition(call.request)

        def change(rules: RuleSet) -> tuple[RuleSet, tuple[RuleSet, Sequence[str]]]:
            _require(is_expected(rules.text))
            after, done = rules.put_all(additions)
            return after, (rules, done)

        before, done = self.rules.change(change, call.principal.author)
        log_changes(done, call.principal.author)
        accepted = dict.fromkeys(addition.slot for addition in additions)
        removed = dict.fromkeys(rule.slot for rule in before.used() if rule.slot not in accepted)
        return json_answer({**_by_kind("accepted", accepted), **_by_kind("removed", removed), "done": done}, 200)

    def _get(self, call: AuthorizedCall, shadow: bool) -> Answer:
        [id] = call.values
        rule = self.rules.rule_set().get((id, shadow))
        if rule is None:
            raise _missing(id, shadow=shadow)
        return representation(rule.text, call.request)

    def _put(self, call: AuthorizedCall, shadow: bool) -> Answer:
        """Add a rule, or a version of it. One with the version of its shadow replaces both."""
        [id] = call.values
        document = read_document(call.body)
        if document.pointers != [""]:
            raise PatternProcessorError("one processor is expected")
        [item] = document.items
        if item.setdefault("id", id) != id:
            raise PatternProcessorError(
                f"the id of the processor is {item['id']!r:.60}, but the id in the path is {id!r:.60}"
            )
        if shadow:
            item.setdefault("shadow", True)
        addition = self.rules.checked(item, call.principal.author)
        if addition.shadow != shadow:
            raise PatternProcessorError(
                "this is no shadow" if shadow else "this is a shadow",
                hint="the path of a processor is /processors/{id}, that of its shadow /processors/{id}/shadow",
            )

        def change(rules: RuleSet) -> tuple[RuleSet, tuple[bool, Sequence[str]]]:
            after, done = rules.add([addition])
            return after, (rules.get((id, shadow)) is None, done)

        is_new, done = self._changed(call, (id, shadow), change)
        log_changes(done, call.principal.author)
        return json_answer({"id": id, "version": addition.version, "done": done}, 201 if is_new else 200)

    def _delete(self, call: AuthorizedCall, shadow: bool) -> Answer:
        """Remove a rule with all its versions, or a shadow."""
        [id] = call.values

        done = self._changed(call, (id, shadow), lambda rules: rules.apply([], [(id, shadow)]))
        log_changes(done, call.principal.author)
        return Answer(HTTPStatus.NO_CONTENT)

    def _get_version(self, call: AuthorizedCall) -> Answer:
        return representation(_version_in(self.rules.rule_set(), call).text, call.request)

    def _delete_version(self, call: AuthorizedCall) -> Answer:
        """Remove one version of a rule, which withdraws it if it waits for its timestamp."""
        is_expected = precondition(call.request)

        def change(rules: RuleSet) -> tuple[RuleSet, list[str]]:
            rule = _version_in(rules, call)
            _require(is_expected(rule.text))
            return rules.remove([rule.id], rule.version)

        log_changes(self.rules.change(change, call.principal.author, call.values[:1]), call.principal.author)
        return Answer(HTTPStatus.NO_CONTENT)

    def _promote(self, call: AuthorizedCall) -> Answer:
        [id] = call.values

        def change(rules: RuleSet) -> tuple[RuleSet, dict[str, Any]]:
            after, done = rules.promote([id])
            rule = after.get((id, False))
            return after, {"id": id, "version": None if rule is None else rule.version, "done": done}

        promoted = self._changed(call, (id, True), change)
        log_changes(promoted["done"], call.principal.author)
        return json_answer(promoted, 200)

    def _changed(self, call: AuthorizedCall, slot: Slot, change: Change[_R]) -> _R:
        """Make a change, if the rule is the one that the request expects."""
        is_expected = precondition(call.request)

        def expected(rules: RuleSet) -> tuple[RuleSet, _R]:
            rule = rules.get(slot)
            if rule is None and call.request.method != "PUT":
                raise _missing(slot[0], shadow=slot[1])
            _require(is_expected(None if rule is None else rule.text))
            return change(rules)

        return self.rules.change(expected, call.principal.author, [slot[0]], adds=call.request.method == "PUT")

    # ------------------------------------------------------------------ the query

    def _health(self, call: AuthorizedCall) -> Answer:
        fields: dict[str, Any] = {"status": "ok"}
        problem = self.problem
        try:
            fields["processors"] = len(self.rules.rule_set())
        except AsterismError as error:
            problem = error
        if problem is not None:
            fields |= {"status": "interrupted", "error": str(problem)}
        try:
            fields |= _facts_of(self.query())
        except AnswerError as error:
            if error.answer.status != HTTPStatus.NOT_FOUND:
                fields["query_error"] = error.message
        return json_answer(fields, 200 if problem is None else 503)

    def _status(self, call: AuthorizedCall) -> Answer:
        return Answer(HTTPStatus.OK, self.query().to_bytes())

    def _metrics(self, call: AuthorizedCall) -> Answer:
        try:
            from asterism.discovery.rest.prometheus import CONTENT_TYPE, text_of
        except ModuleNotFoundError:
            raise AnswerError(501, "prometheus-client is not installed", "pip install 'asterism[http]'") from None
        return Answer(HTTPStatus.OK, text_of(self.query()), {"Content-Type": CONTENT_TYPE})


def log_changes(done: Sequence[str], author: str | None) -> None:
    more = [f"{len(done) - MAX_LOGGED:,} more changes"] if len(done) > MAX_LOGGED else []
    for line in [*done[:MAX_LOGGED], *more]:
        _log.info("%s: %s", one_line(author or "somebody", 100), one_line(line, 300))


def _facts_of(status: Status) -> dict[str, Any]:
    active = [rule for rule in status.rules if rule.state in (rule.active_state, DISABLED)]
    return {
        "query": status.state,
        "in_force": {rule.id: rule.version for rule in active if not rule.shadow},
        SHADOW: {rule.id: rule.version for rule in active if rule.shadow},
        **{s: {_name(rule): rule.version for rule in status.rules if rule.state == s} for s in (PENDING, WAITING)},
        DISABLED: {_name(rule): rule.reason for rule in status.rules if rule.state == DISABLED},
        KILLED: status.killed,
        REFUSED: status.refused,
        **{
            name: sum(getattr(rule, name) for rule in status.rules) for name in ("matches", "events", "partial_matches")
        },
    }


def _name(rule: RuleState) -> str:
    return name_for(rule.id, rule.version if rule.shadow else None)


def _require(is_expected: bool) -> None:
    if not is_expected:
        raise ChangedError(
            "the current state is not the one that the change was based on", hint="read it again, and repeat the change"
        )


def _version_in(rules: RuleSet, call: AuthorizedCall) -> StoredRule:
    id, version = call.values
    rule = next((rule for rule in rules.of_id(id) if str(rule.version) == version), None)
    if rule is None:
        raise RuleNotFoundError(f"there is no processor {id!r:.60} version {version:.60}")
    return rule


def _missing(id: str, *, shadow: bool) -> AsterismError:
    return no_shadow(id) if shadow else RuleNotFoundError(f"there is no processor {id!r:.60}")


def _by_kind(what: str, slots: Iterable[Slot]) -> dict[str, Any]:
    slots = [*slots]
    shadows = [id for id, shadow in slots if shadow]
    return {what: [id for id, shadow in slots if not shadow]} | ({f"{what}_shadows": shadows} if shadows else {})


def _refusal(item: Any, number: int, error: AsterismError) -> dict[str, Any]:
    fields = item if isinstance(item, Mapping) else {}
    id, version = fields.get("id"), fields.get("version")
    return {
        "id": id if isinstance(id, str) and id else f"#{number}",
        "version": version if isinstance(version, int) else None,
        **({"shadow": True} if is_shadow(item) else {}),
        **error_fields(error),
    }


def _all_refused(refused: Sequence[Mapping[str, Any]], number: int) -> Answer:
    for refusal in refused[:MAX_LOGGED]:
        _log.warning(
            "refused: %s", one_line(f"{refusal['id']} version {refusal['version']}: {refusal['message']}", 1000)
        )
    if len(refused) > MAX_LOGGED:
        _log.warning("refused: %d more, listed in the response", len(refused) - MAX_LOGGED)
    first = f"{refused[0]['id']!r:.220}: {refused[0]['message']}"
    error = {
        "message": f"{len(refused):,} of {number:,} processors are invalid, and nothing has changed: {first}",
        "hint": "correct them, or leave them out",
    }
    return json_answer({"error": error, "refused": refused}, 422)
