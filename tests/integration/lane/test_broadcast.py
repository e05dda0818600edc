"""Broadcast groups: every client gets all messages, in the order of each key, and resumes."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest

from proxy.lane.lanes import Lanes
from proxy.settings.types import host_port
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from testkit.thrift_client import acked, connect
from tests.integration.lane.broadcast_site import broadcast, client, count, left
from thrift_idl import consumer

KEYS = [f"key-{number % 7}" for number in range(70)]


@pytest.mark.feature("proxy: broadcast")
async def test_every_client_gets_everything_in_key_order_and_goes_on_where_it_was(
    brokers: Brokers, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, brokers=brokers, queues=2) as gateway:
        broadcast(gateway)
        first, at_first = await gateway.start_proxy()
        _, at_second = await gateway.start_proxy()
        a, b = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        async with client(gateway, at_second.thrift, "10.0.0.1@b", b):
            async with client(gateway, at_first.thrift, "a", a):
                await gateway.send(KEYS)
                await eventually(lambda: count(a) == count(b) == len(KEYS), within_s=30)
            assert a == b
            await gateway.send(KEYS)
            await eventually(lambda: count(b) == 2 * len(KEYS), within_s=30)
        await gateway.close_proxy(first)
        async with client(gateway, at_second.thrift, "a", a):  # at another proxy, after a pause
            await eventually(lambda: count(a) == 2 * len(KEYS), within_s=30)
        assert a == b
        groups = {event["group"] for event in gateway.events("deliver")}
    assert f"{gateway.group}%a" in groups
    assert len(groups) == 2
    assert gateway.verify().clean


async def test_a_proxy_keeps_nothing_of_a_client_that_left(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway:
        broadcast(gateway, ownership={"leave_after_s": 0.2})
        proxy, at = await gateway.start_proxy()
        got = defaultdict[str, list[str]](list)
        lanes: Lanes = proxy.lanes
        for round_ in (1, 2):
            async with client(gateway, at.thrift, "a", got):
                await gateway.send(["k"])
                await eventually(lambda each=round_: count(got) == each, within_s=20)
                # On a slow machine it may count as gone between two of its pulls.
                await eventually(lambda: len(lanes.members()) == 1)
            await eventually(partial(left, proxy), within_s=20)
            assert proxy.groups == {gateway.group}


async def test_a_pull_without_a_client_id_is_refused_and_acks_find_the_clients_own_group(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, queues=1) as gateway:
        broadcast(gateway)
        proxy, at = await gateway.start_proxy()
        _, port = host_port(at.thrift)
        async with connect(port) as connection:
            with pytest.raises(consumer.PullException, match=r"is broadcast, .* set clientId"):
                await connection.pull(gateway.group, clientId=None, maxRun=1)
            assert not proxy.lanes.members(), "and nothing is made for it"
            await gateway.send(["k", "k"])
            pull = {"clientId": "a", "linger_ms": 20_000}
            answer = await connection.pull(gateway.group, **pull)
            assert answer.context.groupId == f"{gateway.group}%a"
            # Acks name the group like pulls.
            context = consumer.Context(gateway.group, answer.context.topic, answer.context.qid)
            ack = consumer.AckBatch(context=context, acked=[answer.messages[0].leaseId])
            assert await connection.settle(gateway.group, ack) != [], "whose it is, is not said"
            again = await connection.pull(gateway.group, acks=[ack], **pull)
            assert [each.offset for each in again.messages] == [1]
            done = consumer.AckBatch(context=again.context, acked=[again.messages[0].leaseId])
            assert await connection.settle(gateway.group, done) == []


async def test_figures_that_come_with_verdicts_belong_to_the_client(tmp_path: Path) -> None:
    """Those verdicts name the client's own group, its request the broadcast group."""
    async with run_gateway(tmp_path, queues=1) as gateway:
        broadcast(gateway)
        proxy, at = await gateway.start_proxy()
        await gateway.send(["k"])
        figures = consumer.ClientFigures(handlers=7, prefetch=0, handling={40: 2})
        port = host_port(at.thrift)[1]
        async with connect(port) as pulls, connect(port) as settles:
            got = await pulls.pull(gateway.group, clientId="one", linger_ms=10_000)
            acks = [acked(got)]
            report = consumer.AckRequest(gateway.group, acks, clientId="one", figures=figures)
            assert (await settles.call("settle", report)).notHeld == []
            (lane,) = proxy.lanes.members()
            observed = lane.figures.observed()
            assert (observed.handlers, observed.handling) == (7, {40: 2})
