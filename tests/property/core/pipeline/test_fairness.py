"""P8: with more ready keys than places, each is served within the bounds that the core promises,
whatever the delivery policy.

Clients ack, return, fail, accept runs, and pull in any size; producers continue with old and new
keys. The test counts how many other jobs are delivered first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from proxy.core.group.group_buffer import GroupBuffer, PullWish
from proxy.core.jobs.chains import REACTIVATION_BURST
from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.window import Budget
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from testkit.messages import keyed
from testkit.pipelines import Budgets, pipeline, queue, rules
from tests.support.examples import examples

QUEUES = 3
MOST_LEASES = 40
#: One of this many polls of a queue goes to each available kind of ready jobs.
EVERY = (REACTIVATION_BURST + 1) ** 2
WHICH = st.integers(0, QUEUES - 1)


@dataclass
class Waiting:
    """A ready job: the number of jobs ready ahead of it or beside it, and those delivered since."""

    others: int
    polls: int = 0


@settings(max_examples=examples(40), stateful_step_count=60, deadline=None)
class FairnessMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.budgets = Budgets(leases=Budget(MOST_LEASES))
        self.buffer = GroupBuffer(self.budgets.leases)
        known = rules(
            max_pull_batch=1000,
            retry=RetryPolicy((0,), on_exhausted=OnExhausted.BLOCK),
            visibility_ns=1 << 40,
        )
        self.queues = [
            pipeline(known, of=queue(number), budgets=self.budgets) for number in range(QUEUES)
        ]
        for each in self.queues:
            self.buffer.add(each)
        self.held: list[tuple[QueuePipeline, Lease]] = []
        self.waiting: list[dict[bytes, Waiting]] = [{} for _ in range(QUEUES)]
        self.turns: dict[int, int] = {}  # batches of others since a queue became ready
        self.new_keys = 0
        self.most_turns = QUEUES

    @initialize(policy=st.sampled_from(HandOut))
    def start(self, policy: HandOut) -> None:
        self.change_policy(policy)

    @rule(policy=st.sampled_from(HandOut))
    def change_policy(self, policy: HandOut) -> None:
        self.buffer.hand_out_by(policy)
        if policy is HandOut.LONGEST_CHAIN:
            self.most_turns = 2 * QUEUES  # every second batch goes to the longest chain

    # ---- ready jobs -----------------------------------------------------------------------------

    def look(self) -> None:
        """Note keys and queues that have become ready."""
        for number, here in enumerate(self.queues):
            self.buffer.refresh(here)
            ready = {job.key for job in here.jobs.chains.ready_jobs()} | {
                job.key for job in here.leases.offered
            }
            assert len(ready) == here.ready
            for key in ready - self.waiting[number].keys():
                assert key is not None
                self.waiting[number][key] = Waiting(here.ready)
            assert self.waiting[number].keys() == ready
            if here.ready:
                self.turns.setdefault(number, 0)
            else:
                self.turns.pop(number, None)

    # ---- events ---------------------------------------------------------------------------------

    @rule(which=WHICH, keys=st.lists(st.sampled_from("abcdefgh*"), min_size=1, max_size=12))
    def produce(self, which: int, keys: list[str]) -> None:
        """Send messages; ``*`` is a new key each time."""
        messages = []
        here = self.queues[which]
        for offset, key in enumerate(keys, here.position):
            self.new_keys += 1
            messages.append(keyed(offset, key if key != "*" else f"new-{self.new_keys}"))
        here.on_messages(messages, next_offset=messages[-1].queue_offset + 1)
        self.look()

    @rule(places=st.integers(1, 6), max_run=st.sampled_from([1, 2, 50]), many=st.booleans())
    def pull(self, places: int, max_run: int, many: bool) -> None:
        """Pull: runs get only places that ready keys leave, and not all that the group has."""
        wish = PullWish(Holder(1), None, places, 1 << 40, many_queues=many, max_run=max_run)
        left = self.budgets.leases.left
        batches = self.buffer.lease(wish, now_ns=0)
        followers = heads = 0
        for batch in batches:
            number = self.queues.index(batch.pipeline)
            firsts = [each for each in batch.leases if not each.run or each.run[0] is each]
            for lease in firsts:
                heads += 1
                assert lease.job.key is not None
                del self.waiting[number][lease.job.key]
            for waiting in self.waiting[number].values():
                waiting.polls += len(firsts)
            followers += len(batch.leases) - len(firsts)
            self.held += [(batch.pipeline, lease) for lease in batch.leases]
            self.turns.pop(number)
            for other in self.turns:
                self.turns[other] += 1
            if batch.pipeline.ready:
                self.turns[number] = 0
        if followers:
            here = self.queues if many else [batches[0].pipeline]
            assert not any(each.ready for each in here), "a key waits where a run goes on"
            assert followers <= (left - heads) // 2
        if not batches:
            assert not left or not self.buffer.has_ready
        self.look()

    pull_again = pull

    @rule(first=st.integers(0, 5), many=st.integers(1, 12),
          how=st.sampled_from(["ack", "ack", "release", "nack"]))  # fmt: skip
    def settle(self, first: int, many: int, how: str) -> None:
        chosen = self.held[first : first + many]
        said: dict[str, Callable[[Lease], dict[str, list[object]]]] = {
            "ack": lambda lease: {"acked": [lease.lease_id]},
            "release": lambda lease: {"released": [lease.lease_id]},
            "nack": lambda lease: {"nacked": [Nack(lease.lease_id, retry_after_ms=0)]},
        }
        for here, lease in chosen:
            here.settle(**said[how](lease), now_ns=0)  # type: ignore[arg-type]
        for here in self.queues:
            here.on_time(now_ns=0)
        self.held = [(here, lease) for here, lease in self.held if here.leases.live(lease.lease_id)]
        self.look()

    settle_again = settle

    # ---- the bounds -----------------------------------------------------------------------------

    @invariant()
    def each_ready_key_is_served_within_its_bound(self) -> None:
        for waiting in (each for keys in self.waiting for each in keys.values()):
            assert waiting.polls <= EVERY * waiting.others

    @invariant()
    def each_queue_is_served_before_it_could_be_anothers_second_turn(self) -> None:
        assert all(turns < self.most_turns for turns in self.turns.values())


TestFairness = FairnessMachine.TestCase


@pytest.mark.parametrize("policy", HandOut)
def test_a_key_waits_at_most_its_share_while_others_are_returned_forever(policy: HandOut) -> None:
    """The worst case for the main queue: the bound is nearly reached, but holds."""
    here = pipeline(
        rules(max_pull_batch=1000), messages=[keyed(n, f"{n % 20}") for n in range(400)]
    )
    buffer = GroupBuffer(Budgets().leases)
    buffer.add(here)
    buffer.hand_out_by(policy)

    def take(jobs: int) -> list[Lease]:
        wish = PullWish(Holder(1), None, jobs, 1 << 40)
        return [lease for batch in buffer.lease(wish, now_ns=0) for lease in batch.leases]

    def settle(**verdicts: list[Lease]) -> None:
        ids = {name: [each.lease_id for each in leases] for name, leases in verdicts.items()}
        here.settle(**ids, now_ns=0)  # type: ignore[arg-type]
        buffer.refresh(here)

    settle(acked=take(10), released=take(10))  # ten reactivated, ten offered again
    here.on_messages([keyed(400, "late")], next_offset=401)
    polls = 0
    while (lease := take(1)[0]).job.key != b"late":
        polls += 1
        assert polls <= EVERY
        # Offered jobs are returned at once, reactivated ones acked: both queues stay full.
        settle(**{"acked" if lease.job.offset >= 20 else "released": [lease]})
    assert polls > EVERY // 2


def test_a_short_chain_is_served_while_long_chains_never_end() -> None:
    """Clients ack at once, and each long chain grows by a message for each that finishes."""
    long = [f"long-{number}" for number in range(20)]
    here = pipeline(
        rules(max_pull_batch=1000),
        messages=[keyed(offset, long[offset % 20]) for offset in range(400)],
    )
    buffer = GroupBuffer(Budgets().leases)
    buffer.add(here)
    buffer.hand_out_by(HandOut.LONGEST_CHAIN)
    here.on_messages([keyed(400, "short")], next_offset=401)
    wish = PullWish(Holder(1), None, 1, 1 << 40)
    polls = 0
    while (lease := buffer.lease(wish, now_ns=0)[0].leases[0]).job.key != b"short":
        polls += 1
        assert polls <= (REACTIVATION_BURST + 1) * 21
        assert lease.job.key is not None
        here.settle(acked=[lease.lease_id], now_ns=0)
        sent = keyed(here.position, lease.job.key.decode())
        here.on_messages([sent], next_offset=here.position + 1)
        buffer.refresh(here)
    assert polls > REACTIVATION_BURST
