"""Queues assigned by name: never two owners, and none is unowned for long, whatever members do.

Each member knows only its own observations, the members, and the last records of each queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker_core.names import QueueName
from proxy.core.ownership.allocation import allocate
from proxy.core.ownership.named_owners import Handoffs
from testkit.pipelines import queue

QUEUES = [queue(number) for number in range(4)]
NAMES = ["a", "b", "c"]
STEP_NS = 500_000_000
EXPECT_NS, WAIT_NS = 40_000_000_000, 10_000_000_000
#: A queue is left alone for at most ``WAIT_NS``; then others try it for a few rounds.
BOUND_NS = WAIT_NS + 8_000_000_000


def fresh() -> Handoffs:
    return Handoffs(expect_ns=EXPECT_NS, wait_ns=WAIT_NS)


@dataclass
class World:
    """Brokers with the locks and the last record of each queue's owner."""

    now_ns: int = 0
    members: dict[str, Handoffs] = field(default_factory=dict)
    holder: dict[QueueName, str] = field(default_factory=dict)
    by_name: dict[QueueName, bool] = field(default_factory=dict)
    ended_for: dict[QueueName, str] = field(default_factory=dict)
    epoch: dict[QueueName, int] = field(default_factory=dict)
    free_since_ns: dict[QueueName, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))

    def owned(self, name: str) -> set[QueueName]:
        return {each for each, holder in self.holder.items() if holder == name}

    def share(self, name: str) -> list[QueueName]:
        return self.members[name].share(
            allocate(name, self.members, QUEUES),
            queues=QUEUES,
            owned=self.owned(name),
            members=self.members,
            now_ns=self.now_ns,
        )

    def release(self, each: QueueName, to: str = "") -> None:
        del self.holder[each]
        self.ended_for[each] = to
        self.free_since_ns[each] = self.now_ns

    def round(self, name: str) -> None:
        share = self.share(name)
        for each in self.owned(name) - set(share):
            self.release(each)
        for each in set(share) - self.owned(name):
            self.ask(name, each)

    def ask(self, name: str, each: QueueName) -> None:
        ours = self.members[name]
        if (holder := self.holder.get(each)) is not None:
            if self.by_name[each] and holder != name:
                ours.found_with(each, holder, now_ns=self.now_ns)
            return
        to, epoch = self.ended_for.get(each, ""), self.epoch.get(each, 0)
        strange = to not in ("", name) and to in self.members and not ours.expects(each)
        if strange and ours.waits(each, to, epoch=epoch, now_ns=self.now_ns):
            return
        self.holder[each], self.by_name[each] = name, ours.expects(each)
        self.epoch[each] = epoch + 1
        del self.free_since_ns[each]

    def give(self, each: QueueName, to: str, *, told: bool) -> None:
        """*told*: the named member knows of the assignment."""
        if told and to in self.members and self.holder.get(each) != to:
            self.members[to].expect(each, now_ns=self.now_ns)
        owner = self.holder.get(each)
        if owner is None or to not in self.members or to == owner:
            return
        self.members[owner].give(each, to, now_ns=self.now_ns)
        self.release(each, to)

    def leave(self, name: str) -> None:
        for each in self.owned(name):
            self.release(each)
        self.members.pop(name, None)

    def settle(self, ns: int) -> None:
        until_ns = self.now_ns + ns
        while self.now_ns < until_ns:
            self.now_ns += STEP_NS
            for name in self.members:
                self.round(name)
            if self.members:
                for since_ns in self.free_since_ns.values():
                    assert self.now_ns - since_ns <= BOUND_NS


STEPS = st.one_of(
    st.tuples(st.just("give"), st.sampled_from(QUEUES), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("come"), st.sampled_from(NAMES)),
    st.tuples(st.just("go"), st.sampled_from(NAMES[1:])),
    st.tuples(st.just("time"), st.integers(1, 80)),
)


@given(st.lists(STEPS, max_size=25))
def test_each_queue_has_one_owner_once_all_agree(steps: list[tuple[object, ...]]) -> None:
    world = World(members={"a": fresh()})
    for step in steps:
        match step:
            case ("give", QueueName() as each, str(to), bool(told)):
                world.give(each, to, told=told)
            case ("come", str(name)):
                world.members.setdefault(name, fresh())
            case ("go", str(name)):
                world.leave(name)
            case ("time", int(rounds)):
                world.settle(rounds * STEP_NS)
    world.settle(EXPECT_NS + BOUND_NS)
    assert world.holder.keys() == set(QUEUES)
    wanting = [each for name in world.members for each in world.share(name)]
    for each in QUEUES:
        assert each in world.share(world.holder[each])
        others = wanting.count(each) - 1
        assert others == 0 or world.by_name[each]  # one of the others checks again, in vain


def test_a_queue_that_was_given_stays_there_and_goes_back_when_that_member_leaves() -> None:
    world = World(members={"a": fresh(), "b": fresh()})
    world.settle(STEP_NS)
    assert world.holder[QUEUES[0]] == "a"
    world.give(QUEUES[0], "b", told=True)
    world.settle(10 * WAIT_NS)
    assert world.holder[QUEUES[0]] == "b"
    world.leave("b")
    world.settle(2 * STEP_NS)
    assert world.holder == dict.fromkeys(QUEUES, "a")


def test_a_queue_that_its_named_owner_does_not_fetch_is_left_alone_only_for_a_while() -> None:
    world = World(members={"a": fresh(), "b": fresh()})
    world.settle(STEP_NS)
    world.give(QUEUES[0], "b", told=False)
    world.settle(WAIT_NS - STEP_NS)
    assert QUEUES[0] not in world.holder
    world.settle(4 * STEP_NS)
    assert world.holder[QUEUES[0]] == "a"
