"""The addresses that a push connects to, whatever the name server answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.delivery.push_request import CALLBACK_PROPERTY
from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.delivery.deliverer import ACKED, TargetDown
from proxy.delivery.sinks.push import HttpPush, make
from proxy.settings.sinks.push import PushSettings
from tests.integration.delivery.receiver import Receiver, Reply, running_receiver
from tests.integration.delivery.test_http_push import DELIVERY

pytestmark = pytest.mark.sockets


class Names:
    """Answers of a name server: each look-up takes the next list of addresses."""

    def __init__(self) -> None:
        self.answers: list[list[str]] = []

    async def getaddrinfo(self, _host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in addresses
        ]


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    known = Names()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", known.getaddrinfo)
    return known


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with running_receiver() as running:
        yield running


async def pushed(push: HttpPush, callback: str | None = None) -> object:
    properties = {} if callback is None else {CALLBACK_PROPERTY: callback}
    try:
        return await push.deliver(replace(DELIVERY, properties=properties))
    except TargetDown as down:
        return str(down)
    finally:
        await push.close()


def to(url: str, *, from_file: bool = True, **others: Any) -> HttpPush:
    settings = PushSettings.model_validate({"urls": [url], "timeout_s": 10.0, **others})
    return make(settings, ReceiverAccess(from_file=from_file))


INTERNAL = [
    *(["127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["0.0.0.0"], ["127.0.0.1", "::1"]),
    *(["169.254.169.254"], ["fd00:ec2::254"], ["100.100.100.200"]),
]


@pytest.mark.parametrize("addresses", INTERNAL, ids=" ".join)
async def test_a_name_that_resolves_to_this_machine_or_a_metadata_service_gets_nothing(
    receiver: Receiver, names: Names, addresses: list[str]
) -> None:
    names.answers = [addresses]
    url = f"http://hooks.example.com:{receiver.port}/orders"
    for from_file in (True, False):
        down = await pushed(to(url, from_file=from_file))
        assert "which receiver_networks does not allow" in str(down)
    verdict: Any = await pushed(
        to("http://1.1.1.1/", callback_hosts=[f"*.example.com:{receiver.port}"]), url
    )
    assert "which receiver_networks does not allow" in verdict.reason
    assert verdict.reject, "a retry would not help"
    assert receiver.received == []


async def test_of_several_addresses_only_the_allowed_ones_are_tried(
    receiver: Receiver, names: Names
) -> None:
    """The listed host may be private: 10.255.255.1 answers nothing, and loopback is not tried."""
    names.answers = [["127.0.0.1", "10.255.255.1"]]
    url = f"http://billing:{receiver.port}/orders"
    down = await pushed(to(url, timeout_s=0.5))
    assert "not allow" not in str(down)
    assert receiver.received == []


async def test_the_checked_address_is_the_one_connected_to(
    receiver: Receiver, names: Names
) -> None:
    """A name that changes between check and connection (DNS rebinding) gains nothing."""
    names.answers = [["127.0.0.1"], ["10.255.255.1"]]
    url = f"http://localhost:{receiver.port}/orders"
    assert await pushed(to(url)) == ACKED
    names.answers = [["10.255.255.1"], ["127.0.0.1"]]
    await pushed(to(f"http://billing:{receiver.port}/orders", timeout_s=0.5))
    assert len(receiver.received) == 1


async def test_a_redirect_leads_nowhere(receiver: Receiver) -> None:
    async with running_receiver() as other:
        receiver.answer(_redirecting(other.url))
        verdict: Any = await pushed(to(receiver.url))
        assert verdict != ACKED
        assert other.received == []


async def test_a_proxy_in_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_receiver() as other:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{other.port}")
        assert await pushed(to(receiver.url)) == ACKED
        assert other.received == []


def _redirecting(url: str) -> Reply:
    from aiohttp import web

    async def reply(_received: object) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": url})

    return reply
