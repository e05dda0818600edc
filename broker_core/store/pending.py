"""What was appended to the log and waits until consumers may see it."""

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
    """How well something stored is kept, where there are to be several replicas of it."""

    WELL = "as durable as asked for, on as many replicas as asked for"
    ALONE = "here; there are not as many replicas now"
    UNSURE = "here; perhaps not on as many replicas"


class Stored(NamedTuple):
    """Where the messages of one ``put`` went."""

    first_queue_offset: int
    physical_offsets: list[int]
    log_end: int  # behind all that was put with them
    kept: Kept = Kept.WELL


class Added(NamedTuple):
    """What one queue gets: packed entries, and their codes."""

    topic: Topic
    queue_id: int
    queue: ConsumeQueue
    entries: list[bytes]
    codes: set[int]


class Pending(NamedTuple):
    """Messages of one write: appended, not yet visible."""

    log_end: int
    added: list[Added]
    deletes: Topic | None  # with all that stands before this
    ended: bytes  # entries of the delayed messages whose place these take


def tell_of_arrivals(listener: ArrivalListener, those: Iterable[Added]) -> None:
    """What *listener* raises is logged: messages are stored, and producers wait to hear so."""
    for added in those:
        try:
            listener(added.topic, added.queue_id, frozenset(added.codes))
        except Exception as error:
            _log.error("an arrival was not seen to", topic=added.topic, exc_info=error)
