"""All owned queues of one group: selection of the queues for the next pull. Pure.

Queues with ready jobs take turns, so a full queue does not delay the others; O(1) per batch,
regardless of the number of queues. The bound (P8): each of n queues of a topic with ready jobs is
in the next n batches of that topic. In its queue, a ready job is delivered before (burst + 1)²
others for each job that was ready when it became ready (``Dispatch``), not counting followers in
runs. With the policy ``longest_chain`` only every second batch of a topic goes to the queue whose
turn it is, so each queue is in the next 2n; the bound in a queue is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.names import QueueName, Topic
from proxy.core.group.longest_queues import LongestQueues
from proxy.core.group.rate_gate import RateGate
from proxy.core.group.short_batches import ShortBatches
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.window import Budget
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.pipeline.actions import MAX_WORK
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.pauses import GroupPauses
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.paused_key import PausedKey


class PullWish(NamedTuple):
    """One pull request. ``topics``: None for any topic of the group; bytes are those of answers."""

    holder: Holder
    topics: frozenset[Topic] | None
    max_jobs: int
    max_bytes: int
    many_queues: bool = False
    max_run: int = 1


class Batch(NamedTuple):
    """Leases of one queue."""

    pipeline: QueuePipeline
    leases: list[Lease]


@dataclass(slots=True)
class GroupBuffer:
    """The pipelines of one group on this proxy. ``leases.limit`` is ``max_leased_jobs``; ``rates``
    limits the deliveries of each topic.
    """

    leases: Budget
    rates: RateGate = field(default_factory=RateGate)
    #: Effects for ``take_unreported``. Read-only for others.
    unreported: list[tuple[QueuePipeline, Effects]] = field(default_factory=list)
    _hand_out: HandOut = HandOut.OLDEST
    _pipelines: dict[QueueName, QueuePipeline] = field(default_factory=dict)
    _work: Budget = field(default_factory=lambda: Budget(MAX_WORK))
    _pauses: GroupPauses = field(default_factory=GroupPauses)
    _queues: Counter[Topic] = field(default_factory=Counter)
    # Pipelines with ready jobs, in the order of their turns.
    _ready: dict[Topic, dict[QueuePipeline, None]] = field(default_factory=dict)
    # Those of each topic by their longest chains, if the policy asks for it.
    _longest: dict[Topic, LongestQueues] = field(default_factory=dict)
    # Topics with leases that expired at clients which cannot extend.
    _short: dict[Topic, ShortBatches] = field(default_factory=dict)

    def __iter__(self) -> Iterator[QueuePipeline]:
        return iter(self._pipelines.values())

    def __len__(self) -> int:
        return len(self._pipelines)

    def add(self, pipeline: QueuePipeline) -> None:
        """Add an acquired queue. Raise ValueError if it is here already."""
        if pipeline.queue in self._pipelines:
            raise ValueError(f"{pipeline.queue} already has a pipeline")
        self._pipelines[pipeline.queue] = pipeline
        if self._hand_out is not HandOut.OLDEST:
            pipeline.hand_out_by(self._hand_out)
        pipeline.share_work(self._work)
        if not pipeline.is_twin:  # a twin is paused with its queue
            self._queues[pipeline.topic] += 1
            pipeline.pauses.register_in(self._pauses, pipeline.topic)
        self.refresh(pipeline)

    def remove(self, pipeline: QueuePipeline) -> None:
        """Drop the pipeline of a queue that was lost or handed over."""
        pipeline.close()
        if self._pipelines.get(pipeline.queue) is pipeline:
            del self._pipelines[pipeline.queue]
            self._queues[pipeline.topic] -= not pipeline.is_twin
            pipeline.pauses.unregister()
        self._ready.get(pipeline.topic, {}).pop(pipeline, None)
        if (longest := self._longest.get(pipeline.topic)) is not None:
            longest.note(pipeline)

    def forget(self, topic: Topic) -> None:
        """Forget *topic*, which has no queue here any more."""
        self._ready.pop(topic, None)
        self._longest.pop(topic, None)
        self._short.pop(topic, None)
        self._queues.pop(topic, None)

    def expired(self, topic: Topic, leases: Iterable[Lease], *, now_ns: int) -> None:
        """Note *leases* that expired although their clients are connected: those that cannot extend
        get shorter batches.
        """
        if unextended := [lease for lease in leases if not lease.holder.extends]:
            self._short.setdefault(topic, ShortBatches()).expired(unextended, now_ns=now_ns)

    def has_queue_of(self, topic: Topic) -> bool:
        """Return True if a queue of *topic* is owned here. O(1)."""
        return self._queues[topic] > 0

    @property
    def paused_whole(self) -> PausedKey | None:
        """Pause of the group, if its queues here are paused. O(1): called at each take-over."""
        return self._pauses.whole

    def paused_keys(self, topic: Topic) -> dict[bytes, PausedKey]:
        """Return the keys of *topic* that are paused in any of its queues here. O(result): called
        at each take-over.
        """
        return self._pauses.keys(topic)

    def hand_out_by(self, policy: HandOut) -> None:
        """Choose among ready jobs by *policy* from the next pull on. O(ready) if it changes."""
        if policy is self._hand_out:
            return
        self._hand_out = policy
        for pipeline in self:
            pipeline.hand_out_by(policy)
        self._longest.clear()
        if policy is HandOut.LONGEST_CHAIN:
            self._longest |= {topic: LongestQueues(turns) for topic, turns in self._ready.items()}

    def find(self, queue: QueueName) -> QueuePipeline | None:
        """Return the pipeline of an owned queue."""
        return self._pipelines.get(queue)

    def refresh(self, pipeline: QueuePipeline) -> None:
        """Check whether *pipeline* has ready jobs. Caller: the group lane, after every event, and
        when delivery is allowed again.
        """
        turns = self._ready.get(pipeline.topic)
        if turns is None:
            turns = self._ready[pipeline.topic] = {}
            if self._hand_out is HandOut.LONGEST_CHAIN:
                self._longest[pipeline.topic] = LongestQueues(turns)
        if pipeline.has_ready() and not pipeline.closed:
            turns.setdefault(pipeline)
        else:
            turns.pop(pipeline, None)
        if self._longest:
            self._longest[pipeline.topic].note(pipeline)

    @property
    def has_ready(self) -> bool:
        """True if any queue has ready jobs."""
        return any(self._ready.values())

    def limited_ns(self, topics: Collection[Topic] | None, *, now_ns: int) -> int | None:
        """Return how long the first of *topics* (None: all) with ready jobs must wait because of
        its rate limit; None if no topic waits, or the time is unknown.
        """
        if self.rates.open:
            return None
        held = (topic for topic in self.ready_topics() if topics is None or topic in topics)
        waits = (self.rates.wait_ns(topic, now_ns) for topic in held)
        return min((each for each in waits if each), default=None)

    def ready_topics(self, *, without: Container[Topic] = ()) -> list[Topic]:
        """Return the topics with ready jobs that are not in *without*."""
        return [topic for topic, turns in self._ready.items() if turns and topic not in without]

    def lease(self, wish: PullWish, *, now_ns: int) -> list[Batch]:
        """Return the answer to a pull: batches of one queue, or of several if the client accepts
        them.

        Runs get the places left after every ready key had one, and at most half of the leases that
        the group has left, so they keep no other key waiting.
        """
        if self._work.used:
            self._work.clear()
        jobs_left = self.leases.limit - self.leases.used
        if wish.max_jobs < jobs_left:
            jobs_left = wish.max_jobs
        batches = self._firsts(wish, jobs_left=jobs_left, now_ns=now_ns)
        if wish.max_run <= 1:
            return batches
        jobs = sum(len(batch.leases) for batch in batches)
        wire_bytes = sum(lease.wire_bytes for batch in batches for lease in batch.leases)
        longer = []
        for batch in batches:
            leases = batch.pipeline.lengthen(
                batch.leases,
                max_run=wish.max_run,
                max_jobs=min(
                    wish.max_jobs - jobs,
                    self.leases.left // 2,
                    batch.pipeline.rules.max_pull_batch - len(batch.leases),
                    _most(self.rates.left(batch.pipeline.topic, now_ns)),
                ),
                max_bytes=wish.max_bytes - wire_bytes,
            )
            self.rates.took(batch.pipeline.topic, len(leases) - len(batch.leases))
            jobs += len(leases) - len(batch.leases)
            wire_bytes += sum(lease.wire_bytes for lease in leases)
            wire_bytes -= sum(lease.wire_bytes for lease in batch.leases)
            longer.append(Batch(batch.pipeline, leases))
        return longer

    def take_unreported(self) -> list[tuple[QueuePipeline, Effects]]:
        """Return, once, the effects on jobs that ``lease`` did not return. More jobs may be ready:
        ``lease`` stops at the work limit of a pull.
        """
        acted, self.unreported = self.unreported, []
        return acted

    def _firsts(self, wish: PullWish, *, jobs_left: int, now_ns: int) -> list[Batch]:
        """Return batches with one job per key, at most *jobs_left* in all."""
        batches: list[Batch] = []
        bytes_left, cut = wish.max_bytes, False
        work, limited, allowed = self._work, not self.rates.open, _ANY_NUMBER
        several = len(self._ready) > 1  # then topics move behind the others after their turn
        for topic, turns in self._in_turn(wish.topics) if several else self._ready.items():
            if not turns or (wish.topics is not None and topic not in wish.topics):
                continue
            longest = None
            if self._longest:
                longest = self._longest[topic]
                longest.begin()
            for _ in range(len(turns)):
                if jobs_left <= 0 or bytes_left <= 0 or work.used >= work.limit:
                    return batches
                if limited and not (allowed := _most(self.rates.left(topic, now_ns))):
                    break  # other topics may continue
                most = jobs_left  # min() would cost as much as a call
                if longest is None:
                    pipeline = next(iter(turns))
                else:
                    pipeline, part = longest.choose(most=jobs_left)
                    if wish.many_queues and part < most:
                        most, cut = part, True
                del turns[pipeline]
                if pipeline.rules.max_pull_batch < most:
                    most = pipeline.rules.max_pull_batch
                if self._short and not wish.holder.extends:
                    most = self._shortened(pipeline, most, now_ns=now_ns)
                if allowed < most:
                    most = allowed
                leases = pipeline.lease(
                    max_jobs=most,
                    max_bytes=bytes_left,
                    now_ns=now_ns,
                    holder=wish.holder,
                )
                acted = None if pipeline.unreported.pending is None else pipeline.take_unreported()
                if acted is not None:
                    self.unreported.append((pipeline, acted))
                if pipeline.has_ready() and (leases or pipeline.may_hand_out(now_ns)):
                    turns[pipeline] = None  # behind the others; otherwise it returns once allowed
                if several and (leases or acted is not None):
                    self._ready[topic] = self._ready.pop(topic)  # behind the other topics
                if leases:
                    batches.append(Batch(pipeline, leases))
                    if limited:
                        self.rates.took(topic, len(leases))
                    jobs_left -= len(leases)
                    if jobs_left <= 0 or not wish.many_queues:
                        return batches
                    for lease in leases:
                        bytes_left -= lease.wire_bytes
        if cut:
            self._fill_up(batches, wish, jobs_left=jobs_left, bytes_left=bytes_left, now_ns=now_ns)
        return batches

    def _shortened(self, pipeline: QueuePipeline, most: int, *, now_ns: int) -> int:
        """Return *most*, or less for clients that cannot extend."""
        if (short := self._short.get(pipeline.topic)) is None:
            return most
        limit = short.most(visibility_ns=pipeline.visibility_ns, now_ns=now_ns)
        return most if limit is None else min(most, limit)

    def _in_turn(
        self, wanted: Collection[Topic] | None
    ) -> Collection[tuple[Topic, dict[QueuePipeline, None]]]:
        """Return the topics in the order of their turns, at least those *wanted* (None: all). O(1)
        for one: a proxy that delivers thousands of topics itself asks for each of them.
        """
        if wanted is not None and len(wanted) == 1:
            (topic,) = wanted
            turns = self._ready.get(topic)
            return () if turns is None else ((topic, turns),)
        return list(self._ready.items())

    def _fill_up(
        self,
        batches: Iterable[Batch],
        wish: PullWish,
        *,
        jobs_left: int,
        bytes_left: int,
        now_ns: int,
    ) -> None:
        """Add jobs of shorter chains to *batches*, because there are places left."""
        for pipeline, leases in batches:
            topic, work = pipeline.topic, self._work
            if jobs_left <= 0 or bytes_left <= 0 or work.used >= work.limit:
                return
            more = pipeline.lease(
                max_jobs=min(
                    jobs_left,
                    pipeline.rules.max_pull_batch - len(leases),
                    _most(self.rates.left(topic, now_ns)),
                ),
                max_bytes=bytes_left,
                now_ns=now_ns,
                holder=wish.holder,
            )
            if (acted := pipeline.take_unreported()) is not None:
                self.unreported.append((pipeline, acted))
            self.refresh(pipeline)
            self.rates.took(topic, len(more))
            leases.extend(more)
            jobs_left -= len(more)
            bytes_left -= sum(lease.wire_bytes for lease in more)


def _most(limit: int | None) -> int:
    return _ANY_NUMBER if limit is None else limit


_ANY_NUMBER = 1 << 31
