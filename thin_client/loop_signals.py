"""SIGTERM and SIGINT, on which consumers drain."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from thin_client import forks

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class FormerHandlers:
    """The handlers before a consumer's. They are back after it, and in a child process.

    With the consumer's, a signal to the child would not end it. It would stop the consumers of the
    parent, if they run in an event loop, which learns of signals through a socket that both share.
    """

    def __init__(self, handlers: Mapping[int, Any]) -> None:
        """*handlers* by signal; None: one that was not set by Python."""
        self._handlers = handlers
        forks.register(self)

    def forked(self) -> None:
        """Set them again, in a child process."""
        with contextlib.suppress(ValueError):  # not in a subinterpreter
            signal.set_wakeup_fd(-1)
            for number, handler in self._handlers.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remove those of *loop*, and set the former ones again, except what was a handler of a
        loop: only that loop knew it.
        """
        for number, handler in self._handlers.items():
            of_loops = signal.getsignal(number)
            loop.remove_signal_handler(number)
            if handler is not None and handler is not of_loops:
                signal.signal(number, handler)


@dataclass(slots=True)
class _Handled:
    """The consumers that the signals stop in a loop, which has one handler for all of them."""

    stops: list[Callable[[], None]] = field(default_factory=list)
    former: FormerHandlers | None = None


_loops: dict[asyncio.AbstractEventLoop, _Handled] = {}


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* in the running loop on SIGTERM and SIGINT. In a thread other than the main one,
    or on a platform without signal handlers of loops, do nothing.
    """
    loop = asyncio.get_running_loop()
    handled = _loops.setdefault(loop, _Handled())
    handled.stops.append(stop)
    if len(handled.stops) == 1:
        former: dict[int, Any] = {}
        for number in SIGNALS:
            # Only the main thread may set signal handlers; in others the owner calls stop().
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                handler = signal.getsignal(number)
                loop.add_signal_handler(number, _stop_all, handled.stops)
                former[number] = handler
        handled.former = FormerHandlers(former) if former else None
    try:
        yield
    finally:
        handled.stops.remove(stop)
        if not handled.stops:
            del _loops[loop]
            if handled.former is not None:
                handled.former.end(loop)


def _stop_all(stops: list[Callable[[], None]]) -> None:
    for stop in list(stops):
        stop()
