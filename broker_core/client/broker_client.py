"""Asks brokers, by the names of their queues. Nothing here retries, or decides who owns what."""

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
from broker_core.client.requests import BrokerRequests
from broker_core.client.resets import reset_refused
from broker_core.client.results import (
    LockAnswer,
    LogSpan,
    PulledRecords,
    PullResult,
    SendReceipt,
)
from broker_core.client.routes import RouteCache
from broker_core.errors import BrokerError, ConnectionLost, RemotingError, RequestTimeout
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting import bodies, headers
from broker_core.remoting.admin_bodies import subscribed_from_json
from broker_core.remoting.admin_headers import ClientOfGroupHeader, ProducerGroupHeader
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.header_fields import Header
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.route_bodies import MASTER_ID, ClusterTable, Perm
from broker_core.remoting.signing import Credentials
from broker_core.remoting_channel import Handler, RemotingChannel
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import ClientContext
from broker_core.turns import Turns

#: The group that producers name where it does not matter.
DEFAULT_PRODUCER = Group("orderlane")

_log = structlog.get_logger("broker-client")


class BrokerClient:
    """One client of a RocketMQ cluster, embedded or Apache's.

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
        """*client_id* names this process to brokers (holder of locks, member of groups).

        *credentials*: the account that signs all requests, where brokers ask for one. *tls*: how
        nameservers and brokers are connected to, all of them; None: without TLS.
        *sends_create_topics* false: a send to a topic that is not there is refused, also by brokers
        that would make it, each for itself.
        *on_consumers_changed* is called when a broker says that members of a group have changed,
        *on_broker_lost* with a broker's name when a connection to it ended: it may have restarted.
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
        self._routes = RouteCache(nameservers, self._pool, timeout_s=request_timeout_s)
        #: What the nameservers keep for whoever wants it kept.
        self.key_values = KeyValues(nameservers, self._pool, timeout_s=request_timeout_s)
        self._requests = BrokerRequests(self._pool, self._routes, timeout_s=request_timeout_s)
        self.deletions = Deletions(self._requests, self._routes)
        #: For what has no method here.
        self.requests = self._requests
        self.delays = Delays(self._requests)
        self.queries = Queries(self._requests)
        self._locking = Locking(self._requests, client_id)
        # Answers of hundreds of queues come together; those who asked take them one after another.
        self._decoding = Turns()
        self._refresher: asyncio.Task[None] | None = None
        self._silent: set[str] = set()  # brokers that did not tell the members of a group

    async def start(self) -> None:
        """Begin to keep routes fresh; connections are opened when needed."""
        self._refresher = spawn(self._routes.keep_fresh(), name="refresh routes")

    async def close(self) -> None:
        """Disconnect from everywhere."""
        await cancel_and_wait(self._refresher)
        await self._pool.close()

    def another(self, client_id: str) -> BrokerClient:
        """One more of the same brokers with the same access, on connections of its own."""
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
        """Have *handler* answer what brokers ask by *code*, instead of who did before."""
        self._handlers[code] = handler

    # -- routes --------------------------------------------------------------------------------

    async def queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        """Return the readable queues, by broker and id. Raises BrokerError(17) if unknown.

        Routes are at most about 30 s old; *fresh* asks a nameserver now.
        """
        return await self._queues(topic, Perm.READ, fresh=fresh)

    async def writable_queues(self, topic: Topic, *, fresh: bool = False) -> list[QueueName]:
        """Return the writable queues as producers number them. Raises BrokerError(17) if unknown.

        By broker and id; an order topic's as its operator has set them, its brokers up or down.
        """
        order_queues = (await self._routes.route(topic, fresh=fresh)).order_queues()
        if order_queues is not None:
            return [QueueName(topic, broker, queue_id) for broker, queue_id in order_queues]
        return await self._queues(topic, Perm.WRITE, fresh=False)

    async def broker_names(self, topic: Topic) -> list[str]:
        """Return the brokers that have *topic*, sorted. Raises BrokerError(17) if unknown."""
        route = await self._routes.route(topic)
        return sorted(data.broker for data in route.brokers)

    async def clusters(self) -> ClusterTable:
        """Return all clusters and their brokers, as nameservers know them."""
        return await self._routes.clusters()

    async def topics(self) -> list[Topic]:
        """Return all topics that nameservers know."""
        return await self._routes.topics()

    async def _queues(self, topic: Topic, perm: int, *, fresh: bool) -> list[QueueName]:
        route = await self._routes.route(topic, fresh=fresh)
        # Who consumes keeps its queues while no master is listed: it may be there nevertheless, and
        # other members of its group count them too.
        brokers = {
            data.broker
            for data in route.brokers
            if perm == Perm.READ or MASTER_ID in data.addresses
        }
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
    ) -> PullResult:
        """Read messages from *offset* on; wait for some up to *suspend_ms* (0: not at all), and for
        none if the topic is in another *life* than that.

        Never commits. The broker filters by the hash of the tags, so others may be among what
        comes. *timeout_s* defaults to what the wait may take and some seconds.
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
        )
        return await self._decoding.result(partial(pulling.decoded, pulled))

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
        """As ``pull``, of all tags, with the records as they came: nothing is decoded.

        *max_bytes* is a wish, which brokers before 5.1 do not know; all have a limit of their own.
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

    async def life(self, queue: QueueName) -> int | None:
        """Return the incarnation of the topic of *queue* at its broker: it rises whenever the topic
        is deleted and created again. None if the broker does not tell them apart.
        """
        header = headers.QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._requests.ask(queue.broker, RequestCode.GET_MAX_OFFSET, header.to_ext())
        return headers.OffsetResponse.from_ext(answer.ext).life

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
        """Ask for, or renew, orderly locks, at all brokers at the same time. Raises nothing."""
        return await self._locking.lock(group, queues, timeout_s=timeout_s)

    async def unlock(
        self, group: Group, queues: Iterable[QueueName], *, timeout_s: float | None = None
    ) -> None:
        """Give orderly locks back. All brokers are asked; the first failure is raised."""
        await self._locking.unlock(group, queues, timeout_s=timeout_s)

    async def committed_offset(self, group: Group, queue: QueueName) -> int | None:
        """Return the next offset that *group* needs, None if it never committed any.

        Brokers of 4.9 do not tell the latter from 0 while the queue's first message is in memory.
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
        """Tell whether *group* ever committed an offset of *queue*, be it 0.

        Apache RocketMQ 4.9 answers 0 for a group that never did, as long as the queue's first
        message is in its memory. Its whole table tells, so ask seldom.
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
    ) -> None:
        """Store the next offset that *group* needs, and wait until the broker has it.

        Our own broker refuses it with BrokerError if it knows a higher *epoch* of that queue, or
        if its topic is in another *life*; *at_once*: it answers when the offset is on disk.
        *epoch_life*: of the topic that the epoch is an offset of.
        """
        header = headers.UpdateConsumerOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            epoch=epoch,
            epoch_life=epoch_life,
            life=life,
            at_once=at_once or None,
        )
        await self._requests.ask(queue.broker, RequestCode.UPDATE_CONSUMER_OFFSET, header.to_ext())

    async def consumer_ids(self, group: Group, topic: Topic) -> list[str]:
        """Return the client ids of the members of *group*, as one broker of *topic* sees them: one
        that did not answer the last time is asked last.
        """
        header = headers.ConsumerGroupHeader(consumer_group=group)
        answer = await self._ask_one(
            topic,
            (RequestCode.GET_CONSUMER_LIST_BY_GROUP, header.to_ext()),
            nobody="no consumer for this group",
        )
        return [] if answer is None else bodies.consumer_ids_from_json(answer.body)

    async def producer_ids(self, group: Group, topic: Topic) -> list[str]:
        """Return the client ids of the producer group *group*, as one broker of *topic* sees it."""
        header = ProducerGroupHeader(producer_group=group)
        answer = await self._ask_one(
            topic,
            (RequestCode.GET_PRODUCER_CONNECTION_LIST, header.to_ext()),
            nobody="] not exist",
        )
        return [] if answer is None else bodies.connected_ids_from_json(answer.body)

    async def subscribed(self, group: Group, client_id: str, topic: Topic) -> frozenset[Topic]:
        """Return the topics that the member *client_id* of *group* subscribes, as it tells a broker
        of *topic* that asks it. Raises RemotingError, such as BrokerError if it is not there.
        """
        header = ClientOfGroupHeader(consumer_group=group, client_id=client_id)
        problem: RemotingError = ConnectionLost(f"topic {topic} has no broker")
        for broker in await self.broker_names(topic):
            try:
                answer = await self._requests.ask(
                    broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header.to_ext()
                )
            except (BrokerError, ConnectionLost, RequestTimeout) as error:
                problem = error
            else:
                return subscribed_from_json(answer.body)
        raise problem

    async def _ask_one(
        self, topic: Topic, question: tuple[RequestCode, dict[str, str]], *, nobody: str
    ) -> RemotingCommand | None:
        """The answer of the first broker of *topic* that has one; None if its remark says *nobody*.
        One that did not answer the last time is asked last. Raises RemotingError, that of the last
        broker that was asked.
        """
        problem: RemotingError = ConnectionLost(f"topic {topic} has no broker")
        brokers = await self.broker_names(topic)
        for broker in sorted(brokers, key=lambda name: (name in self._silent, name)):
            try:
                answer = await self._requests.ask(broker, *question)
            except BrokerError as error:
                self._silent.discard(broker)
                if nobody in error.remark:
                    return None
                problem = error
            except (ConnectionLost, RequestTimeout) as error:
                self._silent.add(broker)
                problem = error
            else:
                self._silent.discard(broker)
                return answer
        raise problem

    async def heartbeat(self, broker: str, heartbeat: bodies.Heartbeat) -> None:
        """Tell *broker* which groups this client belongs to (``Membership`` does it)."""
        await self._requests.ask(broker, RequestCode.HEART_BEAT, body=heartbeat.to_json())

    async def unregister(
        self, broker: str, group: Group | None = None, *, producer: Group | None = None
    ) -> None:
        """Tell *broker* that this client leaves the consumer group *group*, or the producer group
        *producer* (``Membership`` does it).
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

    async def broker_start_ms(self, broker: str) -> int:
        """Return when *broker* started (ms since 1970): locks may be older, or forgotten."""
        return await administration.broker_start_ms(self._requests, broker)

    async def log_span(self, broker: str) -> LogSpan:
        """Return what *broker* keeps of its log."""
        return await administration.log_span(self._requests, broker)

    async def log_file_bytes(self, broker: str) -> int | None:
        """Return how long a file of the log of *broker* is; None if it does not say."""
        return await administration.log_file_bytes(self._requests, broker)

    # -- sending -------------------------------------------------------------------------------

    async def send(
        self,
        queue: QueueName,
        message: OutgoingMessage,
        *,
        group: Group = DEFAULT_PRODUCER,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send to *queue*; return once the broker has stored it (see the receipt's status).

        Gives the message a UNIQ_KEY if it has none. After ConnectionLost or RequestTimeout it may
        be stored all the same: whoever sends again does so with the same UNIQ_KEY.
        """
        return await sending.send(
            self._requests,
            queue,
            message,
            group=group,
            timeout_s=timeout_s,
            may_create=self._sends_create_topics,
        )

    async def send_batch(
        self,
        queue: QueueName,
        messages: Sequence[OutgoingMessage],
        *,
        group: Group = DEFAULT_PRODUCER,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send *messages* of one topic to *queue*, stored all or none, in order.

        Raises BrokerError (13) if they are more than the broker takes at once: ``BatchLimits``.
        """
        return await sending.send_batch(
            self._requests,
            queue,
            messages,
            group=group,
            timeout_s=timeout_s,
            may_create=self._sends_create_topics,
        )

    # -- what brokers say ----------------------------------------------------------------------

    def _consumers_changed(self, request: RemotingCommand, channel: RemotingChannel) -> None:
        header = headers.ConsumerGroupHeader.from_ext(request.ext)
        if self._on_consumers_changed is not None:
            self._on_consumers_changed(Group(header.consumer_group))

    def _connected(self) -> None:
        for callback in self._on_connected:
            callback()

    def _lost(self, address: str) -> None:
        if self._on_broker_lost is not None:
            for broker in self._routes.brokers_at(address):
                self._on_broker_lost(broker)
