"""``max_rate`` of a group and its topics at one proxy: the deliveries allowed now. Pure.

All proxies of a group share a limit without coordination: a proxy's share is that of the queues
that it owns. Three rules keep the sum (Q1: deliveries in any time at most ``limit x time + burst``,
over all owners together):

1. A queue counts only while its owner may deliver: from the end of a take-over's wait until trust
   lapses or is in doubt. So it never counts at two proxies (P1).
2. A bucket holds a second of its share, or one message; a lost queue removes tokens above the new
   limit, and a gained one adds none. So a hand-over causes no burst.
3. All divide by the same number of queues, or by a larger one (``queue_census``).

Every delivery counts, including repeats, returned messages, and those whose answer was never
written. Small shares are delivered message by message, larger ones in portions, so that clients are
not woken for each message.

O(1) per call, also when a queue is added, removed, or loses trust by an event. All queues are
counted again, in O(queues), once a wait or the trust in one of them ends by itself, and after a
change of limits or routes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from broker_core.names import QueueName, Topic
from proxy.core.group.queue_census import QueueCensus
from proxy.core.group.token_bucket import SECOND, TokenBucket
from proxy.core.pipeline.queue_pipeline import QueuePipeline

#: Most of a share that is saved up while there is no demand.
BURST_NS = SECOND
#: Tokens are available once this much of a share is there.
_PORTION_NS = 20_000_000


@dataclass(slots=True)
class _Limit:
    """Limit of one topic, or of the group. ``max_rate``: messages per second of all proxies."""

    max_rate: float
    bucket: TokenBucket = field(default_factory=TokenBucket)
    _own: int = 0  # queues that count for this proxy
    _total: int = 0  # queues that share the limit
    _flows: bool = False  # a portion was available, and some of it is left

    def share(self, own: int, total: int, now_ns: int) -> None:
        """Give this proxy *own* of *total* parts of the limit from *now* on."""
        self._own, self._total = own, total
        self._divide(now_ns)

    def count(self, more: int, now_ns: int) -> None:
        """Give this proxy *more* parts, or fewer, from *now* on."""
        self._own += more
        self._divide(now_ns)

    def _divide(self, now_ns: int) -> None:
        part = self._own / self._total if self._total else 0.0
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

    #: True if nothing is limited. Read-only for others.
    open: bool = True
    _limits: dict[Topic | None, _Limit] = field(default_factory=dict)
    _routes: dict[Topic, frozenset[QueueName]] = field(default_factory=dict)
    _census: dict[Topic | None, QueueCensus] = field(default_factory=dict)
    # Owned queues, each with the limits on which it has a share.
    _owned: dict[QueuePipeline, list[Topic | None]] = field(default_factory=dict)
    _same_until_ns: int = 0  # until then shares change only by events

    # ---- inputs of shares; caller: group lane ----------------------------------------------------

    def limit(
        self, group: float | None, topics: Mapping[Topic, float | None], *, now_ns: int
    ) -> None:
        """Set the limits, in messages per second, None for none; *topics* are all topics of the
        group.
        """
        self._settle(now_ns)
        everything: list[tuple[Topic | None, float | None]] = [(None, group), *topics.items()]
        rates = {topic: rate for topic, rate in everything if rate is not None}
        before = self._limits
        self._limits = {topic: before.get(topic, _Limit(rate)) for topic, rate in rates.items()}
        for topic, rate in rates.items():
            self._limits[topic].max_rate = rate
        self.open = not rates
        if not rates:
            self._owned = {pipeline: [] for pipeline in self._owned}
        self._routes = {topic: self._routes[topic] for topic in topics if topic in self._routes}
        self._census = {topic: self._census.get(topic, QueueCensus()) for topic in (None, *topics)}
        self._look(now_ns)

    def route(self, topic: Topic, queues: Collection[QueueName], *, now_ns: int) -> None:
        """Set the queues of *topic*: all of them, wherever they are owned; none if it does not
        exist.

        The group's own limit is divided once all its topics are known.
        """
        if (census := self._census.get(topic)) is None:
            return
        self._settle(now_ns)
        first = topic not in self._routes
        self._routes[topic] = frozenset(queues)
        if census.look(queues, now_ns=now_ns) or first:
            self._look(now_ns)

    def add(self, pipeline: QueuePipeline, *, now_ns: int) -> None:
        """Add a queue owned from *now* on. A twin uses the share of its queue."""
        if not pipeline.is_twin:
            self._follow_shares(now_ns)
            self._owned[pipeline] = []
            self._count(pipeline, now_ns)

    def remove(self, pipeline: QueuePipeline, *, now_ns: int) -> None:
        """Remove a queue that is lost or handed over."""
        if pipeline in self._owned:
            self._follow_shares(now_ns)
            for topic in self._owned.pop(pipeline):
                self._limits[topic].count(-1, now_ns)

    def before_change(self, now_ns: int) -> None:
        """Prepare for a change of trust in a queue; ``changed`` must follow."""
        self._follow_shares(now_ns)

    def changed(self, pipeline: QueuePipeline, now_ns: int) -> None:
        """Apply a change of trust in *pipeline*. An extension of trust needs no call."""
        if pipeline in self._owned:
            self._count(pipeline, now_ns)

    # ---- handing out; caller: group buffer -------------------------------------------------------

    def left(self, topic: Topic, now_ns: int) -> int | None:
        """Return how many messages of *topic* may be delivered now; None for any number."""
        if not self._limits:
            return None
        return min((each.left() for each in self._filled(topic, now_ns)), default=None)

    def took(self, topic: Topic, messages: int) -> None:
        """Count delivered *messages*."""
        if self._limits:
            for each in self._on(topic):
                each.bucket.take(messages)

    def wait_ns(self, topic: Topic, now_ns: int) -> int | None:
        """Return the time until a message of *topic* may go out; None if that needs an event."""
        longest = 0
        for each in self._filled(topic, now_ns):
            wait_ns = 0 if each.left() else each.wait_ns()
            if wait_ns is None:  # no share now; the next known change may bring one
                wait_ns = self._same_until_ns - now_ns
            longest = max(longest, wait_ns)
        return longest if longest < _FOR_EVER_NS else None

    def shares(self, now_ns: int) -> Iterable[tuple[Topic | None, float]]:
        """Return this proxy's rate per second, of each topic with a limit and of the group."""
        self._settle(now_ns)
        return [(topic, each.bucket.rate) for topic, each in self._limits.items()]

    # ---- internals -------------------------------------------------------------------------------

    def _on(self, topic: Topic) -> Collection[_Limit]:
        return [each for name in (None, topic) if (each := self._limits.get(name)) is not None]

    def _look(self, now_ns: int) -> None:
        """Update the queues of the group, once all its topics are known."""
        if self._routes.keys() == self._census.keys() - {None}:
            everything = [queue for queues in self._routes.values() for queue in queues]
            self._census[None].look(everything, now_ns=now_ns)
        self._recount(now_ns)

    def _settle(self, now_ns: int) -> None:
        """Fill all buckets until *now*, with the shares valid at each time."""
        self._follow_shares(now_ns)
        for each in self._limits.values():
            each.bucket.fill(now_ns)

    def _filled(self, topic: Topic, now_ns: int) -> Collection[_Limit]:
        """Return the limits on *topic*, filled until *now*. Those of other topics, which may be
        thousands, are filled when they are asked for.
        """
        self._follow_shares(now_ns)
        found = self._on(topic)
        for each in found:
            each.bucket.fill(now_ns)
        return found

    def _follow_shares(self, now_ns: int) -> None:
        """Apply the changes of shares until *now*, each at its time."""
        while self._limits and self._same_until_ns <= now_ns:
            self._recount(self._same_until_ns)

    def _recount(self, now_ns: int) -> None:
        """Compute shares from *now* on, and how long they stay. Earlier times are not affected."""
        if not self._limits:
            self._same_until_ns = now_ns
            return
        same_until_ns = _NEVER_NS
        # First, as it forgets removed queues, which then have no share either.
        totals = {topic: self._census[topic].total(now_ns) for topic in self._limits}
        own: Counter[Topic | None] = Counter()
        for pipeline in self._owned:
            same_until_ns = min(same_until_ns, _next_change_ns(pipeline, now_ns))
            shared = self._owned[pipeline] = self._shared(pipeline, now_ns)
            own.update(shared)
        for topic, limit in self._limits.items():
            if (change_ns := self._census[topic].next_change_ns(now_ns)) is not None:
                same_until_ns = min(same_until_ns, change_ns)
            limit.share(own[topic], totals[topic], now_ns)
        self._same_until_ns = same_until_ns

    def _count(self, pipeline: QueuePipeline, now_ns: int) -> None:
        """Let *pipeline* have its share from *now* on; it takes none of another one."""
        if not self._limits:
            return
        before, shared = self._owned[pipeline], self._shared(pipeline, now_ns)
        self._owned[pipeline] = shared
        for topic in (None, pipeline.topic):
            if more := (topic in shared) - (topic in before):
                self._limits[topic].count(more, now_ns)
        self._same_until_ns = min(self._same_until_ns, _next_change_ns(pipeline, now_ns))

    def _shared(self, pipeline: QueuePipeline, now_ns: int) -> list[Topic | None]:
        """Return the limits on which *pipeline* has a share."""
        if not _counts(pipeline, now_ns):
            return []
        return [
            topic
            for topic in (None, pipeline.topic)
            if topic in self._limits and self._census[topic].has_share(pipeline.queue, now_ns)
        ]


#: Longer waits count as endless, as up to the time that never comes.
_FOR_EVER_NS, _NEVER_NS = 1 << 61, 1 << 62


def _next_change_ns(pipeline: QueuePipeline, now_ns: int) -> int:
    """Return when *pipeline* next begins or ends to count by itself."""
    times = (pipeline.hold_until_ns, pipeline.trusted_until_ns)
    return min((each for each in times if each > now_ns), default=_NEVER_NS)


def _counts(pipeline: QueuePipeline, now_ns: int) -> bool:
    held = pipeline.doubtful or pipeline.closed
    return not held and pipeline.hold_until_ns <= now_ns < pipeline.trusted_until_ns
