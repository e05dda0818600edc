"""The end of a log after a crash in the middle of a write: half a message, or garbage.

Only bytes behind the last whole message change: all before may have been acknowledged.
"""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

#: Length and magic number of a message or of the filler at the end of a segment.
_HEAD = struct.Struct(">iI")


def log_end(content: bytes) -> tuple[int, bytes]:
    """Return the end of a segment's last whole message, and that message."""
    at, last = 0, b""
    while at + _HEAD.size <= len(content):
        size, magic = _HEAD.unpack_from(content, at)
        if size <= 0 or magic == 0 or at + size > len(content):
            break
        last = content[at : at + size]
        at += size
    return at, last


def tear(commit_log: Path, seed: str) -> int:
    """Write a torn message behind the end of the log in the folder; return the bytes."""
    chooser = random.Random(seed)
    path = max(each for each in commit_log.iterdir() if each.name.isdigit())
    content = path.read_bytes()
    end, last = log_end(content)
    rubbish = chooser.randbytes(chooser.randint(1, 300))
    half = last[: chooser.randint(1, max(1, len(last) - 1))]
    torn = chooser.choice([half, rubbish, half + rubbish]) or rubbish
    torn = torn[: len(content) - end]
    with path.open("r+b") as file:
        file.seek(end)
        file.write(torn)
        os.fsync(file.fileno())
    return len(torn)
