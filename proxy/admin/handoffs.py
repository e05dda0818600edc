"""Hand-over of a queue to a named proxy: requested from that proxy first, then from the owner."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.admin.operations import OWNED, Call, Operation, post
from proxy.operator.hand_over_desk import HandoffDesk, QueueWish
from proxy.operator.request_models import Answer, ChangeBody

_QUEUE = "/api/groups/{group}/topics/{topic}/queues/{queue}"


class HandoffBody(ChangeBody):
    """The target of a hand-over."""

    to: Annotated[
        str,
        Field(description="a proxy as named by orderlane owners ls", min_length=1, max_length=255),
    ]


class HandoffView(Answer):
    """The queue and its next owner."""

    group: str
    topic: str
    queue: str
    to: str


class HandoffSurface:
    """``POST …/queues/QUEUE/expect`` and ``…/handoff``."""

    def __init__(self, desk: HandoffDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        desk = self._desk
        return [
            post(
                f"{_QUEUE}/expect",
                "Prepare this proxy to take a queue that will be handed over to it.",
                lambda call: desk.expect(_wish(call)),
                body=ChangeBody,
                answer=HandoffView,
                errors=(404, 409, 503),
            ),
            post(
                f"{_QUEUE}/handoff",
                "Hand a queue over to a named proxy, which must expect it.",
                lambda call: desk.hand_off(_wish(call), call.body.to),
                body=HandoffBody,
                answer=HandoffView,
                errors=OWNED,
            ),
        ]


def _wish(call: Call) -> QueueWish:
    path = call.path
    return QueueWish(path["group"], path["topic"], path["queue"], **call.why)
