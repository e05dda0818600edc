"""Pages of the messages of a topic: positions in its queues, and the merge by store time. Pure.

A page ends where the next one begins: at an offset in each queue. Its positions are a text, such as
``broker-a_0@17,broker-a_1@4``, which an operator passes back. A queue whose broker has not answered
yet has a position of another kind: ``broker-b_0@end``, or ``broker-b_0@1767225600000ms``. Of a
broker that numbers the lives of topics the text also has the life to which the offsets belong:
``broker-a@1790000000000~``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType

from broker_core.names import QueueName, Topic, parse_qid
from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.copies import number_in

#: Piece of an export for messages none of which is selected: it shows clients that the search goes
#: on, and is no part of a line, because JSON may begin with blanks.
SEARCHING = b" "
#: Queues that one page may cover: their positions fit into a request line.
MOST_QUEUES = 256
#: Ends the part of a text of positions that is a life.
_LIFE = "~"
_NO_LIVES: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Unread:
    """A position in a queue whose broker has not answered yet: the first message stored at
    ``time_ms`` (since 1970) or later, or else the end.
    """

    time_ms: int | None = None

    def __str__(self) -> str:
        return "end" if self.time_ms is None else f"{self.time_ms}ms"


Position = int | Unread


@dataclass(slots=True, eq=False)
class QueueScan:
    """The part of a queue that was read for one page: matching messages, and the position."""

    queue: QueueName
    begin: int
    end: int
    first: int = 0
    """The first offset that is stored."""
    position: int = field(init=False)
    last_ms: int | None = None
    """The latest store time of a message read; None before the first."""
    found: list[tuple[int, StoredMessage]] = field(default_factory=list)
    """Matching messages with ``last_ms`` at that time, which never decreases in a queue, even if
    the broker's clock was set back."""

    def __post_init__(self) -> None:
        self.position = self.begin

    @property
    def at_end(self) -> bool:
        """Whether everything up to ``end`` was read."""
        return self.position >= self.end

    @property
    def has_older(self) -> bool:
        """Whether messages before ``begin`` are stored."""
        return self.begin > self.first

    def before(self) -> QueueScan:
        """Return a scan of as many messages before this part as it has."""
        size = max(1, self.end - self.begin)
        return QueueScan(
            self.queue, max(self.first, self.begin - size), self.begin, first=self.first
        )

    def join(self, before: QueueScan) -> None:
        """Add the part *before* this one, all of which was read."""
        self.begin = before.begin
        self.found = before.found + self.found

    def came_to(self, offset: int) -> None:
        """Note that everything below *offset* was read."""
        self.position = max(self.position, offset)

    def saw(self, message: StoredMessage, *, matches: bool) -> None:
        """Note a message that was read."""
        self.last_ms = max(message.store_ms, self.last_ms or 0)
        if matches:
            self.found.append((self.last_ms, message))


def merged(
    scans: Sequence[QueueScan], limit: int
) -> tuple[list[tuple[QueueName, StoredMessage]], dict[QueueName, int]]:
    """Return the oldest *limit* messages of *scans* by store time, and where the next page begins.

    Messages newer than the last one read of a queue that was not read to its end are left to the
    next page, which may find older ones there.
    """
    unread = [each.last_ms for each in scans if not each.at_end and each.last_ms is not None]
    horizon = min(unread, default=None)
    ordered = sorted(
        (time_ms, scan.queue, message.queue_offset, message)
        for scan in scans
        for time_ms, message in scan.found
        if horizon is None or time_ms <= horizon
    )
    taken = [(queue, message) for _, queue, _, message in ordered[:limit]]
    last = {queue: message.queue_offset for queue, message in taken}
    positions = {}
    for scan in scans:
        left = [
            message.queue_offset
            for _, message in scan.found
            if message.queue_offset > last.get(scan.queue, -1)
        ]
        positions[scan.queue] = min(left, default=scan.position)
    return taken, positions


def short(scans: Sequence[QueueScan], limit: int) -> list[QueueScan]:
    """Return those of *scans*, all at their ends, that may have further ones of the newest *limit*
    messages before their beginnings.
    """
    times = sorted((time_ms for scan in scans for time_ms, _ in scan.found), reverse=True)
    oldest = times[limit - 1] if len(times) >= limit else None
    return [
        scan
        for scan in scans
        if scan.has_older and (oldest is None or not scan.found or _begins_at(scan.found) > oldest)
    ]


def newest(scans: Sequence[QueueScan], limit: int) -> list[tuple[QueueName, StoredMessage]]:
    """Return the newest *limit* messages of *scans*, all at their ends, by store time, the oldest
    first. Those are left out to which a message that was not read may be newer.
    """
    begun = [_begins_at(scan.found) for scan in scans if scan.has_older and scan.found]
    horizon = max(begun, default=None)
    ordered = sorted(
        (time_ms, scan.queue, message.queue_offset, message)
        for scan in scans
        for time_ms, message in scan.found
        if horizon is None or time_ms >= horizon
    )
    return [(queue, message) for _, queue, _, message in ordered[-limit:]]


def _begins_at(found: Sequence[tuple[int, StoredMessage]]) -> int:
    """Return the store time of the first message of a part."""
    return found[0][0]


def positions_text(
    positions: Mapping[QueueName, Position], lives: Mapping[str, int] = _NO_LIVES
) -> str:
    """Return *positions* as a text, with the *lives* of the topic by broker."""
    places = sorted(positions.items(), key=itemgetter(0))
    parts = [f"{queue.qid}@{position}" for queue, position in places]
    return ",".join(parts + [f"{broker}@{life}{_LIFE}" for broker, life in sorted(lives.items())])


def lives_in(text: str) -> dict[str, int]:
    """Return the life of the topic at each broker that the positions *text* names."""
    parts = (part.rpartition("@") for part in text.split(",") if part.endswith(_LIFE))
    numbers = {broker: number_in(life.removesuffix(_LIFE)) for broker, _, life in parts}
    return {broker: life for broker, life in numbers.items() if life is not None}


def parse_positions(
    topic: Topic, text: str, known: Iterable[QueueName]
) -> dict[QueueName, Position]:
    """Undo ``positions_text`` for queues in *known*, and those of brokers without any, which may
    be away. Those that the topic has lost since are left out, if *text* has its lives. Raise
    ValueError with one sentence.
    """
    queues, positions = set(known), dict[QueueName, Position]()
    brokers, lives = {queue.broker for queue in queues}, lives_in(text)
    for part in text.split(","):
        qid, _, place = part.rpartition("@")
        if place.endswith(_LIFE) and qid in lives:
            continue
        position = _position(place)
        if not qid or position is None:
            raise ValueError(
                f"invalid position {part[:80]!r}: give queue and offset, such as broker-a_0@17"
            )
        queue = parse_qid(topic, qid)
        if queue.broker in brokers and queue not in queues:
            if queue.broker in lives:
                continue
            raise ValueError(f"topic {topic!r} has no queue {qid!r:.80}")
        if queue in positions:
            raise ValueError(f"queue {qid!r:.80} has two positions")
        positions[queue] = position
    return positions


def _position(place: str) -> Position | None:
    if place == str(Unread()):
        return Unread()
    number = place.removesuffix("ms")
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        return None
    return Unread(int(number)) if place != number else int(number)


def matches(message: StoredMessage, text: str) -> bool:
    """Return whether the body or a property of *message* contains *text*; an empty one always."""
    if not text:
        return True
    wanted = text.encode()
    return wanted in message.body or wanted in message.raw_properties
