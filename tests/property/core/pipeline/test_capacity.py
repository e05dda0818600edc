"""Capacity never leaks: free permits and used ones always add up to the capacity.

Three limits are checked against independent counts: live leases of the group, bytes in memory of
the process, and jobs in memory of each queue.
"""

from __future__ import annotations

from itertools import chain

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker_core.remoting.message import StoredMessage
from proxy.core.group.group_buffer import GroupBuffer, PullWish
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.spilled_chains import OFFSET_BYTES
from proxy.core.jobs.unloaded import STUB_BYTES
from proxy.core.jobs.window import Budget
from proxy.core.keys.retry_policy import MS, OnExhausted, RetryPolicy
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Snapshot
from testkit.messages import held_bytes, message
from testkit.pipelines import Budgets, lease, pipeline, queue, rules
from tests.support.examples import examples

QUEUES = 3
TRUST_NS = 500 * MS
ANY = 1 << 30

queues = st.integers(0, QUEUES - 1)
#: Strategy for limits of jobs in memory: the window of a queue, and of one of its keys.
windows = st.tuples(st.sampled_from([4, 6, 10, 40]), st.sampled_from([1, 2, 5]))


def rules_of(window: tuple[int, int]) -> TopicRules:
    policy = RetryPolicy(
        intervals_ms=(0, 20), max_deliveries=3, on_exhausted=OnExhausted.DEAD_LETTER
    )
    jobs, jobs_per_key = window
    return rules(visibility_ns=30 * MS, retry=policy, max_jobs=jobs, max_jobs_per_key=jobs_per_key)


@settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
class Capacity(RuleBasedStateMachine):
    """Queues of one group are read, delivered, settled, ignored, lost and acquired again."""

    @initialize(limit=st.integers(1, 8), window=windows)
    def start(self, limit: int, window: tuple[int, int]) -> None:
        self.now_ns = 0
        self.leases, self.memory = Budget(limit), Budget(20_000)
        self.buffer = GroupBuffer(self.leases)
        self.rules = rules_of(window)
        self.logs: list[list[StoredMessage]] = [[] for _ in range(QUEUES)]
        self.here: list[QueuePipeline] = []
        self.live: dict[Lease, QueuePipeline] = {}
        self.finished: list[set[int]] = [set() for _ in range(QUEUES)]
        self.refills: list[tuple[int, QueuePipeline, Refill]] = []
        for number in range(QUEUES):
            self.here.append(self._acquired(number, None))
            self.send(number, list("aabcaadb"))
            self._read(number, demand=True)

    def _acquired(self, number: int, resume: Snapshot | None) -> QueuePipeline:
        start = min(self._unfinished(number), default=len(self.logs[number]))
        made = pipeline(
            self.rules,
            of=queue(number),
            start=start,
            trusted_until_ns=self.now_ns + TRUST_NS,
            resume=resume,
            budgets=Budgets(self.memory, self.leases),
            now_ns=self.now_ns,
        )
        if resume is None:
            self.finished[number] = set(range(start))
        self.buffer.add(made)
        return made

    def _unfinished(self, number: int) -> set[int]:
        return set(range(len(self.logs[number]))) - self.finished[number]

    def _apply(self, number: int, effects: Effects) -> None:
        here = self.here[number]
        ended = (effects.acked, effects.nacked, effects.released, effects.expired, effects.unsent)
        for each in chain.from_iterable(ended):
            del self.live[each]  # each lease ends only once
        self.finished[number] |= {offset for offset, _ in effects.finished}
        self.refills += [(number, here, refill) for refill in effects.refills]
        for job in effects.dead_letters:
            self._apply(number, here.dead_lettered(job))
        self.buffer.refresh(here)

    def _read(self, number: int, *, demand: bool) -> None:
        here, log = self.here[number], self.logs[number]
        room = here.room(demand=demand)
        some = log[here.position : here.position + room]
        if some:
            effects = here.on_messages(some, next_offset=some[-1].queue_offset + 1)
            self._apply(number, effects)

    # ---- events ----------------------------------------------------------------------------------

    @rule(number=queues, keys=st.lists(st.sampled_from("aaabcd"), min_size=1, max_size=12))
    def send(self, number: int, keys: list[str]) -> None:
        log = self.logs[number]
        for key in keys:
            body = b"x" * (10 + len(log) % 7)
            log.append(message(len(log), body=body, key=key, queue_id=number))

    @rule(number=queues, demand=st.booleans())
    def read(self, number: int, demand: bool) -> None:
        self._read(number, demand=demand)

    @rule(jobs=st.integers(1, 9), run=st.sampled_from([1, 3, 9]), client=st.integers(1, 2))
    def pull(self, jobs: int, run: int, client: int) -> None:
        left = self.leases.left
        wish = PullWish(Holder(client, f"c{client}"), None, jobs, ANY, True, run)
        batches = self.buffer.lease(wish, now_ns=self.now_ns)
        granted = {each: batch.pipeline for batch in batches for each in batch.leases}
        assert len(granted) <= min(left, jobs)
        assert not granted.keys() & self.live.keys()
        self.live |= granted

    more = another = pull

    @rule(data=st.data(), what=st.sampled_from(["ack", "nack", "reject", "release"]))
    def settle(self, data: st.DataObject, what: str) -> None:
        """Settle any lease, perhaps in the middle of a run."""
        if not self.live:
            return
        each = data.draw(st.sampled_from(sorted(self.live, key=lambda each: each.lease_id)))
        here = self.live[each]
        ids = [each.lease_id]
        nacks = [Nack(each.lease_id, reject=what == "reject")]
        effects = here.settle(
            acked=ids if what == "ack" else (),
            nacked=nacks if what in ("nack", "reject") else (),
            released=ids if what == "release" else (),
            now_ns=self.now_ns,
        )
        self._apply(here.queue.queue_id, effects)

    @rule(number=queues, offsets=st.lists(st.integers(0, 20), max_size=4))
    def settle_by_offset(self, number: int, offsets: list[int]) -> None:
        effects = self.here[number].settle_by_offset(
            success=offsets[:2],
            failed=offsets[2:],
            connection=1,
            open_connections=(1, 2),
            now_ns=self.now_ns,
        )
        self._apply(number, effects)

    @rule(number=queues, ms=st.integers(1, 40))
    def extend(self, number: int, ms: int) -> None:
        here = self.here[number]
        ids = [each.lease_id for each, owner in self.live.items() if owner is here]
        here.extend(ids, ms=ms, now_ns=self.now_ns)

    @rule(data=st.data())
    def an_answer_was_never_written(self, data: st.DataObject) -> None:
        if self.live:
            each = data.draw(st.sampled_from(sorted(self.live, key=lambda each: each.lease_id)))
            here = self.live[each]
            for ended in here.return_unsent([each]):
                self.live.pop(ended)
            # Followers in its run were returned with it.
            alive = set(here.leases)
            self.live = {k: v for k, v in self.live.items() if v is not here or k in alive}
            self.buffer.refresh(here)

    @rule(ms=st.sampled_from([1, 10, 31, 120]))
    def time_passes(self, ms: int) -> None:
        self.now_ns += ms * MS
        for number, here in enumerate(self.here):
            here.trust_until(self.now_ns + TRUST_NS)
            self._apply(number, here.on_time(now_ns=self.now_ns))

    @rule(found=st.booleans())
    def spilled_messages_are_read_again(self, found: bool) -> None:
        for number, here, refill in self.refills:
            if here is self.here[number]:
                log = self.logs[number]
                messages = [log[offset] for offset in refill.offsets if found]
                self._apply(number, here.refilled(refill, messages))
        self.refills = [each for each in self.refills if each[1] not in self.here]

    @rule(number=queues, clean=st.booleans(), drained=st.booleans())
    def it_changes_hands(self, number: int, clean: bool, drained: bool) -> None:
        here = self.here[number]
        if drained:
            here.drain()
        resume = here.snapshot(now_ns=self.now_ns) if clean else None
        self.buffer.remove(here)
        self.live = {each: owner for each, owner in self.live.items() if owner is not here}
        self.here[number] = self._acquired(number, resume)

    @rule(limit=st.integers(1, 8), memory=st.sampled_from([1_000, 6_000, 20_000]), window=windows)
    def limits_change(self, limit: int, memory: int, window: tuple[int, int]) -> None:
        self.leases.resize(limit)
        self.memory.resize(memory)
        self.rules = rules_of(window)
        for number, here in enumerate(self.here):
            self._apply(number, here.change_rules(self.rules))

    # ---- invariants ------------------------------------------------------------------------------

    @invariant()
    def leases_and_permits_make_the_capacity(self) -> None:
        assert self.leases.used == len(self.live)
        assert self.leases.left == max(0, self.leases.limit - len(self.live))
        assert sum(here.statistics().leased for here in self.here) == len(self.live)

    @invariant()
    def memory_holds_unfinished_messages_only(self) -> None:
        total = 0
        for number, here in enumerate(self.here):
            chains = [each for _, each in here.jobs.spilled_chains]
            waiting = {offset for each in chains for offset in each.offsets[each.loaded :]}
            again = {offset for each in chains for offset in each.offsets[each.head :]}
            read = {each for each in self._unfinished(number) if each < here.position}
            down = set(here.jobs.residency.unloaded.offsets)
            held = (read | again) - waiting - down
            window = here.jobs.window
            assert (window.jobs, window.spilled) == (len(held), len(waiting))
            messages = [self.logs[number][offset] for offset in held]
            in_memory = sum(held_bytes(each, each.key) for each in messages)
            stubs = sum(STUB_BYTES + len(self.logs[number][each].key or "") for each in down)
            assert window.used_bytes == in_memory + OFFSET_BYTES * len(waiting) + stubs
            total += window.used_bytes
        assert self.memory.used == total

    def teardown(self) -> None:
        """At the end everything is delivered and acked, and all capacity is free again."""
        if not hasattr(self, "here"):
            return
        self.leases.resize(1_000)
        self.memory.resize(1 << 40)
        for _ in range(500):
            self.now_ns += 50 * MS
            self.spilled_messages_are_read_again(found=True)
            for number, here in enumerate(self.here):
                here.trust_until(self.now_ns + TRUST_NS)
                self._apply(number, here.on_time(now_ns=self.now_ns))
                self._read(number, demand=True)
                got = lease(here, now_ns=self.now_ns)
                self.live |= dict.fromkeys(got, here)
                mine = [each.lease_id for each, owner in self.live.items() if owner is here]
                self._apply(number, here.settle(acked=mine, now_ns=self.now_ns))
            if not any(self._unfinished(number) for number in range(QUEUES)):
                break
        assert not any(self._unfinished(number) for number in range(QUEUES))
        assert (self.leases.used, self.memory.used) == (0, 0)


TestCapacity = Capacity.TestCase
