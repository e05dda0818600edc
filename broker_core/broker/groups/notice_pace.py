"""Pace of notices about changed members of a group. Pure; times are monotonic ns.

The first change is announced at once; of changes that follow soon only the last one. Each notified
member requests the list, so that a thousand members joining one by one would cause a notice to each
about each. The pause grows with the group; in a small one it is never noticeable.
"""

from __future__ import annotations

from broker_core.names import Group

#: The pause after a notice, per member; and the maximum.
_PAUSE_NS = 1_000_000
_LONGEST_NS = 1_000_000_000


class NoticePace:
    """The paces of all groups of one broker."""

    def __init__(self) -> None:
        self._next_ns: dict[Group, int] = {}  # earliest time of the next notice
        self._planned: set[Group] = set()

    def changed(self, group: Group, *, now_ns: int) -> int | None:
        """Return the time until members are to be notified; None if that is planned already."""
        if group in self._planned:
            return None
        self._planned.add(group)
        return max(0, self._next_ns.get(group, 0) - now_ns)

    def notified(self, group: Group, members: int, *, now_ns: int) -> None:
        """Record that *members* are notified now, as planned."""
        self._planned.discard(group)
        if members:
            self._next_ns[group] = now_ns + min(members * _PAUSE_NS, _LONGEST_NS)
        else:
            self._next_ns.pop(group, None)
