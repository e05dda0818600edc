"""A producer: chooses queues, keeps the order of keys, and retries. ``BrokerClient`` does none of
it.

Order within a key, also for callers that do not wait for each other:

1. Sends of one key go out one at a time, in the order of the calls, independently of other keys.
2. A key's queue is chosen from the current route when its send begins, and kept until that send
   ends: a retry never changes queues, even if the route changes. So a key moves only between two
   sends, when the number of queues changes; order across that is not promised. A send refused
   because its queue or topic is missing (``queue_moves.py``) does not count: its queue is chosen
   again, from a new route. A batch whose caller chose its queue from another route is refused.
3. When a send ends without a receipt (also by cancellation), waiting sends of the same key end with
   NotSent: nothing overtakes a message that its caller may send again. Later sends go on.
4. A send that timed out may have been stored, and a retry may store it twice, under the same
   UNIQ_KEY. Its outcome stays unknown, whatever ends later attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

from broker_core.client.batch_limits import BatchLimits
from broker_core.client.broker_client import DEFAULT_PRODUCER, BrokerClient
from broker_core.client.encoded_sends import (
    Destination,
    EncodedBatch,
    EncodedOutcome,
    EncodedSends,
    route_number,
)
from broker_core.client.queue_moves import has_moved, is_in_doubt
from broker_core.client.results import SendReceipt
from broker_core.client.send_lanes import SendLanes, Turn
from broker_core.client.sending import LEAST_TRY_S, size_of, with_id
from broker_core.client.slow_brokers import SlowBrokers
from broker_core.clock import now_ns
from broker_core.errors import (
    BrokerError,
    NoSuchQueue,
    NotSent,
    RemotingError,
)
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.key_hash import java_hash, place_of, plain_key
from broker_core.remoting.message import OutgoingMessage

#: Total time of a send, as in RocketMQ's producers.
DEFAULT_TIMEOUT_S = 3.0

FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 1.0
#: Longest wait for a nameserver if the route of a batch differs: its producer waits, too.
_NEW_ROUTE_S = 1.0

#: A receipt, or the reason why there is none.
Outcome = SendReceipt | RemotingError
_BEHIND = NotSent("not sent: an earlier message of its key or queue was not stored in time")
FindQueues = Callable[[Topic], Awaitable[list[QueueName]]]


@dataclass(frozen=True, slots=True)
class Outbound:
    """A message and its destination.

    *place*: hash of the sharding key; the absolute value of its remainder by the number of queues
    is the index of the queue. Messages of one topic and place keep their order. None: any queue of
    a broker that is not slow. *queue*: the index itself, or the name (as in broker-a_0), without
    order; the send fails if the topic has no such queue.
    """

    message: OutgoingMessage
    place: int | None = None
    queue: int | str | None = field(default=None, kw_only=True)

    @property
    def lane(self) -> tuple[Topic, int] | None:
        """The unit of order. Two keys of one hash share a lane, as they share a queue."""
        return None if self.place is None else (self.message.topic, self.place)


class Producer:
    """Sends messages of one key to one queue, the same one as RocketMQ's producers."""

    def __init__(
        self,
        client: BrokerClient,
        *,
        group: Group = DEFAULT_PRODUCER,
        find_queues: FindQueues | None = None,
        independent: bool = False,
        on_doubt: Callable[[Sequence[OutgoingMessage], RemotingError], None] | None = None,
        on_encoded_doubt: Callable[[Topic, bytes, RemotingError], None] | None = None,
    ) -> None:
        """Create a producer.

        Args:
            client: its connections
            group: the producer group
            find_queues: returns a topic's queues, by broker and id; default: the client's routes
            independent: callers are independent, so a failure does not affect others of the key
                (rule 3)
            on_doubt: called for each attempt without an answer, which may have stored its messages
            on_encoded_doubt: the same for messages that are encoded
        """
        self._client = client
        self._group = group
        self._find_queues = find_queues or client.writable_queues
        self._independent = independent
        self._on_doubt = on_doubt
        self._lanes = SendLanes()
        self._waiting: dict[Turn, asyncio.Event] = {}
        self._slow = SlowBrokers()
        self._limits = BatchLimits()
        self._round = count()
        self._encoded = EncodedSends(
            client,
            group=group,
            choose=self._choose_encoded,
            slow=self._slow,
            limits=self._limits,
            on_doubt=on_encoded_doubt,
        )

    @property
    def is_idle(self) -> bool:
        """True while no send is under way or waits for another one."""
        return not (len(self._lanes) or self._waiting)

    async def send(
        self,
        message: OutgoingMessage,
        *,
        sharding_key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> SendReceipt:
        """Send to the queue of *sharding_key* (default: the message's key), or to any without a
        key.

        Blanks around the key are ignored. Retries with growing pauses until *timeout_s* have
        passed. Raises the RemotingError of the last attempt.
        """
        if sharding_key is None:
            outbound = Outbound(message, place_of(message.key))
        else:
            outbound = Outbound(message, java_hash(plain_key(sharding_key)))
        (outcome,) = await self.send_batch([outbound], timeout_s=timeout_s)
        try:
            if isinstance(outcome, RemotingError):
                raise outcome
            return outcome
        finally:
            del outcome  # a failure refers to this frame, and so to the message

    async def send_batch(
        self, messages: Sequence[Outbound], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[Outcome]:
        """Send *messages*, those of one queue in their order; return the outcome of each.

        Queues are independent. Each gets as few requests as its broker's limit allows; after a
        failed one its remaining messages are NotSent. A message for a queue that its topic does not
        have ends with NoSuchQueue. Raises LocalProtocolError, before anything is sent, for a
        message that cannot be encoded.
        """
        batch = _Batch(
            [replace(each, message=with_id(each.message)) for each in messages],
            [size_of(each.message) for each in messages],
            [_BEHIND] * len(messages),
            now_ns() + int(timeout_s * 1e9),
        )
        turn = self._lanes.enter(batch.lanes())
        try:
            if await self._wait(turn, batch):
                await self._send_parts(turn, batch)
        finally:
            failed = () if self._independent else batch.failed_lanes()
            for each in self._lanes.leave(turn, failed=failed):
                self._waiting[each].set()
        return batch.outcomes

    async def send_encoded(
        self, batch: EncodedBatch, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> EncodedOutcome:
        """Send the messages of *batch* in order; the order of calls is up to the caller.

        Retries as ``send_batch``.
        """
        return await self._encoded.send(batch, timeout_s=timeout_s)

    async def _wait(self, turn: Turn, batch: _Batch) -> bool:
        """Wait until the turn may go; return False if the time is up before."""
        if turn.may_go:
            return True
        event = self._waiting[turn] = asyncio.Event()
        try:
            async with asyncio.timeout(batch.left_s()):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            del self._waiting[turn]
        return True

    async def _send_parts(self, turn: Turn, batch: _Batch) -> None:
        """Send to all queues concurrently, except messages that would overtake a failed one.

        Repeats sends to queues that have moved.
        """
        those = [i for i, each in enumerate(batch.messages) if each.lane not in turn.overtaken]
        pause_s = FIRST_PAUSE_S
        while those := await self._send_to_queues(those, batch):
            if batch.left_s() <= pause_s + LEAST_TRY_S:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _send_to_queues(self, those: Sequence[int], batch: _Batch) -> list[int]:
        """Send *those* of *batch*; return the ones whose queue has moved and must be chosen
        again.
        """
        parts: dict[tuple[QueueName, bool], list[int]] = {}
        routes: dict[Topic, list[QueueName] | RemotingError] = {}
        for i in those:
            each = batch.messages[i]
            topic = each.message.topic
            if topic not in routes:
                routes[topic] = await self._route(topic)
            route = routes[topic]
            if isinstance(route, RemotingError):
                batch.ended(i, route)
                continue
            try:
                queue = self._choose(route, each)
            except NoSuchQueue as error:
                batch.ended(i, error.with_traceback(None))
                continue
            movable = each.lane is None and each.queue is None and _has_several_brokers(route)
            parts.setdefault((queue, movable), []).append(i)
        moved = await asyncio.gather(
            *(
                self._send_part(queue, part, batch, movable=movable)
                for (queue, movable), part in parts.items()
            )
        )
        return sorted(i for part in moved for i in part)

    async def _send_part(
        self, queue: QueueName, part: Sequence[int], batch: _Batch, *, movable: bool
    ) -> Sequence[int]:
        """Send the messages of one queue until a request fails; return the rest if the queue has
        moved.
        """

        async def send(begin: int, end: int) -> None:
            indexes = part[begin:end]
            try:
                receipts = await self._send_until_stored(queue, indexes, batch, movable=movable)
            except _Moved as moved:
                batch.note(indexes, [moved.error] * len(indexes))
                raise _Moved(moved.error, begin) from None
            except RemotingError as error:
                batch.note(indexes, [error] * len(indexes))
                raise
            batch.note(indexes, receipts)

        sizes = [batch.sizes[i] for i in part]
        try:
            await self._limits.in_pieces(queue.broker, sizes, send)
        except _Moved as moved:
            return part[moved.begin :]
        except RemotingError:
            return ()  # recorded already
        return ()

    async def _send_until_stored(
        self, queue: QueueName, indexes: Sequence[int], batch: _Batch, *, movable: bool
    ) -> list[SendReceipt]:
        messages = [batch.messages[i].message for i in indexes]
        pause_s = FIRST_PAUSE_S
        while True:
            # Leave time for another broker if there may be one.
            timeout_s = batch.left_s() / (2 if movable else 1)
            started_ns = now_ns()
            try:
                receipts = await self._try(queue, messages, timeout_s)
            except RemotingError as error:
                if is_in_doubt(error):
                    batch.doubts.update(dict.fromkeys(indexes, error))
                    if self._on_doubt is not None:
                        self._on_doubt(messages, error)
                if await has_moved(self._client, queue, error):
                    raise _Moved(error) from error
                if not error.retriable:
                    raise
                self._slow.failed(queue.broker, now_ns=now_ns())
                if batch.left_s() <= pause_s + LEAST_TRY_S:
                    raise
            else:
                ended_ns = now_ns()
                after_ns = ended_ns - started_ns
                self._slow.answered(queue.broker, after_ns=after_ns, now_ns=ended_ns)
                return receipts
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            if movable:
                route = await self._route(queue.topic)
                # Without a route the send keeps its queue, whose answer says more.
                if not isinstance(route, RemotingError):
                    queue = self._choose(route, batch.messages[indexes[0]])

    async def _try(
        self, queue: QueueName, messages: Sequence[OutgoingMessage], timeout_s: float
    ) -> list[SendReceipt]:
        client, group = self._client, self._group
        if len(messages) == 1:
            return [await client.send(queue, messages[0], group=group, timeout_s=timeout_s)]
        return await client.send_batch(queue, messages, group=group, timeout_s=timeout_s)

    async def _route(self, topic: Topic) -> list[QueueName] | RemotingError:
        try:
            queues = await self._find_queues(topic)
        except BrokerError as error:
            return error
        except RemotingError as error:
            return NotSent(f"not sent: no nameserver returned the route of topic {topic}: {error}")
        if queues:
            return queues
        remark = f"topic {topic} has no writable queue"
        return BrokerError(ResponseCode.NO_PERMISSION, remark, request="send")

    async def _choose_encoded(self, batch: EncodedBatch) -> Destination:
        topic, qid = batch.topic, batch.qid
        route = await self._route(topic)
        if isinstance(route, RemotingError):
            raise route
        if batch.route is not None and batch.route != route_number(route):
            # Either route may be older. From now on a new one counts for all sends.
            with suppress(RemotingError, TimeoutError):
                async with asyncio.timeout(_NEW_ROUTE_S):
                    route = await self._client.writable_queues(topic, fresh=True)
            if batch.route != route_number(route):
                raise NoSuchQueue(
                    f"topic {topic} has other queues than those among which queue {qid} was"
                    f" selected: select one of its {len(route)} queues again"
                )
        if qid is not None:
            return Destination(named_queue(topic, qid, route), movable=False)
        return Destination(self._any(route), movable=_has_several_brokers(route))

    def _choose(self, queues: Sequence[QueueName], each: Outbound) -> QueueName:
        """Return the queue of its number, name or place, or the next one of a broker that is not
        resting.
        """
        found = queue_of(each, queues)
        return self._any(queues) if found is None else found

    def _any(self, queues: Sequence[QueueName]) -> QueueName:
        usable = self._slow.usable({queue.broker for queue in queues}, now_ns=now_ns())
        awake = [queue for queue in queues if queue.broker in usable]
        return awake[next(self._round) % len(awake)]


def _has_several_brokers(route: Sequence[QueueName]) -> bool:
    return route[0].broker != route[-1].broker  # it is sorted by broker


def queue_of(each: Outbound, route: Sequence[QueueName]) -> QueueName | None:
    """Return the queue of *route* that is given by number, name or place; None: any of them.

    Raises NoSuchQueue if there is none of that number or name.
    """
    if each.queue is not None:
        return named_queue(each.message.topic, each.queue, route)
    return None if each.place is None else route[abs(each.place) % len(route)]


class _Moved(Exception):
    """The queue of a send has moved.

    ``error`` is the send's, ``begin`` the index of its first message among those for the queue.
    """

    def __init__(self, error: RemotingError, begin: int = 0) -> None:
        super().__init__(str(error))
        self.error = error
        self.begin = begin


def named_queue(topic: Topic, queue: int | str, route: Sequence[QueueName]) -> QueueName:
    """Return the queue of *route* with this index or name. Raises NoSuchQueue if there is none."""
    if isinstance(queue, int):
        found = route[queue] if 0 <= queue < len(route) else None
        expected = f"a number from 0 to {len(route) - 1}"
    else:
        found = next((each for each in route if each.qid == queue), None)
        expected = f"one of its {len(route)} queues, as in {route[0].qid}"
    if found is None:
        raise NoSuchQueue(f"topic {topic} has no queue {queue}: expected {expected}")
    return found


@dataclass(frozen=True, slots=True)
class _Batch:
    """The messages of one call; ``sizes`` and ``outcomes`` are in the order of ``messages``."""

    messages: list[Outbound]
    sizes: list[int]
    outcomes: list[Outcome]
    deadline_ns: int
    doubts: dict[int, RemotingError] = field(default_factory=dict)
    """The last attempt of a message that may have stored it."""

    def ended(self, i: int, outcome: Outcome) -> None:
        """Record the outcome of message *i*; only a receipt ends a doubt (rule 4)."""
        if isinstance(outcome, RemotingError):
            outcome = self.doubts.get(i, outcome)
        self.outcomes[i] = outcome

    def note(self, indexes: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Record the outcomes of several messages."""
        for i, outcome in zip(indexes, outcomes, strict=True):
            self.ended(i, outcome)

    def lanes(self) -> set[Hashable]:
        return {each.lane for each in self.messages if each.lane is not None}

    def failed_lanes(self) -> set[Hashable]:
        return {
            each.lane
            for each, outcome in zip(self.messages, self.outcomes, strict=True)
            if isinstance(outcome, RemotingError)
        }

    def left_s(self) -> float:
        return max(0.001, (self.deadline_ns - now_ns()) / 1e9)
