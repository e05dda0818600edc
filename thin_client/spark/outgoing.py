"""Conversion of rows to messages, with names by which consumers recognize repeats. Pure.

Spark may run a task or a micro-batch twice. A message's name contains its origin (job or
micro-batch, partition, row) and a digest of its content. A task that runs again over the same rows
creates the same names, so a consumer can drop the repeats. Over other rows (a source with another
order, another number of partitions) it creates other names: a message may then be delivered twice,
but a new message is never taken for a repeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thin_client.delivery import UNIQUE_ID, Outgoing, json_path
from thin_client.key_hash import plain_key
from thin_client.spark.option_values import OptionError

#: The columns that a sink accepts, and the types of each in Spark's notation.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": ("string", "binary"),
    "key": ("string",),
    "tag": ("string",),
    "properties": ("map<string,string>",),
    "topic": ("string",),
    "shardingKey": ("string",),
    "messageId": ("string",),
}
#: The columns that only a source has.
READ_ONLY = frozenset({"qid", "offset", "timestamp", "bornTimestamp", "headers"})
_DIGEST_BYTES, _ID_BYTES = 8, 16
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
    """

    batch: str
    partition: int
    topic: str | None
    name_property: str | None

    def messages(self, columns: Mapping[str, Sequence[Any]], *, first: int) -> list[Outgoing]:
        """Return the messages of *columns*; *first*: the task's number of the first row.

        Raises RowRefused.
        """
        values = columns["value"]
        absent = [None] * len(values)
        rows = zip(*(columns.get(name, absent) for name in COLUMNS), strict=True)
        return [self._message(first + number, *row) for number, row in enumerate(rows)]

    def _message(
        self,
        row: int,
        value: str | bytes | None,
        key: str | None,
        tag: str | None,
        properties: Sequence[tuple[str, str | None]] | None,
        topic: str | None,
        sharding_key: str | None,
        message_id: str | None,
    ) -> Outgoing:
        topic = self.topic or topic
        if not topic:
            raise self._refused(row, "has no topic: fill the column topic, or set the option topic")
        if not value:
            what = "no value" if value is None else "an empty value"
            raise self._refused(row, f"has {what}: a message body needs at least 1 byte")
        body = value.encode() if isinstance(value, str) else value
        own: dict[str, str] = {}
        for name, text in properties or ():
            if not name or not text:
                raise self._refused(row, f"has property {name!r} without a value: remove it")
            own[name] = text
        name = self._name(row, (topic, body, key, tag, sharding_key, *sorted(own.items())))
        if self.name_property is not None:
            own[self.name_property] = name
        own[UNIQUE_ID] = message_id or _digest(name, _ID_BYTES).upper()
        sharding = plain_key(sharding_key or "") or None
        return Outgoing(topic, body, key or None, sharding, tag or None, own)

    def _name(self, row: int, content: tuple[Any, ...]) -> str:
        digest = _digest(repr(content), _DIGEST_BYTES)
        return f"{self.batch}/{self.partition}/{row}/{digest}"

    def _refused(self, row: int, why: str) -> RowRefused:
        return RowRefused(f"row {row} of partition {self.partition} {why}")


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


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


def check_columns(found: Sequence[tuple[str, str]], *, topic: str | None) -> None:
    """Raise OptionError unless a sink accepts columns of these names and types.

    *topic*: the option; None if it is not set.
    """
    names = [name for name, _ in found]
    for name, kind in found:
        if name not in COLUMNS:
            raise OptionError(
                f"column {name!r} cannot be written: select or rename columns to"
                f" {', '.join(COLUMNS)}"
            )
        if names.count(name) > 1:
            raise OptionError(f"column {name!r} occurs twice: select one of them")
        if (given := _plain(kind)) not in COLUMNS[name]:
            expected = " or ".join(COLUMNS[name])
            raise OptionError(f"column {name!r} is {given}: cast it to {expected}")
    if "value" not in names:
        raise OptionError("column 'value' is missing: name the column with the message's body so")
    if topic is None and "topic" not in names:
        raise OptionError("no topic to write to: set the option topic, or add the column 'topic'")


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
