"""What operators do with single keys: look at them, pause, skip, retry, park, redrive."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from proxy.admin.operations import LOOKS, OWNED, Call, Operation, get, post
from proxy.operator.asked import PLAIN_KEY, Answer, Asked, ChangeBody
from proxy.operator.key_desk import KeyDesk, KeyWish

_PLACE = "/api/groups/{group}/topics/{topic}/keys"
#: Messages a second: less is none at all, more is no limit at all.
_LEAST, _MOST = 0.001, 1_000_000

_NoLimit = Annotated[float, Field(ge=0, le=0)]
Rate = Annotated[
    _NoLimit | Annotated[float, Field(ge=_LEAST, le=_MOST)],
    Field(description=f"messages a second, from {_LEAST} to {_MOST:,}, or 0 for no limit"),
]
DryRun = Annotated[bool, Field(description="true or false: only count, change nothing")]
Key = Annotated[str, Field(description="the order key, a text", max_length=65536), PLAIN_KEY]
Queue = Annotated[
    str | None,
    Field(description="the queue that is meant, such as broker-a_0", max_length=255),
]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class KeyBody(ChangeBody):
    """Which key."""

    key: Key


class QueuedKeyBody(KeyBody):
    """Which key, and of which queue if it has messages in several."""

    queue: Queue = None


class SkipBody(QueuedKeyBody):
    """Which message."""

    offset: Annotated[
        Annotated[int, Field(ge=0, lt=2**63)] | None,
        BeforeValidator(_whole),  # JSON knows one kind of number: 17.0 is 17
        Field(description="where the key's first message has to stand, or none is skipped"),
    ] = None


class RetryBody(QueuedKeyBody):
    """Which key, and how its hand-outs are counted."""

    anew: Annotated[bool, Field(description="true or false: hand-outs so far count no longer")] = (
        False
    )


class RedriveKeyBody(QueuedKeyBody):
    """Which key, and how fast."""

    rate: Rate = 0.0
    dry_run: DryRun = False


class RedriveAllBody(ChangeBody):
    """How fast, and of which queue if not of all."""

    queue: Queue = None
    rate: Rate = 0.0
    dry_run: DryRun = False


class RedrivenQueue(Answer):
    """Keys of a queue that are redriven now, and how many copies of their messages there are."""

    queue: str
    keys: list[str]
    copies: int


class RedriveAllView(Answer):
    """What is redriven now in the queues that this proxy owns; ``owners`` are where the proxies can
    be asked that own others.
    """

    group: str
    topic: str
    queues: list[RedrivenQueue]
    owners: list[str]


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


class KeyRow(Answer):
    """A key of a queue. ``offset`` is its first unfinished message (among the parked copies, if it
    is parked), ``age_ms`` since that was stored, ``backlog`` all of them, ``copies`` those parked,
    ``spilled`` those held as offsets alone; ``overdue``: leased for longer than one lease.
    """

    key: str
    topic: str
    queue: str
    state: str
    paused: bool
    offset: int | None
    age_ms: int | None
    backlog: int
    copies: int
    spilled: int
    attempts: int
    holder: str | None
    lease: int | None
    lease_ends_ms: int | None
    overdue: bool
    retry_ms: int | None
    last_error: str
    by: str
    reason: str
    not_copied: int
    redriven_by: str


class PauseView(Answer):
    """Where it is paused or resumed now: the queues that this proxy owns. ``owners`` are where the
    proxies can be asked that own others; nobody owns those in ``unowned``, and the owners of those
    in ``unaddressed`` left no address. Neither is paused or resumed.
    """

    group: str
    topic: str | None
    key: str | None
    paused: bool
    queues: list[str]
    owners: list[str]
    unowned: list[str]
    unaddressed: list[str]


class KeySurface:
    """``GET …/keys/parked``, and ``POST …/keys/VERB`` with an object that names the key."""

    def __init__(self, desk: KeyDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """What it serves."""
        parked = get(
            f"{_PLACE}/parked",
            "The parked keys of the queues that this proxy owns.",
            self._parked,
            answer=list[ParkedKeyView],
            errors=LOOKS,
        )
        desk = self._desk
        redrive_all = post(
            f"{_PLACE}/redrive-all",
            "Hand out what is parked of all keys, each in order.",
            self._redrive_all,
            body=RedriveAllBody,
            answer=RedriveAllView,
            errors=OWNED,
        )
        return [
            parked,
            redrive_all,
            self._verb("park", KeyBody, "Park a key: its messages wait in the parked topic."),
            self._verb("redrive", RedriveKeyBody, "Hand out what is parked of a key, in order."),
            self._verb("stop", QueuedKeyBody, "Redrive a key no longer: the rest stays parked."),
            self._verb("skip", SkipBody, "Give up the first message of a key."),
            self._verb("retry", RetryBody, "Hand the first message of a key out at once."),
            self._everywhere("pause", desk.pause, "Hand nothing of a key out, in any queue."),
            self._everywhere("resume", desk.resume, "Hand a paused key out again."),
        ]

    def _verb(self, verb: str, body: type[Asked], summary: str) -> Operation:
        act = partial(self._act, verb)
        return post(f"{_PLACE}/{verb}", summary, act, body=body, answer=KeyRow, errors=OWNED)

    def _everywhere(self, verb: str, do: Any, summary: str) -> Operation:
        act = partial(self._pause, do)
        return post(f"{_PLACE}/{verb}", summary, act, body=KeyBody, answer=PauseView, errors=OWNED)

    async def _parked(self, call: Call) -> list[dict[str, Any]]:
        return self._desk.parked(call.path["group"], call.path["topic"])

    async def _act(self, verb: str, call: Call) -> dict[str, Any]:
        asked = call.body.model_dump(exclude={"by", "reason"})
        wish = KeyWish(**asked, by=call.by, reason=call.body.reason)
        return await self._desk.act(call.path["group"], call.path["topic"], verb, wish)

    async def _redrive_all(self, call: Call) -> dict[str, Any]:
        asked = call.body.model_dump(exclude={"by", "reason"})
        return await self._desk.redrive_all(
            call.path["group"], call.path["topic"], by=call.by, reason=call.body.reason, **asked
        )

    async def _pause(self, do: Any, call: Call) -> dict[str, Any]:
        done: dict[str, Any] = await do(
            call.path["group"], call.path["topic"], call.body.key, **call.why
        )
        return done
