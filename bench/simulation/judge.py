"""Checks every trusted lock and served queue for two owners at a time.

It also measures the number of moves, and the time that each queue stood still.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.names import QueueName


@dataclass(slots=True)
class _Queue:
    trusts: str = ""  # process that trusts its lock
    trusted_until_ns: int = 0
    serves: str = ""  # process that delivers its messages
    served_until_ns: int = 0
    epoch: int = -1


@dataclass(slots=True)
class Findings:
    """Findings of one scenario. *gaps_ns*: times without an owner, one per gap."""

    since_ns: int
    moves: int = 0
    last_move_ns: int = 0
    gaps_ns: list[int] = field(default_factory=list)


class Judge:
    """The judge of a whole run. ``faults`` are sentences; a correct run has none."""

    def __init__(self, queues: list[QueueName]) -> None:
        self.faults: list[str] = []
        self.findings = Findings(0)
        self._queues = {queue: _Queue() for queue in queues}

    def begin(self, now_ns: int) -> None:
        """Start another scenario."""
        self.findings = Findings(now_ns, last_move_ns=now_ns)

    def trusted(self, queue: QueueName, who: str, *, until_ns: int, now_ns: int) -> None:
        """Note that the lock was granted to *who*, or renewed."""
        known = self._queues[queue]
        if known.trusts == who:
            if until_ns > known.trusted_until_ns:
                known.trusted_until_ns = until_ns
            return
        if known.trusted_until_ns > now_ns:
            self._fault(f"{who} and {known.trusts} both trust the lock of {queue}", now_ns)
        known.trusts, known.trusted_until_ns = who, until_ns

    def served(self, queue: QueueName, who: str, *, until_ns: int, now_ns: int) -> None:
        """Note that *who* may deliver, or continue, until then."""
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
        """Note the start of an ownership period."""
        known = self._queues[queue]
        if epoch <= known.epoch:
            self._fault(f"{queue} had epoch {known.epoch}, and now {epoch}", now_ns)
        known.epoch = epoch

    def stopped(self, queue: QueueName, who: str, now_ns: int) -> None:
        """Note that *who* delivers nothing more."""
        known = self._queues[queue]
        if known.serves == who:
            known.served_until_ns = min(known.served_until_ns, now_ns)

    def gave_up(self, queue: QueueName, who: str, now_ns: int) -> None:
        """Note that *who* no longer relies on the lock."""
        known = self._queues[queue]
        self.stopped(queue, who, now_ns)
        if known.trusts == who:
            known.trusted_until_ns = min(known.trusted_until_ns, now_ns)

    def unserved(self, now_ns: int) -> int:
        """Return the number of queues that no proxy delivers now. O(queues)."""
        return sum(each.served_until_ns <= now_ns for each in self._queues.values())

    def _fault(self, what: str, now_ns: int) -> None:
        self.faults.append(f"at {now_ns / 1e9:.3f} s: {what}")
