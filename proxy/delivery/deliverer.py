"""The interface between the lane and a target: messages in, verdicts out.

``self_delivery.py`` leases, extends, settles and waits; a deliverer gets single messages,
concurrently only for distinct order keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from broker_core.names import Group, Topic


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to deliver one message; ``body`` is the result of the preceding actions."""

    group: Group
    topic: Topic
    qid: str
    """Queue and ownership period, opaque, as thin clients get it."""
    queue: str
    """Queue of the message itself, such as ``broker-a_3``, also for a parked message."""
    offset: int
    """Its offset in that queue; increases within an order key."""
    key: str | None
    """The message key set by its producer."""
    tag: str | None
    body: bytes
    properties: Mapping[str, str]
    """The application's properties, without RocketMQ's."""
    message_id: str
    attempt: int
    """1 at the first delivery; attempts with an unreachable target do not count."""
    order_key: bytes | None
    """The order key; None if the message is unordered."""
    deadline_ns: int
    """Time of ``broker_core.clock.now_ns`` at which the attempt is cancelled and counts as
    failed.
    """


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one attempt: ``acked``, or failed with a *reason* for people.

    ``retry_after_ms`` None: the topic's retry intervals. ``reject``: no retry, ``on_exhausted``
    applies at once; for permanent failures.
    """

    acked: bool
    reason: str = ""
    retry_after_ms: int | None = None
    reject: bool = False


#: The message was delivered.
ACKED = Verdict(acked=True)


def failed(reason: str, *, retry_after_ms: int | None = None, reject: bool = False) -> Verdict:
    """Return the verdict of a failed attempt."""
    return Verdict(acked=False, reason=reason, retry_after_ms=retry_after_ms, reject=reject)


class TargetDown(Exception):
    """The target accepts no messages at all: it refuses connections or logins, or is still loading.

    The message goes back uncounted, and the topic pauses at this proxy for increasing intervals;
    single messages probe the target. Never raise it for a target that a message names.
    """


class Pace(Protocol):
    """Rate at which a target accepts messages. It is checked before messages are leased, so that no
    lease times out while its message waits.
    """

    def take(self, wanted: int, now_ns: int) -> int:
        """Return how many of *wanted* attempts may begin now, and count them as begun."""

    def give_back(self, unused: int) -> None:
        """Return *unused* attempts that were taken but not begun."""

    def wait_ns(self, now_ns: int) -> int:
        """Return how long ``take`` will return 0, in ns; 0 if an attempt may begin now."""

    def is_slow(self, now_ns: int) -> bool:
        """Return whether the target asks for fewer messages, or none."""


class Deliverer(Protocol):
    """Delivers the messages of one topic of one group."""

    @property
    def pace(self) -> Pace | None:
        """The target's pace; None: limited only by ``concurrency``."""

    async def deliver(self, delivery: Delivery) -> Verdict:
        """Make one attempt. Any exception except TargetDown is a failure with its text as the
        reason.

        It is cancelled at its deadline, and as soon as its lease ends: another consumer may then
        have the message.
        """

    async def close(self) -> None:
        """Close the connections; no attempt is in progress."""
