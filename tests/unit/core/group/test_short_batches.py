from __future__ import annotations

from proxy.core.group.group_buffer import GroupBuffer, PullWish
from proxy.core.group.short_batches import ShortBatches
from proxy.core.jobs.window import Budget
from proxy.core.leases.lease_book import Holder, Lease
from testkit.messages import TOPIC, keyed
from testkit.pipelines import MS, Budgets, pipeline, rules

FIXED, EXTENDS = Holder(1, extends=False), Holder(2)
VISIBILITY_NS = 3000 * MS


class Answers:
    """Answers of up to eight messages, from a queue with many ready keys."""

    def __init__(self) -> None:
        leases = Budget(1000)
        self.buffer = GroupBuffer(leases)
        self.pipeline = pipeline(
            rules(visibility_ns=VISIBILITY_NS),
            budgets=Budgets(leases=leases),
            messages=[keyed(offset, f"k{offset}") for offset in range(100)],
        )
        self.buffer.add(self.pipeline)
        self.now_ns = 1

    def next(self, holder: Holder = FIXED) -> list[Lease]:
        ((_, leases),) = self.buffer.lease(PullWish(holder, None, 8, 1 << 30), now_ns=self.now_ns)
        return leases

    def expire(self) -> None:
        self.now_ns += VISIBILITY_NS
        expired = self.pipeline.on_time(now_ns=self.now_ns).expired
        self.buffer.expired(TOPIC, expired, now_ns=self.now_ns)
        self.buffer.refresh(self.pipeline)


def test_a_batch_that_expires_is_followed_by_half_as_many_messages_down_to_one() -> None:
    here = Answers()
    sizes = []
    for _ in range(5):
        sizes.append(len(here.next()))
        here.expire()
    assert sizes == [8, 4, 2, 1, 1]


def test_batches_handed_out_before_are_no_further_reason() -> None:
    here = Answers()
    here.next()
    here.now_ns += 1
    here.next(Holder(3, extends=False))
    here.expire()
    assert len(here.next()) == 4


def test_clients_that_can_extend_get_full_batches_and_their_expiry_changes_nothing() -> None:
    here = Answers()
    here.next(EXTENDS)
    here.expire()
    assert len(here.next()) == 8
    here.expire()
    assert len(here.next(EXTENDS)) == 8


def test_a_message_that_expires_alone_changes_nothing() -> None:
    short, here = ShortBatches(), Answers()
    short.expired(here.next()[:1], now_ns=here.now_ns)
    assert short.most(visibility_ns=VISIBILITY_NS, now_ns=here.now_ns) is None


def test_batches_are_doubled_after_a_time_without_expiry_which_grows_with_each() -> None:
    here, short = Answers(), ShortBatches()

    def most(after: int) -> int | None:
        """Return the limit after that many visibility timeouts."""
        here.now_ns += after * VISIBILITY_NS
        return short.most(visibility_ns=VISIBILITY_NS, now_ns=here.now_ns)

    short.expired(here.next(), now_ns=here.now_ns)
    assert (most(9), most(1)) == (4, None)
    short.expired(here.next(), now_ns=here.now_ns)
    short.expired(here.next()[:4], now_ns=here.now_ns)
    assert (most(19), most(1), most(20)) == (2, 4, None)
