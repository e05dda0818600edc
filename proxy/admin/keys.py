"""What operators do with single keys: which are parked, park, redrive, stop."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import LOOKS, OWNED, Actor, Answer, Asked, Call, Operation, get, post
from proxy.upstream.key_desk import KeyDesk

_PLACE = "/api/groups/{group}/topics/{topic}/keys"
#: Messages a second: less is none at all, more is no limit at all.
_LEAST, _MOST = 0.001, 1_000_000

_NoLimit = Annotated[float, Field(ge=0, le=0)]
Rate = Annotated[
    _NoLimit | Annotated[float, Field(ge=_LEAST, le=_MOST)],
    Field(description=f"messages a second, from {_LEAST} to {_MOST:,}, or 0 for no limit"),
]
DryRun = Annotated[bool, Field(description="true or false: only count, change nothing")]


class KeyBody(Asked):
    """Which key."""

    key: Annotated[str, Field(description="the order key, a text", max_length=65536)]
    by: Actor = None
    reason: Annotated[str, Field(description="why, for logs and histories", max_length=1000)] = ""
    dry_run: DryRun = False
    rate: Rate = 0.0


class ParkedKeyView(Answer):
    """A key of a queue; ``copies`` are those in the parked topic."""

    key: str
    topic: str
    queue: str
    state: str
    copies: int
    not_copied: int
    by: str
    reason: str
    redriven_by: str


class KeySurface:
    """``GET …/keys/parked``, and ``POST …/keys/VERB`` with an object that names the key."""

    def __init__(self, desk: KeyDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """What it serves."""
        return [
            get(
                f"{_PLACE}/parked",
                "The parked keys of the queues that this proxy owns.",
                self._parked,
                answer=list[ParkedKeyView],
                errors=LOOKS,
            ),
            self._verb("park", "Park a key: its messages wait in the parked topic, in order."),
            self._verb("redrive", "Hand out what is parked of a key, in order."),
            self._verb("stop", "Redrive a key no longer: the rest of it stays parked."),
        ]

    def _verb(self, verb: str, summary: str) -> Operation:
        return post(
            f"{_PLACE}/{verb}",
            summary,
            partial(self._act, verb),
            body=KeyBody,
            answer=ParkedKeyView,
            errors=OWNED,
        )

    async def _parked(self, call: Call) -> list[dict[str, Any]]:
        return self._desk.parked(call.path["group"], call.path["topic"])

    async def _act(self, verb: str, call: Call) -> dict[str, Any]:
        asked: KeyBody = call.body
        return await self._desk.act(
            call.path["group"],
            call.path["topic"],
            verb,
            asked.key,
            by=call.by,
            reason=asked.reason,
            dry_run=asked.dry_run,
            rate=asked.rate,
        )
