"""Whether a topic takes rows, asked of scripted proxies before a job begins."""

from __future__ import annotations

import asyncio

import pytest
from thrift.Thrift import TApplicationException

from testkit.scripted_proxy import Request, ScriptedProxy
from tests.integration.thin_client.spark.bulk_site import hangs_up
from thin_client.spark.destinations import check_destination
from thin_client.spark.option_values import OptionError
from thin_client.spark.options import Connecting
from thrift_idl import producer


async def check(proxy: ScriptedProxy, *, patience_s: float = 10.0) -> None:
    connecting = Connecting(servers=(proxy.address,), token="secret", request_timeout_s=5.0)
    await asyncio.to_thread(check_destination, connecting, "orders", patience_s=patience_s)


def answers(code: int, reason: str | None = None) -> object:
    async def answer(request: Request) -> producer.WritableQueues:
        assert (request.argument.topic, request.argument.token) == ("orders", "secret")
        return producer.WritableQueues(code, reason, None if code else ["broker-a_0"])

    return answer


async def test_a_topic_with_queues_takes_rows_also_after_a_lost_answer() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", hangs_up, answers(10, "its broker restarts"), answers(0))
        await check(proxy)
    assert len(proxy.of("writableQueues")) == 3


@pytest.mark.parametrize(
    ("code", "reason"), [(14, "no topic orders"), (71, "the token may not send"), (11, "illegal")]
)
async def test_what_no_retry_changes_is_refused_at_once(code: int, reason: str) -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", answers(code, reason))
        with pytest.raises(OptionError, match=f"topic 'orders': {proxy.address} .* {reason}"):
            await check(proxy)
    assert len(proxy.of("writableQueues")) == 1


async def test_patience_has_an_end() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", *(answers(10, "no broker") for _ in range(9)))
        with pytest.raises(OptionError, match="no broker"):
            await check(proxy, patience_s=0.05)


async def test_an_earlier_proxy_tells_when_messages_are_sent() -> None:
    async def unknown(request: Request) -> object:
        raise TApplicationException(TApplicationException.UNKNOWN_METHOD, "unknown method")

    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", unknown)
        await check(proxy)
