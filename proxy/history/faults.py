"""Times of active faults. Timed invariants are judged only while no fault is active."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Faults:
    """Faults recorded in the histories. Times are ns."""

    settle_ns: int
    _active: set[tuple[str, str]] = field(default_factory=set)
    _since: int = 0

    @property
    def calm_since(self) -> int | None:
        """Time since which no fault has been active; None during a fault. May be in the future."""
        return None if self._active else self._since

    def begin(self, what: str, target: str) -> None:
        """Note the start of a fault."""
        self._active.add((what, target))

    def end(self, what: str, target: str, *, t_ns: int) -> None:
        """Note the end of a fault; its consequences last until ``settle_ns`` later."""
        self._active.discard((what, target))
        self.disturbed(t_ns)

    def disturbed(self, t_ns: int) -> None:
        """Note a momentary fault, such as the restart of a broker."""
        self._since = max(self._since, t_ns + self.settle_ns)

    def none_since(self, begin_ns: int) -> bool:
        """Return True if no fault has been active since *begin_ns*."""
        since = self.calm_since
        return since is not None and since <= begin_ns
