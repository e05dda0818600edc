"""What was appended to the log and waits until consumers may see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker_core.names import Topic
from broker_core.remoting.record_encoding import BatchEntry, Envelope
from broker_core.store.consume_queue import ENTRY, ConsumeQueue
from broker_core.store.delay_index import ended_entry
from broker_core.store.entry_code import entry_code_of


class Kept(Enum):
    """How well something stored is kept, where there are to be several replicas of it."""

    WELL = "as durable as asked for, on as many replicas as asked for"
    ALONE = "here; there are not as many replicas now"
    UNSURE = "here; perhaps not on as many replicas"


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the messages of one ``put`` went."""

    first_queue_offset: int
    physical_offsets: list[int]
    log_end: int  # behind all that was put with them
    kept: Kept = Kept.WELL


class Pending(NamedTuple):
    """Messages of one ``put``: appended, not yet visible."""

    log_end: int
    topic: Topic
    queue_id: int
    queue: ConsumeQueue
    entries: bytes
    codes: frozenset[int]
    deletes: Topic | None  # with all that stands before this
    ended: bytes  # entry of the delayed message whose place it takes


def pending(
    envelope: Envelope,
    entries: Sequence[BatchEntry],
    places: Sequence[tuple[int, int]],
    *,
    queue: ConsumeQueue,
    log_end: int,
    deletes: Topic | None,
) -> Pending:
    """Return what is to be done when *entries*, at *places* (offset, size), become visible."""
    codes = [entry_code_of(envelope.topic, entry.properties) for entry in entries]
    packed = [
        ENTRY.pack(place, size, code) for (place, size), code in zip(places, codes, strict=True)
    ]
    return Pending(
        log_end, envelope.topic, envelope.queue_id, queue, b"".join(packed), frozenset(codes),
        deletes, ended_entry(*places[0], envelope.prepared_offset),
    )  # fmt: skip
