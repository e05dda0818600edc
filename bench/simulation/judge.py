"""Sees every lock that is trusted and every queue that is served: are there ever two?

It also measures: how often queues moved, how long each stood still.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.names import QueueName


@dataclass(slots=True)
class _Queue:
    trusts: str = ""  # who trusts its lock
    trusted_until_ns: int = 0
    serves: str = ""  # who hands its messages out
    served_until_ns: int = 0
    epoch: int = -1


@dataclass(slots=True)
class Findings:
    """Of one scenario. *gaps_ns*: how long queues stood still, one each time."""

    since_ns: int
    moves: int = 0
    last_move_ns: int = 0
    gaps_ns: list[int] = field(default_factory=list)


class Judge:
    """One of a whole run. ``faults`` are sentences; a sound run has none."""

    def __init__(self, queues: list[QueueName]) -> None:
        self.faults: list[str] = []
        self.findings = Findings(0)
        self._queues = {queue: _Queue() for queue in queues}

    def begin(self, now_ns: int) -> None:
        """Another scenario begins."""
        self.findings = Findings(now_ns, last_move_ns=now_ns)

    def trusted(self, queue: QueueName, who: str, *, until_ns: int, now_ns: int) -> None:
        """*who* was granted the lock, or again."""
        known = self._queues[queue]
        if known.trusts == who:
            if until_ns > known.trusted_until_ns:
                known.trusted_until_ns = until_ns
            return
        if known.trusted_until_ns > now_ns:
            self._fault(f"{who} and {known.trusts} both trust the lock of {queue}", now_ns)
        known.trusts, known.trusted_until_ns = who, until_ns

    def served(self, queue: QueueName, who: str, *, until_ns: int, now_ns: int) -> None:
        """*who* may hand out from now on, or go on to, until then."""
        known = self._queues[queue]
        if known.served_until_ns < now_ns:
            self.findings.gaps_ns.append(
                now_ns - max(known.served_until_ns, self.findings.since_ns)
            )
        if known.serves == who:
            known.served_until_ns = max(known.served_until_ns, until_ns)
            return
        if known.served_until_ns > now_ns:
            self._fault(f"{who} and {known.serves} both hand out messages of {queue}", now_ns)
        known.serves, known.served_until_ns = who, until_ns
        self.findings.moves += 1
        self.findings.last_move_ns = now_ns

    def period(self, queue: QueueName, epoch: int, now_ns: int) -> None:
        """An ownership period begins."""
        known = self._queues[queue]
        if epoch <= known.epoch:
            self._fault(f"{queue} had epoch {known.epoch}, and now {epoch}", now_ns)
        known.epoch = epoch

    def stopped(self, queue: QueueName, who: str, now_ns: int) -> None:
        """*who* hands out nothing more."""
        known = self._queues[queue]
        if known.serves == who:
            known.served_until_ns = min(known.served_until_ns, now_ns)

    def gave_up(self, queue: QueueName, who: str, now_ns: int) -> None:
        """*who* counts on the lock no more, and serves nothing by it."""
        known = self._queues[queue]
        self.stopped(queue, who, now_ns)
        if known.trusts == who:
            known.trusted_until_ns = min(known.trusted_until_ns, now_ns)

    def unserved(self, now_ns: int) -> int:
        """How many queues nobody hands out now. O(queues)."""
        return sum(each.served_until_ns <= now_ns for each in self._queues.values())

    def _fault(self, what: str, now_ns: int) -> None:
        self.faults.append(f"at {now_ns / 1e9:.3f} s: {what}")
