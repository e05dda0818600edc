"""Transactional sends: a message that consumers see only if its producer's own work succeeds.

``prepare`` stores a *half message*, which nobody sees; then the producer does its work (a change in
a database, say) and commits or rolls back. A producer that ends before it has said so, or whose
word was lost, is asked later, and any producer of the same group may be asked in its place: the
answer has to come from where the work was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

import structlog

from broker_core.client.broker_client import BrokerClient
from broker_core.client.heartbeats import Heartbeats
from broker_core.client.moved import send_where_it_is
from broker_core.client.results import SendReceipt, SendStatus
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import Heartbeat
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import UnregisterClientHeader
from broker_core.remoting.key_hash import java_hash, place_of, plain_key
from broker_core.remoting.message import (
    SYS_TRANSACTION_PREPARED,
    OutgoingMessage,
    StoredMessage,
    decode_message,
)
from broker_core.remoting.transaction_headers import (
    CheckTransactionHeader,
    End,
    EndTransactionHeader,
)
from broker_core.remoting_channel import Answer, RemotingChannel

_PRODUCER_GROUP = "PGROUP"
_PREPARED = "TRAN_MSG"
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_ANSWER_S = 3.0

_log = structlog.get_logger("transactions")


class TransactionState(Enum):
    """What became of a producer's own work; the value is what brokers are told."""

    UNKNOWN = End.UNKNOWN  # not yet clear: ask again
    COMMIT = End.COMMIT
    ROLLBACK = End.ROLLBACK


#: Asked by brokers about a half message, which it gets as a consumer would; its ``message_id`` is
#: that of the transaction. May be asked several times, also while the work still goes on.
Check = Callable[[StoredMessage], Awaitable[TransactionState]]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A half message that is stored and not decided."""

    receipt: SendReceipt
    _client: BrokerClient
    _group: Group

    @property
    def id(self) -> str:
        """The ``message_id`` that consumers will see, and that a check names."""
        return self.receipt.message_id

    async def commit(self, *, timeout_s: float | None = None) -> None:
        """Let consumers see the message; return once it is stored.

        May be repeated. Raises BrokerError if it was rolled back or given up before, or its topic
        is gone; with code 11 or 12 if it is decided and too few replicas have confirmed that yet.
        Raises ConnectionLost or RequestTimeout if the outcome is unknown: the broker will ask.
        """
        await self._end(End.COMMIT, timeout_s)

    async def rollback(self, *, timeout_s: float | None = None) -> None:
        """Drop the message. May be repeated; raises as ``commit``."""
        await self._end(End.ROLLBACK, timeout_s)

    async def _end(self, how: int, timeout_s: float | None) -> None:
        header = EndTransactionHeader(
            producer_group=self._group,
            tran_state_table_offset=self.receipt.offset,
            commit_log_offset=int(self.receipt.offset_message_id[-16:], 16),
            commit_or_rollback=how,
            msg_id=self.id,
            transaction_id=self.id,
            topic=self.receipt.queue.topic,
        )
        await self._client.requests.ask(
            self.receipt.queue.broker,
            RequestCode.END_TRANSACTION,
            header.to_ext(),
            timeout_s=timeout_s,
        )


class TransactionProducer:
    """A member of a group of producers; one for a BrokerClient.

    Example::

        producer = TransactionProducer(client, group=Group("billing"), check=was_it_booked)
        await producer.start([Topic("invoices")])
        transaction = await producer.prepare(OutgoingMessage(Topic("invoices"), body))
        try:
            await book(transaction.id)
        except BookingError:
            await transaction.rollback()
        else:
            await transaction.commit()
    """

    def __init__(
        self, client: BrokerClient, *, group: Group, check: Check, heartbeat_s: float = 10.0
    ) -> None:
        """*check* is asked about transactions of *group* that nobody ended.

        What it raises is logged and counts as UNKNOWN. *heartbeat_s* is the time between two signs
        of life; a broker forgets a producer after 120 s without one.
        """
        self._client = client
        self._group = group
        self._check = check
        self._topics: set[Topic] = set()
        self._heartbeats = Heartbeats(client, self._heartbeat, every_s=heartbeat_s)
        self._turn = itertools.count()

    async def start(self, topics: Iterable[Topic]) -> None:
        """Let the brokers of *topics* ask this producer from now on, also of earlier transactions.

        A broker that cannot be reached is logged and tried again; nothing is raised.
        """
        self._topics.update(topics)
        self._client.serve(RequestCode.CHECK_TRANSACTION_STATE, self._asked)
        await self._heartbeats.beat()
        self._heartbeats.start()

    async def close(self) -> None:
        """Be asked no more. What is undecided stays so for others of the group."""
        await self._heartbeats.close()
        brokers = await self._heartbeats.brokers(self._topics)
        await asyncio.gather(*(self._leave(broker) for broker in brokers))

    async def prepare(
        self,
        message: OutgoingMessage,
        *,
        sharding_key: str | None = None,
        check_after_s: int | None = None,
        timeout_s: float | None = None,
    ) -> Transaction:
        """Store *message* unseen, for the queue of *sharding_key* (default: its key), else for any.

        Sent once, to where the topic is: after ConnectionLost or RequestTimeout the half message
        may be stored, and the work must not be done; the broker asks, and the answer is ROLLBACK.
        Prepare anew then.
        *check_after_s*: seconds before the first question, instead of the broker's own (6).
        Raises RemotingError; BrokerError if it is not stored as safely as the broker is to.
        """
        topic = message.topic
        if topic not in self._topics:
            self._topics.add(topic)
            await self._heartbeats.beat()
        if sharding_key is None:
            hashed = place_of(message.key)
        else:
            hashed = java_hash(plain_key(sharding_key))
        place = next(self._turn) if hashed is None else abs(hashed)

        async def find_queue() -> QueueName:
            queues = await self._client.writable_queues(topic)
            if queues:
                return queues[place % len(queues)]
            remark = f"topic {topic} has no writable queue"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark, request="send")

        properties = {
            **message.properties,
            _PREPARED: "true",
            _PRODUCER_GROUP: self._group,
        }
        if check_after_s is not None:
            properties[_IMMUNITY] = str(check_after_s)
        half = replace(message, properties=properties, sys_flag=SYS_TRANSACTION_PREPARED)
        receipt = await send_where_it_is(
            self._client,
            find_queue,
            lambda queue: self._client.send(queue, half, group=self._group, timeout_s=timeout_s),
        )
        transaction = Transaction(receipt, self._client, self._group)
        if receipt.status is not SendStatus.OK:
            with contextlib.suppress(RemotingError):  # else the broker asks, as after a time-out
                await transaction.rollback(timeout_s=timeout_s)
            raise BrokerError(
                receipt.status.value, "stored less safely than it is to be: rolled back"
            )
        return transaction

    async def _asked(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = CheckTransactionHeader.from_ext(request.ext)
        half = decode_message(bytes(request.body))
        group = half.properties.get(_PRODUCER_GROUP)
        if group != self._group:
            _log.warning("asked about a transaction of another group", group=group)
            return None
        state = await self._state_of(half)
        answer = EndTransactionHeader(
            producer_group=self._group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=half.message_id,
            transaction_id=header.transaction_id,
            topic=half.topic,
        )
        command = RemotingCommand(RequestCode.END_TRANSACTION, ext=answer.to_ext())
        try:
            if state is TransactionState.UNKNOWN:
                channel.send_oneway(command)  # Apache's brokers do not answer it
                return None
            ended = await channel.request(command, timeout_s=_ANSWER_S)
        except RemotingError as error:
            _log.info("answer to a check lost, it will be asked again", reason=str(error))
            return None
        if ended.code != ResponseCode.SUCCESS:
            _log.warning(
                "answer to a check refused", id=half.message_id, state=state.name,
                code=ended.code, remark=ended.remark,
            )  # fmt: skip
        return None

    async def _state_of(self, half: StoredMessage) -> TransactionState:
        try:
            return await self._check(half)
        except Exception as error:
            _log.error("check of a transaction failed", id=half.message_id, exc_info=error)
            return TransactionState.UNKNOWN

    def _heartbeat(self) -> tuple[Heartbeat, frozenset[Topic]]:
        heartbeat = Heartbeat(client_id=self._client.client_id, producers=(self._group,))
        return heartbeat, frozenset(self._topics)

    async def _leave(self, broker: str) -> None:
        with contextlib.suppress(RemotingError):  # it will notice when the heartbeats end
            header = UnregisterClientHeader(
                client_id=self._client.client_id, producer_group=self._group
            )
            await self._client.requests.ask(broker, RequestCode.UNREGISTER_CLIENT, header.to_ext())
