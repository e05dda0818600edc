"""Code 215 at the embedded broker: a topic is deleted with all its state."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.client.broker_client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.store.message_store import MessageStore
from broker_core.store.tables import JsonTable
from testkit.broker_process import Cluster, run_broker
from testkit.eventually import eventually

TOPIC, OTHER = Topic("orders"), Topic("refunds")
GROUP, ANALYTICS = Group("billing"), Group("analytics")
HOLDER = "client-1"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path, auto_create_topics=False, lock_expiry_s=60) as running:
        yield running


async def delete(cluster: Cluster, client: BrokerClient, topic: str = TOPIC) -> None:
    await client.requests.ask(
        cluster.broker_name, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
    )


async def send(client: BrokerClient, queue: QueueName, body: bytes) -> int:
    return (await client.send(queue, OutgoingMessage(queue.topic, body))).offset


async def bodies(client: BrokerClient, queue: QueueName) -> list[bytes]:
    pulled = await client.pull(queue, group=GROUP, offset=0, suspend_ms=0)
    return [message.body for message in pulled.messages]


async def used(cluster: Cluster, client: BrokerClient, topic: Topic) -> QueueName:
    """A queue with messages, commits of two groups and a lock."""
    queue = (await cluster.create_topic(topic))[0]
    for n in range(5):
        await send(client, queue, b"old %d" % n)
    await client.commit_offset(GROUP, queue, 4, epoch=9)
    await client.commit_offset(ANALYTICS, queue, 2)
    assert (await client.lock(GROUP, [queue])).granted == {queue}
    return queue


async def assert_new(cluster: Cluster, client: BrokerClient, queue: QueueName) -> None:
    """Like a topic that never existed, except for the lock: its holder may not know yet."""
    for group in (GROUP, ANALYTICS):
        assert not await client.has_committed(group, queue)
    other, holder = await cluster.client("client-9"), await cluster.client(HOLDER)
    assert (await other.lock(GROUP, [queue])).granted == frozenset()
    await holder.unlock(GROUP, [queue])
    assert (await other.lock(GROUP, [queue])).granted == {queue}
    await other.unlock(GROUP, [queue])
    await client.commit_offset(GROUP, queue, 0, epoch=1)
    assert await send(client, queue, b"new 0") == 0
    assert await bodies(client, queue) == [b"new 0"]


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
async def test_a_topic_made_again_knows_nothing_of_the_one_before(
    cluster: Cluster, restart: str
) -> None:
    client = await cluster.client()
    queue, kept = await used(cluster, client, TOPIC), await used(cluster, client, OTHER)
    former = await client.topic_life(queue)
    await delete(cluster, client)
    with pytest.raises(BrokerError, match="topic 'orders' does not exist") as refused:
        await send(client, queue, b"late")
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    with pytest.raises(BrokerError, match="topic 'orders' does not exist on broker"):
        await client.topic_life(queue)
    assert (await client.life(queue), await client.max_offset(queue)) == (None, 0)
    with pytest.raises(BrokerError, match="no queue 0 of topic 'orders'"):
        await client.commit_offset(GROUP, queue, 1)
    assert (await client.lock(GROUP, [queue])).granted == frozenset()
    if restart != "none":
        await cluster.restart_broker(crash=restart == "crash")
        client = await cluster.client("client-3")
        with pytest.raises(BrokerError, match="topic 'orders' does not exist"):
            await send(client, queue, b"late")
    await cluster.create_topic(TOPIC)
    now = await client.topic_life(queue)
    assert (former.number or 0) < (now.number or 0)
    await assert_new(cluster, client, queue)
    assert len(await bodies(client, kept)) == 5
    assert await client.committed_offset(GROUP, kept) == 4
    await cluster.restart_broker(crash=True)
    client = await cluster.client("client-5")
    assert await bodies(client, queue) == [b"new 0"]
    assert await send(client, queue, b"new 1") == 1


async def test_no_counts_of_a_deleted_topic_stay(cluster: Cluster) -> None:
    client = await cluster.client()
    queues = [await used(cluster, client, topic) for topic in (TOPIC, OTHER)]
    for queue in queues:
        await client.pull(queue, group=GROUP, offset=3, suspend_ms=0)
    await delete(cluster, client)
    traffic = cluster.broker.components.sampler.traffic
    assert [traffic.pull_offset(GROUP, each.topic, each.queue_id) for each in queues] == [0, 3]
    assert [traffic.knows(GROUP, each.topic) for each in queues] == [False, True]


@pytest.mark.parametrize("saved", ["none", "consumerOffset", "orderlyLock"])
async def test_a_start_deletes_from_the_tables_what_the_log_says_is_deleted(
    cluster: Cluster, saved: str
) -> None:
    """Killed after the record, before or after the save of any table; the topics' is the last
    one.
    """
    client = await cluster.client()
    queue = await used(cluster, client, TOPIC)
    await cluster.broker.components.save_tables()
    config = cluster.data / "config"
    before = {path: path.read_bytes() for path in config.glob("*.json")}
    await delete(cluster, client)
    await cluster.broker.components.save_tables()
    await cluster.stop_broker(crash=True)
    for path, content in before.items():
        if path.stem != saved:
            path.write_bytes(content)
    await cluster.start_broker()
    client = await cluster.client("client-3")
    with pytest.raises(BrokerError, match="topic 'orders' does not exist"):
        await send(client, queue, b"late")
    await cluster.broker.components.save_tables()
    assert b'"orders"' not in (config / "topics.json").read_bytes(), "retention takes the record"
    await cluster.create_topic(TOPIC)
    await assert_new(cluster, client, queue)


async def test_locks_of_a_deleted_topic_expire_and_cannot_be_renewed(
    tmp_path: Path,
) -> None:
    async with run_broker(tmp_path, lock_expiry_s=3) as cluster:
        client, other = await cluster.client(HOLDER), await cluster.client("client-2")
        queue = await used(cluster, client, TOPIC)
        await delete(cluster, client)
        locks = cluster.broker.components.locks
        assert locks.to_table()["locks"] != []

        async with asyncio.timeout(20):
            while locks.to_table()["locks"] != []:
                assert (await client.lock(GROUP, [queue])).granted == frozenset()
                await asyncio.sleep(0.1)
        await cluster.create_topic(TOPIC)
        assert (await other.lock(GROUP, [queue])).granted == {queue}


async def test_who_waits_for_its_messages_hears_that_it_is_gone(cluster: Cluster) -> None:
    client, admin = await cluster.client(), await cluster.client("client-2")
    queues = await cluster.create_topic(TOPIC)
    kept = (await cluster.create_topic(OTHER))[0]
    long_polls = cluster.broker.components.long_polls
    pulls = [client.pull(each, group=GROUP, offset=0, suspend_ms=20_000) for each in queues]
    waiting = [asyncio.ensure_future(pull) for pull in pulls]  # noqa: TID251
    other = asyncio.ensure_future(  # noqa: TID251
        client.pull(kept, group=GROUP, offset=0, suspend_ms=20_000)
    )
    await eventually(lambda: len(long_polls) == len(queues) + 1)
    await delete(cluster, admin)
    for pull in waiting:
        with pytest.raises(BrokerError, match="topic 'orders' does not exist"):
            await pull
    assert len(long_polls) == 1
    await send(admin, kept, b"there")
    assert len((await other).messages) == 1


async def test_nameservers_stop_naming_it_once_it_is_deleted_there_as_well(
    cluster: Cluster,
) -> None:
    client = await cluster.client()
    await cluster.create_topic(TOPIC)
    await delete(cluster, client)
    assert await client.queues(TOPIC, fresh=True), "as with Apache's"
    request = RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext={"topic": TOPIC})
    pool = ConnectionPool()
    await pool.request(cluster.nameserver, request, timeout_s=20)
    await pool.close()
    await cluster.create_topic(OTHER)  # the broker registers again
    with pytest.raises(BrokerError, match="orders"):
        await client.queues(TOPIC, fresh=True)


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("TBW102", 16, "topic TBW102 is the broker's own"),
        ("SCHEDULE_TOPIC_XXXX", 16, "the broker's own and cannot be deleted"),
        ("ORDERLANE_SYS_DELETED_TOPICS", 16, "the broker's own"),
        ("a b", 1, "'a b' is not a legal name"),
        ("../x", 1, "is not a legal name"),
        ("", 1, "is not a legal name"),
    ],
)
async def test_what_cannot_be_deleted_is_refused(
    cluster: Cluster, name: str, code: int, why: str
) -> None:
    with pytest.raises(BrokerError, match=why) as refused:
        await delete(cluster, await cluster.client(), name)
    assert refused.value.code == code


async def test_clients_cannot_send_to_or_pull_from_the_records_of_deletions(
    cluster: Cluster,
) -> None:
    client = await cluster.client()
    await used(cluster, client, TOPIC)
    await delete(cluster, client)
    records = QueueName(Topic("ORDERLANE_SYS_DELETED_TOPICS"), cluster.broker_name, 0)
    with pytest.raises(BrokerError, match="is the broker's own"):
        await send(client, records, b"orders")
    with pytest.raises(BrokerError, match="does not exist"):
        await client.pull(records, group=GROUP, offset=0, suspend_ms=0)


async def test_an_unknown_topic_is_no_error(cluster: Cluster) -> None:
    client = await cluster.client()
    end = cluster.broker.components.store.durable_end
    await delete(cluster, client, "unknown")
    assert cluster.broker.components.store.durable_end == end, "nor does it leave a record"
    await cluster.create_topic(TOPIC)
    await delete(cluster, client)
    await delete(cluster, client)


async def test_a_deletion_that_cannot_be_written_leaves_the_topic_as_it_was(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await cluster.client()
    queue = await used(cluster, client, TOPIC)

    async def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(MessageStore, "delete_topic", full)
        with pytest.raises(BrokerError, match="cannot be written now: No space left"):
            await delete(cluster, client)
    assert len(await bodies(client, queue)) == 5
    assert await client.committed_offset(GROUP, queue) == 4
    assert await send(client, queue, b"next") == 5


async def test_a_table_that_cannot_be_saved_is_saved_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record in the log counts: the topic stays deleted."""
    client = await cluster.client()
    queue = await used(cluster, client, TOPIC)
    save = JsonTable.save_bytes

    def refused(table: JsonTable, content: bytes) -> None:
        if table.path.stem == "topics":
            raise OSError(errno.ENOSPC, "No space left on device")
        save(table, content)

    with monkeypatch.context() as patched:
        patched.setattr(JsonTable, "save_bytes", refused)
        with pytest.raises(BrokerError, match="cannot be written now: No space left"):
            await delete(cluster, client)
        with pytest.raises(BrokerError, match="does not exist"):
            await send(client, queue, b"late")
    await delete(cluster, client)
    assert b'"orders"' not in (cluster.data / "config" / "topics.json").read_bytes()


async def test_a_client_that_knows_no_lives_commits_nothing_of_a_former_one(
    cluster: Cluster,
) -> None:
    """Like RocketMQ's: every few seconds, and with their pulls."""
    client = await cluster.client(HOLDER)
    queue = await used(cluster, client, Topic(TOPIC))
    await bodies(client, queue)  # read in the former life
    await delete(cluster, client)
    queue = (await cluster.create_topic(Topic(TOPIC)))[0]
    with pytest.raises(BrokerError, match="for a former life of 'orders' refused"):
        await client.commit_offset(GROUP, queue, 1)
    assert await client.committed_offset(GROUP, queue) is None
    other = await cluster.client("other@1#1")
    await other.commit_offset(GROUP, queue, 0)  # it never read the former one
    await send(client, queue, b"new")
    assert await bodies(client, queue) == [b"new"]
    await client.commit_offset(GROUP, queue, 1)
    assert await client.committed_offset(GROUP, queue) == 1
