"""Case ``memory``: memory that a proxy uses per unfinished message, from its resident memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.frame.case import Case, Column, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.load.stage import Stage, stage, wait_until_read
from bench.site import ProxyProcess

_BODY_BYTES = 256
#: A proxy returns freed memory to the system every ten seconds.
_SETTLED_S = 12
#: Longer than any run, so that the held message is not redelivered.
_HELD_S = 3_600


@dataclass(frozen=True)
class _Kept:
    """A proxy of its own, with a number of unfinished messages."""

    place: Stage
    messages: int
    keys: int
    in_memory: int
    connections: int

    def begin(self) -> ProxyProcess:
        """Start the proxy with a quarter of the messages, so that fixed and one-time costs do not
        count. One of them stays in a handler that never returns.
        """
        self._store(self.messages // 4)
        group = self.place.group(visibility_timeout_s=_HELD_S, max_jobs_in_memory=self.in_memory)
        settings = {"groups": [group], "ownership": {"leave_after_s": _HELD_S}}
        proxy = self.place.proxy(settings, cold=True)
        work_ms = _HELD_S * 1000
        self.place.puller(proxy, connections=self.connections, batch=1, work_ms=work_ms).wait_for(1)
        wait_until_read(proxy)
        return proxy

    def fill(self, proxy: ProxyProcess) -> None:
        """Store the remaining messages."""
        self._store(self.messages)
        wait_until_read(proxy)

    def _store(self, messages: int) -> None:
        self.place.preload(messages, keys=self.keys, body_bytes=_BODY_BYTES)


def _memory(context: RunContext, _point: Point) -> Figures:
    """Measure the growth of two proxies side by side; time is not a figure here."""
    unfinished, spilled = context.size("unfinished"), context.size("spilled")
    with (
        context.brokers() as brokers,
        context.site(brokers, "unfinished") as many_keys,
        context.site(brokers, "spilled") as one_key,
    ):
        # With more keys, more jobs would be ready than a queue reads ahead.
        keys = min(unfinished // 10, 8_000)
        both = (
            _Kept(stage(many_keys), unfinished, keys, 8 * unfinished, connections=1),
            _Kept(stage(one_key), spilled, 1, 20_000, connections=4),
        )
        proxies = [each.begin() for each in both]
        before = _resident(proxies)
        for each, proxy in zip(both, proxies, strict=True):
            each.fill(proxy)
        after = _resident(proxies)
    grown, grown_spilled = (late - early for late, early in zip(after, before, strict=True))
    return {
        "unfinished": unfinished,
        "bytes": grown / unfinished,
        "beyond_body": grown / unfinished - _BODY_BYTES,
        "resident_mb": after[0] / 1e6,
        "spilled": spilled,
        "spilled_bytes": grown_spilled / spilled,
    }


def _resident(proxies: Sequence[ProxyProcess]) -> list[int]:
    """Return the resident memory after temporary memory was returned to the system."""
    time.sleep(_SETTLED_S)
    return [proxy.usage().resident_bytes for proxy in proxies]


CASES = (
    Case(
        name="memory",
        title="Memory",
        question="How much memory does an unfinished message take?",
        about="Growth of the proxy's resident memory for the given number of additional messages,"
        " after a quarter as many. *unfinished*: messages of 256 bytes and many keys that no"
        " client takes, all in memory, eight queues; *spilled*: messages of one key behind"
        " its first one, which a handler holds. *Beyond the body*: without the 256 bytes of"
        f" a body in memory. Measured {_SETTLED_S} s after the last read, because a proxy"
        " releases freed memory every ten.",
        point="message",
        points=("256 bytes",),
        arms={"proxy": _memory},
        columns=(
            Column("unfinished", "unfinished"),
            Column("bytes", "bytes each", digits=1),
            Column("beyond_body", "beyond the body", digits=1),
            Column("resident_mb", "resident MB"),
            Column("spilled", "spilled"),
            Column("spilled_bytes", "bytes each spilled", digits=1),
        ),
        short=Shape(rounds=3, sizes={"unfinished": 30_000, "spilled": 100_000}),
        full=Shape(rounds=5, sizes={"unfinished": 400_000, "spilled": 2_000_000}, limit_s=900),
        histories="none",
    ),
)
