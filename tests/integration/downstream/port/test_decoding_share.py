"""Large requests at the Thrift port: refused over the wire, and paid for by their address."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.core.limits.quotas import Quota, Quotas
from proxy.downstream.port.connection import Entry, Reply
from proxy.downstream.port.gate import Gate, refuse_by
from proxy.downstream.port.large_requests import SMALL_BYTES
from proxy.downstream.port.server import ThriftServer
from proxy.net.principals import Principals
from proxy.settings.proxy_settings import LimitSettings, Settings
from testkit.thrift_client import ThriftClient, connect
from thrift_idl import consumer, consumer_service

CONTEXT = consumer.Context("billing", "orders", "broker-a_0#1")
TOKENS = [{"name": "app", "sha256": hashlib.sha256(b"secret").hexdigest()}]


class Settled:
    """A service with one method, which counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def entries(self) -> dict[str, Entry]:
        refuse = refuse_by(consumer_service.settle_result)
        return {"settle": Entry(consumer_service.settle_args, self.settle, refuse, frees=True)}

    def settle(self, _arguments: Any, reply: Reply) -> None:
        self.calls += 1
        reply(consumer_service.settle_result(success=consumer.AckAnswer(notHeld=[])))


@asynccontextmanager
async def running(
    *, tokens: bool = False, quotas: Quotas | None = None
) -> AsyncIterator[tuple[ThriftServer, Settled, ThriftClient]]:
    service = Settled()
    settings = Settings.model_validate(
        {"nameserver": ["127.0.0.1:1"], "groups": [], "tokens": TOKENS if tokens else []}
    )
    gate = Gate(Principals(settings), topics_of=lambda _group: [], quotas=quotas)
    server = ThriftServer(gate.guarded(service.entries()), LimitSettings())
    port = await server.listen("127.0.0.1", 0)
    async with connect(port) as client:
        yield server, service, client
    await server.close(grace_s=0.2)


def request(entries: int, *, token: str | None = None) -> consumer.AckRequest:
    batch = consumer.AckBatch(CONTEXT, acked=list(range(entries)))
    return consumer.AckRequest("billing", [batch], token=token)


async def refusal(client: ThriftClient, *values: Any) -> consumer.PullException:
    with pytest.raises(consumer.PullException) as refused:
        await client.call("settle", *values)
    return refused.value


async def test_an_address_that_has_used_its_share_sends_small_requests_only() -> None:
    async with running() as (server, service, client):
        assert (await client.call("settle", request(5_000))).notHeld == []
        (connection,) = server.open.values()
        assert connection.decoding is not None
        connection.decoding.take(1e12)
        refused = await refusal(client, request(5_000))
        assert refused.code == 503
        assert "max_decoding_share_per_address (0.25)" in refused.message
        assert server.load.refused["max_decoding_share_per_address"] == 1
        assert (await client.call("settle", request(50))).notHeld == []
        assert service.calls == 2


async def test_a_large_request_without_a_valid_token_is_refused() -> None:
    async with running(tokens=True) as (_, service, client):
        for token in (None, "wrong"):
            assert (await refusal(client, request(SMALL_BYTES, token=token))).code == 401
        assert service.calls == 0
        assert (await client.call("settle", request(SMALL_BYTES, token="secret"))).notHeld == []


async def test_large_requests_need_no_token_where_only_quotas_are_set() -> None:
    async with running(quotas=Quotas(Quota(requests_per_s=1000))) as (_, service, client):
        assert (await client.call("settle", request(SMALL_BYTES))).notHeld == []
        assert service.calls == 1


async def test_too_many_elements_are_refused_and_the_connection_stays() -> None:
    async with running() as (server, service, client):
        wide = consumer.AckBatch(CONTEXT, acked=list(range(99_000)))
        refused = await refusal(client, consumer.AckRequest("billing", [wide] * 7))
        assert refused.code == 400
        assert "the limit is 600000" in refused.message
        assert server.bad_frames == 1
        assert (await client.call("settle", request(1))).notHeld == []
        assert service.calls == 1
