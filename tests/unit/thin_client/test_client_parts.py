"""The small parts of the thin client: addresses, frames, messages, verdicts."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from tests.support.client_messages import message_with
from thin_client import calls, wire
from thin_client.addresses import Address, parse_address, parse_addresses
from thin_client.aio_connection import AsyncConnection
from thin_client.arrivals import read_leases
from thin_client.clock import now_ns
from thin_client.connection import Connection
from thin_client.errors import ClientError, ConnectionLost, ProtocolError, ProxyFault
from thin_client.lease import Home, Lease
from thin_client.message import Message, Retry, outcome_name
from thin_client.servers import Destination
from thin_client.verdicts import Verdicts
from thin_client.wire import FrameBuffer, encode_call
from thrift_idl import consumer, consumer_service

# ---- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("proxy:9714", Address("proxy", 9714)),
        (" 10.0.0.1 ", Address("10.0.0.1", 9713)),
        ("[::1]:9714", Address("::1", 9714)),
        ("[fe80::1]", Address("fe80::1", 9713)),
    ],
)
def test_addresses_are_read(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":9713", "a:b", "a:0", "a:70000", "::1", "a b:1", "h:1:2"])
def test_other_texts_say_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        parse_addresses(text)


def test_a_list_of_proxies_has_two_forms() -> None:
    assert parse_addresses("a:1, b:2") == parse_addresses(["a:1", "b:2"])


@pytest.mark.parametrize("host", ["proxy..svc", ".proxy", "a" * 64])
async def test_a_name_that_no_resolver_takes_is_a_lost_connection(host: str) -> None:
    destination = Destination(Address(host, 9713))
    with pytest.raises(ConnectionLost, match=r"no connection to .*: "):
        Connection(destination, timeout_s=1)
    with pytest.raises(ConnectionLost, match=r"no connection to .*: "):
        await AsyncConnection.open(destination, timeout_s=1)


# ---- frames and answers -------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5), st.data())
def test_frames_survive_any_cut(payloads: list[bytes], data: st.DataObject) -> None:
    """Any splitting of the bytes gives the same frames, also one into whole frames."""
    stream = b"".join(len(each).to_bytes(4, "big") + each for each in payloads)
    buffer, found = FrameBuffer(), []
    while stream:
        whole = 4 + int.from_bytes(stream[:4], "big")
        size = data.draw(st.just(whole) | st.integers(1, len(stream)))
        frame = buffer.receive_frame(stream[:size])
        stream = stream[size:]
        while frame is not None:
            found.append(frame)
            frame = buffer.next_frame()

    assert found == payloads


@given(
    lengths=st.lists(st.integers(1, 200_000), max_size=4),
    sizes=st.lists(st.integers(500, 150_000), min_size=1),
)
def test_frames_survive_any_cut_also_where_they_are_received_in_place(
    lengths: list[int], sizes: list[int]
) -> None:
    """Small and large frames, in reads of any size up to the offered buffer."""
    payloads = [bytes([number]) * length for number, length in enumerate(lengths)]
    stream = b"".join(len(each).to_bytes(4, "big") + each for each in payloads)
    buffer, found = FrameBuffer(), []
    at = 0

    def read_into(room: memoryview) -> int:
        assert len(room) > 0
        part = stream[at : at + min(sizes[len(found) % len(sizes)], len(room))]
        room[: len(part)] = part
        return len(part)

    while at < len(stream):
        at += buffer.receive_into(read_into)
        while (frame := buffer.next_frame()) is not None:
            found.append(frame)
    assert found == payloads
    assert buffer.receive_into(read_into) == 0, "the other end closed"


@given(st.binary(max_size=80))
@example(bytes.fromhex("82210104") + b"pull" + b"\x1c" * 20)
@example(bytes.fromhex("82410104") + b"pull" + b"\x1c" * 20)
@example(bytes.fromhex("82410104") + b"pull" + bytes.fromhex("0c0000"))  # cut off
def test_any_answer_decodes_or_is_a_client_error(frame: bytes) -> None:
    """Bytes from another kind of server raise only ClientErrors."""
    call = calls.pull(consumer.PullRequest(groupId="g"))
    with contextlib.suppress(ClientError):
        call.decode(frame, sequence_id=1, sender="proxy:1")


@pytest.mark.parametrize("field", ["29fcffffffff07", "28ffffffff07"])
def test_a_hostile_length_is_refused_before_memory_is_taken(field: str) -> None:
    """A list of 2**31 elements and a string of 2**31 bytes."""
    call = calls.pull(consumer.PullRequest(groupId="g"))
    frame = bytes.fromhex("82410104") + b"pull" + bytes.fromhex("0c" + field)
    with pytest.raises(ProtocolError, match="cannot be decoded"):
        call.decode(frame, sequence_id=1, sender="proxy:1")


@pytest.mark.parametrize("sequence_id", [1, 127, 128, 2**31 - 1])
@pytest.mark.parametrize("compiled", [True, False])
def test_calls_begin_as_thrift_has_it(
    monkeypatch: pytest.MonkeyPatch, *, compiled: bool, sequence_id: int
) -> None:
    """thrift reads the calls of both codecs, and answers with the same number are decoded."""
    monkeypatch.setattr(wire, "compiled_codec", lambda: compiled)
    frame = calls.pull(consumer.PullRequest(groupId="g")).encode(sequence_id)
    protocol = TCompactProtocol(TMemoryBuffer(frame[4:]))
    result = consumer_service.pull_result(success=consumer.PullResponse(leaseMs=5))
    reply = bytearray(encode_call("pull", result, sequence_id=sequence_id)[4:])
    reply[1] = 0x41

    assert protocol.readMessageBegin() == ("pull", TMessageType.CALL, sequence_id)
    call = calls.pull(consumer.PullRequest(groupId="g"))
    assert call.decode(bytes(reply), sequence_id=sequence_id, sender="proxy:1").leaseMs == 5


def answered(kind: int, result: Any, *, sequence_id: int = 5) -> Any:
    call = calls.pull(consumer.PullRequest(groupId="g"))
    buffer = TMemoryBuffer()
    protocol = TCompactProtocol(buffer)
    protocol.writeMessageBegin("pull", kind, 5)
    result.write(protocol)
    return call.decode(buffer.getvalue(), sequence_id=sequence_id, sender="proxy:1")


def test_an_answer_is_distinguished_from_a_fault() -> None:
    """A reply is decoded; a fault, another call's reply and an empty reply raise."""
    result = consumer_service.pull_result(success=consumer.PullResponse(leaseMs=5))
    fault = TApplicationException(TApplicationException.INTERNAL_ERROR, "disk full")

    assert answered(TMessageType.REPLY, result).leaseMs == 5
    with pytest.raises(ProxyFault, match="disk full") as caught:
        answered(TMessageType.EXCEPTION, fault)
    assert caught.value.retriable
    with pytest.raises(ProtocolError, match="proxy:1 answered pull number 6 with"):
        answered(TMessageType.REPLY, result, sequence_id=6)
    with pytest.raises(ProtocolError, match="proxy:1 sent an empty answer to pull"):
        answered(TMessageType.REPLY, consumer_service.pull_result())


def test_both_codecs_give_the_same_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C codec fills leases directly, also for several queues; missing fields have defaults."""
    whole = consumer.Message(
        key="k",
        value=b"v",
        tag="t",
        offset=7,
        properties={"a": "b"},
        leaseId=1,
        attempt=3,
        bornAtMs=5,
        orderKey=b"o",
        messageId="m",
    )
    bare = consumer.Message(value=b"", offset=8, leaseId=2)
    first, second = (consumer.Context(groupId="g", topic="t", qid=qid) for qid in ("q#1", "r#1"))
    response = consumer.PullResponse(context=first, messages=[whole, bare], leaseMs=3000)
    response.more = [consumer.PullResponse(context=second, messages=[bare])]

    found = []
    for compiled in (True, False):
        monkeypatch.setattr(wire, "compiled_codec", lambda compiled=compiled: compiled)
        answer = answered(TMessageType.REPLY, consumer_service.pull_result(success=response))
        parts = [answer, *answer.more]
        leases = [
            lease
            for part in parts
            for lease in read_leases(part, Home(None), sent_ns=0, length_ms=3000)
        ]
        names = [each.name for each in fields(Message)]
        found.append([[getattr(each, name) for name in names] for each in leases])

    assert found[0] == found[1]
    assert found[0][0][:10] == ["t", "q#1", 7, b"v", "k", b"o", "t", {"a": "b"}, 3, 5]
    assert found[0][2][:10] == ["t", "r#1", 8, b"", None, None, None, {}, 1, None]


def test_a_message_without_body_is_refused() -> None:
    """And so is one without a lease, with both codecs; unknown attributes raise AttributeError."""
    part = consumer.PullResponse(
        context=consumer.Context(topic="t", qid="q"), messages=[consumer.Message(offset=1)]
    )
    result = consumer_service.pull_result(success=part)
    for each in (part, answered(TMessageType.REPLY, result)):
        with pytest.raises(ProtocolError, match="without body, offset or lease"):
            read_leases(each, Home(None), sent_ns=0, length_ms=1)
    assert not hasattr(Lease(), "colour")


# ---- messages -----------------------------------------------------------------------------------


def test_message_reads_its_fields() -> None:
    """Derived values are correct, and missing ones are None."""
    message = message_with(
        body=b'{"id": 7}', born_at_ms=1_000, deadline_ns=now_ns() + 10_000_000_000
    )

    assert message.json() == {"id": 7}
    assert message.born_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    for no_date in (2**63 - 1, -(2**63), 253_402_300_800_000):
        assert message_with(born_at_ms=no_date).born_at is None
    assert 9 < message.seconds_left <= 10
    assert str(message) == "orders/broker-a_0#1 at offset 7 (attempt 2)"
    assert message_with().born_at is None


def test_a_bad_body_names_its_message() -> None:
    with pytest.raises(ValueError, match=r"body of orders/.* at offset 7 .* is not valid JSON"):
        message_with(body=b"\xff").json()


def test_interrupts_give_back_and_go_on() -> None:
    """Ctrl-C in a scope returns the message, and must reach the program."""
    outcomes = []
    message = message_with()
    message.attach(lambda _, outcome: outcomes.append(outcome_name(outcome)))

    with pytest.raises(KeyboardInterrupt), message:
        raise KeyboardInterrupt

    assert outcomes == ["defer"]


@pytest.mark.parametrize("after_s", [-1, float("nan")])
def test_a_retry_in_the_past_is_refused(after_s: float) -> None:
    with pytest.raises(ValueError, match="0 or more seconds"):
        Retry(after_s)


def test_a_far_retry_fits_the_wire() -> None:
    """An infinite delay becomes the maximum of the wire format."""
    verdicts = Verdicts()
    context = consumer.Context(topic="t", qid="q")
    verdicts.add(("t", "q"), context, 1, Retry(float("inf")), 0, 0)

    assert verdicts.batches()[0].nacked[0].retryAfterMs == 2**31 - 1
