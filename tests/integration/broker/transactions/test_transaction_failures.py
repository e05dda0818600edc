"""Transactions that are refused or cannot be written; logs and tables that were changed."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.message import (
    OutgoingMessage,
)
from broker_core.remoting.transaction_headers import End, EndTransactionHeader
from broker_core.store.commit_log import CommitLog
from testkit.broker_process import Cluster, run_broker
from tests.support.transactions import (
    COMMIT,
    GROUP,
    HALF,
    QUICK,
    TOPIC,
    Desk,
    producer,
    visible,
)


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path, **QUICK) as running:
        yield running


async def test_a_commit_into_a_topic_that_shrank_is_refused_and_stays_undecided(
    quick: Cluster,
) -> None:
    queues = await quick.create_topic(TOPIC, queues=2)
    client, transactions = await producer(quick, Desk())
    opened = [
        await transactions.prepare(OutgoingMessage(TOPIC, b"%d" % n), check_after_s=600)
        for n in range(2)
    ]
    await client.create_topic(TOPIC, queues=1)
    (gone,) = [each for each in opened if each.receipt.queue.queue_id == 1]
    with pytest.raises(BrokerError, match="stays undecided") as refused:
        await gone.commit()
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    await client.create_topic(TOPIC, queues=2)
    await gone.commit()
    assert len(await visible(client, queues)) == 1
    await transactions.close()


async def test_an_end_that_names_no_half_message_of_its_group_is_refused(quick: Cluster) -> None:
    await quick.create_topic(TOPIC)
    client, transactions = await producer(quick, Desk())
    opened = await transactions.prepare(OutgoingMessage(TOPIC, b"x"), check_after_s=600)
    good = EndTransactionHeader(
        producer_group=GROUP,
        tran_state_table_offset=opened.receipt.offset,
        commit_log_offset=int(opened.receipt.offset_message_id[-16:], 16),
        commit_or_rollback=End.COMMIT,
    )
    for wrong, says in (
        ({"producer_group": "others"}, "The producer group wrong"),
        ({"tran_state_table_offset": 77}, "Find prepared transaction message failed"),
        ({"tran_state_table_offset": -1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 77}, "The commit log offset wrong"),
        ({"commit_or_rollback": 4}, "expected 8 .commit., 12 .roll back. or 0"),
    ):
        header = replace(good, **wrong)
        with pytest.raises(BrokerError, match=says) as refused:
            await client.requests.ask(
                quick.broker_name, RequestCode.END_TRANSACTION, header.to_ext()
            )
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
    unknown = replace(good, commit_or_rollback=End.UNKNOWN)
    await client.requests.ask(quick.broker_name, RequestCode.END_TRANSACTION, unknown.to_ext())
    assert len(quick.broker.components.transactions) == 1
    await transactions.close()


async def test_what_can_be_no_half_message_is_refused_and_not_stored(quick: Cluster) -> None:
    queue = (await quick.create_topic(TOPIC))[0]
    client = await quick.client()
    tran = {"TRAN_MSG": "true", "PGROUP": GROUP}
    for message, says in (
        (OutgoingMessage(TOPIC, b"x", sys_flag=8, properties=tran), "bits of a transaction"),
        (OutgoingMessage(TOPIC, b"x", sys_flag=12), "bits of a transaction"),
        (OutgoingMessage(TOPIC, b"x", properties=tran | {"DELAY": "1"}), "delayed"),
        (OutgoingMessage(TOPIC, b"x", properties=tran | {"p": "x" * 32_600}), "too long"),
    ):
        with pytest.raises(BrokerError, match=says) as refused:
            await client.send(queue, message)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    batch = [OutgoingMessage(TOPIC, b"x", properties=tran), OutgoingMessage(TOPIC, b"y")]
    for batched in (batch, batch[:1]):
        with pytest.raises(BrokerError, match="a batch must not contain transactional") as refused:
            await client.send_batch(queue, batched)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    reader = quick.broker.components.store.reader
    assert reader.end_offset(HALF.topic, 0) == reader.end_offset(TOPIC, queue.queue_id) == 0
    # Our own properties have no effect if a sender sets them.
    tran |= {"TRAN_PREPARED_QUEUE_OFFSET": "77", "TRANSACTION_CHECK_TIMES": "15", "REAL_QID": "9"}
    await client.send(queue, OutgoingMessage(TOPIC, b"x", properties=tran), group=GROUP)
    (half,) = await visible(client, [HALF])
    assert half.properties["REAL_QID"] == "0"
    assert half.properties.keys().isdisjoint(
        {"TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"}
    )


async def test_consumers_do_not_commit_for_the_broker_itself(quick: Cluster) -> None:
    client = await quick.client()
    with pytest.raises(BrokerError, match="the broker's own") as refused:
        await client.commit_offset(Group("CID_RMQ_SYS_TRANS"), HALF, 5)
    assert refused.value.code == ResponseCode.NO_PERMISSION


async def test_a_full_disk_leaves_a_transaction_undecided(
    quick: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = await quick.create_topic(TOPIC)
    client, transactions = await producer(quick, Desk())
    opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body"), check_after_s=600)

    def full(*_: object, **__: object) -> list[int]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "make_room", full)
        with pytest.raises(BrokerError, match="cannot write its log now") as refused:
            await opened.commit()
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(quick.broker.components.transactions) == 1
    await opened.commit()
    assert [m.body for m in await visible(client, queues)] == [b"body"]
    await transactions.close()


async def test_a_committed_message_stays_committed_though_its_topic_is_gone(
    quick: Cluster,
) -> None:
    """Also for a start that reads all decisions again."""
    await quick.create_topic(TOPIC)
    desk = Desk(answer=lambda _: COMMIT)
    _, transactions = await producer(quick, desk)
    opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body"))
    await opened.commit()
    await quick.broker.components.store.delete_topic(TOPIC, store_ms=wall_ms())
    await quick.stop_broker(crash=True)
    for path in (quick.data / "config").glob("consumerOffset*"):
        path.unlink()
    await quick.start_broker()
    assert len(quick.broker.components.transactions) == 0
    await transactions.close()


async def test_a_table_of_offsets_that_knows_more_than_the_log_is_not_believed(
    tmp_path: Path,
) -> None:
    """Like a slave that became master: its master's table, and a log without the last part."""
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
        _, transactions = await producer(cluster, Desk())
        opened = [await transactions.prepare(OutgoingMessage(TOPIC, b"%d" % n)) for n in range(3)]
        end = cluster.broker.components.store.end_offset
        for each in opened:
            await each.commit()
        await transactions.close()
        await cluster.stop_broker()  # saves its progress
        os.truncate(next((cluster.data / "commitlog").iterdir()), end)
        await cluster.start_broker()
        assert len(cluster.broker.components.transactions) == 3


async def test_retention_leaves_what_is_undecided_until_it_is_stored_again(tmp_path: Path) -> None:
    sizes = {"segment_bytes": 200_000, "max_message_bytes": 100_000, "retention_bytes": 1}
    async with run_broker(tmp_path, **sizes, transaction_check_interval_s=600) as cluster:
        queues = await cluster.create_topic(TOPIC)
        client, transactions = await producer(cluster, Desk())
        opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body"), check_after_s=3600)
        place = int(opened.receipt.offset_message_id[-16:], 16)
        broker = cluster.broker
        reader = broker.components.store.reader
        for _ in range(2):
            await client.send(queues[0], OutgoingMessage(TOPIC, bytes(99_000)))
            await client.send(queues[0], OutgoingMessage(TOPIC, bytes(99_000)))
        await broker.components.retention.run()
        assert reader.log_range()[0] <= place
        await broker.components.transactions.check(wall_ms() + 600_000, lambda _, __: False)
        await broker.components.retention.run()
        assert reader.log_range()[0] > place
        # The producer names its own half message, which is deleted.
        header = EndTransactionHeader(
            producer_group=GROUP,
            tran_state_table_offset=opened.receipt.offset,
            commit_log_offset=place,
            commit_or_rollback=End.ROLLBACK,
            msg_id=opened.receipt.message_id,
            topic=TOPIC,
        )
        for wrong in ({"topic": "others"}, {"msg_id": "another"}, {"producer_group": "others"}):
            forged = replace(header, **wrong).to_ext()
            with pytest.raises(BrokerError, match=r"Find prepared|The producer group wrong"):
                await client.requests.ask(cluster.broker_name, RequestCode.END_TRANSACTION, forged)
        await opened.commit()
        assert b"body" in [message.body for message in await visible(client, queues)]
        with pytest.raises(BrokerError, match="Find prepared transaction message failed"):
            await opened.rollback()
        await transactions.close()
