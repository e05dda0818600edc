"""How much one request may carry: as much as its broker takes.

Brokers do not say how long a batch may be, they refuse one that is longer (code 13). So a batch
that is refused is halved, down to single messages, and what its broker took counts for a while: a
limit may be raised again. So it is with single messages that can be said in several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from broker_core.clock import now_ns
from broker_core.errors import RemotingError

#: One request carries at most so much; a message larger than that goes alone.
MOST_MESSAGES, MOST_BYTES = 512, 1_000_000
#: What a batch has beside body and properties of each message.
_BESIDE_BYTES = 22
_COUNTS_NS = 600_000_000_000
#: What is refused although it is no longer than this is refused for something else.
_LEAST_BYTES = 1024


class BatchLimits:
    """What brokers take, as far as whoever sends has learned it. Owned by one event loop."""

    def __init__(self) -> None:
        self._learned: dict[str, tuple[int, int]] = {}

    def of(self, broker: str) -> int:
        """How many bytes a batch for *broker* may have."""
        most, until_ns = self._learned.get(broker, (MOST_BYTES, 0))
        return most if now_ns() < until_ns else MOST_BYTES

    def refused(self, broker: str, size: int) -> bool:
        """*broker* took no message of *size* bytes, where shorter ones will do as well: from now on
        half as many count. False if no shorter ones would help.
        """
        most = min(size, self.of(broker)) // 2
        if most < _LEAST_BYTES:
            return False
        self._learned[broker] = most, now_ns() + _COUNTS_NS
        return True

    async def in_pieces(
        self, broker: str, sizes: Sequence[int], send: Callable[[int, int], Awaitable[None]]
    ) -> None:
        """Have *send* send messages of these *sizes*, in order: from one index up to another, each
        time as many as *broker* takes at once.

        Raises the RemotingError of the first piece that cannot be sent; those behind it are not
        tried then. One of several messages that is illegal is no such piece: it is halved.
        """
        begin, most, halved = 0, self.of(broker), False
        while begin < len(sizes):
            end = begin + _how_many(sizes, begin, most)
            try:
                await send(begin, end)
            except RemotingError as error:
                if not error.illegal or end - begin == 1:
                    raise
                most = (sum(sizes[begin:end]) + _BESIDE_BYTES * (end - begin)) // 2
                halved = True
                continue
            begin = end
        if halved:  # else a message among them was illegal
            self._learned[broker] = most, now_ns() + _COUNTS_NS


def _how_many(sizes: Sequence[int], begin: int, most: int) -> int:
    """How many messages from index *begin* on have *most* bytes at most; at least one."""
    count = total = 0
    for size in sizes[begin : begin + MOST_MESSAGES]:
        total += size + _BESIDE_BYTES
        if count and total > most:
            break
        count += 1
    return count
