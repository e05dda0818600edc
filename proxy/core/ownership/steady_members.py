"""Members that count when queues are shared out. Pure."""

from __future__ import annotations

from collections.abc import Collection

#: In large groups a new member waits longer, for each existing member; and the longest wait.
_EACH_NS = 20_000_000
_LONGEST_NS = 10_000_000_000


class SteadyMembers:
    """A new member counts once present for *settle_ns* without a gap; a departed one no longer
    counts.

    Otherwise a member with an unstable link would make all others give up and take back queues each
    time. Each time that a member begins to count, up to half of all queues move. So in a large
    group the first new member waits longer, and those who joined after it and have stayed count
    with it. The wait does not extend to the last one: members that check at different times would
    disagree for long. Members of the first check count at once.

    In a large group a new member also watches for as long before it requests anything: the others
    keep their queues until they count it, and if all start at the same time, the first would take
    queues that it soon must hand over.
    """

    def __init__(self, *, settle_ns: int) -> None:
        self._settle_ns = settle_ns
        self._since: dict[str, int] = {}  # members that do not count yet, with their first time
        self._counted: set[str] | None = None
        self._watches_until_ns = 0

    def counted(self, members: Collection[str], *, own: str, now_ns: int) -> list[str]:
        """Return the *members* that count now; *own* always does. O(members)."""
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
        """Return True if this member is too new in a large group to request anything."""
        return now_ns < self._watches_until_ns

    @property
    def settled(self) -> bool:
        """True if all members of the last check count."""
        return not self._since

    def _admit(self, window_ns: int, now_ns: int) -> None:
        counted = self._counted
        if counted is None or now_ns - min(self._since.values(), default=now_ns) < window_ns:
            return
        counted.update(each for each, at in self._since.items() if now_ns - at >= self._settle_ns)
        self._since = {each: at for each, at in self._since.items() if each not in counted}
