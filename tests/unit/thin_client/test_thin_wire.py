"""The thin client's frames, with thrift's C codec and its Python codec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker_core.remoting.compression import MAX_INFLATED_BYTES
from broker_core.remoting.message import MAX_PROPERTIES_BYTES
from proxy.settings.proxy_settings import LimitSettings
from thin_client import wire
from thin_client.calls import fetch
from thin_client.errors import ProtocolError
from thin_client.wire import compiled_codec, encode_call
from thrift_idl import consumer, consumer_service

CLIENTS = Path(__file__).parents[3] / "thin_client"


def call_and_answer() -> tuple[bytes, bytes]:
    """Return the frame of a fetch, and the decoded fields of an answer."""
    request = consumer.FetchRequest("r", "g", "", {"t": {"broker-a_0": 1 << 40}}, format=1)
    records = bytes(range(256)) * 1000
    response = consumer.FetchResponse(
        results=[consumer.QidResponse("t", "broker-a_0", 7, [], records=records)]
    )
    answer = encode_call("fetch", consumer_service.fetch_result(response), sequence_id=3)
    body = bytearray(answer[4:])
    body[1] = (body[1] & 0x1F) | (2 << 5)  # turns the call of encode_call into a reply
    decoded = fetch(request).decode(bytes(body), sequence_id=3, sender="here")
    return fetch(request).encode(3), repr(decoded).encode()


def test_both_codecs_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_codec()
    by_c = call_and_answer()
    monkeypatch.setattr(wire, "compiled_codec", lambda: False)
    assert call_and_answer() == by_c


def test_the_codec_in_python_bounds_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "compiled_codec", lambda: False)
    request = consumer.FetchRequest("r", "g", "")
    for frame in (b"\x82\x41\x03\x05fetch\x0d\x00\x19\xfc\xff\xff\xff\xff\x07", b"\x82" * 100):
        with pytest.raises(ProtocolError, match="the answer of here to fetch cannot be decoded"):
            fetch(request).decode(frame, sequence_id=3, sender="here")


@pytest.mark.parametrize(
    "source",
    [
        "wire.py",
        "go/connection.go",
        "java/src/main/java/io/github/orderlane/client/internal/Wire.java",
        "node/src/frames.ts",
        "cpp/src/calls.hpp",
    ],
)
def test_every_client_takes_the_longest_answer_that_settings_let(source: str) -> None:
    """Plus one message, by which an answer may exceed the limit: inflated, with all properties and
    an order key from one of them; some characters of both are escapes of four characters.
    """
    told = re.search(
        r"max_?frame_?bytes = ([\d_']+)", (CLIENTS / source).read_text(), re.IGNORECASE
    )
    assert told is not None
    (limit,) = (
        each.le
        for each in LimitSettings.model_fields["max_answer_bytes"].metadata
        if getattr(each, "le", None)
    )
    longest = limit + MAX_INFLATED_BYTES + 8 * MAX_PROPERTIES_BYTES
    assert longest < int(re.sub("[_']", "", told[1])) == wire.MAX_FRAME_BYTES
