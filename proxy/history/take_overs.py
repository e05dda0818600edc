"""N7: a take-over waits for leases that may be alive, never for waits of earlier owners."""

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

    An owner waits for the leases of the period before its own, and for longer ones of earlier
    periods. Its records no longer name those once they have ended, so they count only if they may
    have been alive when the period before began.
    """

    def __init__(
        self, facts: LaneFacts, *, origin: TakeOvers | None, former: TakeOvers | None = None
    ) -> None:
        self._facts = facts
        self._origin = origin
        self.longest_ms: int = 0 if former is None else former.longest_ms
        """Longest lease of this period, and of those of earlier periods that may be alive."""
        self.trust_ms: int = 0 if former is None else former.trust_ms
        # Of earlier periods: the longest lease, and by when it has ended.
        self._earlier: list[tuple[int, int]] = [] if former is None else former.earlier()
        self._period_ms = 0
        self.awaited_ms = 0
        """Longest lease for which this period's owner may have waited; copies wait as long."""

    def earlier(self) -> list[tuple[int, int]]:
        """Return the longest leases of earlier periods, ms, and by when they have ended, ns."""
        return list(self._earlier)

    def own(self, event: Event) -> None:
        """Begin a period and judge how long its owner waits."""
        ended_ms, self._period_ms = self._period_ms, 0
        self.rules(event)
        trust_ms = event.get("trust_ms")
        self.trust_ms = max(self.trust_ms, _TRUST_MS if trust_ms is None else trust_ms)
        hold_until_ns, asked_ns = event.get("hold_until_ns"), event.get("asked_ns")
        known = [self] if self._origin is None else [self, self._origin]
        longest_ms = max(each.longest_ms for each in known)
        if self._origin is not None:  # which has begun its period before
            longest_ms = max(longest_ms, self._origin.awaited_ms)
        self.awaited_ms = longest_ms
        self._begin(event["t_ns"], ended_ms)
        if not hold_until_ns or not longest_ms or self._facts.records_damaged:
            return
        waits_ns = hold_until_ns - (event["t_ns"] if asked_ns is None else asked_ns)
        trust_ms = max(each.trust_ms for each in known)
        limit_ns = (trust_ms + longest_ms) * 1_000_000
        if waits_ns > limit_ns + ns(self._facts.limits.take_over_s):
            self._facts.violation(
                "N7",
                f"{event.get('owner')} waits for {waits_ns / NS:.1f} s at the beginning of epoch"
                f" {event['epoch']}; no lease of the queue was longer than {longest_ms / 1000:.1f}"
                f" s, and a lock is trusted for {trust_ms / 1000:.1f} s",
            )

    def _begin(self, now_ns: int, ended_ms: int) -> None:
        """Forget leases that ended before *now_ns*, when a period of leases of up to *ended_ms*
        ends.
        """
        until_ns = now_ns + (self.trust_ms + ended_ms) * 1_000_000
        alive = [each for each in self._earlier if each[1] >= now_ns]
        self._earlier = [*alive, (ended_ms, until_ns)] if ended_ms else alive
        self.longest_ms = max((self._period_ms, *(ms for ms, _ in self._earlier)))

    def rules(self, event: Event) -> None:
        """Note the length of leases from now on, or from the ownership record on that names it: the
        next owner may read that record although its owner never got the answer.
        """
        self._lasts(max(event.get("visibility_ms") or 0, event.get("raising_to_ms") or 0))

    def extended(self, event: Event) -> None:
        """Note the extension of a lease."""
        self._lasts(event.get("ms") or 0)

    def _lasts(self, ms: int) -> None:
        self._period_ms = max(self._period_ms, ms)
        self.longest_ms = max(self.longest_ms, ms)
