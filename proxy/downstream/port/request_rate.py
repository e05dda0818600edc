"""Rate limit of requests per client address. Pure."""

from __future__ import annotations

from proxy.core.group.token_bucket import SECOND, TokenBucket

#: Longest time for which a bucket is kept without a connection: rates may be as low as a float.
_LONGEST_S = 86_400.0


class RequestRate:
    """*per_s* requests per second for each address, with bursts of one second's worth, at least
    one.

    All connections of an address share one token bucket. It is kept until it is full again, at most
    a day, so reconnecting gains nothing. O(1) per step.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._capacity = max(per_s, 1.0)
        self._full_after_ns = int(min(self._capacity / per_s, _LONGEST_S) * SECOND)
        self._buckets: dict[str, TokenBucket] = {}
        self._left_ns: dict[str, int] = {}  # of addresses without connections, oldest first

    def __len__(self) -> int:
        return len(self._buckets)

    def enter(self, address: str, now_ns: int) -> TokenBucket:
        """Return the bucket for the requests of a new connection of *address*."""
        self._left_ns.pop(address, None)
        while self._left_ns:
            gone, left_ns = next(iter(self._left_ns.items()))
            if now_ns - left_ns < self._full_after_ns:
                break
            del self._left_ns[gone], self._buckets[gone]
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = TokenBucket(self._per_s, self._capacity, self._capacity)
            bucket.fill(now_ns)
            self._buckets[address] = bucket
        return bucket

    def leave(self, address: str, now_ns: int) -> None:
        """Note that the last connection of *address* has closed."""
        if address in self._buckets:
            self._left_ns[address] = now_ns


def take(bucket: TokenBucket, now_ns: int) -> bool:
    """Take a token; return False if the request exceeds the rate."""
    bucket.fill(now_ns)
    if not bucket.whole:
        return False
    bucket.take(1)
    return True
