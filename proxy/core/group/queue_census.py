"""How many queues there are, where proxies may not see the same at the same moment. Pure.

Shares of a limit add up to no more than the whole only if all proxies divide by the same number. A
route spreads within ``AGREE_NS``; until then the caution is on the side of the limit: added queues
make the shares of the others smaller at once and have none themselves, and queues that are gone
are divided by still. Those of the first look count at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from broker_core.names import QueueName

#: Proxies refresh their routes every 30 s, and look at them every 5 s.
AGREE_NS = 40_000_000_000


@dataclass(slots=True)
class QueueCensus:
    """The queues that share one limit."""

    _since_ns: dict[QueueName, int] = field(default_factory=dict)  # from when each has a share
    _gone_ns: dict[QueueName, int] = field(default_factory=dict)  # until when it is counted still

    def look(self, queues: Collection[QueueName], *, now_ns: int) -> bool:
        """There are these; True if that is something new. O(queues)."""
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
        """By how many the limit is divided; 0 if that is not known yet."""
        self._forget(now_ns)
        return len(self._since_ns)

    def has_share(self, queue: QueueName, now_ns: int) -> bool:
        """True once all proxies must know of *queue*."""
        since_ns = self._since_ns.get(queue)
        return since_ns is not None and since_ns <= now_ns

    def next_change_ns(self, now_ns: int) -> int | None:
        """When the above changes by itself. O(queues)."""
        times = (*self._since_ns.values(), *self._gone_ns.values())
        return min((each for each in times if each > now_ns), default=None)

    def _forget(self, now_ns: int) -> None:
        for queue in [each for each, until_ns in self._gone_ns.items() if until_ns <= now_ns]:
            del self._gone_ns[queue], self._since_ns[queue]
