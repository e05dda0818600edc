"""Leases in the admin API: list, show, extend, revoke."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import LOOKS, OWNED, Call, Operation, get, post
from proxy.operator.lease_desk import LeaseDesk, LeaseWish
from proxy.operator.request_models import PLAIN_KEY, Answer, ChangeBody, RequestModel

_PLACE = "/api/groups/{group}/leases"
_MOST_SHOWN = 100_000
_LONGEST_MS = 12 * 3600 * 1000


class LeasesQuery(RequestModel):
    """Selects leases."""

    limit: Annotated[
        int, Field(description=f"a number from 1 to {_MOST_SHOWN:,}", ge=1, le=_MOST_SHOWN)
    ] = 1000
    topic: Annotated[str | None, Field(description="a topic of the group", min_length=1)] = None
    queue: Annotated[str | None, Field(description="a queue, such as broker-a_0", min_length=1)] = (
        None
    )
    key: Annotated[str | None, Field(description="an order key"), PLAIN_KEY] = None
    client: Annotated[str | None, Field(description="a client name", min_length=1)] = None


class ExtendBody(ChangeBody):
    """The new duration of a lease."""

    ms: Annotated[
        int | None,
        Field(
            description="milliseconds from now, 1 or more, capped at the visibility timeout",
            ge=1,
            le=_LONGEST_MS,
        ),
    ] = None


class LeaseView(Answer):
    """A live lease; ``run`` is the first lease of its ordered run."""

    lease: str
    topic: str
    queue: str
    offset: int
    key: str | None
    message_id: str | None
    client: str
    connection: int
    attempt: int
    run: str | None
    ends_in_ms: int
    ends_at_ms: int


class LeasesView(Answer):
    """Leases of a group. ``live``: number of matching leases."""

    group: str
    live: int
    leases: list[LeaseView]


class LeaseSurface:
    """``GET …/leases``, ``GET …/leases/LEASE``, ``POST …/leases/LEASE/VERB``."""

    def __init__(self, desk: LeaseDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        desk = self._desk
        return [
            get(
                _PLACE,
                "List the live leases of a group at this proxy, the next to expire first.",
                self._ls,
                query=LeasesQuery,
                answer=LeasesView,
                errors=LOOKS,
            ),
            get(
                f"{_PLACE}/{{lease}}",
                "Show one lease.",
                lambda call: desk.show(call.path["group"], call.path["lease"]),
                answer=LeaseView,
                errors=OWNED,
            ),
            post(
                f"{_PLACE}/{{lease}}/extend",
                "Extend a lease.",
                lambda call: desk.extend(
                    call.path["group"], call.path["lease"], ms=call.body.ms, **call.why
                ),
                body=ExtendBody,
                answer=LeaseView,
                errors=OWNED,
            ),
            post(
                f"{_PLACE}/{{lease}}/revoke",
                "Revoke a lease: deliver its message again, and ignore the client's verdict.",
                lambda call: desk.revoke(call.path["group"], call.path["lease"], **call.why),
                body=ChangeBody,
                answer=LeaseView,
                errors=OWNED,
            ),
        ]

    async def _ls(self, call: Call) -> dict[str, Any]:
        return await self._desk.rows(call.path["group"], LeaseWish(**dict(call.query)))
