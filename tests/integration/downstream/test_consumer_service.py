"""Pull, settle and extend as our own clients use them, over loopback with hand-fed queues."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest

from broker_core.clock import now_ns
from broker_core.remoting.compression import SYS_COMPRESSED
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, group_settings
from testkit.messages import keyed, message
from testkit.thrift_client import (
    BINARY,
    COMPACT,
    Protocol,
    acked,
    connect,
    field_ids_of,
    offsets,
    our_pull,
)
from tests.support.serving import parked, serving
from thin_client import AsyncConsumer, Message
from thrift_idl import consumer

MS = 1_000_000


def nacked(response: Any, *, retry_after_ms: int | None = None, reject: bool | None = None) -> Any:
    nacks = [
        consumer.Nack(leaseId=each.leaseId, retryAfterMs=retry_after_ms, reject=reject, reason="no")
        for each in response.messages
    ]
    return consumer.AckBatch(context=response.context, nacked=nacks)


def released(response: Any) -> Any:
    lease_ids = [each.leaseId for each in response.messages]
    return consumer.AckBatch(context=response.context, released=lease_ids)


# ---- contents of an answer ------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [COMPACT, BINARY], ids=["compact", "binary"])
async def test_an_answer_names_its_queue_its_leases_and_their_length(protocol: Protocol) -> None:
    async with serving(group_settings(visibility_timeout_s=7.5)) as it:
        it.feed(it.own(3, epoch=130), keyed(0, "k"))
        async with connect(it.port, protocol=protocol) as client:
            got = await client.pull(GROUP)
        assert got.context == consumer.Context(GROUP, TOPIC, "broker-a_3#2")
        assert (got.leaseMs, got.home, got.more) == (7500, f"127.0.0.1:{it.port}", None)
        (only,) = got.messages
        assert (only.key, only.value, only.offset) == ("k", b"xyz", 0)
        assert (only.leaseId, only.attempt, only.orderKey) == (1, 1, b"k")
        assert only.messageId
        assert only.properties is None


async def test_an_answer_without_messages_has_an_empty_context_and_an_empty_list() -> None:
    async with serving() as it, connect(it.port) as client:
        got = await client.pull(GROUP)
        assert got == consumer.PullResponse(context=consumer.Context(), messages=[], waited=True)


async def test_a_batch_has_one_message_of_each_key_and_at_most_what_was_asked_for() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(offset, "abc"[offset % 3]) for offset in range(9)))
        assert offsets(await client.pull(GROUP, maxBatchSize=2)) == [0, 1]
        assert offsets(await client.pull(GROUP)) == [2]
        assert offsets(await client.pull(GROUP)) == []


async def test_a_batch_holds_at_most_the_topics_own_limit() -> None:
    async with serving(group_settings(max_pull_batch=3)) as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(offset, str(offset)) for offset in range(9)))
        assert offsets(await client.pull(GROUP, maxBatchSize=100)) == [0, 1, 2]
        assert offsets(await client.pull(GROUP)) == [3, 4, 5]


async def test_an_answer_stops_at_its_limit_of_bytes_which_one_message_may_overshoot() -> None:
    async with serving(limits={"max_answer_bytes": 1024}) as it, connect(it.port) as client:
        bodies = [message(offset, key=str(offset), body=bytes(600)) for offset in range(5)]
        it.feed(it.own(), *bodies, message(5, key="5", body=bytes(9000)))
        assert [len((await client.pull(GROUP)).messages) for _ in range(4)] == [2, 2, 2, 0]


@pytest.mark.parametrize("run", [1, 100])
async def test_no_answer_is_longer_than_our_client_takes(run: int) -> None:
    """520 messages of one byte with the most properties that brokers accept, and a body inflated to
    nearly 16 MiB.
    """
    long = [message(n, body=b"x", key=f"{n // run}", note="v" * 32_700) for n in range(520)]
    zipped = message(520, body=zlib.compress(bytes(16_700_000)), key="z", sys_flag=SYS_COMPRESSED)
    async with serving(group_settings(max_pull_batch=1000)) as it:
        it.feed(it.own(), *long, zipped)
        handled = 0

        async def handle(_message: Message) -> None:
            nonlocal handled
            handled += 1
            if handled == 521:
                client.stop()

        client = AsyncConsumer(f"127.0.0.1:{it.port}", group=GROUP, concurrency=600, max_run=run)
        async with asyncio.timeout(60):
            await client.run(handle, handle_signals=False)


async def test_an_answer_is_of_one_queue_unless_the_client_takes_many() -> None:
    async with serving() as it, connect(it.port) as client:
        for queue_id in range(3):
            it.feed(it.own(queue_id), keyed(0, "a"), keyed(1, "b"))
        one = await client.pull(GROUP)
        assert (offsets(one), one.more) == ([0, 1], None)
        many = await client.pull(GROUP, manyQueues=True, maxBatchSize=3)
        (more,) = many.more
        assert {many.context.qid, more.context.qid, one.context.qid} == {
            f"broker-a_{queue_id}#1" for queue_id in range(3)
        }
        assert (offsets(many), offsets(more)) == ([0, 1], [0])


async def test_many_queues_without_a_number_give_one_batch_of_the_topics_limit() -> None:
    async with serving(group_settings(max_pull_batch=3)) as it, connect(it.port) as client:
        for queue_id in range(3):
            it.feed(it.own(queue_id), keyed(0, "a"), keyed(1, "b"))
        got = await client.pull(GROUP, manyQueues=True)
        assert len(got.messages) + sum(len(each.messages) for each in got.more) == 3


async def test_a_pull_gets_only_the_topics_that_it_names() -> None:
    async with serving(group_settings(topics=("a", "b", "c"))) as it, connect(it.port) as client:
        for topic in "abc":
            it.feed(it.own(topic=topic), keyed(0, "k"))
        assert (await client.pull(GROUP, topic="b")).context.topic == "b"
        assert (await client.pull(GROUP, topic="b")).messages == []
        assert (await client.pull(GROUP, topics=["b", "c", "b"])).context.topic == "c"
        assert (await client.pull(GROUP, topics=[])).context.topic == "a"


# ---- verdicts -----------------------------------------------------------------------------------


async def test_the_successor_of_an_acked_message_comes_in_the_same_pull() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"), keyed(1, "k"), keyed(2, "k"))
        got = await client.pull(GROUP)
        for offset in (1, 2):
            got = await client.pull(GROUP, acks=[acked(got)])
            assert offsets(got) == [offset]


async def test_an_ack_twice_has_the_effect_of_one_and_the_second_is_named() -> None:
    async with serving() as it, connect(it.port) as client:
        pipeline = it.own()
        it.feed(pipeline, keyed(0, "k"))
        got = await client.pull(GROUP)
        assert await client.settle(GROUP, acked(got)) == []
        assert await client.settle(GROUP, acked(got)) == [("broker-a_0#1", 1)]
        assert pipeline.committable == 1
        assert it.lane().counts[TOPIC].fenced == 1


async def test_verdicts_count_from_any_connection() -> None:
    """Our leases are bound to ids, not to connections."""
    async with serving() as it, connect(it.port) as puller, connect(it.port) as settler:
        it.feed(it.own(), keyed(0, "k"))
        got = await puller.pull(GROUP)
        assert await settler.extend(GROUP, got, ms=100) == []
        assert await settler.settle(GROUP, acked(got)) == []
        assert it.leased() == 0


async def test_a_verdict_on_another_ownership_period_or_place_is_void() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(epoch=5), keyed(0, "k"))
        lease_id = (await client.pull(GROUP)).messages[0].leaseId
        for topic, qid in (
            (TOPIC, "broker-a_0#4"),
            (TOPIC, "broker-a_0"),
            (TOPIC, "broker-a_1#5"),
            (TOPIC, "nonsense"),
            (TOPIC, "broker-a_0#5#5"),
            ("other", "broker-a_0#5"),
            (None, None),
        ):
            context = consumer.Context(GROUP, topic, qid)
            batch = consumer.AckBatch(context=context, acked=[lease_id])
            assert await client.settle(GROUP, batch) == [(qid, lease_id)]
            reference = consumer.LeaseRef(context=context, leaseId=lease_id)
            request = consumer.ExtendRequest(groupId=GROUP, leases=[reference], ms=10)
            assert (await client.call("extend", request)).notHeld == [reference]
        assert it.leased() == 1
        assert it.consumers.skipped_acks == 2


async def test_a_settle_reports_figures_of_the_group_of_its_verdicts_or_of_a_pull_before() -> None:
    """No right for any other group was checked."""
    figures = consumer.ClientFigures(handlers=7, prefetch=0, handling={40: 2})
    async with serving() as it, connect(it.port) as stranger, connect(it.port) as client:
        it.own()
        report = consumer.AckRequest(GROUP, [], figures=figures)
        await stranger.call("settle", report)
        assert it.lane().figures.observed().handling == {}
        await client.pull(GROUP)
        await client.call("settle", report)
        observed = it.lane().figures.observed()
        assert (observed.handlers, observed.handling) == (7, {40: 2})


async def test_verdicts_for_a_group_that_is_not_here_are_named_and_counted() -> None:
    async with serving() as it, connect(it.port) as client:
        batch = consumer.AckBatch(context=consumer.Context("who", TOPIC, "broker-a_0#1"), acked=[7])
        assert await client.settle("who", batch) == [("broker-a_0#1", 7)]
        assert await client.settle(GROUP, consumer.AckBatch(acked=[7])) == [(None, 7)]
        assert it.consumers.skipped_acks == 2


async def test_a_nacked_message_comes_again_after_its_interval_and_wakes_a_parked_pull() -> None:
    async with serving(group_settings(retry_intervals_ms=(60,))) as it:
        it.feed(it.own(), keyed(0, "k"), keyed(1, "k"))
        async with connect(it.port) as client, connect(it.port) as other:
            got = await client.pull(GROUP)
            await parked(it, other)
            before = now_ns()
            assert await client.settle(GROUP, nacked(got)) == []
            again = await other.answer("pull")
            assert (offsets(again), again.messages[0].attempt) == ([0], 2)
            assert 60 * MS <= now_ns() - before < 10_000 * MS


async def test_a_nack_may_say_when_its_message_comes_again() -> None:
    async with serving(group_settings(retry_intervals_ms=(60_000,))) as it:
        it.feed(it.own(), keyed(0, "k"))
        async with connect(it.port) as client:
            got = await client.pull(GROUP)
            acks = [nacked(got, retry_after_ms=10)]
            got = await client.pull(GROUP, acks=acks, linger_ms=20_000)
            assert (offsets(got), got.messages[0].attempt) == ([0], 2)
            got = await client.pull(GROUP, acks=[nacked(got, retry_after_ms=-5)], linger_ms=5000)
            assert offsets(got) == [0]


async def test_a_rejected_message_goes_straight_to_the_failure_policy() -> None:
    async with serving() as it, connect(it.port) as client:
        pipeline = it.own()
        it.feed(pipeline, keyed(0, "k"), keyed(1, "k"))
        got = await client.pull(GROUP)
        assert await client.settle(GROUP, nacked(got, reject=True)) == []
        (job,) = it.listener.dead_letters
        assert (job.offset, job.reason) == (0, "no")
        assert (await client.pull(GROUP)).messages == []  # the copy is not stored yet
        await parked(it, client)
        it.lane().dead_lettered(pipeline, job)
        assert offsets(await client.answer("pull")) == [1]


async def test_a_released_message_comes_again_at_once_and_uncounted() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"))
        got = await client.pull(GROUP)
        got = await client.pull(GROUP, acks=[released(got)])
        assert (got.messages[0].attempt, got.messages[0].leaseId) == (1, 2)


async def test_an_expired_lease_wakes_a_parked_pull_and_fences_its_old_holder() -> None:
    async with serving(group_settings(visibility_timeout_s=3.0)) as it:
        it.feed(it.own(), keyed(0, "k"))
        async with connect(it.port) as client, connect(it.port) as other:
            got = await client.pull(GROUP)
            await parked(it, other)
            again = await other.answer("pull")
            assert (again.messages[0].attempt, again.messages[0].leaseId) == (2, 2)
            assert await client.settle(GROUP, acked(got)) == [("broker-a_0#1", 1)]
            assert await other.settle(GROUP, acked(again)) == []
            assert it.lane().counts[TOPIC].expired == 1


async def test_an_extended_lease_lives_on_and_its_end_is_reported() -> None:
    async with serving(group_settings(visibility_timeout_s=2.4)) as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"))
        got = await client.pull(GROUP)
        for _ in range(10):
            await asyncio.sleep(0.25)
            assert await client.extend(GROUP, got, ms=10_000) == []
        await eventually(lambda: it.leased() == 0)
        assert await client.extend(GROUP, got, ms=0) == [("broker-a_0#1", 1)]


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"groupId": "bling"}, 404, "no group 'bling' here; known groups: billing"),
        ({"groupId": ""}, 404, "the request names no group"),
        ({"topic": "odrers"}, 404, "group 'billing' has no topic 'odrers'; its topics: orders"),
        ({"topics": [TOPIC, "x" * 999]}, 404, "has no topic 'x{127}…'; its topics: orders"),
        ({"topic": TOPIC, "topics": [TOPIC]}, 400, "both topic and topics"),
    ],
)
async def test_unsupported_requests_are_refused_in_one_clear_sentence(
    fields: dict[str, Any], code: int, reason: str
) -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"))
        with pytest.raises(consumer.PullException, match=reason) as refusal:
            await client.pull(**{"group": GROUP, **fields})
        assert (refusal.value.code, len(refusal.value.message) < 300) == (code, True)
        assert it.consumers.unknown_names == (code == 404)
        assert offsets(await client.pull(GROUP, maxRun=1)) == [0]


async def test_a_flood_of_verdicts_is_refused_whole() -> None:
    """A frame has room for millions, which would delay all other clients."""
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"))
        got = await client.pull(GROUP)
        flood = [acked(got, *range(1, 50_001)) for _ in range(2)]
        for call in (client.settle(GROUP, *flood), client.pull(GROUP, acks=flood)):
            with pytest.raises(consumer.PullException, match="the limit is 100000") as told:
                await call
            assert told.value.code == 400
        assert it.leased() == 1
        assert len(await client.settle(GROUP, *flood[:1])) == 49_999
        assert it.leased() == 0


async def test_a_list_longer_than_any_batch_closes_its_connection() -> None:
    async with serving() as it, connect(it.port) as client, connect(it.port) as other:
        references = [consumer.LeaseRef(consumer.Context(), 1)] * 100_001
        client.send("extend", consumer.ExtendRequest(GROUP, references, 1))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.answer("extend")
        assert (await other.pull(GROUP)).messages == []


@pytest.mark.parametrize("method", ["pull", "settle", "extend"])
async def test_a_call_without_its_request_is_refused(method: str) -> None:
    async with serving() as it, connect(it.port) as client:
        with pytest.raises(consumer.PullException, match=f"{method} came without its request"):
            await client.call(method, None)
        assert (await client.pull(GROUP)).messages == []


async def test_with_auto_create_an_unknown_group_gets_the_requested_topic() -> None:
    async with serving(auto_create=True) as it, connect(it.port) as client:
        assert (await client.pull("new", topics=["x", "y"])).messages == []
        it.feed(it.own(topic="y", group="new"), keyed(0, "k"), keyed(1, "k"), group="new")
        assert offsets(await client.pull("new", topic="y")) == [0]
        with pytest.raises(consumer.PullException, match="name a topic to have it created"):
            await client.pull("newer")


def test_the_fields_that_are_ours_begin_at_70() -> None:
    """Tests of DDMQ's clients rely on the result of ``field_ids_of``."""
    ours = our_pull(GROUP, acks=[acked(consumer.PullResponse(messages=[]), 1)])
    assert field_ids_of(ours) == {"PullRequest": 72, "AckBatch": 2}
