"""A lease on a folder: one process at a time works there, on any file system that lists what was written.

The claims are files in the folder, named by a number and the holder. Nobody needs conditional writes: a claimant writes its claim
and then lists all claims, so that of two claimants at least one sees the other.

See docs/decisions/0130.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import fs

from asterism.errors import CheckpointInUseError, LeaseLostError
from asterism.files.file_systems import opened, read_whole
from asterism.text.printable import one_line

EXPIRY = 20.0
"""Seconds without a renewal after which a lease has expired, unless its holder is known to have ended before."""
_RENEWALS = 5
"""Renewals of a lease before it expires."""
_PATIENCE = 120.0
"""Seconds for which a process that may have been paused tries to read the claims."""
_CLAIM = re.compile(r"([0-9]{1,18})-([0-9a-f]{32})-(claims|holds|released)\.json")
_CLAIMS, _HOLDS, _RELEASED = "claims", "holds", "released"
_MAX_SHOWN = 200
_log = logging.getLogger("asterism")


@dataclass(frozen=True, order=True)
class _Claim:
    """A claim of a process. The holder is the process whose claim has the highest number of those that hold.

    The file with the highest number is not deleted, so that the number of a holder is above those of all former ones.
    """

    number: int
    owner: str
    state: str = field(default=_CLAIMS, compare=False)
    renewed: float = field(default=0.0, compare=False)
    """When it was written last, in seconds, by the clock of the file system."""

    @property
    def name(self) -> str:
        return f"{self.number}-{self.owner}-{self.state}.json"

    @property
    def holds(self) -> bool:
        return self.state == _HOLDS


class Lease:
    """The right of this process to work in a folder, until it ends or is lost.

    A claim is renewed by a thread. A process that was paused for longer than half of the *expiry* looks at all claims
    before it continues, see :meth:`check`: another may have taken over.

    :param location: the folder of the claims: a path, or a URI. It is created
    :param purpose: what is protected, for messages: ``the checkpoint /data/checkpoint``
    :param hadoop: settings of Hadoop for a URI
    :param expiry: seconds after which other processes take over from one that does not renew its claim
    """

    def __init__(
        self, location: str, purpose: str, hadoop: Mapping[str, str] | None = None, *, expiry: float = EXPIRY
    ) -> None:
        self.location, self.purpose, self.expiry = location, purpose, expiry
        self._files, self._folder = opened(location, hadoop)
        self._owner = uuid.uuid4().hex
        self._claim: _Claim | None = None
        self._checked = 0.0
        self._lost: LeaseLostError | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._when_lost: Callable[[], object] = lambda: None

    def when_lost(self, call: Callable[[], object]) -> None:
        """Set what is called, by the thread that renews the claim, when another process has taken over."""
        self._when_lost = call

    def acquire(self, waiting: Callable[[str], object] = lambda message: None) -> None:
        """Become the holder. Waits for the end of a claim that is not renewed, for as long as *expiry*.

        :param waiting: called once if it waits for long, with a message for the user
        :raises CheckpointInUseError: another process holds the lease, or is about to
        :raises OSError: the folder cannot be read or written
        """
        claim = _Claim(max((claim.number for claim in self._claims()), default=0) + 1, self._owner)
        try:
            self._write(claim)
            others = self._wait_for_others(claim, waiting)
            self._hold(max([claim.number, *(other.number + 1 for other in others)]), others)
        finally:
            self._remove(claim.name)
        self._keep_renewing()

    def _hold(self, number: int, others: list[_Claim]) -> None:
        """Write the claim of the holder, whose number is above all *others*, which have ended."""
        held, start = _Claim(number, self._owner, _HOLDS), _now()
        try:
            self._write(held)
        except BaseException:  # a part of it may be there, for whose end others would wait
            self._remove(held.name)
            raise
        # A process that was paused may have renewed its claim before it could see the new one; or this one was paused.
        before = {other.owner: other.renewed for other in others}
        for claim in self._claims():
            if claim.holds and claim.owner != self._owner and claim.renewed != before.get(claim.owner):
                self._give_up(held)
                raise self._in_use(claim)
        self._claim, self._checked = held, start
        for other in others:
            self._remove(other.name)

    def check(self) -> None:
        """Check that this process still holds the lease, if it may have been paused.

        :raises LeaseLostError: another process has taken over
        :raises OSError: the claims could not be read for two minutes, or only too slowly
        """
        since = _now()
        while self._lost is None and _now() - self._checked > self.expiry / 2:
            start = _now()
            try:
                self._renew_once()
                if start <= self._checked and _now() - start < self.expiry:
                    break  # nobody else can take over before that, however slow the storage is
                if _now() - since > _PATIENCE:
                    raise TimeoutError(f"the lease of {self.purpose} cannot be renewed in {self.expiry:g} seconds")
            except OSError:
                if _now() - since > _PATIENCE:
                    raise
                time.sleep(self.expiry / _RENEWALS / 4)
        if self._lost is not None:
            raise self._lost

    def release(self) -> None:
        """End the claim, if there is one. Others need not wait."""
        self._ended.set()
        with self._lock:
            if self._claim is not None:
                self._give_up(self._claim)
                self._claim = None

    # ------------------------------------------------------------------ claims

    def _wait_for_others(self, own: _Claim, waiting: Callable[[str], object]) -> list[_Claim]:
        """Wait until no other claim is alive. Returns the others."""
        first: dict[str, tuple[_Claim, float]] = {}
        said, pause, longest = False, self.expiry / _RENEWALS / 64, self.expiry / _RENEWALS / 2
        while True:
            claims = self._claims()
            others = [claim for claim in claims if claim.owner != self._owner]
            now = max((claim.renewed for claim in claims if claim.owner == self._owner), default=0.0)
            alive = []
            for claim in others:
                before, since = first.setdefault(claim.owner, (claim, _now()))
                is_same = (claim.renewed, claim.holds) == (before.renewed, before.holds)
                # Of two that claim, the one with the lower claim waits until the other has given up.
                if not is_same and (claim.holds or claim < own):
                    raise self._in_use(claim)
                # The clock of the file system may have been set back.
                has_expired = now - claim.renewed > self.expiry or (is_same and _now() - since > self.expiry)
                if claim.state != _RELEASED and not has_expired and not self._has_ended(claim):
                    alive.append(claim)
            if now and not alive:
                return others
            if alive and pause == longest and not said:
                said = True
                holder = self._described(alive[0])
                waiting(
                    f"{self.purpose} was used by {holder}, which has not released it; waiting up to {self.expiry:g} s"
                )
            if alive:  # perhaps a query that has just ended releases it now
                time.sleep(pause)
                pause = min(2 * pause, longest)
            self._write(own)  # again, if a new holder has removed it

    def _in_use(self, claim: _Claim) -> CheckpointInUseError:
        return CheckpointInUseError(
            f"{self.purpose} is in use",
            f"It is used by {self._described(claim)}.",
            "stop that query first, or use another location",
        )

    def _claims(self) -> list[_Claim]:
        if isinstance(self._files, fs.LocalFileSystem):
            return self._local_claims()
        selector = fs.FileSelector(self._folder, allow_not_found=True)
        infos = [(info.base_name, info.mtime_ns) for info in self._files.get_file_info(selector)]
        return _parsed(infos)

    def _local_claims(self) -> list[_Claim]:
        infos = []
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    infos.append((entry.name, entry.stat().st_mtime_ns))
        return _parsed(infos)

    def _write(self, claim: _Claim) -> None:
        content = json.dumps(_this_process()).encode()
        path = f"{self._folder}/{claim.name}"
        self._files.create_dir(self._folder, recursive=True)
        with self._files.open_output_stream(path) as file:
            file.write(content)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            self._files.delete_file(f"{self._folder}/{name}")

    def _give_up(self, held: _Claim) -> None:
        with suppress(OSError):
            self._write(_Claim(held.number, self._owner, _RELEASED))
        self._remove(held.name)

    def _content(self, claim: _Claim) -> dict[str, Any]:
        with suppress(OSError, ValueError, RecursionError):
            content = json.loads(read_whole(self._files, f"{self._folder}/{claim.name}"))
            if isinstance(content, dict):
                return content
        return {}

    def _described(self, claim: _Claim) -> str:
        content = self._content(claim)
        process, host = content.get("process"), content.get("host")
        return one_line(f"process {process} on {host}", _MAX_SHOWN) if process and host else "another process"

    def _has_ended(self, claim: _Claim) -> bool:
        """Whether the process of a claim was on this host and has ended."""
        content, own = self._content(claim), _this_process()
        if not own["boot"] or any(content.get(name) != own[name] for name in ("boot", "namespace")):
            return False
        process = content.get("process")
        return type(process) is int and content.get("started") != _started(process)

    # ------------------------------------------------------------------ renewal

    def _keep_renewing(self) -> None:
        threading.Thread(target=self._renew, name="asterism lease", daemon=True).start()

    def _renew(self) -> None:
        while not self._ended.wait(self.expiry / _RENEWALS) and self._lost is None:
            try:
                self._renew_once()
            except OSError as error:
                _log.warning("the lease of %s cannot be renewed: %s", self.purpose, one_line(str(error), _MAX_SHOWN))
        if self._lost is not None:
            _log.error("%s", self._lost)
            with suppress(Exception):  # of the caller's function
                self._when_lost()

    def _renew_once(self) -> None:
        """Look at the claims, and renew that of this process unless another one has taken over."""
        with self._lock:
            if self._claim is None or self._lost is not None:
                return
            start = _now()
            self._write(
                self._claim
            )  # before it looks: a process that takes over writes its claim, and looks again after that
            newer = [claim for claim in self._claims() if claim.state != _CLAIMS and claim > self._claim]
            if newer:
                self._lost = self._lost_to(max(newer))
                self._remove(self._claim.name)
            else:
                self._checked = start

    def _lost_to(self, claim: _Claim) -> LeaseLostError:
        return LeaseLostError(
            f"{self.purpose} was taken over by another query",
            f"This process did not renew its lease for {self.expiry:g} seconds, for example because it was paused. "
            f"The checkpoint is now used by {self._described(claim)}.",
            "this query has stopped writing; to continue it, stop the other one first",
        )


def is_released(name: str) -> bool:
    """Whether a file of a lease is a claim that its process has ended."""
    match = _CLAIM.fullmatch(name)
    return match is not None and match[3] == _RELEASED


def _parsed(infos: Sequence[tuple[str, int | None]]) -> list[_Claim]:
    claims = []
    for name, written in infos:
        if (match := _CLAIM.fullmatch(name)) is not None:
            claims.append(_Claim(int(match[1]), match[2], match[3], (written or 0) / 1e9))
    return claims


def _now() -> float:
    """Seconds, including those in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "started": _started(os.getpid()),
        "boot": _system("/proc/sys/kernel/random/boot_id"),
        "namespace": _link("/proc/self/ns/pid"),
    }


def _started(process: int) -> int | None:
    """When a process of this host was started, in ticks since the start of the host; None: there is no such process."""
    stat = _system(f"/proc/{process}/stat")
    # The name of the program, which may contain spaces, is in parentheses. A zombie has ended.
    fields = stat.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] in "ZX" else int(fields[19])


def _system(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    return ""


def _link(path: str) -> str:
    with suppress(OSError):
        return str(Path(path).readlink())
    return ""
