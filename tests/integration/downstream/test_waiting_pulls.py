"""Waiting pulls: their order, their wake-ups, and unread answers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker_core.clock import now_ns
from proxy.downstream.consumer_service import ConsumerService
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, Notes, group_settings
from testkit.messages import keyed, message
from testkit.thrift_client import acked, connect, offsets, our_pull
from tests.integration.downstream.loops import on_both_loops
from tests.support.serving import parked, serving

MS = 1_000_000


async def test_waiting_pulls_are_served_in_turn_one_for_each_batch() -> None:
    async with serving() as it:
        queues = [it.own(0), it.own(1), it.own(2)]
        async with connect(it.port) as a, connect(it.port) as b, connect(it.port) as c:
            for client in (a, b, c):
                await parked(it, client)
            it.feed(queues[2], keyed(0, "k"))
            it.feed(queues[0], keyed(0, "k"), keyed(1, "l"))
            assert (await a.answer("pull")).context.qid == "broker-a_2#1"
            second = await b.answer("pull")
            assert (second.context.qid, offsets(second)) == ("broker-a_0#1", [0, 1])
            assert it.lane().presence.waiting_pulls == 1
            it.feed(queues[1], keyed(0, "k"))
            assert (await c.answer("pull")).context.qid == "broker-a_1#1"


async def test_an_arrival_that_the_longest_waiter_leaves_over_goes_to_the_next() -> None:
    async with serving() as it, connect(it.port) as a, connect(it.port) as b:
        queue = it.own()
        await parked(it, a, maxBatchSize=1)
        await parked(it, b)
        it.feed(queue, keyed(0, "k"), keyed(1, "l"), keyed(2, "m"))
        assert offsets(await a.answer("pull")) == [0]
        assert offsets(await b.answer("pull")) == [1, 2]


async def test_a_waiter_for_another_topic_is_not_in_the_way() -> None:
    async with serving(group_settings(topics=("a", "b"))) as it:
        queue = it.own(topic="b")
        async with connect(it.port) as first, connect(it.port) as second:
            await parked(it, first, topic="a")
            await parked(it, second)
            it.feed(queue, keyed(0, "k"))
            assert (await second.answer("pull")).context.topic == "b"
            assert it.lane().presence.waiting_pulls == 1


async def test_a_queue_that_may_not_hand_out_yet_is_not_in_the_way() -> None:
    """The longest waiting pull must not block pulls for messages that are ready."""
    async with serving(group_settings(topics=("a", "b"))) as it:
        held = it.own(topic="a", hold_until_ns=now_ns() + 2300 * MS)
        free = it.own(topic="b")
        it.feed(held, keyed(0, "k"))
        async with connect(it.port) as first, connect(it.port) as second:
            await parked(it, first, topic="a")
            await parked(it, second, topic="b")
            it.feed(free, keyed(0, "k"))
            assert (await second.answer("pull")).context.topic == "b"
            assert it.lane().presence.waiting_pulls == 1
            assert (await first.answer("pull")).context.topic == "a"


async def test_a_lease_that_ends_under_a_full_group_serves_a_parked_pull() -> None:
    async with serving(group_settings(max_leased_jobs=1)) as it:
        queues = [it.own(0), it.own(1)]
        for queue in queues:
            it.feed(queue, keyed(0, "k"))
        async with connect(it.port) as client, connect(it.port) as other:
            got = await client.pull(GROUP)
            assert (await client.pull(GROUP)).messages == []
            await parked(it, other)
            await client.settle(GROUP, acked(got))
            second = await other.answer("pull")
            assert second.context.qid == "broker-a_1#1"


async def test_a_queue_lost_with_all_leases_of_a_full_group_serves_a_parked_pull() -> None:
    full = group_settings(max_leased_jobs=1, visibility_timeout_s=60.0)
    async with serving(full) as it:
        queues = [it.own(0), it.own(1)]
        for queue in queues:
            it.feed(queue, keyed(0, "k"))
        async with connect(it.port) as client, connect(it.port) as other:
            assert (await client.pull(GROUP)).context.qid == "broker-a_0#1"
            await parked(it, other)
            it.lane().remove(queues[0])
            assert (await other.answer("pull")).context.qid == "broker-a_1#1"


async def test_trust_that_comes_back_serves_a_parked_pull() -> None:
    async with serving() as it, connect(it.port) as client:
        queue = it.own(trusted_until_ns=now_ns() - 1)
        it.feed(queue, keyed(0, "k"))
        await parked(it, client)
        it.lane().renewed(queue, now_ns() + 60_000 * MS)
        assert offsets(await client.answer("pull")) == [0]


async def test_a_pull_waits_as_long_as_it_says_and_then_ends_empty() -> None:
    async with serving() as it, connect(it.port) as client:
        for linger_ms, least_ms in ((150, 150), (0, 20), (-1, 20)):
            before = now_ns()
            assert (await client.pull(GROUP, linger_ms=linger_ms)).messages == []
            assert least_ms * MS * 0.95 <= now_ns() - before < 10_000 * MS
        assert it.lane().presence.waiting_pulls == 0


@on_both_loops
async def test_a_client_that_goes_while_it_waits_takes_nothing_with_it() -> None:
    async with serving() as it, connect(it.port) as other:
        queue = it.own()
        async with connect(it.port) as client:
            await parked(it, client)
        await eventually(lambda: it.lane().presence.waiting_pulls == 0)
        it.feed(queue, keyed(0, "k"))
        got = await other.pull(GROUP)
        assert (got.messages[0].attempt, got.messages[0].leaseId) == (1, 1)


@on_both_loops
async def test_leases_of_an_answer_that_never_left_come_back_uncounted() -> None:
    """To a reader so slow that the socket's buffers were full when it disconnected."""
    notes = Notes()
    async with serving(history=notes, limits={"max_answer_bytes": 15 * 2**20}) as it:
        it.feed(it.own(), *(message(n, key=str(n), body=bytes(3_000_000)) for n in range(5)))
        async with connect(it.port, receive_buffer=4096) as slow, connect(it.port) as other:
            slow.send("pull", our_pull(GROUP))
            await eventually(lambda: it.leased() == 5)
            await parked(it, other, maxBatchSize=1)
            slow.abort()
            got = await other.answer("pull")
            assert (got.messages[0].attempt, got.messages[0].leaseId) == (1, 6)
            assert it.leased() == 1
        assert [each["lease"] for each in notes.of("unsent")] == [1, 2, 3, 4, 5]
        assert [each["offset"] for each in notes.of("unsent")] == [0, 1, 2, 3, 4]
        assert it.lane().counts[TOPIC].expired == 0


async def test_draining_answers_waiting_pulls_and_later_ones_wait_briefly() -> None:
    async with serving() as it, connect(it.port) as client:
        queue = it.own()
        await parked(it, client)
        it.consumers.close()
        assert (await client.answer("pull")).messages == []
        before = now_ns()
        assert (await client.pull(GROUP, linger_ms=20_000)).messages == []
        assert 50 * MS <= now_ns() - before < 10_000 * MS
        it.feed(queue, keyed(0, "k"))
        assert offsets(await client.pull(GROUP)) == [0]
        assert it.lane().presence.waiting_pulls == 0


# ---- what is left of a wait ----------------------------------------------------------------------


@contextmanager
def counted_waits() -> Iterator[Callable[[], int]]:
    """Keep cycles of references in memory; yield the number of waiting pulls since the start.

    Earlier tests of the same process may have left some, such as whole worlds in a cache.
    """
    gc.collect()
    before = _waits()
    gc.disable()
    try:
        yield lambda: _waits() - before
    finally:
        gc.enable()


def _waits() -> int:
    """Return the number of waiting pulls of proxies in memory."""
    wait = (ConsumerService.__module__, "_Pull")
    kinds = map(type, gc.get_objects())
    return sum((each.__module__, each.__qualname__) == wait for each in kinds)


@on_both_loops
async def test_an_answered_wait_leaves_memory_at_once() -> None:
    with counted_waits() as waits:
        async with serving() as it, connect(it.port) as client:
            queue = it.own()
            await parked(it, client, requestId="r", clientId="c")
            assert waits() == 1
            it.feed(queue, keyed(0, "k"))
            assert offsets(await client.answer("pull")) == [0]
            assert waits() == 0


@on_both_loops
async def test_a_wait_without_messages_leaves_memory_at_once() -> None:
    with counted_waits() as waits:
        async with serving() as it, connect(it.port) as client:
            it.own()
            await parked(it, client, linger_ms=20)
            assert offsets(await client.answer("pull")) == []
            assert waits() == 0


@on_both_loops
async def test_a_wait_whose_client_leaves_is_forgotten_at_once() -> None:
    with counted_waits() as waits:
        async with serving() as it:
            it.own()
            async with connect(it.port) as client:
                await parked(it, client)
                assert waits() == 1
            await eventually(lambda: it.lane().presence.waiting_pulls == 0)
            assert waits() == 0


@on_both_loops
async def test_pulls_that_wait_at_a_close_leave_memory_at_once() -> None:
    with counted_waits() as waits:
        async with serving() as it, connect(it.port) as client:
            it.own()
            await parked(it, client)
            it.consumers.close()
            assert offsets(await client.answer("pull")) == []
            assert waits() == 0
