"""Messages that were appended to the log and are not visible to consumers yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

import structlog

from broker_core.names import Topic
from broker_core.store.consume_queue import ConsumeQueue

#: Called when messages of a queue become visible, with their ``entry_code_of``.
ArrivalListener = Callable[[Topic, int, frozenset[int]], None]

_log = structlog.get_logger("store")


class Kept(Enum):
    """Durability of a stored message where several replicas are required."""

    WELL = "as durable as required, on all required replicas"
    ALONE = "on this broker; fewer replicas than required are connected"
    UNSURE = "on this broker; perhaps on fewer replicas than required"
    UNCONFIRMED = "on this broker; the next elected master removes it if no majority has it"


class Stored(NamedTuple):
    """Position of the messages of one ``put``."""

    first_queue_offset: int
    physical_offsets: list[int]
    log_end: int  # after all messages put together with them
    kept: Kept = Kept.WELL


class Added(NamedTuple):
    """Additions to one queue: packed entries, and their codes."""

    topic: Topic
    queue_id: int
    queue: ConsumeQueue
    entries: list[bytes]
    codes: set[int]


class Pending(NamedTuple):
    """Messages of one write: appended, not yet visible."""

    log_end: int
    added: list[Added]
    deletes: Topic | None  # with all messages before this write
    ended: bytes  # entries of the delayed messages that these replace

    @property
    def messages(self) -> int:
        """Number of messages."""
        return sum(len(each.entries) for each in self.added)


def notify_arrivals(listener: ArrivalListener, those: Iterable[Added]) -> None:
    """Call *listener* for each of *those*; log its errors, since producers await answers."""
    for added in those:
        try:
            listener(added.topic, added.queue_id, frozenset(added.codes))
        except Exception as error:
            _log.error("listener of an arrival failed", topic=added.topic, exc_info=error)
