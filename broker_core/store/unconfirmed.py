"""Messages of a replicated log that are in no queue yet: replicas have yet to confirm them.

A slave copies them, and a start finds them, perhaps all that were stored in hours without enough
replicas. Only the first ones are listed in memory; the others are read from the log again when
their turn has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from broker_core.names import DELAY_TOPICS, DelayedPlace, Topic
from broker_core.remoting.message import StoredMessage
from broker_core.store.commit_log import CommitLog
from broker_core.store.consume_queues import ConsumeQueues
from broker_core.store.copies import Copied, copied
from broker_core.store.deletions import deleted_topic
from broker_core.store.log_scan import LogScan

#: Messages that are listed while they wait, each with half a KB.
MOST_LISTED = 50_000
#: Messages that are read again at once, and their bytes, as in ``appending``.
LISTED_AT_ONCE, LISTED_BYTES = 1024, 4 << 20


class FoundUnconfirmed:
    """The unconfirmed messages that a start finds in its log, summed up, and the first of them.

    Its recovery has already dropped what their deletions delete, and ended the delayed messages
    that others of them replace.
    """

    def __init__(self, queues: ConsumeQueues) -> None:
        """Begin without messages; *queues* have none of them."""
        self._queues = queues
        self._first: list[Copied] = []
        #: Next offsets of queues, by topic and id.
        self.ends: dict[Topic, dict[int, int]] = {}
        #: Topics deleted by them, by the number of the deletion.
        self.deletions: dict[int, Topic] = {}
        self._deleted_at: dict[Topic, int] = {}  # place of the last deletion
        self._ended: set[int] = set()  # delayed messages among them, by number

    def add(self, message: StoredMessage) -> None:
        """Count the next *message* of the log."""
        if len(self._first) < MOST_LISTED:
            self._first.append(copied(message))
        self.ends.setdefault(message.topic, {})[message.queue_id] = message.queue_offset + 1
        if message.prepared_offset < 0:
            place = DelayedPlace.from_number(-message.prepared_offset)
            queue = self._queues.find(place.topic, place.queue_id)
            if queue is None or queue.end_offset <= place.offset:
                self._ended.add(place.number)
        if (topic := deleted_topic(message)) is not None:
            self.deletions[message.queue_offset] = topic
            self._deleted_at[topic] = message.physical_offset
            self.ends.pop(topic, None)

    def take_first(self) -> list[Copied]:
        """Return the first messages once, to enter with ``entry_of``."""
        first, self._first = self._first, []
        return first

    def entry_of(self, one: Copied) -> Copied | None:
        """Return what to enter of one of the messages, None if it was deleted."""
        if one.physical < self._deleted_at.get(one.topic, -1):
            return None
        code = 0 if self._has_ended(one) else one.code
        return one._replace(code=code, deletes=None, ended=b"")

    def _has_ended(self, one: Copied) -> bool:
        """Return whether this is a delayed message that would be delivered a second time."""
        if not self._ended or one.topic not in DELAY_TOPICS:
            return False
        place = DelayedPlace.of(one.topic, one.queue_id, one.queue_offset)
        return place.number in self._ended


class Unconfirmed:
    """Unconfirmed messages of *log*, in its order: *found* ones from *start* on, then added ones.

    *lost*: messages in damage among those found, which the log does not name.
    """

    def __init__(
        self, log: CommitLog, *, start: int, found: FoundUnconfirmed, lost: Iterable[Copied]
    ) -> None:
        self._log = log
        self._end = self._found_end = log.end_offset
        self._lost = deque(lost)  # behind those listed
        self._found: FoundUnconfirmed | None = found
        self._listed: deque[Copied] = deque()
        self._unlisted_from: int | None = start
        for one in found.take_first():
            self._list(one)
        if self._unlisted_from == self._end:
            self._unlisted_from = self._found = None

    def __bool__(self) -> bool:
        return bool(self._listed) or self._unlisted_from is not None

    def add(self, message: Copied) -> None:
        """Add a message that was copied to the end of the log."""
        if self._unlisted_from is None:
            if len(self._listed) < MOST_LISTED:
                self._listed.append(message)
                return
            self._unlisted_from = self._listed[-1].end
        if message.lost is not None:
            self._lost.append(message)
        self._end = self._log.end_offset

    def first(self, log_end: int) -> Copied | None:
        """Return the first message if it ends at or before *log_end*. Raise OSError."""
        if not self._listed and self._unlisted_from is not None:
            self._list_again(self._unlisted_from)
        return self._listed[0] if self._listed and self._listed[0].end <= log_end else None

    def remove_first(self) -> None:
        """Remove the first message, which has entered its queue."""
        self._listed.popleft()

    def _list_again(self, start: int) -> None:
        for message in LogScan(self._log, start=start, until=self._end):
            one = copied(message)
            self._list(one)
            listed = len(self._listed)
            if listed >= LISTED_AT_ONCE or (listed and one.end - start >= LISTED_BYTES):
                return
        self._list_lost(before=self._end)
        self._unlisted_from = self._found = None

    def _list(self, message: Copied) -> None:
        self._list_lost(before=message.physical)
        self._unlisted_from = message.end
        entry: Copied | None = message
        if self._found is not None and message.physical < self._found_end:
            entry = self._found.entry_of(message)
        if entry is not None:
            self._listed.append(entry)

    def _list_lost(self, *, before: int) -> None:
        while self._lost and self._lost[0].physical < before:
            self._listed.append(self._lost.popleft())
