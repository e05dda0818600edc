"""Transactional sends with our own producer: on the embedded broker and on Apache RocketMQ's."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from broker_core.client import BrokerClient, Transaction, TransactionProducer, TransactionState
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.message import (
    SYS_TRANSACTION,
    SYS_TRANSACTION_COMMIT,
    OutgoingMessage,
    StoredMessage,
)
from broker_core.remoting.transaction_headers import End, EndTransactionHeader
from broker_core.store.commit_log import CommitLog
from tests.support.broker_process import AnyCluster, Cluster, run_broker
from tests.support.brokers import Brokers
from tests.support.eventually import eventually

TOPIC = Topic("invoices")
GROUP = Group("billing")
HALF = QueueName(Topic("RMQ_SYS_TRANS_HALF_TOPIC"), "broker-a", 0)
GIVEN_UP = QueueName(Topic("TRANS_CHECK_MAX_TIME_TOPIC"), "broker-a", 0)
#: Asks at once and often.
QUICK = {"transaction_timeout_s": 0.05, "transaction_check_interval_s": 0.1}

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)


@dataclass(slots=True)
class Desk:
    """A producer's check: what it was asked, and what it answers."""

    answer: Callable[[StoredMessage], TransactionState] = lambda _: UNKNOWN
    asked: list[StoredMessage] = field(default_factory=list)

    async def check(self, half: StoredMessage) -> TransactionState:
        self.asked.append(half)
        return self.answer(half)


async def producer(
    cluster: AnyCluster, desk: Desk, topic: Topic = TOPIC, *, name: str = "producer"
) -> tuple[BrokerClient, TransactionProducer]:
    client = await cluster.client(name)
    made = TransactionProducer(client, group=GROUP, check=desk.check, heartbeat_s=0.1)
    await made.start([topic])
    return client, made


async def visible(client: BrokerClient, queues: list[QueueName]) -> list[StoredMessage]:
    found = []
    for queue in queues:
        offset = await client.min_offset(queue)
        while offset < await client.max_offset(queue):
            pulled = await client.pull(queue, group=GROUP, offset=offset, suspend_ms=0)
            found += pulled.messages
            offset = pulled.next_offset
    return found


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path, **QUICK) as running:
        yield running


async def test_a_committed_message_is_seen_once_and_a_rolled_back_one_never(
    brokers: Brokers, tmp_path: Path
) -> None:
    topic = Topic("transactions")
    async with brokers.run(tmp_path) as cluster:
        queues = await cluster.create_topic(topic, queues=2)
        client, transactions = await producer(cluster, Desk(), topic)
        message = OutgoingMessage(topic, b"kept", key="k", tag="t", properties={"colour": "red"})
        kept = await transactions.prepare(message, check_after_s=600)
        dropped = await transactions.prepare(OutgoingMessage(topic, b"dropped"), check_after_s=600)
        assert await visible(client, queues) == []
        await dropped.rollback()
        await kept.commit()
        (seen,) = await visible(client, queues)
        assert (seen.body, seen.key, seen.tag) == (b"kept", "k", "t")
        assert (seen.message_id, seen.queue_id) == (kept.id, kept.receipt.queue.queue_id)
        assert seen.properties["colour"] == "red"
        if brokers.official is None:  # Apache's leave these in what they store
            assert seen.properties.keys().isdisjoint({"REAL_TOPIC", "REAL_QID", "TRAN_MSG"})
        assert seen.sys_flag & SYS_TRANSACTION == SYS_TRANSACTION_COMMIT
        assert seen.prepared_offset == int(kept.receipt.offset_message_id[-16:], 16)
        await transactions.close()


async def test_the_first_decision_counts(quick: Cluster) -> None:
    queues = await quick.create_topic(TOPIC)
    client, transactions = await producer(quick, Desk())
    kept = await transactions.prepare(OutgoingMessage(TOPIC, b"kept"))
    dropped = await transactions.prepare(OutgoingMessage(TOPIC, b"dropped"))
    await asyncio.gather(kept.commit(), kept.commit(), dropped.rollback(), dropped.rollback())
    await kept.commit()
    for late, first in ((kept.rollback, "commit"), (dropped.commit, "rollback")):
        with pytest.raises(BrokerError, match=f"ended before by {first}") as refused:
            await late()
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert [m.body for m in await visible(client, queues)] == [b"kept"]
    await transactions.close()


@pytest.mark.parametrize("ends", [COMMIT, ROLLBACK])
async def test_whoever_left_it_open_is_asked_until_the_answer_is_clear(
    quick: Cluster, ends: TransactionState
) -> None:
    queues = await quick.create_topic(TOPIC)
    desk = Desk()
    client, transactions = await producer(quick, desk)
    opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body", key="k"))
    await eventually(lambda: len(desk.asked) >= 3)
    desk.answer = lambda _: ends
    await eventually(lambda: len(quick.broker._transactions) == 0)
    for half in desk.asked:
        assert (half.body, half.key, half.message_id) == (b"body", "k", opened.id)
        assert (half.topic, half.queue_id) == (TOPIC, opened.receipt.queue.queue_id)
    assert len(await visible(client, queues)) == (ends is COMMIT)
    # The producer's own late word, about the half message as it knows it.
    await (opened.commit if ends is COMMIT else opened.rollback)()
    with pytest.raises(BrokerError, match="ended before"):
        await (opened.rollback if ends is COMMIT else opened.commit)()
    assert len(await visible(client, queues)) == (ends is COMMIT)
    await transactions.close()


async def test_a_late_word_of_the_producer_counts_though_it_was_asked_meanwhile(
    quick: Cluster,
) -> None:
    queues = await quick.create_topic(TOPIC)
    desk = Desk()
    client, transactions = await producer(quick, desk)
    opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body"))
    await eventually(lambda: len(desk.asked) >= 2)
    await opened.commit()
    asked = len(desk.asked)
    assert [m.body for m in await visible(client, queues)] == [b"body"]
    # Rounds go on, about another one: the first is asked about once more at most.
    await transactions.prepare(OutgoingMessage(TOPIC, b"later"))
    desk.answer = lambda half: COMMIT if half.body == b"body" else UNKNOWN
    await eventually(lambda: [half.body for half in desk.asked].count(b"later") >= 2)
    assert [half.body for half in desk.asked].count(b"body") <= asked + 1
    assert len(await visible(client, queues)) == 1
    await transactions.close()


async def test_another_producer_of_the_group_is_asked_once_the_first_is_gone(
    quick: Cluster,
) -> None:
    queues = await quick.create_topic(TOPIC)
    first, second = Desk(), Desk(answer=lambda _: COMMIT)
    client, transactions = await producer(quick, first, name="first")
    await transactions.prepare(OutgoingMessage(TOPIC, b"body"))
    await client.close()
    other, others = await producer(quick, second, name="second")
    await eventually(lambda: len(quick.broker._transactions) == 0 and bool(second.asked))
    assert [m.body for m in await visible(other, queues)] == [b"body"]
    await others.close()


async def test_what_nobody_can_answer_ends_in_the_final_topic(tmp_path: Path) -> None:
    async with run_broker(tmp_path, **QUICK, transaction_check_max=3) as cluster:
        queues = await cluster.create_topic(TOPIC)
        desk = Desk()
        client, transactions = await producer(cluster, desk)
        opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body", key="k"))
        reader = cluster.broker._store.reader
        await eventually(lambda: reader.end_offset(GIVEN_UP.topic, 0) == 1)
        assert len(desk.asked) == 3
        (given_up,) = await visible(client, [GIVEN_UP])
        assert (given_up.body, given_up.message_id) == (b"body", opened.id)
        assert given_up.properties["REAL_TOPIC"] == TOPIC
        with pytest.raises(BrokerError, match="ended before by give up"):
            await opened.commit()
        assert await visible(client, queues) == []
        await transactions.close()


async def test_undecided_transactions_are_asked_about_after_a_crash(tmp_path: Path) -> None:
    async with run_broker(tmp_path, **QUICK) as cluster:
        queues = await cluster.create_topic(TOPIC)
        desk = Desk()
        client, transactions = await producer(cluster, desk)
        opened: dict[bytes, Transaction] = {}
        for body in (b"commit", b"rollback", b"ask", b"late"):
            opened[body] = await transactions.prepare(OutgoingMessage(TOPIC, body))
        await opened[b"commit"].commit()
        await opened[b"rollback"].rollback()
        await eventually(lambda: any(half.body == b"ask" for half in desk.asked))
        await cluster.restart_broker(crash=True)
        assert len(cluster.broker._transactions) == 2
        await eventually(lambda: cluster.broker._producers.connections(GROUP) != [])
        await opened[b"late"].commit()
        desk.answer = lambda _: COMMIT
        await eventually(lambda: len(cluster.broker._transactions) == 0)
        seen = sorted(message.body for message in await visible(client, queues))
        assert seen == [b"ask", b"commit", b"late"]
        await cluster.restart_broker()
        assert len(cluster.broker._transactions) == 0
        assert len(await visible(client, queues)) == 3
        await transactions.close()


async def test_a_transaction_that_wants_no_question_for_long_is_asked_none(
    quick: Cluster,
) -> None:
    queues = await quick.create_topic(TOPIC)
    desk = Desk(answer=lambda _: ROLLBACK)
    client, transactions = await producer(quick, desk)
    immune = await transactions.prepare(OutgoingMessage(TOPIC, b"immune"), check_after_s=600)
    await transactions.prepare(OutgoingMessage(TOPIC, b"other"))
    reader = quick.broker._store.reader
    # Both half messages are stored anew meanwhile: one to be asked about, one to stay young.
    await eventually(lambda: bool(desk.asked) and reader.end_offset(HALF.topic, 0) >= 4)
    assert {half.body for half in desk.asked} == {b"other"}
    await immune.commit()
    assert [m.body for m in await visible(client, queues)] == [b"immune"]
    await transactions.close()


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
    assert len(quick.broker._transactions) == 1
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
        with pytest.raises(BrokerError, match="a batch holds no transactional") as refused:
            await client.send_batch(queue, batched)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    reader = quick.broker._store.reader
    assert reader.end_offset(HALF.topic, 0) == reader.end_offset(TOPIC, queue.queue_id) == 0
    # Properties of ours that a sender sets itself mean nothing.
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

    def full(*_: object) -> list[int]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "append", full)
        with pytest.raises(BrokerError, match="cannot write its log now") as refused:
            await opened.commit()
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(quick.broker._transactions) == 1
    await opened.commit()
    assert [m.body for m in await visible(client, queues)] == [b"body"]
    await transactions.close()


async def test_a_committed_message_stays_committed_though_its_topic_is_gone(
    quick: Cluster,
) -> None:
    """Also for a start that reads all decisions anew."""
    await quick.create_topic(TOPIC)
    desk = Desk(answer=lambda _: COMMIT)
    _, transactions = await producer(quick, desk)
    opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body"))
    await opened.commit()
    await quick.broker._store.delete_topic(TOPIC, store_ms=wall_ms())
    await quick.stop_broker(crash=True)
    for path in (quick.data / "config").glob("consumerOffset*"):
        path.unlink()
    await quick.start_broker()
    assert len(quick.broker._transactions) == 0
    await transactions.close()


async def test_a_table_of_offsets_that_knows_more_than_the_log_is_not_believed(
    tmp_path: Path,
) -> None:
    """As of a slave that became master: the table of its master, a log without its last part."""
    async with run_broker(tmp_path) as cluster:
        await cluster.create_topic(TOPIC)
        _, transactions = await producer(cluster, Desk())
        opened = [await transactions.prepare(OutgoingMessage(TOPIC, b"%d" % n)) for n in range(3)]
        end = cluster.broker._store._log.end_offset
        for each in opened:
            await each.commit()
        await transactions.close()
        await cluster.stop_broker()  # which saves how far it was
        os.truncate(next((cluster.data / "commitlog").iterdir()), end)
        await cluster.start_broker()
        assert len(cluster.broker._transactions) == 3
