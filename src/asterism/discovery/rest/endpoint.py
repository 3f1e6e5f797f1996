"""The endpoint of a query: the REST interface (:mod:`asterism.discovery.rest.application`), served by Spark's driver."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from asterism.arguments import expect
from asterism.discovery.rest.application import RuleApplication, RuleResources
from asterism.discovery.rest.rule_file import StoredRuleFile
from asterism.errors import PatternProcessorError
from asterism.http.access import Access
from asterism.http.listening import address_of, check_server, check_token, listening_socket, tls_context
from asterism.http.messages import AnswerError
from asterism.rules.sets.discovery_status import Status
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
)

RETRY = timedelta(seconds=1)
"""How often the endpoint tries again to start, or to pass the set to the manager, and checks whether it still listens."""
MAX_PAUSE = timedelta(seconds=1)
"""The longest time between two sets that are passed to the manager while there are changes."""
_log = logging.getLogger("asterism.discovery")


class HttpPatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory):
    """Receives pattern processors over HTTP, or over HTTPS with a certificate.

    :param port: the port to listen on, up to 65535; 0: a free port, which is logged
    :param token: the token that every request must send, as ``Authorization: Bearer ...``; at least 16 characters
    :param state: the file that stores the set, so that it survives a restart; created if it does not exist
    :param host: the address to listen on; without a certificate it must be a loopback address
    :param certificate: a PEM file with the certificate chain; with it, the endpoint uses HTTPS
    :param private_key: the file with its key, if the key is not in the same file
    :raises PatternProcessorError: h11 is not installed (``pip install 'asterism[http]'``); the token is too short, or would
        be sent unencrypted; the port is invalid; there is a key without a certificate

    >>> HttpPatternProcessorDiscovererFactory(8473, token="a-long-random-secret", state="/var/lib/rules.json")
    HttpPatternProcessorDiscovererFactory('http://127.0.0.1:8473', state='/var/lib/rules.json')
    """

    def __init__(
        self,
        port: int,
        *,
        token: str,
        state: str | os.PathLike[str],
        host: str = "127.0.0.1",
        certificate: str | os.PathLike[str] | None = None,
        private_key: str | os.PathLike[str] | None = None,
    ) -> None:
        for what, file in (("state", state), ("certificate", certificate), ("private_key", private_key)):
            path = str | os.PathLike if what == "state" else str | os.PathLike | None
            expect(PatternProcessorError, file, path, f"{what} must be the path of a file", 'Path("rules.json")')
        expect(PatternProcessorError, host, str, "the host must be a string", "127.0.0.1")
        check_token(token, "the token")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            raise PatternProcessorError(f"a port must be an integer from 0 to 65535, not {port!r:.60}")
        check_server("the endpoint", host, certificate, private_key)
        self.host, self.port, self.token = host, port, token
        self.state = Path(state).absolute()
        self.certificate = None if certificate is None else Path(certificate).absolute()
        self.private_key = None if private_key is None else Path(private_key).absolute()

    def __repr__(self) -> str:
        address = address_of(self.host, self.port, encrypted=self.certificate is not None)
        return f"{type(self).__name__}({address!r}, state={str(self.state)!r})"

    def create_pattern_processor_discoverer(self) -> HttpDiscoverer:
        return HttpDiscoverer(self)


class HttpDiscoverer(PatternProcessorDiscoverer):
    """See :class:`HttpPatternProcessorDiscovererFactory`. The manager receives changes in the order of requests."""

    def __init__(self, options: HttpPatternProcessorDiscovererFactory) -> None:
        self.options = options
        self.address: str | None = None
        """The address on which it listens, such as ``http://127.0.0.1:8473``; None if it does not listen."""
        self._closed = threading.Event()
        self._rules: StoredRuleFile | None = None
        self._given: bytes | None = None
        """The set that was last passed to the manager."""

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        rules = StoredRuleFile(self.options.state)
        self._given = rules.rule_set().text
        return rules.processors()

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        while not self._closed.is_set():
            try:
                asyncio.run(self._serve(StoredRuleFile(self.options.state, manager.columns, manager.udfs), manager))
            except Exception as error:
                manager.on_discovery_failed(error)
                self._closed.wait(RETRY.total_seconds())

    def close(self) -> None:
        self._closed.set()
        if self._rules is not None:
            self._rules.changed.set()

    async def _serve(self, rules: StoredRuleFile, manager: PatternProcessorManager) -> None:
        # Only the endpoint needs h11.
        from asterism.http.server import MAX_SERVED, HttpServer

        self._rules = rules
        options = self.options
        resources = RuleResources(rules, lambda: _status_of(manager))
        application = RuleApplication(resources, Access.of_token(options.token))
        tls = tls_context(options.certificate, options.private_key)
        with listening_socket(options.host, options.port) as listening, ThreadPoolExecutor(MAX_SERVED + 2) as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            async with await asyncio.start_server(HttpServer(application, tls), sock=listening):
                self.address = address_of(options.host, listening.getsockname()[1], encrypted=tls is not None)
                _log.info("listening for pattern processors on %s", self.address)
                try:
                    while not self._closed.is_set():
                        rules.changed.clear()
                        begin = time.monotonic()
                        await asyncio.to_thread(self._hand_over, rules, manager, resources)
                        # While there are many changes, requests have half of the time. The changes then come in larger sets.
                        await asyncio.to_thread(
                            self._closed.wait, min(time.monotonic() - begin, MAX_PAUSE.total_seconds())
                        )
                        await asyncio.to_thread(rules.changed.wait, RETRY.total_seconds())
                finally:
                    self.address = None

    def _hand_over(self, rules: StoredRuleFile, manager: PatternProcessorManager, resources: RuleResources) -> None:
        text = rules.rule_set().text
        if text == self._given:
            manager.on_nothing_changed()
            return
        try:
            # A set that has arrived since then is newer, and is passed again.
            manager.on_pattern_processors_updated(rules.processors())
            self._given, resources.problem = text, None
        except Exception as error:
            resources.problem = error
            manager.on_discovery_failed(error)


def _status_of(manager: PatternProcessorManager) -> Status:
    status = manager.current_status()
    if status is None:
        raise AnswerError(404, "this endpoint is not part of a query")
    return status
