"""Requests of senders and pullers to brokers and proxies, as frames from filled templates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bench.load.shape import key_name
from bench.preload import MESSAGE_GROUP
from broker_core.names import Group, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullFlag, PullMessageHeader, SendMessageHeader
from broker_core.remoting.message import UNIQ_KEY, OutgoingMessage
from broker_core.remoting.message_batch import encode_batch
from thin_client.wire import decode_reply, encode_call
from thrift_idl import producer, producer_service

Keyed = tuple[int, bytes]
_SLOT_QUEUE, _SLOT_OFFSET, _SLOT_OPAQUE = 1_000_001, 1_000_002, 1_000_003
_SEND_TIMEOUT_MS = 30_000


class Sends(Protocol):
    """Send requests to a broker or proxy."""

    def frame(
        self, number: int, queue: int, messages: Sequence[Keyed], ids: Sequence[str]
    ) -> bytes:
        """Return request *number*, with *messages* for one queue."""

    def check(self, answer: bytes) -> int:
        """Return the number of the answered request.

        Raises RuntimeError unless everything was stored.
        """


class BrokerSends:
    """SEND_MESSAGE_V2, or SEND_BATCH_MESSAGE for more than one message."""

    def __init__(self, topic: str, *, grouped: bool = False) -> None:
        """Send to *topic*; *grouped*: the key is also the message group, for FIFO topics."""
        self._topic, self._grouped = Topic(topic), grouped
        header = SendMessageHeader(
            producer_group=Group("bench"),
            topic=self._topic,
            queue_id=_SLOT_QUEUE,
            born_timestamp=_SLOT_OFFSET,
            properties=" ",
        )
        one = RemotingCommand(RequestCode.SEND_MESSAGE_V2, _SLOT_OPAQUE, ext=header.to_v2())
        self._one = _template(one)
        batch = replace(header, properties=None, batch=True)
        many = RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, _SLOT_OPAQUE, ext=batch.to_v2())
        self._many = _template(many)

    def frame(
        self, number: int, queue: int, messages: Sequence[Keyed], ids: Sequence[str]
    ) -> bytes:
        """Return request *number*, with *messages* for one queue."""
        now_ms = time.time_ns() // 1_000_000
        if len(messages) == 1:
            ((key, body),) = messages
            # JSON escapes the separators of properties.
            about = f"KEYS\\u0001{key_name(key)}\\u0002{UNIQ_KEY}\\u0001{ids[0]}\\u0002"
            if self._grouped:
                about += f"{MESSAGE_GROUP}\\u0001{key_name(key)}\\u0002"
            header = self._one % (number, queue, now_ms)
            return _framed(header.replace(b'"i":" "', f'"i":"{about}"'.encode(), 1), body)
        outgoing = [
            OutgoingMessage(self._topic, body, key=key_name(key), properties={UNIQ_KEY: each})
            for (key, body), each in zip(messages, ids, strict=True)
        ]
        header = self._many % (number, queue, now_ms)
        return _framed(header, encode_batch(outgoing))

    def check(self, answer: bytes) -> int:
        """Return the number of the answered request.

        Raises RuntimeError unless everything was stored.
        """
        header, _ = parts_of(answer)
        if b'"code":0,' not in header:
            raise RuntimeError(f"the broker did not store a message: {header.decode()}")
        return opaque_of(header)


class ProxySends:
    """sendSync, or sendBatchSync for more than one message; the proxy chooses the queue by the
    key.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def frame(
        self, number: int, queue: int, messages: Sequence[Keyed], ids: Sequence[str]
    ) -> bytes:
        """Return request *number*, with *messages*; *queue* is ignored."""
        outgoing = [
            producer.Message(
                topic=self._topic, key=key_name(key), body=body, properties={UNIQ_KEY: each}
            )
            for (key, body), each in zip(messages, ids, strict=True)
        ]
        if len(outgoing) == 1:
            one = producer_service.sendSync_args(message=outgoing[0], timeout=_SEND_TIMEOUT_MS)
            return encode_call("sendSync", one, sequence_id=number)
        many = producer_service.sendBatchSync_args(messages=outgoing)
        return encode_call("sendBatchSync", many, sequence_id=number)

    def check(self, answer: bytes) -> int:
        """Return the number of the answered request.

        Raises RuntimeError unless everything was stored.
        """
        if b"sendSync" in answer[:24]:
            result = answer_of(answer, producer_service.sendSync_result(), method="sendSync")
        else:
            many = producer_service.sendBatchSync_result()
            result = answer_of(answer, many, method="sendBatchSync")
        if result.code != 0:
            raise RuntimeError(f"the proxy did not store a message: {result.code} {result.msg}")
        return sequence_of(answer)


@dataclass(slots=True)
class BrokerPulls:
    """PULL_MESSAGE of single queues, each held until a message arrives."""

    topic: str
    group: str
    batch: int
    suspend_ms: int = 15_000

    def template(self) -> bytes:
        """Template for opaque, queue and offset."""
        header = PullMessageHeader(
            consumer_group=Group(self.group),
            topic=Topic(self.topic),
            queue_id=_SLOT_QUEUE,
            queue_offset=_SLOT_OFFSET,
            max_msg_nums=self.batch,
            sys_flag=PullFlag.SUBSCRIPTION | PullFlag.SUSPEND,
            commit_offset=0,
            suspend_timeout_millis=self.suspend_ms,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        return _template(
            RemotingCommand(RequestCode.PULL_MESSAGE, _SLOT_OPAQUE, ext=header.to_ext())
        )

    @staticmethod
    def frame(template: bytes, opaque: int, queue: int, offset: int) -> bytes:
        """Return one pull; the answer has the same *opaque*."""
        return _framed(template % (opaque, queue, offset), b"")


def parts_of(frame: bytes) -> tuple[bytes, bytes]:
    """Return header and body of a remoting frame, which includes its length."""
    end = 8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF)
    return frame[8:end], frame[end:]


def opaque_of(header: bytes) -> int:
    """Return the number of the request that a JSON header answers."""
    begin = header.index(b'"opaque":') + 9
    return int(header[begin : begin + 10].partition(b",")[0].rstrip(b"}"))


def answer_of(frame: bytes, result: Any, *, method: str) -> Any:
    """Return the proxy's answer, read into an empty generated ``*_result``.

    Raises RuntimeError for an error.
    """
    read = decode_reply(frame[4:], result, method=method, sequence_id=sequence_of(frame))
    if getattr(read, "error", None) is not None:
        raise RuntimeError(f"the proxy refused {method}: {read.error.message}")
    return read.success


def sequence_of(frame: bytes) -> int:
    """Return the number of the call that a compact Thrift frame answers; the frame includes its
    length.
    """
    number = shift = 0
    for byte in frame[6:]:  # after protocol, version and kind
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return number


def _template(command: RemotingCommand) -> bytes:
    """Return the header with slots for opaque, queue, and an offset or a time, in this order."""
    header, _ = parts_of(command.encode())
    assert b"%" not in header
    for slot in (_SLOT_OPAQUE, _SLOT_QUEUE, _SLOT_OFFSET):
        header = header.replace(str(slot).encode(), b"%d")
    return header


def _framed(header: bytes, body: bytes) -> bytes:
    length = 4 + len(header) + len(body)
    return b"".join((length.to_bytes(4, "big"), len(header).to_bytes(4, "big"), header, body))
