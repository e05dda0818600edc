"""A queue passes through owners with other limits and order keys, and comes to its end.

Each owner stops after some steps, anywhere, and hands its state over. Handlers of some keys never
return until the last owner comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.refills import Refill
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.pipeline.effects import Effects
from proxy.core.records.record import Snapshot
from testkit.messages import keyed
from testkit.pipelines import lease, pipeline, rules
from tests.support.examples import examples

_COUNTED_AT_ONCE = 3


@dataclass
class Owner:
    """One ownership period of a queue of *log*; *done* collects finished offsets of all owners."""

    log: list[StoredMessage]
    wanted: TopicRules
    stuck: frozenset[str]
    done: set[int]
    resume: Snapshot | None
    epoch: int
    refills: list[Refill] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = pipeline(self.wanted, epoch=self.epoch, resume=self.resume)

    def step(self, *, batch: int, demand: bool) -> bool:
        """Do everything that is possible once; return False if nothing moved."""
        before = self._state()
        self._change_keys()
        room = min(self.queue.room(demand=demand), batch)
        position = self.queue.position
        if some := self.log[position : position + room]:
            self._apply(self.queue.on_messages(some, next_offset=position + len(some)))
        self._apply(self.queue.take_refills())
        refills, self.refills = self.refills, []
        for each in refills:
            self._apply(self.queue.refilled(each, [self.log[at] for at in each.offsets]))
        lease(self.queue)
        ready = [
            each.lease_id
            for each in list(self.queue.leases)
            if each.job.message is not None and each.job.message.key not in self.stuck
        ]
        self._apply(self.queue.settle(acked=ready, now_ns=0))
        return self._state() != before

    def _state(self) -> tuple[object, ...]:
        change = self.queue.jobs.change
        counted = None if change is None else len(change.to_count(len(self.log)))
        return (
            *(self.queue.position, len(self.done), len(self.queue.leases), len(self.refills)),
            *(counted, self.queue.keys.record),
        )

    def _change_keys(self) -> None:
        if self.queue.key_change_due:
            self.queue.plan_key_change()
            self._apply(self.queue.key_change_recorded())
        if (change := self.queue.jobs.change) is not None:
            asked = change.to_count(_COUNTED_AT_ONCE)
            found = {at: self.log[at] for at in change.to_read(asked)}
            self._apply(self.queue.older_counted(asked, found))

    def _apply(self, effects: Effects) -> None:
        self.done |= {offset for offset, _ in effects.finished}
        self.refills += effects.refills


@st.composite
def owners(draw: st.DrawFn) -> tuple[TopicRules, int, int, bool]:
    """Draw rules, the number of steps, the messages read at once, and whether clients wait."""
    window = draw(st.sampled_from([4, 8, 20, 100]))
    wanted = rules(
        draw(st.sampled_from(["KEY", "QID", None])),
        max_jobs=window,
        max_jobs_per_key=draw(st.sampled_from([1, 2, 5])),
    )
    return wanted, draw(st.integers(0, 12)), draw(st.integers(1, 40)), draw(st.booleans())


@settings(max_examples=examples(300), deadline=None)
@given(
    keys=st.lists(st.sampled_from("aaaaabcd"), min_size=1, max_size=80),
    stuck=st.frozensets(st.sampled_from("abcd")),
    turns=st.lists(owners(), min_size=1, max_size=4),
)
def test_what_owners_leave_behind_is_finished_by_the_last_one(
    keys: list[str], stuck: frozenset[str], turns: list[tuple[TopicRules, int, int, bool]]
) -> None:
    log = [keyed(offset, key) for offset, key in enumerate(keys)]
    done: set[int] = set()
    resume: Snapshot | None = None
    for epoch, (wanted, steps, batch, demand) in enumerate(turns, 1):
        wanted = replace(wanted, order_key_version=epoch)
        owner = Owner(log, wanted, stuck, done, resume, epoch)
        for _ in range(steps):
            owner.step(batch=batch, demand=demand)
        resume = owner.queue.snapshot()
    batch = turns[-1][2]
    last = Owner(log, wanted, frozenset(), done, resume, len(turns) + 1)
    while last.step(batch=batch, demand=True):
        pass
    assert done == set(range(len(log)))
    assert last.queue.committable == len(log)
