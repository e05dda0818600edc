"""Limits on the size of one request, learned from each broker.

Brokers do not announce the maximum size of a batch; they refuse larger ones (code 13). A refused
batch is therefore halved, down to single messages, and the size that a broker accepted applies for
a while, since its limit may be raised. The same holds for content that can be split over several
messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate

from broker_core.clock import now_ns
from broker_core.errors import NoSuchQueue, RemotingError

#: Maximum size of one request; a larger message goes alone.
MOST_MESSAGES, MOST_BYTES = 512, 1_000_000
#: Maximum number of messages in a request with an encoded batch: a broker's answer names each.
MOST_ENCODED = 4096
#: Size of a batch per message, besides body and properties.
_BESIDE_BYTES = 22
_COUNTS_NS = 600_000_000_000
#: A request up to this size is refused for another reason than its size.
_LEAST_BYTES = 1024


class BatchLimits:
    """Learned limits by broker. Owned by one event loop."""

    def __init__(self) -> None:
        self._learned: dict[str, tuple[int, int]] = {}

    def of(self, broker: str) -> int:
        """Return the maximum size of a batch for *broker*, in bytes."""
        most, until_ns = self._learned.get(broker, (MOST_BYTES, 0))
        return most if now_ns() < until_ns else MOST_BYTES

    def refused(self, broker: str, size: int) -> bool:
        """Note that *broker* refused a message of *size* bytes; return whether smaller ones may
        help.

        If so, half of that size is the limit from now on.
        """
        most = min(size, self.of(broker)) // 2
        if most < _LEAST_BYTES:
            return False
        self._learned[broker] = most, now_ns() + _COUNTS_NS
        return True

    async def in_pieces(
        self, broker: str, sizes: Sequence[int], send: Callable[[int, int], Awaitable[None]]
    ) -> None:
        """Call *send* for consecutive ranges of messages with these *sizes*, each as large as
        allowed.

        *send* receives the first index and the one after the last. A refused range of several
        messages is halved. Raises the RemotingError of the first range that cannot be sent; later
        ones are not tried.
        """
        ends = list(accumulate(size + _BESIDE_BYTES for size in sizes))
        await self.in_slices(broker, ends, send, most_messages=MOST_MESSAGES)

    async def in_slices(
        self,
        broker: str,
        ends: Sequence[int],
        send: Callable[[int, int], Awaitable[None]],
        *,
        most_messages: int = MOST_ENCODED,
    ) -> None:
        """Do the same as ``in_pieces`` with messages of an encoded batch, which end at *ends*."""
        begin, most, halved = 0, self.of(broker), False
        while begin < len(ends):
            start = ends[begin - 1] if begin else 0
            fitting = bisect_right(ends, start + most, lo=begin)
            end = min(max(fitting, begin + 1), begin + most_messages)
            try:
                await send(begin, end)
            except NoSuchQueue:
                raise  # fewer messages would not find it either
            except RemotingError as error:
                if not error.illegal or end - begin == 1:
                    raise
                most = (ends[end - 1] - start) // 2
                halved = True
                continue
            begin = end
        if halved:  # otherwise one of the messages was illegal
            self._learned[broker] = most, now_ns() + _COUNTS_NS
