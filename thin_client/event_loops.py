"""The event loop of an asyncio client: another one would not be woken by its answers."""

from __future__ import annotations

import asyncio


def is_elsewhere(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the caller runs outside of *loop*: in another one, or in a plain thread."""
    try:
        return asyncio.get_running_loop() is not loop
    except RuntimeError:
        return True
