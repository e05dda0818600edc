"""Any command survives both header forms; any bytes either decode or raise RemoteProtocolError."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.errors import InvalidCommand, RemoteProtocolError
from broker_core.remoting.bodies import Heartbeat, LockBatch
from broker_core.remoting.command import LANGUAGES, RemotingCommand, SerializeType
from broker_core.remoting.connection import (
    NEED_DATA,
    Event,
    RemotingConnection,
    RequestReceived,
    ResponseReceived,
    Role,
)
from broker_core.remoting.header_fields import fields_of
from broker_core.remoting.headers import PullMessageHeader, SendMessageHeader
from broker_core.remoting.route_bodies import BrokerRegistration, TopicRoute
from tests.support.examples import examples

FRAME_LIMIT = 4096

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)

commands = st.builds(
    RemotingCommand,
    code=st.integers(0, 32767),
    opaque=int32,
    flag=st.sampled_from([0, 1, 2, 3]),
    remark=st.none() | texts.filter(bool),  # the binary form does not distinguish "" from none
    ext=st.dictionaries(texts, texts, max_size=5),
    body=st.binary(max_size=200),
    version=st.integers(0, 32767),
    language=st.sampled_from(LANGUAGES),
    serialize=st.sampled_from(SerializeType),
)


def events(connection: RemotingConnection) -> Iterator[Event]:
    while (event := connection.next_event()) is not NEED_DATA:
        yield event


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    for start, end in itertools.pairwise(edges):
        yield data[start:end]


@given(st.lists(commands, max_size=6), st.lists(st.integers(0, 1 << 16)), st.sampled_from(Role))
@settings(max_examples=examples(150), deadline=None)
def test_commands_survive_bytes_cut_anywhere(
    sent: list[RemotingCommand], places: list[int], role: Role
) -> None:
    sender = RemotingConnection(Role.CLIENT if role is Role.SERVER else Role.SERVER)
    receiver = RemotingConnection(role)
    got: list[Event] = []
    for piece in cut(b"".join(sender.send(command) for command in sent), places):
        receiver.receive_data(piece)
        got += events(receiver)

    expected = [
        (ResponseReceived if command.flag & 1 else RequestReceived)(command) for command in sent
    ]
    assert got == expected


@given(
    st.lists(st.binary(max_size=60) | commands.map(RemotingCommand.encode), max_size=5),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
    st.lists(st.integers(0, 1 << 16)),
)
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_decode_or_are_refused_within_the_frame_limit(
    parts: list[bytes], damage: list[tuple[int, int]], places: list[int]
) -> None:
    data = bytearray(b"".join(parts))
    for place, value in damage:
        if data:
            data[place % len(data)] = value
    connection = RemotingConnection(Role.SERVER, max_frame_bytes=FRAME_LIMIT)
    for piece in cut(bytes(data), places):
        connection.receive_data(piece)
        try:
            for event in events(connection):
                event.command.encode()  # a decoded command is a command like any other
        except RemoteProtocolError:
            assert not connection.buffered_bytes
            return
        assert connection.buffered_bytes <= FRAME_LIMIT + 4


@given(st.dictionaries(st.sampled_from("abcdefghijklmn"), texts | int32.map(str)))
@settings(deadline=None)
def test_any_header_is_read_or_refused(ext: dict[str, str]) -> None:
    for read in (SendMessageHeader.from_v2, PullMessageHeader.from_ext):
        try:
            header = read(ext)
        except InvalidCommand:
            continue
        assert header is not None


numbers = st.sampled_from(["0", "+7", "-1", "007", "2147483648", "9" * 19, "\u0663", " 1", ""])
wanted_fields = st.fixed_dictionaries(
    {name: texts | int32.map(str) | numbers for name in "abeg"},
    optional={
        name: texts | int32.map(str) | numbers | st.sampled_from(["true", "TRUE", "false", "no"])
        for name in "cdfhijklm"
    },
)


@given(wanted_fields)
@settings(deadline=None)
def test_the_header_of_a_send_says_the_same_in_either_form(ext: dict[str, str]) -> None:
    """The short form has separate code."""
    fields = zip("abcdefghijklm", fields_of(SendMessageHeader), strict=True)
    names = {letter: field.wire_name for letter, field in fields}

    def outcome(read: Callable[[dict[str, str]], object], ext: dict[str, str]) -> object:
        try:
            return read(ext)
        except InvalidCommand:
            return "refused"

    long = {names[letter]: text for letter, text in ext.items()}
    assert outcome(SendMessageHeader.from_v2, ext) == outcome(SendMessageHeader.from_ext, long)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            texts
            | st.sampled_from(
                [
                    "clientID",
                    "consumerDataSet",
                    "subscriptionDataSet",
                    "mqSet",
                    "queueDatas",
                    "brokerDatas",
                    "brokerAddrs",
                    "topicConfigSerializeWrapper",
                    "topicConfigTable",
                    "groupName",
                    "topic",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values.map(lambda value: json.dumps(value).encode()) | st.binary())
@settings(deadline=None)
def test_any_body_is_read_or_refused(data: bytes) -> None:
    for read in (
        Heartbeat.from_json,
        LockBatch.from_json,
        TopicRoute.from_json,
        BrokerRegistration.from_json,
    ):
        try:
            body = read(data)
        except InvalidCommand:
            continue
        assert read(body.to_json()) == body
