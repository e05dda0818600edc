"""``max_rate`` of a group and its topics at one proxy: how many messages may go out now. Pure.

All proxies of a group share a limit without a word to each other: a proxy's part of it is that of
the queues that it owns. What makes the sum hold (Q1: hand-outs in any time at most ``limit x time +
burst``, over all owners together):

1. A queue counts only while its owner may hand out: from the end of a take-over's wait, and until
   trust lapses or is in doubt. So it never counts at two proxies (P1).
2. A bucket holds a second of its share, or one message; a lost queue takes away what no longer
   fits, and a gained one brings nothing. So a queue that changes hands brings no burst.
3. All divide by the same number of queues, or by a larger one (``queue_census``).

Every hand-out counts: repeats, those given back, and those whose answer was never written. Small
shares go out message by message; larger ones in portions, so that no client is woken for each.

O(1) a call, but O(queues) whenever one comes, goes, or lapses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from broker_core.names import QueueName, Topic
from proxy.core.group.queue_census import QueueCensus
from proxy.core.group.token_bucket import SECOND, TokenBucket
from proxy.core.pipeline.queue_pipeline import QueuePipeline

#: How much of a share is saved up at most while nobody wants it.
BURST_NS = SECOND
#: Tokens are given out once so much of a share is there.
_PORTION_NS = 20_000_000


@dataclass(slots=True)
class _Limit:
    """Of one topic, or of the whole group. ``max_rate``: messages a second, over all proxies."""

    max_rate: float
    bucket: TokenBucket = field(default_factory=TokenBucket)
    _flows: bool = False  # a portion was there, and something of it is left

    def share(self, part: float, now_ns: int) -> None:
        """So much of it is this proxy's from *now* on."""
        rate = self.max_rate * part
        capacity = max(1.0, rate * BURST_NS / SECOND) if part else 0.0
        self.bucket.change(rate=rate, capacity=capacity, now_ns=now_ns)

    def left(self) -> int:
        whole = self.bucket.whole
        self._flows = whole > 0 and (self._flows or self.wait_ns() == 0)
        return whole if self._flows else 0

    def wait_ns(self) -> int | None:
        return self.bucket.wait_ns(max(1.0, self.bucket.rate * _PORTION_NS / SECOND))


@dataclass(slots=True)
class RateGate:
    """The limits of one group. None stands for the group itself where a topic could."""

    _limits: dict[Topic | None, _Limit] = field(default_factory=dict)
    _routes: dict[Topic, frozenset[QueueName]] = field(default_factory=dict)
    _census: dict[Topic | None, QueueCensus] = field(default_factory=dict)
    _owned: dict[QueuePipeline, None] = field(default_factory=dict)
    _same_until_ns: int = 0  # until then shares change by events alone

    # ---- what shares follow from; caller: group lane ---------------------------------------------

    def limit(
        self, group: float | None, topics: Mapping[Topic, float | None], *, now_ns: int
    ) -> None:
        """The limits, in messages a second, None for none; *topics* are all that the group has."""
        self._settle(now_ns)
        everything: list[tuple[Topic | None, float | None]] = [(None, group), *topics.items()]
        rates = {topic: rate for topic, rate in everything if rate is not None}
        before = self._limits
        self._limits = {topic: before.get(topic, _Limit(rate)) for topic, rate in rates.items()}
        for topic, rate in rates.items():
            self._limits[topic].max_rate = rate
        self._routes = {topic: self._routes[topic] for topic in topics if topic in self._routes}
        self._census = {topic: self._census.get(topic, QueueCensus()) for topic in (None, *topics)}
        self._look(now_ns)

    def route(self, topic: Topic, queues: Collection[QueueName], *, now_ns: int) -> None:
        """The queues of *topic*: all of them, wherever they are owned; none if it does not exist.

        The group's own limit is shared out once all its topics are known.
        """
        if (census := self._census.get(topic)) is None:
            return
        self._settle(now_ns)
        first = topic not in self._routes
        self._routes[topic] = frozenset(queues)
        if census.look(queues, now_ns=now_ns) or first:
            self._look(now_ns)

    def add(self, pipeline: QueuePipeline, *, now_ns: int) -> None:
        """A queue is owned from *now* on. The twin of a queue shares what that one has."""
        if pipeline.origin is pipeline:
            self._settle(now_ns)
            self._owned[pipeline] = None
            self._recount(now_ns)

    def remove(self, pipeline: QueuePipeline, *, now_ns: int) -> None:
        """A queue is lost, or handed over."""
        if pipeline in self._owned:
            self._settle(now_ns)
            del self._owned[pipeline]
            self._recount(now_ns)

    def before_change(self, now_ns: int) -> None:
        """Trust in a queue is about to come back, or to be doubted: ``changed`` follows."""
        self._settle(now_ns)

    def changed(self, now_ns: int) -> None:
        """It is so. A longer trust alone needs no word: it is seen when the old one ends."""
        self._recount(now_ns)

    # ---- handing out; caller: group buffer -------------------------------------------------------

    @property
    def open(self) -> bool:
        """True if nothing is limited."""
        return not self._limits

    def left(self, topic: Topic, now_ns: int) -> int | None:
        """How many messages of *topic* may go out now; None for any number."""
        if not self._limits:
            return None
        self._settle(now_ns)
        return min((each.left() for each in self._on(topic)), default=None)

    def took(self, topic: Topic, messages: int) -> None:
        """So many went out."""
        if self._limits:
            for each in self._on(topic):
                each.bucket.take(messages)

    def wait_ns(self, topic: Topic, now_ns: int) -> int | None:
        """How long until one of *topic* may go out; None if that takes more than time."""
        self._settle(now_ns)
        longest = 0
        for each in self._on(topic):
            wait_ns = 0 if each.left() else each.wait_ns()
            if wait_ns is None:  # no share now; a time that is known may bring one
                wait_ns = self._same_until_ns - now_ns
            longest = max(longest, wait_ns)
        return longest if longest < _FOR_EVER_NS else None

    def shares(self, now_ns: int) -> Iterable[tuple[Topic | None, float]]:
        """What this proxy may hand out a second, of each topic with a limit and of the group."""
        self._settle(now_ns)
        return [(topic, each.bucket.rate) for topic, each in self._limits.items()]

    # ---- inside ----------------------------------------------------------------------------------

    def _on(self, topic: Topic) -> Iterable[_Limit]:
        return [each for name in (None, topic) if (each := self._limits.get(name)) is not None]

    def _look(self, now_ns: int) -> None:
        """The queues of the group, once all its topics are known."""
        if self._routes.keys() == self._census.keys() - {None}:
            everything = [queue for queues in self._routes.values() for queue in queues]
            self._census[None].look(everything, now_ns=now_ns)
        self._recount(now_ns)

    def _settle(self, now_ns: int) -> None:
        """Fill all buckets until *now*, each with the shares of its time."""
        if not self._limits:
            return
        while self._same_until_ns <= now_ns:
            self._recount(self._same_until_ns)
        for each in self._limits.values():
            each.bucket.fill(now_ns)

    def _recount(self, now_ns: int) -> None:
        """Shares from *now* on, and until when they stay. Nothing before *now* is changed by it."""
        if not self._limits:
            self._same_until_ns = now_ns
            return
        changes = [
            time_ns
            for pipeline in self._owned
            for time_ns in (pipeline.hold_until_ns, pipeline.trusted_until_ns)
            if time_ns > now_ns
        ]
        counting = [pipeline for pipeline in self._owned if _counts(pipeline, now_ns)]
        for topic, limit in self._limits.items():
            census = self._census[topic]
            if (change_ns := census.next_change_ns(now_ns)) is not None:
                changes.append(change_ns)
            own = sum(
                census.has_share(pipeline.queue, now_ns)
                for pipeline in counting
                if topic in (None, pipeline.topic)
            )
            total = census.total(now_ns)
            limit.share(own / total if total else 0.0, now_ns)
        self._same_until_ns = min(changes, default=now_ns + _FOR_EVER_NS)


_FOR_EVER_NS = 1 << 61


def _counts(pipeline: QueuePipeline, now_ns: int) -> bool:
    held = pipeline.doubtful or pipeline.closed
    return not held and pipeline.hold_until_ns <= now_ns < pipeline.trusted_until_ns
