"""Sends of batches that their producer encoded. Nothing in them is decoded.

The messages of a batch go to one queue in their order, in as few requests as its broker's limit
allows. A failed request is repeated, and later ones wait for it. A batch that names its queue is
never sent to another one; other batches may move to another broker. A batch whose producer selected
its queue by a route is sent only while this client has the same route. Otherwise a key would go to
queues of both routes in turn: this client selects the queues of the producer's other messages.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker_core.client.batch_limits import BatchLimits
from broker_core.client.broker_client import BrokerClient
from broker_core.client.queue_moves import has_moved, is_in_doubt
from broker_core.client.results import EncodedReceipt, SendStatus
from broker_core.client.sending import LEAST_TRY_S
from broker_core.client.slow_brokers import SlowBrokers
from broker_core.clock import now_ns
from broker_core.errors import NotSent, RemotingError
from broker_core.names import Group, QueueName, Topic

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Messages as ``encode_batch`` returns them.

    *ends*: where each one ends in *body*. *qid*: the name of the queue; None: any. *born_ms*: their
    time of birth, since 1970. *route*: ``route_number`` of the queues among which *qid* was
    selected; None: any.
    """

    topic: Topic
    body: bytes
    ends: Sequence[int]
    qid: str | None
    born_ms: int
    route: int | None = None

    def part(self, begin: int, end: int) -> bytes:
        """Return the messages from number *begin* up to *end*."""
        start = self.ends[begin - 1] if begin else 0
        return self.body[start : self.ends[end - 1]]  # not copied if it is all


def route_number(queues: Sequence[QueueName]) -> int:
    """Return the number that identifies a topic's writable *queues*, which are in their order."""
    return zlib.crc32(",".join([each.qid for each in queues]).encode())


class Destination(NamedTuple):
    """The queue of a batch. ``movable``: if its broker does not answer, another one may get it."""

    queue: QueueName
    movable: bool


class EncodedOutcome(NamedTuple):
    """Receipts of the requests that stored messages, with the number of messages in each, and the
    error that ended the sends; None: all are stored.
    """

    receipts: list[tuple[EncodedReceipt, int]]
    error: RemotingError | None


class EncodedSends:
    """Sends of one client."""

    def __init__(
        self,
        client: BrokerClient,
        *,
        group: Group,
        choose: Callable[[EncodedBatch], Awaitable[Destination]],
        slow: SlowBrokers,
        limits: BatchLimits,
        on_doubt: Callable[[Topic, bytes, RemotingError], None] | None = None,
    ) -> None:
        """Create it.

        Args:
            client: its connections
            group: the producer group
            choose: returns the queue of a batch; raises RemotingError
            slow: the brokers to avoid
            limits: the sizes of requests
            on_doubt: called for each attempt without an answer, with the messages
        """
        self._client = client
        self._group = group
        self._choose = choose
        self._slow = slow
        self._limits = limits
        self._on_doubt = on_doubt

    async def send(self, batch: EncodedBatch, *, timeout_s: float) -> EncodedOutcome:
        """Send *batch*, trying until *timeout_s* have passed."""
        deadline_ns = now_ns() + int(timeout_s * 1e9)
        receipts: list[tuple[EncodedReceipt, int]] = []
        to: Destination

        async def send(begin: int, end: int) -> None:
            nonlocal to
            to, receipt = await self._until_stored(batch, to, begin, end, deadline_ns)
            receipts.append((receipt, end - begin))
            if receipt.status is SendStatus.FLUSH_DISK_TIMEOUT:
                # Their sender sends them again, with all that follow.
                raise NotSent("not sent: messages before it were not on disk in time")

        try:
            to = await self._choose(batch)
            await self._limits.in_slices(to.queue.broker, batch.ends, send)
        except RemotingError as error:
            return EncodedOutcome(receipts, error.with_traceback(None))
        return EncodedOutcome(receipts, None)

    async def _until_stored(
        self, batch: EncodedBatch, to: Destination, begin: int, end: int, deadline_ns: int
    ) -> tuple[Destination, EncodedReceipt]:
        """Send messages *begin* to *end*, *to* a queue or to the one that replaces it; return it.

        Raises the error of the last attempt that may have stored them, whatever ended later ones;
        without such an attempt, that of the last one.
        """
        body = batch.part(begin, end)
        pause_s = _FIRST_PAUSE_S
        doubt: RemotingError | None = None
        while True:
            try:
                return to, await self._try(batch, to, body, deadline_ns)
            except RemotingError as error:
                if is_in_doubt(error):
                    doubt = error.with_traceback(None)
                    if self._on_doubt is not None:
                        self._on_doubt(batch.topic, body, error)
                moved = await has_moved(self._client, to.queue, error)
                too_late = _left_s(deadline_ns) <= pause_s + LEAST_TRY_S
                if too_late or not (moved or error.retriable):
                    raise (doubt or error) from None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            if moved or to.movable:
                try:
                    to = await self._choose(batch)
                except RemotingError as error:
                    # Without a route the send keeps a queue that may be there.
                    if moved:
                        raise (doubt or error) from None

    async def _try(
        self, batch: EncodedBatch, to: Destination, body: bytes, deadline_ns: int
    ) -> EncodedReceipt:
        queue = to.queue
        # Leave time for another broker if there may be one.
        timeout_s = _left_s(deadline_ns) / (2 if to.movable else 1)
        started_ns = now_ns()
        try:
            receipt = await self._client.send_encoded(
                queue, body, born_ms=batch.born_ms, group=self._group, timeout_s=timeout_s
            )
        except RemotingError as error:
            if error.retriable:
                self._slow.failed(queue.broker, now_ns=now_ns())
            raise
        ended_ns = now_ns()
        self._slow.answered(queue.broker, after_ns=ended_ns - started_ns, now_ns=ended_ns)
        return receipt


def _left_s(deadline_ns: int) -> float:
    return max(0.001, (deadline_ns - now_ns()) / 1e9)
