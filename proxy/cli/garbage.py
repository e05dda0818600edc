"""Garbage collection of reference cycles in server processes."""

from __future__ import annotations

import asyncio
import gc
import sys

from broker_core.clock import now_ns

#: Allocations between two collections of young objects. The interpreter's default of 700 suits
#: scripts; a busy proxy allocates tens of thousands of objects per response, hardly any in cycles.
_YOUNG = 20_000
#: Young collections per middle collection; few, so that each is short.
_MIDDLE = 4
#: Middle collections per full collection: effectively never.
_NEVER = 1_000_000_000
#: A full collection with this many memory blocks takes about 50 ms and may run once per minute.
#: With more blocks, messages are buffered, which are hardly ever garbage: it waits for an hour.
_FEW_BLOCKS = 1_000_000
_REST_S, _LONGEST_REST_S = 60.0, 3600.0


def look_at_young_objects_only() -> None:
    """Leave full collections to ``look_now_and_then``, and exempt all objects loaded so far.

    A proxy may hold millions of objects for messages read ahead. The interpreter would scan all of
    them each time their number grows by a quarter: up to a second, every few seconds, in which no
    client is answered and no lock is renewed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)


async def look_now_and_then(*, rest_s: float = _REST_S) -> None:
    """Check every *rest_s* seconds whether a full collection is due, and run it."""
    at_first = sys.getallocatedblocks()
    looked_ns = now_ns()
    while True:
        await asyncio.sleep(rest_s)
        rested_s = (now_ns() - looked_ns) / 1e9
        if is_time(rested_s, blocks=sys.getallocatedblocks() - at_first):
            gc.collect()
            looked_ns = now_ns()


def is_time(rested_s: float, *, blocks: int) -> bool:
    """Return whether a full collection is due.

    *rested_s* is the time since the last one, *blocks* the memory blocks allocated since the start.
    """
    return blocks <= _FEW_BLOCKS or rested_s >= _LONGEST_REST_S
