"""Transactional sends with our own producer: on the embedded broker and on Apache RocketMQ's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.client import Transaction, TransactionState
from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import (
    SYS_TRANSACTION,
    SYS_TRANSACTION_COMMIT,
    OutgoingMessage,
)
from testkit.broker_process import Cluster, run_broker
from testkit.brokers import Brokers
from testkit.eventually import eventually
from tests.support.transactions import (
    COMMIT,
    GIVEN_UP,
    GROUP,
    HALF,
    QUICK,
    ROLLBACK,
    TOPIC,
    UNKNOWN,
    Desk,
    producer,
    visible,
)


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_broker(tmp_path, **QUICK, transaction_check_max=1000) as running:
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
        async with asyncio.timeout(20):
            while not await visible(client, queues):  # noqa: ASYNC110  # may be later
                await asyncio.sleep(0.02)
        (seen,) = await visible(client, queues)
        assert (seen.body, seen.key, seen.tag) == (b"kept", "k", "t")
        assert (seen.message_id, seen.queue_id) == (kept.id, kept.receipt.queue.queue_id)
        assert seen.properties["colour"] == "red"
        if brokers.official is None:  # Apache's leave these in stored messages
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
async def test_the_producer_is_asked_until_its_answer_is_clear(
    quick: Cluster, ends: TransactionState
) -> None:
    queues = await quick.create_topic(TOPIC)
    desk = Desk()
    client, transactions = await producer(quick, desk)
    opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body", key="k"))
    await eventually(lambda: len(desk.asked) >= 3)
    desk.answer = lambda _: ends
    await eventually(lambda: len(quick.broker.components.transactions) == 0)
    for half in desk.asked:
        assert (half.body, half.key, half.message_id) == (b"body", "k", opened.id)
        assert (half.topic, half.queue_id) == (TOPIC, opened.receipt.queue.queue_id)
    assert len(await visible(client, queues)) == (ends is COMMIT)
    # The producer's own late decision, about its half message.
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
    # Checks continue, about another one: the first is checked once more at most.
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
    await eventually(lambda: len(quick.broker.components.transactions) == 0 and bool(second.asked))
    assert [m.body for m in await visible(other, queues)] == [b"body"]
    await others.close()


async def test_a_transaction_without_an_answer_ends_in_the_final_topic(tmp_path: Path) -> None:
    async with run_broker(tmp_path, **QUICK, transaction_check_max=3) as cluster:
        queues = await cluster.create_topic(TOPIC)
        desk = Desk()
        client, transactions = await producer(cluster, desk)
        opened = await transactions.prepare(OutgoingMessage(TOPIC, b"body", key="k"))
        reader = cluster.broker.components.store.reader
        await eventually(lambda: reader.end_offset(GIVEN_UP.topic, 0) == 1)
        await eventually(lambda: len(desk.asked) >= 3)
        (given_up,) = await visible(client, [GIVEN_UP])
        assert (given_up.body, given_up.message_id) == (b"body", opened.id)
        assert given_up.properties["REAL_TOPIC"] == TOPIC
        with pytest.raises(BrokerError, match="ended before by give up"):
            await opened.commit()
        assert await visible(client, queues) == []
        assert len(desk.asked) == 3
        await transactions.close()


async def test_undecided_transactions_are_asked_about_after_a_crash(tmp_path: Path) -> None:
    async with run_broker(tmp_path, **QUICK, transaction_check_max=1000) as cluster:
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
        assert len(cluster.broker.components.transactions) == 2
        await eventually(lambda: cluster.broker.components.producers.connections(GROUP) != [])
        await opened[b"late"].commit()
        desk.answer = lambda _: COMMIT
        await eventually(lambda: len(cluster.broker.components.transactions) == 0)
        seen = sorted(message.body for message in await visible(client, queues))
        assert seen == [b"ask", b"commit", b"late"]
        await cluster.restart_broker()
        assert len(cluster.broker.components.transactions) == 0
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
    reader = quick.broker.components.store.reader
    # Both half messages are stored again meanwhile: one to be checked, one because it is young.
    await eventually(lambda: bool(desk.asked) and reader.end_offset(HALF.topic, 0) >= 4)
    assert {half.body for half in desk.asked} == {b"other"}
    await immune.commit()
    assert [m.body for m in await visible(client, queues)] == [b"immune"]
    await transactions.close()
