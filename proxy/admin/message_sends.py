"""Sends of single messages in the admin API."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from proxy.admin.operations import LOOKS, Call, Operation, post
from proxy.operator.message_sender import MessageSender, NewMessage
from proxy.operator.request_models import PLAIN_KEY, Answer, ChangeBody

_PLACE = "/api/topics/{topic}/messages"
#: The limits of thin clients.
_LONGEST = 255


class NewMessageBody(ChangeBody):
    """A message to send."""

    key: Annotated[
        str | None,
        Field(description="a message key, which selects the queue", max_length=_LONGEST),
        PLAIN_KEY,
    ] = None
    tag: Annotated[str | None, Field(description="a tag", max_length=_LONGEST)] = None
    properties: Annotated[
        dict[str, str],
        Field(description="names and values of properties", max_length=100, default_factory=dict),
    ]
    body: Annotated[str | None, Field(description="a text", min_length=1)] = None
    body_base64: Annotated[
        str | None, Field(description="bytes in base64, instead of body", min_length=1)
    ] = None
    dry_run: Annotated[
        bool, Field(description="true or false: only show the effect, change nothing")
    ] = False

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if (self.body is None) == (self.body_base64 is None):
            raise ValueError("give body or body_base64")
        self.content()
        return self

    def content(self) -> bytes:
        """Return the bytes of the body. Raises ValueError for invalid base64 or Unicode."""
        try:
            if self.body_base64 is not None:
                return base64.b64decode(self.body_base64, validate=True)
            return (self.body or "").encode()
        except binascii.Error:
            raise ValueError("body_base64 should be base64") from None
        except UnicodeEncodeError:
            raise ValueError("body should be valid Unicode, without lone surrogates") from None


class SentView(Answer):
    """A message that was sent: to queue ``to``, at ``sent``. A dry run has no ``sent`` and no
    ``message_id``. ``bytes``: size of the body.
    """

    topic: str
    keys: str | None
    tag: str | None
    bytes: int
    to: str
    sent: str | None
    message_id: str | None
    dry_run: bool


class MessageSendSurface:
    """``POST /api/topics/TOPIC/messages``.

    No group is in the path, so a caller needs a right to all groups.
    """

    def __init__(self, sender: MessageSender) -> None:
        self._sender = sender

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            post(
                _PLACE,
                "Send a message to a topic.",
                self._send,
                body=NewMessageBody,
                answer=SentView,
                errors=(*LOOKS, 409),
            )
        ]

    async def _send(self, call: Call) -> dict[str, Any]:
        asked: NewMessageBody = call.body
        wish = NewMessage(
            call.by,
            asked.reason,
            asked.content(),
            key=asked.key or None,
            tag=asked.tag or None,
            properties=asked.properties,
            dry_run=asked.dry_run,
        )
        return await self._sender.send(call.path["topic"], wish)
