"""Order of sends: one send of a sharding key at a time, in the order of the calls. Pure.

1. A turn is in the lane of each of its keys; it may go once it is first in all of them.
2. A turn enters all its lanes at once, so turns never wait for each other in a circle.
3. When a key's send fails, later turns of that lane are cancelled: otherwise they would overtake
   the failed message if its caller sends it again.
4. A lane without turns uses no memory.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Turn:
    """One send's place in the lanes.

    It may go without the messages of the keys in ``overtaken``, of which an earlier send failed.
    """

    keys: set[Hashable]
    overtaken: set[Hashable] = field(default_factory=set)
    ahead: int = 0  # lanes in which others are before it

    @property
    def may_go(self) -> bool:
        """True if no other turn is before it in any lane."""
        return not self.ahead


class SendLanes:
    """The lanes of all keys. Owned by one task or event loop. A key's lane is found in O(1)."""

    def __init__(self) -> None:
        # Turns in order; a dict, so that one in the middle can leave in O(1).
        self._lanes: dict[Hashable, dict[Turn, None]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def enter(self, keys: Iterable[Hashable]) -> Turn:
        """Enter the lanes of *keys*, after all earlier turns."""
        turn = Turn(set(keys))
        for key in turn.keys:
            lane = self._lanes.setdefault(key, {})
            turn.ahead += bool(lane)
            lane[turn] = None
        return turn

    def leave(self, turn: Turn, *, failed: Collection[Hashable] = ()) -> list[Turn]:
        """End *turn*, whether it went or not; return the turns that may go now.

        *failed*: its keys of which a message was not stored. O(turns after it) for those.
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
    """Remove all turns after *turn* from the lane of *key*."""
    turns = list(lane)
    behind = turns[turns.index(turn) + 1 :]
    for each in behind:
        del lane[each]
        each.overtaken.add(key)
    return behind
