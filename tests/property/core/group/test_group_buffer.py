"""Queues and topics take fair turns, and pulls stay within their limits, whatever the delivery
policy.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.names import Topic
from proxy.core.group.group_buffer import Batch, GroupBuffer, PullWish
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.window import Budget
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from testkit.messages import message
from testkit.pipelines import FOR_EVER_NS, HOLDER, Budgets, pipeline, queue, rules
from tests.support.examples import examples

TOPICS = [Topic("orders"), Topic("payments"), Topic("returns")]
QUEUES_OF_TOPIC = 3
#: Most pulls until a queue with ready jobs is served: each topic has its turn, and in it each
#: queue.
BOUND = len(TOPICS) * QUEUES_OF_TOPIC
MAX_BATCH = 3

wishes = st.builds(
    PullWish,
    st.just(HOLDER),
    st.none() | st.frozensets(st.sampled_from(TOPICS), min_size=1),
    max_jobs=st.integers(1, 6),
    max_bytes=st.sampled_from([1, 200, 500, 5000]),
    many_queues=st.booleans(),
)


@settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
class GroupBufferMachine(RuleBasedStateMachine):
    """Three topics of three queues that fill, drain, lose their trust and regain it."""

    @initialize(limit=st.sampled_from([2, 5, 1000]), policy=st.sampled_from(HandOut))
    def start(self, limit: int, policy: HandOut) -> None:
        self.leases = Budget(limit)
        self.buffer = GroupBuffer(self.leases)
        self.bound = BOUND
        self.hand_out_by(policy)
        self.live: list[tuple[QueuePipeline, Lease]] = []
        self.missed: dict[QueuePipeline, int] = {}  # pulls since it was last served while ready
        for topic in TOPICS:
            for number in range(QUEUES_OF_TOPIC):
                self._acquire(topic, number)

    def _acquire(self, topic: Topic, number: int) -> None:
        self.buffer.add(
            pipeline(
                rules(max_pull_batch=MAX_BATCH),
                of=queue(number, topic=topic),
                budgets=Budgets(leases=self.leases),
                messages=[
                    message(offset, body=b"12345", key=f"first-{offset}") for offset in range(4)
                ],
            )
        )

    def _pick(self, number: int) -> QueuePipeline:
        return list(self.buffer)[number % len(self.buffer)]

    @rule(policy=st.sampled_from(HandOut))
    def hand_out_by(self, policy: HandOut) -> None:
        self.buffer.hand_out_by(policy)
        if policy is HandOut.LONGEST_CHAIN:
            self.bound = 2 * BOUND  # every second batch goes to the longest chain

    @rule(number=st.integers(0, 8), size=st.sampled_from([0, 5, 30]),
          keys=st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=9))  # fmt: skip
    def read(self, number: int, size: int, keys: list[str]) -> None:
        """Read messages of two keys, and of new ones."""
        here = self._pick(number)
        start, count = here.position, len(keys)
        some = [
            message(offset, body=b"x" * size, key=key or f"new-{offset}")
            for offset, key in enumerate(keys, start)
        ]
        here.on_messages(some, next_offset=start + count)
        self.buffer.refresh(here)

    @rule(number=st.integers(0, 8))
    def trust_is_doubted_or_returns(self, number: int) -> None:
        here = self._pick(number)
        if here.doubtful:
            here.trust_until(FOR_EVER_NS)
        else:
            here.doubt()
        self.buffer.refresh(here)
        self.missed.pop(here, None)

    @rule(number=st.integers(0, 8))
    def lose_and_acquire(self, number: int) -> None:
        here = self._pick(number)
        self.buffer.remove(here)
        self.missed.pop(here, None)
        self.live = [(owner, lease) for owner, lease in self.live if owner is not here]
        self._acquire(here.queue.topic, here.queue.queue_id)

    @precondition(lambda self: self.live)
    @rule(count=st.integers(1, 8), release=st.booleans())
    def settle(self, count: int, release: bool) -> None:
        for owner, lease in self.live[:count]:
            ids = [lease.lease_id]
            owner.settle(acked=[] if release else ids, released=ids if release else [], now_ns=0)
            self.buffer.refresh(owner)
        del self.live[:count]

    @rule(wish=wishes)
    def pull(self, wish: PullWish) -> None:
        left = self.leases.left
        due = [here for here in self.buffer if self._may_serve(here, wish)]
        batches = self.buffer.lease(wish, now_ns=1)
        self._within_limits(wish, batches, left=left)
        assert bool(batches) is bool(due and left), "a pull is answered whenever it can be"
        self._fair(due, batches)
        self.live += [(batch.pipeline, lease) for batch in batches for lease in batch.leases]

    pull_more = pull
    pull_again = pull

    def _may_serve(self, here: QueuePipeline, wish: PullWish) -> bool:
        wanted = wish.topics is None or here.queue.topic in wish.topics
        return wanted and bool(here.ready) and here.may_hand_out(1)

    def _within_limits(self, wish: PullWish, batches: list[Batch], *, left: int) -> None:
        leases = [lease for batch in batches for lease in batch.leases]
        assert len(leases) <= min(wish.max_jobs, left)
        assert sum(lease.wire_bytes for lease in leases[:-1]) < wish.max_bytes
        assert all(0 < len(batch.leases) <= MAX_BATCH for batch in batches)
        assert wish.many_queues or len(batches) <= 1
        assert len({batch.pipeline.queue for batch in batches}) == len(batches)
        for batch in batches:
            assert wish.topics is None or batch.pipeline.queue.topic in wish.topics

    def _fair(self, due: list[QueuePipeline], batches: list[Batch]) -> None:
        served = {batch.pipeline for batch in batches}
        for here in due if batches else []:
            self.missed[here] = 0 if here in served else self.missed.get(here, 0) + 1
            assert self.missed[here] < self.bound, f"{here} was passed over for too long"

    @invariant()
    def leases_of_the_group_are_those_of_its_queues(self) -> None:
        live = [here.statistics().leased for here in self.buffer]
        assert self.leases.used == sum(live) == len(self.live) <= self.leases.limit

    @invariant()
    def topics_with_ready_jobs_are_known(self) -> None:
        """Topics whose queues may not deliver may be included until a pull notices."""
        ready = {here.queue.topic for here in self.buffer if here.ready}
        may = {here.queue.topic for here in self.buffer if here.ready and here.may_hand_out(1)}
        assert may <= set(self.buffer.ready_topics()) <= ready
        assert bool(may) <= self.buffer.has_ready <= bool(ready)

    def teardown(self) -> None:
        for here in list(getattr(self, "buffer", [])):
            self.buffer.remove(here)
            assert self.buffer.find(here.queue) is None
        if hasattr(self, "leases"):
            assert (self.leases.used, len(self.buffer), self.buffer.has_ready) == (0, 0, False)


TestGroupBuffer = GroupBufferMachine.TestCase
