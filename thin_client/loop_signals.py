"""SIGTERM and SIGINT in an event loop, for consumers that drain on them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

#: What the signals stop in each loop. A loop has one handler of a signal, for all its consumers.
_stops: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* in the running loop on SIGTERM and SIGINT. In a thread other than the main one,
    or on a platform without signal handlers of loops, do nothing.
    """
    loop = asyncio.get_running_loop()
    stops = _stops.setdefault(loop, [])
    stops.append(stop)
    handled = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only the main thread may set signal handlers; in others the owner calls stop().
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, _stop_all, stops)
            handled.append(number)
    try:
        yield
    finally:
        stops.remove(stop)
        if not stops:
            del _stops[loop]
            for number in handled:
                loop.remove_signal_handler(number)


def _stop_all(stops: list[Callable[[], None]]) -> None:
    for stop in list(stops):
        stop()
