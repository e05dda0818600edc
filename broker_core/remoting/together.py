"""Sends to, and commits of, many queues by one request; extensions, unknown to RocketMQ. Pure.

Each entry is stored or refused by itself, as by a request of its own. Bodies are binary,
big-endian: entries one after another.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker_core.errors import InvalidCommand, RemoteProtocolError
from broker_core.names import Group, Topic

#: Most entries of a request.
MAX_ENTRIES = 4_096

_SEND = struct.Struct(">HiqqII")  # bytes of topic; queue id, life, born; bytes of properties, body
_RECEIPT = struct.Struct(">iqHI")  # code, offset, bytes of id and remark
_COMMIT = struct.Struct(">HHiqqqq")  # bytes of group, topic; queue id, offset, epoch and its life
_REFUSAL = struct.Struct(">IiI")  # place, code, bytes of remark
_NONE = -1


class SentEntry(NamedTuple):
    """A message for one queue; ``life`` as in ``BrokerClient.send``, ``born_ms`` since 1970."""

    topic: Topic
    queue_id: int
    life: int | None
    born_ms: int
    properties: bytes
    body: bytes


class SendOutcome(NamedTuple):
    """The answer to one entry: code, queue offset and offset message id as of a send."""

    code: int
    offset: int = 0
    message_id: str = ""
    remark: str = ""


class CommitEntry(NamedTuple):
    """A commit, as of code 15: the embedded broker refuses an outdated epoch or life."""

    group: Group
    topic: Topic
    queue_id: int
    offset: int
    epoch: int | None
    epoch_life: int | None
    life: int | None


class Refusal(NamedTuple):
    """The answer to a refused entry, the ``place``-th of the request, from 0."""

    place: int
    code: int
    remark: str


def sends_to_bytes(entries: Iterable[SentEntry]) -> bytes:
    """Return the body of a request for sends."""
    pieces: list[bytes] = []
    for topic, queue_id, life, born_ms, properties, body in entries:
        name = topic.encode()
        pieces += (
            _SEND.pack(len(name), queue_id, _or_none(life), born_ms, len(properties), len(body)),
            name,
            properties,
            body,
        )
    return b"".join(pieces)


def sends_from_bytes(data: bytes | memoryview) -> list[SentEntry]:
    """Read the body of a request for sends. Raise InvalidCommand."""
    return [
        SentEntry(Topic(_text(name)), queue_id, _given(life), born_ms, properties, body)
        for (queue_id, life, born_ms), (name, properties, body) in _entries(
            data, _SEND, sizes=(0, 4, 5)
        )
    ]


def outcomes_to_bytes(outcomes: Iterable[SendOutcome]) -> bytes:
    """Return the body of the answer to sends: an outcome for each, in their order."""
    pieces: list[bytes] = []
    for code, offset, message_id, remark in outcomes:
        texts = message_id.encode(), remark.encode("utf-8", "replace")
        pieces += (_RECEIPT.pack(code, offset, *map(len, texts)), *texts)
    return b"".join(pieces)


def outcomes_from_bytes(data: bytes | memoryview, count: int) -> list[SendOutcome]:
    """Read the body of the answer to *count* sends. Raise RemoteProtocolError."""
    try:
        found = [
            SendOutcome(code, offset, _text(message_id), _text(remark))
            for (code, offset), (message_id, remark) in _entries(data, _RECEIPT, sizes=(2, 3))
        ]
    except InvalidCommand as error:
        raise RemoteProtocolError(f"the answer to sends cannot be read: {error}") from error
    if len(found) != count:
        raise RemoteProtocolError(f"{count} sends were answered with {len(found)} outcomes")
    return found


def commits_to_bytes(entries: Iterable[CommitEntry]) -> bytes:
    """Return the body of a request for commits."""
    pieces: list[bytes] = []
    for group, topic, queue_id, offset, epoch, epoch_life, life in entries:
        names = group.encode(), topic.encode()
        pieces += (
            _COMMIT.pack(
                *map(len, names),
                queue_id,
                offset,
                *map(_or_none, (epoch, epoch_life, life)),
            ),
            *names,
        )
    return b"".join(pieces)


def commits_from_bytes(data: bytes | memoryview) -> list[CommitEntry]:
    """Read the body of a request for commits. Raise InvalidCommand."""
    return [
        CommitEntry(Group(_text(group)), Topic(_text(topic)), queue_id, offset, *map(_given, lives))
        for (queue_id, offset, *lives), (group, topic) in _entries(data, _COMMIT, sizes=(0, 1))
    ]


def refusals_to_bytes(refusals: Iterable[Refusal]) -> bytes:
    """Return the body of the answer to commits: the refused ones."""
    pieces: list[bytes] = []
    for place, code, remark in refusals:
        text = remark.encode("utf-8", "replace")
        pieces += (_REFUSAL.pack(place, code, len(text)), text)
    return b"".join(pieces)


def refusals_from_bytes(data: bytes | memoryview, count: int) -> list[Refusal]:
    """Read the body of the answer to *count* commits. Raise RemoteProtocolError."""
    try:
        found = [
            Refusal(place, code, _text(remark))
            for (place, code), (remark,) in _entries(data, _REFUSAL, sizes=(2,))
        ]
    except InvalidCommand as error:
        raise RemoteProtocolError(f"the answer to commits cannot be read: {error}") from error
    if any(each.place >= count for each in found):
        raise RemoteProtocolError(f"the answer to {count} commits refuses others")
    return found


def _entries(
    data: bytes | memoryview, head: struct.Struct, *, sizes: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], list[bytes]]]:
    """Yield the numbers and the texts of each entry; *sizes*: places of the texts' lengths."""
    data, at, entries = bytes(data), 0, 0
    try:
        while at < len(data):
            entries += 1
            if entries > MAX_ENTRIES:
                raise InvalidCommand(f"the body has more than {MAX_ENTRIES} entries")
            fields = head.unpack_from(data, at)
            at += head.size
            texts: list[bytes] = []
            for place in sizes:
                size = fields[place]
                if size > len(data) - at:
                    raise InvalidCommand(
                        f"entry {entries} has a text of {size} bytes, but {len(data) - at} are left"
                    )
                texts.append(data[at : at + size])
                at += size
            yield tuple(each for place, each in enumerate(fields) if place not in sizes), texts
    except struct.error as error:
        raise InvalidCommand(f"entry {entries} cannot be read: {error}") from error


def _text(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise InvalidCommand(f"a name or text of an entry is not UTF-8: {error.reason}") from None


def _or_none(number: int | None) -> int:
    return _NONE if number is None else number


def _given(number: int) -> int | None:
    return None if number == _NONE else number
