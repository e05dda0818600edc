"""When the members of a group are told that they have changed. Pure; times are monotonic ns.

A change is told at once. Of those that follow soon only the last is told: each member that hears of
one asks for the list, and where a thousand join one after the other, each is told of each. The
pause grows with the group, so that a small one never waits for anything that people notice.
"""

from __future__ import annotations

from broker_core.names import Group

#: The pause after a notice, for each member; and the longest.
_PAUSE_NS = 1_000_000
_LONGEST_NS = 1_000_000_000


class NoticePace:
    """Of all groups of one broker."""

    def __init__(self) -> None:
        self._next_ns: dict[Group, int] = {}  # not before then; for how many there were
        self._planned: set[Group] = set()

    def changed(self, group: Group, *, now_ns: int) -> int | None:
        """In how long to tell the members; None if that is planned already."""
        if group in self._planned:
            return None
        self._planned.add(group)
        return max(0, self._next_ns.get(group, 0) - now_ns)

    def told(self, group: Group, members: int, *, now_ns: int) -> None:
        """So many *members* are told now, as planned."""
        self._planned.discard(group)
        if members:
            self._next_ns[group] = now_ns + min(members * _PAUSE_NS, _LONGEST_NS)
        else:
            self._next_ns.pop(group, None)
