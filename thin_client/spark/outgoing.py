"""Conversion of rows to messages, with names by which consumers recognize repeats. Pure.

Spark may run a task or a micro-batch twice. A message's name contains its origin (job or
micro-batch, partition, row) and half of a digest of origin and content; the whole digest is its
id. A task that runs again over the same rows creates the same names, so a consumer can drop the
repeats. Over other rows (a source with another order, another number of partitions) it creates
other names: a message may then be delivered twice, but a new message is never taken for a repeat.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from broker_core.errors import LocalProtocolError
from broker_core.remoting.message import KEYS, TAGS, encode_properties, is_reserved
from thin_client.delivery import UNIQUE_ID, Outgoing, json_path
from thin_client.key_hash import plain_key
from thin_client.spark.option_values import OptionError
from thin_client.spark.tombstones import TOMBSTONE, body_of

#: The columns that a sink accepts, and the types of each in Spark's notation.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "tag": ("string",),
    "properties": ("map<string,string>",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "qid": ("string",),
    "shardingKey": ("string",),
    "messageId": ("string",),
}
#: The column that names a queue by number with Kafka's names, and its type.
PARTITION = "partition"
_PARTITION_TYPES = ("int", "smallint", "tinyint")
#: Columns of a source that a sink ignores: the broker and the new message decide them.
DECIDED = frozenset({"offset", "timestamp", "bornTimestamp"})
_DECIDED_WITH_KAFKAS = DECIDED | {"timestampType"}
#: The texts that a binary key may become, by the option keyEncoding.
KEY_ENCODINGS: Mapping[str, Callable[[bytes], str]] = {
    "utf8": bytes.decode,
    "hex": bytes.hex,
    "base64": lambda key: base64.b64encode(key).decode(),
}
_ID_BYTES = 16
#: Digits of the digest that are in a message's name.
_NAME_DIGITS = 16
_TEXT_TYPES = ("varchar", "char", "string ")  # with a length or a collation


class RowRefused(ValueError):
    """A row that no broker would accept; the message names the row and the defect."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of the rows of one task.

    Args:
        batch: the job, or the query and its micro-batch.
        topic: the topic of all rows; None: each row's column ``topic``.
        name_property: the property for a message's name; None: no property.
        key_encoding: one of ``KEY_ENCODINGS``, for binary keys.
    """

    batch: str
    partition: int
    topic: str | None
    name_property: str | None
    key_encoding: str = "utf8"

    @property
    def prefix(self) -> str:
        """The beginning of the names of the task's messages."""
        return f"{self.batch}/{self.partition}/"

    def digests(
        self, topic: str, qid: str | None = None, sharding_key: str | None = None
    ) -> Callable[[int, bytes, bytes], str]:
        """Return a function that computes the digest of a row's message, in hexadecimal digits,
        from the number of the row, the encoded properties, and the body.
        """
        prefix, place = self.prefix, f"/{(topic, qid, sharding_key)!r}"

        def digest(row: int, described: bytes, body: bytes) -> str:
            # No property begins with 0x01, so it separates them from the body.
            content = f"{prefix}{row}{place}".encode() + described + b"\x01" + body
            return hashlib.blake2b(content, digest_size=_ID_BYTES).hexdigest()

        return digest

    def messages(self, columns: Mapping[str, Sequence[Any]], *, first: int) -> list[Outgoing]:
        """Return the messages of *columns*; *first*: the task's number of the first row.

        Raises RowRefused.
        """
        values = columns["value"]
        absent = [None] * len(values)
        rows = zip(*(columns.get(name, absent) for name in COLUMNS), strict=True)
        return [self._message(first + number, *row) for number, row in enumerate(rows)]

    def qids(
        self,
        columns: Mapping[str, Sequence[Any]],
        qid_of: Callable[[str, int], str | None],
        *,
        first: int,
    ) -> list[str | None]:
        """Return the names of the queues in the column ``partition``, None for a row without one.

        *qid_of* returns the name by topic and number. Raises RowRefused for a missing queue.
        """
        numbers = columns[PARTITION]
        topics = columns.get("topic", [None] * len(numbers))
        found: list[str | None] = []
        for row, (number, named) in enumerate(zip(numbers, topics, strict=True), first):
            topic = self.topic or named
            qid = qid_of(topic, number) if topic and number is not None else None
            if topic and number is not None and qid is None:
                raise self.refused(
                    row, f"has the partition {number}, which the topic {topic!r} does not have"
                )
            found.append(qid)
        return found

    def _message(
        self,
        row: int,
        value: str | bytes | None,
        key: str | bytes | None,
        tag: str | None,
        properties: Iterable[tuple[str, str | None]] | None,
        headers: Iterable[Mapping[str, Any] | None] | None,
        topic: str | None,
        qid: str | None,
        sharding_key: str | None,
        message_id: str | None,
    ) -> Outgoing:
        topic = self.topic or topic
        if not topic:
            raise self.refused(row, "has no topic: fill the column topic, or set the option topic")
        body, tombstone = body_of(value)
        text = self._key(row, key)
        own = self._properties(row, properties, headers)
        if tombstone is not None:
            own[TOMBSTONE] = tombstone
        described = self._described(row, own, text, tag)
        digest = self.digests(topic, qid, sharding_key)(row, described, body)
        if self.name_property is not None:
            own[self.name_property] = f"{self.prefix}{row}/{digest[:_NAME_DIGITS]}"
        own[UNIQUE_ID] = message_id or digest.upper()
        sharding = plain_key(sharding_key or "") or None
        return Outgoing(topic, body, text or None, sharding, tag or None, own, queue=qid or None)

    def _key(self, row: int, key: str | bytes | None) -> str | None:
        if not isinstance(key, bytes):
            return key
        try:
            return KEY_ENCODINGS[self.key_encoding](key)
        except UnicodeDecodeError:
            raise self.refused(
                row,
                f"has the key {key[:40]!r}, which is not UTF-8: set the option keyEncoding to hex"
                " or base64",
            ) from None

    def _properties(
        self,
        row: int,
        properties: Iterable[tuple[str, str | None]] | None,
        headers: Iterable[Mapping[str, Any] | None] | None,
    ) -> dict[str, str]:
        """Return the properties of a message; both columns may name one, and ``properties`` counts.

        Left out, as a reader would not see them: those without a name or value, and those that
        brokers reserve.
        """
        found: dict[str, str | None] = {}
        for header in headers or ():
            if header is not None:
                found[header["key"]] = self._header(row, header["key"], header["value"])
        found.update(properties or ())
        return {name: text for name, text in found.items() if name and text and _is_free(name)}

    def _header(self, row: int, name: str, value: bytes | None) -> str | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError:
            raise self.refused(
                row, f"has the header {name!r}, whose value is not UTF-8: encode it as text"
            ) from None

    def _described(
        self, row: int, own: Mapping[str, str], key: str | None, tag: str | None
    ) -> bytes:
        """Return the properties that the digest covers, encoded."""
        named = {**dict(sorted(own.items())), KEYS: key or "", TAGS: tag or ""}
        try:
            return encode_properties(named)
        except LocalProtocolError as error:
            raise self.refused(row, f"cannot be sent: {error}") from None

    def refused(self, row: int, why: str) -> RowRefused:
        """Return the refusal of a row; *why* is the rest of the sentence."""
        return RowRefused(f"row {row} of partition {self.partition} {why}")


@lru_cache(maxsize=1024)
def _is_free(name: str) -> bool:
    return not is_reserved(name)


def sharding_key(path: str, value: str | bytes | None) -> str | None:
    """Return the text at the JSON path *path* in *value*; None if there is none.

    Raises RowRefused for invalid JSON.
    """
    if not value:
        return None
    try:
        return json_path(path).text_in(value)
    except ValueError as error:
        raise RowRefused(f"the value {value[:40]!r} … cannot be sent: {error}") from None


def check_columns(
    found: Sequence[tuple[str, str]],
    *,
    topic: str | None,
    key_encoding: str | None = None,
    ignore_others: bool = False,
    kafka_names: bool = False,
) -> None:
    """Raise OptionError unless a sink accepts columns of these names and types.

    *topic*, *key_encoding*: the options; None if they are not set. *ignore_others*: whether other
    columns than the sink's are ignored. *kafka_names*: whether those of Kafka's sink are accepted.
    """
    accepted = {**COLUMNS, PARTITION: _PARTITION_TYPES} if kafka_names else COLUMNS
    decided = _DECIDED_WITH_KAFKAS if kafka_names else DECIDED
    names = [name for name, _ in found]
    types = {name: _plain(kind) for name, kind in found}
    for name, given in types.items():
        if name in decided:
            continue
        if name not in accepted:
            if ignore_others:
                continue
            raise OptionError(
                f"column {name!r} cannot be written: select or rename columns to"
                f" {', '.join(accepted)}, or set the option extraColumns to ignore"
            )
        if names.count(name) > 1:
            raise OptionError(f"column {name!r} occurs twice: select one of them")
        if given not in accepted[name]:
            expected = " or ".join(accepted[name])
            raise OptionError(f"column {name!r} is {given}: cast it to {expected}")
    if kafka_names and {PARTITION, "qid"} <= types.keys():
        raise OptionError("columns 'partition' and 'qid' both name the queue: select one of them")
    if "value" not in names:
        raise OptionError("column 'value' is missing: name the column with the message's body so")
    if topic is None and "topic" not in names:
        raise OptionError("no topic to write to: set the option topic, or add the column 'topic'")
    if key_encoding is not None and types.get("key") != "binary":
        raise OptionError(
            "keyEncoding has no effect without a binary column 'key': remove the option"
        )


def _plain(kind: str) -> str:
    return "string" if kind.startswith(_TEXT_TYPES) else kind


@dataclass(slots=True)
class Pace:
    """Rate limit of a task, rows/s. Pure: the time is an argument."""

    rows_per_second: float
    began_s: float
    _rows: int = 0

    def wait_s(self, rows: int, now_s: float) -> float:
        """Return the seconds to wait after *rows* more rows were sent."""
        self._rows += rows
        return max(0.0, self.began_s + self._rows / self.rows_per_second - now_s)


def portions(count: int, most: int, *, rows_per_second: float | None) -> Iterator[slice]:
    """Yield slices that cover *count* rows, one for each request: of *most* rows, or of fewer so
    that a rate limit spreads requests over each second.
    """
    size = most if rows_per_second is None else max(1, min(most, int(rows_per_second / 5)))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
