"""Request and answer models of key verbs.

A field with a ``Cli`` is also an option of the command line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from proxy.operator.request_models import PLAIN_KEY, Answer, ChangeBody

#: Bounds of a rate limit, in messages per second.
_LEAST, _MOST = 0.001, 1_000_000

_NoLimit = Annotated[float, Field(ge=0, le=0)]
Rate = Annotated[
    _NoLimit | Annotated[float, Field(ge=_LEAST, le=_MOST)],
    Field(description=f"messages per second, from {_LEAST} to {_MOST:,}, or 0 for no limit"),
]
DryRun = Annotated[bool, Field(description="true or false: only show the effect, change nothing")]
Key = Annotated[str, Field(description="the order key, a string", max_length=65536), PLAIN_KEY]
Queue = Annotated[
    str | None,
    Field(description="a queue of the topic, such as broker-a_0", min_length=1, max_length=255),
]


@dataclass(frozen=True, slots=True)
class Cli:
    """An option of the command line."""

    type: Any
    help: str
    minimum: int | None = None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class KeyBody(ChangeBody):
    """Selects a key."""

    key: Key

    @property
    def place(self) -> str | None:
        """The requested queue; None for any."""
        return None

    @property
    def only_looks(self) -> bool:
        """True if nothing is changed."""
        return False


class QueuedKeyBody(KeyBody):
    """Selects a key, and a queue if the key has messages in several."""

    queue: Queue = None

    @property
    def place(self) -> str | None:
        """The requested queue; None for any."""
        return self.queue


class SkipBody(QueuedKeyBody):
    """Selects the message to skip."""

    offset: Annotated[
        Annotated[int, Field(ge=0, lt=2**63)] | None,
        BeforeValidator(_whole),  # JSON has one number type: 17.0 is 17
        Field(description="the required offset of the key's first message"),
        Cli(int | None, "skip only if the key's first message has this offset", minimum=0),
    ] = None


class RetryBody(QueuedKeyBody):
    """Selects a key, and whether to reset its delivery count."""

    anew: Annotated[
        bool,
        Field(description="true or false: reset the count of deliveries"),
        Cli(bool, "reset the message's count of deliveries"),
    ] = False


class RedriveKeyBody(QueuedKeyBody):
    """Selects a key and the rate."""

    rate: Rate = 0.0
    dry_run: DryRun = False

    @property
    def only_looks(self) -> bool:
        """True if nothing is changed."""
        return self.dry_run


class NoteBody(KeyBody):
    """Selects a key and gives its note."""

    note: Annotated[
        str,
        Field(
            description="a note of one line and at most 500 characters; empty to remove it",
            max_length=500,
            pattern=r"^[^\x00-\x1f\x7f]*$",
        ),
        Cli(str, "one line of at most 500 characters; empty to remove the note"),
    ]


class RedriveAllBody(ChangeBody):
    """Gives the rate, and optionally one queue."""

    queue: Queue = None
    rate: Rate = 0.0
    dry_run: DryRun = False


class KeyRow(Answer):
    """A key of a queue.

    ``offset`` is its first unfinished message (of the parked copies, if it is parked), ``age_ms``
    the time since that was stored. ``backlog`` counts unfinished messages, ``copies`` parked ones,
    ``spilled`` those held as offsets only. ``overdue``: leased for longer than one visibility
    timeout. Of a queue without an owner, paused and parked keys are known, but few of their
    messages: unknown counts are null.
    """

    key: str
    topic: str
    queue: str
    state: str
    paused: bool
    offset: int | None
    age_ms: int | None
    backlog: int | None
    copies: int | None
    spilled: int | None
    attempts: int | None
    holder: str | None
    lease: int | None
    lease_ends_ms: int | None
    overdue: bool
    retry_ms: int | None
    last_error: str
    by: str
    reason: str
    note: str
    not_copied: int | None
    redriven_by: str


class PauseView(Answer):
    """The queues of this proxy that were paused or resumed, and all others, which were not.

    ``owners``: addresses of proxies that own other queues; ``elsewhere``: these queues;
    ``unowned``: queues without an owner; ``unaddressed``: queues whose owners publish no address.
    """

    group: str
    topic: str | None
    key: str | None
    paused: bool
    queues: list[str]
    owners: list[str]
    elsewhere: list[str]
    unowned: list[str]
    unaddressed: list[str]


class NoteView(Answer):
    """The queues of this proxy that keep the note: those where the key is paused or parked.

    ``owners``, ``elsewhere``, ``unowned`` and ``unaddressed``: as in PauseView.
    """

    group: str
    topic: str | None
    key: str | None
    note: str
    queues: list[str]
    owners: list[str]
    elsewhere: list[str]
    unowned: list[str]
    unaddressed: list[str]


def events_in_order(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events of a key, oldest first. In the same millisecond, what people did (``queue`` is
    None) comes before what follows from it in a queue.
    """
    return sorted(events, key=lambda row: (int(row["at_ms"]), row["queue"] is not None))
