"""Sends to, and commits of, many queues: gathered into one request per broker.

At brokers without these extensions, each is a request of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.client import sending
from broker_core.client.gathered import Gathered
from broker_core.client.requests import BrokerRequests
from broker_core.client.results import SendReceipt, SendStatus
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import RequestCode, request_name
from broker_core.remoting.headers import UpdateConsumerOffsetHeader
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from broker_core.remoting.together import (
    CommitEntry,
    SentEntry,
    commits_to_bytes,
    outcomes_from_bytes,
    refusals_from_bytes,
    sends_to_bytes,
)

_STATUSES = {int(status.value): status for status in SendStatus}
#: The producer group of messages that are sent by themselves.
_PRODUCER = Group("orderlane")
#: Approximate bytes of an entry besides its texts.
_ENTRY_BYTES = 64

_Sent = tuple[QueueName, OutgoingMessage, SentEntry]


class SendsTogether:
    """Sends of one client."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._calls: Gathered[_Sent, SendReceipt] = Gathered(
            "send messages", together=self._together, alone=self._alone, size_of=_sent_bytes
        )

    async def send(
        self, queue: QueueName, message: OutgoingMessage, *, life: int | None
    ) -> SendReceipt:
        """Send *message* as ``sending.send`` does."""
        message = sending.with_id(message)
        entry = SentEntry(  # now: a message that cannot be encoded must not fail the others
            queue.topic,
            queue.queue_id,
            life,
            message.born_ms or wall_ms(),
            message.encoded_properties(),
            message.body,
        )
        sent = queue, message, entry
        if message.flag or message.sys_flag or not _is_text(entry.properties):
            return await self._alone(queue.broker, sent)
        return await self._calls.call(queue.broker, sent)

    def broker_lost(self, broker: str) -> None:
        """Note a lost connection."""
        self._calls.broker_lost(broker)

    async def close(self) -> None:
        """End all sends."""
        await self._calls.close()

    async def _alone(self, broker: str, sent: _Sent) -> SendReceipt:
        queue, message, entry = sent
        return await sending.send(
            self._requests,
            queue,
            message,
            group=_PRODUCER,
            timeout_s=None,
            may_create=False,
            life=entry.life,
        )

    async def _together(
        self, broker: str, sent: Sequence[_Sent]
    ) -> list[SendReceipt | RemotingError]:
        code = RequestCode.SEND_MESSAGES
        body = sends_to_bytes(entry for _, _, entry in sent)
        answer = await self._requests.ask(broker, code, body=body)
        results: list[SendReceipt | RemotingError] = []
        outcomes = outcomes_from_bytes(answer.body, len(sent))
        for (queue, message, _), outcome in zip(sent, outcomes, strict=True):
            status = _STATUSES.get(outcome.code)
            if status is None:
                results.append(
                    BrokerError(outcome.code, outcome.remark, request=request_name(code))
                )
                continue
            results.append(
                SendReceipt(
                    queue=queue,
                    offset=outcome.offset,
                    message_id=message.properties[UNIQ_KEY],
                    offset_message_id=outcome.message_id,
                    status=status,
                )
            )
        return results


class CommitsTogether:
    """Commits of one client."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._calls: Gathered[CommitEntry, None] = Gathered(
            "commit offsets", together=self._together, alone=self._alone, size_of=_commit_bytes
        )

    async def commit(self, broker: str, entry: CommitEntry) -> None:
        """Commit; return once the broker has answered. Raise RemotingError."""
        await self._calls.call(broker, entry)

    def broker_lost(self, broker: str) -> None:
        """Note a lost connection."""
        self._calls.broker_lost(broker)

    async def close(self) -> None:
        """End all commits."""
        await self._calls.close()

    async def _alone(self, broker: str, entry: CommitEntry) -> None:
        header = UpdateConsumerOffsetHeader(
            consumer_group=entry.group,
            topic=entry.topic,
            queue_id=entry.queue_id,
            commit_offset=entry.offset,
            epoch=entry.epoch,
            epoch_life=entry.epoch_life,
            life=entry.life,
        )
        await self._requests.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, header.to_ext())

    async def _together(
        self, broker: str, entries: Sequence[CommitEntry]
    ) -> list[RemotingError | None]:
        code = RequestCode.COMMIT_OFFSETS
        answer = await self._requests.ask(broker, code, body=commits_to_bytes(entries))
        results: list[RemotingError | None] = [None] * len(entries)
        for refusal in refusals_from_bytes(answer.body, len(entries)):
            results[refusal.place] = BrokerError(
                refusal.code, refusal.remark, request=request_name(code)
            )
        return results


def _is_text(properties: bytes) -> bool:
    try:
        properties.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sent_bytes(sent: _Sent) -> int:
    entry = sent[2]
    return _ENTRY_BYTES + len(entry.topic) + len(entry.properties) + len(entry.body)


def _commit_bytes(entry: CommitEntry) -> int:
    return _ENTRY_BYTES + len(entry.group) + len(entry.topic)
