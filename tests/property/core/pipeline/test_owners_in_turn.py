"""A queue passes through owners with other limits and order keys, and comes to its end.

Each owner stops after some steps, anywhere, and hands its state over. Some are paused or have
hardly any memory. Handlers of some keys never return until the last owner comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.pipeline.effects import Effects
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Snapshot
from testkit.messages import keyed
from testkit.pipelines import Budgets, lease, pipeline, rules
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
    memory_bytes: int
    refills: list[Refill] = field(default_factory=list)

    def __post_init__(self) -> None:
        budgets = Budgets(Budget(self.memory_bytes))
        self.queue = pipeline(self.wanted, epoch=self.epoch, resume=self.resume, budgets=budgets)

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


@dataclass(frozen=True)
class Turn:
    """Circumstances and work of one owner.

    *batch*: messages that it reads at once; *demand*: clients wait.
    """

    wanted: TopicRules
    steps: int
    batch: int
    demand: bool
    paused: bool
    memory_bytes: int


_RULES = st.builds(
    rules,
    st.sampled_from(["KEY", "QID", None]),
    max_jobs=st.sampled_from([4, 8, 20, 100]),
    max_jobs_per_key=st.sampled_from([1, 2, 5]),
)
_TURNS = st.builds(
    Turn,
    wanted=_RULES,
    steps=st.integers(0, 12),
    batch=st.integers(1, 40),
    demand=st.booleans(),
    paused=st.booleans(),
    memory_bytes=st.sampled_from([500, 2_000, 10_000, 1 << 30]),
)


@settings(max_examples=examples(300), deadline=None)
@given(
    keys=st.lists(st.sampled_from("aaaaabcd"), min_size=1, max_size=80),
    stuck=st.frozensets(st.sampled_from("abcd")),
    turns=st.lists(_TURNS, min_size=1, max_size=4),
)
def test_what_owners_leave_behind_is_finished_by_the_last_one(
    keys: list[str], stuck: frozenset[str], turns: list[Turn]
) -> None:
    log = [keyed(offset, key) for offset, key in enumerate(keys)]
    done: set[int] = set()
    resume: Snapshot | None = None
    for epoch, turn in enumerate(turns, 1):
        wanted = replace(turn.wanted, order_key_version=epoch)
        owner = Owner(log, wanted, stuck, done, resume, epoch, turn.memory_bytes)
        if turn.paused:
            owner.queue.pause(EVERYTHING, PausedKey(0))
        elif EVERYTHING in owner.queue.paused:
            owner.queue.resume(EVERYTHING)
        for _ in range(turn.steps):
            owner.step(batch=turn.batch, demand=turn.demand)
        resume = owner.queue.snapshot()
    last = Owner(log, wanted, frozenset(), done, resume, len(turns) + 1, turn.memory_bytes)
    last.queue.resume(EVERYTHING)
    while last.step(batch=turn.batch, demand=True):
        pass
    assert done == set(range(len(log)))
    assert last.queue.committable == len(log)
