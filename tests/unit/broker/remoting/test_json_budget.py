"""Headers and JSON bodies are counted before they are parsed."""

from __future__ import annotations

import json
import tracemalloc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import InvalidCommand, RemoteProtocolError
from broker_core.remoting.bodies import Heartbeat
from broker_core.remoting.command import (
    MAX_HEADER_BYTES,
    MAX_HEADER_FIELDS,
    RemotingCommand,
    SerializeType,
    decode_header,
)
from broker_core.remoting.connection import RemotingConnection, Role
from broker_core.remoting.json_budget import at_most, exceeds
from broker_core.remoting.json_fields import MAX_ELEMENTS, parse_json
from broker_core.remoting.replication_headers import probes_from_json

MIB = 1024 * 1024
BOMBS = {
    "lists": b'{"code":1,"extFields":{"a":[' + b"[]," * (MIB // 4) + b"[]]}}",
    "fields": b'{"code":1,"extFields":{' + b'"":"",' * (MIB // 8) + b'"":""}}',
    "nested": b'{"code":1,"remark":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
    "numbers": b'{"code":1,"x":[' + b"1," * (MIB // 3) + b"1]}",
    "separators beside a string": b'{"code":"' + b'\\",' * 100_000 + b'"' + b",1" * 100_000 + b"}",
    "strings without separators": b'{"code":' + b'""' * (MIB // 3) + b",1" * 5000 + b"}",
    "a string without an end": b'{"code":1,"x":"' + b"a," * (MIB // 3),
}


def count(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(map(count, value))
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1


@pytest.mark.parametrize("name", BOMBS)
def test_a_header_full_of_elements_is_refused_before_it_is_parsed(name: str) -> None:
    header = BOMBS[name]
    assert len(header) < MAX_HEADER_BYTES
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError):
        decode_header(header, SerializeType.JSON)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 13 * len(header)  # orjson reserves twelve bytes for each


@pytest.mark.parametrize("same_name", [True, False])
def test_a_binary_header_full_of_fields_is_refused(same_name: bool) -> None:
    fields = b"".join(
        b"\0\3" + (b"abc" if same_name else b"%03x" % (number % 4096)) + bytes(4)
        for number in range(100_000)
    )
    header = bytes(13) + bytes(4) + len(fields).to_bytes(4, "big") + fields
    with pytest.raises(RemoteProtocolError, match=f"at most {MAX_HEADER_FIELDS} are read"):
        decode_header(header, SerializeType.ROCKETMQ)


@pytest.mark.parametrize("form", SerializeType)
def test_the_largest_headers_of_clients_pass(form: SerializeType) -> None:
    properties = "\x01\x02," * 11_000  # 32 KiB; JSON escapes two of three characters
    ext = {f"field-{number}": 'a,[{\\"' for number in range(500)} | {"properties": properties}
    command = RemotingCommand(10, ext=ext, serialize=form)
    reader = RemotingConnection(Role.SERVER)
    reader.receive_data(command.encode())
    again = reader.next_command()
    assert again is not None
    assert again.ext == ext


@pytest.mark.parametrize("pieces", [[8], [4, 4], [3, 2, 3]])
def test_a_large_header_is_refused_before_it_is_received(pieces: list[int]) -> None:
    start = (15 * MIB).to_bytes(4, "big") + (MAX_HEADER_BYTES + 1).to_bytes(4, "big")
    reader = RemotingConnection(Role.SERVER)
    at = 0
    for size in pieces[:-1]:
        reader.receive_data(start[at : at + size])
        at += size
        assert reader.next_command() is None
    reader.receive_data(start[at:])
    with pytest.raises(RemoteProtocolError, match="at most 1048576 are read"):
        reader.next_command()
    assert reader.buffered_bytes == 0


def test_bodies_full_of_elements_are_refused_before_they_are_parsed() -> None:
    with pytest.raises(InvalidCommand, match="at most 2000000"):
        parse_json(b"[" + b"[]," * MAX_ELEMENTS + b"[]]", what="registration")
    bomb = b"[" + b"[]," * 260_000 + b"[]]"
    for read in (Heartbeat.from_json, probes_from_json):
        with pytest.raises(InvalidCommand, match="at most 250000"):
            read(bomb)


JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a,[{"\\}')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('",[\\')), inner),
    max_leaves=20,
)


@given(JSON, st.integers(0, 40))
def test_the_count_is_that_of_a_parser(value: object, most: int) -> None:
    """Empty containers count as one more, because of their bracket."""
    text = json.dumps(value).encode()
    number = count(orjson.loads(text))
    assert at_most(text) >= number
    if number > most + 1:
        assert exceeds(text, most)
    if 2 * number <= most:
        assert not exceeds(text, most)
