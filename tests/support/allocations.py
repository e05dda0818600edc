"""Memory that code leaves allocated, measured by ``tracemalloc``."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def allocated_by(action: Callable[[], object]) -> int:
    """Return the bytes that are still allocated after *action*."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
