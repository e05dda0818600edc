"""Processor time of a pull and its acks in each layer, from the ordering core to the port.

Each function drains a backlog through a part of the path: requests of ``CONNECTIONS`` connections
are prepared, then served together, and only the latter is measured. A layer contains those below
it, except for ``thrift``, which the port contains as well.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Protocol, Self

from bench.layers.stage import QUEUES, Stage, decode
from bench.load.requests import answer_of
from broker_core.clock import now_ns
from proxy.core.group.group_buffer import Batch, PullWish
from proxy.core.leases.lease_book import Holder
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.downstream.port.connection import Connection
from proxy.downstream.port.frames import Call, encode_answer
from testkit.lanes import GROUP
from thin_client.wire import encode_call
from thrift_idl import consumer, consumer_service

CONNECTIONS = 16
#: Messages of one answer of a broker.
_READ = 256
_MOST_BYTES = 8 << 20
_LENGTH_BYTES = 4

#: Returns the processor time of this thread in ns, or another quantity that only grows.
Clock = Callable[[], int]


class CallCount:
    """A clock that counts calls of Python functions instead of time: the same on every machine.

    It counts within its context.
    """

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> int:
        return self._count

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, _frame: FrameType, event: str, _argument: object) -> None:
        self._count += event == "call"


class Parts(Protocol):
    """Measures equal parts, in pieces."""

    def begin(self) -> None:
        """Begin a piece of the part."""

    def end(self) -> None:
        """End it."""

    def part(self) -> None:
        """End the part."""


class Meter:
    """Adds up the time of equal parts, and leaves out the first ones and interruptions.

    The result is a median, so that a part during which other processes displaced the caches does
    not count.
    """

    def __init__(self, clock: Clock = time.thread_time_ns) -> None:
        self._clock = clock
        self._parts: list[int] = []
        self._began = self._spent = 0

    def begin(self) -> None:
        """Begin a piece of the part."""
        self._began = self._clock()

    def end(self) -> None:
        """End it."""
        self._spent += self._clock() - self._began

    def part(self) -> None:
        """End the part."""
        self._parts.append(self._spent)
        self._spent = 0

    @property
    def median(self) -> float:
        """Median of the parts, in the unit of the clock."""
        return statistics.median(self._parts[len(self._parts) // 10 :])


def reading(stage: Stage, records: Sequence[Sequence[bytes]], meter: Meter) -> int:
    """Decode answers of a broker and admit their messages; return messages per part."""
    for first in range(0, len(records[0]) - _READ + 1, _READ):
        for number in range(QUEUES):
            answer = records[number][first : first + _READ]
            meter.begin()
            messages = decode(answer, first=first)
            stage.lane.on_messages(stage.queues[number], messages, next_offset=first + _READ)
            del messages
            meter.end()
            meter.part()
    return _READ


def core(stage: Stage, batch: int, rounds: int, meter: Meter) -> None:
    """Settle and lease in the group's buffer."""
    wishes = _wishes(batch)
    buffer = stage.lane.buffer
    held: list[list[tuple[Any, Any]]] = [[] for _ in wishes]
    now = now_ns()
    for _ in range(rounds):
        leased: list[list[Batch]] = []
        meter.begin()
        for wish, own in zip(wishes, held, strict=True):
            for owned, lease_ids in own:
                owned.settle(acked=lease_ids, nacked=(), released=(), now_ns=now)
                buffer.refresh(owned)
            leased.append(buffer.lease(wish, now_ns=now))
        meter.end()
        meter.part()
        held = [[(each.pipeline, _ids(each)) for each in batches] for batches in leased]


def lane(stage: Stage, batch: int, rounds: int, meter: Meter) -> None:
    """Settle and lease in the group's lane."""
    wishes = _wishes(batch)
    served = stage.lane
    held: list[list[tuple[QueuePipeline, list[Any]]]] = [[] for _ in wishes]
    for _ in range(rounds):
        leased: list[list[Batch]] = []
        meter.begin()
        for wish, own in zip(wishes, held, strict=True):
            for owned, lease_ids in own:
                served.settle(owned.topic, owned.qid, acked=lease_ids)
            now = now_ns()
            served.pulled(None, now_ns=now)
            leased.append(served.lease(wish, now_ns=now))
        meter.end()
        meter.part()
        held = [[(each.pipeline, _ids(each)) for each in batches] for batches in leased]


def service(stage: Stage, batch: int, rounds: int, meter: Meter) -> None:
    """Serve decoded pulls; answers are structs."""
    connections = [each for each, _ in _connections(stage)]
    frames = _first_frames(batch)
    for _ in range(rounds):
        calls = [Call(frame[_LENGTH_BYTES:]) for frame in frames]
        replies = [_Kept(*each) for each in zip(connections, calls, strict=True)]
        decoded = [call.decode(consumer_service.pull_args()) for call in calls]
        meter.begin()
        for arguments, reply in zip(decoded, replies, strict=True):
            stage.service.pull(arguments, reply)  # type: ignore[arg-type]
        meter.end()
        meter.part()
        frames = _next_frames([reply.answer.success for reply in replies], batch)


def thrift(stage: Stage, batch: int, rounds: int, meter: Meter) -> None:
    """Decode requests and encode answers."""
    connections = [each for each, _ in _connections(stage)]
    frames = _first_frames(batch)
    for _ in range(rounds):
        received = [frame[_LENGTH_BYTES:] for frame in frames]
        calls, decoded = [], []
        meter.begin()
        for frame in received:
            call = Call(frame)
            calls.append(call)
            decoded.append(call.decode(consumer_service.pull_args()))
        meter.end()
        replies = [_Kept(*each) for each in zip(connections, calls, strict=True)]
        for arguments, reply in zip(decoded, replies, strict=True):
            stage.service.pull(arguments, reply)  # type: ignore[arg-type]
        meter.begin()
        for reply in replies:
            encode_answer(reply.call, reply.answer)
        meter.end()
        meter.part()
        frames = _next_frames([reply.answer.success for reply in replies], batch)


def port(stage: Stage, batch: int, rounds: int, meter: Parts, *, request_ids: bool = False) -> None:
    """Serve received bytes; answers are bytes passed to a transport. *request_ids*: as the clients
    of this project, whose lost answers can be repeated.
    """
    connections = _connections(stage)
    frames = _first_frames(batch)
    for number in range(rounds):
        meter.begin()
        for (connection, _), frame in zip(connections, frames, strict=True):
            connection.data_received(frame)
        meter.end()
        meter.part()
        frames = _answered(connections, batch, request_id=f"{number}" if request_ids else None)


def waiting(
    stage: Stage,
    records: Sequence[Sequence[bytes]],
    rounds: int,
    meter: Parts,
    *,
    request_ids: bool = False,
) -> None:
    """Serve received bytes of pulls that wait, one message each, which is read once they wait."""
    connections = _connections(stage)
    frames, offsets = _first_frames(1), [0] * QUEUES
    for number in range(rounds):
        for place, ((connection, _), frame) in enumerate(zip(connections, frames, strict=True)):
            queue = place % QUEUES
            offset, offsets[queue] = offsets[queue], offsets[queue] + 1
            meter.begin()
            connection.data_received(frame)
            messages = decode([records[queue][offset]], first=offset)
            stage.lane.on_messages(stage.queues[queue], messages, next_offset=offset + 1)
            meter.end()
        meter.part()
        frames = _answered(connections, 1, request_id=f"{number}" if request_ids else None)


def frame_of(
    number: int, batch: int, acks: list[consumer.AckBatch], *, request_id: str | None = None
) -> bytes:
    """Return the pull of connection *number* as a lean client sends it."""
    request = consumer.PullRequest(
        groupId=GROUP,
        maxBatchSize=batch,
        maxLingerTime=10_000,
        acks=acks or None,
        clientId=f"puller-{number}",
        manyQueues=True,
        requestId=request_id,
    )
    return encode_call("pull", consumer_service.pull_args(request=request), sequence_id=1)


class _Kept:
    """A reply that keeps its answer."""

    account = principal = None

    def __init__(self, connection: Connection, call: Call) -> None:
        self.connection, self.call = connection, call
        self.interpretation: Any = None
        self.on_lost: Any = None
        self.answer: Any = None

    def __call__(self, answer: Any, if_lost: Any = None) -> None:
        self.answer, self.on_lost = answer, if_lost


class _Transport:
    """A transport that keeps written bytes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name)

    def set_write_buffer_limits(self, *, high: int, low: int) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written.append(data)


def _connections(stage: Stage) -> list[tuple[Connection, _Transport]]:
    opened = []
    for number in range(CONNECTIONS):
        connection, transport = Connection(stage.server, number + 1), _Transport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        opened.append((connection, transport))
    return opened


def _wishes(batch: int) -> list[PullWish]:
    return [
        PullWish(Holder(number + 1, f"puller-{number}"), None, batch, _MOST_BYTES, many_queues=True)
        for number in range(CONNECTIONS)
    ]


def _ids(batch: Batch) -> list[Any]:
    return [lease.lease_id for lease in batch.leases]


def _first_frames(batch: int) -> list[bytes]:
    return [frame_of(number, batch, []) for number in range(CONNECTIONS)]


def _answered(
    connections: Sequence[tuple[Connection, _Transport]], batch: int, *, request_id: str | None
) -> list[bytes]:
    """Take the answers of all *connections*; return their next pulls."""
    answers = [transport.written.pop() for _, transport in connections]
    result = consumer_service.pull_result
    pulled = [answer_of(each, result(), method="pull") for each in answers]
    return _next_frames(pulled, batch, request_id=request_id)


def _next_frames(
    answers: Sequence[consumer.PullResponse], batch: int, *, request_id: str | None = None
) -> list[bytes]:
    return [
        frame_of(number, batch, _acks(answer), request_id=request_id)
        for number, answer in enumerate(answers)
    ]


def _acks(answer: consumer.PullResponse) -> list[consumer.AckBatch]:
    return [
        consumer.AckBatch(context=each.context, acked=[one.leaseId for one in each.messages])
        for each in (answer, *(answer.more or ()))
        if each.messages
    ]
