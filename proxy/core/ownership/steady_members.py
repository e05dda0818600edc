"""Who counts as a member when queues are shared out. Pure."""

from __future__ import annotations

from collections.abc import Collection

#: In large groups who joined waits longer, for each member that there is; and the longest.
_EACH_NS = 20_000_000
_LONGEST_NS = 10_000_000_000


class SteadyMembers:
    """Who joins counts once it was there for *settle_ns* without a gap; who leaves counts no more.

    A member whose link to the broker comes and goes would else make all the others give queues up
    and take them again with each turn. Each time that somebody begins to count, up to half of all
    queues change hands: so in a large group the first who joins waits longer, and those who joined
    after it and have stayed count with it. Nobody waits for the last: members that do not look at
    the same moment would long not agree. Those of the first look count at once.

    In a large group whoever joined watches for as long itself, before it asks for anything: the
    others keep their queues until they count it, and where all begin at the same time, the first
    would take what they soon have to give to the next.
    """

    def __init__(self, *, settle_ns: int) -> None:
        self._settle_ns = settle_ns
        self._since: dict[str, int] = {}  # who does not count yet, and since when it is there
        self._counted: set[str] | None = None
        self._watches_until_ns = 0

    def counted(self, members: Collection[str], *, own: str, now_ns: int) -> list[str]:
        """Those of *members* who count now; *own* always does. O(members)."""
        window_ns = max(self._settle_ns, min(len(members) * _EACH_NS, _LONGEST_NS))
        if self._counted is None:
            self._counted = set(members)
            self._watches_until_ns = now_ns + window_ns if window_ns > self._settle_ns else 0
        self._counted.intersection_update(members)
        before = self._since
        self._since = {
            each: before.get(each, now_ns) for each in members if each not in self._counted
        }
        self._admit(window_ns, now_ns)
        return [each for each in members if each == own or each in self._counted]

    def watches(self, now_ns: int) -> bool:
        """True if this member is too new in a large group to ask for anything."""
        return now_ns < self._watches_until_ns

    @property
    def settled(self) -> bool:
        """True if by the last look nobody is there who does not count yet."""
        return not self._since

    def _admit(self, window_ns: int, now_ns: int) -> None:
        counted = self._counted
        if counted is None or now_ns - min(self._since.values(), default=now_ns) < window_ns:
            return
        counted.update(each for each, at in self._since.items() if now_ns - at >= self._settle_ns)
        self._since = {each: at for each, at in self._since.items() if each not in counted}
