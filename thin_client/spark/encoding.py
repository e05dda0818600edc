"""Rows as encoded messages, for the proxy's method ``sendEncoded``. Pure.

A row is encoded without an object of its own if it has no more than a value, a key, a tag and a
message id, as most have. Other rows become messages first. Both give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.errors import LocalProtocolError
from broker_core.remoting.message import KEYS, TAGS, encode_properties, is_reserved, property_of
from broker_core.remoting.message_batch import entry_bounds
from thin_client.delivery import MAX_REQUEST_BYTES, UNIQUE_ID, Outgoing
from thin_client.encoded_message import BESIDE_BYTES, BETWEEN, HEAD, entry_of
from thin_client.encoded_requests import route_number
from thin_client.key_hash import key_hash, plain_key
from thin_client.spark.outgoing import Origin

#: Columns of rows that are encoded directly.
_USUAL = frozenset({"value", "key", "tag", "topic", "messageId"})
#: Longest text of such a row, in bytes, so that its properties are short enough.
_LONGEST_TEXT = 255
#: A request's most bytes, unless a single message is larger: a broker's request has as many.
_REQUEST_BYTES = 1_000_000
#: A message with this many bytes still fits into a request.
_LARGEST = MAX_REQUEST_BYTES - 2_000
_SEPARATORS = (b"\x01", b"\x02")
_BLANK = 0x20


class Place(NamedTuple):
    """Where messages go: to a queue by its name, or to any queue of the topic.

    ``lane`` is the same for all messages of a queue. ``route``: the number of the topic's queues.
    """

    topic: str
    qid: str | None
    lane: int
    route: int


@dataclass(frozen=True, slots=True)
class Part:
    """Encoded messages of one request, in order; *messages* returns them as messages."""

    place: Place
    entries: list[bytes]
    messages: Callable[[], list[Outgoing]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded messages of rows.

    Args:
        entries: the messages.
        topics: the topic of each, or a single one for all.
        qids: the queue that each names, or None; None: no row names one.
        hashes: Java's hash of each one's key.
        keyed: whether it has a key.
        messages: returns those of the rows with these numbers.
    """

    entries: list[bytes]
    topics: Sequence[str]
    qids: Sequence[str | None] | None
    hashes: np.ndarray
    keyed: np.ndarray
    messages: Callable[[Sequence[int]], list[Outgoing]]

    def parts(
        self, queues_of: Callable[[str], Sequence[str]], *, most: int, lanes: int
    ) -> Iterator[Part]:
        """Yield the requests of at most *most* messages. *queues_of* returns a topic's queues.

        Messages without a key are spread over *lanes* requests at least.
        """
        for place, rows in self._by_place(queues_of):
            spread = -(-len(rows) // lanes) if place.qid is None else most
            for some in _cut(self.entries, rows, most=min(most, spread)):
                entries = [self.entries[row] for row in some]
                yield Part(place, entries, partial(self.messages, some))

    def _by_place(
        self, queues_of: Callable[[str], Sequence[str]]
    ) -> Iterator[tuple[Place, list[int]]]:
        if self.qids is None and len(set(self.topics)) == 1:
            yield from self._of_one_topic(self.topics[0], queues_of(self.topics[0]))
            return
        found: dict[Place, list[int]] = {}
        routes = {topic: route_number(queues_of(topic)) for topic in set(self.topics)}
        qids = self.qids or repeat(None)
        rows = zip(self.topics, qids, self.hashes.tolist(), self.keyed.tolist(), strict=False)
        for row, (topic, qid, hashed, keyed) in enumerate(rows):
            queues = queues_of(topic)
            if qid is None and keyed:
                qid = queues[abs(hashed) % len(queues)]
            lane = queues.index(qid) if qid in queues else 0
            found.setdefault(Place(topic, qid, lane, routes[topic]), []).append(row)
        yield from found.items()

    def _of_one_topic(self, topic: str, queues: Sequence[str]) -> Iterator[tuple[Place, list[int]]]:
        number = np.where(self.keyed, np.abs(self.hashes) % len(queues), -1)
        order = np.argsort(number, kind="stable")  # rows of a queue stay in order
        borders = np.searchsorted(number[order], np.arange(-1, len(queues) + 1)).tolist()
        route = route_number(queues)
        for queue, (begin, end) in enumerate(pairwise(borders), -1):
            if begin < end:
                qid = None if queue < 0 else queues[queue]
                yield Place(topic, qid, queue, route), order[begin:end].tolist()


def _cut(entries: Sequence[bytes], rows: list[int], *, most: int) -> Iterator[list[int]]:
    """Yield *rows* in parts of at most *most* messages and about as many bytes as a request has."""
    begin = size = 0
    for end, row in enumerate(rows):
        own = len(entries[row])
        if end > begin and (size + own > _REQUEST_BYTES or end - begin == most):
            yield rows[begin:end]
            begin, size = end, 0
        size += own
    if begin < len(rows):
        yield rows[begin:]


@dataclass(slots=True)
class Rows:
    """Some rows of a task.

    Args:
        origin: their origin.
        columns: those that a sink accepts, by name.
        first: the task's number of the first row.
        qids: the queues of a column ``partition``; None: there is none.
    """

    origin: Origin
    columns: Mapping[str, pa.Array]
    first: int
    qids: Sequence[str | None] | None = None
    _messages: list[list[Outgoing]] = field(default_factory=list)

    def messages(self) -> list[Outgoing]:
        """Return the rows as messages, which are created once. Raises RowRefused."""
        if not self._messages:
            content: dict[str, Sequence[Any]] = {
                name: column.to_pylist() for name, column in self.columns.items()
            }
            if self.qids is not None:
                content["qid"] = self.qids
            self._messages.append(self.origin.messages(content, first=self.first))
        return self._messages[0]

    def encoded(self) -> Encoded:
        """Return the rows as encoded messages. Raises RowRefused."""
        usual = None
        if self.qids is None and _USUAL.issuperset(self.columns):
            usual = _Usual.of(self.origin, self.columns)
        if usual is None:
            encoded = self._of_messages()
        else:
            hashes, keyed = key_hashes(usual.raw_keys, len(usual.values))
            entries = usual.encoded(self.origin, self.first)
            encoded = Encoded(entries, usual.topics, None, hashes, keyed, self._those)
        sizes = list(map(len, encoded.entries))
        if sizes and max(sizes) > _LARGEST:
            row = next(number for number, size in enumerate(sizes) if size > _LARGEST)
            raise self.origin.refused(
                self.first + row,
                f"has {sizes[row]} bytes as a message: expected at most {_LARGEST}",
            )
        return encoded

    def _of_messages(self) -> Encoded:
        name = self.origin.name_property
        if name is not None and name != UNIQUE_ID and is_reserved(name):
            raise self.origin.refused(
                self.first,
                f"cannot be sent: property {name!r} is reserved by the broker: set batchIdProperty"
                " to another name",
            )
        found = self.messages()
        texts = [each.sharding_key or plain_key(each.key or "") for each in found]
        named = [None if each.queue is None else str(each.queue) for each in found]
        return Encoded(
            [_encoded(each, self.origin, row) for row, each in enumerate(found, self.first)],
            [each.topic for each in found],
            named if any(named) else None,
            np.array([key_hash(text) for text in texts], np.int64),
            np.array([bool(text) for text in texts], bool),
            self._those,
        )

    def _those(self, rows: Sequence[int]) -> list[Outgoing]:
        found = self.messages()
        return [found[row] for row in rows]


def id_of(entry: bytes) -> str:
    """Return the id of an encoded message."""
    _, _, properties_at, _ = next(entry_bounds(entry))
    return property_of(entry[properties_at:], UNIQUE_ID) or ""


def _encoded(message: Outgoing, origin: Origin, row: int) -> bytes:
    body = message.body
    assert isinstance(body, bytes)
    named = {**message.properties, KEYS: message.key or "", TAGS: message.tag or ""}
    try:
        properties = encode_properties(named)
    except LocalProtocolError as error:
        raise origin.refused(row, f"cannot be sent: {error}") from None
    return entry_of(body, properties)


class _Texts(NamedTuple):
    """The bytes of a column, one after the other, and where each begins and the last one ends."""

    raw: bytes
    bounds: np.ndarray

    @classmethod
    def of(cls, column: pa.Array) -> _Texts:
        """Return those of a column of texts or bytes; a null is empty."""
        plain = column.cast(pa.binary())
        if plain.null_count:
            plain = plain.fill_null(b"")
        _, offsets, data = plain.buffers()
        size = len(plain) + 1
        if not len(plain) or offsets is None:
            return cls(b"", np.zeros(size, np.int32))
        bounds = np.frombuffer(offsets, np.int32, size, plain.offset * 4)
        begin, end = int(bounds[0]), int(bounds[-1])
        raw = b"" if data is None or begin == end else data.slice(begin, end - begin).to_pybytes()
        return cls(raw, bounds - begin)

    def sizes(self) -> np.ndarray:
        return np.diff(self.bounds)

    def longest(self) -> int:
        sizes = self.sizes()
        return int(sizes.max()) if len(sizes) else 0

    def each(self) -> list[bytes]:
        raw, bounds = self.raw, self.bounds.tolist()
        return [raw[begin:end] for begin, end in pairwise(bounds)]

    def texts(self) -> list[str]:
        """Return the texts. Raises UnicodeDecodeError."""
        if self.raw.isascii():
            text, bounds = self.raw.decode(), self.bounds.tolist()
            return [text[begin:end] for begin, end in pairwise(bounds)]
        return [each.decode() for each in self.each()]

    def is_plain(self) -> bool:
        """Return whether no text is long, or contains a separator of properties."""
        return self.longest() <= _LONGEST_TEXT and not any(each in self.raw for each in _SEPARATORS)


@dataclass(frozen=True, slots=True)
class _Usual:
    """Columns of rows that are encoded directly; see ``of``."""

    topics: Sequence[str]  # a single one for all, or one for each
    values: list[bytes]
    raw_keys: _Texts | None
    keys: Sequence[str] | None
    tags: Sequence[str] | None
    ids: Sequence[str] | None

    @classmethod
    def of(cls, origin: Origin, columns: Mapping[str, pa.Array]) -> _Usual | None:
        """Return the columns; None if some rows need more. These have a value and a topic, and
        short texts without separators.
        """
        if not _is_plain_origin(origin):
            return None
        values = _Texts.of(columns["value"])
        if not len(values.sizes()) or not values.sizes().all():
            return None
        texts: dict[str, _Texts] = {}
        names = ["key", "tag", "messageId"]
        if origin.topic is None:
            names.append("topic")
        for name in names:
            if name in columns:
                texts[name] = found = _Texts.of(columns[name])
                if not found.is_plain():
                    return None
        binary = "key" in columns and not _is_text(columns["key"])
        if binary and origin.key_encoding != "utf8":
            return None
        try:
            lists = {name: found.texts() for name, found in texts.items()}
        except UnicodeDecodeError:
            return None  # the row is named elsewhere
        topics = lists.get("topic", []) if origin.topic is None else [origin.topic]
        if not topics or not all(topics):
            return None
        return cls(
            topics,
            values.each(),
            texts.get("key"),
            lists.get("key"),
            lists.get("tag"),
            lists.get("messageId"),
        )

    def encoded(self, origin: Origin, first: int) -> list[bytes]:
        """Return the messages; the same as ``_encoded`` returns for those of the rows."""
        prefix = origin.prefix
        digests = {topic: origin.digests(topic) for topic in set(self.topics)}
        if len(self.topics) == len(self.values):
            digest_each = [digests[topic] for topic in self.topics]
        else:
            digest_each = [digests[self.topics[0]]] * len(self.values)
        named = "" if origin.name_property is None else f"{origin.name_property}\x01{prefix}"
        head, between, beside = HEAD.pack, BETWEEN.pack, BESIDE_BYTES
        none: Sequence[str] = [""] * len(self.values)
        texts = (self.keys or none, self.tags or none, self.ids or none)
        # count() has no end.
        rows = zip(count(first), digest_each, self.values, *texts, strict=False)
        entries: list[bytes] = []
        for row, digest_of, body, key, tag, own_id in rows:
            described = f"KEYS\x01{key}\x02" if key else ""
            if tag:
                described += f"TAGS\x01{tag}\x02"
            digest = digest_of(row, described.encode(), body)
            name = f"{named}{row}/{digest[:16]}\x02" if named else ""
            unique = own_id or digest.upper()
            properties = f"{name}{UNIQUE_ID}\x01{unique}\x02{described}".encode()
            size, length = len(body), len(properties)
            start = head(beside + size + length, 0, 0, 0, size)
            entries.append(start + body + between(length) + properties)
        return entries


def _is_plain_origin(origin: Origin) -> bool:
    name = origin.name_property
    if name is not None and is_reserved(name):
        return False
    texts = f"{name or ''}{origin.prefix}".encode("utf-8", "surrogatepass")
    return len(texts) < 1024 and not any(each in texts for each in _SEPARATORS)


def _is_text(column: pa.Array) -> bool:
    kind = column.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def key_hashes(keys: _Texts | None, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Java's hash of each key without surrounding blanks, and whether it is a key.

    The hash of all keys is computed together, one character after the other.
    """
    if keys is None:
        return np.zeros(number, np.int64), np.zeros(number, bool)
    sizes = keys.sizes()
    if not keys.raw.isascii():
        texts = [plain_key(text) for text in keys.texts()]
        known = {text: key_hash(text) for text in set(texts)}
        hashes = np.array([known[text] for text in texts], np.int64)
        return hashes, np.array([bool(text) for text in texts], bool)
    keyed = sizes > 0
    raw = np.frombuffer(keys.raw, np.uint8)
    rolling = np.zeros(number, np.uint32)
    starts, last = keys.bounds[:-1], max(len(raw) - 1, 0)
    for at in range(keys.longest()):
        unit = raw[np.minimum(starts + at, last)]
        rolling = np.where(sizes > at, rolling * np.uint32(31) + unit, rolling)
    found = rolling.view(np.int32).astype(np.int64)
    if len(raw):
        edges = np.minimum(raw[np.minimum(starts, last)], raw[np.maximum(keys.bounds[1:] - 1, 0)])
        for row in np.flatnonzero(keyed & (edges <= _BLANK)).tolist():
            begin, end = keys.bounds[row : row + 2].tolist()
            text = plain_key(keys.raw[begin:end].decode())
            found[row], keyed[row] = key_hash(text), bool(text)
    return found, keyed
