"""When a process that serves looks for garbage that refers to itself."""

from __future__ import annotations

import asyncio
import gc
import sys

from broker_core.clock import now_ns

#: Allocations between two looks at young objects; the interpreter's 700 are meant for scripts. In a
#: busy proxy tens of thousands come and go with the answers, and nearly none of them is garbage.
_YOUNG = 20_000
#: After so many looks at young objects, one at what they left: few, so that none takes long.
_MIDDLE = 4
#: Never by count: the interpreter takes this as a number of looks at middle-aged objects.
_NEVER = 1_000_000_000
#: A full look at so many blocks of memory takes some 50 ms. With no more it may be once a minute;
#: with more, a backlog is there, which is hardly ever garbage, and will be gone some time.
_FEW_BLOCKS = 1_000_000
_REST_S, _LONGEST_REST_S = 60.0, 3600.0


def look_at_young_objects_only() -> None:
    """From now on a full look at all objects is nobody's but ``look_now_and_then``'s.

    A proxy may hold millions of objects for what it has read ahead. The interpreter looks at all of
    them whenever a quarter more are there, for up to a second, in which no client is answered and
    no lock renewed; while much is read that is once in a few seconds. What is loaded now is never
    looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)


async def look_now_and_then(*, rest_s: float = _REST_S) -> None:
    """Every *rest_s* seconds, look at all objects if it is time to."""
    at_first = sys.getallocatedblocks()
    looked_ns = now_ns()
    while True:
        await asyncio.sleep(rest_s)
        rested_s = (now_ns() - looked_ns) / 1e9
        if is_time(rested_s, blocks=sys.getallocatedblocks() - at_first):
            gc.collect()
            looked_ns = now_ns()


def is_time(rested_s: float, *, blocks: int) -> bool:
    """Whether to look at all objects, *rested_s* seconds after the last time, with so many *blocks*
    of memory in use beside those of the start.
    """
    return blocks <= _FEW_BLOCKS or rested_s >= _LONGEST_REST_S
