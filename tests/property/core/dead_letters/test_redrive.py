"""Redrives that crash, lose answers and race: nothing is lost, and few messages are sent twice."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.redrive import (
    Commit,
    End,
    Locate,
    Lock,
    Read,
    Redrive,
    RedriveState,
    Send,
    Wait,
)
from testkit.messages import message

SECOND = 1_000_000_000
TRUST_NS, RENEWAL_NS, EXPIRY_NS = 5 * SECOND, 2 * SECOND, 10 * SECOND
QUEUES = [QueueName(Topic("%DLQ%billing"), broker, 0) for broker in ("broker-a", "broker-b")]
Place = tuple[QueueName, int]
Fate = Literal["well", "refused", "unheard", "crash", "crash unheard", "pause", "stop", "retention"]
TROUBLES: list[Fate] = ["refused", "unheard", "crash", "crash unheard", "pause", "stop"]


class World:
    """Brokers with dead letters, and two proxies that redrive them repeatedly."""

    def __init__(self, letters: list[int]) -> None:
        self.now_ns = SECOND
        self.letters: dict[QueueName, list[StoredMessage]] = {queue: [] for queue in QUEUES}
        for store_ms, which in enumerate(letters):
            self.die(QUEUES[which], store_ms)
        self.low = dict.fromkeys(QUEUES, 0)
        self.committed = dict.fromkeys(QUEUES, 0)
        self.lock: tuple[int, int] | None = None  # its holder, and since when
        self.sent: list[Place] = []
        self.doubts = 1  # each of them may repeat one message; ``finish`` is the first
        self.names = 0
        self.redrives: list[tuple[int, Redrive]] = [self.begin(), self.begin()]

    def die(self, queue: QueueName, store_ms: int) -> None:
        log = self.letters[queue]
        log.append(message(len(log), topic=queue.topic, store_ms=store_ms))

    def begin(self) -> tuple[int, Redrive]:
        self.names += 1
        return self.names, Redrive(QUEUES, renewal_ns=RENEWAL_NS, trust_ns=TRUST_NS)

    def act(self, which: int, fate: Fate) -> None:
        """Execute one step of redrive *which*, with the outcome *fate*."""
        name, redrive = self.redrives[which]
        self.now_ns += SECOND // 100
        self.doubts += fate in TROUBLES
        if fate == "retention":
            queue = QUEUES[which]
            self.low[queue] = min(self.low[queue] + 1, self.committed[queue])  # already redriven
        if fate == "pause":
            self.now_ns += EXPIRY_NS + 1  # of the process, between two steps
        if fate == "stop":
            redrive.stop()
        step = redrive.step(self.now_ns)
        if isinstance(step, End):
            if self.lock is not None and self.lock[0] == name:
                self.lock = None
            if fate == "crash":
                self.redrives[which] = self.begin()
            return
        if isinstance(step, Wait):
            self.now_ns += min(step.ns, SECOND)
            return
        effect, heard = fate not in ("refused", "crash"), fate not in ("refused", "unheard")
        answer = self.effect(name, step) if effect else None
        if fate in ("crash", "crash unheard"):
            self.redrives[which] = self.begin()
        elif not heard:
            redrive.trouble("no answer", now_ns=self.now_ns)
        else:
            self.tell(redrive, step, answer)

    def effect(self, name: int, step: Lock | Locate | Read | Send | Commit) -> object:
        match step:
            case Lock():
                if self.lock is None or self.now_ns - self.lock[1] > EXPIRY_NS:
                    self.lock = (name, self.now_ns)
                if self.lock[0] == name:
                    self.lock = (name, self.now_ns)
                return self.lock[0] == name
            case Locate(queue):
                return self.committed[queue], self.low[queue], len(self.letters[queue])
            case Read(queue, offset):
                assert offset >= self.low[queue]
                return self.letters[queue][offset : offset + 2]
            case Send(queue, stored):
                self.holds(name)
                self.sent.append((queue, stored.queue_offset))
            case Commit(queue, offset):
                self.holds(name)
                assert offset >= self.committed[queue], "progress never falls"
                self.committed[queue] = offset
        return None

    def holds(self, name: int) -> None:
        assert self.lock is not None
        assert self.lock[0] == name
        assert self.now_ns - self.lock[1] <= TRUST_NS

    def tell(self, redrive: Redrive, step: object, answer: object) -> None:
        match step, answer:
            case Lock(), True:
                redrive.granted(asked_ns=self.now_ns)
            case Lock(), _:
                redrive.refused("another proxy has it")
            case Locate(queue), (int(committed), int(low), int(end)):
                redrive.located(queue, committed=committed, low=low, end=end)
            case Read(queue, offset), list(found):
                redrive.found(
                    step,
                    found,
                    next_offset=offset + len(found),
                    end=len(self.letters[queue]),
                    now_ns=self.now_ns,
                )
            case Send(), _:
                redrive.sent(step, now_ns=self.now_ns)
            case Commit(), _:
                redrive.committed()

    def finish(self) -> None:
        """Run one redrive to its end, without any trouble."""
        self.now_ns += EXPIRY_NS + 1
        self.lock = None
        self.redrives[0] = self.begin()
        for _ in range(1000):
            self.act(0, "well")
            if self.redrives[0][1].state is RedriveState.DONE:
                return
        raise AssertionError("it does not end")

    def all_places(self) -> list[Place]:
        """Return all dead letters by age."""
        aged = [
            (each.store_ms, (queue, each.queue_offset))
            for queue, log in self.letters.items()
            for each in log
        ]
        return [place for _, place in sorted(aged)]


ACTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([*["well"] * 12, *TROUBLES, "retention"])),
    max_size=150,
)


@given(letters=st.lists(st.integers(0, 1), max_size=8), acts=ACTS)
def test_nothing_is_lost_and_only_messages_on_their_way_are_repeated(
    letters: list[int], acts: list[tuple[int, Fate]]
) -> None:
    world = World(letters)
    for which, fate in acts:
        world.act(which, fate)
        if world.redrives[which][1].state is not RedriveState.RUNNING:
            world.act(which, "well")  # it releases its lock
            world.redrives[which] = world.begin()
    world.finish()

    assert sorted(set(world.sent)) == sorted(world.all_places()), "nothing is lost"
    assert len(world.sent) - len(set(world.sent)) <= world.doubts
    assert list(dict.fromkeys(world.sent)) == world.all_places(), "the oldest first"
    assert world.committed == {queue: len(log) for queue, log in world.letters.items()}


@given(letters=st.lists(st.integers(0, 1), max_size=8))
def test_without_trouble_each_goes_back_once_and_new_dead_letters_stay(
    letters: list[int],
) -> None:
    world = World(letters)
    there = world.all_places()
    while world.redrives[0][1].state is RedriveState.RUNNING:
        before = len(world.sent)
        world.act(0, "well")
        if len(world.sent) > before:
            world.die(QUEUES[0], 1000 + before)  # it failed again

    assert world.sent == there
    assert world.redrives[0][1].sent_back == len(there)
