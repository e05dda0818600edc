"""Number of queues that share a limit, while proxies may see different routes. Pure.

Shares of a limit add up to at most the whole only if all proxies divide by the same number. A route
spreads within ``AGREE_NS``. Until then the count errs on the safe side: added queues reduce the
shares of the others at once but have none themselves, and removed queues are still counted. The
queues of the first look count at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from broker_core.names import QueueName

#: Proxies refresh their routes every 30 s, and check them every 5 s.
AGREE_NS = 40_000_000_000


@dataclass(slots=True)
class QueueCensus:
    """The queues that share one limit."""

    _since_ns: dict[QueueName, int] = field(
        default_factory=dict
    )  # when each begins to have a share
    _gone_ns: dict[QueueName, int] = field(default_factory=dict)  # until when removed ones count

    def look(self, queues: Collection[QueueName], *, now_ns: int) -> bool:
        """Set the current *queues*; return True if the count changed. O(queues)."""
        self._forget(now_ns)
        present, known = set(queues), self._since_ns.keys()
        if present == known and not self._gone_ns:
            return False
        since_ns = now_ns + AGREE_NS if known else now_ns
        for queue in present:
            self._gone_ns.pop(queue, None)
            self._since_ns.setdefault(queue, since_ns)
        for queue in known - present:
            self._gone_ns.setdefault(queue, now_ns + AGREE_NS)
        return True

    def total(self, now_ns: int) -> int:
        """Return the divisor of the limit; 0 if it is not known yet."""
        self._forget(now_ns)
        return len(self._since_ns)

    def has_share(self, queue: QueueName, now_ns: int) -> bool:
        """Return True once all proxies must know *queue*."""
        since_ns = self._since_ns.get(queue)
        return since_ns is not None and since_ns <= now_ns

    def next_change_ns(self, now_ns: int) -> int | None:
        """Return when the results above change without an event. O(queues)."""
        times = (*self._since_ns.values(), *self._gone_ns.values())
        return min((each for each in times if each > now_ns), default=None)

    def _forget(self, now_ns: int) -> None:
        for queue in [each for each, until_ns in self._gone_ns.items() if until_ns <= now_ns]:
            del self._gone_ns[queue], self._since_ns[queue]
