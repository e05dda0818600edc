"""What operators do with ownership: list it, drain a proxy, have it take part again."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import (
    LOOKS,
    Answer,
    Asked,
    Call,
    ChangeBody,
    Operation,
    get,
    post,
)
from proxy.upstream.owner_desk import OwnerDesk

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
        return [
            get(
                _PLACE,
                "Who owns the queues of this proxy's groups.",
                self._ls,
                query=OwnersQuery,
                answer=OwnersView,
                errors=LOOKS,
            ),
            post(
                f"{_PLACE}/drain",
                "Give all queues of this proxy to the others, and let no client in.",
                self._drain,
                body=ChangeBody,
                answer=ProxyView,
                errors=(409, 503),
            ),
            post(
                f"{_PLACE}/resume",
                "Have this proxy, which was drained, take part again.",
                self._resume,
                body=ChangeBody,
                answer=ProxyView,
                errors=(409, 503),
            ),
        ]

    async def _ls(self, call: Call) -> dict[str, Any]:
        asked: OwnersQuery = call.query
        return await self._desk.rows(asked.group)

    async def _drain(self, call: Call) -> dict[str, Any]:
        asked: ChangeBody = call.body
        return await self._desk.drain(by=call.by, reason=asked.reason)

    async def _resume(self, call: Call) -> dict[str, Any]:
        asked: ChangeBody = call.body
        return await self._desk.resume(by=call.by, reason=asked.reason)
