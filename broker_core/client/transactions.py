"""Transactional sends: consumers see a message only if its producer's own work succeeds.

``prepare`` stores a *half message*, which consumers cannot see; then the producer does its work (a
change in a database, say) and commits or rolls back. If a producer ends before, or its request is
lost, the broker asks later. It may ask any producer of the group: the answer must come from the
place where the work was done.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import structlog

from broker_core.client.broker_client import BrokerClient
from broker_core.client.half_messages import end, end_header, place_of_half, prepare
from broker_core.client.producer_groups import ProducerGroups, Question
from broker_core.client.results import SendReceipt
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.key_hash import java_hash, place_of, plain_key
from broker_core.remoting.message import OutgoingMessage, StoredMessage
from broker_core.remoting.transaction_headers import End

_ANSWER_S = 3.0

_log = structlog.get_logger("transactions")


class TransactionState(Enum):
    """Outcome of a producer's own work; the value is sent to brokers."""

    UNKNOWN = End.UNKNOWN  # not known yet: ask again
    COMMIT = End.COMMIT
    ROLLBACK = End.ROLLBACK


#: Called for a broker's question about a half message, decoded as for a consumer; its
#: ``message_id`` is that of the transaction. May be called several times, also while the work is
#: going on.
Check = Callable[[StoredMessage], Awaitable[TransactionState]]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A half message that is stored and not yet committed or rolled back."""

    receipt: SendReceipt
    _client: BrokerClient
    _group: Group

    @property
    def id(self) -> str:
        """The ``message_id`` that consumers will see, and that a check names."""
        return self.receipt.message_id

    async def commit(self, *, timeout_s: float | None = None) -> None:
        """Make the message visible to consumers; return once it is stored.

        May be repeated. Raises BrokerError if it was rolled back or given up before, or its topic
        was deleted; with code 11 or 12 if it is committed but too few replicas have confirmed that
        yet. Raises ConnectionLost or RequestTimeout if the outcome is unknown: the broker will ask.
        """
        await self._end(End.COMMIT, timeout_s)

    async def rollback(self, *, timeout_s: float | None = None) -> None:
        """Drop the message. May be repeated; raises as ``commit``."""
        await self._end(End.ROLLBACK, timeout_s)

    async def _end(self, how: int, timeout_s: float | None) -> None:
        place = place_of_half(self.receipt, self._group)
        await end(self._client, place, how, timeout_s=timeout_s)


class TransactionProducer:
    """A member of a producer group; one per BrokerClient.

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
        """Create a producer.

        Args:
            client: its connections
            group: the producer group
            check: answers brokers' questions about unfinished transactions of *group*; its errors
                are logged and count as UNKNOWN
            heartbeat_s: time between two heartbeats; a broker forgets a producer after 120 s
                without one
        """
        self._client = client
        self._group = group
        self._check = check
        self._topics: set[Topic] = set()
        self._groups = ProducerGroups(client, asked=self._asked, heartbeat_s=heartbeat_s)
        self._turn = itertools.count()

    async def start(self, topics: Iterable[Topic]) -> None:
        """Let the brokers of *topics* ask this producer from now on, also about earlier
        transactions.

        An unreachable broker is logged and tried again. Raises nothing.
        """
        self._topics.update(topics)
        await self._groups.join(self._group, self._topics)

    async def close(self) -> None:
        """Stop answering. Undecided transactions are left to other producers of the group."""
        await self._groups.close()

    async def prepare(
        self,
        message: OutgoingMessage,
        *,
        sharding_key: str | None = None,
        check_after_s: int | None = None,
        timeout_s: float | None = None,
    ) -> Transaction:
        """Store *message* invisibly, for the queue of *sharding_key* (default: its key) or any
        queue.

        Sent once, by the current route: after ConnectionLost or RequestTimeout the half message may
        be stored, and the work must not be done; the broker asks, and the answer is ROLLBACK. Then
        prepare again. Raises RemotingError; NotSent if it was stored less durably than the broker
        requires, and rolled back.

        Args:
            message: the message
            sharding_key: key that chooses the queue
            check_after_s: seconds before the broker's first question, instead of its default (6)
            timeout_s: of the send
        """
        topic = message.topic
        if topic not in self._topics:
            self._topics.add(topic)
            await self._groups.join(self._group, self._topics)
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

        receipt = await prepare(
            self._client,
            message,
            find_queue,
            group=self._group,
            check_after_s=check_after_s,
            timeout_s=timeout_s,
        )
        return Transaction(receipt, self._client, self._group)

    async def _asked(self, question: Question) -> None:
        half, channel = question.half, question.channel
        if question.group != self._group:
            _log.warning("asked about a transaction of another group", group=question.group)
            return
        state = await self._state_of(half)
        # The name of the broker does not matter: the answer goes back over the connection.
        header = end_header(question.place(""), state.value)
        command = RemotingCommand(RequestCode.END_TRANSACTION, ext=header.to_ext())
        try:
            if state is TransactionState.UNKNOWN:
                channel.send_oneway(command)  # Apache's brokers do not answer it
                return
            ended = await channel.request(command, timeout_s=_ANSWER_S)
        except RemotingError as error:
            _log.info("answer to a check lost; the broker will ask again", reason=str(error))
            return
        if ended.code != ResponseCode.SUCCESS:
            _log.warning(
                "answer to a check refused", id=half.message_id, state=state.name,
                code=ended.code, remark=ended.remark,
            )  # fmt: skip

    async def _state_of(self, half: StoredMessage) -> TransactionState:
        try:
            return await self._check(half)
        except Exception as error:
            _log.error("check of a transaction failed", id=half.message_id, exc_info=error)
            return TransactionState.UNKNOWN
