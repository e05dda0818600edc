"""A master and slaves: copying, confirming, serving, refusing, truncating and promoting."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_core.broker.groups.strict_locks_processor import StrictLockProcessor
from broker_core.broker.replicas import slave as slaves_side
from broker_core.client.results import SendStatus
from broker_core.errors import StoreError
from broker_core.names import QueueName, Topic
from broker_core.remoting.bodies import LockBatch, locked_from_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.headers import (
    CreateTopicHeader,
    OffsetResponse,
    QueryConsumerOffsetHeader,
    SendMessageHeader,
    UpdateConsumerOffsetHeader,
)
from broker_core.remoting.message import OutgoingMessage, decode_messages
from broker_core.remoting.query_headers import QueryMessageHeader
from broker_core.remoting.replication_headers import FetchLogHeader
from testkit.eventually import eventually, until
from tests.support.replica_group import READERS, TOPIC, ReplicaGroup, replica_group


def message(body: bytes) -> OutgoingMessage:
    return OutgoingMessage(TOPIC, body)


async def commit(group: ReplicaGroup, number: int, offset: int) -> int:
    header = UpdateConsumerOffsetHeader(
        consumer_group=READERS, topic=TOPIC, queue_id=0, commit_offset=offset
    )
    return (await group.ask(number, RequestCode.UPDATE_CONSUMER_OFFSET, header.to_ext())).code


async def committed(group: ReplicaGroup, number: int) -> int | None:
    header = QueryConsumerOffsetHeader(
        consumer_group=READERS, topic=TOPIC, queue_id=0, set_zero_if_not_found=False
    )
    answer = await group.ask(number, RequestCode.QUERY_CONSUMER_OFFSET, header.to_ext())
    return OffsetResponse.from_ext(answer.ext).offset if answer.code == 0 else None


async def until_committed(group: ReplicaGroup, number: int, offset: int) -> None:
    async def there() -> bool:
        return await committed(group, number) == offset

    await until(there)


async def lock(group: ReplicaGroup, number: int, client_id: str) -> bool:
    queue = QueueName(TOPIC, "broker-a", 0)
    batch = LockBatch(group=READERS, client_id=client_id, queues=frozenset({queue}))
    answer = await group.ask(number, RequestCode.LOCK_BATCH_MQ, body=batch.to_json())
    return answer.code == 0 and queue in locked_from_json(answer.body)


async def by_key(group: ReplicaGroup, number: int, key: str) -> list[bytes]:
    header = QueryMessageHeader(
        topic=TOPIC, key=key, max_num=32, begin_timestamp=0, end_timestamp=1 << 50
    )
    answer = await group.ask(number, RequestCode.QUERY_MESSAGE, header.to_ext())
    assert answer.code in (0, ResponseCode.QUERY_NOT_FOUND), answer.remark
    return [found.body for found in decode_messages(answer.body)]


async def until_known(group: ReplicaGroup, number: int) -> None:
    async def known() -> bool:
        answer = await group.ask(number, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TOPIC.encode() in bytes(answer.body)

    await until(known)


async def until_locked(group: ReplicaGroup, number: int, client_id: str) -> None:
    await until(lambda: lock(group, number, client_id))


@pytest.mark.parametrize("slaves", [1, 2])
async def test_idle_slaves_ask_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slaves: int
) -> None:
    """An answer to one slave is no news for the others."""
    asked = 0

    def counted(**fields: Any) -> FetchLogHeader:
        nonlocal asked
        asked += 1
        return FetchLogHeader(**fields)

    monkeypatch.setattr(slaves_side, "FetchLogHeader", counted)
    async with replica_group(tmp_path) as group:
        for number in range(1 + slaves):
            await group.start(number)
        await group.until_slaves(slaves)
        before = asked
        await asyncio.sleep(10)
        assert 8 * slaves <= asked - before <= 15 * slaves


async def test_sync_answers_and_shows_what_enough_replicas_have(tmp_path: Path) -> None:
    strict = {"replication": "sync", "in_sync_replicas": 3, "slave_timeout_s": 20}
    async with replica_group(tmp_path, **strict) as group:
        await group.start(0)
        client, queue = await group.client(), await group.queues()
        first = await client.send(queue[0], message(b"a"))
        assert first.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert await group.bodies(0) == [], "no consumer sees what one broker alone has"
        await group.start(1)
        await group.start(2)
        await group.until_served(0, [b"a"])
        await group.until_slaves(2)
        receipts = await asyncio.gather(
            *(client.send(queue[0], message(b"%d" % n), timeout_s=20) for n in range(300))
        )
        assert {receipt.status for receipt in receipts} == {SendStatus.OK}
        served = await group.bodies(0)
        assert len(served) == 301
        for slave in (1, 2):
            await group.until_served(slave, served)
            assert group.log_files(slave) == group.log_files(0)

        await group.stop(1, crash=True)
        await group.until_slaves(1)
        late = await client.send(queue[0], message(b"late"))
        assert late.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert await group.bodies(0) == served
        await group.stop(0)
        await group.start(0)  # a start does not confirm it
        assert await group.bodies(0) == served
        await group.start(1)
        for number in (0, 1, 2):
            await group.until_served(number, [*served, b"late"])


@pytest.mark.parametrize("refused", ["fdatasync", "pwrite"])
async def test_a_slave_whose_log_failed_confirms_nothing_and_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    async with replica_group(tmp_path, replication="sync", slave_timeout_s=1) as group:
        await group.start(0)
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        await client.send(queue, message(b"a"))
        await group.until_served(0, [b"a"])
        works, log_folder = getattr(os, refused), str(group.folder(1) / "commitlog")

        def refuse(descriptor: int, *rest: object) -> object:
            if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(log_folder):
                raise OSError(5, "Input/output error")
            return works(descriptor, *rest)

        with monkeypatch.context() as patched, capture_logs() as logged:
            patched.setattr(os, refused, refuse)
            receipt = await client.send(queue, message(b"b"))
            assert receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT
        receipt = await client.send(queue, message(b"c"))  # its disk works again: too late
        assert receipt.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert await group.bodies(0) == await group.bodies(1) == [b"a"]
        (said,) = [line for line in logged if "does not count as a replica" in line["event"]]
        assert (said["id"], said["reason"]) == (1, "[Errno 5] Input/output error")
        assert len([line for line in logged if line["event"] == "slave joined"]) == 0
        await group.stop(1)
        await group.start(1)
        for number in (0, 1):
            await group.until_served(number, [b"a", b"b", b"c"])


async def test_slaves_serve_while_the_master_is_away_and_change_nothing(tmp_path: Path) -> None:
    async with replica_group(tmp_path, replication="sync") as group:
        await group.start(0)
        await group.start(1)
        client, queues = await group.client(), await group.queues(count=2)
        for body in (b"a", b"b"):
            await client.send(queues[0], message(body))
        await group.until_served(1, [b"a", b"b"])
        assert await commit(group, 0, 1) == 0
        await until_committed(group, 1, 1)
        send = SendMessageHeader(producer_group="p", topic=TOPIC, queue_id=0, born_timestamp=1)
        create = CreateTopicHeader(topic="more", read_queue_nums=1, write_queue_nums=1)
        for code, ext in (
            (RequestCode.SEND_MESSAGE_V2, send.to_v2()),
            (RequestCode.UPDATE_AND_CREATE_TOPIC, create.to_ext()),
            (RequestCode.LOCK_BATCH_MQ, {}),
            (RequestCode.JOIN_MASTER, {}),
        ):
            answer = await group.ask(1, code, ext)
            assert answer.code in (
                ResponseCode.SERVICE_NOT_AVAILABLE,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            ), answer
        assert await commit(group, 1, 2) == ResponseCode.SERVICE_NOT_AVAILABLE, "not its to keep"

        await group.stop(0, crash=True)
        assert await group.bodies(1) == [b"a", b"b"]

        async def committed_at_the_slave() -> bool:
            return await commit(group, 1, 2) == 0

        await until(committed_at_the_slave)  # once it is known
        assert await committed(group, 1) == 2
        await group.stop(1, crash=True)
        await group.start(1)
        assert await committed(group, 1) is not None

        await group.start(0)  # the master's offsets count: a slave's commits end with its return
        known = await committed(group, 0)
        await until_committed(group, 1, known or 0)
        await group.until_served(0, [b"a", b"b"])


async def test_topics_groups_and_offsets_reach_slaves_before_what_needs_them(
    tmp_path: Path,
) -> None:
    async with replica_group(tmp_path, replication="sync") as group:
        await group.start(0, slave_timeout_s=20)
        await group.start(1)
        await group.until_slaves(1)
        client = await group.client()
        for n in range(5):
            topic = Topic(f"topic-{n}")
            await client.create_topic(topic, queues=1)
            (queue,) = await client.queues(topic, fresh=True)
            receipt = await client.send(queue, OutgoingMessage(topic, b"first"), timeout_s=20)
            assert receipt.status is SendStatus.OK
            config = await group.ask(1, RequestCode.GET_ALL_TOPIC_CONFIG)
            assert f"topic-{n}".encode() in bytes(config.body), "acknowledged, so it is known"
        await group.stop(0, crash=True)
        await group.stop(1, crash=True)
        await group.start(1, role="master", replication="async")
        for n in range(5):
            assert await group.bodies(1, topic=Topic(f"topic-{n}")) == [b"first"]


async def test_an_old_master_becomes_a_slave_and_loses_what_it_had_alone(tmp_path: Path) -> None:
    async with replica_group(tmp_path) as group:
        await group.start(0)
        await group.start(1)
        client, (queue,) = await group.client(), await group.queues()
        for n in range(200):
            await client.send(queue, message(b"both %d" % n))
        common = await group.bodies(0)
        await group.until_served(1, common)
        await group.stop(1)
        for n in range(300):  # the slave is away
            await client.send(queue, OutgoingMessage(TOPIC, b"lost %d" % n * 20, key="lost"))
        await group.stop(0, crash=True)

        await group.start(1, role="master")
        await client.queues(TOPIC, fresh=True)
        for n in range(250):
            await client.send(queue, OutgoingMessage(TOPIC, b"new %d" % n, key=f"key-{n}"))
        now = await group.bodies(1)
        assert now[:200] == common
        assert len(now) == 450
        with capture_logs() as logs:
            await group.start(0, role="slave")
            await group.until_served(0, now)
        assert any("differs from the master's" in entry["event"] for entry in logs)
        await eventually(lambda: group.log_files(0) == group.log_files(1))
        assert list((group.folder(0) / "commitlog").glob("*.dropped")), "it can still be read"
        assert await by_key(group, 0, "key-249") == [b"new 249"]
        assert await by_key(group, 0, "lost") == []


async def test_an_old_master_that_starts_as_one_again_is_not_followed(tmp_path: Path) -> None:
    async with replica_group(tmp_path) as group:
        await group.start(0)
        await group.start(1)
        await group.start(2)
        client, (queue,) = await group.client(), await group.queues()
        await client.send(queue, message(b"a"))
        for slave in (1, 2):
            await group.until_served(slave, [b"a"])
        await group.stop(0)
        await group.stop(1)
        await group.start(1, role="master")
        await client.queues(TOPIC, fresh=True)
        await client.send(queue, message(b"b"))
        await group.until_served(2, [b"a", b"b"])
        await group.stop(1)
        with capture_logs() as logs:
            await group.start(0)
            await eventually(lambda: "another broker was promoted" in str(logs), within_s=20)
        assert await group.bodies(2) == [b"a", b"b"]


async def test_a_slave_of_another_log_is_refused_and_cut_nothing(tmp_path: Path) -> None:
    async with replica_group(tmp_path) as group:
        for number in (0, 1):
            await group.start(number, role="master")
            client, (queue,) = await group.client(), await group.queues()
            await client.send(queue, message(b"%d" % number))
            await group.stop(number)
        await group.start(0)
        with capture_logs() as logs:
            await group.start(1)
            await eventually(lambda: "slave refused" in str(logs), within_s=20)
        assert await group.bodies(1) == [b"1"]
        assert not list((group.folder(1) / "commitlog").glob("*.dropped"))


async def test_a_new_slave_begins_where_the_masters_log_does(tmp_path: Path) -> None:
    async with replica_group(tmp_path, retention_bytes=200_000) as group:
        broker = await group.start(0)
        client, (queue,) = await group.client(), await group.queues()
        await asyncio.gather(*(client.send(queue, message(bytes(4000))) for _ in range(200)))
        await broker.components.delete_expired()
        first = await client.min_offset(queue)
        assert first > 0
        await group.start(1)
        await eventually(lambda: group.log_files(1) == group.log_files(0), within_s=20)

        async def bounds() -> bool:
            queue_id = {"topic": TOPIC, "queueId": "0"}
            lowest = await group.ask(1, RequestCode.GET_MIN_OFFSET, queue_id)
            highest = await group.ask(1, RequestCode.GET_MAX_OFFSET, queue_id)
            return (lowest.ext["offset"], highest.ext["offset"]) == (str(first), "200")

        await until(bounds)


async def test_an_orderly_lock_needs_a_majority_of_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Connected brokers vote, however slow the machine is; connections to others fail at once.
    monkeypatch.setitem(StrictLockProcessor.__init__.__kwdefaults__, "vote_s", 5.0)
    strict = {"lock_in_strict_mode": True, "total_replicas": 3, "lock_expiry_s": 6.0}
    async with replica_group(tmp_path, **strict) as group:
        await group.start(0)
        await group.queues()
        assert not await lock(group, 0, "a"), "one of three"
        await group.start(1, **strict)
        await until_locked(group, 0, "a")
        await group.start(2, **strict)
        await until_known(group, 2)
        assert await lock(group, 0, "a"), "all three vote"
        assert not await lock(group, 0, "b")
        await group.stop(1)
        assert await lock(group, 0, "a"), "two of three"
        await group.stop(0, crash=True)
        assert not await lock(group, 2, "b"), "the last one alone"
        await group.start(1, **strict)
        assert not await lock(group, 1, "b"), "the votes for a are alive"
        await until_locked(group, 1, "b")  # once they have expired, two of three suffice
        await group.stop(2)
        assert not await lock(group, 1, "b")


async def test_a_promoted_slave_gives_no_lock_while_those_of_the_old_master_may_live(
    tmp_path: Path,
) -> None:
    async with replica_group(tmp_path, lock_expiry_s=4.0) as group:
        await group.start(0)
        await group.start(1)
        await group.queues()
        assert await lock(group, 0, "a")
        await until_known(group, 1)
        await group.stop(0, crash=True)
        await group.stop(1, crash=True)
        began = asyncio.get_running_loop().time()
        for _ in range(2):  # a crash meanwhile does not shorten it
            await group.start(1, role="master")
            assert not await lock(group, 1, "b")
            await group.stop(1, crash=True)
        await group.start(1, role="master")
        await until_locked(group, 1, "b")
        assert asyncio.get_running_loop().time() - began >= 4.0


async def test_a_folder_that_was_never_a_replicas_is_no_slaves(tmp_path: Path) -> None:
    async with replica_group(tmp_path) as group:
        await group.start(0)
        (group.folder(1) / "config").mkdir(parents=True)
        (group.folder(1) / "config" / "replication.json").write_text('{"epoch": "x"}')
        (group.folder(1) / "format").write_text("orderlane-store 1\n")
        with pytest.raises(StoreError, match=r"replication.json cannot be used"):
            await group.start(1)
