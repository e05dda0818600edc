"""How many requests a second each address may make. Pure."""

from __future__ import annotations

from proxy.core.group.token_bucket import SECOND, TokenBucket


class RequestRate:
    """*per_s* requests a second of each address, and a second's worth of them, or one, at once.

    All connections of an address share one bucket, also with those that have gone: it is kept until
    it would be full anyway, so nobody gains by connecting anew. O(1) a step.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._capacity = max(per_s, 1.0)
        self._full_after_ns = int(self._capacity / per_s * SECOND)
        self._buckets: dict[str, TokenBucket] = {}
        self._left_ns: dict[str, int] = {}  # of addresses without connections, oldest first

    def __len__(self) -> int:
        return len(self._buckets)

    def enter(self, address: str, now_ns: int) -> TokenBucket:
        """A connection of *address* was opened: what its requests take from."""
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
        """The last connection of *address* has ended."""
        if address in self._buckets:
            self._left_ns[address] = now_ns


def take(bucket: TokenBucket, now_ns: int) -> bool:
    """Whether a request may be made now; then it counts."""
    bucket.fill(now_ns)
    if not bucket.whole:
        return False
    bucket.take(1)
    return True
