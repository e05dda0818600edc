"""Messages of a former life of their topic that are still in an internal topic.

Delayed, undecided and retried messages are stored in internal topics, which the deletion of their
destination does not touch. A message belongs to the life in which it was stored, and that life ends
with the record of the deletion in the log. Before such a message is stored again this must be
checked, or it would become a message of the next life.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from broker_core.broker.topics.topics import SYSTEM_TOPICS
from broker_core.names import RETRY_PREFIX, Topic
from broker_core.remoting.delay_properties import REAL_TOPIC, RETRY_TOPIC
from broker_core.remoting.message import StoredMessage, decode_messages
from broker_core.store.deletions import DELETIONS, deleted_topic
from broker_core.store.message_store import MessageStore
from broker_core.store.reader import ReadStatus, StoreReader

_AT_ONCE = 1024
#: Deletions that are not searched for old ones.
FEW = 1024


class EndedLives:
    """Log offsets of the last deletion of each topic in *store*, as far as deletions are visible.

    A check is one look-up if nothing was deleted since the last one; 40 bytes and the name per
    topic. Deletions that retention has reached are forgotten: all messages left are behind them.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._places: dict[Topic, int] = {}
        self._known = 0
        self._most = FEW  # then those that retention has reached are removed

    def __len__(self) -> int:
        """Return the number of topics known."""
        return len(self._places)

    def is_former(self, message: StoredMessage) -> bool:
        """Return whether the topic of *message* was deleted since it was stored. Raise OSError."""
        self._catch_up()
        return bool(self._places) and any(
            self._places.get(topic, -1) > message.physical_offset for topic in topics_of(message)
        )

    def is_ending(self, message: StoredMessage) -> bool:
        """Return whether a deletion is on its way to the disk, or to the replicas.

        Until it is visible, the life of *message* is unknown; new messages are stored after it.
        """
        return any(map(self._store.is_deletion_pending, topics_of(message)))

    def _catch_up(self) -> None:
        end = self._store.reader.end_offset(DELETIONS, 0)
        if end != self._known:
            self._places |= dict(deletions_since(self._store.reader, min(end, self._known)))
            self._known = end
            if len(self._places) > self._most:
                begin, _ = self._store.reader.log_range()
                self._places = {name: at for name, at in self._places.items() if at >= begin}
                self._most = max(FEW, 2 * len(self._places))


def topics_of(message: StoredMessage) -> Iterator[Topic]:
    """Yield the destination topic of *message*, and for a retry also the original topic."""
    topic, properties = message.topic, message.properties
    if topic in SYSTEM_TOPICS:
        topic = Topic(properties.get(REAL_TOPIC, ""))
    yield topic
    if topic.startswith(RETRY_PREFIX) and RETRY_TOPIC in properties:
        yield Topic(properties[RETRY_TOPIC])


def deletions_since(reader: StoreReader, number: int) -> Iterator[tuple[Topic, int]]:
    """Yield topics deleted by record *number* and later ones, with the record's log offset.

    Raises OSError.
    """
    at, end = max(number, reader.min_offset(DELETIONS, 0)), reader.end_offset(DELETIONS, 0)
    while at < end:
        found = reader.read(DELETIONS, 0, at, max_messages=_AT_ONCE)
        for record in decode_messages(found.body):
            topic = deleted_topic(record)
            if topic is not None:
                yield topic, record.physical_offset
        if found.status is ReadStatus.EXAMINED:
            raise OSError(errno.EBUSY, "the index of deleted topics is under examination")
        at = found.next_offset
