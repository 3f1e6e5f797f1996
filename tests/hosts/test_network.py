"""The links of a network: packets that are passed on, lost and late. The devices are sockets, which need no root."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from tests.discovery.servers import NoServerError
from tests.hosts.namespaces import check_machine
from tests.hosts.network import CUT, Link, Network
from tests.kit import until

ONE, TWO, THREE = ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


class Peers:
    """The ends of the devices of three hosts."""

    def __init__(self) -> None:
        self.network = Network(seed=1)
        self.ends: dict[str, socket.socket] = {}
        for address in ADDRESSES:
            self.ends[address], device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.network.attach(address, device.detach())
            self.ends[address].settimeout(5)
        self.network.start()

    def send(self, source: str, target: str, text: bytes) -> None:
        header = b"\x45" + bytes(11) + socket.inet_aton(source) + socket.inet_aton(target)
        self.ends[source].send(header + text)

    def receive(self, target: str) -> bytes:
        return self.ends[target].recv(1000)[20:]


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    peers.network.close()
    for end in peers.ends.values():
        end.close()


def test_packets_go_to_their_target(peers: Peers) -> None:
    peers.send(ONE, TWO, b"to two")
    peers.send(ONE, THREE, b"to three")
    assert (peers.receive(TWO), peers.receive(THREE)) == (b"to two", b"to three")
    peers.ends[ONE].send(b"\x60" + bytes(40))  # IPv6
    peers.send(ONE, "10.0.0.9", b"nobody")
    peers.send(TWO, ONE, b"back")
    assert peers.receive(ONE) == b"back"


def test_a_cut_link_passes_nothing_until_it_is_mended(peers: Peers) -> None:
    peers.network.link([ONE], [TWO], CUT)
    peers.send(ONE, TWO, b"lost")
    peers.send(TWO, ONE, b"lost")
    peers.send(THREE, TWO, b"others pass")
    assert peers.receive(TWO) == b"others pass"
    peers.send(THREE, ONE, b"others pass")
    assert peers.receive(ONE) == b"others pass"
    peers.network.mend()
    peers.send(ONE, TWO, b"mended")
    assert peers.receive(TWO) == b"mended"


def test_loss_and_delay(peers: Peers) -> None:
    peers.network.link([ONE], [TWO], Link(loss=0.2, delay=0.1))
    begin = time.monotonic()
    for number in range(100):
        peers.send(ONE, TWO, b"%d" % number)
    first = peers.receive(TWO)
    assert time.monotonic() >= begin + 0.1
    until(lambda: peers.network.lost + peers.network.passed == 100)
    received = [first, *(peers.receive(TWO) for _ in range(peers.network.passed - 1))]
    assert 60 < len(received) < 95
    assert received == sorted(received, key=int)


def test_hosts_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(NoServerError, match="hosts in network namespaces need root"):
        check_machine()
