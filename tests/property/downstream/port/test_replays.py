"""Repeated answers, in every order of pulls, verdicts, losses and time, against a model."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.core.group.group_buffer import Batch, GroupBuffer, PullWish
from proxy.core.leases.lease_book import SEVERAL_CONNECTIONS, Holder, Lease
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.downstream.port.replays import ANSWERS, ClientName, Replays, RequestName
from testkit.messages import keyed
from testkit.pipelines import Budgets, pipeline, queue, rules
from tests.support.examples import examples

MS = 1_000_000
NAMES = st.builds(
    RequestName,
    st.sampled_from([("g", "a"), ("g", "b"), ("h", "a")]),
    st.sampled_from("123456"),
)


@dataclass(eq=False)
class Given:
    """The model's state of one lease."""

    lease: Lease
    owner: QueuePipeline
    deadline_ns: int
    connections: set[int]
    ended: bool = False

    def alive(self, now_ns: int) -> bool:
        return not (self.ended or self.owner.closed) and self.deadline_ns > now_ns


class ReplaysMachine(RuleBasedStateMachine):
    """``answers`` has all answers ever given by name, and for each client the order of its ids."""

    max_leases = 1_000_000

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.replays = Replays(self.max_leases)
        self.budgets = Budgets()
        self.buffer = GroupBuffer(self.budgets.leases)
        self.answers: dict[RequestName, list[Given]] = {}
        self.order: dict[ClientName, list[str]] = {}
        self.given: list[Given] = []
        self.connection = 0
        for number in (0, 1):
            self.own(number, epoch=1)

    def own(self, number: int, *, epoch: int) -> None:
        """Add a queue of ten keys with two messages each."""
        self.buffer.add(
            pipeline(
                rules(visibility_ns=(300, 700)[number] * MS),
                of=queue(number),
                epoch=epoch,
                budgets=self.budgets,
                messages=[keyed(offset, f"{offset % 10}") for offset in range(20)],
            )
        )

    def found(self, name: RequestName, connection: int) -> list[Lease]:
        batches = self.replays.find(
            name,
            self.buffer.find,
            topics=None,
            holder=Holder(connection, name.client[1]),
            now_ns=self.now,
        )
        for batch in batches:
            assert self.buffer.find(batch.pipeline.queue) is batch.pipeline
        return [lease for batch in batches for lease in batch.leases]

    @rule(name=NAMES, jobs=st.integers(1, 4), many=st.booleans())
    def pull(self, name: RequestName, jobs: int, many: bool) -> None:
        """As the service does: repeat the earlier answer, else lease messages."""
        self.connection += 1
        again = self.found(name, self.connection)
        before = [each for each in self.answers.get(name, ()) if each.alive(self.now)]
        forgotten = name.request_id not in self.order.get(name.client, [])[-ANSWERS:]
        if again or not forgotten:
            # Only the limit over all clients may have removed live leases.
            crowded = len(self.given) > self.max_leases
            assert [each.lease for each in before] == again or (not again and crowded), "R1"
            for each in before if again else ():
                each.connections.add(self.connection)
                assert each.lease.holder.connection == self.connection
                several = len(each.connections) > 1
                assert (each.lease.job.sole_connection == SEVERAL_CONNECTIONS) >= several
        if again:
            return
        wish = PullWish(Holder(self.connection, "c"), None, jobs, 1 << 30, many_queues=many)
        batches = self.buffer.lease(wish, now_ns=self.now)
        if batches:
            self.replays.keep(name, batches, now_ns=self.now)
            self.note(name, batches)

    def note(self, name: RequestName, batches: list[Batch]) -> None:
        fresh = [
            Given(lease, batch.pipeline, lease.deadline_ns, {self.connection})
            for batch in batches
            for lease in batch.leases
        ]
        self.given += fresh
        self.answers[name] = fresh
        ids = self.order.setdefault(name.client, [])
        if name.request_id in ids:
            ids.remove(name.request_id)
        ids.append(name.request_id)

    @rule(data=st.data(), ack=st.booleans())
    def settle(self, data: st.DataObject, ack: bool) -> None:
        alive = [each for each in self.given if each.alive(self.now)]
        if not alive:
            return
        each = data.draw(st.sampled_from(alive))
        ids = [each.lease.lease_id]
        if ack:
            each.owner.settle(acked=ids, now_ns=self.now)
        else:
            each.owner.settle(released=ids, now_ns=self.now)
        self.buffer.refresh(each.owner)
        each.ended = True

    @rule(ms=st.sampled_from([1, 100, 299, 500, 1000]), ring=st.booleans())
    def time_passes(self, ms: int, ring: bool) -> None:
        """The timer that ends leases may fire late."""
        self.now += ms * MS
        for each in self.buffer if ring else ():
            each.on_time(now_ns=self.now)
            self.buffer.refresh(each)

    @rule(number=st.integers(0, 1))
    def the_queue_changes_hands(self, number: int) -> None:
        """Lease ids of the new period count from 1 again."""
        old = self.buffer.find(queue(number))
        assert old is not None
        self.buffer.remove(old)
        self.own(number, epoch=old.epoch + 1)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.replays) <= self.max_leases, "R3"

    def teardown(self) -> None:
        """At most the last answers of each client are kept."""
        for client, ids in self.order.items():
            for old in ids[:-ANSWERS]:
                assert self.found(RequestName(client, old), 0) == [], "R2"


@settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
class RoomyMachine(ReplaysMachine):
    """All clients are kept."""


@settings(max_examples=examples(20), stateful_step_count=40, deadline=None)
class CrowdedMachine(ReplaysMachine):
    """More clients than can be kept."""

    max_leases = 9


TestReplays = RoomyMachine.TestCase
TestCrowdedReplays = CrowdedMachine.TestCase
