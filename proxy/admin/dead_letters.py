"""Dead letters of a group in the admin API: list, show, export, redrive, stop."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import NDJSON, Call, Operation, Pieces, get, post
from proxy.operator.dead_letter_desk import DeadLetterDesk, Wish
from proxy.operator.key_models import DryRun, Rate
from proxy.operator.request_models import PLAIN_KEY, Answer, ChangeBody, RequestModel

_PLACE = "/api/groups/{group}/dead-letters"
MOST_SHOWN = 10_000
_ERRORS = (404, 409, 503)


Since = Annotated[
    int | None,
    Field(description="the first store time, milliseconds since 1970", ge=0, le=2**52),
]
PartOfReason = Annotated[
    str | None, Field(description="a part of the reason", min_length=1, max_length=500)
]


class DeadLettersQuery(RequestModel):
    """Selects dead letters to list."""

    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_SHOWN:,}", ge=1, le=MOST_SHOWN)
    ] = 100
    topic: Annotated[str | None, Field(description="the original topic", min_length=1)] = None
    key: Annotated[str | None, Field(description="the order key"), PLAIN_KEY] = None
    all: Annotated[bool, Field(description="true or false: include redriven ones")] = False
    since_ms: Since = None
    reason: PartOfReason = None
    positions: Annotated[
        str | None,
        Field(description="the positions of an earlier page", min_length=1, max_length=65_536),
    ] = None


class ExportQuery(RequestModel):
    """Selects dead letters to export."""

    count: Annotated[
        int | None, Field(description="the maximum number, 1 or more", ge=1, lt=2**53)
    ] = None
    topic: Annotated[str | None, Field(description="the original topic", min_length=1)] = None
    key: Annotated[str | None, Field(description="the order key"), PLAIN_KEY] = None
    all: Annotated[bool, Field(description="true or false: include redriven ones")] = False
    since_ms: Since = None
    reason: PartOfReason = None


class DeadLetterQuery(RequestModel):
    """Selects one dead letter."""

    dead_letter: Annotated[
        str,
        Field(
            description="a dead letter, such as broker-a_0@17, or its message id",
            min_length=1,
            max_length=255,
        ),
    ]


class RedriveBody(ChangeBody):
    """Parameters of a redrive."""

    rate: Rate = 0.0
    skip: Annotated[
        list[str],
        Field(
            description='a list of dead letters, such as ["broker-a_0@17"]',
            max_length=10_000,
            default_factory=list,
        ),
    ]
    dry_run: DryRun = False


class StopBody(ChangeBody):
    """Stops a redrive."""


class RedriveView(Answer):
    """The last redrive of this proxy.

    ``left``: dead letters still to send, without those to skip. A dry run has the first four fields
    only; ``skipped`` are those that it would skip.
    """

    group: str
    state: str
    left: int
    skipped: int | None = None
    sent: int | None = None
    rate: float | None = None
    by: str | None = None
    reason: str | None = None
    note: str | None = None


class DeadLetterView(Answer):
    """One dead letter; times are milliseconds since 1970."""

    dead_letter: str
    topic: str | None
    origin: str | None
    key: str | None
    attempts: int | None
    reason: str | None
    first_failure_ms: int | None
    last_failure_ms: int | None
    redrives: int
    message_id: str
    store_ms: int


class WholeDeadLetterView(DeadLetterView):
    """One dead letter with properties and body.

    ``body_base64`` replaces ``body`` if that is not UTF-8, or ``compressed`` in an unsupported
    format.
    """

    tag: str | None
    properties: dict[str, str]
    compressed: bool
    body: str | None = None
    body_base64: str | None = None


class DeadLettersView(Answer):
    """Dead letters of a group. ``complete``: no matching one is left out, as far as brokers
    answered; ``positions``: of the next page; ``waiting``: those not redriven, null while a broker
    does not answer; ``unanswered``: errors of such brokers.
    """

    group: str
    positions: str
    waiting: int | None
    dead_letters: list[DeadLetterView]
    complete: bool
    redrive: RedriveView | None
    unanswered: dict[str, str] = Field(default_factory=dict)


class DeadLetterSurface:
    """``GET …/dead-letters``, ``…/show`` and ``…/export``, and ``POST …/dead-letters/VERB``."""

    def __init__(self, desk: DeadLetterDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                _PLACE,
                "List the dead letters of a group, oldest first.",
                self._show,
                query=DeadLettersQuery,
                answer=DeadLettersView,
                errors=_ERRORS,
            ),
            *self._looks(),
            post(
                f"{_PLACE}/redrive",
                "Send dead letters to their original topics, one at a time.",
                self._redrive,
                body=RedriveBody,
                answer=RedriveView,
                errors=_ERRORS,
            ),
            post(
                f"{_PLACE}/stop",
                "Stop the redrive.",
                self._stop,
                body=StopBody,
                answer=RedriveView,
                errors=_ERRORS,
            ),
        ]

    def _looks(self) -> list[Operation]:
        return [
            get(
                f"{_PLACE}/show",
                "Show one dead letter with its properties and body.",
                self._find,
                query=DeadLetterQuery,
                answer=WholeDeadLetterView,
                errors=_ERRORS,
            ),
            get(
                f"{_PLACE}/export",
                "Export dead letters with their properties and bodies as lines of JSON. Blanks"
                " before a line show that the search goes on. A response without its last chunk is"
                " incomplete.",
                self._export,
                query=ExportQuery,
                media=NDJSON,
                errors=_ERRORS,
            ),
        ]

    async def _show(self, call: Call) -> dict[str, Any]:
        asked: DeadLettersQuery = call.query
        wish = _wish(asked, asked.limit, positions=asked.positions)
        return await self._desk.show(call.path["group"], wish)

    async def _find(self, call: Call) -> dict[str, Any]:
        return await self._desk.find(call.path["group"], call.query.dead_letter)

    async def _export(self, call: Call) -> Pieces:
        asked: ExportQuery = call.query
        wish = _wish(asked, asked.count)
        return self._desk.export(call.path["group"], wish)

    async def _redrive(self, call: Call) -> dict[str, Any]:
        asked: RedriveBody = call.body
        return await self._desk.redrive(
            call.path["group"],
            by=call.by,
            rate=asked.rate,
            skip=asked.skip,
            dry_run=asked.dry_run,
            reason=asked.reason,
        )

    async def _stop(self, call: Call) -> dict[str, Any]:
        return await self._desk.stop(call.path["group"], by=call.by, reason=call.body.reason)


def _wish(
    asked: DeadLettersQuery | ExportQuery, limit: int | None, *, positions: str | None = None
) -> Wish:
    return Wish(
        limit=limit,
        topic=asked.topic,
        key=asked.key,
        everything=asked.all,
        since_ms=asked.since_ms,
        reason=asked.reason,
        positions=positions,
    )
