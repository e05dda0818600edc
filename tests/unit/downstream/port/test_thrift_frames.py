"""Frames and calls: split anywhere, in both protocols; only FrameError for invalid bytes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from proxy.downstream.port.frames import (
    KEPT_BYTES,
    MAX_NAME_BYTES,
    Call,
    FrameBuffer,
    FrameError,
    Spliced,
    encode_answer,
    encode_failure,
    encode_spliced,
)
from testkit.thrift_client import (
    BINARY,
    COMPACT,
    Protocol,
    chain,
    decode_answer,
    framed,
    link,
    our_pull,
    payload_of,
)
from thrift_idl import consumer, consumer_service

PULL = consumer_service.pull_args(request=our_pull("billing", maxBatchSize=3))

protocols = pytest.mark.parametrize("protocol", [COMPACT, BINARY], ids=["compact", "binary"])


def pull(**fields: object) -> consumer_service.pull_args:
    return consumer_service.pull_args(request=our_pull("billing", **fields))


# ---- frames -----------------------------------------------------------------------------------


@pytest.mark.parametrize("passed_over", [False, True])
def test_large_frames_come_out_whole_wherever_the_stream_was_cut(passed_over: bool) -> None:
    first, second = b"first" * 20_000, bytes(range(256)) * 300
    stream = framed(first) + framed(b"between") + framed(second)
    for cut in (1, 4, 5, 4 + KEPT_BYTES, 70_000, len(first) + 3, len(first) + 4, len(first) + 20):
        buffer = FrameBuffer(1 << 20)
        frames: list[bytes] = []
        for at in range(0, len(stream), cut):
            buffer.receive_data(stream[at : at + cut])
            while (frame := buffer.next_frame()) is not None:
                frames.append(frame)
            if passed_over and buffer.announced > KEPT_BYTES:
                buffer.pass_over()
            assert buffer.buffered <= max(len(first), cut) + 4
        for frame, whole in zip(frames, (first, b"between", second), strict=True):
            assert frame == whole or (passed_over and frame == whole[: KEPT_BYTES - 4])
        assert buffer.buffered == 0


def test_a_large_frame_is_not_copied_when_it_is_complete() -> None:
    part, number = bytes(65_536), 64
    tracemalloc.start()
    buffer = FrameBuffer(8 << 20)
    buffer.receive_data((len(part) * number).to_bytes(4, "big"))
    assert buffer.next_frame() is None
    for _ in range(number):
        assert buffer.next_frame() is None
        buffer.receive_data(part)
    frame = buffer.next_frame()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frame is not None
    assert len(frame) == len(part) * number
    assert peak_bytes < 1.5 * len(frame)


def test_frames_come_out_whole_wherever_the_stream_was_cut() -> None:
    stream = framed(b"one") + framed(b"second") + framed(b"3")
    for cut in range(len(stream) + 1):
        buffer = FrameBuffer(1024)
        frames = []
        for part in (stream[:cut], stream[cut:]):
            buffer.receive_data(part)
            while (frame := buffer.next_frame()) is not None:
                frames.append(frame)
        assert frames == [b"one", b"second", b"3"]
        assert buffer.buffered == 0


def test_a_frame_that_is_passed_over_leaves_its_head_wherever_the_stream_was_cut() -> None:
    """The frames before and after it are complete; only its head is held meanwhile."""
    large = bytes(n % 251 for n in range(KEPT_BYTES * 3))
    stream = framed(b"one") + framed(large) + framed(b"3")
    for cut in range(8, 11 + len(large)):
        for again in (cut, cut + 1, cut + KEPT_BYTES):
            buffer = FrameBuffer(1024)
            frames = []
            for part in (stream[:cut], stream[cut:again], stream[again:]):
                buffer.receive_data(part)
                while (frame := buffer.next_frame()) is not None:
                    frames.append(frame)
                if buffer.announced == 4 + len(large):
                    buffer.pass_over()
                    assert buffer.buffered <= KEPT_BYTES
            begun = 11 <= cut < 11 + len(large) or 11 <= again < 11 + len(large)
            assert frames == [b"one", large[: KEPT_BYTES - 4] if begun else large, b"3"]
            assert (buffer.buffered, buffer.announced) == (0, 0)


@pytest.mark.parametrize(
    "head", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\4\1", b"GET / HTTP/1.1\r\n", b"\x16\3\1\2\0"]
)
def test_a_length_out_of_bounds_is_an_error_before_anything_is_awaited(head: bytes) -> None:
    """Empty, negative, one byte above the limit, HTTP, TLS."""
    buffer = FrameBuffer(1024)
    buffer.receive_data(head)
    with pytest.raises(FrameError, match="expected 1 to 1024"):
        buffer.next_frame()


def test_a_frame_as_long_as_the_limit_is_taken() -> None:
    buffer = FrameBuffer(1024)
    buffer.receive_data(framed(bytes(1024)))
    assert buffer.next_frame() == bytes(1024)


# ---- calls ------------------------------------------------------------------------------------


@protocols
@pytest.mark.parametrize("sequence_id", [0, 1, 127, 128, 2**31 - 1, -1, -(2**31)])
def test_an_answer_echoes_name_and_sequence_id_in_its_calls_protocol(
    protocol: Protocol, sequence_id: int
) -> None:
    call = Call(payload_of("pull", PULL, protocol=protocol, sequence_id=sequence_id))
    assert (call.name, call.one_way) == ("pull", False)
    assert call.decode(consumer_service.pull_args()) == PULL
    result = consumer_service.pull_result(success=consumer.PullResponse(messages=[], leaseMs=7))
    frame = encode_answer(call, result)
    assert frame == framed(frame[4:])
    assert decode_answer(frame[4:], protocol=protocol) == (
        "pull",
        TMessageType.REPLY,
        sequence_id,
        result,
    )


@protocols
def test_a_failure_is_a_readable_application_exception(protocol: Protocol) -> None:
    call = Call(payload_of("pull", PULL, protocol=protocol, sequence_id=5))
    frame = encode_failure(call, TApplicationException.UNKNOWN_METHOD, "no such method: naïve")
    name, kind, sequence_id, failure = decode_answer(frame[4:], protocol=protocol)
    assert (name, kind, sequence_id) == ("pull", TMessageType.EXCEPTION, 5)
    assert (failure.type, failure.message) == (1, "no such method: naïve")


@protocols
def test_a_one_way_call_is_recognised(protocol: Protocol) -> None:
    payload = payload_of("pull", PULL, protocol=protocol, kind=TMessageType.ONEWAY)
    assert Call(payload).one_way


@protocols
@pytest.mark.parametrize("kind", [TMessageType.REPLY, TMessageType.EXCEPTION])
def test_an_answer_is_no_call(protocol: Protocol, kind: int) -> None:
    with pytest.raises(FrameError, match="is not a call"):
        Call(payload_of("pull", PULL, protocol=protocol, kind=kind))


@protocols
def test_a_call_cut_short_anywhere_is_a_frame_error(protocol: Protocol) -> None:
    payload = payload_of("pull", PULL, protocol=protocol)
    for length in range(1, len(payload)):
        with pytest.raises(FrameError):
            Call(payload[:length]).decode(consumer_service.pull_args())


@protocols
def test_a_name_longer_than_any_methods_is_refused(protocol: Protocol) -> None:
    Call(payload_of("x" * MAX_NAME_BYTES, PULL, protocol=protocol))
    with pytest.raises(FrameError, match="a method's name of 65 bytes: 0 to 64 are allowed"):
        Call(payload_of("x" * (MAX_NAME_BYTES + 1), PULL, protocol=protocol))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x00", "begins with 0x00"),
        (b"\x82", "head cannot be read"),
        (b"\x82\x22", "version 2 of the compact protocol"),
        (b"\x82\x21" + b"\xff" * 6, "more than 5 bytes"),
        (b"\x82\x21\x01\x04pul", "head is cut short"),
        (b"\x82\x21\x01\x02\xff\xfe", "head cannot be read"),
        (b"\x80\x02\x00\x01" + bytes(8), "version 0x800200 of the binary protocol"),
        (b"\x80\x01\x00\x01\xff\xff\xff\xff" + bytes(4), "name of -1 bytes: 0 to 64 are allowed"),
        (b"\x80\x01\x00\x01\x00\x00\x00\x04pull\x00", "head is cut short"),
    ],
)
def test_garbled_heads_are_frame_errors_with_a_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        Call(payload)


# ---- inputs that the codec must refuse ------------------------------------------------------


def test_a_chain_of_61_results_fits_and_one_of_62_is_an_error() -> None:
    """The accelerated codec nests 64 structs at most."""

    def arguments(length: int) -> consumer_service.pull_args:
        context = consumer.Context("billing", "orders", "broker-a_0#1")
        links = [link(context, success=[number]) for number in range(length)]
        return pull(result=chain(*links))

    fits = Call(payload_of("pull", arguments(61))).decode(consumer_service.pull_args())
    assert fits == arguments(61)
    with pytest.raises(FrameError, match="recursion depth"):
        Call(payload_of("pull", arguments(62))).decode(consumer_service.pull_args())


def test_a_nesting_bomb_in_an_unknown_field_is_an_error() -> None:
    buffer = TMemoryBuffer()
    out = TCompactProtocol(buffer)
    out.writeMessageBegin("pull", TMessageType.CALL, 1)
    bomb = buffer.getvalue() + b"\x7c" * 100_000  # field 7 of type struct, 100,000 deep
    with pytest.raises(FrameError, match="arguments of pull cannot be read"):
        Call(bomb).decode(consumer_service.pull_args())


class HugeAcks:
    """A pull that announces 2,147,483,647 AckBatches and sends none."""

    def write(self, out: Any) -> None:
        out.writeStructBegin("PullRequest")
        out.writeFieldBegin("acks", TType.LIST, 70)
        out.writeListBegin(TType.STRUCT, 2**31 - 1)
        out.writeListEnd()
        out.writeFieldEnd()
        out.writeFieldStop()
        out.writeStructEnd()


@protocols
def test_a_list_of_two_thousand_million_is_refused_at_its_length(protocol: Protocol) -> None:
    payload = payload_of("pull", consumer_service.pull_args(request=HugeAcks()), protocol=protocol)
    with pytest.raises(FrameError, match="OverflowError"):
        Call(payload).decode(consumer_service.pull_args())


def test_a_field_of_another_type_counts_as_absent() -> None:
    """As in Thrift: groupId sent as a number is skipped, like an unknown field."""
    payload = payload_of("pull", consumer_service.pull_args(request=WrongPull()))
    request = Call(payload).decode(consumer_service.pull_args()).request
    assert (request.groupId, request.maxBatchSize) == (None, 3)


class WrongPull:
    """A pull whose groupId is an i64."""

    def write(self, out: Any) -> None:
        out.writeStructBegin("PullRequest")
        out.writeFieldBegin("groupId", TType.I64, 1)
        out.writeI64(77)
        out.writeFieldEnd()
        out.writeFieldBegin("maxBatchSize", TType.I32, 10)
        out.writeI32(3)
        out.writeFieldEnd()
        out.writeFieldStop()
        out.writeStructEnd()


# ---- spliced answers ----------------------------------------------------------------------------


@protocols
@pytest.mark.parametrize(
    ("entries", "size"),
    [(0, 0), (1, 0), (3, 1), (14, 127), (15, 128), (20, 16_383), (3, 16_384), (2, 2_100_000)],
)
def test_spliced_answers_equal_the_codecs(protocol: Protocol, entries: int, size: int) -> None:
    """Lengths of every width, lists on both sides of 15: the bytes are the library's own."""
    blobs = [
        [bytes([number]) * (size - size // 3), b"x" * (size // 3)] for number in range(entries)
    ]

    def result(*, filled: bool) -> Any:
        responses = [
            consumer.QidResponse("orders", f"q_{n}", n, [], b"".join(blobs[n]) if filled else b"")
            for n in range(entries)
        ]
        success = consumer.FetchResponse(results=responses)
        return consumer_service.fetch_result(success=success)

    request = consumer.FetchRequest("r", "billing", "")
    arguments = consumer_service.fetch_args(request=request)
    call = Call(payload_of("fetch", arguments, protocol=protocol, sequence_id=77))
    empty = result(filled=False)
    pieces = encode_spliced(call, Spliced(empty, empty.success.results, blobs))
    assert b"".join(pieces) == encode_answer(call, result(filled=True))
    assert all(any(piece is blob for piece in pieces) for each in blobs for blob in each)
