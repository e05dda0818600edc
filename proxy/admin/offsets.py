"""What operators do with the place of a group in its queues: show it, move it."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from proxy.admin.operations import OWNED, Call, Operation, get, post
from proxy.operator.asked import Answer, Asked, ChangeBody
from proxy.operator.offset_desk import OffsetDesk, ResetWish

_PLACE = "/api/groups/{group}/offsets"
_RESET = "/api/groups/{group}/topics/{topic}/queues/{queue}/reset"
_MOST = 2**62


class OffsetsQuery(Asked):
    """Which queues."""

    topic: Annotated[str | None, Field(description="a topic of the group")] = None


class ToOffset(Asked):
    """Go on with the message there."""

    offset: Annotated[int, Field(description="an offset of the queue", ge=0, le=_MOST)]


class ToTime(Asked):
    """Go on with the first message stored then or later."""

    time_ms: Annotated[int, Field(description="milliseconds since 1970", ge=0, le=2**52)]


class ToEnd(Asked):
    """Skip all that is there."""

    end: Annotated[bool, Field(description="true", json_schema_extra={"const": True})]

    @model_validator(mode="after")
    def _is_true(self) -> Self:
        if not self.end:
            raise ValueError("end should be true")
        return self


class ResetBody(ChangeBody):
    """Where to."""

    to: Annotated[
        ToOffset | ToTime | ToEnd,
        Field(description='one of {"offset": 812}, {"time_ms": 1767225600000}, {"end": true}'),
    ]
    expect: Annotated[
        int | None,
        Field(description="the base that the group has to stand at, a number", ge=0, le=_MOST),
    ] = None
    dry_run: Annotated[bool, Field(description="true or false: only say what would be")] = False


class OffsetView(Answer):
    """``base``: the next offset that the group needs; ``committed``: as the broker has stored it.
    ``state``: owned, gone (its owner left no word) or free.
    """

    topic: str
    queue: str
    begin: int
    end: int
    committed: int | None
    base: int
    lag: int
    state: str
    owner: str | None
    http: str | None


class OffsetsView(Answer):
    """All queues."""

    group: str
    queues: list[OffsetView]


class ResetView(Answer):
    """``skipped`` and ``repeated``: messages between the places, at most."""

    topic: str
    queue: str
    from_: Annotated[int, Field(alias="from")]
    to: int
    skipped: int
    repeated: int
    leases_ended: int
    parked_keys_kept: int
    dry_run: bool


class OffsetSurface:
    """``GET …/offsets`` and ``POST …/queues/QUEUE/reset``."""

    def __init__(self, desk: OffsetDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """What it serves."""
        desk = self._desk
        return [
            get(
                _PLACE,
                "Where a group stands in its queues, whoever owns them.",
                lambda call: desk.show(call.path["group"], call.query.topic),
                query=OffsetsQuery,
                answer=OffsetsView,
                errors=(404, 503),
            ),
            post(
                _RESET,
                "Have a group go on at another offset of a queue.",
                self._reset,
                body=ResetBody,
                answer=ResetView,
                errors=OWNED,
            ),
        ]

    async def _reset(self, call: Call) -> dict[str, Any]:
        asked: ResetBody = call.body
        wish = ResetWish(
            **call.why,
            to_offset=asked.to.offset if isinstance(asked.to, ToOffset) else None,
            to_ms=asked.to.time_ms if isinstance(asked.to, ToTime) else None,
            expect=asked.expect,
            dry_run=asked.dry_run,
        )
        path = call.path
        return await self._desk.reset(path["group"], path["topic"], path["queue"], wish)
