"""Whose turn it is to send: one send of a sharding key at a time, in the order of asking. Pure.

1. A turn stands in the lane of each of its keys; it may go once it is first in all of them.
2. Turns enter all their lanes at once, so no two of them wait for each other.
3. When a key's send fails, those that queue behind it in that lane do not go any more: were one
   stored, whoever sends the failed one again would find it overtaken.
4. A lane without turns takes no memory.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Turn:
    """One send's place. ``overtaken`` are the keys of which an earlier send failed: it may go, but
    without their messages.
    """

    keys: set[Hashable]
    overtaken: set[Hashable] = field(default_factory=set)
    ahead: int = 0  # lanes in which others stand before it

    @property
    def may_go(self) -> bool:
        """True if nothing is before it in any lane."""
        return not self.ahead


class SendLanes:
    """Owned by one task or event loop. A key's lane is found in O(1)."""

    def __init__(self) -> None:
        # Turns in their order; a dict, so that one can leave from the middle in O(1).
        self._lanes: dict[Hashable, dict[Turn, None]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def enter(self, keys: Iterable[Hashable]) -> Turn:
        """Queue up for *keys*, behind all who are there."""
        turn = Turn(set(keys))
        for key in turn.keys:
            lane = self._lanes.setdefault(key, {})
            turn.ahead += bool(lane)
            lane[turn] = None
        return turn

    def leave(self, turn: Turn, *, failed: Collection[Hashable] = ()) -> list[Turn]:
        """End *turn*, whether it went or not; return those that may go now.

        *failed*: its keys of which a message was not stored. O(turns behind it) for those.
        """
        freed: list[Turn] = []
        for key in turn.keys - turn.overtaken:
            lane = self._lanes[key]
            was_first = next(iter(lane)) is turn
            if key in failed:
                freed += _cut_behind(lane, turn, key)
            del lane[turn]
            if not lane:
                del self._lanes[key]
            elif was_first:
                freed.append(next(iter(lane)))
        for each in freed:
            each.ahead -= 1
        return list(dict.fromkeys(each for each in freed if each.may_go))


def _cut_behind(lane: dict[Turn, None], turn: Turn, key: Hashable) -> list[Turn]:
    """Take all turns behind *turn* out of the lane of *key*."""
    turns = list(lane)
    behind = turns[turns.index(turn) + 1 :]
    for each in behind:
        del lane[each]
        each.overtaken.add(key)
    return behind
