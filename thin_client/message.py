"""A delivered message, and the verdicts on it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from thin_client.arguments import check_seconds
from thin_client.clock import now_ns
from thin_client.key_hash import key_text


class Retry(Exception):
    """Raise it in a handler to have the message delivered again; its order key waits.

    *after_s*: seconds until then; None (default): the group's next retry interval. Any other
    exception means the same as ``Retry()``.
    """

    after_s: float | None = None  # of a subclass that does not call __init__

    def __init__(self, after_s: float | None = None) -> None:
        if after_s is not None:
            check_seconds("after_s", after_s)
        self.after_s = after_s
        super().__init__("retry" if after_s is None else f"retry after {after_s} s")


class Reject(Exception):
    """Raise it in a handler if no retry can succeed: the group's failure policy applies at once.

    *reason* is shown to operators; of an exception or another object, its text is.
    """

    reason: object = ""  # of a subclass that does not call __init__

    def __init__(self, reason: object = "") -> None:
        self.reason = reason
        super().__init__(reason or "rejected")


class Defer(Exception):
    """Raise it in a handler to return the message unhandled, without counting an attempt."""


_log = logging.getLogger("orderlane")

#: Result of a message's scope or handler: None for success, else the exception.
Outcome = BaseException | None


def outcome_name(outcome: Outcome) -> str:
    """Return ``ok``, ``reject``, ``defer``, or ``retry`` for every other exception."""
    if outcome is None:
        return "ok"
    if isinstance(outcome, Reject):
        return "reject"
    return "defer" if isinstance(outcome, Defer) else "retry"


def log_failure(message: Message, outcome: Outcome, *, group: str) -> None:
    """Log an exception that is not a deliberate verdict.

    The record has the message's *group*, topic, queue, offset, key and attempt as attributes, for
    structured logs.
    """
    if outcome is None or isinstance(outcome, Retry | Reject | Defer):
        return
    key = message.order_key if message.key is None else message.key
    about = {
        "group": group,
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "key": key,
        "attempt": message.attempt,
    }
    text = "group %s, key %r: handling %s failed; it will be retried"
    _log.warning(text, group, key, message, exc_info=outcome, extra=about)


class Settled:
    """Result of ``Message.ack`` and the like: the verdict is recorded, so awaiting never waits."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


@dataclass(slots=True, eq=False)
class Message:
    """One delivery of one message.

    As a context manager (``with`` or ``async with``) it acks the message when the scope ends. An
    exception in the scope means retry, unless it is a Reject or Defer; it is logged and suppressed,
    so that one bad message does not end the loop. Interrupts and cancellation return the message
    and propagate.

    Instead of a scope, ``ack``, ``nack`` or ``reject`` settle a message of an iterator, once.
    """

    topic: str
    #: Name of the queue's period of ownership, such as ``broker-a_3#1``; opaque.
    queue: str
    #: Offset in its queue.
    offset: int
    body: bytes
    #: The producer's message key; None if there is none.
    key: str | None
    #: The order key's bytes; None if the message has no order.
    order_key_bytes: bytes | None
    tag: str | None
    properties: dict[str, str]
    #: Number of this delivery, 1 for the first.
    attempt: int
    #: Milliseconds since 1970, by the producer's clock; None if unknown.
    born_at_ms: int | None
    #: Unique ID for deduplication, the same for redeliveries and a producer's retries.
    message_id: str | None
    lease_id: int
    #: End of the lease unless extended, by ``thin_client.clock.now_ns``.
    deadline_ns: int
    #: True once the lease is lost: another client may receive the message, so stop if possible.
    lease_lost: bool = False
    _settle: Callable[[Message, Outcome], None] | None = field(default=None, repr=False)
    _entered: object = field(default=None, repr=False)  # thread ID or task that entered the scope

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue} at offset {self.offset} (attempt {self.attempt})"

    @property
    def order_key(self) -> str | None:
        """The order key, as ``orderlane key show`` accepts it; None if the message has no order.

        It is ``0x`` and hex digits if its bytes are not UTF-8.
        """
        return None if self.order_key_bytes is None else key_text(self.order_key_bytes)

    @property
    def born_at(self) -> datetime | None:
        """Time of creation by the producer's clock, in UTC; None if unknown, or if what the
        producer wrote is outside the years 1 to 9999.
        """
        if self.born_at_ms is None:
            return None
        try:
            return datetime.fromtimestamp(self.born_at_ms / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            return None

    @property
    def traceparent(self) -> str | None:
        """The producer's trace context (W3C ``traceparent``); None if there is none."""
        return self.properties.get("traceparent")

    @property
    def seconds_left(self) -> float:
        """Seconds until the lease ends unless extended; negative if it has ended."""
        return (self.deadline_ns - now_ns()) / 1e9

    def json(self) -> Any:
        """Parse the body as JSON. Raises a ValueError that names the message if it is invalid."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ValueError(f"the body of {self} is not valid JSON: {error}") from error

    def hold_until(self, deadline_ns: int) -> None:
        """Set the end of the lease, by ``now_ns``. Called by consumers and the puller."""
        self.deadline_ns = deadline_ns

    def lose(self) -> None:
        """Record that the lease is lost. Called by consumers and the puller."""
        self.lease_lost = True

    def attach(self, settle: Callable[[Message, Outcome], None]) -> None:
        """Make the message a context manager whose end calls *settle*. Called by iterators."""
        self._settle = settle

    def ack(self) -> Settled:
        """Settle the message as handled; ``await`` the result or ignore it.

        Without a scope of the message only: raises RuntimeError inside its ``with``, after another
        verdict, and for a message that no iterator returned, such as a handler's.
        """
        return self._settle_as(None, "ack")

    def nack(self, after_s: float | None = None) -> Settled:
        """Have the message delivered again after *after_s* seconds, None: the group's next retry
        interval.

        Otherwise as ``ack``; also raises ValueError for a negative *after_s*.
        """
        return self._settle_as(Retry(after_s), "nack")

    def reject(self, reason: object = "") -> Settled:
        """Apply the group's failure policy at once; otherwise as ``ack``."""
        return self._settle_as(Reject(reason), "reject")

    def _settle_as(self, outcome: Outcome, form: str) -> Settled:
        if self._settle is None or self._entered is not None:
            raise RuntimeError(
                f"{self} cannot be settled by {form}(): use it once, on an iterator's message, and"
                " outside of 'with message:'"
            )
        settle, self._settle = self._settle, None
        settle(self, outcome)
        return Settled()

    @property
    def unentered(self) -> bool:
        """True if an iterator returned it and its scope has not been entered."""
        return self._settle is not None and not self._entered

    @property
    def entered_by(self) -> object:
        """ID of the thread, or the task, that entered its scope; None if it was not entered."""
        return self._entered

    def detach(self) -> bool:
        """Prevent entering its scope; return True if it was not entered. Called by iterators."""
        unentered, self._settle = self.unentered, None
        return unentered

    def __enter__(self) -> Self:
        self._enter(_task_or_thread())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        settle, self._settle = self._settle, None
        if settle is None:
            return False
        interrupted = error is not None and not isinstance(error, Exception)
        settle(self, Defer() if interrupted else error)
        return error is not None and not interrupted and not isinstance(error, NotSettled)

    async def __aenter__(self) -> Self:
        self._enter(asyncio.current_task())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self.__exit__(kind, error, trace)

    def _enter(self, who: object) -> None:
        if self._settle is None or self._entered is not None:
            raise RuntimeError(
                f"{self} cannot be entered: use 'with' once, and only on an iterator's message"
            )
        self._entered = who


def _task_or_thread() -> object:
    """Return the current task, or the ID of a thread without one."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:  # no event loop runs in this thread
        return threading.get_ident()


class NotSettled(RuntimeError):
    """The next message was requested while *message* was not settled.

    The next message of its key would never arrive. Scopes of messages do not suppress this error.
    """

    def __init__(self, message: Message, form: str) -> None:
        super().__init__(
            f"{message} is not settled: handle it inside '{form} message:', and leave that scope"
            " before requesting the next message, or call its ack(), nack() or reject()"
        )
