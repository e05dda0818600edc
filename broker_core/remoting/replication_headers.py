"""What a slave asks of its master: codes of our own, which RocketMQ's brokers do not know. Pure.

RocketMQ replicates over a port of its own, in a protocol without requests. Ours goes over the port
that all use: one listener, one codec, one way of time-outs and back pressure. ``headers`` has the
way to the wire.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from broker_core.errors import InvalidCommand
from broker_core.remoting.header_fields import Header, Int32
from broker_core.remoting.json_fields import JsonObject

_MAX_PROBES = 4096
_MAX_TABLES_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMasterHeader(Header):
    """A slave wants to copy the log from ``end_offset`` on, where its own ends.

    ``log_id`` is empty while it holds no log; ``epoch`` the newest that it knows, 0 for none. The
    body holds probes: ``[[offset, size, crc32], ...]``, messages of its log, ascending.
    """

    broker_name: str
    broker_id: Int32
    broker_addr: str
    log_id: str = ""
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMasterResponse(Header):
    """``agreed``: so many of the probes, from the first on, stand in the master's log as well.

    ``joined``: the slave may go on with code ``FETCH_LOG`` on this connection. If its end lies
    before ``first_offset``, the body tells where queues begin: ``{topic: {queue id: offset}}``.
    """

    log_id: str
    epoch: int
    first_offset: int
    agreed: Int32
    joined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLogHeader(Header):
    """A slave has the log up to ``offset``, as durable as its ``flush`` says, and wants more."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLogResponse(Header):
    """The body is the log from the offset asked for on, in the segment told; perhaps empty.

    What stands before ``confirm_offset`` may be served; the master's log begins at
    ``first_offset``; ``tables`` is JSON, name to version.
    """

    segment_start: int
    segment_bytes: int
    first_offset: int
    confirm_offset: int
    tables: str


def probes_to_json(probes: Iterable[tuple[int, int, int]]) -> bytes:
    """Body of a join."""
    return orjson.dumps([list(probe) for probe in probes])


def probes_from_json(data: bytes | memoryview) -> list[tuple[int, int, int]]:
    """Read the body of a join. Raises InvalidCommand."""
    try:
        items = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidCommand(f"the probes are no JSON: {error}") from error
    if not isinstance(items, list) or len(items) > _MAX_PROBES:
        raise InvalidCommand(f"the probes are no list of at most {_MAX_PROBES}")
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
    """Body that answers a join of a slave that has to begin anew."""
    return orjson.dumps(
        {
            topic: {str(number): at for number, at in those.items()}
            for topic, those in starts.items()
        }
    )


def queue_starts_from_json(data: bytes | memoryview) -> dict[str, dict[int, int]]:
    """Read the body that answers such a join. Raises InvalidCommand."""
    starts: dict[str, dict[int, int]] = {}
    fields = JsonObject.parse(data, "queue starts")
    for topic in fields.all():
        those = fields.items(topic)
        starts[topic] = {}
        for number, at in those.items():
            if not number.isdecimal() or type(at) is not int or at < 0:
                raise InvalidCommand(f"queue {number[:20]!r} of {topic[:80]!r} starts at {at!r}")
            starts[topic][int(number)] = at
    return starts


def tables_to_json(tables: Mapping[str, tuple[str, Mapping[str, Any]]]) -> bytes:
    """Body that answers for tables: name to version and content; compressed, for a frame takes
    16 MiB.
    """
    content = orjson.dumps(
        {
            name: {"version": version, "content": content}
            for name, (version, content) in tables.items()
        }
    )
    return zlib.compress(content, 1)


def tables_from_json(data: bytes | memoryview) -> dict[str, tuple[str, dict[str, Any]]]:
    """Inverse of ``tables_to_json``. Raises InvalidCommand."""
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, _MAX_TABLES_BYTES)
    except zlib.error as error:
        raise InvalidCommand(f"the tables cannot be inflated: {error}") from error
    fields = JsonObject.parse(content, "tables")
    tables = {}
    for name in fields.all():
        table = fields.object(name)
        tables[name] = (table.text("version"), table.items("content"))
    return tables


def names_from_json(data: bytes | memoryview) -> list[str]:
    """Read a list of names of tables, ``{"names": [...]}``. Raises InvalidCommand."""
    return JsonObject.parse(data, "names of tables").texts("names")


def names_to_json(names: Iterable[str]) -> bytes:
    """Inverse of ``names_from_json``."""
    return orjson.dumps({"names": list(names)})
