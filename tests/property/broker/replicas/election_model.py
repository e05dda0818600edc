"""A model of replicas around the real election: a network, clocks, disks and a copied log.

Nodes are driven by one list of events in model time. Messages are delayed, lost and repeated; nodes
crash, pause and lose their disks. The model knows all confirmed entries and all leases, and raises
AssertionError at the first step that breaks a promise.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from broker_core.broker.replicas.election import (
    Ballot,
    Beat,
    BeatAnswer,
    Election,
    ElectionTimes,
    LogState,
    Position,
    Stance,
    Step,
    VoteAnswer,
    VoteRequest,
)
from broker_core.broker.replicas.log_epochs import LogEpochs

S = 1_000_000_000
TIMES = ElectionTimes(4 * S)
Entry = tuple[int, int]  # epoch and a number that is unique


@dataclass
class Node:
    """One replica. ``log``, ``epochs``, ``ballot`` and ``complete`` are on its disk."""

    number: int
    log: list[Entry] = field(default_factory=list)
    epochs: LogEpochs = field(default_factory=LogEpochs)
    ballot: Ballot = field(default_factory=Ballot)
    complete: bool = False
    election: Election | None = None
    life: int = 0
    paused_until: int = 0
    confirmed: int = 0
    ends: dict[int, int] = field(default_factory=dict)  # of followers, at a master
    served_epoch: int = 0
    floor: int = 0
    copied: int = 0  # number of the newest copy that arrived

    def pause(self, until: int) -> None:
        """Do nothing until that time of the model."""
        self.paused_until = until

    @property
    def state(self) -> LogState:
        end = len(self.log)
        return LogState(Position(self.epochs.last_before(end), end), self.complete)


class Model:
    """*size* replicas; *drift* makes clocks differ by up to a hundredth."""

    def __init__(self, seed: int, *, size: int = 3, empty: bool = True) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.nodes = {n: Node(n) for n in range(1, size + 1)}
        self.rates = {n: 1 + self.rng.uniform(-0.01, 0.01) for n in self.nodes}
        self.cut: set[frozenset[int]] = set()
        self.loss = 0.0
        self.confirmed: list[Entry] = []
        self.masters: dict[int, int] = {}  # by term
        self.elected: list[tuple[int, int, int]] = []  # time, term, node
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers, self._steps = itertools.count(), itertools.count()
        if not empty:
            for node in self.nodes.values():
                node.complete = True
        for node in self.nodes.values():
            self.start(node)

    # -- time ------------------------------------------------------------------------------------

    def at(self, when: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), action))

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * S)
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
            if next(self._steps) % 4 == 0:
                assert len(self.lease_holders()) <= 1, "two masters hold a lease"
        self.now = end

    def clock(self, node: Node) -> int:
        return int(self.now * self.rates[node.number]) + node.number * S

    # -- nodes -----------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        node.life += 1
        node.election = Election(
            node.number,
            frozenset(self.nodes),
            node.ballot,
            TIMES,
            self.rng.randint,
            self.clock(node),
        )
        node.confirmed, node.ends, node.served_epoch = 0, {}, 0
        self._later(node, lambda: self._tick(node))
        self._later(node, lambda: self._fetch(node))

    def crash(self, node: Node, *, wipe: bool = False) -> None:
        node.election = None
        node.life += 1
        if wipe:
            node.log, node.epochs, node.ballot = [], LogEpochs(), Ballot()
            node.complete = False

    def cut_off(self, node: Node) -> None:
        """Lose all messages from and to *node*."""
        self.cut |= {frozenset((node.number, n)) for n in self.nodes if n != node.number}

    def heal_network(self) -> None:
        """Lose no more messages."""
        self.cut.clear()
        self.loss = 0.0

    def lose_messages(self) -> None:
        """Lose many of the messages."""
        self.loss = 0.4

    def _later(self, node: Node, action: Callable[[], None], *, by_ns: int = S // 10) -> None:
        life = node.life

        def run() -> None:
            if node.life != life or node.election is None:
                return
            if node.paused_until > self.now:
                self.at(node.paused_until, run)
                return
            action()

        self.at(self.now + by_ns, run)

    def _tick(self, node: Node) -> None:
        assert node.election is not None
        self.do(node, node.election.tick(self.clock(node), node.state))
        self._begin_epoch(node)
        self._later(node, lambda: self._tick(node), by_ns=self.rng.randint(S // 10, S // 3))

    def do(self, node: Node, step: Step) -> None:
        election = node.election
        assert election is not None
        if step.save:
            node.ballot = election.ballot
        for other in self.nodes.values():
            if other is node:
                continue
            if step.ask is not None:
                self._ask(node, other, step.ask)
            if step.beat is not None:
                self._beat(node, other, step.beat, self.clock(node))

    def _send(self, one: Node, other: Node, action: Callable[[], None]) -> None:
        if frozenset((one.number, other.number)) in self.cut or self.rng.random() < self.loss:
            return
        slow = self.rng.random() < 0.05
        delay = 3 * S if slow else self.rng.choice((S // 1000, S // 100, S // 3))
        for _ in range(1 + (self.rng.random() < 0.1)):
            self._later(other, action, by_ns=delay)

    def _ask(self, node: Node, other: Node, request: VoteRequest) -> None:
        def asked() -> None:
            assert other.election is not None
            answer, save = other.election.asked(request, self.clock(other), other.state)
            if save:
                other.ballot = other.election.ballot
            self._send(other, node, lambda: answered(answer))

        life = node.life

        def answered(answer: VoteAnswer) -> None:
            if node.election is None or node.life != life:
                return
            now, state = self.clock(node), node.state
            step = node.election.answered(other.number, request, answer, now, state)
            self.do(node, step)
            self._begin_epoch(node)

        self._send(node, other, asked)

    def _beat(self, node: Node, other: Node, beat: Beat, sent: int) -> None:
        def heard() -> None:
            assert other.election is not None
            answer, save = other.election.heard(beat, self.clock(other))
            if save:
                other.ballot = other.election.ballot
            self._send(other, node, lambda: answered(answer))

        life = node.life

        def answered(answer: BeatAnswer) -> None:
            if node.election is None or node.life != life:
                return
            now = self.clock(node)
            self.do(node, node.election.beat_answered(other.number, beat, sent, answer, now))

        self._send(node, other, heard)

    # -- the log ---------------------------------------------------------------------------------

    def _begin_epoch(self, node: Node) -> None:
        election = node.election
        assert election is not None
        if election.stance is not Stance.MASTER or node.served_epoch == election.term:
            return
        term = election.term
        assert self.masters.setdefault(term, node.number) == node.number, "two masters in a term"
        assert node.log[: len(self.confirmed)] == self.confirmed, "a confirmed entry is missing"
        self.elected.append((self.now, term, node.number))
        node.served_epoch, node.ends, node.complete = term, {}, True
        node.epochs = node.epochs.begun(term, end=len(node.log), first=0)
        node.log.append((term, next(self._numbers)))
        node.floor = len(node.log)

    def append(self, node: Node) -> None:
        election = node.election
        if election is not None and election.stance is Stance.MASTER and node.served_epoch:
            node.log.append((node.served_epoch, next(self._numbers)))

    def _fetch(self, node: Node) -> None:
        election = node.election
        assert election is not None
        master = self.nodes.get(election.master)
        if master is not None and master is not node:
            term = election.term
            self._send(node, master, lambda: self._join(node, master, term, node.life))
        self._later(node, lambda: self._fetch(node), by_ns=S // 2)

    def _join(self, node: Node, master: Node, term: int, life: int) -> None:
        its = master.election
        if its is None or its.stance is not Stance.MASTER or master.served_epoch != term:
            return
        log, epochs, number = list(master.log), master.epochs, next(self._numbers)

        def copy() -> None:
            if node.election is None or node.election.term != term or node.life != life:
                return  # it has voted for another master since
            if number < node.copied:
                return  # data of one connection arrives in order
            node.copied = number
            same = sum(
                1
                for _ in itertools.takewhile(
                    lambda two: two[0] == two[1], zip(node.log, log, strict=False)
                )
            )
            some = self.rng.randint(0, len(log) - same)
            node.log, node.epochs = log[: same + some], epochs
            if len(node.log) == len(log):
                node.complete = True
            end = len(node.log)
            self._send(node, master, lambda: self._acked(master, node, term, end))

        self._send(master, node, copy)

    def _acked(self, master: Node, node: Node, term: int, end: int) -> None:
        its = master.election
        if its is None or its.stance is not Stance.MASTER or master.served_epoch != term:
            return
        master.ends[node.number] = max(end, master.ends.get(node.number, 0))
        ends = sorted((len(master.log), *master.ends.values()), reverse=True)
        needed = its.majority
        if len(ends) >= needed and ends[needed - 1] >= master.floor:
            sure = master.log[: ends[needed - 1]]
            if len(sure) > len(self.confirmed):
                assert sure[: len(self.confirmed)] == self.confirmed, "two logs are confirmed"
                self.confirmed = sure

    # -- checks ----------------------------------------------------------------------------------

    def lease_holders(self) -> list[int]:
        return [
            node.number
            for node in self.nodes.values()
            if node.election is not None and node.election.has_lease(self.clock(node))
        ]
