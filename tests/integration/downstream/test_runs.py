"""Ordered runs over the Thrift port: delivery, verdicts and expiry."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_core.tasks import spawn
from proxy.core.keys.ids import LeaseId
from testkit.brokers import Brokers
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from testkit.lanes import GROUP, TOPIC, Notes, group_settings
from testkit.messages import keyed
from testkit.thrift_client import acked, connect, link, offsets
from tests.support.consumers import consuming
from tests.support.serving import serving
from thin_client import Consumer, Message, Reject
from thrift_idl import consumer


def batch(response: Any, **verdicts: Any) -> consumer.AckBatch:
    return consumer.AckBatch(context=response.context, **verdicts)


async def test_only_clients_that_ask_get_runs_and_other_keys_come_first() -> None:
    notes = Notes()
    async with serving(history=notes) as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(n, key) for n, key in enumerate("aaaabbaac")))
        assert offsets(await client.pull(GROUP)) == [0, 4, 8]
        await client.settle(GROUP, batch(consumer.PullResponse(), released=[]))
    async with serving(history=notes) as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(n, key) for n, key in enumerate("aaaabbaac")))
        assert offsets(await client.pull(GROUP, maxRun=9, maxBatchSize=5)) == [0, 1, 4, 5, 8]
    runs = {each["lease"]: each["run"] for each in notes.of("deliver")[3:]}
    assert runs == {1: 1, 4: 1, 2: 2, 5: 2, 3: None}


async def test_a_run_is_limited_by_the_request_and_by_the_batch_size() -> None:
    settings = group_settings(max_pull_batch=4)
    async with serving(settings) as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(n, "k") for n in range(20)))
        got = await client.pull(GROUP, maxRun=3)
        assert offsets(got) == [0, 1, 2]
        got = await client.pull(GROUP, maxRun=100, acks=[acked(got)])
        assert offsets(got) == [3, 4, 5, 6]


async def test_an_ack_counts_once_those_ahead_of_it_are_finished() -> None:
    async with serving() as it, connect(it.port) as client:
        pipeline = it.own()
        it.feed(pipeline, *(keyed(n, "k") for n in range(4)))
        got = await client.pull(GROUP, maxRun=4)
        assert await client.settle(GROUP, acked(got, 2, 3)) == []
        assert (pipeline.committable, it.leased()) == (0, 4)
        assert await client.settle(GROUP, acked(got, 3)) == []  # once more, with no effect
        assert await client.settle(GROUP, acked(got, 1)) == []
        assert (pipeline.committable, it.leased()) == (3, 1)
        await client.call("submit", link(got.context, success=[3]))
        assert it.leased() == 1
        assert it.lane().counts[TOPIC].fenced == 1


async def test_the_first_failure_gives_the_rest_back_uncounted_and_then_they_come_alone() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(n, "k") for n in range(4)))
        got = await client.pull(GROUP, maxRun=4)
        verdicts = batch(got, acked=[1], nacked=[consumer.Nack(leaseId=2)], released=[3, 4])
        assert await client.settle(GROUP, verdicts) == []
        assert it.leased() == 0
        got = await client.pull(GROUP, maxRun=4, linger_ms=5000)
        assert [(each.offset, each.attempt) for each in got.messages] == [(1, 2)]
        got = await client.pull(GROUP, maxRun=4, acks=[acked(got)])
        assert [(each.offset, each.attempt) for each in got.messages] == [(2, 1), (3, 1)]
        counts = it.lane().counts[TOPIC]
        assert (counts.acked, counts.nacked, counts.released, counts.fenced) == (2, 1, 2, 0)


async def test_a_run_is_extended_and_expires_as_one_and_comes_again_one_by_one() -> None:
    async with serving(group_settings(visibility_timeout_s=3.5)) as it, connect(it.port) as client:
        pipeline = it.own()
        it.feed(pipeline, *(keyed(n, "k") for n in range(3)))
        got = await client.pull(GROUP, maxRun=3)
        leases = [pipeline.leases.live(LeaseId(number)) for number in (1, 2, 3)]
        before = {lease.deadline_ns for lease in leases if lease}
        reference = consumer.LeaseRef(context=got.context, leaseId=2)
        request = consumer.ExtendRequest(groupId=GROUP, leases=[reference], ms=10_000)
        assert (await client.call("extend", request)).notHeld == []
        after = {lease.deadline_ns for lease in leases if lease}
        assert len(before) == len(after) == 1
        assert max(after) > max(before)
        await eventually(lambda: it.leased() == 0)
        assert it.lane().counts[TOPIC].expired == 3
        for offset in range(3):
            got = await client.pull(GROUP, maxRun=3)
            assert [(each.offset, each.attempt) for each in got.messages] == [(offset, 2)]
            await client.settle(GROUP, acked(got))


async def test_a_lost_answer_with_a_run_is_given_again_whole() -> None:
    async with serving() as it, connect(it.port) as lost, connect(it.port) as client:
        it.feed(it.own(), *(keyed(n, "k") for n in range(3)))
        first = await lost.pull(GROUP, maxRun=3, requestId="1")
        again = await client.pull(GROUP, maxRun=3, requestId="1")
        assert again == first
        await client.settle(GROUP, acked(again))
        assert it.lane().counts[TOPIC].acked == 3


class Handler:
    """Records handled messages; rejects and fails selected ones the first time."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.fail: dict[bytes, Exception] = {b"a-7": ValueError("once"), b"b-5": Reject("no")}

    def __call__(self, message: Message) -> None:
        self.seen.append(message.body)
        if error := self.fail.pop(message.body, None):
            raise error

    async def handle(self, message: Message) -> None:
        self(message)

    def of(self, key: str) -> list[bytes]:
        return [body for body in self.seen if body.startswith(key.encode())]


def bodies(key: str, *numbers: int) -> list[bytes]:
    return [f"{key}-{number}".encode() for number in numbers]


@pytest.mark.sockets
async def test_the_clients_handle_runs_in_sequence_and_stop_at_a_failure(
    brokers: Brokers, tmp_path: Path
) -> None:
    """Both forms at once; messages of a key come in order, a failed one again before the next."""
    quick = {"retry_intervals_ms": [20], "on_exhausted": "dead_letter"}
    async with run_gateway(tmp_path, brokers=brokers, queues=2, topic=quick) as gateway:
        _, at = await gateway.start_proxy()
        sent = {key: bodies(key, *range(40)) for key in "abc"}
        for number in range(40):
            await gateway.send(list("abc"), body=f"{{key}}-{number}")
        handler = Handler()
        blocking = Consumer(at.thrift, group=gateway.group, max_run=8, client_id="blocking")
        running = asyncio.to_thread(blocking.run, handler, handle_signals=False)
        thread = spawn(running, name="blocking consumer")
        try:
            async with consuming(gateway, at.thrift, "aio", handle=handler.handle, max_run=8):
                await eventually(lambda: len(handler.seen) == 121, within_s=30)
        finally:
            blocking.stop()
            await thread
        again = [*range(8), *range(7, 40)]
        assert handler.of("a") == bodies("a", *again)
        assert handler.of("b") == sent["b"]
        assert handler.of("c") == sent["c"]
        report = gateway.verify()
        assert report.clean, report.violations
