"""A lost request, a lost answer, and the same requestId again: no double effect (X1)."""

from __future__ import annotations

import asyncio

import pytest

from proxy.downstream.port.requests import MAX_TEXT
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, Notes, group_settings
from testkit.messages import keyed, message
from testkit.thrift_client import acked, connect, offsets, our_pull
from tests.support.serving import parked, serving
from thrift_idl import consumer


def leases(answer: consumer.PullResponse) -> list[int]:
    return [each.leaseId for each in answer.messages]


async def test_the_same_id_gets_the_same_answer_on_any_connection() -> None:
    notes = Notes()
    async with serving(history=notes) as it, connect(it.port) as lost, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "a"), keyed(1, "b"), keyed(2, "c"))
        first = await lost.pull(GROUP, requestId="1", maxBatchSize=2)
        again = await client.pull(GROUP, requestId="1", maxBatchSize=2)
        assert again == first
        assert offsets(await client.pull(GROUP, requestId="2")) == [2]
        assert it.leased() == 3
        assert [each.attempt for each in again.messages] == [1, 1]
        assert [each["req"] for each in notes.of("deliver")] == ["1", "1", "2"]
        assert [(each["lease"], each["req"]) for each in notes.of("replay")] == [(1, "1"), (2, "1")]
        assert it.consumers.replayed == 1


async def test_acks_of_a_repeated_pull_are_applied_again_without_harm() -> None:
    """The request arrived, the answer did not: its acks are sent again."""
    async with serving() as it, connect(it.port) as client, connect(it.port) as other:
        pipeline = it.own()
        it.feed(pipeline, keyed(0, "k"), keyed(1, "k"), keyed(2, "k"))
        acks = [acked(await client.pull(GROUP, requestId="1"))]
        second = await client.pull(GROUP, requestId="2", acks=acks)
        again = await other.pull(GROUP, requestId="2", acks=acks)
        assert again == second
        assert offsets(again) == [1]
        assert pipeline.committable == 1
        counts = it.lane().counts[TOPIC]
        assert (counts.acked, counts.fenced) == (1, 1)


async def test_settled_or_lost_leases_are_not_repeated() -> None:
    async with serving(group_settings(topics=("a", "b"))) as it, connect(it.port) as client:
        kept, lost = it.own(topic="a"), it.own(topic="b")
        it.feed(kept, keyed(0, "x"), keyed(1, "y"))
        it.feed(lost, keyed(0, "z"))
        first = await client.pull(GROUP, requestId="1", manyQueues=True)
        assert leases(first) + leases(first.more[0]) == [1, 2, 1]
        await client.settle(GROUP, acked(first, 1))
        it.lane().remove(lost)
        it.feed(it.own(topic="b", epoch=2), keyed(0, "z"))
        again = await client.pull(GROUP, requestId="1", manyQueues=True)
        assert (again.context.topic, leases(again), again.more) == ("a", [2], None)
        await client.settle(GROUP, acked(again))
        fresh = await client.pull(GROUP, requestId="1")
        assert (fresh.context.qid, leases(fresh)) == ("broker-a_0#2", [1])


async def test_an_answer_is_repeated_of_the_topics_that_are_asked_for_alone() -> None:
    """A principal with rights to one topic cannot use known names to get messages of the other."""
    async with (
        serving(group_settings(topics=("a", "b"))) as it,
        connect(it.port) as client,
        connect(it.port) as other,
    ):
        pipelines = [it.own(topic=topic) for topic in "ab"]
        for each in pipelines:
            it.feed(each, message(0, body=each.topic.encode(), key="k", topic=each.topic))
        await client.pull(GROUP, requestId="1", manyQueues=True)
        got = await other.pull(GROUP, requestId="1", topics=["a"], manyQueues=True)
        assert ([each.value for each in got.messages], got.more) == ([b"a"], None)
        kept = [lease.holder.connection for each in pipelines for lease in each.leases]
        assert len(set(kept)) == 2


@pytest.mark.sockets
async def test_leases_of_an_answer_that_never_left_wait_for_the_replay() -> None:
    async with serving(limits={"max_answer_bytes": 15 * 2**20}) as it:
        it.feed(it.own(), *(message(n, key=str(n), body=bytes(3_000_000)) for n in range(5)))
        async with connect(it.port, receive_buffer=4096) as slow, connect(it.port) as other:
            slow.send("pull", our_pull(GROUP, requestId="1"))
            await eventually(lambda: it.leased() == 5)
            slow.abort()
            await eventually(lambda: len(it.server.open) == 1)
            assert (await other.pull(GROUP, clientId="client-2", requestId="1")).messages == []
            again = await other.pull(GROUP, requestId="1")
            assert leases(again) == [1, 2, 3, 4, 5]
            assert it.leased() == 5


@pytest.mark.slow
@pytest.mark.sockets
async def test_leases_of_an_answer_that_never_left_end_uncounted() -> None:
    """No client received it: broken connections must not use up a message's deliveries."""
    notes = Notes()
    settings = group_settings(visibility_timeout_s=3.0, max_deliveries=1)
    async with serving(settings, history=notes, limits={"max_answer_bytes": 15 * 2**20}) as it:
        it.feed(it.own(), *(message(n, key="k", body=bytes(3_000_000)) for n in range(5)))
        it.feed(it.own(1), *(message(n, key=f"{n}", body=bytes(3_000_000)) for n in range(5)))
        async with connect(it.port, receive_buffer=4096) as slow, connect(it.port) as other:
            slow.send("pull", our_pull(GROUP, requestId="1", manyQueues=True))
            await eventually(lambda: it.leased() == 6)
            slow.abort()
            await eventually(lambda: it.leased() == 0)
            got = await other.pull(GROUP, maxBatchSize=1)
            assert [each.attempt for each in got.messages] == [1]
        assert (len(notes.of("unsent")), notes.of("expire")) == (6, [])
        assert it.listener.dead_letters == []


async def test_leases_without_a_repeated_request_end_at_their_deadline() -> None:
    async with serving(group_settings(visibility_timeout_s=2.2)) as it:
        it.feed(it.own(), keyed(0, "k"))
        async with connect(it.port) as lost, connect(it.port) as client:
            await lost.pull(GROUP, requestId="1")
            got = await client.pull(GROUP, requestId="1", clientId="other", linger_ms=5000)
            assert (leases(got), got.messages[0].attempt) == ([2], 2)
            late = await client.pull(GROUP, requestId="1")
            assert late.messages == []


async def test_a_pull_that_waits_is_taken_over_by_its_own_repetition() -> None:
    """Its client has abandoned the first connection; two waiters would lease two batches."""
    async with serving() as it, connect(it.port) as old, connect(it.port) as new:
        queue = it.own()
        await parked(it, old, requestId="1")
        new.send("pull", our_pull(GROUP, requestId="1", linger_ms=20_000))
        assert (await old.answer("pull")).messages == []
        await eventually(lambda: it.lane().presence.waiting_pulls == 1)
        it.feed(queue, keyed(0, "k"))
        assert offsets(await new.answer("pull")) == [0]
        assert it.lane().presence.waiting_pulls == 0


async def test_the_last_four_answers_of_a_client_are_kept() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(n, str(n)) for n in range(9)))
        for number in range(5):
            await client.pull(GROUP, requestId=str(number), maxBatchSize=1)
        for number in range(1, 5):
            again = await client.pull(GROUP, requestId=str(number), maxBatchSize=1)
            assert offsets(again) == [number]
        assert offsets(await client.pull(GROUP, requestId="0", maxBatchSize=1)) == [5]


async def test_a_replayed_lease_is_acked_by_offset_on_its_new_connection() -> None:
    async with serving() as it, connect(it.port) as lost, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"))
        got = await lost.pull(GROUP, requestId="1")
        await client.pull(GROUP, requestId="1")
        verdict = consumer.ConsumeResult(context=got.context, successOffsets=[0])
        await lost.call("submit", verdict)
        assert it.leased() == 1
        await client.call("submit", verdict)
        assert it.leased() == 0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"clientId": None}, "requestId requires clientId"),
        ({"requestId": "x" * (MAX_TEXT + 1)}, "requestId is longer than 256 characters"),
    ],
)
async def test_an_id_that_cannot_be_kept_is_refused(fields: dict[str, str], reason: str) -> None:
    async with serving() as it, connect(it.port) as client:
        with pytest.raises(consumer.PullException, match=reason) as refusal:
            await client.pull(GROUP, **{"requestId": "1", **fields})
        assert refusal.value.code == 400
        it.feed(it.own(), keyed(0, "k"))
        assert offsets(await client.pull(GROUP, requestId="")) == [0]


async def test_a_client_whose_connection_breaks_in_the_middle_of_answers_loses_nothing() -> None:
    """Whichever answers are lost, no message is delivered twice and no lease has to expire."""
    async with serving(group_settings(visibility_timeout_s=60.0)) as it:
        it.feed(it.own(), *(keyed(n, "abc"[n % 3]) for n in range(30)))
        seen: list[int] = []
        acks: list[consumer.AckBatch] = []
        for number in range(60):
            for attempt in range(1 + number % 3):
                async with connect(it.port) as client:
                    request = our_pull(GROUP, requestId=str(number), acks=acks, maxBatchSize=2)
                    client.send("pull", request)
                    if attempt < number % 3:  # the answer was lost, or the request was incomplete
                        await asyncio.sleep(0.002 * (attempt % 2))
                        client.abort()
                        continue
                    got = await client.answer("pull")
            acks = [acked(got)] if got.messages else []
            seen += offsets(got)
            if len(seen) == 30 and not acks:
                break
        assert sorted(seen) == list(range(30))
        counts = it.lane().counts[TOPIC]
        assert (counts.acked, counts.expired, counts.delivered) == (30, 0, 30)
