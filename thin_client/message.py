"""One message in the application's hands, and what may become of it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from thin_client.clock import now_ns


class Retry(Exception):
    """Raised by a handler: give me this message again.

    *after_s* seconds from now; None (default): after the group's next retry interval. Its order
    key waits meanwhile. Any other exception means the same as ``Retry()``.
    """

    def __init__(self, after_s: float | None = None) -> None:
        if after_s is not None and not after_s >= 0:
            raise ValueError(f"after_s is {after_s}: it should be 0 or more seconds")
        self.after_s = after_s
        super().__init__("retry" if after_s is None else f"retry after {after_s} s")


class Reject(Exception):
    """Raised by a handler: no retry will help; the group's failure policy applies at once."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "rejected")


class Defer(Exception):
    """Raised by a handler: given back unhandled, at once and without counting an attempt."""


_log = logging.getLogger("orderlane")

#: How a message's scope or handler ended: None is success, else what it raised.
Outcome = BaseException | None


def outcome_name(outcome: Outcome) -> str:
    """``ok``, ``reject``, ``defer``, or ``retry`` for every other exception."""
    if outcome is None:
        return "ok"
    if isinstance(outcome, Reject):
        return "reject"
    return "defer" if isinstance(outcome, Defer) else "retry"


def log_failure(message: Message, outcome: Outcome) -> None:
    """Tell people of what no handler says on purpose."""
    if outcome is not None and not isinstance(outcome, Retry | Reject | Defer):
        _log.error("handling %s failed; it will be retried", message, exc_info=outcome)


@dataclass(slots=True, eq=False)
class Message:
    """One delivery of one message.

    As a context (``with`` or ``async with``) it is acked when the scope ends. An exception that
    ends the scope means retry, unless it is a Reject or a Defer; it is logged and goes no further,
    so that one bad message does not end the loop around it. Interrupts and cancellation give the
    message back and do go on.
    """

    topic: str
    #: Name of the queue's period of ownership, such as ``broker-a_3#1``; opaque.
    queue: str
    #: Place in its queue, in messages.
    offset: int
    body: bytes
    #: The producer's message key; None if it gave none.
    key: str | None
    #: The value by which the message keeps its order; None if it is in no order.
    order_key: bytes | None
    tag: str | None
    properties: dict[str, str]
    #: Which hand-out this is, 1 for the first.
    attempt: int
    #: Milliseconds since 1970, by the producer's clock; None if unknown.
    born_at_ms: int | None
    #: Unique, the same over redeliveries and a producer's retries: for de-duplication.
    message_id: str | None
    lease_id: int
    #: When the lease ends unless extended, on ``thin_client.clock.now_ns``.
    deadline_ns: int
    #: True once the proxy has said that someone else may get the message: stop if you can.
    lease_lost: bool = False
    _settle: Callable[[Message, Outcome], None] | None = field(default=None, repr=False)
    _entered: object = field(default=None, repr=False)  # by whom: a thread's number, or a task

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue} at offset {self.offset} (attempt {self.attempt})"

    @property
    def born_at(self) -> datetime | None:
        """When the producer made it, in UTC; None if unknown."""
        if self.born_at_ms is None:
            return None
        return datetime.fromtimestamp(self.born_at_ms / 1000, UTC)

    @property
    def traceparent(self) -> str | None:
        """The trace that its producer was in, as W3C writes it; None if it said none."""
        return self.properties.get("traceparent")

    @property
    def seconds_left(self) -> float:
        """Until the lease ends unless extended; negative if that has passed."""
        return (self.deadline_ns - now_ns()) / 1e9

    def json(self) -> Any:
        """The body, read as JSON. Raises ValueError that names the message if it is none."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ValueError(f"the body of {self} is no JSON: {error}") from error

    def hold_until(self, deadline_ns: int) -> None:
        """Note when the lease ends, on ``now_ns``. Caller: consumers and the puller."""
        self.deadline_ns = deadline_ns

    def lose(self) -> None:
        """Note that the lease is lost. Caller: consumers and the puller."""
        self.lease_lost = True

    def attach(self, settle: Callable[[Message, Outcome], None]) -> None:
        """Make the message a context whose end calls *settle*. Caller: the iterators."""
        self._settle = settle

    @property
    def unentered(self) -> bool:
        """True if it came out of an iterator, and its scope was not entered yet."""
        return self._settle is not None and not self._entered

    @property
    def entered_by(self) -> object:
        """The thread, by its number, or the task that entered its scope; None: neither did."""
        return self._entered

    def detach(self) -> bool:
        """True if its scope was never entered, and now cannot be. Caller: the iterators."""
        unentered, self._settle = self.unentered, None
        return unentered

    def __enter__(self) -> Self:
        self._enter(threading.get_ident())
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
            raise RuntimeError(f"{self} cannot be entered: it was before, or belongs to a handler")
        self._entered = who


class NotSettled(RuntimeError):
    """For one who asks an iterator for the next message, and has not settled *message*: the next
    one of its key would never come. No message's scope keeps it from the loop.
    """

    def __init__(self, message: Message, form: str) -> None:
        super().__init__(
            f"{message} is not settled: handle it inside '{form} message:', and leave that, before"
            " asking for the next message"
        )
