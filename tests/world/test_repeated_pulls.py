"""A lost answer is found again by a client that lists the topics, in the clients' form (X1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testkit.thrift_client import COMPACT, ThriftClient, offsets, our_pull
from tests.world.stage import Stage, play
from thrift_idl import consumer

GROUP = {
    "name": "billing",
    "topics": [
        {"name": "orders", "order_key": "KEY", "visibility_timeout_s": 20},
        {"name": "payments", "order_key": "KEY", "visibility_timeout_s": 20},
    ],
}
KEYS = "/api/groups/billing/topics/orders/keys"


async def pull(stage: Stage, request: str, *, proxy: int = 0, **fields: Any) -> Any:
    """Return the answer to a pull on a new connection, as if the previous answer had been lost."""
    host, _, port = stage.world.proxies[proxy].thrift.partition(":")

    async def ask() -> Any:
        client = ThriftClient(*await asyncio.open_connection(host, int(port)), COMPACT)
        wish = our_pull("billing", linger_ms=3000, requestId=request, **fields)
        try:
            return await client.call("pull", wish)
        finally:
            await client.close()

    return await stage.world.operator.do(ask())


def leases(answer: Any) -> list[tuple[str, str, int]]:
    """Return topic, queue and lease of each message."""
    return [
        (part.context.topic, part.context.qid, message.leaseId)
        for part in (answer, *(answer.more or ()))
        for message in part.messages or ()
    ]


async def redriven(stage: Stage, *, copies: int = 3) -> None:
    """Prepare copies of one key of orders, and messages of three keys of payments."""
    await stage.start(groups=[GROUP], topics={"orders": 1, "payments": 1}, proxies=2)
    await pull(stage, "0", topics=["payments"])
    await stage.until(lambda: len(stage.of("own+")) == 2)
    await stage.send("orders", ["a"], copies)
    await stage.until(lambda: stage.of("window", topic="orders"))
    await stage.act(f"{KEYS}/park", key="a")
    await stage.until(lambda: len(stage.of("finish", outcome="parked")) == copies)
    await stage.act(f"{KEYS}/redrive", key="a")
    await stage.send("payments", ["x", "y", "z"], 3)


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param({"topics": ["orders"]}, id="one topic"),
        pytest.param({"topics": ["orders"], "maxRun": 3, "maxBatchSize": 3}, id="a run"),
        pytest.param({"topics": ["payments", "orders"], "manyQueues": True}, id="two topics"),
        pytest.param({}, id="any topic"),
    ],
)
def test_redriven_copies_are_given_again_to_the_same_pull(wish: dict[str, Any]) -> None:
    async def main(stage: Stage) -> None:
        await redriven(stage)
        first = leases(await pull(stage, "1", **wish))
        again = leases(await pull(stage, "1", **wish))
        assert first
        assert again == first
        assert len(stage.of("replay")) == len(first)

    assert "X1" not in play(main)


def test_a_copy_whose_first_try_failed_is_given_again_too() -> None:
    async def main(stage: Stage) -> None:
        await redriven(stage)
        first = await pull(stage, "1", topics=["orders"])
        second = await pull(stage, "2", topics=["orders"], acks=[_nacks(first)])
        assert offsets(second) == offsets(first)
        assert leases(second) != leases(first)
        assert leases(await pull(stage, "2", topics=["orders"])) == leases(second)

    assert "X1" not in play(main)


def _nacks(answer: Any) -> Any:
    nacks = [consumer.Nack(leaseId=each.leaseId, retryAfterMs=100) for each in answer.messages]
    return consumer.AckBatch(context=answer.context, nacked=nacks)


def test_nothing_is_given_again_of_a_topic_that_is_not_asked_for() -> None:
    async def main(stage: Stage) -> None:
        await redriven(stage)
        first = leases(await pull(stage, "1", topics=["orders", "payments"], manyQueues=True))
        again = leases(await pull(stage, "1", topics=["payments"], manyQueues=True))
        assert again == [each for each in first if each[0] == "payments"] != []

    play(main)


def test_after_a_hand_over_the_copies_are_leased_again() -> None:
    async def main(stage: Stage) -> None:
        await redriven(stage)
        first = await pull(stage, "1", topics=["orders"])
        await stage.world.proxies[0].stop()
        answer = None
        async with asyncio.timeout(60):
            while not (answer and answer.messages):
                answer = await pull(stage, "1", proxy=1, topics=["orders"])
        assert answer.context.qid != first.context.qid
        again = await pull(stage, "1", proxy=1, topics=["orders"])
        assert leases(again) == leases(answer)

    assert "X1" not in play(main)
