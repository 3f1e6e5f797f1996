"""A network of hosts on one machine, whose links can be cut, slow and lossy.

Each host has a TUN device. One thread of this process reads the packets of all devices and passes them on, so a link needs
neither a bridge nor netem in the kernel; the TCP of the hosts is that of the kernel. The devices end with this process.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

MTU = 9000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PACKETS = 64
"""Of a device, before the next device."""


@dataclass(frozen=True)
class Link:
    """How packets go from one host to another.

    :param loss: the share of packets that are lost; 1: the link is cut
    :param delay: seconds
    """

    loss: float = 0.0
    delay: float = 0.0


CUT = Link(loss=1.0)
_GOOD = Link()


class Network(threading.Thread):
    """Passes on packets until it is closed.

    :param seed: of the packets that are lost
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(name="network of hosts", daemon=True)
        self._devices: dict[bytes, int] = {}
        self._links: dict[tuple[bytes, bytes], Link] = {}
        self._delayed: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()
        self._random = random.Random(seed)
        self._poll = select.epoll()
        self._is_open = True
        self.passed = self.lost = 0
        """Packets."""

    def attach(self, address: str, device: int) -> None:
        """Pass on what comes from *device* (a file that packets are read from and written to), and what goes to *address*."""
        os.set_blocking(device, False)
        self._devices[socket.inet_aton(address)] = device
        self._poll.register(device, select.EPOLLIN)

    def detach(self, address: str) -> None:
        device = self._devices.pop(socket.inet_aton(address))
        self._poll.unregister(device)
        os.close(device)

    def link(self, hosts: Collection[str], others: Collection[str], link: Link) -> None:
        """Set the links from each of the *hosts* to each of the *others*, and back; by addresses."""
        for host, other in itertools.product(map(socket.inet_aton, hosts), map(socket.inet_aton, others)):
            self._links[host, other] = self._links[other, host] = link

    def mend(self) -> None:
        """All links are good again."""
        self._links = {}

    def close(self) -> None:
        self._is_open = False
        self.join()
        for device in self._devices.values():
            os.close(device)
        self._poll.close()

    def run(self) -> None:
        while self._is_open:
            wait = 0.2
            if self._delayed:
                wait = min(wait, max(0.0, self._delayed[0][0] - time.monotonic()))
            for device, _ in self._poll.poll(wait):
                self._read(device)
            while self._delayed and self._delayed[0][0] <= time.monotonic():
                _, _, device, packet = heapq.heappop(self._delayed)
                self._write(device, packet)

    def _read(self, device: int) -> None:
        for _ in range(_PACKETS):
            try:
                packet = os.read(device, MTU + 100)
            except OSError:  # there is no more, or the host is gone
                return
            self.route(packet)

    def route(self, packet: bytes) -> None:
        """Pass on, delay or lose a packet (IPv4)."""
        if len(packet) < 20 or packet[0] >> 4 != 4:
            return
        source, target = packet[12:16], packet[16:20]
        device = self._devices.get(target)
        link = self._links.get((source, target), _GOOD)
        if device is None or (link.loss and self._random.random() < link.loss):
            self.lost += 1
        elif link.delay:
            heapq.heappush(self._delayed, (time.monotonic() + link.delay, next(self._numbers), device, packet))
        else:
            self._write(device, packet)

    def _write(self, device: int, packet: bytes) -> None:
        try:
            os.write(device, packet)
            self.passed += 1
        except OSError:  # the host is gone, or does not read: as on a real link
            self.lost += 1


def tun(name: str, process: int) -> int:
    """A device in the network namespace of a process, as a file. It is gone when the file is closed."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
        subprocess.run(["ip", "link", "set", name, "netns", str(process)], check=True, capture_output=True)
    except BaseException:
        os.close(device)
        raise
    return device
