"""Running a server until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from broker_core.private_files import forbid_others
from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.allocator import give_back_now_and_then, keep_freed_memory
from proxy.cli.descriptors import allow_more_descriptors
from proxy.cli.garbage import look_at_young_objects_only, look_now_and_then
from proxy.cli.output import print_json
from proxy.history.record import History, HistoryWriter, NullHistory

#: Exit code after a second signal: the one shells report for SIGTERM.
STOPPED_AT_ONCE = 128 + signal.SIGTERM


def print_ready(addresses: dict[str, Any]) -> None:
    """Print the ready line."""
    print_json({"ready": True, **addresses})


def serve(
    running: AbstractAsyncContextManager[dict[str, Any]],
    *,
    announce: Callable[[dict[str, Any]], None] = print_ready,
    drains_at: Collection[signal.Signals] = (),
) -> None:
    """Enter *running*, *announce* its result, and leave it at SIGTERM or SIGINT.

    Leaving drains; a second signal stops immediately. Signals *drains_at* have it drain, too, and
    do not count.
    """
    forbid_others()
    allow_more_descriptors()
    keep_freed_memory()
    look_at_young_objects_only()
    uvloop.run(_serve(running, announce, drains_at))


async def _serve(
    running: AbstractAsyncContextManager[dict[str, Any]],
    announce: Callable[[dict[str, Any]], None],
    drains_at: Collection[signal.Signals],
) -> None:
    stop = asyncio.Event()
    signals = count(1)

    def on_signal() -> None:
        if next(signals) > 1:
            os._exit(STOPPED_AT_ONCE)
        stop.set()

    async with running as addresses:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        for number in drains_at:
            loop.add_signal_handler(number, stop.set)
        looking = spawn(look_now_and_then(), name="look for garbage")
        giving = spawn(give_back_now_and_then(), name="give memory back")
        announce(addresses)
        await stop.wait()
        await cancel_and_wait(looking, giving)


def open_history(directory: Path | None, kind: str, *, parts: tuple[str, ...] = ()) -> History:
    """Open a history in *directory*; None for no history. Raises OrderlaneError."""
    if directory is None:
        return NullHistory()
    return HistoryWriter(directory, f"{kind}-{os.getpid()}", parts=parts)
