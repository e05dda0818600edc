"""Whether anybody is there for a group at this proxy, and whether somebody waits in vain."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.clock import now_ns
from proxy.core.flow_window import Budget
from proxy.core.starvation import Starvation


@dataclass(slots=True, eq=False)
class Presence:
    """``leases`` are those of the group that live; ``delivers_itself``: the proxy is the client;
    ``joined``: it takes part in the group.
    """

    leases: Budget
    waiting_pulls: int = 0  # kept by the lane
    delivers_itself: bool = False  # kept by downstream
    joined: bool = False  # kept by upstream
    starvation: Starvation = field(default_factory=Starvation)
    _last_seen_ns: int = 0

    def seen(self) -> None:
        """A client of the group pulled, acked or extended."""
        self._last_seen_ns = now_ns()

    @property
    def seen_ago_s(self) -> float | None:
        """How long ago a client was here; 0 while a pull waits, None: never, or it stood still."""
        if self.waiting_pulls:
            return 0.0
        return (now_ns() - self._last_seen_ns) / 1e9 if self._last_seen_ns else None

    def wanted(self, *, leave_after_s: float) -> bool:
        """True while a pull waits, a lease lives, or a client was here lately; and always if the
        proxy is the client.
        """
        if self.delivers_itself or self.waiting_pulls or self.leases.used:
            return True
        return bool(self._last_seen_ns) and now_ns() - self._last_seen_ns < leave_after_s * 1e9

    def forget_clients(self) -> None:
        """The process stood still: who was here before may have gone elsewhere, and what it sent
        meanwhile says nothing. Pulls that still wait and leases count as before.
        """
        self._last_seen_ns = 0
