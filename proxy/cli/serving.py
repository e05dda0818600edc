"""Running something until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from proxy.history.record import History, HistoryWriter, NullHistory

#: What a shell reports for a process that SIGTERM ended; the second signal ends it so.
_STOPPED_AT_ONCE = 128 + signal.SIGTERM


def serve(start: Callable[[], Coroutine[Any, Any, Callable[[], Awaitable[None]]]]) -> None:
    """Run *start* and, at SIGTERM or SIGINT, what it returned; a second signal stops at once."""
    uvloop.run(_serve(start))


async def _serve(start: Callable[[], Coroutine[Any, Any, Callable[[], Awaitable[None]]]]) -> None:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(_STOPPED_AT_ONCE)
        stop.set()

    close = await start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await stop.wait()
    await close()


def open_history(directory: Path | None, kind: str, *, parts: tuple[str, ...] = ()) -> History:
    """A history of this process in *directory*, None for none. Raises OrderlaneError."""
    if directory is None:
        return NullHistory()
    return HistoryWriter(directory, f"{kind}-{os.getpid()}", parts=parts)
