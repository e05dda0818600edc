"""Three brokers that elect their master: take-over, fencing, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from broker_core.broker import Broker, BrokerSettings
from broker_core.broker.replicas.replicas import Replicas
from broker_core.client.broker_client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.results import ElectedReplicas
from broker_core.errors import BrokerError, RemotingError, StoreError
from broker_core.names import Group, QueueName
from broker_core.remoting.admin_headers import CloneOffsetsHeader
from broker_core.remoting.bodies import LockBatch
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.election_headers import BeatHeader
from broker_core.remoting.headers import PullFlag, PullMessageHeader
from broker_core.remoting.message import OutgoingMessage, decode_messages
from broker_core.remoting.query_headers import ResetOffsetHeader
from broker_core.remoting.retry_headers import SendBackHeader
from broker_core.remoting.signing import Credentials
from broker_core.store.commit_log import CommitLog
from broker_core.store.tables import JsonTable
from testkit.eventually import eventually
from tests.support.elected_group import TOPIC, ElectedGroup, elected_group


async def sent(
    client: BrokerClient, queue: QueueName, body: bytes, *, within_s: float = 20
) -> bool:
    """Send until it is acknowledged; return whether that was within the time."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    await client.send(queue, OutgoingMessage(TOPIC, body))
                    return True
                except RemotingError:
                    await asyncio.sleep(0.1)
    except TimeoutError:
        return False


async def bodies(group: ElectedGroup, number: int) -> list[bytes]:
    """Return the bodies of queue 0 that one broker serves."""
    found: list[bytes] = []
    while True:
        header = PullMessageHeader(
            consumer_group=Group("readers"),
            topic=TOPIC,
            queue_id=0,
            queue_offset=len(found),
            max_msg_nums=1024,
            sys_flag=PullFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = await group.ask(number, RequestCode.PULL_MESSAGE, header.to_ext())
        if answer.code != 0:
            return found
        found += [message.body for message in decode_messages(answer.body)]


async def made_queue(client: BrokerClient) -> QueueName:
    await client.create_topic(TOPIC, queues=1)
    (queue,) = await client.queues(TOPIC, fresh=True)
    return queue


async def test_a_killed_master_is_replaced_and_its_messages_stay(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        first = await group.until_served()
        client = await group.client()
        queue = await made_queue(client)
        expected = [b"%d" % n for n in range(20)]
        for body in expected:
            assert await sent(client, queue, body)
        loop = asyncio.get_running_loop()
        died_s = loop.time()
        await group.stop(first, crash=True)
        assert await sent(client, queue, b"after")
        assert loop.time() - died_s < 15
        second = await group.until_served()
        assert second != first
        assert await bodies(group, second) == [*expected, b"after"]
        await group.start(first)
        figures = await group.figures(second)
        assert figures["replicaRole"] == "master"
        assert int(figures["masterEpoch"]) > 1
        await eventually(
            lambda: group.brokers[second].components.replica.figures()["inSyncReplicas"] == "1,2,3"
        )


async def test_operators_see_master_epoch_and_replicas_in_sync(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        master = await group.until_served()
        client = await group.client()
        replica = group.brokers[master].components.replica
        await eventually(lambda: replica.figures()["inSyncReplicas"] == "1,2,3")
        assert await client.elected_replicas("broker-a") == ElectedReplicas(
            master=master, epoch=1, in_sync=(1, 2, 3), voters=(1, 2, 3)
        )
        figures = {number: broker.figures() for number, broker in group.brokers.items()}
        assert {
            number: (each.serves_as_master, each.voters, each.in_sync, each.master_epoch)
            for number, each in figures.items()
            if each is not None
        } == {
            number: (True, 3, 3, 1) if number == master else (False, None, None, None)
            for number in (1, 2, 3)
        }
        away = next(number for number in group.brokers if number != master)
        await group.stop(away)
        found = await client.elected_replicas("broker-a")
        assert found is not None
        assert found.behind == (away,)
        config = await group.ask(master, RequestCode.GET_BROKER_CONFIG)
        assert b"brokerId=0\n" in bytes(config.body)


async def test_a_topic_that_was_created_survives_its_master(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        first = await group.until_served()
        client = await group.client()
        await made_queue(client)
        having = [
            number
            for number, broker in group.brokers.items()
            if broker.components.directory.topics.find(TOPIC) is not None
        ]
        assert len(having) >= 2
        await group.stop(first, crash=True)
        second = await group.until_served()
        assert group.brokers[second].components.directory.topics.find(TOPIC) is not None


async def test_forged_votes_and_beats_are_refused(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        master = await group.until_served()
        term = group.brokers[master].components.replica.figures()["masterEpoch"]
        slave = next(number for number in group.brokers if number != master)
        vote = {
            "brokerName": "broker-a",
            "term": str(int(term) + 1),
            "candidate": str(6 - master - slave),
            "logEpoch": "999999",
            "logEnd": "999999999",
            "trial": "false",
        }
        third = str(6 - master - slave)
        beat = {"brokerName": "broker-a", "term": str(int(term) + 1), "master": third}
        forged = [
            (RequestCode.REQUEST_VOTE, {"candidate": "9"}, ResponseCode.NO_PERMISSION),
            (RequestCode.REQUEST_VOTE, {"candidate": str(slave)}, ResponseCode.NO_PERMISSION),
            (RequestCode.REQUEST_VOTE, {"brokerName": "other"}, ResponseCode.NO_PERMISSION),
            (RequestCode.REQUEST_VOTE, {"logId": "another"}, ResponseCode.NO_PERMISSION),
            (RequestCode.REQUEST_VOTE, {"term": str(2**62)}, ResponseCode.SYSTEM_ERROR),
            (RequestCode.REQUEST_VOTE, {"term": "-1"}, ResponseCode.SYSTEM_ERROR),
            (RequestCode.REQUEST_VOTE, {"term": "many"}, ResponseCode.SYSTEM_ERROR),
            (RequestCode.MASTER_BEAT, {"master": "9"}, ResponseCode.NO_PERMISSION),
            (RequestCode.MASTER_BEAT, {"master": str(slave)}, ResponseCode.NO_PERMISSION),
            (RequestCode.MASTER_BEAT, {"term": str(2**62)}, ResponseCode.SYSTEM_ERROR),
        ]
        for code, change, expected in forged:
            given = vote if code is RequestCode.REQUEST_VOTE else beat
            answer = await group.ask(slave, code, {**given, **change})
            assert answer.code == expected, (change, answer.remark)
        # A correct request for a vote is answered, but not granted while the master lives.
        answer = await group.ask(slave, RequestCode.REQUEST_VOTE, vote)
        assert (answer.code, answer.ext["granted"]) == (0, "false")
        assert group.serving == [master]


async def test_with_accounts_only_administrators_vote_and_lead(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts.yaml"
    accounts.write_text(
        "accounts:\n"
        "  - {accessKey: admin-key, secretKey: admin-secret, admin: true}\n"
        "  - {accessKey: clerk-key, secretKey: clerk-secret, defaultTopicPerm: PUB|SUB}\n"
    )
    async with elected_group(tmp_path, acl=accounts) as group:
        await group.start(1, 2, 3)
        await eventually(lambda: len(group.serving) == 1, within_s=60)
        (master,) = group.serving
        slave = next(number for number in group.brokers if number != master)
        clerk = ConnectionPool(credentials=Credentials("clerk-key", "clerk-secret"))
        for pool in (group.pool, clerk):
            for code in (RequestCode.REQUEST_VOTE, RequestCode.MASTER_BEAT):
                answer = await pool.request(
                    group.brokers[slave].address, RemotingCommand(code, ext={}), timeout_s=5
                )
                assert answer.code == ResponseCode.NO_PERMISSION
        await clerk.close()


async def test_a_replica_is_refused_what_only_the_master_may_answer(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        master = await group.until_served()
        client = await group.client()
        queue = await made_queue(client)
        assert await sent(client, queue, b"one")
        slaves = [number for number in group.brokers if number != master]
        for number in slaves:
            for code in (
                RequestCode.SEND_MESSAGE_V2,
                RequestCode.UPDATE_CONSUMER_OFFSET,
                RequestCode.UPDATE_AND_CREATE_TOPIC,
            ):
                answer = await group.ask(number, code)
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, code
        for number in slaves:
            await group.stop(number, crash=True)
        await eventually(lambda: group.serving == [], within_s=20)
        for code in (
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.PULL_MESSAGE,
            RequestCode.GET_MAX_OFFSET,
            RequestCode.UPDATE_CONSUMER_OFFSET,
        ):
            answer = await group.ask(master, code)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, code
        body = LockBatch(group=Group("g"), client_id="client", queues=frozenset({queue})).to_json()
        answer = await group.ask(master, RequestCode.LOCK_BATCH_MQ, body=body)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_master_that_is_stopped_hands_over_at_once(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        first = await group.until_served()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await group.stop(first)
        await eventually(lambda: len(group.serving) == 1, within_s=60)
        assert loop.time() - began_s < 4


async def test_a_replica_with_an_empty_folder_does_not_decide(tmp_path: Path) -> None:
    """The confirmed messages may have been on its lost disk and on the dead master only."""
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        master = await group.until_served()
        client = await group.client()
        queue = await made_queue(client)
        behind, wiped = (number for number in group.brokers if number != master)
        await group.stop(behind, crash=True)
        assert await sent(client, queue, b"only on two disks")
        await group.stop(wiped, crash=True)
        await group.stop(master, crash=True)
        shutil.rmtree(group.settings(wiped).data)
        await group.start(behind, wiped)
        await asyncio.sleep(60)
        assert group.serving == []
        await group.start(master)
        again = await group.until_served()
        assert again == master
        assert await bodies(group, again) == [b"only on two disks"]


async def test_a_former_master_gives_up_what_was_never_confirmed(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        first = await group.until_served()
        client = await group.client()
        queue = await made_queue(client)
        assert await sent(client, queue, b"confirmed")
        others = [number for number in group.brokers if number != first]
        for number in others:
            await group.stop(number, crash=True)
        assert not await sent(client, queue, b"lost", within_s=2)
        await group.stop(first, crash=True)
        await group.start(*others)
        second = await group.until_served()
        assert await sent(client, queue, b"next")
        await group.start(first)
        replica = group.brokers[second].components.replica
        await eventually(lambda: replica.figures().get("inSyncReplicas") == "1,2,3", within_s=60)
        assert await bodies(group, first) == [b"confirmed", b"next"]


async def test_offsets_that_were_answered_survive_their_master(tmp_path: Path) -> None:
    """A group that begins at the newest message would otherwise begin at the oldest."""
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        first = await group.until_served()
        client = await group.client()
        queue = await made_queue(client)
        assert await sent(client, queue, b"old")
        begins, reset, copied, gone = map(Group, ("begins", "reset", "copied", "gone"))
        await client.commit_offset(gone, queue, 1, at_once=True)
        await client.commit_offset(begins, queue, 1, at_once=True, if_none=True)
        await client.requests.ask(
            "broker-a",
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetHeader(topic=TOPIC, group=reset, timestamp=-1).to_ext(),
        )
        await client.requests.ask(
            "broker-a",
            RequestCode.CLONE_GROUP_OFFSET,
            CloneOffsetsHeader(src_group=begins, dest_group=copied, topic=TOPIC).to_ext(),
        )
        await client.deletions.delete_group(gone)
        await group.stop(first, crash=True)
        second = await group.until_served()
        offsets = group.brokers[second].components.offsets
        assert {each: offsets.committed(each, TOPIC, 0) for each in (begins, reset, copied)} == {
            begins: 1,
            reset: 1,
            copied: 1,
        }
        assert offsets.committed(gone, TOPIC, 0) is None


async def test_what_no_majority_confirms_is_answered_with_an_error(tmp_path: Path) -> None:
    """Clients take a status such as 11 or 12 for success, and the next master may not have it."""
    async with elected_group(tmp_path, slave_timeout_s=0.5) as group:
        await group.start(1, 2, 3)
        master = await group.until_served()
        client = await group.client()
        queue = await made_queue(client)
        first = await client.send(queue, OutgoingMessage(TOPIC, b"first"))
        waits = await client.send(
            queue, OutgoingMessage(TOPIC, b"waits", properties={"TIMER_DELAY_SEC": "3600"})
        )
        assert waits.recall_handle
        place = int(first.offset_message_id[16:], 16)
        back = SendBackHeader(offset=place, group=Group("billing"), delay_level=3)
        confirmed = group.brokers[master].components.store.end_offset
        with patch.object(Replicas, "confirm", lambda *_: confirmed):
            for request in (
                client.send(queue, OutgoingMessage(TOPIC, b"alone")),
                client.send_together(queue, OutgoingMessage(TOPIC, b"alone")),
                client.requests.ask("broker-a", RequestCode.CONSUMER_SEND_MSG_BACK, back.to_ext()),
                client.delays.recall("broker-a", TOPIC, waits.recall_handle, group=Group("g")),
            ):
                with pytest.raises(BrokerError, match="not confirmed by a majority") as caught:
                    await request
                assert caught.value.code == ResponseCode.SYSTEM_ERROR


async def test_a_change_of_a_table_on_a_full_disk_is_answered_with_the_reason(
    tmp_path: Path,
) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        master = await group.until_served()
        client = await group.client()
        full = OSError(errno.ENOSPC, "No space left on device")
        store = group.brokers[master].components.store
        with (
            patch.object(store, "put", side_effect=full),
            capture_logs() as logs,
            pytest.raises(BrokerError, match=r"not confirmed by replicas, since .* No space left"),
        ):
            await client.create_topic(TOPIC, queues=1)
        assert "handler failed" not in {each["event"] for each in logs}, "it is no bug"


async def test_a_damaged_ballot_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        await group.until_served()
        await group.stop(1)
        ballot = group.settings(1).data / "config" / "election.json"
        ballot.write_bytes(b"{")
        with pytest.raises(StoreError, match="an older vote must not be used"):
            await group.start(1)


async def test_slaves_of_a_manual_group_can_become_voters(tmp_path: Path) -> None:
    async with elected_group(tmp_path) as group:
        for number in (1, 2, 3):
            manual = {
                "role": "master" if number == 1 else "slave",
                "broker_id": number - 1,
                "voters": (),
                "election_timeout_s": 4.0,
            }
            values = {**group.settings(number).model_dump(), **manual}
            for name in ("voters", "election_timeout_s", "total_replicas"):
                del values[name]
            if number > 1:
                del values["in_sync_replicas"], values["slave_timeout_s"]
            else:
                values["replication"] = "sync"
            broker = Broker(BrokerSettings(**values))
            await broker.start()
            group.brokers[number] = broker
        client = await group.client()
        queue = await made_queue(client)
        assert await sent(client, queue, b"before")
        stores = [broker.components.store for broker in group.brokers.values()]
        await eventually(lambda: len({store.durable_end for store in stores}) == 1)
        for number in (1, 2, 3):
            await group.stop(number)
        await group.start(1, 2, 3)
        master = await group.until_served()
        assert await sent(client, queue, b"after")
        assert await bodies(group, master) == [b"before", b"after"]


async def test_without_enough_replicas_a_send_is_refused_before_it_is_stored(
    tmp_path: Path,
) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        master = await group.until_served()
        client = await group.client()
        queue = await made_queue(client)
        assert await sent(client, queue, b"one")
        replica = group.brokers[master].components.replica
        for number in [each for each in group.brokers if each != master]:
            await group.stop(number, crash=True)
        await eventually(lambda: replica.available == 1)
        assert replica.serves  # its lease has not ended yet
        end = group.brokers[master].components.store.end_offset
        with pytest.raises(BrokerError, match="not stored: 1 of 2 needed"):
            await client.send(queue, OutgoingMessage(TOPIC, b"two"))
        assert group.brokers[master].components.store.end_offset == end


async def test_a_master_that_was_elected_on_a_full_disk_serves_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []
    has_room = asyncio.Event()
    make_room = CommitLog.make_room

    def make_room_if_any(log: CommitLog, size: int, *, short_segment: bool = False) -> int:
        if not has_room.is_set():
            refused.append(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return make_room(log, size, short_segment=short_segment)

    monkeypatch.setattr(CommitLog, "make_room", make_room_if_any)
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        await eventually(lambda: bool(refused), within_s=60)
        assert group.serving == []
        has_room.set()
        await group.until_served()
        client = await group.client()
        assert await sent(client, await made_queue(client), b"one")


async def test_a_replaced_master_that_cannot_save_its_vote_becomes_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with elected_group(tmp_path) as group:
        await group.start(1, 2, 3)
        master = await group.until_served()
        ballot = group.settings(master).data / "config" / "election.json"
        save = JsonTable.save

        def save_others(table: JsonTable, content: dict[str, Any]) -> None:
            if table.path == ballot:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            save(table, content)

        with monkeypatch.context() as full:
            full.setattr(JsonTable, "save", save_others)
            beat = BeatHeader(
                broker_name="broker-a",
                term=int((await group.figures(master))["masterEpoch"]) + 1,
                master=next(number for number in group.brokers if number != master),
            )
            answer = await group.ask(master, RequestCode.MASTER_BEAT, beat.to_ext())
            assert answer.remark == "the vote cannot be saved: No space left on device"
            await eventually(lambda: group.brokers[master].components.replica.is_slave)
        await group.until_served()
