"""Messages of any topic in the admin API: list, export, show, resend."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from proxy.admin.operations import LOOKS, NDJSON, Call, Operation, Pieces, get, post
from proxy.core.dead_letters.dead_letter import content_of
from proxy.operator.message_browser import MOST_LISTED, MessageBrowser, PageWish, Start, row_of
from proxy.operator.message_lookup import MOST_SHOWN
from proxy.operator.message_states import MessageStates
from proxy.operator.request_models import PLAIN_KEY, Answer, ChangeBody, RequestModel

_PLACE = "/api/topics/{topic}/messages"
_MOST_OFFSET, _LATEST_MS = 2**62, 2**52
_ERRORS = (*LOOKS, 409, 429)

Queue = Annotated[
    str | None,
    Field(description="a queue, such as broker-a_0 (default: all)", min_length=1, max_length=255),
]
Offset = Annotated[
    int | None, Field(description="the first offset, with a queue", ge=0, le=_MOST_OFFSET)
]
Time = Annotated[
    int | None,
    Field(description="the first store time, milliseconds since 1970", ge=0, le=_LATEST_MS),
]
Contains = Annotated[str, Field(description="a text in the body or in a property", max_length=500)]
PlaceOf = Annotated[
    str,
    Field(
        description="the queue and offset of a message, such as broker-a_0@17",
        min_length=1,
        max_length=255,
    ),
]


class TopicMessagesQuery(RequestModel):
    """Selects a page of messages: by key, by id, or from a position on."""

    key: Annotated[
        str | None,
        Field(description="a message key", min_length=1, max_length=500),
        PLAIN_KEY,
    ] = None
    id: Annotated[str | None, Field(description="a message id", min_length=1, max_length=255)] = (
        None
    )
    queue: Queue = None
    positions: Annotated[
        str | None,
        Field(description="the positions of an earlier page", min_length=1, max_length=65_536),
    ] = None
    offset: Offset = None
    time_ms: Time = None
    start: Annotated[Start, Field(description="newest, oldest or end")] = "newest"
    contains: Contains = ""
    limit: Annotated[
        int,
        Field(
            description=f"a number from 1 to {MOST_LISTED}; by key or id at most {MOST_SHOWN} of"
            " each broker are found",
            ge=1,
            le=MOST_LISTED,
        ),
    ] = 100

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = ("key", "id", "positions", "offset", "time_ms")
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(given)}")
        if (self.key or self.id) and (self.queue or self.contains):
            raise ValueError("a key or id is looked up in all queues: leave queue and contains out")
        return self


class MessageExportQuery(RequestModel):
    """Selects messages to export."""

    queue: Queue = None
    offset: Offset = None
    time_ms: Time = None
    contains: Contains = ""
    count: Annotated[
        int | None, Field(description="the maximum number, 1 or more", ge=1, lt=2**53)
    ] = None


class TopicMessageQuery(RequestModel):
    """Selects one message, and a group whose state of it is shown."""

    message: PlaceOf
    group: Annotated[
        str | None, Field(description="a consumer group", min_length=1, max_length=255)
    ] = None


class ResendBody(ChangeBody):
    """The message to send again."""

    message: PlaceOf
    dry_run: Annotated[
        bool, Field(description="true or false: only show the effect, change nothing")
    ] = False


class TopicMessageRow(Answer):
    """A message without its body; times are milliseconds since 1970.

    ``preview``: the beginning of the body, None if it is not text.
    """

    message: str
    topic: str
    queue: str
    offset: int
    message_id: str
    keys: str | None
    tag: str | None
    born_ms: int
    store_ms: int
    bytes: int
    preview: str | None


class TopicMessagesView(Answer):
    """Messages, oldest first. ``positions``: of the next page, None for a search by key or id.

    ``complete``: the page reaches the end of all queues, or a search by key or id has no older
    messages, as far as brokers answered; ``older``: messages from before the page are stored, None
    for such a search; ``read``: messages that were looked at; ``unanswered``: errors of brokers
    that failed, whose queues ``positions`` leave to the next page.
    """

    topic: str
    messages: list[TopicMessageRow]
    positions: str | None = None
    complete: bool = True
    older: bool | None = None
    read: int | None = None
    unanswered: dict[str, str] = Field(default_factory=dict)


class MessageStateView(Answer):
    """State of a message in a group: ``waiting``, ``leased``, ``delivered`` (it failed and will be
    delivered again), ``parked``, ``dead-lettered``, ``finished`` or ``unknown``.
    """

    group: str
    state: str
    key: str | None
    client: str | None
    attempt: int | None
    ends_in_ms: int | None


class TopicMessageView(TopicMessageRow):
    """One message with properties and body.

    ``body_base64`` replaces ``body`` if that is not UTF-8, or ``compressed`` in an unsupported
    format. ``state``: in the group asked for.
    """

    properties: dict[str, str]
    compressed: bool
    body: str | None = None
    body_base64: str | None = None
    state: MessageStateView | None = None


class ResentView(TopicMessageRow):
    """A message sent again: to queue ``to``, at ``sent``; None for a dry run."""

    to: str
    sent: str | None
    dry_run: bool


class TopicMessageSurface:
    """``GET /api/topics/TOPIC/messages``, ``…/show`` and ``…/export``; ``POST …/resend``.

    No group is in the path, so a caller needs a right to all groups.
    """

    def __init__(self, browser: MessageBrowser, states: MessageStates) -> None:
        self._browser = browser
        self._states = states

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                _PLACE,
                "List messages of a topic by key, id, offset or time, page by page.",
                self._list,
                query=TopicMessagesQuery,
                answer=TopicMessagesView,
                errors=_ERRORS,
            ),
            get(
                f"{_PLACE}/show",
                "Show one message of a topic, and its state in a group.",
                self._show,
                query=TopicMessageQuery,
                answer=TopicMessageView,
                errors=(*LOOKS, 421),
            ),
            get(
                f"{_PLACE}/export",
                "Export messages of a topic with their properties and bodies as lines of JSON."
                " Blanks before a line show that the search goes on. A response without its last"
                " chunk is incomplete.",
                self._export,
                query=MessageExportQuery,
                media=NDJSON,
                errors=_ERRORS,
            ),
            post(
                f"{_PLACE}/resend",
                "Send a copy of a message to its topic.",
                self._resend,
                body=ResendBody,
                answer=ResentView,
                errors=(*LOOKS, 409),
            ),
        ]

    async def _list(self, call: Call) -> dict[str, Any]:
        asked: TopicMessagesQuery = call.query
        topic = call.path["topic"]
        if (text := asked.key or asked.id) is not None:
            limit = min(asked.limit, MOST_SHOWN)
            return await self._browser.find(topic, text, limit=limit, is_id=asked.id is not None)
        wish = PageWish(
            limit=asked.limit,
            queue=asked.queue,
            positions=asked.positions,
            offset=asked.offset,
            time_ms=asked.time_ms,
            start=asked.start,
            contains=asked.contains,
        )
        return await self._browser.page(topic, wish)

    async def _show(self, call: Call) -> dict[str, Any]:
        asked: TopicMessageQuery = call.query
        queue, message = await self._browser.show(call.path["topic"], asked.message)
        shown = {**row_of(queue, message), **content_of(message)}
        if asked.group is not None:
            shown["state"] = await self._states.of(asked.group, queue, message)
        return shown

    async def _export(self, call: Call) -> Pieces:
        asked: MessageExportQuery = call.query
        wish = PageWish(
            limit=MOST_LISTED,
            queue=asked.queue,
            offset=asked.offset,
            time_ms=asked.time_ms,
            start="oldest",
            contains=asked.contains,
        )
        return self._browser.export(call.path["topic"], wish, asked.count)

    async def _resend(self, call: Call) -> dict[str, Any]:
        asked: ResendBody = call.body
        return await self._browser.resend(
            call.path["topic"], asked.message, dry_run=asked.dry_run, **call.why
        )
