"""Requests of a slave to its master: own codes, unknown to RocketMQ's brokers. Pure.

RocketMQ replicates over a separate port, in a protocol without requests. Here replication uses the
common port, with one listener, codec, timeout handling and back pressure. ``headers`` has the
encoding.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from broker_core.errors import InvalidCommand
from broker_core.remoting.header_fields import Header, Int32
from broker_core.remoting.json_budget import at_most
from broker_core.remoting.json_fields import MAX_REQUEST_ELEMENTS, JsonObject

_MAX_PROBES = 4096
_MAX_TABLES_BYTES = 512 * 1024 * 1024
#: Values in them: more than a frame has room for at a broker with as many offsets and topics as the
#: default limits allow, each with an epoch and a life.
_MAX_TABLE_VALUES = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMasterHeader(Header):
    """A slave's request to copy the log from ``end_offset``, the end of its own log, on.

    ``log_id`` is empty while it has no log; ``epoch`` is the newest it knows, 0 for none. The body
    contains probes: ``[[offset, size, crc32], ...]``, messages of its log, ascending.
    """

    broker_name: str
    broker_id: Int32
    broker_addr: str
    log_id: str = ""
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMasterResponse(Header):
    """``agreed``: number of probes, from the first on, that the master's log has.

    ``joined``: the slave may continue with code ``FETCH_LOG`` on this connection. If its end is
    before ``first_offset``, the body contains the starts of queues: ``{topic: {queue id:
    offset}}``. Once joined, an elected master's body contains the epochs of its log: ``[[epoch,
    offset], ...]``, ascending. ``end_offset`` is the end of the master's log.
    """

    log_id: str
    epoch: int
    first_offset: int
    agreed: Int32
    joined: bool
    end_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLogHeader(Header):
    """A slave's request for more; its log is durable up to ``offset``, as its ``flush`` says.

    ``examined``: the bytes there were damaged, so the answer has to name their damage.
    """

    offset: int
    examined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLogResponse(Header):
    """The body is the log from the requested offset on, in the given segment; perhaps empty.

    Messages before ``confirm_offset`` may be served; the master's log begins at ``first_offset``;
    ``tables`` is JSON, name to version. ``damage`` names the bytes of the body that are damaged at
    the master, and the messages lost in them (``damage_to_json``).
    """

    segment_start: int
    segment_bytes: int
    first_offset: int
    confirm_offset: int
    tables: str
    damage: str = ""


#: Ranges of a log that are damaged, with the reason of each.
Gaps = Sequence[tuple[int, int, str]]
#: Topic, queue, first offset, end, place in the log, whether unwritten.
Lost = Sequence[tuple[str, int, int, int, int, bool]]


def damage_to_json(gaps: Gaps, lost: Lost) -> str:
    """Return ``{"gaps": [[start, end, reason], ...], "lost": [[topic, queue id, first offset, end,
    place, unwritten], ...]}``; "" without gaps.
    """
    if not gaps:
        return ""
    content = {"gaps": [list(each) for each in gaps], "lost": [list(each) for each in lost]}
    return orjson.dumps(content).decode()


def damage_from_json(text: str) -> tuple[Gaps, Lost]:
    """Inverse of ``damage_to_json``. Raise InvalidCommand."""
    if not text:
        return (), ()
    try:
        content = orjson.loads(text)
        gaps = [(int(start), int(end), str(why)) for start, end, why in content["gaps"]]
        lost = [
            (str(topic), int(queue_id), int(first), int(end), int(place), bool(unwritten))
            for topic, queue_id, first, end, place, unwritten in content["lost"]
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidCommand(f"the damage of a chunk cannot be read: {error}") from error
    return gaps, lost


def probes_to_json(probes: Iterable[tuple[int, int, int]]) -> bytes:
    """Return the body of a join."""
    return orjson.dumps([list(probe) for probe in probes])


def probes_from_json(data: bytes | memoryview) -> list[tuple[int, int, int]]:
    """Read the body of a join. Raise InvalidCommand."""
    if (found := at_most(data)) > MAX_REQUEST_ELEMENTS:
        raise InvalidCommand(f"the probes have {found} values: at most {MAX_REQUEST_ELEMENTS}")
    try:
        items = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidCommand(f"the probes are not JSON: {error}") from error
    if not isinstance(items, list) or len(items) > _MAX_PROBES:
        raise InvalidCommand(f"the probes are not a list of at most {_MAX_PROBES}")
    probes = []
    for item in items:
        if not (
            isinstance(item, list)
            and len(item) == 3
            and all(type(number) is int and number >= 0 for number in item)
        ):
            raise InvalidCommand(f"a probe is {str(item)[:80]}: expected offset, size and CRC-32")
        probes.append((item[0], item[1], item[2]))
    return probes


def queue_starts_to_json(starts: Mapping[Any, Mapping[int, int]]) -> bytes:
    """Return the body that answers a join of a slave that must start over."""
    return orjson.dumps(
        {
            topic: {str(number): at for number, at in those.items()}
            for topic, those in starts.items()
        }
    )


def queue_starts_from_json(data: bytes | memoryview) -> dict[str, dict[int, int]]:
    """Read the body that answers such a join. Raise InvalidCommand."""
    starts: dict[str, dict[int, int]] = {}
    fields = JsonObject.parse(data, "queue starts")
    for topic in fields.all():
        those = fields.items(topic)
        starts[topic] = {}
        for number, at in those.items():
            if not number.isdecimal() or type(at) is not int or at < 0:
                raise InvalidCommand(
                    f"queue {number[:20]!r} of {topic[:80]!r} starts at {at!r}: expected a number"
                    " of a queue and an offset from 0 on"
                )
            starts[topic][int(number)] = at
    return starts


def tables_to_json(tables: Mapping[str, tuple[str, Mapping[str, Any]]]) -> bytes:
    """Return the body with tables: name to version and content.

    It is compressed, since a frame is limited to 16 MiB.
    """
    content = orjson.dumps(
        {
            name: {"version": version, "content": content}
            for name, (version, content) in tables.items()
        }
    )
    return zlib.compress(content, 1)


def tables_from_json(data: bytes | memoryview) -> dict[str, tuple[str, dict[str, Any]]]:
    """Inverse of ``tables_to_json``. Raise InvalidCommand."""
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, _MAX_TABLES_BYTES)
    except zlib.error as error:
        raise InvalidCommand(f"the tables cannot be inflated: {error}") from error
    fields = JsonObject.parse(content, "tables", max_elements=_MAX_TABLE_VALUES)
    tables = {}
    for name in fields.all():
        table = fields.object(name)
        tables[name] = (table.text("version"), table.items("content"))
    return tables


def names_from_json(data: bytes | memoryview) -> list[str]:
    """Read a list of names of tables, ``{"names": [...]}``. Raise InvalidCommand."""
    fields = JsonObject.parse(data, "names of tables", max_elements=MAX_REQUEST_ELEMENTS)
    return fields.texts("names")


def names_to_json(names: Iterable[str]) -> bytes:
    """Inverse of ``names_from_json``."""
    return orjson.dumps({"names": list(names)})
