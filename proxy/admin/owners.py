"""What operators do with ownership: list it, drain a proxy, have it take part again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.admin.operations import LOOKS, Operation, get, post
from proxy.operator.asked import Answer, Asked, ChangeBody
from proxy.operator.owner_desk import OwnerDesk

_PLACE = "/api/owners"


class OwnersQuery(Asked):
    """Of which group."""

    group: Annotated[str | None, Field(description="a group of this proxy")] = None


class ProxyView(Answer):
    """The proxy that was asked. ``state``: serving, draining or drained; ``owned``: queues."""

    proxy: str
    http: str
    state: str
    reason: str
    owned: int


class OwnerView(Answer):
    """A queue. ``state``: owned, gone (its owner left no word) or free; ``since_ms``: since when,
    in milliseconds since 1970.
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
    """The proxy that was asked, and who owns the queues of its groups."""

    queues: list[OwnerView]


class OwnerSurface:
    """``GET /api/owners``, ``POST /api/owners/drain`` and ``resume``, of the proxy asked."""

    def __init__(self, desk: OwnerDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """What it serves."""
        desk = self._desk
        return [
            get(
                _PLACE,
                "Who owns the queues of this proxy's groups.",
                lambda call: desk.rows(call.query.group),
                query=OwnersQuery,
                answer=OwnersView,
                errors=LOOKS,
            ),
            post(
                f"{_PLACE}/drain",
                "Give all queues of this proxy to the others, and let no client in.",
                lambda call: desk.drain(**call.why),
                body=ChangeBody,
                answer=ProxyView,
                errors=(409, 503),
            ),
            post(
                f"{_PLACE}/resume",
                "Have this proxy, which was drained, take part again.",
                lambda call: desk.resume(**call.why),
                body=ChangeBody,
                answer=ProxyView,
                errors=(409, 503),
            ),
        ]
