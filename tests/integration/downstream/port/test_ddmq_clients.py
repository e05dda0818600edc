"""Pull and submit as DDMQ's own clients use them: only its fields, acks by offset."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from broker_core.clock import now_ns
from proxy.downstream.port.requests import DDMQ_MAX_LINGER_MS
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, group_settings
from testkit.messages import keyed
from testkit.thrift_client import (
    ThriftClient,
    chain,
    connect,
    ddmq_pull,
    field_ids_of,
    link,
    offsets,
)
from tests.support.serving import serving
from thrift_idl import consumer

MS = 1_000_000


async def pull(client: ThriftClient, group: str = GROUP, **fields: Any) -> Any:
    """Return the answer, which must not contain any of our fields."""
    got = await client.call("pull", ddmq_pull(group, **fields))
    assert max(field_ids_of(got).values(), default=0) < 70
    return got


async def pull_some(client: ThriftClient) -> Any:
    """Return the first answer with messages: a pull waits no longer than a client's socket."""
    async with asyncio.timeout(30):
        while not (got := await pull(client, linger_ms=5000)).messages:
            pass
    return got


async def submit(client: ThriftClient, result: Any) -> None:
    """Submit; the answer is always true."""
    assert await client.call("submit", result) is True


# ---- answers ------------------------------------------------------------------------------------


async def test_an_answer_has_ddmqs_fields_alone_and_eight_messages_by_default() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(2, epoch=70), *(keyed(offset, str(offset)) for offset in range(20)))
        got = await pull(client)
        assert got.context == consumer.Context(GROUP, TOPIC, "broker-a_2#6")
        assert offsets(got) == list(range(8))
        assert (got.messages[0].key, got.messages[0].value) == ("0", b"xyz")
        assert offsets(await pull(client, maxBatchSize=10)) == list(range(8, 18))
        assert offsets(await pull(client, maxBatchSize=0, topic=TOPIC)) == [18, 19]


async def test_an_empty_answer_has_an_empty_context_and_list() -> None:
    async with serving() as it, connect(it.port) as client:
        assert await pull(client) == consumer.PullResponse(consumer.Context(), [])


async def test_of_one_key_there_is_never_more_than_one_message_in_the_hands_of_clients() -> None:
    """DDMQ's Go client handles a batch in parallel."""
    async with serving() as it, connect(it.port) as a, connect(it.port) as b:
        it.feed(it.own(), *(keyed(offset, "kl"[offset % 2]) for offset in range(6)))
        first = await pull(a)
        assert offsets(first) == [0, 1]
        assert offsets(await pull(b)) == []
        await submit(a, link(first.context, success=[1]))
        assert offsets(await pull(b)) == [3]


async def test_the_longest_wait_stays_below_the_clients_socket_timeouts() -> None:
    async with serving() as it, connect(it.port) as client:
        for _ in range(20):
            before = now_ns()
            assert offsets(await pull(client, linger_ms=60_000)) == []
            took_ms = (now_ns() - before) / MS
            assert took_ms >= DDMQ_MAX_LINGER_MS
            if took_ms < DDMQ_MAX_LINGER_MS + 400:  # the machine was fast enough
                break
        else:
            pytest.fail(f"the last of 20 pulls took {took_ms} ms")


async def test_a_pull_without_a_linger_waits_a_little_all_the_same() -> None:
    async with serving() as it, connect(it.port) as client:
        before = now_ns()
        assert offsets(await pull(client, linger_ms=None)) == []
        assert now_ns() - before >= 19 * MS


# ---- acks by offset -----------------------------------------------------------------------------


async def test_acks_are_applied_before_messages_are_taken() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), *(keyed(offset, "k") for offset in range(3)))
        got = await pull(client)
        for offset in (1, 2):
            got = await pull(client, result=link(got.context, success=offsets(got)))
            assert offsets(got) == [offset]


async def test_a_failed_offset_comes_again_and_success_wins_over_failure() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"), keyed(1, "l"))
        got = await pull(client)
        verdict = link(got.context, success=[1], failed=[0, 1])
        assert offsets(await pull(client, result=verdict, linger_ms=1000)) == [0]
        counts = it.lane().counts[TOPIC]
        assert (counts.acked, counts.nacked, counts.fenced) == (1, 1, 0)


async def test_an_ack_from_another_connection_is_fenced_while_the_holders_is_open() -> None:
    async with serving() as it, connect(it.port) as other:
        it.feed(it.own(), keyed(0, "k"))
        async with connect(it.port) as holder:
            got = await pull(holder)
            await submit(other, link(got.context, success=[0]))
            assert (it.leased(), it.lane().counts[TOPIC].fenced) == (1, 1)
        await eventually(lambda: len(it.server.open) == 1)
        await submit(other, link(got.context, success=[0]))  # as if the client had reconnected
        assert (it.leased(), it.lane().counts[TOPIC].acked) == (0, 1)


async def test_a_message_that_two_connections_held_is_acked_by_its_holder_alone() -> None:
    """Even when both are closed: the proxy cannot know which one acks."""
    longer = group_settings(visibility_timeout_s=3.0)
    async with serving(longer) as it:
        it.feed(it.own(), keyed(0, "k"))
        it.lane().apply(group_settings(visibility_timeout_s=1.0))
        async with connect(it.port) as third:
            async with connect(it.port) as first:
                got = await pull(first)
                it.lane().apply(longer)  # the others' leases must not end before they are used
                async with connect(it.port) as second:
                    again = await pull_some(second)
                    assert (got.context, offsets(again)) == (again.context, [0])
                    await submit(first, link(got.context, success=[0]))
                    assert it.lane().counts[TOPIC].fenced == 1
            await eventually(lambda: len(it.server.open) == 1)
            await submit(third, link(got.context, success=[0]))
            assert it.lane().counts[TOPIC].fenced == 2
            final = await pull_some(third)
            await submit(third, link(final.context, success=[0]))
            assert it.lane().counts[TOPIC].acked == 1


async def test_an_ack_of_an_earlier_ownership_period_finishes_nothing() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(epoch=3), keyed(0, "k"))
        await pull(client)
        stale = consumer.Context(GROUP, TOPIC, "broker-a_0#2")
        await submit(client, link(stale, success=[0]))
        assert (it.leased(), it.lane().counts[TOPIC].fenced) == (1, 1)


async def test_unknown_and_repeated_offsets_are_accepted_silently() -> None:
    async with serving() as it, connect(it.port) as client:
        pipeline = it.own()
        it.feed(pipeline, keyed(0, "k"))
        got = await pull(client)
        for _ in range(2):
            await submit(client, link(got.context, success=[0, 99, -1, 2**62], failed=[5]))
        assert pipeline.committable == 1


# ---- chains -------------------------------------------------------------------------------------


async def test_every_link_counts_for_the_group_that_it_names() -> None:
    """DDMQ itself looks up all links in the group of the first one."""
    groups = [group_settings(name) for name in ("a", "b")]
    async with serving(*groups) as it, connect(it.port) as client:
        contexts = {}
        for group in ("a", "b"):
            it.feed(it.own(group=group), keyed(0, "k"), group=group)
            contexts[group] = (await pull(client, group)).context
        unknown = consumer.Context("c", TOPIC, "broker-a_0#1")
        links = [
            link(contexts["a"], success=[0]),
            link(unknown, success=[0]),
            consumer.ConsumeResult(successOffsets=[0]),
            link(consumer.Context("a", "nowhere", "broker-a_0#1"), success=[0]),
            link(contexts["b"], failed=[0]),
        ]
        assert offsets(await pull(client, "a", result=chain(*links))) == []
        assert it.lane("a").counts[TOPIC].acked == 1
        assert it.lane("b").counts[TOPIC].nacked == 1
        assert it.consumers.skipped_acks == 3


async def test_a_chain_of_61_links_is_applied_whole() -> None:
    async with serving() as it, connect(it.port) as client:
        pipelines = [it.own(queue_id) for queue_id in range(61)]
        contexts = []
        for pipeline in pipelines:
            it.feed(pipeline, keyed(0, "k"))
            contexts.append((await pull(client)).context)
        links = [link(context, success=[0]) for context in contexts]
        await pull(client, result=chain(*links))
        assert [pipeline.committable for pipeline in pipelines] == [1] * 61


async def test_a_longer_chain_closes_its_connection_with_a_clear_line() -> None:
    async with serving() as it, connect(it.port) as client, connect(it.port) as other:
        context = consumer.Context(GROUP, TOPIC, "broker-a_0#1")
        links = [link(context, success=[0]) for _ in range(62)]
        with structlog.testing.capture_logs() as logs:
            client.send("pull", ddmq_pull(GROUP, result=chain(*links)))
            assert await client.closed_by_server()
        assert [line["event"] for line in logs] == ["connection closed: invalid request"]
        assert "recursion depth" in logs[0]["reason"]
        assert offsets(await pull(other)) == []


async def test_a_flood_of_verdicts_is_passed_over() -> None:
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"))
        got = await pull(client)
        links = [link(got.context, success=range(25_001), failed=range(25_001)) for _ in range(2)]
        with structlog.testing.capture_logs() as logs:
            await submit(client, chain(*links))
            assert offsets(await pull(client, result=links[0])) == []
        assert [line["event"] for line in logs] == ["submit refused", "pull refused"]
        assert it.leased() == 1


# ---- unknown names ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "topic", "reason"),
    [("bling", None, "no group 'bling' here"), (GROUP, "odrers", "no topic 'odrers'")],
)
async def test_an_unknown_name_gets_the_linger_an_empty_answer_and_a_log_line(
    group: str, topic: str | None, reason: str
) -> None:
    """DDMQ's C++ client drops its acks at an exception, its Go client stalls for 5 s."""
    async with serving() as it, connect(it.port) as client:
        it.feed(it.own(), keyed(0, "k"))
        held = await pull(client)
        before = now_ns()
        with structlog.testing.capture_logs() as logs:
            got = await pull(
                client, group, topic=topic, linger_ms=120, result=link(held.context, success=[0])
            )
        assert got == consumer.PullResponse(consumer.Context(), [])
        assert now_ns() - before >= 115 * MS
        assert it.leased() == 0
        assert it.consumers.unknown_names == 1
        assert [(line["event"], reason in line["reason"]) for line in logs] == [
            ("pull refused", True)
        ]


async def test_a_client_that_goes_during_such_a_linger_does_no_harm() -> None:
    async with serving() as it, connect(it.port) as other:
        async with connect(it.port) as client:
            client.send("pull", ddmq_pull("bling", linger_ms=50))
            await eventually(lambda: it.consumers.unknown_names == 1)
        with structlog.testing.capture_logs() as logs:
            assert offsets(await pull(other, linger_ms=150)) == []
        assert logs == []


async def test_a_submit_of_nothing_is_true() -> None:
    async with serving() as it, connect(it.port) as client:
        await submit(client, None)
        await submit(client, consumer.ConsumeResult())
