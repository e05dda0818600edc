"""Rows to messages: which columns may be written, and the names by which repeats are told. Pure.

Spark may run a task twice, and a micro-batch too. A message's name holds where it came from (job or
micro-batch, partition, row) and a digest of what it says. Run again over the same rows, a task
makes the same names, so a consumer can drop repeats. Run again over other rows (a source that gives
them in another order, another number of partitions) it makes other names: a message may come twice
then, and never is a new one taken for a repeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thin_client.delivery import UNIQUE_ID, Outgoing, json_path
from thin_client.key_hash import plain_key
from thin_client.spark.option_values import OptionError

#: The columns that a sink takes, and the types of each as Spark writes them.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": ("string", "binary"),
    "key": ("string",),
    "tag": ("string",),
    "properties": ("map<string,string>",),
    "topic": ("string",),
    "shardingKey": ("string",),
    "messageId": ("string",),
}
_DIGEST_BYTES, _ID_BYTES = 8, 16
_TEXT_TYPES = ("varchar", "char", "string ")  # with a length, with a collation


class RowRefused(ValueError):
    """A row that no broker would take; the text says which one, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of one task come from.

    *batch*: the job, or the query and its micro-batch. *topic*: where all rows go; None: the column
    says it. *name_property*: the property that takes a message's name; None: none does.
    """

    batch: str
    partition: int
    topic: str | None
    name_property: str | None

    def messages(self, columns: Mapping[str, Sequence[Any]], *, first: int) -> list[Outgoing]:
        """The rows of *columns*; the first is the task's row *first*. Raises RowRefused."""
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
            raise self._refused(row, "names no topic: fill the column topic, or set the option")
        if not value:
            what = "no value" if value is None else "an empty value"
            raise self._refused(row, f"has {what}: a message needs a body of 1 byte or more")
        body = value.encode() if isinstance(value, str) else value
        own: dict[str, str] = {}
        for name, text in properties or ():
            if not name or not text:
                raise self._refused(row, f"has property {name!r} with no value: leave it out")
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
    """What the JSON path *path* finds in *value*; None: nothing. Raises RowRefused for no JSON."""
    if not value:
        return None
    try:
        return json_path(path).text_in(value)
    except ValueError as error:
        raise RowRefused(f"the value {value[:40]!r} … cannot be sent: {error}") from None


def check_columns(found: Sequence[tuple[str, str]], *, topic: str | None) -> None:
    """Raises OptionError unless a sink can take columns of these names and types.

    *topic*: that of the options, None if they name none.
    """
    names = [name for name, _ in found]
    for name, kind in found:
        if name not in COLUMNS:
            raise OptionError(
                f"column {name!r} cannot be written: a message has {', '.join(COLUMNS)};"
                " select or rename"
            )
        if names.count(name) > 1:
            raise OptionError(f"column {name!r} is there twice: select one")
        if (given := _plain(kind)) not in COLUMNS[name]:
            expected = " or ".join(COLUMNS[name])
            raise OptionError(f"column {name!r} is {given}: cast it to {expected}")
    if "value" not in names:
        raise OptionError("there is no column 'value', which becomes the message's body: name one")
    if topic is None and "topic" not in names:
        raise OptionError("no topic to write to: set the option topic, or add a column 'topic'")


def _plain(kind: str) -> str:
    return "string" if kind.startswith(_TEXT_TYPES) else kind


@dataclass(slots=True)
class Pace:
    """Holds a task to a number of rows a second. Pure: the time is an argument."""

    rows_per_second: float
    began_s: float
    _rows: int = 0

    def wait_s(self, rows: int, now_s: float) -> float:
        """How long to wait after *rows* more were sent."""
        self._rows += rows
        return max(0.0, self.began_s + self._rows / self.rows_per_second - now_s)


def portions(count: int, most: int, *, rows_per_second: float | None) -> Iterator[slice]:
    """Slices that cover *count* rows, each for one request: of *most* rows, or of fewer where a
    rate asks for some requests a second instead of one great heap.
    """
    size = most if rows_per_second is None else max(1, min(most, int(rows_per_second / 5)))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
