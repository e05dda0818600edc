"""The bulk readers of one group: who shares the queues, and who may move the positions. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

#: A reader not seen for so long has no share of the queues any more.
SEEN_NS = 30_000_000_000
#: For so long after its last ack nobody else may move the group's positions.
ACK_HOLD_NS = 60_000_000_000


@dataclass(slots=True)
class BulkReaders:
    """Readers by consumerId, in the order in which they were seen last."""

    _seen_ns: dict[str, int] = field(default_factory=dict)
    _acker: str | None = None
    _acked_ns: int = 0

    def present(self, consumer_id: str, now_ns: int) -> list[str]:
        """*consumer_id* is here now; all that were of late, it among them. O(1) but for those."""
        self._seen_ns.pop(consumer_id, None)
        self._seen_ns[consumer_id] = now_ns
        self.count(now_ns)
        return list(self._seen_ns)

    def count(self, now_ns: int) -> int:
        """How many were here of late; the others are forgotten."""
        while (
            self._seen_ns and now_ns - self._seen_ns[first := next(iter(self._seen_ns))] > SEEN_NS
        ):
            del self._seen_ns[first]
        return len(self._seen_ns)

    def may_ack(self, consumer_id: str, now_ns: int) -> bool:
        """True, and the hold is *consumer_id*'s from now on, if no other reader acked of late."""
        held = self._acker not in (None, consumer_id) and now_ns - self._acked_ns <= ACK_HOLD_NS
        if not held:
            self._acker, self._acked_ns = consumer_id, now_ns
        return not held
