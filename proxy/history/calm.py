"""When faults were at work: timed invariants are judged only while there are none."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Calm:
    """Faults that the histories tell of. Times are ns."""

    settle_ns: int
    _at_work: set[tuple[str, str]] = field(default_factory=set)
    _since: int = 0

    @property
    def since(self) -> int | None:
        """Since when nothing disturbs; None while a fault is at work. It may be in the future."""
        return None if self._at_work else self._since

    def begin(self, what: str, target: str) -> None:
        """A fault sets in."""
        self._at_work.add((what, target))

    def end(self, what: str, target: str, *, t_ns: int) -> None:
        """It is over, its consequences are not yet."""
        self._at_work.discard((what, target))
        self.disturbed(t_ns)

    def disturbed(self, t_ns: int) -> None:
        """Something happened that takes its time, such as the restart of a broker."""
        self._since = max(self._since, t_ns + self.settle_ns)

    def during(self, begin_ns: int) -> bool:
        """True if nothing has disturbed since *begin_ns*."""
        since = self.since
        return since is not None and since <= begin_ns
