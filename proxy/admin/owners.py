"""Queue ownership in the admin API: list, drain, resume."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.admin.operations import LOOKS, Operation, get, post
from proxy.operator.owner_desk import OwnerDesk
from proxy.operator.request_models import Answer, ChangeBody, RequestModel

_PLACE = "/api/owners"


class OwnersQuery(RequestModel):
    """Selects a group."""

    group: Annotated[str | None, Field(description="a group of this proxy", min_length=1)] = None


class ProxyView(Answer):
    """Drain state of the proxy: serving, draining or drained, with ``owned`` queues."""

    proxy: str
    http: str
    state: str
    reason: str
    owned: int


class OwnerView(Answer):
    """A queue.

    ``state``: owned, gone (the owner ended without a final record), free, or unknown (its broker
    did not answer); ``since_ms``: start of that state, in milliseconds since 1970.
    """

    group: str
    topic: str
    queue: str
    state: str
    owner: str | None
    http: str | None
    epoch: int | None
    since_ms: int | None


class OwnersView(ProxyView):
    """The state of this proxy, and the owners of its groups' queues. ``unanswered``: errors of
    brokers that failed.
    """

    queues: list[OwnerView]
    unanswered: dict[str, str] = Field(default_factory=dict)


class OwnerSurface:
    """``GET /api/owners``, ``POST /api/owners/drain`` and ``resume``."""

    def __init__(self, desk: OwnerDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        desk = self._desk
        return [
            get(
                _PLACE,
                "List the owners of the queues of this proxy's groups.",
                lambda call: desk.rows(call.query.group),
                query=OwnersQuery,
                answer=OwnersView,
                errors=LOOKS,
            ),
            post(
                f"{_PLACE}/drain",
                "Drain this proxy: hand over its queues and refuse clients.",
                lambda call: desk.drain(**call.why),
                body=ChangeBody,
                answer=ProxyView,
                errors=(409, 503),
            ),
            post(
                f"{_PLACE}/resume",
                "Resume this proxy after a drain.",
                lambda call: desk.resume(**call.why),
                body=ChangeBody,
                answer=ProxyView,
                errors=(409, 503),
            ),
        ]
