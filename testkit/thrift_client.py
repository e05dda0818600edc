"""Raw clients of the Thrift port: one connection, the library's own pure-Python protocols.

They share no code with the proxy's side, so a mistake in its headers or frames shows here.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from thrift_idl import consumer, consumer_service, producer_service

Protocol = Callable[[TMemoryBuffer], Any]
COMPACT: Protocol = TCompactProtocol
BINARY: Protocol = TBinaryProtocol

_LENGTH = struct.Struct(">i")
#: Longer than any intended wait of a test.
_PATIENCE_S = 30.0


def structs(method: str) -> tuple[Any, Any]:
    """Return the generated ``METHOD_args`` and ``METHOD_result``."""
    service = consumer_service if hasattr(consumer_service, f"{method}_args") else producer_service
    return getattr(service, f"{method}_args"), getattr(service, f"{method}_result")


def payload_of(
    method: str,
    arguments: Any,
    *,
    protocol: Protocol = COMPACT,
    sequence_id: int = 1,
    kind: int = TMessageType.CALL,
) -> bytes:
    """Return a call without its frame length."""
    buffer = TMemoryBuffer()
    out = protocol(buffer)
    out.writeMessageBegin(method, kind, sequence_id)
    arguments.write(out)
    out.writeMessageEnd()
    return bytes(buffer.getvalue())


def framed(payload: bytes) -> bytes:
    """Return *payload* with its length before it."""
    return _LENGTH.pack(len(payload)) + payload


def frame_of(method: str, arguments: Any, **options: Any) -> bytes:
    """Return a whole call; *options* as of ``payload_of``."""
    return framed(payload_of(method, arguments, **options))


def decode_answer(payload: bytes, *, protocol: Protocol = COMPACT) -> tuple[str, int, int, Any]:
    """Return method, message type, sequence id and the struct of an answer."""
    source = protocol(TMemoryBuffer(payload))
    method, kind, sequence_id = source.readMessageBegin()
    answer = TApplicationException() if kind == TMessageType.EXCEPTION else structs(method)[1]()
    answer.read(source)
    return method, kind, sequence_id, answer


class ThriftClient:
    """One connection. ``call`` raises the server's exceptions."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: Protocol
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._protocol = protocol
        self._sequence_id = 0

    async def call(self, method: str, *values: Any) -> Any:
        """Call *method* with its arguments in order; return the success value."""
        self.send(method, *values)
        return await self.answer(method)

    def send(self, method: str, *values: Any) -> None:
        """Write the call without waiting."""
        self._sequence_id += 1
        arguments = structs(method)[0](*values)
        self.send_bytes(
            frame_of(method, arguments, protocol=self._protocol, sequence_id=self._sequence_id)
        )

    def send_bytes(self, data: bytes) -> None:
        """Write *data* unchanged."""
        self.writer.write(data)

    async def answer(self, method: str, *, number: int | None = None) -> Any:
        """Return the next answer, which must echo *method* and *number*; None: those of the last
        ``send``.
        """
        async with asyncio.timeout(_PATIENCE_S):
            (length,) = _LENGTH.unpack(await self.reader.readexactly(4))
            payload = await self.reader.readexactly(length)
        echoed, kind, sequence_id, answer = decode_answer(payload, protocol=self._protocol)
        expected = self._sequence_id if number is None else number
        assert (echoed, sequence_id) == (method, expected)
        if kind == TMessageType.EXCEPTION:
            raise answer
        assert kind == TMessageType.REPLY
        error = getattr(answer, "error", None)
        if error is not None:
            raise error
        return answer.success

    async def closed_by_server(self, *, within_s: float = 10.0) -> bool:
        """Return whether the server closes the connection within the limit."""
        try:
            async with asyncio.timeout(within_s):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    async def close(self) -> None:
        """Disconnect."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return

    def abort(self) -> None:
        """Disconnect at once, discarding unread data."""
        self.writer.transport.abort()

    # ---- thin clients ---------------------------------------------------------------------------

    async def pull(self, group: str, **fields: Any) -> Any:
        """Pull like a thin client: with a clientId."""
        return await self.call("pull", our_pull(group, **fields))

    async def settle(self, group: str, *acks: Any) -> list[tuple[str, int]]:
        """Settle; return qid and lease id of those that were not held."""
        request = consumer.AckRequest(groupId=group, acks=list(acks))
        return _refs((await self.call("settle", request)).notHeld)

    async def extend(self, group: str, response: Any, *, ms: int) -> list[tuple[str, int]]:
        """Extend all leases of an answer; return qid and lease id of those not held."""
        references = [
            consumer.LeaseRef(context=response.context, leaseId=message.leaseId)
            for message in response.messages
        ]
        request = consumer.ExtendRequest(groupId=group, leases=references, ms=ms)
        return _refs((await self.call("extend", request)).notHeld)


def our_pull(group: str, *, linger_ms: int = 20, **fields: Any) -> Any:
    """Return a PullRequest with a clientId."""
    return consumer.PullRequest(
        **{"groupId": group, "clientId": "client-1", "maxLingerTime": linger_ms, **fields}
    )


def acked(response: Any, *lease_ids: int) -> Any:
    """Return an AckBatch that acks *lease_ids* of an answer, all by default."""
    chosen = list(lease_ids) or [message.leaseId for message in response.messages]
    return consumer.AckBatch(context=response.context, acked=chosen)


def offsets(response: Any) -> list[int]:
    """Return the offsets of the messages of an answer."""
    return [message.offset for message in response.messages]


def ddmq_pull(group: str, *, linger_ms: int | None = 20, **fields: Any) -> Any:
    """Return a PullRequest with DDMQ's fields only."""
    return consumer.PullRequest(groupId=group, maxLingerTime=linger_ms, **fields)


def link(
    context: Any,
    *,
    success: Sequence[int] | None = None,
    failed: Sequence[int] | None = None,
    token: str | None = None,
) -> Any:
    """Return one ConsumeResult."""
    return consumer.ConsumeResult(
        context=context,
        successOffsets=None if success is None else list(success),
        failOffsets=None if failed is None else list(failed),
        token=token,
    )


def chain(*links: Any) -> Any:
    """Return ConsumeResults, each the ``nextResult`` of the one before."""
    for before, after in itertools.pairwise(links):
        before.nextResult = after
    return links[0]


def field_ids_of(value: Any) -> Mapping[str, int]:
    """Return the highest field id that is set in each kind of struct within *value*."""
    found: dict[str, int] = {}
    spec = getattr(value, "thrift_spec", None)
    if spec is not None:
        for entry in filter(None, spec):
            inner = getattr(value, entry[2])
            if inner is not None:
                name = type(value).__name__
                found[name] = max(found.get(name, 0), entry[0])
                for each, highest in field_ids_of(inner).items():
                    found[each] = max(found.get(each, 0), highest)
    elif isinstance(value, list):
        for item in value:
            for each, highest in field_ids_of(item).items():
                found[each] = max(found.get(each, 0), highest)
    return found


@asynccontextmanager
async def connect(
    port: int, *, protocol: Protocol = COMPACT, receive_buffer: int | None = None
) -> AsyncIterator[ThriftClient]:
    """Connect a client on loopback; it is disconnected at the end.

    A small *receive_buffer*, in bytes, makes a slow reader.
    """
    with socket.socket() as connection:
        connection.setblocking(False)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
        client = ThriftClient(reader, writer, protocol)
        try:
            yield client
        finally:
            await client.close()


def _refs(references: Sequence[Any]) -> list[tuple[str, int]]:
    return [(each.context.qid, each.leaseId) for each in references]
