"""Another order key for a queue while messages of it are unfinished. Pure.

Messages below the switch, the *older* ones, go on in their chains by the rule before. Each is also
counted under the key that the new rule gives it. A newer message waits at the head of its chain
until no older one is left under its key: so only keys that have unfinished older messages wait, and
nobody waits for the queue.

1. Nothing newer is handed out before all older messages are counted, keyless ones excepted: those
   in memory as they are there, those spilled are read once more for it, and those that the owner
   before had not finished are counted as they are read, which is before anything newer is.
2. Older messages wait for no newer one: in a chain they stand ahead of them. So all come to an end.
3. A chain is found by its key alone. A key of the new rule that reads like one of the rule before
   stands in that one's chain, and waits for it too: to join two chains is safe.
4. Messages of a key that was parked by the rule before wait in the parked twin, and have not ended
   for those behind them: newer messages with one of their new keys wait until that key is redriven.
5. Nobody waits for what retention deleted while it was spilled: it is handed out never, and its new
   key is unknown. What ends otherwise under an unknown key makes all be counted anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.chains import Job
from proxy.core.keys.key_rules import KeyRecord

_UNKNOWN = b"\xff?"  # no key of a message: not QUEUE_CHAIN, and no UTF-8


class KeyChange:
    """The older messages of one queue, counted under their new keys."""

    def __init__(
        self,
        record: KeyRecord,
        *,
        unfinished: Iterable[int],
        in_memory: Mapping[int, StoredMessage],
        parked: bool,
    ) -> None:
        """*unfinished* are the rising offsets of all that was read, *in_memory* has those of them
        that are there. *parked*: some older ones stand in the twin.
        """
        self.since = record.since
        self._rule = record.rule
        self._counts: Counter[bytes] = Counter()  # by new key
        self._keys: dict[int, bytes | None] = {}  # new keys of those in memory
        self._missing: set[int] = set()  # those that the broker has no more, and are spilled
        self._parked: dict[bytes, set[bytes]] = {}  # new keys of the copies of a parked key
        self._waits_for_parked: Counter[bytes] = Counter()  # the same by new key
        self._twin_unread = parked
        self._opened: list[bytes] = []
        self._all_opened = False
        self.recount(unfinished, in_memory)

    # ---- what waits -----------------------------------------------------------------------------

    def waits(self, job: Job) -> bool:
        """True if *job*, with nothing ahead of it in its chain, waits for older ones."""
        if job.offset < self.since or job.key is None:
            return False
        return self.counting or job.key in self._counts or job.key in self._waits_for_parked

    def take_opened(self) -> Sequence[bytes] | None:
        """Keys that wait no longer, each told once; None: any may be among them."""
        opened, self._opened = self._opened, []
        if self._all_opened:
            self._all_opened = False
            return None
        return opened

    @property
    def waits_for_parked(self) -> bool:
        """True while copies of older messages are parked, or may be."""
        return self._twin_unread or bool(self._parked)

    # ---- counting -------------------------------------------------------------------------------

    @property
    def counting(self) -> bool:
        """True until all older messages are counted."""
        return self._at < len(self._pending) or self._twin_unread

    @property
    def twin_unread(self) -> bool:
        """True until the copies of older messages in the parked twin were looked at."""
        return self._twin_unread

    def recount(self, unfinished: Iterable[int], in_memory: Mapping[int, StoredMessage]) -> None:
        """Begin to count anew; as at the beginning."""
        self._counts.clear()
        self._pending = array("q", (offset for offset in unfinished if offset < self.since))
        self._at = 0  # those before it are counted
        self._here = dict(in_memory)  # their messages: the broker may have them no more
        self._gone: dict[int, bytes | None] = {}  # finished uncounted, and whether as parked

    def to_count(self, most: int) -> list[int]:
        """Offsets of the next messages to be counted, rising."""
        return self._pending[self._at : self._at + most].tolist()

    def to_read(self, asked: Iterable[int]) -> list[int]:
        """Those of *asked* that have to be read for it: the others were in memory."""
        return [offset for offset in asked if offset not in self._here]

    def counted(self, asked: Sequence[int], messages: Mapping[int, StoredMessage]) -> None:
        """*messages*, by offset, were found where they had to be read for *asked*; nothing happens
        if others are wanted by now.
        """
        if self.to_count(len(asked)) != list(asked):
            return
        self._at += len(asked)
        for offset in asked:
            message = self._here.get(offset) or messages.get(offset)
            key = _UNKNOWN if message is None else self._rule.chain_of(message)
            if offset in self._gone:
                parked = self._gone.pop(offset)
                if parked is not None and key != _UNKNOWN:
                    self._park(parked, key)
            elif key == _UNKNOWN:
                self._missing.add(offset)
            else:
                self._count(offset, key)
                if offset not in self._here and offset not in self._keys:
                    continue
                self._keys[offset] = key
        self._look()

    def twin_read(self, found: Mapping[bytes, Collection[bytes]]) -> None:
        """The copies of older messages were looked at: their new keys, by parked key, which may be
        none.
        """
        self._twin_unread = False
        for parked, keys in found.items():
            self._park(parked, None)
            for key in keys:
                self._park(parked, key)
        self._look()

    def _count(self, offset: int, key: bytes | None) -> None:
        if key is not None:
            self._counts[key] += 1

    def _look(self) -> None:
        if not self.counting:
            self._all_opened = True
            self._here.clear()

    # ---- older messages -------------------------------------------------------------------------

    def read(self, message: StoredMessage) -> None:
        """A message was read; an older one is unfinished from now on."""
        if message.queue_offset < self.since:
            key = self._keys[message.queue_offset] = self._rule.chain_of(message)
            self._count(message.queue_offset, key)

    def read_again(self, message: StoredMessage) -> None:
        """A message that was spilled is in memory again."""
        if message.queue_offset < self.since:
            self._keys[message.queue_offset] = self._rule.chain_of(message)

    def parked(self, key: bytes, offset: int) -> None:
        """The message there, of *key* by its own rule, is about to finish: a copy is parked."""
        if offset >= self.since:
            return
        self._park(key, self._keys.get(offset))
        if self._is_pending(offset):
            self._gone[offset] = key

    def unparked(self, keys: Iterable[bytes]) -> None:
        """*keys* have no copies any more."""
        for parked in keys:
            for key in self._parked.pop(parked, ()):
                self._waits_for_parked[key] -= 1
                if not self._waits_for_parked[key]:
                    del self._waits_for_parked[key]
                    self._opened.append(key)
            for offset, of in self._gone.items():
                if of == parked:
                    self._gone[offset] = None

    def finished(self, offset: int) -> bool:
        """The message there came to its end. False if nobody knows what it was counted as."""
        if offset >= self.since:
            return True
        key = self._keys.pop(offset, _UNKNOWN)
        if self._is_pending(offset):
            self._gone.setdefault(offset, None)
        elif offset in self._missing:
            self._missing.remove(offset)
        elif key == _UNKNOWN:
            return False
        elif key is not None:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
                self._opened.append(key)
        return True

    def _is_pending(self, offset: int) -> bool:
        place = bisect_left(self._pending, offset, self._at)
        return place < len(self._pending) and self._pending[place] == offset

    def _park(self, parked: bytes, key: bytes | None) -> None:
        keys = self._parked.setdefault(parked, set())
        if key is not None and key not in keys:
            keys.add(key)
            self._waits_for_parked[key] += 1
