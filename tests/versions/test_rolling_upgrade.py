"""An installation is upgraded to this version and back to the previous one, process by process,
while messages flow: no message is lost, and no key is handled out of order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testkit.processes import Child, Children, wait_until
from tests.support.process_site import (
    FILES,
    HISTORY,
    RATE,
    Gateway,
    children_in,
    make_patient,
    verdict,
)
from tests.versions.previous import unpack

_PROXIES = 2


@pytest.fixture
def this(tmp_path: Path) -> Iterator[Children]:
    """Starts processes of this version."""
    with children_in(tmp_path) as children:
        yield children


@pytest.fixture
def previous(tmp_path: Path, this: Children) -> Children:
    """Starts processes of the previous version in the same folder."""
    return this.at((), {"PYTHONPATH": str(unpack(tmp_path / "previous"))})


@dataclass(slots=True)
class Installation:
    """Nameserver, broker and proxies on fixed ports; each is replaced alone."""

    addresses: dict[str, str] = field(default_factory=dict)
    running: dict[str, Child] = field(default_factory=dict)

    def start(self, children: Children, name: str) -> None:
        """Start the process *name*, on the ports of its predecessor."""
        self.running[name] = child = children.start(*self._command(name), *HISTORY)
        self.addresses |= {
            f"{name} {key}": value for key, value in child.ready().items() if ":" in str(value)
        }

    def replace(self, children: Children, name: str) -> None:
        """Stop a process cleanly and start it with *children*'s version."""
        assert self.running[name].terminate() == 0, self.running[name].err
        self.start(children, name)

    def gateway(self) -> Gateway:
        """Return the addresses of the proxies."""
        names = [f"proxy-{number}" for number in range(_PROXIES)]
        return Gateway(
            [self.addresses[f"{name} thrift"] for name in names],
            [self.addresses[f"{name} http"] for name in names],
        )

    def _command(self, name: str) -> tuple[object, ...]:
        def at(key: str) -> str:
            return self.addresses.get(f"{name} {key}", "127.0.0.1:0")

        nameserver = self.addresses.get("nameserver nameserver", "")
        settings, broker = FILES[:2], FILES[2:]
        if name == "nameserver":
            return ("nameserver", "--listen", at("nameserver"))
        if name == "broker":
            listen = ("--listen", at("broker"), "--nameserver", nameserver)
            return ("broker", "--data", "data", *broker, *listen)
        ports = (f"--{key}-port" for key in ("thrift", "http"))
        numbers = (at(key).rpartition(":")[2] for key in ("thrift", "http"))
        named = [part for pair in zip(ports, numbers, strict=True) for part in pair]
        return ("proxy", *settings, "--nameserver", nameserver, *named)


@dataclass(slots=True)
class Clients:
    """A producer and a consumer at each proxy, of which one is replaced at a time."""

    gateway: Gateway
    producers: list[Child] = field(default_factory=list)
    consumers: list[Child] = field(default_factory=list)

    def start(self, children: Children) -> None:
        """Start a producer and two consumers."""
        servers = [",".join(self.gateway.thrift), ",".join(reversed(self.gateway.thrift))]
        produce = ("produce", "orders", "--proxy", servers[0], *HISTORY)
        options = ("--count", 10**6, "--rate", RATE // 2, "--timeout", 120)
        self.producers.append(children.start(*produce, *options))
        consume = ("consume", "billing", "--work-ms", 3, *HISTORY)
        self.consumers += [children.start(*consume, "--proxy", each) for each in servers]

    def progress(self) -> None:
        """Wait until the newest consumers have handled messages."""
        for consumer in self.consumers[-2:]:
            consumer.wait_for(len(consumer.out) + 20)

    def stop(self, producers: list[Child], consumers: list[Child]) -> int:
        """Stop them cleanly; return the number of messages that the producers sent."""
        for producer in producers:
            assert producer.terminate() == 0, producer.err
        for consumer in consumers:
            assert consumer.terminate() == 0, consumer.err
        return sum(int(producer.ended_with["sent"]) for producer in producers)


@pytest.mark.timeout(600)
def test_rolling_forward_and_back_under_load(this: Children, previous: Children) -> None:
    """Proxies first, then broker, nameserver and clients; back in the opposite order.

    Proxies of the previous version take a topic for unknown while no broker is registered.
    """
    make_patient(this.folder)
    site = Installation()
    for name in ("nameserver", "broker", "proxy-0", "proxy-1"):
        site.start(previous, name)
    clients = Clients(site.gateway())
    clients.start(previous)
    clients.start(this)
    clients.progress()

    for name in ("proxy-0", "proxy-1", "broker", "nameserver"):
        site.replace(this, name)
        clients.progress()
    sent = clients.stop(clients.producers[:1], clients.consumers[:2])
    for name in ("nameserver", "broker", "proxy-1", "proxy-0"):
        site.replace(previous, name)
        clients.progress()
    clients.start(previous)
    site.replace(this, "proxy-0")
    clients.progress()

    sent += clients.stop(clients.producers[1:], [])
    gateway = site.gateway()
    wait_until(lambda: gateway.drained(sent), within_s=90, what="everything consumed")
    clients.stop([], clients.consumers[2:])
    for name in ("proxy-0", "proxy-1", "broker", "nameserver"):
        assert site.running[name].terminate() == 0, site.running[name].err
    report = verdict(this)
    assert (report["acknowledged"], report["lost"]) == (sent, 0)
