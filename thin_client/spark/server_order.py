"""The order in which a process of Spark tries the proxies. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

#: Time for which a proxy that failed is tried after the others.
REMEMBERED_S = 60.0


@dataclass(slots=True)
class KnownFailures:
    """The proxies that did not answer this process lately, by address."""

    _failed_s: dict[str, float] = field(default_factory=dict)

    def failed(self, server: str, now_s: float) -> None:
        """Note that *server* did not answer."""
        self._failed_s[server] = now_s

    def answered(self, server: str) -> None:
        """Note that *server* answered."""
        self._failed_s.pop(server, None)

    def order(self, servers: Sequence[str], now_s: float, *, turn: int = 0) -> tuple[str, ...]:
        """Return *servers*, rotated by *turn*, and behind them those that failed, the earliest
        failure first.
        """
        failed = {
            server: at_s
            for server in servers
            if (at_s := self._failed_s.get(server)) is not None and now_s - at_s < REMEMBERED_S
        }
        there = [server for server in servers if server not in failed]
        first = turn % len(there) if there else 0
        return (*there[first:], *there[:first], *sorted(failed, key=failed.__getitem__))
