"""Topics and brokers in the admin API."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from broker_core.remoting.route_bodies import Perm
from proxy.admin.operations import LOOKS, Call, Operation, get
from proxy.operator.broker_desk import BrokerDesk
from proxy.operator.request_models import Actor, Answer, ChangeBody, Reason, RequestModel
from proxy.operator.topic_desk import MOST_TOPICS, TopicDesk, TopicsWish, TopicUpdate, TopicWish

_TOPICS, _TOPIC, _BROKERS = "/api/topics", "/api/topics/{topic}", "/api/brokers"
#: As of the embedded broker.
_MOST_QUEUES = 16_384
_PERMISSIONS = {"R": Perm.READ, "W": Perm.WRITE, "RW": Perm.READ_WRITE}
#: Refused: too many readers.
_READS = (*LOOKS, 429)
_CHANGES = (404, 409, 429, 503)

DryRun = Annotated[bool, Field(description="true or false: only show the effect, change nothing")]


class TopicsQuery(RequestModel):
    """A page of topics by name."""

    after: Annotated[
        str, Field(description="a name: the page begins behind it", max_length=127)
    ] = ""
    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_TOPICS}", ge=1, le=MOST_TOPICS)
    ] = MOST_TOPICS
    contains: Annotated[str, Field(description="a part of the name", max_length=127)] = ""
    all: Annotated[
        bool, Field(description="true or false: include topics of brokers and gateways")
    ] = False


class NewTopicBody(ChangeBody):
    """A topic to create, at one broker or all."""

    queues: Annotated[
        int,
        Field(description=f"a number from 1 to {_MOST_QUEUES:,}", ge=1, le=_MOST_QUEUES),
    ] = 8
    perm: Annotated[
        str, Field(description="RW, R or W: what clients may do", pattern=r"^(RW|R|W)$")
    ] = "RW"
    broker: Annotated[
        str | None,
        Field(description="the name of a broker (default: all)", min_length=1, max_length=255),
    ] = None
    dry_run: DryRun = False


class TopicUpdateBody(ChangeBody):
    """A change of a topic, at one broker or all that have it."""

    queues: Annotated[
        int | None,
        Field(
            description=f"a number from 1 to {_MOST_QUEUES:,}, not less than there are (default:"
            " unchanged)",
            ge=1,
            le=_MOST_QUEUES,
        ),
    ] = None
    perm: Annotated[
        str | None,
        Field(
            description="RW, R or W: what clients may do (default: unchanged)",
            pattern=r"^(RW|R|W)$",
        ),
    ] = None
    broker: Annotated[
        str | None,
        Field(description="the name of a broker (default: all)", min_length=1, max_length=255),
    ] = None
    dry_run: DryRun = False


class TopicDeletionQuery(RequestModel):
    """Parameters of a deletion."""

    reason: Reason
    by: Actor = None
    dry_run: DryRun = False


class TopicRowView(Answer):
    """A topic. ``messages``: None if not all its brokers answered."""

    topic: str
    brokers: list[str]
    queues: int
    messages: int | None


class TopicsView(Answer):
    """A page of topics. ``next``: the ``after`` of the next page, None at the end."""

    topics: list[TopicRowView]
    next: str | None
    unanswered: dict[str, str]


class TopicQueueView(Answer):
    """Offsets of a queue: of its oldest message, and the next one; None: no answer."""

    queue: str
    begin: int | None
    end: int | None


class TopicBrokerView(Answer):
    """A topic at one broker. ``put_rate``: messages per second in the last minute; None: unknown,
    as ``retention_hours``.
    """

    broker: str
    read_queues: int
    write_queues: int
    perm: str
    put_rate: float | None
    retention_hours: float | None


class TopicGroupView(Answer):
    """A consumer group of a topic. ``lag``: messages not committed, None if unknown."""

    group: str
    lag: int | None


class TopicDetailView(TopicRowView):
    """A topic in detail. ``complete``: nothing is left out."""

    queue_list: list[TopicQueueView]
    broker_list: list[TopicBrokerView]
    groups: list[TopicGroupView]
    unanswered: dict[str, str]
    complete: bool


class TopicCreatedView(Answer):
    """A new topic."""

    topic: str
    queues: int
    perm: str
    broker: str | None
    dry_run: bool


class TopicShapeView(Answer):
    """Queues and permissions of a topic at a broker."""

    broker: str
    read_queues: int
    write_queues: int
    perm: str


class TopicUpdatedView(Answer):
    """A changed topic. ``before``: as it was at the same brokers."""

    topic: str
    before: list[TopicShapeView]
    brokers: list[TopicShapeView]
    dry_run: bool


class TopicDeletedView(Answer):
    """A deletion: the messages lost, and the lags of consumer groups."""

    topic: str
    messages: int | None
    groups: dict[str, int | None]
    dry_run: bool


class BrokerView(Answer):
    """A replica of a broker. Figures are those of masters; None: not reported.

    ``disk_used``: share of the disk, 0 to 1; ``log_begin`` and ``log_end``: bytes; rates: messages
    per second in the last 10 s; ``in_sync`` and ``voters``: ids of replicas that elect their
    master; ``clock_ahead_ms``: how far its wall clock jumped ahead.
    """

    broker: str
    cluster: str
    id: int
    address: str
    role: str
    version: str | None
    boot_ms: int | None
    disk_used: float | None
    log_begin: int | None
    log_end: int | None
    put_rate: float | None
    get_rate: float | None
    in_sync: str | None
    voters: str | None
    clock_ahead_ms: int | None


class BrokersView(Answer):
    """All brokers. ``unanswered``: errors of those that failed."""

    brokers: list[BrokerView]
    unanswered: dict[str, str]
    complete: bool


class TopicSurface:
    """``GET /api/topics``; ``GET``, ``PUT``, ``POST`` and ``DELETE
    /api/topics/TOPIC``; ``GET /api/brokers``.

    No group is named, so a caller needs a right to all groups.
    """

    def __init__(self, desk: TopicDesk, brokers: BrokerDesk) -> None:
        self._desk = desk
        self._brokers = brokers

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                _TOPICS,
                "List topics by name, page by page.",
                self._rows,
                query=TopicsQuery,
                answer=TopicsView,
                errors=(429, 503),
            ),
            get(
                _TOPIC,
                "Show the queues, brokers and consumer groups of a topic.",
                lambda call: self._desk.describe(call.path["topic"]),
                answer=TopicDetailView,
                errors=_READS,
            ),
            Operation(
                method="PUT",
                path=_TOPIC,
                summary="Create a topic.",
                handle=self._create,
                body=NewTopicBody,
                answer=TopicCreatedView,
                errors=_CHANGES,
            ),
            Operation(
                method="POST",
                path=_TOPIC,
                summary="Change the permissions of a topic, or add queues.",
                handle=self._update,
                body=TopicUpdateBody,
                answer=TopicUpdatedView,
                errors=_CHANGES,
            ),
            Operation(
                method="DELETE",
                path=_TOPIC,
                summary="Delete a topic with its messages.",
                handle=self._delete,
                query=TopicDeletionQuery,
                answer=TopicDeletedView,
                errors=_CHANGES,
            ),
            get(
                _BROKERS,
                "List brokers with the figures that they report of themselves.",
                lambda _call: self._brokers.rows(),
                answer=BrokersView,
                errors=(503,),
            ),
        ]

    async def _rows(self, call: Call) -> dict[str, Any]:
        asked: TopicsQuery = call.query
        wish = TopicsWish(asked.after, asked.limit, asked.contains, asked.all)
        return await self._desk.rows(wish)

    async def _create(self, call: Call) -> dict[str, Any]:
        asked: NewTopicBody = call.body
        wish = TopicWish(
            call.by,
            asked.reason,
            dry_run=asked.dry_run,
            queues=asked.queues,
            perm=_PERMISSIONS[asked.perm],
            broker=asked.broker,
        )
        return await self._desk.create(call.path["topic"], wish)

    async def _update(self, call: Call) -> dict[str, Any]:
        asked: TopicUpdateBody = call.body
        wish = TopicUpdate(
            call.by,
            asked.reason,
            dry_run=asked.dry_run,
            queues=asked.queues,
            perm=None if asked.perm is None else _PERMISSIONS[asked.perm],
            broker=asked.broker,
        )
        return await self._desk.update(call.path["topic"], wish)

    async def _delete(self, call: Call) -> dict[str, Any]:
        asked: TopicDeletionQuery = call.query
        wish = TopicWish(call.by, asked.reason, dry_run=asked.dry_run)
        return await self._desk.delete(call.path["topic"], wish)
