"""The responses of the console, without sockets. ``docs/console.md`` has a table of the paths.

Ids of rules are in paths only below ``/processors``, for programs. The page sends them in bodies, because a browser changes paths
such as ``/rules/..`` before it sends them.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from asterism.console.backtests import Backtests
from asterism.console.completions import completions
from asterism.console.counts import WatchedStatus
from asterism.console.forms import form_from, form_of_text, notes_of_text, text_with_form, text_with_notes
from asterism.console.found_matches import MAX_PAGE, csv_of, page_of
from asterism.console.rule_texts import with_fields
from asterism.console.rule_views import MAX_COMMENT, ConsoleRules, drawing_of, explanation_of
from asterism.console.samples import MAX_EVENTS, MAX_TEXT
from asterism.console.worker import WorkerError, WorkerProcess
from asterism.discovery.editing.editing import local_user
from asterism.discovery.editing.rule_set import RuleSet
from asterism.discovery.rest.application import RuleApplication, RuleResources
from asterism.errors import AsterismError, PatternProcessorError
from asterism.expressions.types import name_of
from asterism.http.access import Access, Right
from asterism.http.application import AuthorizedCall, Route
from asterism.http.listening import is_loopback
from asterism.http.messages import Answer, AnswerError, Request, error_fields, etag_of, json_answer, representation
from asterism.patterns.semantics import Semantics
from asterism.rules.checking.validation import InvalidProcessorError
from asterism.rules.definition.costs import cost_of
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.rule_templates import is_template
from asterism.rules.definition.source_words import words_of
from asterism.rules.sets import kill_list
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.history import HistoryEntry, item_of_version
from asterism.rules.sets.interfaces import without_flag
from asterism.rules.sets.set_store import FolderStore, store_at
from asterism.text.printable import one_line
from asterism.text.strict_json import DocumentSyntaxError, decode, text_of
from asterism.text.strict_yaml import read_yaml, written_yaml

MAX_BODY = 3 * MAX_TEXT
CHECK_CPU = 10.0
"""Seconds of CPU time after which a client no longer waits for the check of a rule, which the limits of rules bound."""
CHECK_TIMEOUT = 120.0
"""Seconds for which it waits at most, in the queue and on a busy machine."""
CHECK_POLL = 0.25
"""Seconds between two looks at a check for which a client waits."""
SAMPLE_TIMEOUT = 30.0
"""Seconds after which the process that tries a rule is stopped."""
MAX_CHECKING = 2
MAX_SAMPLING = 4
"""Clients that may wait for the process that tries rules."""
MAX_READING = 2
"""Pages and files of matches that are made at the same time. Each needs a few hundred megabytes at most."""
MAX_KEY_VALUE = 1_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_T = TypeVar("_T")
_log = logging.getLogger("asterism.console")


class ConsoleApplication(RuleApplication):
    """Answers requests for the page, and those of the page and of programs.

    :param source: the rules
    :param status: the status of a query; None: there is no checkpoint
    :param sampler: tries rules on events
    :param backtests: None: there is no history
    :param facts: further facts about the console that the page shows
    """

    headers = HEADERS

    def __init__(
        self,
        source: ConsoleRules,
        access: Access,
        sampler: WorkerProcess,
        *,
        status: WatchedStatus | None = None,
        backtests: Backtests | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.source, self.sampler = source, sampler
        self.status, self.backtests, self.facts = status, backtests, dict(facts or {})
        self._assets = _assets()
        self._checking = ThreadPoolExecutor(MAX_CHECKING, thread_name_prefix="asterism-console-check")
        self._sampling = threading.BoundedSemaphore(MAX_SAMPLING)
        self._reading = threading.BoundedSemaphore(MAX_READING)
        read, write = Right.READ, Right.WRITE
        page = {
            "/api/session": {"GET": Route(read, self._session)},
            "/api/completions": {"GET": Route(read, self._completions)},
            "/api/rules": {"GET": Route(read, self._rules)},
            "/api/status": {"GET": Route(read, self._query_status)},
            "/api/alerts": {"POST": Route(read, self._alerts, MAX_BODY)},
            "/api/rule": {"POST": Route(read, self._rule, MAX_BODY)},
            "/api/check": {"POST": Route(read, self._check, MAX_BODY)},
            "/api/form": {"POST": Route(read, self._form, MAX_BODY)},
            "/api/sample": {"POST": Route(read, self._sample, MAX_BODY)},
            "/api/events": {"POST": Route(read, self._events, MAX_BODY)},
            "/api/tests": {"POST": Route(read, self._tests, MAX_BODY)},
            "/api/test": {"POST": Route(read, self._new_test, MAX_BODY)},
            "/api/save": {"POST": Route(write, self._save, MAX_BODY)},
            "/api/enable": self._changed(lambda rules, id, version: rules.enable([id], version)),
            "/api/disable": self._changed(lambda rules, id, version: rules.disable([id])),
            "/api/remove": self._changed(lambda rules, id, version: rules.remove([id], version)),
            "/api/promote": self._changed(lambda rules, id, version: rules.promote([id])),
            "/api/kill": {"POST": Route(write, self._kill, MAX_BODY)},
            "/api/unkill": {"POST": Route(write, self._unkill, MAX_BODY)},
            "/api/history": {"POST": Route(read, self._history, MAX_BODY)},
            "/api/rollback": {"POST": Route(write, self._roll_back, MAX_BODY)},
            "/api/backtest": {"POST": Route(write, self._backtest, MAX_BODY)},
            "/api/backtest/state": {"POST": Route(read, self._backtest_state, MAX_BODY)},
            "/api/backtest/matches": {"POST": Route(read, self._backtest_matches, MAX_BODY)},
            "/api/backtest/download": {"POST": Route(read, self._backtest_download, MAX_BODY)},
            "/api/backtest/cancel": {"POST": Route(write, self._backtest_cancel, MAX_BODY)},
        }
        resources = RuleResources(source, self._known_status)
        super().__init__(resources, access, page, {WorkerError: 503})

    def close(self) -> None:
        self._checking.shutdown(wait=False, cancel_futures=True)
        self.sampler.stop()
        if self.backtests is not None:
            self.backtests.close()
        if self.status is not None:
            self.status.close()

    # ------------------------------------------------------------------ the steps of a request

    def public(self, request: Request) -> Answer | None:
        """The page, which contains no secrets. It asks its user for the token."""
        self._check_host(request)
        asset = self._assets.get(request.target)
        if asset is None:
            return None
        if request.method != "GET":
            raise AnswerError(405, "only GET is supported", Allow="GET")
        if request.headers.get("if-none-match") == asset.headers["ETag"]:
            return Answer(HTTPStatus.NOT_MODIFIED, headers={"ETag": asset.headers["ETag"]})
        return asset

    def _check_host(self, request: Request) -> None:
        """Without tokens, a page of another site could otherwise reach the console under another name.

        :raises AnswerError: the console is addressed by a name
        """
        if self.access.tokens is not None:
            return
        given = request.headers.get("host", "")
        try:
            host = urlsplit("//" + given).hostname or ""
        except ValueError:
            host = ""
        if not is_loopback(host):
            raise AnswerError(421, f"this host is not known: {given:.100}", "use http://127.0.0.1")

    # ------------------------------------------------------------------ the page

    def _session(self, call: AuthorizedCall) -> Answer:
        schema = self.source.schema(0)
        session = {
            "name": call.principal.name,
            "isOpen": self.access.tokens is None,
            "rights": sorted(right.value for right in call.principal.rights),
            "source": self.source.name,
            "columns": None if schema is None else [[field.name, name_of(field.type)] for field in schema],
            "hasStatus": self.status is not None,
            "hasBacktest": self.backtests is not None,
            "maxEvents": MAX_EVENTS,
        }
        return json_answer(session | self.facts, 200)

    def _completions(self, call: AuthorizedCall) -> Answer:
        return json_answer(completions({} if self.status is None else self.status.udfs()), 200)

    def _rules(self, call: AuthorizedCall) -> Answer:
        text = json.dumps({"rules": self.source.views()}, ensure_ascii=False).encode(errors="backslashreplace")
        return representation(text, call.request)

    def _query_status(self, call: AuthorizedCall) -> Answer:
        watched = self._watched()
        status, problem = watched.current()
        fields: dict[str, Any] = {
            "series": watched.series(),
            "earlier": watched.earlier(),
            "error": None if problem is None else error_fields(problem),
        }
        if status is not None:
            fields["status"] = json.loads(status.to_bytes())
        return json_answer(fields, 200)

    def _alerts(self, call: AuthorizedCall) -> Answer:
        """The matches of a rule, or of all rules, by hour."""
        return json_answer(self._watched().alerts(_Fields.of(call).optional_text("id")), 200)

    def _rule(self, call: AuthorizedCall) -> Answer:
        return json_answer(self.source.details(_Fields.of(call).text("id")), 200)

    def _check(self, call: AuthorizedCall) -> Answer:
        fields = _Fields.of(call)
        text, id = fields.text("text"), fields.optional_text("id")
        checked = self._limited(call, lambda: self.source.check(text, id))
        form = self._limited(call, lambda: form_of_text(text))
        report = checked.checked.to_dict() | {"form": None if form is None else form.to_dict()}
        report["notes"] = self._limited(call, lambda: notes_of_text(text))
        processor = checked.checked.processor
        if processor is not None and checked.item is not None:
            report |= {"id": checked.item["id"], "effect": self.source.effect(checked)}
            report |= _described(checked.rule, processor, self.source.semantics)
        return json_answer(report, 200)

    def _form(self, call: AuthorizedCall) -> Answer:
        """The text of a rule with the clause of a form, or with its title and description."""
        fields = _Fields.of(call)
        text, notes = fields.text("text"), fields.values.get("notes")
        form = form_from(fields.values.get("form")) if notes is None else None

        def written() -> str:
            return text_with_notes(text, notes) if form is None else text_with_form(text, form)

        return json_answer({"text": self._limited(call, written)}, 200)

    def _limited(self, call: AuthorizedCall, compute: Callable[[], _T]) -> _T:
        """The result of a computation about a rule, of which a few run at the same time, and others wait for their turn.

        :raises AnswerError: it takes too long, or its client has gone
        """
        used = _ThreadTime()

        def computed() -> _T:
            used.begin()
            return compute()

        future: Future[_T] = self._checking.submit(computed)
        deadline = time.monotonic() + CHECK_TIMEOUT
        while not wait([future], CHECK_POLL).done:
            if used.seconds() > CHECK_CPU:
                message = f"the check of the rule takes more than {CHECK_CPU:g} seconds"
                raise AnswerError(422, message, "write shorter conditions, or fewer")
            if time.monotonic() > deadline or _is_gone(call):
                future.cancel()
                raise AnswerError(503, "the rule cannot be checked in time", "try again later", Retry_After="5")
        return future.result()

    def _valid_rule(self, call: AuthorizedCall, fields: _Fields) -> Mapping[str, Any]:
        """The rule of the text of a request; of a template, the one with the id of the request, or the first one."""
        text, id = fields.text("text"), fields.optional_text("id")
        checked = self._limited(call, lambda: self.source.check(text, id))
        if checked.checked.processor is None or checked.rule is None:
            raise InvalidProcessorError.of(checked.checked)
        rule: Mapping[str, Any] = without_flag(checked.rule)[0]
        return rule

    def _sample(self, call: AuthorizedCall) -> Answer:
        fields = _Fields.of(call)
        rule = self._valid_rule(call, fields)
        request = {"do": "sample", "rule": rule, "events": fields.text("events"), "key": fields.key("key")}
        return json_answer(self._sampled(call, request), 200)

    def _events(self, call: AuthorizedCall) -> Answer:
        fields = _Fields.of(call)
        text, key = fields.optional_text("text"), fields.key("key")
        item = None if text is None else self._rule_if_valid(call, fields, required=key is not None)
        limit, around = fields.number("limit"), fields.key("around")
        if not 1 <= limit <= MAX_EVENTS:
            raise AnswerError(422, f"limit must be a number from 1 to {MAX_EVENTS:,}")
        if around is not None and (len(around) != 2 or None in around):
            raise AnswerError(422, "around must be the times of the first and the last event")
        request = {"do": "events", "rule": item, "key": key, "limit": limit, "around": around}
        return json_answer(self._sampled(call, request), 200)

    def _rule_if_valid(self, call: AuthorizedCall, fields: _Fields, *, required: bool) -> Mapping[str, Any] | None:
        try:
            return self._valid_rule(call, fields)
        except InvalidProcessorError:
            if required:
                raise
            return None

    def _tests(self, call: AuthorizedCall) -> Answer:
        """Run the tests of the text of a rule."""
        return json_answer(self._sampled(call, {"do": "tests", "rule": self._valid_rule(call, _Fields.of(call))}), 200)

    def _new_test(self, call: AuthorizedCall) -> Answer:
        """The text of a rule with a test more: what the rule finds in a sample."""
        fields = _Fields.of(call)
        rule = self._valid_rule(call, fields)
        if is_template(read_yaml(fields.text("text"))[0]):
            raise AnswerError(422, "this is a template", "write the tests of a rule of a template in its row")
        tests = rule.get("tests") or []
        name = _free_name(fields.text("name").strip() or "sample", {test["name"] for test in tests})
        asked = {"do": "test", "rule": rule, "events": fields.text("events"), "name": name, "needed": fields.needed()}
        test = self._sampled(call, asked)
        text = with_fields(fields.text("text"), {"tests": [*tests, test]})
        return json_answer({"name": name, "events": len(test["events"]), "text": text}, 200)

    def _sampled(self, call: AuthorizedCall, request: Mapping[str, Any]) -> Any:
        if not self._sampling.acquire(blocking=False):
            raise AnswerError(503, "too many rules are being tried", "try again later", Retry_After="5")
        try:
            return self.sampler.ask(request, timeout=SAMPLE_TIMEOUT, gone=call.request.gone)
        finally:
            self._sampling.release()

    # ------------------------------------------------------------------ changes

    def _save(self, call: AuthorizedCall) -> Answer:
        fields = _Fields.of(call)
        text, tag, comment = fields.text("text"), fields.optional_text("tag"), fields.optional_text("comment")
        if comment is not None and len(comment) > MAX_COMMENT:
            raise AnswerError(422, f"comment must have at most {MAX_COMMENT:,} characters")
        saved = self.source.save(text, tag, self._author(call), (comment or "").strip() or None)
        return json_answer(saved, 200)

    def _author(self, call: AuthorizedCall) -> str | None:
        """Without tokens, the user who runs the console, as for changes by ``asterism rules``."""
        return local_user() if self.access.tokens is None else call.principal.author

    def _changed(self, change: Callable[[RuleSet, str, int | None], tuple[RuleSet, list[str]]]) -> Mapping[str, Route]:
        """A change of a rule, or of one version of it."""

        def handle(call: AuthorizedCall) -> Answer:
            fields = _Fields.of(call)
            id, version, tag = fields.text("id"), fields.optional_number("version"), fields.text("tag")
            done = self.source.changed(id, tag, self._author(call), lambda rules: change(rules, id, version))
            return json_answer({"done": done}, 200)

        return {"POST": Route(Right.WRITE, handle, MAX_BODY)}

    # ------------------------------------------------------------------ the query

    def _kill(self, call: AuthorizedCall) -> Answer:
        """Exclude a rule from the query, or a version of it."""
        fields = _Fields.of(call)
        name = kill_list.name_for(fields.text("id"), fields.optional_number("version"))
        reason = fields.text("reason").strip()
        if not reason:
            raise AnswerError(422, "a reason is needed", "it stays in the history of the query")
        kill_list.kill(self._store(), [name], reason, by=self._author(call))
        _log.info("%s: %s killed: %s", *(one_line(text, 300) for text in (call.principal.name, name, reason)))
        return json_answer({"done": [f"{name} killed"]}, 200)

    def _unkill(self, call: AuthorizedCall) -> Answer:
        """Admit killed rules again, by their names in the kill list."""
        name = _Fields.of(call).text("name")
        kill_list.unkill(self._store(), [name])
        _log.info("%s: %s admitted", *(one_line(text, 300) for text in (call.principal.name, name)))
        return json_answer({"done": [f"{name} is admitted again, with its next version"]}, 200)

    def _watched(self) -> WatchedStatus:
        if self.status is None:
            raise AnswerError(404, "there is no checkpoint", "start the console with --checkpoint")
        return self.status

    def _store(self) -> FolderStore:
        return store_at(self._watched().checkpoint)

    # ------------------------------------------------------------------ history

    def _history(self, call: AuthorizedCall) -> Answer:
        """The history of a rule in a query, the newest entry first."""
        entries = self._watched().history(_Fields.of(call).text("id"))
        return json_answer({"entries": [_entry(entry) for entry in entries]}, 200)

    def _roll_back(self, call: AuthorizedCall) -> Answer:
        fields = _Fields.of(call)
        id, version, tag = fields.text("id"), fields.number("version"), fields.text("tag")
        entries = () if self.status is None else self.status.history(id)
        item = item_of_version(reversed(entries), id, version)
        return json_answer({"done": self.source.roll_back(id, version, tag, item, self._author(call))}, 200)

    # ------------------------------------------------------------------ backtests

    def _known_backtests(self) -> Backtests:
        if self.backtests is None:
            raise AnswerError(404, "there is no history", "start the console with --history")
        return self.backtests

    def _backtest(self, call: AuthorizedCall) -> Answer:
        backtests = self._known_backtests()
        fields = _Fields.of(call)
        item, label = self._valid_rule(call, fields), fields.optional_text("label")
        against = self.source.used(str(item["id"]))
        request = {"rule": item, "against": None if against is None else without_flag(against)[0], "label": label}
        job = backtests.submit(str(item["id"]), item["version"], request, call.principal.name)
        return json_answer(job.to_dict(), 202)

    def _backtest_state(self, call: AuthorizedCall) -> Answer:
        return json_answer(self._known_backtests().get(_Fields.of(call).number("job")).to_dict(), 200)

    def _backtest_matches(self, call: AuthorizedCall) -> Answer:
        """Some matches of a backtest."""
        fields = _Fields.of(call)
        wanted = {name: fields.values[name] for name in ("difference", "true") if fields.values.get(name) is not None}
        if not isinstance(wanted.get("difference", ""), str) or not isinstance(wanted.get("true", True), bool):
            raise AnswerError(422, "difference must be a string, and true must be true or false")
        start, count = fields.number("from"), fields.number("count")
        if start < 0 or not 1 <= count <= MAX_PAGE:
            raise AnswerError(422, f"count must be from 1 to {MAX_PAGE:,}, and from at least 0")
        return json_answer(self._read_matches(fields, lambda file: page_of(file, wanted, start, count)), 200)

    def _backtest_download(self, call: AuthorizedCall) -> Answer:
        """All matches of a backtest, as a file."""
        fields = _Fields.of(call)
        format = fields.text("format")
        if format == "csv":
            body, kind = self._read_matches(fields, csv_of), "text/csv; charset=utf-8"
        elif format == "parquet":
            body, kind = self._read_matches(fields, Path.read_bytes), "application/vnd.apache.parquet"
        else:
            raise AnswerError(422, "format must be csv or parquet")
        return Answer(HTTPStatus.OK, body, {"Content-Type": kind})

    def _read_matches(self, fields: _Fields, read: Callable[[Path], _T]) -> _T:
        """Read the file with the matches of a backtest.

        :raises AnswerError: too many are being read, or it has been removed in the meantime
        """
        file = self._known_backtests().matches(fields.number("job"))
        if not self._reading.acquire(blocking=False):
            raise AnswerError(503, "too many matches are being read", "try again later", Retry_After="1")
        try:
            return read(file)
        except FileNotFoundError:
            raise AnswerError(422, "the matches of this backtest are not kept any more", "run it again") from None
        finally:
            self._reading.release()

    def _backtest_cancel(self, call: AuthorizedCall) -> Answer:
        return json_answer(self._known_backtests().cancel(_Fields.of(call).number("job")).to_dict(), 200)

    def _known_status(self) -> Status:
        status, problem = self._watched().current()
        if status is None:
            raise AnswerError(503, "the status is not known yet" if problem is None else problem.message)
        return status


# ---------------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class _Fields:
    """The JSON object of a request."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, call: AuthorizedCall) -> _Fields:
        try:
            fields = decode(text_of(call.body, MAX_BODY))
        except DocumentSyntaxError as error:
            detail = ": ".join(part for part in (error.detail, error.place) if part) or None
            raise PatternProcessorError(error.message, detail, error.hint) from None
        if not isinstance(fields, dict):
            raise AnswerError(422, "the body must be an object")
        return cls(fields)

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str):
            raise AnswerError(422, f"{name} must be a string")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.values.get(name) is None else self.text(name)

    def number(self, name: str) -> int:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise AnswerError(422, f"{name} must be an integer")
        return value

    def optional_number(self, name: str) -> int | None:
        return None if self.values.get(name) is None else self.number(name)

    def needed(self) -> Mapping[str, Any] | None:
        """Whether a test has only the events that matches need, and of which match: its key, and its first and last time."""
        given = self.values.get("needed")
        if given is None or given is False:
            return None
        if given is True:
            return {}
        if not isinstance(given, dict) or given.keys() != {"key", "start", "end"}:
            raise AnswerError(422, "needed must be true, false, or the key, start and end of a match")
        match = _Fields(given)
        return {"key": match.key("key"), "start": match.optional_text("start"), "end": match.optional_text("end")}

    def key(self, name: str) -> Sequence[str | None] | None:
        """The values of a key, each a string or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > 100:
            raise AnswerError(422, f"{name} must be a list")
        for part in value:
            if part is not None and not (isinstance(part, str) and len(part) <= MAX_KEY_VALUE):
                raise AnswerError(422, f"{name} must be a list of strings of up to {MAX_KEY_VALUE:,} characters")
        return value


def _is_gone(call: AuthorizedCall) -> bool:
    """Whether nobody waits for the response any more."""
    return call.request.gone is not None and call.request.gone.done()


class _ThreadTime:
    """The CPU time that a thread has used since it began something."""

    def __init__(self) -> None:
        self._clock: int | None = None
        self._begun = 0.0

    def begin(self) -> None:
        """Called by the thread."""
        if sys.platform != "win32" and hasattr(time, "pthread_getcpuclockid"):
            clock = time.pthread_getcpuclockid(threading.get_ident())
            self._begun = time.clock_gettime(clock)
            self._clock = clock

    def seconds(self) -> float:
        """0 if the thread has not begun, or the system does not count its time."""
        return 0.0 if self._clock is None else time.clock_gettime(self._clock) - self._begun


def _free_name(name: str, taken: Collection[str]) -> str:
    names = (name, *(f"{name} {number}" for number in range(2, len(taken) + 2)))
    return next(free for free in names if free not in taken)


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    """An entry of the history, with the source of the version that it added."""
    fields = {name: value for name, value in entry.to_dict().items() if name != "definition"} | {"text": str(entry)}
    if entry.definition is not None:
        item = json.loads(entry.definition)
        with suppress(AsterismError):  # of a later release
            item = PatternProcessor.from_dict(item).to_dict()  # the fields in their usual order, for comparisons
        fields["source"] = written_yaml(item)
    return fields


def _described(item: Any, processor: PatternProcessor, semantics: Semantics) -> dict[str, Any]:
    """The drawing, the explanation and the cost of a valid rule."""
    cost, words = cost_of(processor, semantics), words_of(item, processor)
    return {
        "drawing": drawing_of(words, processor),
        "explanation": explanation_of(words, processor, semantics),
        "cost": {name: getattr(cost, name) for name in ("states", "conditions", "bound")},
    }


def _assets() -> dict[str, Answer]:
    """The files of the page, by path. There are no others, so no request chooses a file."""
    assets: dict[str, Answer] = {}
    folders = [("/page/", resources.files("asterism.console").joinpath("page"))]
    while folders:
        path, folder = folders.pop()
        for file in folder.iterdir():
            suffix = "." + file.name.rpartition(".")[2]
            if file.is_dir():
                folders.append((f"{path}{file.name}/", file))
            elif suffix in _TYPES:
                body = file.read_bytes()
                headers = {"Content-Type": _TYPES[suffix], "ETag": etag_of(body)}
                assets["/" if file.name == "index.html" else path + file.name] = Answer(HTTPStatus.OK, body, headers)
    return assets
