"""Chains, or queues by their chains, in order of length, the longest first. Pure.

Lengths of 0 and 1 are left out: then nothing waits behind, and age decides.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from sortedcontainers import SortedList

Member = TypeVar("Member", bound=Hashable)


class LongestFirst(Generic[Member]):
    """The length of each member. All operations are O(1) while other members have the same length,
    otherwise O(log of the number of lengths).
    """

    __slots__ = ("_lengths", "_members", "_of_length")

    def __init__(self) -> None:
        self._members: dict[Member, int] = {}
        # Members of each length, in the order in which they reached it.
        self._of_length: dict[int, dict[Member, None]] = {}
        self._lengths: SortedList[int] = SortedList()  # of ``_of_length``

    def __len__(self) -> int:
        return len(self._members)

    @property
    def longest(self) -> int:
        """The greatest length; 0 without any member."""
        return self._lengths[-1] if self._members else 0

    def put(self, member: Member, length: int) -> None:
        """Set the length of *member*, which is added if necessary, or removed below 2."""
        before = self._members.get(member, 0)
        if length == before:
            return
        if before:
            self._leave(member, before)
        if length <= 1:
            self._members.pop(member, None)
            return
        self._members[member] = length
        same = self._of_length.get(length)
        if same is None:
            same = self._of_length[length] = {}
            self._lengths.add(length)
        same[member] = None

    def remove(self, member: Member) -> None:
        """Remove *member*, if it is here."""
        if length := self._members.pop(member, 0):
            self._leave(member, length)

    def pop(self) -> Member | None:
        """Remove and return the longest member, of several the first one; None without any."""
        if not self._members:
            return None
        length = self._lengths[-1]
        member = next(iter(self._of_length[length]))
        del self._members[member]
        self._leave(member, length)
        return member

    def count_from(self, length: int, *, most: int) -> int:
        """Return the number of members of at least *length*, counted up to *most* or slightly
        more. O(most).
        """
        count = 0
        for each in reversed(self._lengths):
            if each < length or count >= most:
                break
            count += len(self._of_length[each])
        return count

    def _leave(self, member: Member, length: int) -> None:
        same = self._of_length[length]
        del same[member]
        if not same:
            del self._of_length[length]
            self._lengths.remove(length)
