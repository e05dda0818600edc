"""Message lookup in the admin API."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from proxy.admin.operations import LOOKS, Call, Operation, get
from proxy.operator.message_desk import MessageDesk
from proxy.operator.message_lookup import MOST_SHOWN
from proxy.operator.request_models import PLAIN_KEY, Answer, RequestModel

_PLACE = "/api/groups/{group}/topics/{topic}/messages"


class MessagesQuery(RequestModel):
    """Selects messages by key or id."""

    key: Annotated[
        str | None,
        Field(description="a message key", min_length=1, max_length=500),
        PLAIN_KEY,
    ] = None
    id: Annotated[str | None, Field(description="a message id", min_length=1, max_length=255)] = (
        None
    )
    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_SHOWN}", ge=1, le=MOST_SHOWN)
    ] = 32

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.key is None) == (self.id is None):
            raise ValueError("give either key or id")
        return self


class MessageQuery(RequestModel):
    """Selects one message."""

    message: Annotated[
        str,
        Field(
            description="the queue and offset of a message, such as broker-a_0@17",
            min_length=1,
            max_length=255,
        ),
    ]


class MessageRow(Answer):
    """A message without its body; times are milliseconds since 1970.

    ``keys`` are the message keys set by the producer, ``order_key`` the key under the group's
    current rule.
    """

    message: str
    topic: str
    queue: str
    offset: int
    message_id: str
    keys: str | None
    order_key: str | None
    tag: str | None
    born_ms: int
    store_ms: int
    bytes: int


class MessagesView(Answer):
    """The newest messages found, oldest first. ``unanswered``: errors of brokers that failed;
    ``complete``: there are no older ones.
    """

    group: str
    topic: str
    messages: list[MessageRow]
    unanswered: dict[str, str]
    complete: bool = True


class WholeMessageView(MessageRow):
    """One message with properties and body.

    ``body_base64`` replaces ``body`` if that is not UTF-8, or ``compressed`` in an unsupported
    format.
    """

    properties: dict[str, str]
    compressed: bool
    body: str | None = None
    body_base64: str | None = None


class MessageSurface:
    """``GET …/messages`` and ``…/messages/show``."""

    def __init__(self, desk: MessageDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                _PLACE,
                "Find messages by key or id, in all queues of the topic.",
                self._find,
                query=MessagesQuery,
                answer=MessagesView,
                errors=LOOKS,
            ),
            get(
                f"{_PLACE}/show",
                "Show one message with its properties and body.",
                self._show,
                query=MessageQuery,
                answer=WholeMessageView,
                errors=LOOKS,
            ),
        ]

    async def _find(self, call: Call) -> dict[str, Any]:
        asked: MessagesQuery = call.query
        return await self._desk.find(
            call.path["group"],
            call.path["topic"],
            key=asked.key,
            message_id=asked.id,
            limit=asked.limit,
        )

    async def _show(self, call: Call) -> dict[str, Any]:
        return await self._desk.show(call.path["group"], call.path["topic"], call.query.message)
