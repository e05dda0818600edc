"""What verbs on keys take and answer, as models.

A field with a ``Cli`` is an option of the command line, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from proxy.operator.asked import PLAIN_KEY, Answer, ChangeBody

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


@dataclass(frozen=True, slots=True)
class Cli:
    """An option of the command line. Of a flag, its name is the whole of it."""

    type: Any
    help: str
    minimum: int | None = None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class KeyBody(ChangeBody):
    """Which key."""

    key: Key

    @property
    def place(self) -> str | None:
        """The queue that is meant; None: any."""
        return None

    @property
    def only_looks(self) -> bool:
        """True if nothing is to be changed."""
        return False


class QueuedKeyBody(KeyBody):
    """Which key, and of which queue if it has messages in several."""

    queue: Queue = None

    @property
    def place(self) -> str | None:
        """The queue that is meant; None: any."""
        return self.queue


class SkipBody(QueuedKeyBody):
    """Which message."""

    offset: Annotated[
        Annotated[int, Field(ge=0, lt=2**63)] | None,
        BeforeValidator(_whole),  # JSON knows one kind of number: 17.0 is 17
        Field(description="where the key's first message has to stand, or none is skipped"),
        Cli(int | None, "only if the key's first message stands there", minimum=0),
    ] = None


class RetryBody(QueuedKeyBody):
    """Which key, and how its hand-outs are counted."""

    anew: Annotated[
        bool,
        Field(description="true or false: hand-outs so far count no longer"),
        Cli(bool, "its hand-outs so far count no more"),
    ] = False


class RedriveKeyBody(QueuedKeyBody):
    """Which key, and how fast."""

    rate: Rate = 0.0
    dry_run: DryRun = False

    @property
    def only_looks(self) -> bool:
        """True if nothing is to be changed."""
        return self.dry_run


class NoteBody(KeyBody):
    """Which key, and what is noted of it."""

    note: Annotated[
        str,
        Field(
            description="a note of one line and at most 500 characters; an empty one takes it away",
            max_length=500,
            pattern=r"^[^\x00-\x1f\x7f]*$",
        ),
        Cli(str, "one line, up to 500 characters; an empty one takes it away"),
    ]


class RedriveAllBody(ChangeBody):
    """How fast, and of which queue if not of all."""

    queue: Queue = None
    rate: Rate = 0.0
    dry_run: DryRun = False


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
    note: str
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


class NoteView(Answer):
    """Where it is noted now: the queues of this proxy that have the key paused or parked.
    ``owners``, ``unowned`` and ``unaddressed``: as of a pause.
    """

    group: str
    topic: str | None
    key: str | None
    note: str
    queues: list[str]
    owners: list[str]
    unowned: list[str]
    unaddressed: list[str]
