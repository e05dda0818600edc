"""Reset of a whole group in the admin API."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.admin.offsets import ResetView, ToBegin, ToEnd, ToTime
from proxy.admin.operations import OWNED, Call, Operation, post
from proxy.operator.group_reset import GroupReset, GroupResetWish
from proxy.operator.request_models import Answer, ChangeBody


class GroupResetBody(ChangeBody):
    """Target of a reset, and optionally one topic."""

    topic: Annotated[
        str | None, Field(description="a topic of the group (default: all)", min_length=1)
    ] = None
    to: Annotated[
        ToTime | ToEnd | ToBegin,
        Field(description='one of {"time_ms": 1767225600000}, {"end": true}, {"begin": true}'),
    ]
    dry_run: Annotated[
        bool, Field(description="true or false: only show the effect, change nothing")
    ] = False


class GroupResetView(Answer):
    """Effect on each queue. ``elsewhere``: number of queues that other proxies own, which keep
    their offsets; ``owners``: the addresses of these proxies.
    """

    group: str
    queues: list[ResetView]
    elsewhere: int
    owners: list[str]
    dry_run: bool


class GroupResetSurface:
    """``POST /api/groups/G/offsets/reset``."""

    def __init__(self, resets: GroupReset) -> None:
        self._resets = resets

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            post(
                "/api/groups/{group}/offsets/reset",
                "Reset the offsets of a group in all queues of its topics.",
                self._reset,
                body=GroupResetBody,
                answer=GroupResetView,
                errors=OWNED,
            )
        ]

    async def _reset(self, call: Call) -> dict[str, Any]:
        asked: GroupResetBody = call.body
        wish = GroupResetWish(
            **call.why,
            topic=asked.topic,
            to_ms=asked.to.time_ms if isinstance(asked.to, ToTime) else None,
            to_begin=isinstance(asked.to, ToBegin),
            dry_run=asked.dry_run,
        )
        return await self._resets.reset(call.path["group"], wish)
