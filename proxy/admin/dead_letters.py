"""What operators do with the dead letters of a group: what is there, send them back, stop that."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import NDJSON, Call, Operation, Pieces, get, post
from proxy.operator.asked import PLAIN_KEY, Answer, Asked, ChangeBody
from proxy.operator.dead_letter_desk import DeadLetterDesk, Wish
from proxy.operator.key_models import DryRun, Rate

_PLACE = "/api/groups/{group}/dead-letters"
MOST_SHOWN = 10_000
_ERRORS = (404, 409, 503)


class DeadLettersQuery(Asked):
    """Which to show."""

    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_SHOWN:,}", ge=1, le=MOST_SHOWN)
    ] = 100
    topic: Annotated[str | None, Field(description="the topic they came from")] = None
    key: Annotated[str | None, Field(description="their order key"), PLAIN_KEY] = None
    all: Annotated[bool, Field(description="true or false: also those that went back")] = False


class ExportQuery(Asked):
    """Which to export."""

    count: Annotated[
        int | None, Field(description="how many at most, 1 or more", ge=1, lt=2**53)
    ] = None
    topic: Annotated[str | None, Field(description="the topic they came from")] = None
    key: Annotated[str | None, Field(description="their order key"), PLAIN_KEY] = None
    all: Annotated[bool, Field(description="true or false: also those that went back")] = False


class DeadLetterQuery(Asked):
    """Which one."""

    dead_letter: Annotated[
        str,
        Field(
            description="a dead letter, such as broker-a_0@17, or its message id",
            min_length=1,
            max_length=255,
        ),
    ]


class RedriveBody(ChangeBody):
    """How to send them back."""

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
    """Who stops it."""


class RedriveView(Answer):
    """A redrive of this proxy, the last one. A dry run has the first three alone."""

    group: str
    state: str
    left: int
    sent: int | None = None
    skipped: int | None = None
    rate: float | None = None
    by: str | None = None
    reason: str | None = None
    note: str | None = None


class DeadLetterView(Answer):
    """One of them; times are milliseconds since 1970."""

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
    """One with what it holds. ``body_base64`` in place of ``body``: that is no text, or
    ``compressed`` in a way that is not read here.
    """

    tag: str | None
    properties: dict[str, str]
    compressed: bool
    body: str | None = None
    body_base64: str | None = None


class DeadLettersView(Answer):
    """``complete``: all that were asked for are here."""

    group: str
    waiting: int
    dead_letters: list[DeadLetterView]
    complete: bool
    redrive: RedriveView | None


class DeadLetterSurface:
    """``GET …/dead-letters``, ``…/show`` and ``…/export``, and ``POST …/dead-letters/VERB``."""

    def __init__(self, desk: DeadLetterDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """What it serves."""
        return [
            get(
                _PLACE,
                "The dead letters of a group, the oldest first.",
                self._show,
                query=DeadLettersQuery,
                answer=DeadLettersView,
                errors=_ERRORS,
            ),
            *self._looks(),
            post(
                f"{_PLACE}/redrive",
                "Send them back to the topics they came from, one by one.",
                self._redrive,
                body=RedriveBody,
                answer=RedriveView,
                errors=_ERRORS,
            ),
            post(
                f"{_PLACE}/stop",
                "Send no more of them back.",
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
                "One dead letter with its properties and body.",
                self._find,
                query=DeadLetterQuery,
                answer=WholeDeadLetterView,
                errors=_ERRORS,
            ),
            get(
                f"{_PLACE}/export",
                "Dead letters with their properties and bodies, as lines of JSON. What ends before"
                " its last chunk is not whole.",
                self._export,
                query=ExportQuery,
                media=NDJSON,
                errors=_ERRORS,
            ),
        ]

    async def _show(self, call: Call) -> dict[str, Any]:
        asked: DeadLettersQuery = call.query
        wish = Wish(limit=asked.limit, topic=asked.topic, key=asked.key, everything=asked.all)
        return await self._desk.show(call.path["group"], wish)

    async def _find(self, call: Call) -> dict[str, Any]:
        return await self._desk.find(call.path["group"], call.query.dead_letter)

    async def _export(self, call: Call) -> Pieces:
        asked: ExportQuery = call.query
        wish = Wish(limit=asked.count, topic=asked.topic, key=asked.key, everything=asked.all)
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
