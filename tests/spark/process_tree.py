"""A process and what it started, to be killed together: Java would else outlive its driver a while,
and end in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """*pid* and the processes below it, parents first."""
    found = [pid]
    for each in found:  # grows meanwhile
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def kill_tree(pid: int) -> None:
    """``kill -9`` to all of them: none has a say. They are stopped first, so that none starts more
    or ends in order meanwhile.
    """
    tree = descendants(pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
