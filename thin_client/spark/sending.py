"""Sending the messages of a task over several connections, those of one key over one of them.

All messages of a queue are sent over one connection, one request after the other. A proxy of an
earlier version gets them by key instead, as messages that are not encoded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from types import TracebackType
from typing import Protocol, Self

from thin_client.delivery import Outgoing
from thin_client.spark.encoding import Part


class Sends(Protocol):
    """A producer, as used here."""

    def send_batch(self, messages: Sequence[Outgoing]) -> object:
        """Store *messages* in order."""

    def send_parts(self, parts: Sequence[Part]) -> object:
        """Store the messages of *parts* in order."""

    def close(self) -> None:
        """End the connection."""


class Lanes:
    """A producer and a thread for each of *number* lanes.

    All messages of one key, or without a key of one named queue, are in one lane, and all encoded
    messages of one queue; a lane sends one request after the other. Between sends of both kinds
    call ``wait``. Use it as a context: its end waits for all messages.
    """

    def __init__(self, number: int, make: Callable[[], Sends]) -> None:
        self._lanes = [_Lane(make()) for _ in range(number)]
        self._turn = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            for lane in self._lanes:
                lane.close()

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send *messages*, after those of earlier calls in the same lanes. Return once each lane
        has its part. Raises the error of an earlier part.
        """
        parts: list[list[Outgoing]] = [[] for _ in self._lanes]
        for each in messages:
            parts[self._number(each)].append(each)
        for lane, part in zip(self._lanes, parts, strict=True):
            if part:
                lane.send(partial(lane.producer.send_batch, part))

    def send_encoded(self, parts: Iterable[Part]) -> None:
        """Send *parts* as ``send`` does, those of a queue in their order."""
        by_lane: list[list[Part]] = [[] for _ in self._lanes]
        for each in parts:
            number = next(self._turn) if each.place.qid is None else each.place.lane
            by_lane[number % len(by_lane)].append(each)
        for lane, some in zip(self._lanes, by_lane, strict=True):
            if some:
                lane.send(partial(lane.producer.send_parts, some))

    def wait(self) -> None:
        """Wait until all messages are stored. Raises the first lane's error."""
        for lane in self._lanes:
            lane.wait()

    def _number(self, message: Outgoing) -> int:
        text = message.sharding_key or message.key or message.queue
        if text is None:
            return next(self._turn) % len(self._lanes)
        return zlib.crc32(f"{message.topic}/{text}".encode()) % len(self._lanes)


class _Lane:
    def __init__(self, producer: Sends) -> None:
        self.producer = producer
        self._thread = ThreadPoolExecutor(1, "orderlane-send")
        self._sent: Future[object] | None = None

    def send(self, some: Callable[[], object]) -> None:
        self.wait()
        self._sent = self._thread.submit(some)

    def wait(self) -> None:
        if self._sent is not None:
            self._sent.result()

    def close(self) -> None:
        """End the connection, which ends a send under way, too."""
        self.producer.close()
        self._thread.shutdown()
