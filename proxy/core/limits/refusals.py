"""Audit of refused requests: who, from where, what and why, at a bounded rate. Pure.

An attacker provokes as many refusals as it can send requests. Each source is therefore recorded
once a minute, and all sources together at most ``MOST_PER_MINUTE`` times; the others are only
counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from proxy.core.group.token_bucket import SECOND, TokenBucket

#: Interval between two records of one source, in ns.
EVERY_NS = 60 * SECOND
#: Records of all sources a minute; the bucket holds as many.
MOST_PER_MINUTE = 60
#: Sources remembered, and records kept.
MOST_SOURCES, MOST_KEPT = 4_096, 1_000
_MOST_CHARS = 256


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused request.

    Args:
        client: Its address.
        principal: The caller; empty if it is not authenticated.
        port: ``thrift`` or ``http``.
        what: The method, or method and path.
        why: The sentence of the answer.
        at_ms: Wall time, milliseconds since 1970.
        left_out: Refusals of this source since its last record.
    """

    client: str
    principal: str
    port: str
    what: str
    why: str
    at_ms: int
    left_out: int = 0


class RefusalBook:
    """The refusals of one process. O(1) per refusal, bounded memory."""

    def __init__(self) -> None:
        #: All refusals, recorded or not.
        self.count = 0
        self._kept: deque[Refusal] = deque(maxlen=MOST_KEPT)
        self._sources: dict[tuple[str, str], tuple[int, int]] = {}  # time of record, left out since
        self._bucket = TokenBucket(MOST_PER_MINUTE / 60, MOST_PER_MINUTE, MOST_PER_MINUTE)

    def __iter__(self) -> Iterator[Refusal]:
        """Iterate over the newest records, oldest first."""
        return iter(tuple(self._kept))

    def note(self, refusal: Refusal, now_ns: int) -> Refusal | None:
        """Count *refusal*; return it if it is to be recorded, with the number of those left out."""
        self.count += 1
        source = (refusal.client, refusal.principal)
        known = self._sources.pop(source, None)
        self._bucket.fill(now_ns)
        is_new = known is None or now_ns - known[0] >= EVERY_NS
        if not (is_new and self._bucket.whole):
            recorded_ns, left_out = known or (now_ns - EVERY_NS, 0)
            self._remember(source, recorded_ns, left_out + 1)
            return None
        self._bucket.take(1)
        left_out = 0 if known is None else known[1]
        record = replace(
            refusal,
            what=refusal.what[:_MOST_CHARS],
            why=refusal.why[:_MOST_CHARS],
            left_out=left_out,
        )
        self._remember(source, now_ns, 0)
        self._kept.append(record)
        return record

    def _remember(self, source: tuple[str, str], recorded_ns: int, left_out: int) -> None:
        if len(self._sources) >= MOST_SOURCES:
            del self._sources[next(iter(self._sources))]
        self._sources[source] = (recorded_ns, left_out)
