"""Change of a queue's order key while it has unfinished messages. Pure.

Messages below the switch, the *older* ones, stay in their chains under the previous rule. Each is
also counted under its key by the new rule. A newer message waits at the head of its chain until no
older one is left under its key. So only keys with unfinished older messages wait, never the queue.

1. No newer message is delivered before all older ones are counted, except keyless ones. Those in
   memory are counted there, spilled ones are read once more, and those that the previous owner had
   not finished are counted when they are read, before any newer message.
2. Older messages never wait for newer ones: they are ahead of them in every chain. So all finish.
3. A chain is found by its key alone. If a key of the new rule equals one of the previous rule, they
   share a chain, and it waits for both: joining two chains is safe.
4. Messages of a key parked under the previous rule wait in the parked twin and have not finished
   for later ones: newer messages with one of their new keys wait until that key is redriven.
5. Messages deleted by retention while spilled are not waited for: they are never delivered, and
   their new key is unknown. If another message finishes under an unknown key, all are counted
   again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.chains import Job
from proxy.core.keys.key_rules import KeyRecord

_UNKNOWN = b"\xff?"  # differs from QUEUE_CHAIN and all UTF-8 keys


class KeyChange:
    """The older messages of one queue, counted by their new keys."""

    def __init__(
        self,
        record: KeyRecord,
        *,
        unfinished: Iterable[int],
        in_memory: Mapping[int, StoredMessage],
        parked: bool,
    ) -> None:
        """Start the change.

        Args:
            record: the new rule and its switch.
            unfinished: rising offsets of all unfinished messages that were read.
            in_memory: those of them that are in memory.
            parked: True if some older messages are in the parked twin.
        """
        self.since = record.since
        self._rule = record.rule
        self._counts: Counter[bytes] = Counter()  # by new key
        self._keys: dict[int, bytes | None] = {}  # new keys of those in memory
        self._missing: set[int] = set()  # spilled ones that retention deleted
        self._parked: dict[bytes, set[bytes]] = {}  # new keys of the copies of a parked key
        self._waits_for_parked: Counter[bytes] = Counter()  # the same by new key
        self._twin_unread = parked
        self._opened: list[bytes] = []
        self._all_opened = False
        self.recount(unfinished, in_memory)

    # ---- waiting jobs ---------------------------------------------------------------------------

    def waits(self, job: Job) -> bool:
        """Return True if *job*, first in its chain, waits for older messages."""
        if job.offset < self.since or job.key is None:
            return False
        return self.counting or job.key in self._counts or job.key in self._waits_for_parked

    def take_opened(self) -> Sequence[bytes] | None:
        """Return, once each, keys that no longer wait; None: any key may be among them."""
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
        """True until the copies of older messages in the parked twin have been examined."""
        return self._twin_unread

    def recount(self, unfinished: Iterable[int], in_memory: Mapping[int, StoredMessage]) -> None:
        """Restart the counting of older messages."""
        self._counts.clear()
        self._pending = array("q", (offset for offset in unfinished if offset < self.since))
        self._at = 0  # those before it are counted
        self._here = dict(in_memory)  # kept because the broker may delete them
        self._gone: dict[int, bytes | None] = {}  # finished before the count, with the parked key

    def to_count(self, most: int) -> list[int]:
        """Return the rising offsets of the next messages to count, at most *most*."""
        return self._pending[self._at : self._at + most].tolist()

    def to_read(self, asked: Iterable[int]) -> list[int]:
        """Return those of *asked* that must be read, because they were not in memory."""
        return [offset for offset in asked if offset not in self._here]

    def counted(self, asked: Sequence[int], messages: Mapping[int, StoredMessage]) -> None:
        """Count *asked*, of which *messages*, by offset, were read. No effect if the count has
        moved on meanwhile.
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
        """Take the result of examining the copies of older messages: their new keys, possibly none,
        by parked key.
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
        """Note that *message* was read; an older one is now unfinished."""
        if message.queue_offset < self.since:
            key = self._keys[message.queue_offset] = self._rule.chain_of(message)
            self._count(message.queue_offset, key)

    def read_again(self, message: StoredMessage) -> None:
        """Note that the spilled *message* is in memory again."""
        if message.queue_offset < self.since:
            self._keys[message.queue_offset] = self._rule.chain_of(message)

    def parked(self, key: bytes, offset: int) -> None:
        """Note that the message at *offset*, of *key* under its own rule, finishes as a parked
        copy.
        """
        if offset >= self.since:
            return
        self._park(key, self._keys.get(offset))
        if self._is_pending(offset):
            self._gone[offset] = key

    def unparked(self, keys: Iterable[bytes]) -> None:
        """Note that *keys* have no copies left."""
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
        """Note that the message at *offset* is finished. Return False if its new key is unknown."""
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
