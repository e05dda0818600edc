"""What a proxy keeps of a message that is not finished, by the growth of its resident memory."""

from __future__ import annotations

import time

from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.peer import Figures
from bench.load.stage import Stage, stage, wait_until_read
from bench.site import ProxyProcess

_BODY_BYTES = 256
#: A proxy gives freed memory back every ten seconds.
_SETTLED_S = 12
#: Longer than any run: what a handler holds is not given to another one.
_HELD_S = 3_600


def _unfinished(context: RunContext, _point: Point) -> Figures:
    """Messages of many keys in memory, one of them with a handler that does not come to its end."""
    messages = context.size("unfinished")
    with context.brokers() as brokers, context.site(brokers) as site:
        place = stage(site)
        # With more keys more would be ready than a queue is read ahead for.
        keys = min(messages // 10, 8_000)
        held = _grown(place, messages, keys=keys, in_memory=8 * messages, connections=1)
        return {**held, "beyond_body": held["bytes"] - _BODY_BYTES}


def _spilled(context: RunContext, _point: Point) -> Figures:
    """Messages of one key behind its first, which does not come to its end."""
    with context.brokers() as brokers, context.site(brokers) as site:
        place = stage(site)
        held = _grown(*(place, context.size("spilled")), keys=1, in_memory=20_000, connections=4)
        return {**held, "beyond_body": held["bytes"]}


def _grown(
    place: Stage, messages: int, *, keys: int, in_memory: int, connections: int
) -> dict[str, float]:
    """The growth for *messages* more, once a quarter as many are there: what is there in any case,
    and what is made once, does not count.
    """
    first = messages // 4
    place.preload(first, keys=keys, body_bytes=_BODY_BYTES)
    group = place.group(visibility_timeout_s=_HELD_S, max_jobs_in_memory=in_memory)
    proxy = place.proxy({"groups": [group], "ownership": {"leave_after_s": _HELD_S}})
    work_ms = _HELD_S * 1000
    consumer = place.puller(proxy, connections=connections, batch=1, work_ms=work_ms)
    consumer.wait_for(1)
    wait_until_read(proxy)
    before = _resident(proxy)
    place.preload(messages, keys=keys, body_bytes=_BODY_BYTES)
    wait_until_read(proxy)
    grown = _resident(proxy) - before
    consumer.child.kill()
    return {"bytes": grown / messages, "resident_mb": _resident(proxy) / 1e6, "count": messages}


def _resident(proxy: ProxyProcess) -> int:
    """Once what was freed on the way went back to the system."""
    time.sleep(_SETTLED_S)
    return proxy.usage().resident_bytes


CASES = (
    Case(
        name="memory",
        title="Memory",
        question="How much memory does a message take while it is not finished?",
        about="The growth of the proxy's resident memory for so many messages more, after a quarter"
        " as many. *unfinished*: messages of 256 bytes and of many keys that nobody takes, all in"
        " memory, eight queues; *spilled*: messages of one key behind its first one, which a"
        " handler holds. *Beyond the body*: without the 256 bytes of a body that is held. It is"
        f" looked at {_SETTLED_S} s after the last read, since a proxy gives freed memory back"
        " every ten.",
        point="message",
        points=("unfinished", "spilled"),
        arms={
            "proxy": lambda context, point: (_unfinished if point == "unfinished" else _spilled)(
                context, point
            )
        },
        columns=(
            Column("count", "messages"),
            Column("bytes", "bytes each", digits=1),
            Column("beyond_body", "beyond the body", digits=1),
            Column("resident_mb", "resident MB"),
        ),
        short=Shape(rounds=3, sizes={"unfinished": 100_000, "spilled": 400_000}),
        full=Shape(rounds=5, sizes={"unfinished": 400_000, "spilled": 2_000_000}, limit_s=900),
        histories="none",
    ),
)
