"""What a topic's last action is, where the proxy delivers itself: messages in, verdicts out.

Who leases, extends, settles and waits is ``self_delivery.py``; a deliverer sees one message at a
time, and several at once of distinct order keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from broker_core.names import Group, Topic


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to deliver one message; ``body`` is what the actions before made of it."""

    group: Group
    topic: Topic
    qid: str
    """Queue and ownership period, opaque: as thin clients get it."""
    queue: str
    """Where the message itself stands, such as ``broker-a_3``, also of one that was parked."""
    offset: int
    """Its offset there; of two messages of one order key the later one's is higher."""
    key: str | None
    """The message's own key, as its producer set it."""
    tag: str | None
    body: bytes
    properties: Mapping[str, str]
    """The application's own, without RocketMQ's."""
    message_id: str
    attempt: int
    """1 at the first delivery; attempts at a target that cannot be reached do not count."""
    order_key: bytes | None
    """What keeps its order; None if nothing does."""
    deadline_ns: int
    """By ``broker_core.clock.now_ns``: at it the attempt is cancelled, as failed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one attempt. ``acked``, or else failed for *reason*, which a person reads.

    ``retry_after_ms`` None: the topic's retry intervals. ``reject``: no retry, straight to
    ``on_exhausted``; for what fails for ever.
    """

    acked: bool
    reason: str = ""
    retry_after_ms: int | None = None
    reject: bool = False


#: It arrived.
ACKED = Verdict(acked=True)


def failed(reason: str, *, retry_after_ms: int | None = None, reject: bool = False) -> Verdict:
    """It did not, for *reason*."""
    return Verdict(acked=False, reason=reason, retry_after_ms=retry_after_ms, reject=reject)


class TargetDown(Exception):
    """The target takes no messages at all, whichever they are: refused, not logged in, loading.

    No message's fault: it is given back uncounted, and the topic pauses at this proxy, at first
    briefly, then longer; one message at a time tries whether the target is back. Never raise it
    for a target that a message names itself.
    """


class Pace(Protocol):
    """How fast a target takes messages: asked before they are leased, so that none waits in hand,
    where its time-out would run.
    """

    def take(self, wanted: int, now_ns: int) -> int:
        """How many of *wanted* attempts may begin now; so many are counted as begun."""

    def give_back(self, unused: int) -> None:
        """So many of those taken were not begun."""

    def wait_ns(self, now_ns: int) -> int:
        """How long ``take`` will give nothing, as things stand; 0 if it gives something now."""

    def is_slow(self, now_ns: int) -> bool:
        """True while it takes fewer messages, or none, by its own wish."""


class Deliverer(Protocol):
    """Delivers the messages of one topic of one group."""

    @property
    def pace(self) -> Pace | None:
        """Its target's pace; None: as fast as ``concurrency`` allows."""

    async def deliver(self, delivery: Delivery) -> Verdict:
        """One attempt. Any exception but TargetDown is a failure with its text as the reason.

        It is cancelled at its deadline, and as soon as its lease ended: another may have it then.
        """

    async def close(self) -> None:
        """Let connections go; no attempt is under way any more."""
