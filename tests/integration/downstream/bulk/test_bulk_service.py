"""Fetch and ack of bulk readers, over loopback, on queues in memory."""

from __future__ import annotations

import pytest
import structlog
from thrift.Thrift import TApplicationException

from broker_core.clock import now_ns
from broker_core.errors import ConnectionLost
from broker_core.names import Group, Topic
from broker_core.tasks import spawn
from proxy.downstream.bulk import fetch as bulk_fetch
from proxy.downstream.bulk import positions as bulk_positions
from proxy.downstream.bulk import service as bulk_service
from testkit.eventually import eventually
from testkit.lanes import GROUP, TOPIC, group_settings
from testkit.messages import message
from testkit.thrift_client import ThriftClient, connect
from tests.support.fake_broker_client import FakeBrokerClient, bulk, queue
from thrift_idl import consumer

MS = 1_000_000
SECOND = 1000 * MS


async def fetch(
    client: ThriftClient,
    offsets: dict[str, dict[str, int]] | None = None,
    *,
    reader: str = "r1",
    group: str = GROUP,
    linger_ms: int | None = 20,
    **fields: int | None,
) -> dict[str, tuple[int, list[int]]]:
    """Return, by qid, the next offset and the offsets of the messages."""
    request = consumer.FetchRequest(
        consumerId=reader,
        groupId=group,
        cluster="",
        fetchOffset=offsets,
        maxLingerTime=linger_ms,
        **fields,
    )
    response = await client.call("fetch", request)
    assert response.code in (0, None)
    return {
        each.qid: (each.nextRequestOffset, [message.offset for message in each.messages])
        for each in response.results
    }


async def ack(
    client: ThriftClient,
    offsets: dict[str, dict[str, int]],
    *,
    reader: str = "r1",
    group: str = GROUP,
) -> bool:
    request = consumer.AckResult(consumerId=reader, groupId=group, cluster="", offsets=offsets)
    return bool(await client.call("ack", request))


def fill(broker: FakeBrokerClient) -> None:
    """Add a hundred messages to each queue of the topic."""
    for each in broker.stored:
        broker.store(*(message(n, queue_id=each.queue_id) for n in range(100)))


# ---- fetch --------------------------------------------------------------------------------------


async def test_a_fetch_reads_from_the_offsets_that_it_names() -> None:
    broker = FakeBrokerClient(orders=2)
    broker.store(*(message(offset, queue_id=0, key=f"k{offset}", tag="t") for offset in range(5)))
    async with bulk(broker) as (it, _), connect(it.port) as client:
        places = {TOPIC: {"broker-a_0": 2, "broker-a_1": 0}}
        assert await fetch(client, places, maxBatchSize=2) == {
            "broker-a_0": (4, [2, 3]),
            "broker-a_1": (0, []),
        }


async def test_a_fetched_message_has_ddmqs_fields_and_its_name() -> None:
    broker = FakeBrokerClient(orders=1)
    broker.store(message(0, key="k", tag="t", body=b"body"))
    async with bulk(broker) as (it, _), connect(it.port) as client:
        request = consumer.FetchRequest("r1", GROUP, "", {TOPIC: {"broker-a_0": 0}})
        ((only,),) = [each.messages for each in (await client.call("fetch", request)).results]
        assert (only.key, only.value, only.tag, only.offset) == ("k", b"body", "t", 0)
        assert (only.leaseId, only.attempt, bool(only.messageId)) == (None, None, True)


async def test_every_queue_asked_for_is_answered_with_its_next_offset_whatever_it_is() -> None:
    """DDMQ's Java client loses its position in queues that are left out."""
    broker = FakeBrokerClient(orders=2, secret=1)
    broker.store(message(0, queue_id=0), message(0, topic=Topic("secret")))
    broker.fails["pull", queue(1)] = ConnectionLost("gone")
    asked = {
        TOPIC: {
            "broker-a_0": 0,
            "broker-a_1": 7,
            "broker-a_9": 3,
            "nonsense": 5,
            "broker-a_0#1": 2,
        },
        "secret": {"broker-a_0": 0},
        "nowhere": {"q_0": 4},
    }
    async with bulk(broker) as (it, _), connect(it.port) as client:
        request = consumer.FetchRequest("r1", GROUP, "", asked, maxLingerTime=20)
        with structlog.testing.capture_logs() as logs:
            results = (await client.call("fetch", request)).results
        assert {line["log_level"] for line in logs} == {"warning"}
        answered = {(each.topic, each.qid): each.nextRequestOffset for each in results}
        named = {(topic, qid): at for topic, each in asked.items() for qid, at in each.items()}
        assert answered == {**named, (TOPIC, "broker-a_0"): 1}
        assert [len(each.messages) for each in results if each.topic == "secret"] == [0]


async def test_a_negative_offset_is_no_place() -> None:
    broker = FakeBrokerClient(orders=1)
    broker.store(message(0))
    async with bulk(broker) as (it, _), connect(it.port) as client:
        assert await fetch(client, {TOPIC: {"broker-a_0": -1}}) == {"broker-a_0": (-1, [])}


async def test_an_unknown_group_gets_its_places_back_after_the_linger() -> None:
    async with bulk(FakeBrokerClient(orders=1)) as (it, _), connect(it.port) as client:
        before = now_ns()
        places = {TOPIC: {"broker-a_0": 3}}
        assert await fetch(client, places, group="bling", linger_ms=100) == {"broker-a_0": (3, [])}
        assert await fetch(client, None, group="bling", linger_ms=100) == {}
        assert now_ns() - before >= 195 * MS


@pytest.mark.parametrize("failing", [False, True])
async def test_an_empty_fetch_waits_for_the_linger(failing: bool) -> None:
    """Also when nothing can be read: an immediate answer makes DDMQ's Java client spin."""
    broker = FakeBrokerClient(orders=1)
    if failing:
        broker.fails["pull"] = ConnectionLost("gone")
    async with bulk(broker) as (it, _), connect(it.port) as client:
        for linger_ms, least_ms in ((150, 145), (0, 19), (None, 19)):
            before = now_ns()
            answer = await fetch(client, {TOPIC: {"broker-a_0": 0}}, linger_ms=linger_ms)
            assert answer == {"broker-a_0": (0, [])}
            assert least_ms * MS <= now_ns() - before < 10 * SECOND


async def test_a_message_ends_the_wait_and_the_other_queues_keep_their_places() -> None:
    broker = FakeBrokerClient(orders=3)
    async with bulk(broker) as (it, _), connect(it.port) as client:
        places = {TOPIC: {f"broker-a_{n}": 0 for n in range(3)}}
        waiting = spawn(fetch(client, places, linger_ms=20_000), name="fetch")
        await eventually(lambda: len(broker.pulls) == 6)
        broker.store(message(0, queue_id=1))
        assert await waiting == {
            "broker-a_0": (0, []),
            "broker-a_1": (1, [0]),
            "broker-a_2": (0, []),
        }


async def test_a_position_that_the_broker_moved_is_reported_at_once() -> None:
    """Below the retained offsets, and above the end."""
    broker = FakeBrokerClient(orders=2)
    broker.store(message(0), message(1), message(2))
    broker.lowest[queue(0)] = 2
    async with bulk(broker) as (it, _), connect(it.port) as client:
        before = now_ns()
        places = {TOPIC: {"broker-a_0": 0, "broker-a_1": 99}}
        answer = await fetch(client, places, linger_ms=20_000)
        assert answer == {"broker-a_0": (2, []), "broker-a_1": (0, [])}
        assert now_ns() - before < 15 * SECOND


async def test_an_answer_stops_at_its_limit_of_bytes_and_says_where_to_go_on() -> None:
    broker = FakeBrokerClient(orders=2)
    for queue_id in range(2):
        broker.store(*(message(n, queue_id=queue_id, body=bytes(600)) for n in range(4)))
    async with (
        bulk(broker, limits={"max_answer_bytes": 1024}) as (it, _),
        connect(it.port) as client,
    ):
        places = {TOPIC: {"broker-a_0": 1, "broker-a_1": 0}}
        assert await fetch(client, places) == {"broker-a_0": (3, [1, 2]), "broker-a_1": (0, [])}


async def test_properties_count_in_an_answer_with_messages() -> None:
    broker = FakeBrokerClient(orders=1)
    broker.store(*(message(n, body=b"x", note="v" * 600) for n in range(4)))
    async with (
        bulk(broker, limits={"max_answer_bytes": 1024}) as (it, _),
        connect(it.port) as client,
    ):
        answer = await fetch(client, {TOPIC: {"broker-a_0": 0}})
        assert answer == {"broker-a_0": (2, [0, 1])}


@pytest.mark.parametrize(("asked", "given"), [(None, 3), (0, 3), (-1, 3), (2, 2), (1000, 3)])
async def test_messages_of_a_queue_are_limited_by_the_groups_batch(
    asked: int | None, given: int
) -> None:
    broker = FakeBrokerClient(orders=1)
    broker.store(*(message(offset) for offset in range(9)))
    async with (
        bulk(broker, group_settings(max_pull_batch=3)) as (it, _),
        connect(it.port) as client,
    ):
        answer = await fetch(client, {TOPIC: {"broker-a_0": 0}}, maxBatchSize=asked)
        assert answer == {"broker-a_0": (given, list(range(given)))}


async def test_without_offsets_readers_share_the_queues_from_the_committed_offsets() -> None:
    broker = FakeBrokerClient(orders=4)
    for queue_id in range(4):
        broker.store(*(message(n, queue_id=queue_id) for n in range(3)))
    broker.committed[Group(GROUP), queue(0)] = 2
    async with bulk(broker) as (it, _), connect(it.port) as client:
        assert len(await fetch(client, reader="r1")) == 4  # the only reader so far
        assert await fetch(client, {}, reader="r2") == {
            f"broker-a_{queue_id}": (3, [0, 1, 2]) for queue_id in (2, 3)
        }
        assert await fetch(client, reader="r1") == {
            "broker-a_0": (3, [2]),
            "broker-a_1": (3, [0, 1, 2]),
        }


async def test_a_reader_that_was_not_seen_for_30_s_has_no_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bulk(FakeBrokerClient(orders=2)) as (it, _), connect(it.port) as client:
        await fetch(client, reader="r1")
        assert len(await fetch(client, reader="r2")) == 1
        later = now_ns() + 31 * SECOND
        monkeypatch.setattr(bulk_positions, "now_ns", lambda: later)
        monkeypatch.setattr(bulk_fetch, "MIN_LINGER_MS", 0)
        assert len(await fetch(client, reader="r2", linger_ms=0)) == 2


@pytest.mark.parametrize(
    ("start_from", "expected"),
    [("earliest", 1), ("latest", 4), ("1970-01-01T00:00:00.002Z", 2)],
)
async def test_a_group_without_a_position_begins_where_its_settings_say(
    start_from: str, expected: int
) -> None:
    broker = FakeBrokerClient(orders=1)
    for offset in range(4):
        broker.store(message(offset, store_ms=offset))
    broker.lowest[queue(0)] = 1
    async with (
        bulk(broker, group_settings(start_from=start_from)) as (it, _),
        connect(it.port) as client,
    ):
        await fetch(client)
        assert broker.pulls[0]["offset"] == expected


async def test_a_topic_without_a_route_does_not_hide_the_others() -> None:
    broker = FakeBrokerClient(a=1)
    broker.store(message(0, topic=Topic("a")))
    async with (
        bulk(broker, group_settings(topics=("missing", "a"))) as (it, _),
        connect(it.port) as client,
    ):
        assert await fetch(client) == {"broker-a_0": (1, [0])}


async def test_an_unsupported_fetch_is_an_application_exception() -> None:
    async with bulk(FakeBrokerClient(orders=1)) as (it, _), connect(it.port) as client:
        with pytest.raises(TApplicationException, match="fetch names format 2: 0"):
            await fetch(client, format=2)
        with pytest.raises(TApplicationException, match="fetch came without its request"):
            await client.call("fetch", None)
        assert await fetch(client, {TOPIC: {"broker-a_0": 0}}) == {"broker-a_0": (0, [])}


# ---- ack ----------------------------------------------------------------------------------------


async def test_an_ack_sets_the_groups_committed_offsets() -> None:
    broker = FakeBrokerClient(orders=2)
    fill(broker)
    async with bulk(broker) as (it, service), connect(it.port) as client:
        assert await ack(client, {TOPIC: {"broker-a_0": 7, "broker-a_1": 100, "nonsense": 9}})
        assert await ack(client, {"nowhere": {"broker-a_0": 1}})
        assert broker.committed == {(GROUP, queue(0)): 7, (GROUP, queue(1)): 100}
        assert service.refused_acks == 0


@pytest.mark.parametrize("offset", [-1, 101])
async def test_an_ack_of_an_invalid_position_moves_nothing(offset: int) -> None:
    """Beyond the end, the group would skip future messages and show no lag."""
    broker = FakeBrokerClient(orders=2)
    fill(broker)
    async with bulk(broker) as (it, service), connect(it.port) as client:
        with structlog.testing.capture_logs() as logs:
            assert not await ack(client, {TOPIC: {"broker-a_0": 7, "broker-a_1": offset}})
        assert (broker.committed, service.refused_acks) == ({}, 1)
        assert [str(offset) in line["reason"] for line in logs] == [True]
        assert await ack(client, {TOPIC: {"broker-a_0": 7}}, reader="r2"), "it holds nothing"


async def test_an_ack_of_another_reader_within_60_s_is_false_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = FakeBrokerClient(orders=1)
    fill(broker)
    now = now_ns()
    async with bulk(broker) as (it, service), connect(it.port) as client:
        for reader, after_s, taken in (
            ("r1", 0, True),
            ("r2", 59, False),
            ("r1", 30, True),
            ("r2", 89, False),
            ("r2", 91, True),
            ("r1", 92, False),
        ):
            monkeypatch.setattr(bulk_service, "now_ns", lambda at=after_s: now + at * SECOND)
            assert await ack(client, {TOPIC: {"broker-a_0": after_s}}, reader=reader) is taken
        assert broker.committed == {(GROUP, queue(0)): 91}
        assert service.refused_acks == 3


async def test_positions_that_leases_decide_are_not_for_bulk_readers() -> None:
    broker = FakeBrokerClient(orders=1)
    async with bulk(broker) as (it, service), connect(it.port) as client:
        it.lane().presence.show([Topic(TOPIC)], shows_all=True)
        assert not await ack(client, {TOPIC: {"broker-a_0": 7}})
        assert not await ack(client, {TOPIC: {"broker-a_0": 7}}, group="bling")
        assert await client.call("ack", None) is False
        assert (broker.committed, service.refused_acks) == ({}, 3)


async def test_an_ack_that_a_broker_does_not_take_is_false() -> None:
    broker = FakeBrokerClient(orders=2)
    fill(broker)
    broker.fails["commit_offset", queue(0)] = ConnectionLost("gone")
    async with bulk(broker) as (it, _), connect(it.port) as client:
        assert not await ack(client, {TOPIC: {"broker-a_0": 7, "broker-a_1": 8}})
        assert broker.committed == {(GROUP, queue(1)): 8}
        broker.fails["max_offset"] = ConnectionLost("gone")
        assert not await ack(client, {TOPIC: {"broker-a_1": 9}})
        assert broker.committed == {(GROUP, queue(1)): 8}


# ---- report -------------------------------------------------------------------------------------


async def report(client: ThriftClient, reader: str = "r1", **fields: object) -> str | None:
    """Return the refusal."""
    offsets = {TOPIC: {"broker-a_0": 7}}
    given = {"groupId": GROUP, "consumerId": reader, "offsets": offsets, **fields}
    found = await client.call("report", consumer.ProgressReport(**given))
    return found.refusal if found.refusal is None else str(found.refusal)


async def test_a_report_sets_offsets_and_counts_messages() -> None:
    broker = FakeBrokerClient(orders=2)
    fill(broker)
    async with bulk(broker) as (it, service), connect(it.port) as client:
        assert await report(client, lost={TOPIC: 3}, skipped={TOPIC: 2}) is None
        assert await report(client, offsets={}, lost={TOPIC: 1}, repeated={TOPIC: 5}) is None
        assert broker.committed == {(Group(GROUP), queue(0)): 7}
        figures = service.figures()[GROUP]
        assert [figures[f"bulk_{name}"] for name in ("lost", "skipped", "repeated")] == [4, 2, 5]


async def test_a_report_says_why_its_offsets_were_not_set() -> None:
    """It names another reader only if there is one; the messages count in any case."""
    broker = FakeBrokerClient(orders=2)
    fill(broker)
    async with bulk(broker) as (it, service), connect(it.port) as client:
        beyond = await report(client, offsets={TOPIC: {"broker-a_0": 999}}, lost={TOPIC: 3})
        assert beyond == "topic 'orders', qid 'broker-a_0', offset 999: the queue ends at 100"
        assert await report(client, reader="other") is None
        why = await report(client)
        assert why is not None
        assert why.startswith(f"the reader 'other' reported progress of group {GROUP!r} within")
        broker.fails["commit_offset"] = ConnectionLost("not connected")
        assert await report(client, reader="other") == "a broker failed: not connected"
        missing = await report(client, reader="other", offsets={}, skipped={"gone": 2, TOPIC: -9})
        assert missing == f"group {GROUP!r} has no topic 'gone'"
        figures = service.figures()[GROUP]
        assert (figures["bulk_lost"], figures["bulk_skipped"]) == (3, 2)
        assert service.refused_acks == 4
        with pytest.raises(consumer.PullException, match="no group 'bling' here"):
            await report(client, groupId="bling")


async def test_a_topic_that_the_group_no_longer_has_keeps_no_progress_of_the_others_back() -> None:
    """A query with a pattern keeps its position, in case the topic returns."""
    broker = FakeBrokerClient(orders=2)
    fill(broker)
    async with bulk(broker) as (it, service), connect(it.port) as client:
        offsets = {TOPIC: {"broker-a_0": 7}, "gone": {"broker-a_0": 3}}
        why = f"group {GROUP!r} has no topic 'gone'"
        assert await report(client, offsets=offsets) == (
            f"{why}; the offsets of its other topics are set"
        )
        assert broker.committed == {(Group(GROUP), queue(0)): 7}
        assert await report(client, offsets={"gone": {"broker-a_0": 3}}) == why
        assert broker.committed == {(Group(GROUP), queue(0)): 7}
        assert service.refused_acks == 2


async def test_progress_in_another_life_of_the_topic_is_refused() -> None:
    """Other proxies may have read for the reader, so only the report says in which life."""
    broker = FakeBrokerClient(orders=2)
    fill(broker)
    broker.lives[Topic(TOPIC)] = 12
    offsets = {TOPIC: {"broker-a_0": 7, "broker-a_1": 8}}
    async with bulk(broker) as (it, service), connect(it.port) as client:
        why = await report(client, offsets=offsets, lives={TOPIC: {"broker-a_1": 11}})
        assert why == (
            "topic 'orders', qid 'broker-a_1', offset 8: it was read in life 11 of the topic, which"
            " was deleted and created again since, or restored from an older copy, and is now in"
            " life 12"
        )
        assert (broker.committed, service.refused_acks) == ({}, 1)
        assert await report(client, reader="r2", lives={TOPIC: {"broker-a_0": 12}}) is None
        assert broker.committed == {(GROUP, queue(0)): 7}
        assert broker.commit_lives == {queue(0): 12}
        strange = {"nowhere": {"broker-a_0": 1}, TOPIC: {"nonsense": 3}}
        assert await report(client, reader="r2", lives=strange) is None
        broker.lives.clear()  # as of Apache's brokers
        assert await report(client, reader="r2", lives={TOPIC: {"broker-a_0": 11}}) is None
