"""What operators do with leases: list, show, extend, revoke."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import LOOKS, OWNED, Call, Operation, get, post
from proxy.operator.asked import PLAIN_KEY, Answer, Asked, ChangeBody
from proxy.operator.lease_desk import LeaseDesk, LeaseWish

_PLACE = "/api/groups/{group}/leases"
_MOST_SHOWN = 100_000
_LONGEST_MS = 12 * 3600 * 1000


class LeasesQuery(Asked):
    """Which to show."""

    limit: Annotated[
        int, Field(description=f"a number from 1 to {_MOST_SHOWN:,}", ge=1, le=_MOST_SHOWN)
    ] = 1000
    topic: Annotated[str | None, Field(description="a topic of the group")] = None
    queue: Annotated[str | None, Field(description="a queue, such as broker-a_0")] = None
    key: Annotated[str | None, Field(description="an order key"), PLAIN_KEY] = None
    client: Annotated[str | None, Field(description="the name of a client")] = None


class ExtendBody(ChangeBody):
    """For how long from now."""

    ms: Annotated[
        int | None,
        Field(
            description="milliseconds from 1 on; one visibility timeout counts at most",
            ge=1,
            le=_LONGEST_MS,
        ),
    ] = None


class LeaseView(Answer):
    """A live lease; ``run`` is the first of the ordered run that it belongs to."""

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
    """``live``: how many there are of those that were asked for."""

    group: str
    live: int
    leases: list[LeaseView]


class LeaseSurface:
    """``GET …/leases``, ``GET …/leases/LEASE``, ``POST …/leases/LEASE/VERB``."""

    def __init__(self, desk: LeaseDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """What it serves."""
        desk = self._desk
        return [
            get(
                _PLACE,
                "The live leases of a group at this proxy, those that end next first.",
                self._ls,
                query=LeasesQuery,
                answer=LeasesView,
                errors=LOOKS,
            ),
            get(
                f"{_PLACE}/{{lease}}",
                "One lease.",
                lambda call: desk.show(call.path["group"], call.path["lease"]),
                answer=LeaseView,
                errors=OWNED,
            ),
            post(
                f"{_PLACE}/{{lease}}/extend",
                "Let a lease run on.",
                lambda call: desk.extend(
                    call.path["group"], call.path["lease"], ms=call.body.ms, **call.why
                ),
                body=ExtendBody,
                answer=LeaseView,
                errors=OWNED,
            ),
            post(
                f"{_PLACE}/{{lease}}/revoke",
                "End a lease now: its message is offered again, a late verdict counts no more.",
                lambda call: desk.revoke(call.path["group"], call.path["lease"], **call.why),
                body=ChangeBody,
                answer=LeaseView,
                errors=OWNED,
            ),
        ]

    async def _ls(self, call: Call) -> dict[str, Any]:
        return await self._desk.rows(call.path["group"], LeaseWish(**dict(call.query)))
