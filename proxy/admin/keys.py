"""What operators do with single keys: which are parked, park, redrive, stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import LOOKS, OWNED, Actor, Answer, Asked, Call, Operation, get, post
from proxy.upstream.key_desk import KeyDesk

_PLACE = "/api/groups/{group}/topics/{topic}/keys"
#: Messages a second: more is no limit at all.
_MOST = 1_000_000

Rate = Annotated[
    float,
    Field(description=f"messages a second, from 0 (no limit) to {_MOST:,}", ge=0, le=_MOST),
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


def key_operations(desk: KeyDesk) -> list[Operation]:
    """``GET …/keys/parked``, and ``POST …/keys/VERB`` with a JSON object that names the key."""

    async def parked(call: Call) -> list[dict[str, Any]]:
        return desk.parked(call.path["group"], call.path["topic"])

    def act(verb: str) -> Callable[[Call], Awaitable[dict[str, Any]]]:
        async def handle(call: Call) -> dict[str, Any]:
            asked: KeyBody = call.body
            return await desk.act(
                call.path["group"],
                call.path["topic"],
                verb,
                asked.key,
                by=call.by,
                reason=asked.reason,
                dry_run=asked.dry_run,
                rate=asked.rate,
            )

        return handle

    def verb(name: str, summary: str) -> Operation:
        return post(
            f"{_PLACE}/{name}",
            summary,
            act(name),
            body=KeyBody,
            answer=ParkedKeyView,
            errors=OWNED,
        )

    return [
        get(
            f"{_PLACE}/parked",
            "The parked keys of the queues that this proxy owns.",
            parked,
            answer=list[ParkedKeyView],
            errors=LOOKS,
        ),
        verb("park", "Park a key: its messages wait in the parked topic, in order."),
        verb("redrive", "Hand out what is parked of a key, in order."),
        verb("stop", "Redrive a key no longer: the rest of it stays parked."),
    ]
