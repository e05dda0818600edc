"""Requests to brokers by queue. Does not retry, and does not decide about ownership."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog

from broker_core.client import administration, pulling, sending
from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.delays import Delays
from broker_core.client.deletions import Deletions
from broker_core.client.key_values import KeyValues
from broker_core.client.locking import Locking
from broker_core.client.queries import Queries
from broker_core.client.queue_ranges import QueueRange, QueueRanges
from broker_core.client.read_sessions import ReadSessions
from broker_core.client.requests import BrokerRequests
from broker_core.client.resets import reset_refused
from broker_core.client.results import (
    ElectedReplicas,
    EncodedReceipt,
    LockAnswer,
    LogSpan,
    PulledRecords,
    PullResult,
    SendReceipt,
    TopicLife,
)
from broker_core.client.routes import RouteCache
from broker_core.client.together import CommitsTogether, SendsTogether
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    NotRegistered,
    RemotingError,
    RequestTimeout,
)
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting import bodies, headers
from broker_core.remoting.admin_bodies import subscribed_from_json
from broker_core.remoting.admin_headers import ClientOfGroupHeader, ProducerGroupHeader
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.header_fields import Header
from broker_core.remoting.lock_renewal import LockName
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.route_bodies import MASTER_ID, ClusterTable, Perm, QueueData, TopicRoute
from broker_core.remoting.signing import Credentials
from broker_core.remoting.together import CommitEntry
from broker_core.remoting_channel import Handler, RemotingChannel
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.time_slices import TimeSlices
from broker_core.tls import ClientContext

#: The producer group where it does not matter.
DEFAULT_PRODUCER = Group("orderlane")
#: Committed offsets asked for at the same time.
_COMMITTED_AT_ONCE = 16

_log = structlog.get_logger("broker-client")


class BrokerClient:
    """A client of a RocketMQ cluster, embedded or Apache's.

    Every failure is a RemotingError: BrokerError with the broker's code, ConnectionLost,
    RequestTimeout, or a protocol error. *timeout_s* None means ``request_timeout_s``.
    """

    def __init__(
        self,
        *,
        nameservers: Sequence[str],
        client_id: str,
        request_timeout_s: float = 3.0,
        on_consumers_changed: Callable[[Group], None] | None = None,
        on_broker_lost: Callable[[str], None] | None = None,
        credentials: Credentials | None = None,
        tls: ClientContext | None = None,
        sends_create_topics: bool = True,
    ) -> None:
        """Create a client; it connects when needed.

        Args:
            nameservers: each as host:port
            client_id: names this process to brokers (holder of locks, member of groups)
            request_timeout_s: timeout of requests without one of their own
            on_consumers_changed: called when a broker reports that the members of a group have
                changed
            on_broker_lost: called with a broker's name when a connection to it ended, as it may
                have restarted, and when its master has another address
            credentials: account that signs all requests, where brokers require one
            tls: for all connections to nameservers and brokers; None: plain connections
            sends_create_topics: if false, a send to a missing topic is refused, even by brokers
                that would create it, each for itself
        """
        self.client_id = client_id
        self._nameservers, self._credentials, self._tls = nameservers, credentials, tls
        self._on_consumers_changed = on_consumers_changed
        self._on_broker_lost = on_broker_lost
        self._sends_create_topics = sends_create_topics
        self._on_connected: list[Callable[[], None]] = []
        self._handlers: dict[int, Handler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._consumers_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: reset_refused,
        }
        self._pool = ConnectionPool(
            handlers=self._handlers,
            on_connected=self._connected,
            on_lost=self._lost,
            credentials=credentials,
            tls=tls,
        )
        self._routes = RouteCache(
            nameservers, self._pool, timeout_s=request_timeout_s, on_moved=self._broker_lost
        )
        #: Values stored at the nameservers.
        self.key_values = KeyValues(nameservers, self._pool, timeout_s=request_timeout_s)
        self._requests = BrokerRequests(self._pool, self._routes, timeout_s=request_timeout_s)
        self.deletions = Deletions(self._requests, self._routes)
        #: For requests without a method here.
        self.requests = self._requests
        self.delays = Delays(self._requests)
        self.queries = Queries(self._requests)
        self._last_heartbeat: tuple[bodies.Heartbeat, bytes] | None = None  # and encoded
        self._locking = Locking(self._requests, client_id)
        # Answers of hundreds of queues arrive together; they are decoded one after another.
        self._decoding = TimeSlices()
        #: Reads of many queues by one request per broker.
        self.sessions = ReadSessions(self._requests, decode=self._decoded)
        self._sends = SendsTogether(self._requests)
        self._commits = CommitsTogether(self._requests)
        self._ranges = QueueRanges(self._requests)
        self._refresher: asyncio.Task[None] | None = None
        self._silent: set[str] = set()  # brokers that did not return a group's members

    async def start(self) -> None:
        """Start to refresh routes in the background."""
        self._refresher = spawn(self._routes.keep_fresh(), name="refresh routes")

    async def close(self) -> None:
        """Disconnect from all servers."""
        await cancel_and_wait(self._refresher)
        await self.sessions.close()
        await self._sends.close()
        await self._commits.close()
        await self._pool.close()

    def another(self, client_id: str) -> BrokerClient:
        """Return another client of the same brokers with the same access, on its own
        connections.
        """
        return BrokerClient(
            nameservers=self._nameservers,
            client_id=client_id,
            credentials=self._credentials,
            tls=self._tls,
            sends_create_topics=self._sends_create_topics,
        )

    def call_on_connect(self, callback: Callable[[], None]) -> None:
        """Call *callback* after each new connection: a broker may have forgotten this client."""
        self._on_connected.append(callback)

    def serve(self, code: RequestCode, handler: Handler) -> None:
        """Let *handler* answer requests of brokers with this *code*, replacing an earlier
        handler.
        """
        self._handlers[code] = handler

    def broker_behind(self, channel: RemotingChannel) -> str | None:
        """Return the name of the broker that *channel* leads to; None if it is not known."""
        address = self._pool.address_of(channel)
        names = [] if address is None else self._routes.brokers_at(address)
        return names[0] if names else None

    # -- routes --------------------------------------------------------------------------------

    async def queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        """Return the readable queues, by broker and id. Raise BrokerError(17) if unknown.

        Routes are at most about 30 s old; *fresh* asks a nameserver now.
        """
        return await self._queues(topic, Perm.READ, fresh=fresh)

    async def writable_queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        """Return the writable queues in producers' order. Raise BrokerError(17) if unknown, and
        NotRegistered while no broker that has them has a master.

        The order is by broker and id; for an order topic, the configured one, even while brokers
        are down.
        """
        order_queues = (await self._routes.route(topic, fresh=fresh)).order_queues()
        if order_queues is not None:
            return [QueueName(topic, broker, queue_id) for broker, queue_id in order_queues]
        return await self._queues(topic, Perm.WRITE, fresh=False)

    async def broker_names(self, topic: Topic) -> list[str]:
        """Return the brokers that have *topic*, sorted. Raise BrokerError(17) if unknown."""
        route = await self._routes.route(topic)
        return sorted(data.broker for data in route.brokers)

    def knows_route(self, topic: Topic) -> bool:
        """Return whether queues and brokers of *topic* are returned without asking a nameserver."""
        return self._routes.knows(topic)

    async def topic_route(self, topic: Topic) -> TopicRoute:
        """Return the route of *topic* as a nameserver has it now, without keeping it. Raise
        BrokerError(17) if unknown.
        """
        return await self._routes.look(topic)

    async def clusters(self) -> ClusterTable:
        """Return all clusters and their brokers, according to nameservers."""
        return await self._routes.clusters()

    async def topics(self) -> list[Topic]:
        """Return all topics known to nameservers."""
        return await self._routes.topics()

    async def _queues(self, topic: Topic, perm: int, *, fresh: bool) -> list[QueueName]:
        route = await self._routes.route(topic, fresh=fresh)
        # Consumers keep their queues while no master is listed: it may be running, and other
        # members of the group count them too.
        brokers = {
            data.broker
            for data in route.brokers
            if perm == Perm.READ or MASTER_ID in data.addresses
        }
        waits = [data.broker for data in route.queues if data.perm & perm]
        if waits and not brokers.intersection(waits):
            if not fresh:  # a master may have been elected since
                return await self._queues(topic, perm, fresh=True)
            raise NotRegistered(f"no master of {', '.join(sorted(waits))} is registered now")
        return sorted(
            QueueName(topic, data.broker, queue_id)
            for data in route.queues
            if data.perm & perm and data.broker in brokers
            for queue_id in range(data.read_queues if perm == Perm.READ else data.write_queues)
        )

    # -- reading -------------------------------------------------------------------------------

    async def pull(
        self,
        queue: QueueName,
        *,
        group: Group,
        offset: int,
        max_messages: int = 256,
        suspend_ms: int = 15_000,
        tags: str = "*",
        timeout_s: float | None = None,
        life: int | None = None,
        max_bytes: int | None = None,
    ) -> PullResult:
        """Read messages from *offset* on. Never commits.

        The broker filters by the hash of the tags, so the result may contain messages of other
        tags.

        Args:
            queue: the queue
            group: its consumer group
            offset: first offset to return
            max_messages: most messages returned
            suspend_ms: time to wait for messages; 0: none
            tags: tags as in ``a || b``; ``*``: all
            timeout_s: default: *suspend_ms* plus some seconds
            life: do not wait if the topic is in another life
            max_bytes: a request that brokers before 5.1 ignore; all have a limit of their own
        """
        pulled = await pulling.pull(
            self._requests,
            queue,
            group=group,
            offset=offset,
            max_messages=max_messages,
            suspend_ms=suspend_ms,
            tags=tags,
            timeout_s=timeout_s,
            life=life,
            max_bytes=max_bytes,
        )
        return await self._decoded(pulled, offset)

    async def _decoded(self, pulled: PulledRecords, offset: int) -> PullResult:
        return await self._decoding.result(partial(pulling.decoded, pulled, offset))

    async def pull_records(
        self,
        queue: QueueName,
        *,
        group: Group,
        offset: int,
        max_messages: int,
        max_bytes: int | None = None,
        suspend_ms: int = 0,
    ) -> PulledRecords:
        """Read messages of all tags as ``pull`` does, but return the records without decoding them.

        *max_bytes* is a request that brokers before 5.1 ignore; all brokers have a limit of their
        own.
        """
        return await pulling.pull(
            self._requests,
            queue,
            group=group,
            offset=offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            suspend_ms=suspend_ms,
        )

    async def min_offset(self, queue: QueueName) -> int:
        """Return the offset of the oldest message that is still stored."""
        return await self._queue_offset(RequestCode.GET_MIN_OFFSET, queue)

    async def max_offset(self, queue: QueueName) -> int:
        """Return the next offset that will be written."""
        return await self._queue_offset(RequestCode.GET_MAX_OFFSET, queue)

    async def queue_ranges(
        self, queues: Iterable[QueueName], *, group: Group | None = None
    ) -> dict[QueueName, QueueRange]:
        """Return the offsets of *queues*, by few requests; of *group* also the committed ones, for
        which other brokers than the embedded one are asked queue by queue.

        Raises RemotingError.
        """
        found = await self._ranges.read(queues, group)
        if group is not None:
            left = [queue for queue, each in found.items() if each.life is None]
            for at in range(0, len(left), _COMMITTED_AT_ONCE):
                some = left[at : at + _COMMITTED_AT_ONCE]
                offsets = await asyncio.gather(*(self.committed_offset(group, q) for q in some))
                for queue, committed in zip(some, offsets, strict=True):
                    found[queue] = found[queue]._replace(committed=committed)
        return found

    async def life(self, queue: QueueName) -> int | None:
        """Return the life of the queue's topic at its broker, or None if it reports none, as
        Apache's brokers, or does not have the topic.

        It increases whenever the topic is deleted and created again, or an older copy of the
        broker's log is restored.
        """
        return (await self._end_and_life(queue)).life

    async def topic_life(self, queue: QueueName) -> TopicLife:
        """Return the life of the queue's topic, and the lives that it continues.

        Raises BrokerError(17) if the embedded broker does not have the topic, between its deletion
        and its creation: that it reports no life then does not make it one without lives.
        """
        fields = await self._end_and_life(queue)
        if fields.no_topic:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {queue.topic!r} does not exist on broker {queue.broker} now",
            )
        return TopicLife(fields.life, fields.shared_ends())

    async def _end_and_life(self, queue: QueueName) -> headers.OffsetResponse:
        header = headers.QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._requests.ask(queue.broker, RequestCode.GET_MAX_OFFSET, header.to_ext())
        return headers.OffsetResponse.from_ext(answer.ext)

    async def offset_at(self, queue: QueueName, timestamp_ms: int) -> int:
        """Return the offset of the message stored nearest to *timestamp_ms* (since 1970)."""
        header = headers.SearchOffsetHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        return await self._ask_offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, header)

    async def _queue_offset(self, code: RequestCode, queue: QueueName) -> int:
        header = headers.QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        return await self._ask_offset(code, queue, header)

    async def _ask_offset(self, code: RequestCode, queue: QueueName, header: Header) -> int:
        answer = await self._requests.ask(queue.broker, code, header.to_ext())
        return headers.OffsetResponse.from_ext(answer.ext).offset

    # -- groups --------------------------------------------------------------------------------

    async def lock(
        self, group: Group, queues: Iterable[QueueName], *, timeout_s: float | None = None
    ) -> LockAnswer:
        """Request or renew orderly locks at all brokers concurrently. Raises nothing."""
        return await self._locking.lock(group, queues, timeout_s=timeout_s)

    async def unlock(
        self, group: Group, queues: Iterable[QueueName], *, timeout_s: float | None = None
    ) -> None:
        """Release orderly locks at all brokers; raise the first failure."""
        await self._locking.unlock(group, queues, timeout_s=timeout_s)

    def holds_plainly(self, group: Group, queues: Iterable[QueueName]) -> bool:
        """Return whether ``renew_locks`` may renew the locks of *queues*: all are held under this
        client's own name.
        """
        return self._locking.are_plain(group, queues)

    async def renew_locks(
        self, broker: str, locks: bytes, *, timeout_s: float
    ) -> frozenset[LockName]:
        """Renew orderly locks of all groups at *broker*, as ``Locking.renew``."""
        return await self._locking.renew(broker, locks, timeout_s=timeout_s)

    async def committed_offset(self, group: Group, queue: QueueName) -> int | None:
        """Return the next offset that *group* needs, or None if it never committed one.

        While the first message of the queue is in memory, brokers of 4.9 do not distinguish None
        from 0.
        """
        header = headers.QueryConsumerOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        answer = await self._requests.ask(
            queue.broker,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header.to_ext(),
            ok=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return headers.OffsetResponse.from_ext(answer.ext).offset

    async def has_committed(self, group: Group, queue: QueueName) -> bool:
        """Return whether *group* ever committed an offset of *queue*, including 0.

        Apache RocketMQ 4.9 answers 0 for a group that never did, while the queue's first message is
        in its memory. This reads its whole table, so call it rarely.
        """
        if committed := await self.committed_offset(group, queue):
            return True
        return committed == 0 and await administration.stores_offset(self._requests, group, queue)

    async def commit_offset(
        self,
        group: Group,
        queue: QueueName,
        offset: int,
        *,
        epoch: int | None = None,
        epoch_life: int | None = None,
        life: int | None = None,
        at_once: bool = False,
        if_none: bool = False,
        not_lower: bool = False,
    ) -> None:
        """Store the next offset that *group* needs, and wait for the broker's answer.

        Commits that begin in one pass of the event loop go to the embedded broker together.

        The embedded broker raises BrokerError for an outdated *epoch* or *life*, and with
        *not_lower*; others ignore the last six arguments.

        Args:
            group: the consumer group
            queue: the queue
            offset: the next offset that the group needs
            epoch: the owner's epoch; refused if the broker knows a higher one of that queue
            epoch_life: life of the topic that the epoch is an offset of
            life: life of the queue's topic; refused if the topic is in another one
            at_once: answer only when the offset is on disk
            if_none: keep the offset of a group that has one, and answer the same
            not_lower: refused if the group has a higher offset, unless the queue ends below that
        """
        if not (at_once or if_none or not_lower):
            entry = CommitEntry(group, queue.topic, queue.queue_id, offset, epoch, epoch_life, life)
            await self._commits.commit(queue.broker, entry)
            return
        header = headers.UpdateConsumerOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            epoch=epoch,
            epoch_life=epoch_life,
            life=life,
            at_once=at_once or None,
            if_none=if_none or None,
            not_lower=not_lower or None,
        )
        await self._requests.ask(queue.broker, RequestCode.UPDATE_CONSUMER_OFFSET, header.to_ext())

    async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
        """Return the client ids of the members of *group*, according to one broker of *topic*.

        Brokers that did not answer the last time are asked last.
        """
        header = headers.ConsumerGroupHeader(consumer_group=group)
        answer = await self._ask_one(
            topic,
            (RequestCode.GET_CONSUMER_LIST_BY_GROUP, header.to_ext()),
            not_found="no consumer for this group",
        )
        return [] if answer is None else bodies.consumer_ids_from_json(answer.body)

    async def producer_ids(self, group: Group, topic: Topic) -> list[str]:
        """Return the client ids of the producer group *group*, according to one broker of
        *topic*.
        """
        header = ProducerGroupHeader(producer_group=group)
        answer = await self._ask_one(
            topic,
            (RequestCode.GET_PRODUCER_CONNECTION_LIST, header.to_ext()),
            not_found="] not exist",
        )
        return [] if answer is None else bodies.connected_ids_from_json(answer.body)

    async def subscribed(self, group: Group, client_id: str, topic: Topic) -> frozenset[Topic]:
        """Return the topics to which the member *client_id* of *group* subscribes.

        A broker of *topic* asks the member. Raises RemotingError, such as BrokerError if it is not
        there.
        """
        header = ClientOfGroupHeader(consumer_group=group, client_id=client_id)
        problem: RemotingError = ConnectionLost(f"topic {topic} has no broker")
        for broker in await self.broker_names(topic):
            try:
                answer = await self._requests.ask(
                    broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header.to_ext()
                )
            except (BrokerError, ConnectionLost, RequestTimeout) as error:
                problem = error.with_traceback(None)
            else:
                return subscribed_from_json(answer.body)
        try:
            raise problem
        finally:
            del problem  # it refers to this frame, and to those of its callers

    async def _ask_one(
        self, topic: Topic, question: tuple[RequestCode, dict[str, str]], *, not_found: str
    ) -> RemotingCommand | None:
        """Return the first answer of a broker of *topic*; None if its remark contains *not_found*.

        Brokers that did not answer the last time are asked last. Raises the RemotingError of the
        last broker.
        """
        problem: RemotingError = ConnectionLost(f"topic {topic} has no broker")
        brokers = await self.broker_names(topic)
        for broker in sorted(brokers, key=lambda name: (name in self._silent, name)):
            try:
                answer = await self._requests.ask(broker, *question)
            except BrokerError as error:
                self._silent.discard(broker)
                if not_found in error.remark:
                    return None
                problem = error.with_traceback(None)
            except (ConnectionLost, RequestTimeout) as error:
                self._silent.add(broker)
                problem = error.with_traceback(None)
            else:
                self._silent.discard(broker)
                return answer
        try:
            raise problem
        finally:
            del problem  # it refers to this frame, and to those of its callers

    async def heartbeat(self, broker: str, heartbeat: bodies.Heartbeat) -> None:
        """Send a heartbeat with this client's groups to *broker* (called by ``Membership``)."""
        if self._last_heartbeat is None or self._last_heartbeat[0] is not heartbeat:
            self._last_heartbeat = heartbeat, heartbeat.to_json()
        body = self._last_heartbeat[1]
        await self._requests.ask(broker, RequestCode.HEART_BEAT, body=body)

    async def unregister(
        self, broker: str, group: Group | None = None, *, producer: Group | None = None
    ) -> None:
        """Remove this client from *group* or from *producer* at *broker* (called by
        ``Membership``).
        """
        header = headers.UnregisterClientHeader(
            client_id=self.client_id, consumer_group=group, producer_group=producer
        )
        await self._requests.ask(broker, RequestCode.UNREGISTER_CLIENT, header.to_ext())

    # -- administration ------------------------------------------------------------------------

    async def create_topic(
        self, topic: Topic, *, queues: int, broker: str | None = None, perm: int = Perm.READ_WRITE
    ) -> None:
        """Create or change *topic* at *broker*, or at all; return once its route shows it.

        Raises RequestTimeout if the route does not show it within 10 s.
        """
        await administration.create_topic(
            self._requests, self._routes, topic, queues=queues, broker=broker, perm=perm
        )

    async def define_topic(self, topic: Topic, wanted: Sequence[QueueData]) -> None:
        """Change *topic* at each broker of *wanted*; return once its route shows it.

        Raises RequestTimeout if the route does not show it within 10 s.
        """
        await administration.define_topic(self._requests, self._routes, topic, wanted)

    async def broker_start_ms(self, broker: str) -> int:
        """Return the start time of *broker*, ms since 1970."""
        return await administration.broker_start_ms(self._requests, broker)

    async def all_brokers(self) -> list[str]:
        """Return the names of all registered brokers, sorted."""
        return sorted((await self.clusters()).brokers)

    async def runtime(self, broker: str) -> dict[str, str]:
        """Return the figures that *broker* reports of itself, by name."""
        return await administration.runtime(self._requests, broker)

    async def broker_settings(self, broker: str) -> dict[str, str]:
        """Return the settings that *broker* shows, under RocketMQ's names."""
        return await administration.broker_settings(self._requests, broker)

    async def consumers_at(self, broker: str, topic: Topic) -> list[Group]:
        """Return the groups that consume *topic* at *broker*, or have committed offsets there."""
        return await administration.consumers_at(self._requests, broker, topic)

    async def put_rate(self, broker: str, topic: Topic) -> float | None:
        """Return the messages per second that *broker* stored in *topic* in the last minute, None
        if it has no figures.
        """
        return await administration.put_rate(self._requests, broker, topic)

    async def confirm_clock(self, broker: str, *, by: str, reason: str) -> int:
        """Let messages at *broker* grow old by its wall clock again after a jump; return by how
        many ms it was ahead.
        """
        return await administration.confirm_clock(self._requests, broker, by=by, reason=reason)

    async def locks_since_ms(self, broker: str) -> int:
        """Return since when *broker* has forgotten no orderly lock, ms since 1970."""
        return await administration.locks_since_ms(self._requests, broker)

    async def elected_replicas(self, broker: str) -> ElectedReplicas | None:
        """Return the replicas of *broker*, None if they do not elect their master."""
        return await administration.elected_replicas(self._requests, broker)

    async def log_span(self, broker: str) -> LogSpan:
        """Return the range of the log that *broker* keeps."""
        return await administration.log_span(self._requests, broker)

    async def log_file_bytes(self, broker: str) -> int | None:
        """Return the length of a log file of *broker*, or None if it does not report it."""
        return await administration.log_file_bytes(self._requests, broker)

    # -- sending -------------------------------------------------------------------------------

    async def send(
        self,
        queue: QueueName,
        message: OutgoingMessage,
        *,
        group: Group = DEFAULT_PRODUCER,
        timeout_s: float | None = None,
        life: int | None = None,
    ) -> SendReceipt:
        """Send to *queue*; return once the broker has stored it (see the receipt's status).

        The embedded broker refuses it if the topic is in another *life*.

        Adds a UNIQ_KEY if the message has none. After ConnectionLost or RequestTimeout it may have
        been stored: repeat it with the same UNIQ_KEY.
        """
        return await sending.send(
            self._requests,
            queue,
            message,
            group=group,
            timeout_s=timeout_s,
            may_create=self._sends_create_topics,
            life=life,
        )

    async def send_together(
        self, queue: QueueName, message: OutgoingMessage, *, life: int | None = None
    ) -> SendReceipt:
        """Send as ``send`` does; messages for several queues that are sent in one pass of the event
        loop go to the embedded broker by one request, and are stored or refused each by itself.
        """
        return await self._sends.send(queue, message, life=life)

    async def send_batch(
        self,
        queue: QueueName,
        messages: Sequence[OutgoingMessage],
        *,
        group: Group = DEFAULT_PRODUCER,
        timeout_s: float | None = None,
        life: int | None = None,
    ) -> list[SendReceipt]:
        """Send *messages* of one topic to *queue*, stored all or none, in order.

        *life*: as in ``send``. Raises BrokerError (13) if they exceed the broker's limit: see
        ``BatchLimits``.
        """
        return await sending.send_batch(
            self._requests,
            queue,
            messages,
            group=group,
            timeout_s=timeout_s,
            may_create=self._sends_create_topics,
            life=life,
        )

    async def send_encoded(
        self,
        queue: QueueName,
        body: bytes,
        *,
        born_ms: int,
        group: Group = DEFAULT_PRODUCER,
        timeout_s: float | None = None,
    ) -> EncodedReceipt:
        """Send the messages of *body*, as ``encode_batch`` returns it, stored all or none.

        Raises as ``send_batch``.
        """
        return await sending.send_encoded(
            self._requests,
            queue,
            body,
            born_ms=born_ms,
            group=group,
            timeout_s=timeout_s,
            may_create=self._sends_create_topics,
        )

    # -- requests of brokers ---------------------------------------------------------------------

    def _consumers_changed(self, request: RemotingCommand, channel: RemotingChannel) -> None:
        header = headers.ConsumerGroupHeader.from_ext(request.ext)
        if self._on_consumers_changed is not None:
            self._on_consumers_changed(Group(header.consumer_group))

    def _connected(self) -> None:
        for callback in self._on_connected:
            callback()

    def _lost(self, address: str) -> None:
        for broker in self._routes.brokers_at(address):
            self._broker_lost(broker)

    def _broker_lost(self, broker: str) -> None:
        self.sessions.broker_lost(broker)
        self._sends.broker_lost(broker)
        self._commits.broker_lost(broker)
        self._ranges.broker_lost(broker)
        if self._on_broker_lost is not None:
            self._on_broker_lost(broker)
