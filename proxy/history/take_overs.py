"""N7: a take-over waits for leases that were granted, never for waits of owners before."""

from __future__ import annotations

from proxy.history.facts import LaneFacts
from proxy.history.limits import NS, ns
from proxy.history.reader import Event

#: Trust of an owner that does not tell it, ms.
_TRUST_MS = 5000


class TakeOvers:
    """Waits at the beginning of the periods of one queue and group. *origin*: where the waits are
    those of the queue whose parked messages this one holds. *former*: those in the life before, of
    which leases may be alive when the next one begins.
    """

    def __init__(
        self, facts: LaneFacts, *, origin: TakeOvers | None, former: TakeOvers | None = None
    ) -> None:
        self._facts = facts
        self._origin = origin
        self.longest_ms: int = 0 if former is None else former.longest_ms
        """Longest lease granted so far, as far as the histories say."""
        self.trust_ms: int = 0 if former is None else former.trust_ms

    def own(self, event: Event) -> None:
        """A period began; its owner says until when it waits."""
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
        """Leases are of this length from now on."""
        self.longest_ms = max(self.longest_ms, event.get("visibility_ms") or 0)

    def extended(self, event: Event) -> None:
        """A lease runs on."""
        self.longest_ms = max(self.longest_ms, event.get("ms") or 0)
