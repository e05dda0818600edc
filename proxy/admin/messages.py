"""What operators see of single messages."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from proxy.admin.operations import LOOKS, Call, Operation, get
from proxy.operator.asked import PLAIN_KEY, Answer, Asked
from proxy.operator.message_desk import MOST_SHOWN, MessageDesk

_PLACE = "/api/groups/{group}/topics/{topic}/messages"


class MessagesQuery(Asked):
    """Which messages: by a key or by an id."""

    key: Annotated[
        str | None,
        Field(description="a key that a producer gave the message", min_length=1, max_length=500),
        PLAIN_KEY,
    ] = None
    id: Annotated[
        str | None, Field(description="the id of a message", min_length=1, max_length=255)
    ] = None
    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_SHOWN}", ge=1, le=MOST_SHOWN)
    ] = 32

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.key is None) == (self.id is None):
            raise ValueError("one of key and id should be given")
        return self


class MessageQuery(Asked):
    """Which one."""

    message: Annotated[
        str,
        Field(
            description="the place of a message, such as broker-a_0@17",
            min_length=1,
            max_length=255,
        ),
    ]


class MessageRow(Answer):
    """A message without its body; times are milliseconds since 1970. ``keys`` as its producer gave
    them; ``order_key`` by the rule of the group as it is now.
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
    """The newest that were found, the oldest of them first. ``unanswered``: brokers that could not
    say, with why.
    """

    group: str
    topic: str
    messages: list[MessageRow]
    unanswered: dict[str, str]


class WholeMessageView(MessageRow):
    """One with what it holds. ``body_base64`` in place of ``body``: that is no text, or
    ``compressed`` in a way that is not read here.
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
        """What it serves."""
        return [
            get(
                _PLACE,
                "Messages with a key or an id, in whichever queues they stand.",
                self._find,
                query=MessagesQuery,
                answer=MessagesView,
                errors=LOOKS,
            ),
            get(
                f"{_PLACE}/show",
                "One message with its properties and body.",
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
