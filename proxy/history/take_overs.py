"""N7: a take-over waits for granted leases, never for waits of earlier owners."""

from __future__ import annotations

from proxy.history.facts import LaneFacts
from proxy.history.limits import NS, ns
from proxy.history.reader import Event

#: Trust of an owner whose ``own+`` does not contain it, ms.
_TRUST_MS = 5000


class TakeOvers:
    """Waits at the beginning of the periods of one queue and group.

    *origin*: the queue whose parked messages this one holds; its waits apply here too. *former*:
    the previous life, whose leases may be alive when the next one begins.
    """

    def __init__(
        self, facts: LaneFacts, *, origin: TakeOvers | None, former: TakeOvers | None = None
    ) -> None:
        self._facts = facts
        self._origin = origin
        self.longest_ms: int = 0 if former is None else former.longest_ms
        """Longest lease granted so far in the histories."""
        self.trust_ms: int = 0 if former is None else former.trust_ms

    def own(self, event: Event) -> None:
        """Begin a period and judge how long its owner waits."""
        self.rules(event)
        trust_ms = event.get("trust_ms")
        self.trust_ms = max(self.trust_ms, _TRUST_MS if trust_ms is None else trust_ms)
        hold_until_ns, asked_ns = event.get("hold_until_ns"), event.get("asked_ns")
        known = [self] if self._origin is None else [self, self._origin]
        longest_ms = max(each.longest_ms for each in known)
        if not hold_until_ns or not longest_ms:
            return
        waits_ns = hold_until_ns - (event["t_ns"] if asked_ns is None else asked_ns)
        trust_ms = max(each.trust_ms for each in known)
        limit_ns = (trust_ms + longest_ms) * 1_000_000
        if waits_ns > limit_ns + ns(self._facts.limits.early_s):
            self._facts.violation(
                "N7",
                f"{event.get('owner')} waits for {waits_ns / NS:.1f} s at the beginning of epoch"
                f" {event['epoch']}; no lease of the queue was longer than {longest_ms / 1000:.1f}"
                f" s, and a lock is trusted for {trust_ms / 1000:.1f} s",
            )

    def rules(self, event: Event) -> None:
        """Note the length of leases from now on."""
        self.longest_ms = max(self.longest_ms, event.get("visibility_ms") or 0)

    def extended(self, event: Event) -> None:
        """Note the extension of a lease."""
        self.longest_ms = max(self.longest_ms, event.get("ms") or 0)
