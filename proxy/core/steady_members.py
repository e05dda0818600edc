"""Who counts as a member when queues are shared out. Pure."""

from __future__ import annotations

from collections.abc import Collection


class SteadyMembers:
    """Who joins counts once it was there for *settle_ns* without a gap; who leaves counts no more.

    A member whose link to the broker comes and goes would else make all the others give queues up
    and take them again with each turn. Those of the first look count at once.
    """

    def __init__(self, *, settle_ns: int) -> None:
        self._settle_ns = settle_ns
        self._since: dict[str, int] | None = None  # when each began to be there; 0: at first

    def counted(self, members: Collection[str], *, own: str, now_ns: int) -> list[str]:
        """Those of *members* who count now; *own* always does. O(members)."""
        first = self._since is None
        before = self._since or {}
        self._since = {each: before.get(each, 0 if first else now_ns) for each in members}
        return [each for each in members if each == own or self._counts(each, now_ns)]

    def settled(self, *, now_ns: int) -> bool:
        """True if nobody is there who does not count yet."""
        return all(self._counts(each, now_ns) for each in self._since or ())

    def _counts(self, member: str, now_ns: int) -> bool:
        since = (self._since or {})[member]
        return since == 0 or now_ns - since >= self._settle_ns
