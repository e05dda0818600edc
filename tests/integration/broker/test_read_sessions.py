"""Read sessions at the embedded broker: one request for many queues, each answered by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_core.broker.pulling.session_processor import SessionProcessor
from broker_core.client import BrokerClient, PullResult, PullStatus
from broker_core.client.read_sessions import QueueReading
from broker_core.errors import BrokerError, ConnectionLost
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.read_sessions import (
    Changes,
    Question,
    Reading,
    ReadQueuesHeader,
    changes_to_bytes,
    parts_from_bytes,
)
from broker_core.remoting.signing import Credentials
from broker_core.remoting_channel import RemotingChannel
from broker_core.tasks import cancel_and_wait, spawn
from testkit.broker_process import Cluster, run_broker
from testkit.eventually import eventually
from tests.integration.broker.raw_requests import Raw

ORDERS, REFUNDS, BILLING = Topic("orders"), Topic("refunds"), Group("billing")
MIB = 1 << 20
_NO_CHANGES = Changes()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[RemotingCommand]:
    """The requests for reads of queues that arrive at brokers."""
    seen: list[RemotingCommand] = []
    real = SessionProcessor.handlers

    def handlers(self: SessionProcessor) -> Any:
        def read(request: RemotingCommand, channel: RemotingChannel) -> Any:
            seen.append(request)
            return handle(request, channel)

        handle = real(self)[RequestCode.READ_QUEUES]
        return {RequestCode.READ_QUEUES: read}

    monkeypatch.setattr(SessionProcessor, "handlers", handlers)
    return seen


@pytest.fixture
async def cluster(tmp_path: Path, requests: list[RemotingCommand]) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path) as running:
        yield running


def reading(client: BrokerClient, queue: QueueName) -> QueueReading:
    return client.sessions.reading(BILLING, queue)


async def read(it: QueueReading, offset: int = 0, **fields: Any) -> PullResult:
    given = {"max_messages": 32, "max_bytes": MIB, **fields}
    found = await it.next(offset=offset, **given)
    assert found is not None, "it has to be pulled"
    return found


async def send(client: BrokerClient, queue: QueueName, *bodies: bytes, tag: str = "") -> None:
    for body in bodies:
        await client.send(queue, OutgoingMessage(queue.topic, body, tag=tag or None))


def bodies(result: PullResult) -> list[bytes]:
    return [message.body for message in result.messages]


async def test_one_request_reads_all_queues(
    cluster: Cluster, requests: list[RemotingCommand]
) -> None:
    """One held request serves as many queues as there are, and the next names the differences."""
    queues = await cluster.create_topic(ORDERS, queues=64)
    client, sender = await cluster.client(), await cluster.client("sender")
    readings = [reading(client, queue) for queue in queues]
    reads = [spawn(read(each), name="read") for each in readings]
    polls = cluster.broker.components.long_polls
    await eventually(lambda: len(polls) == 64)
    assert len(requests) == 1
    await send(sender, queues[7], b"seven")
    assert bodies(await reads[7]) == [b"seven"]
    reads[7] = spawn(read(readings[7], 1), name="read")
    await eventually(lambda: len(requests) >= 2)
    await asyncio.sleep(1)
    assert len(requests) <= 3
    assert all(len(each.body) < 40 for each in requests[1:]), "at most one question"
    assert not any(each.done() for each in reads)
    await cancel_and_wait(*reads)


async def test_one_answer_has_the_messages_of_several_queues(
    cluster: Cluster, requests: list[RemotingCommand]
) -> None:
    queues = await cluster.create_topic(ORDERS, queues=8)
    client = await cluster.client()
    for queue in queues:
        await send(client, queue, b"a", b"b")
    found = await asyncio.gather(*(read(reading(client, queue)) for queue in queues))
    assert [bodies(each) for each in found] == [[b"a", b"b"]] * 8
    assert [(each.next_offset, each.max_offset) for each in found] == [(2, 2)] * 8
    assert len(requests) == 1


async def test_a_refusal_concerns_its_queue_alone(
    cluster: Cluster, requests: list[RemotingCommand]
) -> None:
    """Every refusal of a pull: the others are read in the same answer."""
    queues = await cluster.create_topic(ORDERS, queues=4)
    client = await cluster.client()
    await send(client, queues[0], b"there")
    strange = QueueName(Topic("nowhere"), "broker-a", 0)
    beyond = queues[0]._replace(queue_id=9)
    results = await asyncio.gather(
        read(reading(client, strange)),
        read(reading(client, beyond)),
        read(reading(client, queues[1]), tags="||"),
        read(reading(client, queues[2]), 77),
        read(client.sessions.reading(Group("a b"), queues[3])),
        read(reading(client, queues[0])),
        return_exceptions=True,
    )
    codes = [each.code if isinstance(each, BrokerError) else each for each in results]
    assert codes[:3] == [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    ]
    assert codes[4] == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    moved, there = results[3], results[5]
    assert isinstance(moved, PullResult)
    assert isinstance(there, PullResult)
    assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, 0)
    assert bodies(there) == [b"there"]
    assert len(requests) == 1


@pytest.mark.failing_tasks
async def test_a_deleted_topic_ends_the_wait_for_it_alone(cluster: Cluster) -> None:
    (kept,) = await cluster.create_topic(REFUNDS, queues=1)
    queues = await cluster.create_topic(ORDERS, queues=3)
    client, admin = await cluster.client(), await cluster.client("admin")
    readings = [reading(client, queue) for queue in (*queues, kept)]
    reads = [spawn(read(each), name="read") for each in readings]
    polls = cluster.broker.components.long_polls
    await eventually(lambda: len(polls) == 4)
    await admin.requests.ask("broker-a", RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": ORDERS})
    for each in reads[:3]:
        with pytest.raises(BrokerError, match="topic 'orders' does not exist"):
            await each
    await send(admin, kept, b"there")
    assert bodies(await reads[3]) == [b"there"]


async def test_a_queue_in_another_life_is_answered_at_once(cluster: Cluster) -> None:
    (queue,) = await cluster.create_topic(ORDERS, queues=1)
    client = await cluster.client()
    life = await client.life(queue)
    assert life is not None
    found = await read(reading(client, queue), life=life - 1)
    assert (found.status, found.life) == (PullStatus.NO_NEW, life)


async def test_messages_with_other_tags_are_passed_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wake no read, and none waits behind them when the time is up."""
    monkeypatch.setattr("broker_core.client.read_sessions.SUSPEND_S", 0.2)
    one, two = await cluster.create_topic(ORDERS, queues=2)
    client, sender = await cluster.client(), await cluster.client("sender")
    picky, other = reading(client, one), reading(client, two)
    reads = [spawn(read(picky, tags="a"), name="read"), spawn(read(other), name="read")]
    await eventually(lambda: len(cluster.broker.components.long_polls) == 2)
    await send(sender, one, b"1", b"2", tag="b")
    skipped = await reads[0]
    assert (skipped.status, skipped.next_offset) == (PullStatus.NO_MATCH, 2)
    following = spawn(read(picky, 2, tags="a"), name="read")
    await send(sender, one, b"3", b"4", b"5", tag="a")
    assert bodies(await following)[0] == b"3"
    assert not reads[1].done()
    await cancel_and_wait(*reads)


async def test_a_full_answer_goes_on_with_the_other_queues(
    cluster: Cluster, requests: list[RemotingCommand]
) -> None:
    """A queue with a long backlog takes its turn only: none of the others starves."""
    queues = await cluster.create_topic(ORDERS, queues=4)
    client = await cluster.client()
    for _ in range(6):
        await asyncio.gather(*(send(client, queue, b"x" * 30_000) for queue in queues))
    order: list[int] = []

    async def drain(number: int) -> None:
        it, offset = reading(client, queues[number]), 0
        while offset < 6:
            found = await read(it, offset, max_messages=2, max_bytes=100_000)
            order.append(number)
            offset = found.next_offset
        it.end()

    await asyncio.gather(*(drain(number) for number in range(4)))
    for start in range(0, 12, 4):
        assert sorted(order[start : start + 4]) == [0, 1, 2, 3]
    assert all(len(each.body) < 300 for each in requests)


async def test_a_message_larger_than_an_answer_is_delivered_alone(cluster: Cluster) -> None:
    one, two = await cluster.create_topic(ORDERS, queues=2)
    client = await cluster.client()
    await send(client, one, b"x" * 3 * MIB)
    await send(client, two, b"small")
    large, small = await asyncio.gather(
        read(reading(client, one), max_bytes=1000), read(reading(client, two), max_bytes=1000)
    )
    assert [len(body) for body in bodies(large)] == [3 * MIB]
    assert bodies(small) == [b"small"]


async def test_a_disk_error_concerns_its_queue_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await cluster.create_topic(ORDERS, queues=2)
    client = await cluster.client()
    await send(client, one, b"1")
    await send(client, two, b"2")
    reader = cluster.broker.components.store.reader
    real = type(reader).read

    def failing(self: Any, topic: Topic, queue_id: int, *rest: Any, **more: Any) -> Any:
        if queue_id == 0:
            raise OSError("the disk fails")
        return real(self, topic, queue_id, *rest, **more)

    monkeypatch.setattr(type(reader), "read", failing)
    failed, there = await asyncio.gather(
        read(reading(client, one)), read(reading(client, two)), return_exceptions=True
    )
    assert isinstance(failed, BrokerError)
    assert (failed.code, failed.remark) == (ResponseCode.SYSTEM_ERROR, "the disk fails")
    assert isinstance(there, PullResult)
    assert bodies(there) == [b"2"]


async def test_a_reading_that_ends_is_forgotten_by_both_sides(cluster: Cluster) -> None:
    queues = await cluster.create_topic(ORDERS, queues=3)
    client = await cluster.client()
    readings = [reading(client, queue) for queue in queues]
    reads = [spawn(read(each), name="read") for each in readings]
    sessions = cluster.broker.components.read_sessions
    await eventually(lambda: sessions.queues == 3)
    await cancel_and_wait(*reads[:2])
    for each in readings[:2]:
        each.end()
    reads.append(spawn(read(reading(client, queues[0])), name="read"))  # goes with the next request
    await eventually(lambda: sessions.queues == 2)
    await cancel_and_wait(*reads)


@pytest.mark.failing_tasks
async def test_a_session_ends_with_its_connection(cluster: Cluster) -> None:
    queues = await cluster.create_topic(ORDERS, queues=5)
    client = await cluster.client("reader")
    reads = [spawn(read(reading(client, queue)), name="read") for queue in queues]
    components = cluster.broker.components
    await eventually(lambda: components.read_sessions.queues == 5)
    closing = spawn(client.close(), name="close")
    for each in reads:
        with pytest.raises(ConnectionLost):
            await each
    await closing
    await eventually(lambda: len(components.read_sessions) == 0)
    assert (components.read_sessions.size, len(components.long_polls)) == (0, 0)


@pytest.mark.failing_tasks
async def test_reads_go_on_after_a_restart_of_the_broker(cluster: Cluster) -> None:
    queues = await cluster.create_topic(ORDERS, queues=3)
    client, sender = await cluster.client(), await cluster.client("sender")
    readings = [reading(client, queue) for queue in queues]
    reads = [spawn(read(each), name="read") for each in readings]
    await eventually(lambda: cluster.broker.components.read_sessions.queues == 3)
    await cluster.restart_broker(crash=True)
    for each in reads:
        with pytest.raises(ConnectionLost):
            await each
    reads = [spawn(read(each), name="read") for each in readings]
    await eventually(lambda: cluster.broker.components.read_sessions.queues == 3)
    await send(sender, queues[1], b"there")
    assert bodies(await reads[1]) == [b"there"]
    await cancel_and_wait(*reads)


async def test_a_lost_session_is_begun_again_unnoticed(
    cluster: Cluster, requests: list[RemotingCommand]
) -> None:
    """As after a broker has lost it, or the client's next request goes over another connection."""
    queues = await cluster.create_topic(ORDERS, queues=3)
    client, sender = await cluster.client(), await cluster.client("sender")
    reads = [spawn(read(reading(client, queue)), name="read") for queue in queues[:2]]
    sessions = cluster.broker.components.read_sessions
    await eventually(lambda: sessions.queues == 2)
    (channel,) = {each for each in cluster.broker.server.channels if sessions.of(each)}
    sessions.connection_closed(channel)
    reads.append(spawn(read(reading(client, queues[2])), name="read"))
    await eventually(lambda: sessions.queues == 3)
    for number, queue in enumerate(queues):
        await send(sender, queue, b"%d" % number)
    assert [bodies(await each) for each in reads] == [[b"0"], [b"1"], [b"2"]]


async def test_a_broker_without_sessions_is_left_to_pulls(tmp_path: Path) -> None:
    """Until it returns with sessions."""
    async with run_broker(tmp_path, max_session_queues=0) as cluster:
        (queue,) = await cluster.create_topic(ORDERS, queues=1)
        client = await cluster.client()
        it = reading(client, queue)
        ask = {"offset": 0, "max_messages": 1, "max_bytes": 1000}
        assert await it.next(**ask) is None
        assert await it.next(**ask) is None, "without a request"
        cluster.configure(max_session_queues=10)
        await cluster.restart_broker()
        await send(await cluster.client("sender"), queue, b"there")
        await client.max_offset(queue)
        assert bodies(await read(it)) == [b"there"]


async def test_queues_beyond_the_limit_are_left_to_pulls(tmp_path: Path) -> None:
    async with run_broker(tmp_path, max_session_queues=2) as cluster:
        queues = await cluster.create_topic(ORDERS, queues=4)
        client, other = await cluster.client(), await cluster.client("other")
        for queue in queues:
            await send(client, queue, b"there")
        readings = [reading(client, queue) for queue in queues]
        ask = {"offset": 0, "max_messages": 1, "max_bytes": 1000}
        found = await asyncio.gather(*(each.next(**ask) for each in readings))
        assert [each is not None for each in found] == [True, True, False, False]
        assert await reading(other, queues[0]).next(**ask) is None, "of all connections together"
        sessions = cluster.broker.components.read_sessions
        assert sessions.size == 2
        for each in readings:
            each.end()
        await eventually(lambda: sessions.size == 0)


async def test_long_filters_count_as_several_queues(tmp_path: Path) -> None:
    async with run_broker(tmp_path, max_session_queues=10) as cluster:
        one, two = await cluster.create_topic(ORDERS, queues=2)
        client = await cluster.client()
        await send(client, one, b"there", tag="a")
        tags = " || ".join(["a", *("b" * 50 + str(number) for number in range(80))])
        ask = {"offset": 0, "max_messages": 1, "max_bytes": 1000, "tags": tags}
        assert await reading(client, one).next(**ask) is not None
        assert cluster.broker.components.read_sessions.size > 5
        assert await reading(client, two).next(**ask) is None


@pytest.mark.failing_tasks
async def test_each_queue_needs_its_own_rights_at_each_look(tmp_path: Path) -> None:
    """Also after they were withdrawn while a read waits."""
    accounts = tmp_path / "plain_acl.yml"
    root, shop = Credentials("root-account", "root-secret"), Credentials("shop-acc", "shop-secret")

    def write(*topics: str) -> None:
        content = [
            {"accessKey": root.access_key, "secretKey": root.secret, "admin": True},
            {
                "accessKey": shop.access_key,
                "secretKey": shop.secret,
                "topicPerms": list(topics),
                "groupPerms": ["billing=SUB"],
            },
        ]
        accounts.write_text(yaml.safe_dump({"accounts": content}))

    write("orders=SUB", "refunds=SUB")
    async with run_broker(tmp_path / "broker", acl=accounts) as cluster:
        admin = await cluster.client("root", credentials=root)
        for topic in (ORDERS, REFUNDS, Topic("secret")):
            await admin.create_topic(topic, queues=1)
        orders, refunds, secret = (
            QueueName(topic, "broker-a", 0) for topic in (ORDERS, REFUNDS, Topic("secret"))
        )
        client = await cluster.client("shop", credentials=shop)
        await send(admin, secret, b"secret")
        waiting = [spawn(read(reading(client, each)), name="read") for each in (orders, refunds)]
        with pytest.raises(BrokerError, match="No default permission for topic secret") as refused:
            await read(reading(client, secret))
        assert refused.value.code == ResponseCode.NO_PERMISSION
        with pytest.raises(BrokerError, match="No default permission for group other"):
            await read(client.sessions.reading(Group("other"), orders))
        assert not any(each.done() for each in waiting)
        write("refunds=SUB")
        await asyncio.sleep(2.5)
        await send(admin, orders, b"withdrawn")
        await send(admin, refunds, b"permitted")
        with pytest.raises(BrokerError, match="No default permission for topic orders"):
            await waiting[0]
        assert bodies(await waiting[1]) == [b"permitted"]


# ---- requests that our client never sends -------------------------------------------------------


async def ask(
    raw: Raw, changes: Changes = _NO_CHANGES, *, session: int = 5, epoch: int = 0, ms: int = 0
) -> RemotingCommand:
    header = ReadQueuesHeader(
        session=session, epoch=epoch, suspend_timeout_millis=ms, max_bytes=MIB
    )
    return await raw.ask(RequestCode.READ_QUEUES, header.to_ext(), changes_to_bytes(changes))


def begun(slot: int, queue_id: int = 0) -> Reading:
    return Reading(slot, BILLING, ORDERS, queue_id, "*", None)


async def test_a_wrong_epoch_ends_the_session(cluster: Cluster) -> None:
    await cluster.create_topic(ORDERS, queues=2)
    raw = Raw(cluster)
    sessions = cluster.broker.components.read_sessions
    for session, epoch in ((5, 1), (5, 3), (6, 1), (5, -1), (5, 1 << 60)):
        assert (await ask(raw, Changes(begun=[begun(1)]))).code == 0
        assert (await ask(raw, epoch=1)).code == 0
        assert sessions.queues == 1
        answer = await ask(raw, session=session, epoch=epoch)
        assert answer.code == ResponseCode.NO_SUCH_SESSION
        assert "begin" in (answer.remark or "")
        assert (len(sessions), sessions.size) == (0, 0)
    assert (await ask(raw, epoch=1)).code == ResponseCode.NO_SUCH_SESSION
    await raw.pool.close()


async def test_a_request_ends_the_wait_of_the_one_before_it(cluster: Cluster) -> None:
    """And a session the one before it, of the same connection."""
    await cluster.create_topic(ORDERS, queues=2)
    raw = Raw(cluster)
    wanted = Changes(begun=[begun(1), begun(2, 1)], questions=[Question(1, 0, 1)])
    first = spawn(ask(raw, wanted, ms=20_000), name="first")
    sessions = cluster.broker.components.read_sessions
    await eventually(lambda: sessions.queues == 2)
    more = Changes(questions=[Question(2, 0, 1)])
    second = spawn(ask(raw, more, epoch=1, ms=20_000), name="second")
    assert (await first).body == b""
    assert not second.done()
    assert (await ask(raw, Changes(begun=[begun(1)]), session=6)).code == 0
    assert ((await second).code, (await second).body) == (0, b"")
    assert (len(sessions), sessions.queues) == (1, 1)
    await raw.pool.close()


async def test_a_question_about_an_unknown_slot_is_refused_alone(cluster: Cluster) -> None:
    await cluster.create_topic(ORDERS, queues=1)
    raw = Raw(cluster)
    changes = Changes(begun=[begun(1)], questions=[Question(1, 3, 1), Question(9, 0, 1)])
    parts = parts_from_bytes((await ask(raw, changes)).body)
    assert [(part.slot, part.code) for part in parts] == [
        (1, ResponseCode.PULL_OFFSET_MOVED),
        (9, ResponseCode.NOT_IN_SESSION),
    ]
    await raw.pool.close()


async def test_a_slot_in_use_ends_the_session(cluster: Cluster) -> None:
    await cluster.create_topic(ORDERS, queues=1)
    raw = Raw(cluster)
    assert (await ask(raw, Changes(begun=[begun(1)]))).code == 0
    answer = await ask(raw, Changes(begun=[begun(1)]), epoch=1)
    assert answer.code == ResponseCode.NO_SUCH_SESSION
    sessions = cluster.broker.components.read_sessions
    assert (len(sessions), sessions.size) == (0, 0)
    await raw.pool.close()


async def test_refusals_of_very_many_questions_fit_into_answers(cluster: Cluster) -> None:
    """An answer without messages is limited as well, and the rest follows."""
    raw = Raw(cluster)
    questions = [Question(slot, 0, 1) for slot in range(30_000)]
    answer = await ask(raw, Changes(questions=questions))
    seen = len(parts_from_bytes(answer.body))
    epoch = 0
    while seen < 30_000:
        assert 0 < len(answer.body) < 2 * MIB
        epoch += 1
        answer = await ask(raw, epoch=epoch)
        seen += len(parts_from_bytes(answer.body))
    assert seen == 30_000
    assert epoch > 1
    await raw.pool.close()


async def test_an_ended_broker_ends_the_wait(cluster: Cluster) -> None:
    await cluster.create_topic(ORDERS, queues=1)
    raw = Raw(cluster)
    wanted = Changes(begun=[begun(1)], questions=[Question(1, 0, 1)])
    held = spawn(ask(raw, wanted, ms=600_000), name="held")
    await eventually(lambda: cluster.broker.components.read_sessions.queues == 1)
    async with asyncio.timeout(15):
        await cluster.stop_broker()
        assert (await held).code == 0
    await cluster.start_broker()
    await raw.pool.close()
