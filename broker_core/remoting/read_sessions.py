"""Reads of many queues by one request, in sessions; an extension, unknown to RocketMQ. Pure.

As Kafka's incremental fetch sessions (KIP-227): the broker remembers the queues that a client reads
over a connection, and a request names only the differences to the request before it. The body of a
request is binary, big-endian: the slots of ended readings, questions, and begun readings. The body
of an answer is a sequence of parts, one for each answered question.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker_core.errors import InvalidCommand, RemoteProtocolError
from broker_core.names import Group, Topic
from broker_core.remoting.header_fields import Header, Int32

#: Most ended readings, questions and begun readings of a request, each.
MAX_QUEUES = 32_768

_COUNTS = struct.Struct(">III")
_SLOT = struct.Struct(">I")
_QUESTION = struct.Struct(">IqI")
_READING = struct.Struct(">IiqHHI")  # slot, queue id, life, bytes of group, topic and tags
_PART = struct.Struct(">IqiqqqqII")
_NO_LIFE = -1


class Reading(NamedTuple):
    """A queue that a client reads for a group, under a number that is unique in the session.

    ``tags``: as in ``a || b``; ``*``: all. ``life``: do not wait if the topic is in another one.
    """

    slot: int
    group: Group
    topic: Topic
    queue_id: int
    tags: str
    life: int | None


class Question(NamedTuple):
    """A request for messages of a reading from ``offset`` on, at most ``max_messages``.

    It is answered once, and replaces an earlier one of the same slot.
    """

    slot: int
    offset: int
    max_messages: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences to the session after the previous request, applied in this order."""

    ended: Sequence[int] = ()  # slots
    begun: Sequence[Reading] = ()
    questions: Sequence[Question] = ()


class Part(NamedTuple):
    """The answer to the question about ``slot`` in the request of ``epoch``.

    ``code``, ``remark``, offsets, ``life`` and ``records`` are those of an answer to a pull.
    """

    slot: int
    epoch: int
    code: int
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    life: int | None = None
    remark: str = ""
    records: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadQueuesHeader(Header):
    """Code 7111. ``session`` is chosen by the client.

    ``epoch`` 0 begins a session, in place of the connection's earlier one; then it rises by one
    with each request. ``suspend_timeout_millis``: time to wait for a message, unless the next
    request of the session arrives. ``max_bytes``: most bytes of messages, unless the first one is
    larger.
    """

    session: int
    epoch: int
    suspend_timeout_millis: int
    max_bytes: Int32


def changes_to_bytes(changes: Changes) -> bytes:
    """Return the body of a request."""
    parts = [_COUNTS.pack(len(changes.ended), len(changes.questions), len(changes.begun))]
    parts += map(_SLOT.pack, changes.ended)
    parts += [_QUESTION.pack(*each) for each in changes.questions]
    for reading in changes.begun:
        texts = [each.encode() for each in (reading.group, reading.topic, reading.tags)]
        life = _NO_LIFE if reading.life is None else reading.life
        parts.append(_READING.pack(reading.slot, reading.queue_id, life, *map(len, texts)))
        parts += texts
    return b"".join(parts)


def changes_from_bytes(data: bytes | memoryview) -> Changes:
    """Read the body of a request. Raise InvalidCommand."""
    try:
        ended, questions, begun = counts = _COUNTS.unpack_from(data)
        if max(counts) > MAX_QUEUES:
            raise InvalidCommand(
                f"the body has {max(counts)} entries of a kind: at most {MAX_QUEUES} are read"
            )
        at = _COUNTS.size
        slots_end = at + ended * _SLOT.size
        questions_end = slots_end + questions * _QUESTION.size
        if questions_end > len(data):
            raise InvalidCommand(
                f"the body has {len(data)} bytes: its {ended} slots and {questions} questions"
                f" need {questions_end}"
            )
        view = memoryview(data)
        changes = Changes(
            ended=[slot for (slot,) in _SLOT.iter_unpack(view[at:slots_end])],
            questions=list(
                map(Question._make, _QUESTION.iter_unpack(view[slots_end:questions_end]))
            ),
            begun=_readings(bytes(view[questions_end:]), begun),
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidCommand(f"the body is not that of a read of queues: {error}") from error
    if any(question.max_messages == 0 for question in changes.questions):
        raise InvalidCommand("a question asks for 0 messages: expected at least 1")
    return changes


def _readings(data: bytes, count: int) -> list[Reading]:
    readings: list[Reading] = []
    at = 0
    for _ in range(count):
        slot, queue_id, life, *sizes = _READING.unpack_from(data, at)
        at += _READING.size
        texts: list[str] = []
        for size in sizes:
            if size > len(data) - at:
                raise InvalidCommand(
                    f"a text of reading {slot} has {size} bytes, but {len(data) - at} are left"
                )
            texts.append(data[at : at + size].decode())
            at += size
        group, topic, tags = texts
        readings.append(
            Reading(
                slot,
                Group(group),
                Topic(topic),
                queue_id,
                tags,
                None if life == _NO_LIFE else life,
            )
        )
    if at != len(data):
        raise InvalidCommand(f"the body has {len(data) - at} bytes after its last reading")
    return readings


def parts_to_bytes(parts: Iterable[Part]) -> bytes:
    """Return the body of an answer."""
    pieces: list[bytes] = []
    for part in parts:
        remark = part.remark.encode("utf-8", "replace")
        pieces += (
            _PART.pack(
                part.slot,
                part.epoch,
                part.code,
                part.next_offset,
                part.min_offset,
                part.max_offset,
                _NO_LIFE if part.life is None else part.life,
                len(remark),
                len(part.records),
            ),
            remark,
            part.records,
        )
    return b"".join(pieces)


def parts_from_bytes(data: bytes | memoryview) -> list[Part]:
    """Read the body of an answer. Raise RemoteProtocolError."""
    parts: list[Part] = []
    data = bytes(data)
    at = 0
    try:
        while at < len(data):
            slot, epoch, code, next_offset, least, most, life, remark_bytes, record_bytes = (
                _PART.unpack_from(data, at)
            )
            remark_at = at + _PART.size
            records_at = remark_at + remark_bytes
            at = records_at + record_bytes
            if at > len(data):
                raise RemoteProtocolError(
                    f"the part of slot {slot} ends at byte {at} of an answer of {len(data)}"
                )
            parts.append(
                Part(
                    slot,
                    epoch,
                    code,
                    next_offset,
                    least,
                    most,
                    None if life == _NO_LIFE else life,
                    data[remark_at:records_at].decode(),
                    data[records_at:at],
                )
            )
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the answer is not that of a read of queues: {error}") from error
    return parts
