"""Offsets of a group in the admin API: show, reset, skip damaged messages."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from proxy.admin.operations import OWNED, Call, Operation, get, post
from proxy.operator.offset_desk import OffsetDesk, ResetWish, SkipWish
from proxy.operator.request_models import Answer, ChangeBody, RequestModel

_PLACE = "/api/groups/{group}/offsets"
_RESET = "/api/groups/{group}/topics/{topic}/queues/{queue}/reset"
_SKIP = "/api/groups/{group}/topics/{topic}/queues/{queue}/skip"
_MOST = 2**62


class OffsetsQuery(RequestModel):
    """Selects queues."""

    topic: Annotated[str | None, Field(description="a topic of the group", min_length=1)] = None


class ToOffset(RequestModel):
    """Continue at this offset."""

    offset: Annotated[int, Field(description="an offset of the queue", ge=0, le=_MOST)]


class ToTime(RequestModel):
    """Continue at the first message stored at or after this time."""

    time_ms: Annotated[int, Field(description="milliseconds since 1970", ge=0, le=2**52)]


class ToEnd(RequestModel):
    """Continue at the end, skipping all messages."""

    end: Annotated[bool, Field(description="true", json_schema_extra={"const": True})]

    @model_validator(mode="after")
    def _is_true(self) -> Self:
        if not self.end:
            raise ValueError("end should be true")
        return self


class ToBegin(RequestModel):
    """Continue at the oldest message that is still stored."""

    begin: Annotated[bool, Field(description="true", json_schema_extra={"const": True})]

    @model_validator(mode="after")
    def _is_true(self) -> Self:
        if not self.begin:
            raise ValueError("begin should be true")
        return self


class ResetBody(ChangeBody):
    """Target and conditions of a reset."""

    to: Annotated[
        ToOffset | ToTime | ToEnd | ToBegin,
        Field(
            description='one of {"offset": 812}, {"time_ms": 1767225600000}, {"end": true},'
            ' {"begin": true}'
        ),
    ]
    expect: Annotated[
        int | None,
        Field(description="the required current base, a number", ge=0, le=_MOST),
    ] = None
    dry_run: Annotated[
        bool, Field(description="true or false: only show the effect, change nothing")
    ] = False


class SkipDamagedBody(ChangeBody):
    """The damaged message to skip."""

    offset: Annotated[
        int, Field(description="the offset that the queue or a key waits at", ge=0, le=_MOST)
    ]


class OffsetView(Answer):
    """Offsets of a queue.

    ``base``: the next offset that the group needs; ``committed``: the offset stored by the broker.
    ``state``: owned, gone (the owner ended without a final record) or free.
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
    """Offsets of the queues of a group. ``unanswered``: errors of brokers that failed, whose queues
    are left out.
    """

    group: str
    queues: list[OffsetView]
    unanswered: dict[str, str] = Field(default_factory=dict)


class ResetView(Answer):
    """Effect of a reset. ``skipped`` and ``repeated`` are upper bounds."""

    topic: str
    queue: str
    from_: Annotated[int, Field(alias="from")]
    to: int
    skipped: int
    repeated: int
    leases_ended: int
    parked_keys_kept: int
    dry_run: bool


class SkipDamagedView(Answer):
    """Effect of a skip. ``skipped``: number of damaged messages from ``offset`` on."""

    topic: str
    queue: str
    offset: int
    skipped: int


class OffsetSurface:
    """``GET …/offsets``, ``POST …/queues/QUEUE/reset`` and ``POST …/queues/QUEUE/skip``."""

    def __init__(self, desk: OffsetDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        desk = self._desk
        return [
            get(
                _PLACE,
                "Show the offsets of a group in all its queues.",
                lambda call: desk.show(call.path["group"], call.query.topic),
                query=OffsetsQuery,
                answer=OffsetsView,
                errors=(404, 503),
            ),
            post(
                _RESET,
                "Reset the offset of a group in a queue.",
                self._reset,
                body=ResetBody,
                answer=ResetView,
                errors=OWNED,
            ),
            post(
                _SKIP,
                "Skip a damaged message that a queue, or a key of it, waits at.",
                self._skip,
                body=SkipDamagedBody,
                answer=SkipDamagedView,
                errors=OWNED,
            ),
        ]

    async def _skip(self, call: Call) -> dict[str, Any]:
        wish = SkipWish(**call.why, offset=call.body.offset)
        path = call.path
        return await self._desk.skip(path["group"], path["topic"], path["queue"], wish)

    async def _reset(self, call: Call) -> dict[str, Any]:
        asked: ResetBody = call.body
        wish = ResetWish(
            **call.why,
            to_offset=asked.to.offset if isinstance(asked.to, ToOffset) else None,
            to_ms=asked.to.time_ms if isinstance(asked.to, ToTime) else None,
            to_begin=isinstance(asked.to, ToBegin),
            expect=asked.expect,
            dry_run=asked.dry_run,
        )
        path = call.path
        return await self._desk.reset(path["group"], path["topic"], path["queue"], wish)
