"""Frames, byte for byte, and the peculiarities of Java and fastjson."""

from __future__ import annotations

import orjson
import pytest

from broker_core.errors import LocalProtocolError, RemoteProtocolError
from broker_core.remoting.codes import RequestCode, request_name
from broker_core.remoting.command import RemotingCommand, SerializeType, decode

# Code 105, JAVA, version 401, opaque 7, flag 0, topic=order; written out by hand from the layout.
BINARY_FRAME = bytes.fromhex(
    "00000029"  # length of what follows
    "01000025"  # serialize type 1, length of the header
    "0069 00 0191 00000007 00000000"
    "00000000"  # no remark
    "00000010"  # length of ext
    "0005 746f706963 00000005 6f72646572"
)


def json_frame(header: object, body: bytes = b"") -> memoryview:
    text = header if isinstance(header, bytes) else orjson.dumps(header)
    return memoryview(len(text).to_bytes(4, "big") + text + body)


def test_a_binary_header_byte_for_byte() -> None:
    command = RemotingCommand(
        105,
        opaque=7,
        ext={"topic": "order"},
        version=401,
        language="JAVA",
        serialize=SerializeType.ROCKETMQ,
    )
    assert command.encode() == BINARY_FRAME
    assert decode(memoryview(BINARY_FRAME)[4:]) == command


def test_a_json_header_has_its_fields_and_always_ext_fields() -> None:
    frame = RemotingCommand(11, opaque=3, body=b"xyz").encode()
    header_bytes = int.from_bytes(frame[4:8], "big")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[8 + header_bytes :] == b"xyz"
    assert orjson.loads(frame[8 : 8 + header_bytes]) == {
        "code": 11,
        "language": "PYTHON",
        "version": 409,
        "opaque": 3,
        "flag": 0,
        "extFields": {},
        "serializeTypeCurrentRPC": "JSON",
    }


def test_what_java_leaves_out_has_java_s_defaults() -> None:
    command = decode(json_frame({"code": 34, "opaque": 5, "extFields": None, "remark": None}))
    assert command == RemotingCommand(34, opaque=5, version=0, language="JAVA")


def test_java_s_liberties_in_ext_fields_are_read() -> None:
    ext = {"n": 5, "b": True, "x": None, "s": "t", "o": {"a": [1]}}
    command = decode(json_frame({"code": None, "extFields": ext, "remark": [1], "extra": [1]}))
    assert command.ext == {"n": "5", "b": "true", "s": "t", "o": '{"a":[1]}'}
    assert (command.code, command.remark) == (0, "[1]")


def test_a_language_of_the_future_is_another_one() -> None:
    assert decode(json_frame({"code": 1, "language": "COBOL"})).language == "OTHER"
    frame = bytearray(BINARY_FRAME)
    frame[10] = 99
    assert decode(memoryview(frame)[4:]).language == "OTHER"


@pytest.mark.parametrize("serialize", SerializeType)
def test_an_answer_belongs_to_its_request(serialize: SerializeType) -> None:
    request = RemotingCommand(11, opaque=77, serialize=serialize)
    answer = request.response(19, "nothing", ext={"a": "b"}, body=b"x")
    assert answer.is_response
    assert not answer.is_oneway
    assert (answer.opaque, answer.serialize, answer.code) == (77, serialize, 19)
    assert decode(memoryview(answer.encode())[4:]) == answer


def test_one_way_requests_carry_flag_2() -> None:
    assert RemotingCommand(40).oneway().flag == 2


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "no room for a header word"),
        (b"\x00\x00\x00\x09{}", "header of 9 bytes does not fit"),
        (b"\x02\x00\x00\x00", "serialize type 2 is neither"),
        (json_frame(b"{"), "is not JSON"),
        (json_frame(b'{"code":1,"remark":"\xff"}'), "is not JSON"),
        (json_frame([1]), "not a JSON object"),
        (json_frame({"code": "one"}), "field code is 'one': expected a 32-bit integer"),
        (json_frame({"code": True}), "field code is True"),
        (json_frame({"code": 1, "opaque": 1 << 31}), "field opaque is 2147483648"),
        (json_frame({"code": 1, "extFields": []}), "extFields is"),
        (
            json_frame(b'{"extFields":{"a":' + b"[" * 1000 + b"]" * 1000 + b"}}"),
            "header field 'a' is an array: expected a string",
        ),
        (json_frame({"code": 1, "extFields": "x" * 1000}), "extFields is 'x+[.]{3}: expected"),
        (json_frame(b"[" * 100_000), "is not JSON"),
        (b"\x01\x00\x00\x03abc", "binary header is broken"),
        (BINARY_FRAME[4:24] + b"\x00", "does not fit"),
        (b"\x01\x00\x00\x26" + BINARY_FRAME[8:] + b"x", "1 bytes too many"),
        (BINARY_FRAME[4:21] + b"\x00\x00\xff\xff" + BINARY_FRAME[25:], "bytes, but"),
        (BINARY_FRAME[4:-9] + b"\xff\xff\xff\xff" + BINARY_FRAME[-5:], "announces -1 bytes"),
        (BINARY_FRAME[4:-1] + b"\xff", "binary header is broken"),
    ],
)
def test_an_invalid_command_is_refused_with_its_reason(content: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        decode(memoryview(content))


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(70_000, serialize=SerializeType.ROCKETMQ),
        RemotingCommand(1, opaque=1 << 31, serialize=SerializeType.ROCKETMQ),
        RemotingCommand(1, ext={"x" * 40_000: ""}, serialize=SerializeType.ROCKETMQ),
        RemotingCommand(1, ext={"a": "\ud800"}, serialize=SerializeType.ROCKETMQ),
        RemotingCommand(1, ext={"a": "\ud800"}),
        RemotingCommand(1, ext={"a": "x" * (1 << 24)}),
    ],
)
def test_what_no_header_can_carry_is_our_own_error(command: RemotingCommand) -> None:
    with pytest.raises(LocalProtocolError, match="command"):
        command.encode()


def test_codes_have_names() -> None:
    assert request_name(RequestCode.PULL_MESSAGE) == "PULL_MESSAGE"
    assert request_name(4711) == "request 4711"
