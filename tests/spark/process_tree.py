"""Kill a process with its children; Java would otherwise outlive its driver and exit cleanly."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return *pid* and its descendants, parents first."""
    found = [pid]
    for each in found:  # may grow meanwhile
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def kill_tree(pid: int) -> None:
    """Send ``kill -9`` to all of them. They are stopped first, so that none starts another or exits
    cleanly in the meantime.
    """
    tree = descendants(pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
