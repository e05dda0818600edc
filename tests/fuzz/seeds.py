"""Valid inputs of every parser as a fuzzer's seeds: by the names of ``parsers``."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress

import orjson

from broker_core.errors import InvalidCommand, RemotingError
from broker_core.names import Topic
from broker_core.remoting.command import RemotingCommand, SerializeType
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from broker_core.remoting.recall_handle import RecallHandle
from proxy.core.access import audit_record
from proxy.core.access.audit_record import AuditRecord, Change
from proxy.core.jobs.spilled_chains import packed
from proxy.core.keys.ids import Epoch
from proxy.core.records import codec as ownership_codec
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.record import Clean, Delta, Own, Snapshot
from proxy.core.records.snapshot_parts import parts
from testkit.thrift_client import framed
from tests.fuzz.parsers import ASKED, BODIES
from tests.support.bad_requests import AT_BROKER, AT_NAMESERVER
from tests.support.stored_records import HOST_V6, Record
from tests.support.thrift_calls import VALID

_SETTINGS = b"""
nameserver: 127.0.0.1:9876
listen: {thrift: 127.0.0.1:9713, http: 127.0.0.1:9714}
limits: {max_connections: 100, memory_bytes: 1000000}
tokens: [{name: a, sha256: "%s"}]
groups:
  - name: billing
    topics:
      - name: orders
        order_key: "$.order.id"
        retry_intervals_ms: [100, 150]
        on_exhausted: park
        max_rate: 5.5
""" % (b"0f" * 32)
_QUERIES = (
    b"limit=5&group=g", b"key=a&limit=1", b"all=true&topic=t", b"reason=why&dry_run=true",
    b"dead_letter=broker-a_0@17",
)  # fmt: skip
_ASKED_BODIES = (
    b'{"reason":"because","by":"me"}',
    b'{"reason":"because","key":"k"}',
    b'{"reason":"because","to":"proxy-1"}',
    b'{"reason":"because","settings":{"topics":[{"name":"t"}]},"dry_run":true}',
    b'{"reason":"because","rate":5.0,"skip":["broker-a_0@17"]}',
    b'{"reason":"because","ms":5000}',
    b'{"reason":"because","topic":"t","to":"earliest"}',
)


def remoting_frames() -> Iterator[bytes]:
    """Return a request of each code, in both forms of headers."""
    for code, good in (AT_BROKER | AT_NAMESERVER).items():
        for form in SerializeType:
            command = RemotingCommand(code, opaque=5, ext=good.ext(), serialize=form)
            command.body = good.content()
            yield b"\5" + command.encode()


def remoting_bodies() -> Iterator[bytes]:
    """Return each body for each parser that can read it."""
    contents = [good.content() for good in (AT_BROKER | AT_NAMESERVER).values()]
    contents += [_compressed_registration(), b'{"brokerAddrTable":{},"clusterAddrTable":{}}']
    for number, parse in enumerate(BODIES):
        for content in dict.fromkeys(contents):
            with suppress(InvalidCommand, RemotingError):
                parse(content)
                yield bytes([number]) + content


def _compressed_registration() -> bytes:
    def sized(text: bytes) -> bytes:
        return struct.pack(">i", len(text)) + text

    version = sized(b'{"stateVersion":1,"timestamp":2,"counter":3}')
    topics = struct.pack(">i", 1) + sized(b"orders 4 8 6 SINGLE_TAG")
    return zlib.compress(version + topics + sized(b"[]"))


def stored_messages() -> Iterator[bytes]:
    """Return records of either layout, with and without compressed bodies."""
    yield Record(0).encode()
    yield Record(0).encode() + Record(1, b"{}", born_host=HOST_V6, store_host=HOST_V6).encode()
    yield Record(5, zlib.compress(b"a" * 300), flags=1).encode()
    yield Record(5, b"no zlib", flags=1).encode()


def batch_bodies() -> Iterator[bytes]:
    """Return batches of one message and of two."""
    one = OutgoingMessage(Topic("t"), b"body", key="k", tag="a")
    yield encode_batch([one])
    yield encode_batch([one, OutgoingMessage(Topic("t"), b"")])


def encoded_messages() -> Iterator[bytes]:
    """Return messages in the usual form, and in others, each with their number before them."""
    own = {"sparkBatchId": "job/0/1/a", "UNIQ_KEY": "1"}
    usual = OutgoingMessage(Topic("t"), b"body", key="k", tag="a", properties=own)
    other = OutgoingMessage(
        Topic("t"), b"body", key="k\xfc", properties={"UNIQ_KEY": "1", "P": "2"}
    )
    yield b"\1" + encode_batch([usual])
    yield b"\2" + encode_batch([usual, other])


def thrift_frames() -> Iterator[bytes]:
    """Return a call of each method in both protocols."""
    yield from map(framed, VALID)


def ownership_records() -> Iterator[bytes]:
    """Return a record of each kind."""
    snapshot = Snapshot(
        Epoch(4),
        2,
        300,
        (10, 13),
        {13: 2},
        spilled={b"key": packed((20, 40, 270))},
        leases={13: 250},
        parked={b"key": ParkedKey(2, 3, True, 0.5, by="me", reason="so")},
    )
    records = (
        Own("c@1", 5000, 6000, 77, 3, "host:9714", by_name=True),
        Delta(Epoch(4), 9, 10, 20, (11,), (12,), {12: 2}, heads={b"key": None}),
        Clean(Epoch(4), to="c@2"),
        *parts(snapshot),
    )
    yield from map(ownership_codec.encode, records)


def audit_records() -> Iterator[bytes]:
    """Return the records of a pause."""
    change = Change("me", "key pause", "g", "because", "t", "k", None, {"paused": True})
    yield audit_record.encode(AuditRecord("1", 5, "proxy", change))


def settings_files() -> Iterator[bytes]:
    """Return a file with most kinds of settings, and two invalid ones."""
    yield _SETTINGS
    yield b"limits: {max_conections: 5}\n"
    yield b"a: &a [x]\nb: [*a, *a]\n"


def json_paths() -> Iterator[bytes]:
    """Return rules of each kind, on bodies that have the key."""
    body = orjson.dumps({"order": {"id": 5, "a b": [1.5, None, True, "x"]}})
    for rule in (
        b"KEY", b"QID", b"$.order.id", b"$['order']['a b'][3]", b"$.order['a b'][?@>1]",
        b"$..id", b"$.order['a b'][-1:0:-1]", b"$[?length(@.id)>1 && @.a==\"b\" || !@.c]",
    ):  # fmt: skip
        yield rule + b"\0" + body


def admin_requests() -> Iterator[bytes]:
    """Return bodies and queries of each operation."""
    for number in range(len(ASKED)):
        for asked in (*_ASKED_BODIES, *_QUERIES):
            yield bytes([number]) + asked


def sql_filters() -> Iterator[bytes]:
    """Return every kind of expression."""
    for text in (
        b"a > 1 AND b IS NOT NULL",
        b"a IN ('x', 'y') OR NOT (b = TRUE)",
        b"c BETWEEN 1 AND 2.5e3 and a <> 'it''s'",
        b"a CONTAINS 'x' or b NOT STARTSWITH 'y' or c ENDSWITH 'z'",
        b"-a <= 0x1F",
    ):
        yield text + b"\x001\0x\x002.5"


def recall_handles() -> Iterator[bytes]:
    """Return handles of Apache RocketMQ, and of orderlane."""
    yield RecallHandle("t", "b", 5, "id").to_text().encode()
    yield RecallHandle("t", "b", 5, "id", 9).to_text().encode()
