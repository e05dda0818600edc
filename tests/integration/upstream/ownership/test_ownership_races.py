"""Events between two steps of an owner: other owners, lost answers, bugs, slow brokers.

Real upstream components on brokers in memory, so each test controls every step.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from broker_core.clock import now_ns
from broker_core.errors import BrokerError, ConnectionLost, RequestTimeout
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.keys.ids import Epoch
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.parked_key import ParkedKey, parked_topic
from proxy.core.records.record import Clean, Own, Snapshot, ownership_topic
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.ownership.owned_queue import QueueState
from proxy.upstream.ownership.start_offsets import start_offset
from proxy.upstream.records.ownership_log import OwnershipLog
from testkit.eventually import eventually
from testkit.lanes import TOPIC
from tests.integration.upstream.memory_broker import MemoryBrokers, MemoryClient
from tests.integration.upstream.upstreams import (
    BILLING,
    QUICK,
    SECOND,
    once,
    one_queue,
    rival,
    taking_part,
    trusting,
    twin_of,
    unanswered,
    upstream,
    write,
)

# ---- taking over --------------------------------------------------------------------------------


async def test_an_owner_between_the_read_and_the_record_is_waited_for() -> None:
    """P1, P6: a broker that forgot its locks also granted this one to a rival."""
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        us.client.before["send"] = once(lambda *_: write(brokers, queue, rival()))
        began_ns = now_ns()
        _, pipeline = await us.owned(queue)

        assert pipeline.hold_until_ns - began_ns > 9 * SECOND, "trust and longest lease"
        assert pipeline.qid != "broker-a_0#1", "the rival's clients hold leases of that name"


async def test_a_slow_answer_does_not_lengthen_the_wait_for_records_seen_late() -> None:
    """N7: the rival's last record was not visible yet, and the broker took its time to store
    ours.
    """
    brokers, queue = one_queue()
    write(brokers, queue, rival())

    async def seen_late(*_: Any) -> None:
        if len(brokers.logs[twin_of(brokers, queue)]) == 1:
            longer = Snapshot(Epoch(0), 0, 0, (), longest_lease_ms=8000)
            write(brokers, queue, *parts(longer))
            await asyncio.sleep(0.2)

    async with upstream(brokers) as us:
        us.client.before["send"] = seen_late
        await us.owned(queue)
        taken = us.history.of("own+")[-1]

        trust_and_lease_s, lock_s = 5 + 8, 10
        assert taken["hold_until_ns"] - taken["asked_ns"] == (trust_and_lease_s - lock_s) * SECOND


async def test_a_longer_lease_seen_late_is_waited_for_after_a_crash_too() -> None:
    """O3: the record that began the period was made before the longer lease was known."""
    brokers, queue = one_queue()
    write(brokers, queue, rival())

    async def seen_late(*_: Any) -> None:
        if len(brokers.logs[twin_of(brokers, queue)]) == 1:
            longer = Snapshot(Epoch(0), 0, 0, (), longest_lease_ms=65_000)
            write(brokers, queue, *parts(longer))

    async with upstream(brokers) as us, upstream(brokers, client_id="next@1#1") as following:
        us.client.before["send"] = seen_late
        _, pipeline = await us.owned(queue)
        lease_and_lock_s = 65 - (10 - 5)
        assert pipeline.hold_until_ns > now_ns() + (lease_and_lock_s - 5) * SECOND
        assert pipeline.snapshot().epoch == len(brokers.logs[twin_of(brokers, queue)]) - 1

        # The process is killed before it has made another record.
        _, next_one = await following.owned(queue)
        lock_s = 5  # this passes before the lock can be granted again
        assert next_one.hold_until_ns > pipeline.hold_until_ns - (lock_s + 1) * SECOND


async def test_records_between_the_read_and_the_record_are_respected() -> None:
    """P4, P5: the rival owned the queue and ended cleanly while this process was stopped."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9

    def rival_works(*_: Any) -> None:
        write(brokers, queue, rival(), *parts(Snapshot(Epoch(0), 3, 7, (3, 5))), Clean(Epoch(0)))
        brokers.committed[BILLING, queue] = 3

    async with upstream(brokers) as us:
        us.client.before["send"] = once(rival_works)
        _, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)

        assert pipeline.committed == 3
        assert pipeline.snapshot().unfinished == (3, 5, 7, 8)


async def test_no_period_begins_while_the_topic_is_deleted() -> None:
    """Its records would name no life, and count when the topic is created again."""
    brokers, queue = one_queue()
    brokers.logs[queue], brokers.lives[queue.topic] = [b"x"] * 9, 1
    async with upstream(brokers) as us:
        former, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)
        await former.lose("the lock was lost")
        del brokers.lives[queue.topic]
        brokers.missing.add(queue.topic)
        brokers.logs[queue] = []
        records = len(brokers.logs[twin_of(brokers, queue)])
        made = us.own(queue)
        await eventually(lambda: made.state is QueueState.GONE)
        assert len(brokers.logs[twin_of(brokers, queue)]) == records

        brokers.missing.clear()
        brokers.lives[queue.topic], brokers.logs[queue] = 2, [b"y"] * 3
        _, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 3)
        assert pipeline.committed == 0


async def test_a_queue_that_comes_back_at_once_waits_for_the_leases_it_had_here() -> None:
    """P2: the lock was not released, so it is granted again long before it could expire."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 3
    short = {"visibility_timeout_s": 4.0}
    async with (
        upstream(brokers, lock=QUICK, group=short) as us,
        taking_part(us) as ownership,
    ):
        began_ns = now_ns()
        await eventually(lambda: us.lease() == 1)  # trust is short: it may lapse in between
        first = us.pipeline(queue)
        owned = ownership.owned(queue)
        assert owned is not None
        await owned.lose("reading failed")
        ownership.wake()
        await eventually(lambda: us.ready(queue))

        assert us.pipeline(queue) is not first
        assert us.lease() == 0
        assert us.pipeline(queue).hold_until_ns - began_ns >= 4 * SECOND


async def test_a_take_over_that_failed_during_its_wait_lets_the_lock_expire() -> None:
    """P1: its record is stored although the answer was lost, and the next owner relies on it."""
    brokers, queue = one_queue()
    write(brokers, queue, Own("crashed@1#1", 500, 3000, broker_start_ms=99, period=1))

    def answer_lost(twin: QueueName, message: OutgoingMessage) -> None:
        brokers.logs[twin].append(message.body)
        raise RequestTimeout("no answer")

    async with upstream(brokers, lock=QUICK) as us:
        us.client.before["send"] = once(answer_lost)
        async with taking_part(us):
            await eventually(lambda: us.lane.buffer.find(queue) is not None)

            assert us.client.asked["unlock"] == 0
            assert us.pipeline(queue).hold_until_ns - now_ns() > SECOND // 4


async def test_a_crash_loop_does_not_hide_the_records_of_a_clean_owner() -> None:
    """P5: owners that crash early record only that they own the queue."""
    brokers, queue = one_queue()
    snapshot = Snapshot(Epoch(0), 3, 7, (3, 5))
    write(brokers, queue, rival(), *parts(snapshot), Clean(Epoch(0)))
    write(brokers, queue, *(rival(period) for period in range(2, 90)))
    last, end = await OwnershipLog(MemoryClient(brokers)).last(BILLING, queue)  # type: ignore[arg-type]

    assert last is not None
    assert (last.snapshot, last.own.period, end) == (snapshot, 89, 91)


async def test_an_owner_whose_records_retention_deleted_is_waited_for() -> None:
    """P1, P6: it owned the queue for longer than messages are retained."""
    brokers, queue = one_queue()
    write(brokers, queue, rival())
    brokers.deleted[twin_of(brokers, queue)] = 1
    async with upstream(brokers) as us:
        began_ns = now_ns()
        _, pipeline = await us.owned(queue)

        assert pipeline.hold_until_ns - began_ns > 9 * SECOND
        assert pipeline.qid == "broker-a_0#2"


async def test_an_ownership_topic_that_vanished_is_made_again() -> None:
    brokers, queue = one_queue()
    log = OwnershipLog(MemoryClient(brokers))  # type: ignore[arg-type]
    await log.append(BILLING, queue, rival())
    del brokers.topics[ownership_topic(BILLING, queue.topic)]
    outcomes = []
    for _ in range(2):
        try:
            outcomes.append(await log.append(BILLING, queue, rival()))
        except Exception as error:
            outcomes.append(type(error).__name__)

    assert outcomes == ["BrokerError", 1]


async def test_a_nameserver_that_forgot_all_makes_no_ownership_topic_smaller() -> None:
    """P1: the records of removed queues would become invisible."""
    brokers = MemoryBrokers()
    queue = brokers.add_topic(TOPIC, 4)[0]
    client = MemoryClient(brokers)
    real = client.queues

    async def forgot(topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        if fresh:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no route")
        return await real(topic)

    client.queues = forgot  # type: ignore[method-assign]
    await OwnershipLog(client).append(BILLING, queue, rival())  # type: ignore[arg-type]

    assert len(brokers.topics[ownership_topic(BILLING, queue.topic)]) == 4


def keep_route(
    monkeypatch: pytest.MonkeyPatch, client: MemoryClient, queues: list[QueueName]
) -> None:
    """Let *client* keep these *queues* as the route of their topic."""
    real = client.queues

    async def kept(topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        return queues if topic == TOPIC and not fresh else await real(topic)

    monkeypatch.setattr(client, "queues", kept)


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_proxy_that_missed_a_growth_in_queues_makes_no_ownership_topic_smaller(
    monkeypatch: pytest.MonkeyPatch, *, meanwhile: bool
) -> None:
    """P1: the records of another proxy in the new queues would become invisible. The topic grew
    since the route was read, or (*meanwhile*) grows while the other one creates its twin, too.
    """
    brokers = MemoryBrokers()
    queue = brokers.add_topic(TOPIC, 4)[0]
    client, other = MemoryClient(brokers), MemoryClient(brokers, "other@1#1")
    keep_route(monkeypatch, client, [*brokers.topics[TOPIC]])

    async def grow(*_: Any) -> None:
        client.before.clear()
        new = brokers.add_topic(TOPIC, 8)[7]
        if meanwhile:
            await OwnershipLog(other).append(BILLING, new, rival())  # type: ignore[arg-type]

    if meanwhile:
        client.before["create_topic"] = grow
    else:
        await grow()
    await OwnershipLog(client).append(BILLING, queue, rival())  # type: ignore[arg-type]

    assert len(brokers.topics[ownership_topic(BILLING, TOPIC)]) == 8


async def test_a_proxy_that_missed_a_growth_in_queues_makes_no_parked_topic_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P1: the copies of another proxy in the new queues would become invisible."""
    brokers = MemoryBrokers()
    queue = brokers.add_topic(TOPIC, 4)[0]
    known = Snapshot(Epoch(0), 0, 0, parked={b"k": ParkedKey(0, 0)})
    write(brokers, queue, rival(), *parts(known), Clean(Epoch(0)))
    parked = parked_topic(BILLING, TOPIC)
    async with upstream(brokers) as us:
        keep_route(monkeypatch, us.client, [*brokers.topics[TOPIC]])
        brokers.add_topic(TOPIC, 8)
        await us.owned(queue)
        await eventually(lambda: parked in brokers.topics)

        assert len(brokers.topics[parked]) == 8


# ---- where a group begins -----------------------------------------------------------------------


async def test_latest_is_latest_in_all_queues_with_any_first_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another owner sets the beginning of all queues between two of our reads."""
    brokers = MemoryBrokers()
    first, second = brokers.add_topic(TOPIC, 2)
    for queue in (first, second):
        brokers.logs[queue] = [b"x"] * 50
    group = {"start_from": "latest"}
    async with upstream(brokers, group=group) as us, upstream(brokers, group=group) as other:
        real = us.client.committed_offset

        async def answered_late(name: Group, queue: QueueName) -> int | None:
            offset: int | None = await real(name, queue)
            if not len(other.lane.buffer):
                await other.owned(first)
            return offset

        monkeypatch.setattr(us.client, "committed_offset", answered_late)
        _, pipeline = await us.owned(second)

        assert pipeline.committed == 50


async def test_a_late_beginning_does_not_move_a_queue_that_has_an_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another first owner begins it between our look and our commit."""
    brokers = MemoryBrokers()
    first, second = brokers.add_topic(TOPIC, 2)
    for queue in (first, second):
        brokers.logs[queue] = [b"x"] * 50
    group = {"start_from": "latest"}
    async with (
        upstream(brokers, group=group) as us,
        upstream(brokers, group=group, client_id="other@1#1") as other,
    ):
        real = us.client.max_offset
        begun: list[int] = []

        async def answered_late(queue: QueueName) -> int:
            if queue == first and not begun:
                _, pipeline = await other.owned(first)
                begun.append(pipeline.position)
                brokers.logs[first] = [b"x"] * 55
            end: int = await real(queue)
            return end

        monkeypatch.setattr(us.client, "max_offset", answered_late)
        await us.owned(second)

        assert (begun, brokers.committed[BILLING, first]) == ([50], 50)


async def test_a_queue_added_after_the_first_owner_begins_with_its_first_message() -> None:
    brokers, queue = one_queue()
    async with upstream(brokers, group={"start_from": "latest"}) as us:
        await us.owned(queue)
        added = brokers.add_topic(TOPIC, 2)[1]
        brokers.logs[added] = [b"x"] * 50

        assert await start_offset(us.context, us.lane.settings, added) == (0, 0)


async def test_a_group_that_begins_at_the_earliest_message_needs_no_other_broker() -> None:
    """Messages deleted before the group existed are not counted, at no broker that answers."""
    brokers, first = one_queue()
    second = brokers.add_topic(TOPIC, 2)[1]
    (elsewhere,) = brokers.add_topic(TOPIC, 1, broker="broker-b")
    for queue in (first, second, elsewhere):
        brokers.logs[queue] = [b"x"] * 9
        brokers.deleted[queue] = 7

    async def silent(of: QueueName | list[QueueName], *_: Any) -> None:
        (broker,) = {each.broker for each in (of if isinstance(of, list) else [of])}
        if broker == "broker-b":
            raise RequestTimeout("no answer")

    async with upstream(brokers) as us:
        us.client.before["min_offset"] = us.client.before["queue_ranges"] = silent
        for queue in (first, second):
            _, pipeline = await us.owned(queue)
            await eventually(lambda of=pipeline: of.position == 9)

        assert us.lane.counts[Topic(TOPIC)].deleted_unread == 0


async def test_needed_messages_that_retention_deleted_are_counted() -> None:
    """P3: even if the queue had no owner when they were deleted."""
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    brokers.deleted[queue] = 7
    brokers.committed[BILLING, queue] = 2
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)

        assert us.lane.counts[Topic(TOPIC)].deleted_unread == 5
        assert pipeline.committable == 7


# ---- serving ------------------------------------------------------------------------------------


@pytest.mark.failing_tasks
async def test_a_bug_in_a_hand_over_does_not_keep_the_queue_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        owned, _ = await us.owned(queue)

        def bug(_self: QueuePipeline) -> Snapshot:
            raise KeyError("a bug")

        monkeypatch.setattr(QueuePipeline, "snapshot", bug)
        owned.hand_over()

        await eventually(lambda: owned.state is QueueState.GONE)
        assert len(us.lane.buffer) == 0


@pytest.mark.failing_tasks
async def test_a_bug_behind_a_take_over_does_not_keep_the_queue_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, queue = one_queue()
    async with upstream(brokers) as us:

        def bug(*_: object) -> None:
            raise KeyError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(type(us.lane), "add", bug)
            owned = us.own(queue)
            await eventually(lambda: owned.state is QueueState.GONE)
        await us.owned(queue)


# ---- the share ----------------------------------------------------------------------------------


async def test_a_broker_that_does_not_answer_stops_no_queue_of_another() -> None:
    """P7: after a lapse the records at that broker cannot be read."""
    brokers = MemoryBrokers()
    for broker in ("broker-a", "broker-b"):
        brokers.add_topic(TOPIC, 1, broker=broker)
    async with upstream(brokers, lock=QUICK) as us, taking_part(us):
        await eventually(lambda: trusting(us.lane) == {"broker-a", "broker-b"})

        async def stuck(queue: QueueName, _message: OutgoingMessage) -> None:
            if queue.broker == "broker-a":
                await asyncio.Event().wait()

        with patch.object(us.client, "lock", unanswered()):
            await eventually(lambda: not trusting(us.lane))
            us.client.before["send"] = stuck

        await eventually(lambda: trusting(us.lane) == {"broker-b"})


async def test_a_topic_whose_broker_is_down_delays_no_other_topic() -> None:
    brokers = MemoryBrokers()
    brokers.add_topic("dark", 1, broker="broker-a")
    brokers.add_topic("light", 1, broker="broker-b")
    async with upstream(brokers, lock=QUICK, topics=("dark", "light")) as us:

        async def dark(_group: Group, topic: Topic) -> None:
            if topic == "dark":
                raise ConnectionLost("broker-a is down")

        us.client.before["consumer_ids"] = dark
        async with taking_part(us):
            await eventually(lambda: trusting(us.lane) == {"broker-b"})


async def test_a_member_that_comes_and_goes_costs_the_others_no_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its link loses answers: the broker drops it and it registers again, many times a second."""
    brokers = MemoryBrokers()
    brokers.add_topic(TOPIC, 2)
    async with upstream(brokers) as us, taking_part(us) as ownership:
        await eventually(lambda: len(list(us.lane.buffer)) == 2)
        before = list(us.lane.buffer)
        looks = 0

        async def flickering(_group: Group, _topic: Topic) -> list[str]:
            nonlocal looks
            looks += 1
            return [us.client_id, "a@1#1"][: 1 + looks % 2]

        monkeypatch.setattr(us.client, "consumer_ids", flickering)
        for number in range(1, 30):
            ownership.wake()
            await eventually(lambda least=number: looks >= least)
        assert list(us.lane.buffer) == before
        assert not any(pipeline.closed for pipeline in before)


async def test_on_brokers_that_keep_no_signs_members_share_every_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This proxy shows that it wants the topic, but is never listed."""
    brokers = MemoryBrokers()
    brokers.add_topic(TOPIC, 4)
    async with upstream(brokers) as us:

        async def both(_group: Group, _topic: Topic) -> list[str]:
            return [us.client_id, "z@1#1@orderlane"]

        async def nobody(_sign: Group, _topic: Topic) -> list[str]:
            return []

        monkeypatch.setattr(us.client, "consumer_ids", both)
        monkeypatch.setattr(us.client, "producer_ids", nobody)
        async with taking_part(us):
            began_ns = now_ns()
            await eventually(lambda: len(list(us.lane.buffer)) == 2, within_s=60)
            assert now_ns() - began_ns > 20 * SECOND, "at first it waits to be listed"


# ---- commits ------------------------------------------------------------------------------------


async def test_offsets_that_a_broker_lost_in_a_crash_are_committed_again() -> None:
    """P5: a broker writes its offsets to disk every 5 s, and no message may finish afterwards."""
    brokers, queue = one_queue()
    brokers.committed[BILLING, queue] = 7
    brokers.logs[queue] = [b"x"] * 7
    async with upstream(brokers) as us:
        await us.owned(queue)
        brokers.committed[BILLING, queue] = 2
        committing = spawn(us.committer.run([us.lane]), name="committer")
        await eventually(lambda: brokers.committed[BILLING, queue] == 7)
        await cancel_and_wait(committing)


async def test_a_queue_has_one_commit_in_flight_at_a_time() -> None:
    brokers, queue = one_queue()
    brokers.logs[queue] = [b"x"] * 9
    async with upstream(brokers) as us:
        _, pipeline = await us.owned(queue)
        await eventually(lambda: pipeline.position == 9)
        under_way = most = 0

        async def slow(*_: Any) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            under_way -= 1

        us.client.before["commit_offset"] = slow

        async def work() -> None:
            for _ in range(3):
                assert us.lease() == 1  # all have one key
                assert us.ack_last(pipeline) == []
                pipeline.recorded_to(pipeline.committable)
                await us.committer.commit(us.lane, pipeline)

        await asyncio.gather(*(work() for _ in range(3)))
        assert most == 1
        assert brokers.committed[BILLING, queue] == 9


async def test_refused_locks_of_many_topics_share_one_time_limit() -> None:
    """A nameserver that does not answer is asked whether topics were deleted. Their queues count as
    owned until then.
    """
    brokers = MemoryBrokers()
    topics = tuple(f"t{number}" for number in range(10))
    queues = [brokers.add_topic(topic, 1)[0] for topic in topics]
    lock = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 0.5}
    async with upstream(brokers, topics=topics, lock=lock) as us, taking_part(us):
        await eventually(lambda: len(us.lane.buffer) == len(queues))
        answers = asyncio.Event()

        async def silent(*_: Any) -> None:
            await answers.wait()

        us.client.before["queues"] = silent
        brokers.holders.update(dict.fromkeys(((BILLING, each) for each in queues), "rival@1#1"))
        began_ns = now_ns()
        await eventually(lambda: not len(us.lane.buffer))
        assert now_ns() - began_ns < 2 * SECOND
        answers.set()
