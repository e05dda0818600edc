"""Queue pipelines against a naive model, over many ownership periods.

The checks name the numbered claims of ``proxy/core/__init__.py`` that they cover.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.core.jobs.hand_out import HandOut
from proxy.core.jobs.spilled_chains import OFFSET_BYTES
from proxy.core.jobs.unloaded import STUB_BYTES
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.order_key import MissingKey
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.effects import Effects
from proxy.core.records.record import Snapshot
from testkit.messages import held_bytes
from testkit.pipelines import Budgets, lease, offsets
from tests.property.core.pipeline.modelled_queue import TRUST_NS, Modelled
from tests.property.core.pipeline.naive_facts import BODIES, MS, Facts, Sent
from tests.property.core.pipeline.naive_job import NaiveJob
from tests.support.examples import examples

CONNECTIONS = st.integers(1, 4)
QUEUES = st.integers(0, 1)

facts = st.builds(
    Facts,
    max_jobs=st.sampled_from([2, 8, 1000]),
    max_jobs_per_key=st.sampled_from([1, 2, 4, 8, 8]),
    order_key=st.sampled_from(["$.id", "KEY", "KEY", "$..id", "QID", "QID", None]),
    missing_key=st.sampled_from(MissingKey),
    tags=st.sampled_from([None, None, frozenset({"a"})]),
    visibility_ns=st.sampled_from([20 * MS, 20 * MS, 10 * MS, 35 * MS]),
    retry=st.builds(
        RetryPolicy,
        intervals_ms=st.just((5, 15)),
        max_deliveries=st.sampled_from([1, 2, 3, 3]),
        on_exhausted=st.sampled_from(
            [OnExhausted.DEAD_LETTER, OnExhausted.DEAD_LETTER, OnExhausted.BLOCK]
        ),
    ),
)
sent = st.tuples(
    st.integers(1, 3),  # step from the offset before: gaps are normal
    st.integers(0, len(BODIES) - 1),
    st.sampled_from([None, "k", "l", "m"]),
    st.sampled_from(["a", "a", "a", None, "b"]),
)
verdicts = st.sampled_from(
    ["ack", "ack", "ack", "nack", "retry now", "retry later", "reject", "release", "twice"]
)


def _key(job: NaiveJob) -> str | None:
    return "q" if job.chain == "the queue" else job.chain  # the name of that chain has one byte


def _key_bytes(job: NaiveJob) -> int:
    return len((_key(job) or "").encode())


def _held_bytes(job: NaiveJob) -> int:
    return held_bytes(job.sent.stored(), _key(job))


@settings(
    max_examples=examples(40), stateful_step_count=50, deadline=None, report_multiple_bugs=False
)
class PipelineMachine(RuleBasedStateMachine):
    """Two queues of one group that share its budgets."""

    @initialize(known=facts, first=st.lists(sent, min_size=4, max_size=12))
    def start(self, known: Facts, first: list[Any]) -> None:
        self.now_ns = 1
        self.budgets = Budgets()
        self.open_connections = {1, 2, 3, 4}
        self.served = 0  # pulls and verdicts since a period began: changes are rare
        self.queues = [Modelled(number, known, self.budgets) for number in range(2)]
        for number in range(2):
            self.read_new(number, first, 0)

    # ---- reading --------------------------------------------------------------------------------

    @rule(which=QUEUES, batch=st.lists(sent, min_size=1, max_size=10), again=st.integers(0, 3))
    def read_new(self, which: int, batch: list[Any], again: int) -> None:
        """Producers send; the reader gets the messages, with some repeats and a gap behind them."""
        here = self.queues[which]
        for step, body, key, tag in batch:
            here.send(Sent(here.end + step - 1, body, key, tag))
        self._read(here, limit=len(here.naive.log), again=again, gap=2)

    @rule(which=QUEUES, limit=st.integers(1, 6), again=st.integers(0, 3), gap=st.integers(0, 2))
    def read_on(self, which: int, limit: int, again: int, gap: int) -> None:
        self._read(self.queues[which], limit=limit, again=again, gap=gap)

    def _read(self, here: Modelled, *, limit: int, again: int, gap: int) -> None:
        room = here.pipeline.room(demand=bool(again % 2))
        if here.pipeline.refills_due:
            here.saw(here.pipeline.take_refills())
        if here.pipeline.draining:
            assert room == 0
            return
        position, log = here.pipeline.position, here.naive.log
        unread = [offset for offset in sorted(log) if offset >= position]
        taken = unread[:limit]
        next_offset = (taken[-1] if taken else position - 1) + 1 + gap
        next_offset = min([next_offset, *unread[len(taken) :]])  # never past a message
        some = [
            each
            for offset, each in sorted(log.items())
            if position - again <= offset < position or offset in taken
        ]
        here.end_at(next_offset)
        effects = here.pipeline.on_messages(
            [each.stored() for each in some], next_offset=next_offset
        )
        if here.pipeline.position < next_offset:
            assert here.pipeline.jobs.residency.left <= 0, "only a full window ends a read early"
            next_offset = here.pipeline.position
            some = [each for each in some if each.offset < next_offset]
        here.naive.read(some, next_offset).assert_is(effects)
        here.saw(effects)

    # ---- clients --------------------------------------------------------------------------------

    @precondition(lambda self: any(here.ready() for here in self.queues))
    @rule(jobs=st.integers(1, 8), connection=CONNECTIONS, max_run=st.sampled_from([1, 3, 9, 9]),
          places=st.integers(1, 9))  # fmt: skip
    def pull(self, jobs: int, connection: int, max_run: int = 1, places: int = 9) -> None:
        self.open_connections.add(connection)
        self.served += 1
        for here in self.queues:
            here.pull(
                jobs, now_ns=self.now_ns, connection=connection, max_run=max_run, places=places
            )

    pull_more = pull  # the most frequent action

    @precondition(lambda self: self.budgets.leases.used)
    @rule(how=st.lists(verdicts, min_size=1, max_size=8), first=st.integers(0, 4))
    def settle(self, how: list[str], first: int) -> None:
        """Send verdicts on live leases, on old ones and on one that never existed."""
        self.served += 1
        for here in self.queues:
            live = [LeaseId(job.lease) for job in here.naive.leased()]
            old = [each.lease_id for each in here.leases[-2:]] + [LeaseId(10**6)]
            self._settle(here, list(zip([*live[first:], *old], how, strict=False)))

    settle_more = settle

    def _settle(self, here: Modelled, what: list[tuple[LeaseId, str]]) -> None:
        nack_of = {
            "nack": Nack,
            "retry now": lambda lease_id: Nack(lease_id, retry_after_ms=0),
            "retry later": lambda lease_id: Nack(lease_id, retry_after_ms=7),
            "reject": lambda lease_id: Nack(lease_id, reject=True),
        }
        acked = [lease_id for lease_id, how in what if how in ("ack", "twice")]
        nacked = [nack_of[how](lease_id) for lease_id, how in what if how in nack_of]
        released = [lease_id for lease_id, how in what if how in ("release", "twice")]
        effects = here.pipeline.settle(
            acked=acked, nacked=nacked, released=released, now_ns=self.now_ns
        )
        here.naive.settle(
            acked=[*acked], nacked=nacked, released=[*released], now_ns=self.now_ns
        ).assert_is(effects)
        here.saw(effects)

    @precondition(lambda self: self.budgets.leases.used)
    @rule(which=QUEUES, data=st.data(), connection=CONNECTIONS)
    def settle_by_offset(self, which: int, data: st.DataObject, connection: int) -> None:
        here = self.queues[which]
        known = [job.sent.offset for job in here.naive.leased()] + offsets(here.leases[-2:])
        some = st.lists(st.sampled_from([*known, 10**6]), max_size=4)
        success, failed = data.draw(some), data.draw(some)
        self.open_connections.add(connection)
        said: dict[str, Any] = {
            "success": success,
            "failed": failed,
            "connection": connection,
            "open_connections": self.open_connections,
            "now_ns": self.now_ns,
        }
        effects = here.pipeline.settle_by_offset(**said)
        here.naive.settle_by_offset(**said).assert_is(effects)
        here.saw(effects)

    @precondition(lambda self: self.budgets.leases.used)
    @rule(which=QUEUES, last=st.integers(1, 4), ms=st.integers(0, 40))
    def extend(self, which: int, last: int, ms: int) -> None:
        here = self.queues[which]
        ids = [each.lease_id for each in here.leases[-last:]]
        refused = self.now_ns >= here.pipeline.trusted_until_ns
        not_held = here.pipeline.extend(ids, ms=ms, now_ns=self.now_ns)
        expected = here.naive.extend([*ids], ms=ms, now_ns=self.now_ns, refused=refused)
        assert not_held == expected

    @precondition(lambda self: self.budgets.leases.used)
    @rule(which=QUEUES, last=st.integers(1, 3), waits=st.booleans())
    def answer_was_not_sent(self, which: int, last: int, waits: bool) -> None:
        """Return it at once, or keep it for a repeated request."""
        self.queues[which].was_not_sent(last, waits=waits)

    @precondition(lambda self: any(here.copies for here in self.queues))
    @rule(data=st.data())
    def copy_stored(self, data: st.DataObject) -> None:
        """Confirm a dead letter early, late, or after its queue was lost."""
        for here in self.queues:
            if here.copies:
                self._copy_stored(here, data.draw(st.integers(0, len(here.copies) - 1)))

    def _copy_stored(self, here: Modelled, index: int) -> None:
        owner, job = here.copies.pop(index)
        effects = owner.dead_lettered(job)
        if owner is here.pipeline:
            here.naive.stored_copy(job.offset).assert_is(effects)
            here.saw(effects)
        else:
            assert effects == Effects(), "nothing of an old period leaks into the new one"

    @precondition(lambda self: any(here.refills for here in self.queues))
    @rule(data=st.data(), gone=st.sampled_from([0, 0, 0, 0, 1]))
    def refill(self, data: st.DataObject, gone: int) -> None:
        """Read spilled messages again early, late, or after their queue was lost."""
        for here in self.queues:
            if here.refills:
                here.refill(data.draw(st.integers(0, len(here.refills) - 1)), gone=gone)

    # ---- time and ownership ---------------------------------------------------------------------

    @rule(ms=st.integers(1, 30), renewed=st.sampled_from([True, True, True, False]),
          lost=CONNECTIONS)  # fmt: skip
    def pass_time(self, ms: int, renewed: bool, lost: int) -> None:
        self.now_ns += ms * MS
        self.open_connections.discard(lost)
        for here in self.queues:
            if renewed:
                here.pipeline.trust_until(self.now_ns + TRUST_NS)
            effects = here.pipeline.on_time(now_ns=self.now_ns)
            here.naive.pass_time(self.now_ns).assert_is(effects)
            here.saw(effects)

    @rule(which=QUEUES, whole=st.sampled_from([False, False, False, True]))
    def record(self, which: int, whole: bool) -> None:
        self.queues[which].write_down(now_ns=self.now_ns, whole=whole)

    @rule(which=QUEUES, known=facts)
    def change_rules(self, which: int, known: Facts) -> None:
        self.queues[which].change_rules(known)  # while some jobs are leased, waiting or spilled

    @rule(which=QUEUES, policy=st.sampled_from(HandOut))
    def change_delivery_policy(self, which: int, policy: HandOut) -> None:
        self.queues[which].hand_out_by(policy)

    @rule(which=QUEUES, what=st.sampled_from(["trust", "trust", "lapse", "commit", "commit"]))
    def renewal_or_commit(self, which: int, what: str) -> None:
        here = self.queues[which]
        if what == "commit":
            here.commit()
        else:
            trust_ns = TRUST_NS if what == "trust" else 0
            here.pipeline.trust_until(self.now_ns + trust_ns)

    @precondition(lambda self: self.served > 3)
    @rule(which=QUEUES)
    def drain(self, which: int) -> None:
        self.queues[which].pipeline.drain()
        self.served = 4

    @precondition(lambda self: self.served > 3)
    @rule(which=QUEUES, how=st.lists(verdicts, min_size=4, max_size=4), committed=st.booleans(),
          hold_ms=st.sampled_from([0, 0, 10]), again=st.booleans())  # fmt: skip
    def hand_over(
        self, which: int, how: list[str], committed: bool, hold_ms: int, again: bool
    ) -> None:
        """End cleanly: drain, settle leases, store copies, commit, record."""
        here = self.queues[which]
        here.pipeline.drain()
        live = [lease_id for each in here.leases if here.naive.by_lease(lease_id := each.lease_id)]
        self._settle(here, [(lease_id, how[n % 4]) for n, lease_id in enumerate(live)])
        for index in reversed(range(len(here.copies))):
            self._copy_stored(here, index)
        drained = here.pipeline.drained(self.now_ns)
        assert drained is (here.hold_until_ns <= self.now_ns)
        if not drained:
            return
        if committed:
            here.commit()
        here.write_down(now_ns=self.now_ns, whole=True)
        self._new_period(here, hold_ms=hold_ms, resume=here.record)
        if again:  # before the new owner has read everything that the old one had read
            self._read(here, limit=2, again=0, gap=0)
            self.pull(2, 1)
            self.hand_over(which, how, committed, 0, False)

    @precondition(lambda self: self.served > 3)
    @rule(which=QUEUES, records=st.booleans(), hold_ms=st.sampled_from([0, 10]))
    def crash(self, which: int, records: bool, hold_ms: int) -> None:
        """Crash: the next owner has the committed offset, and perhaps the last record."""
        here = self.queues[which]
        self._new_period(here, hold_ms=hold_ms, resume=here.record if records else None)

    def _new_period(self, here: Modelled, *, hold_ms: int, resume: Snapshot | None) -> None:
        self.served = 0
        old = here.pipeline
        old.close()
        here.begin(now_ns=self.now_ns, hold_ns=hold_ms * MS, resume=resume)
        late = [each.lease_id for each in here.old_leases]
        effects = old.settle(acked=late, now_ns=self.now_ns)
        assert (effects.finished, effects.fenced) == ([], late)

    # ---- invariants -----------------------------------------------------------------------------

    @invariant()
    def claim_1_of_a_key_one_is_ready_or_running(self) -> None:
        for here in self.queues:
            seen, naive = here.pipeline.statistics(), here.naive
            ready, leased = len(here.ready()), naive.count("leased")
            assert (seen.ready, seen.leased) == (ready, leased)
            assert seen.retrying == naive.count("retrying")
            assert seen.unfinished == len(naive.jobs)
            assert seen.blocked == naive.count("waiting") - ready
            assert here.pipeline.ready == ready

    @invariant()
    def claim_3_a_job_has_at_most_one_live_lease(self) -> None:
        for here in self.queues:
            live = {job.lease: job.sent.offset for job in here.naive.leased()}
            leases = here.pipeline.leases
            assert {each.lease_id: each.job.offset for each in leases} == live
            assert all(leases.at(each.job.offset) is each for each in leases)
        assert self.budgets.leases.used == sum(h.naive.count("leased") for h in self.queues)

    @invariant()
    def claim_4_the_lowest_unfinished_offset_is_committable(self) -> None:
        for here in self.queues:
            assert here.pipeline.committable == here.naive.committable
            assert here.pipeline.position == here.naive.position
            assert here.committed <= here.pipeline.committable

    @invariant()
    def claim_5_a_key_without_unfinished_jobs_costs_no_memory(self) -> None:
        for here in self.queues:
            assert here.pipeline.statistics().keys == len(here.naive.chains)
            assert set(here.pipeline.leases.attempts) >= set(here.naive.failed_attempts)
        assert self.budgets.memory.used == sum(
            OFFSET_BYTES
            if offset in here.elsewhere
            else STUB_BYTES + _key_bytes(job)
            if offset in here.unloaded
            else _held_bytes(job)
            for here in self.queues
            for offset, job in here.naive.jobs.items()
        )

    @invariant()
    def spilled_jobs_are_unfinished_and_beyond_the_limit(self) -> None:
        for here in self.queues:
            elsewhere = here.elsewhere
            assert elsewhere <= here.naive.jobs.keys()
            assert here.pipeline.statistics().spilled == len(elsewhere)

    @invariant()
    def memory_is_bounded(self) -> None:
        for here in self.queues:
            jobs = here.pipeline.jobs
            coming = [r for owner, r in here.refills if owner is here.pipeline]
            assert jobs.residency.taken - jobs.window.jobs == sum(
                len(each.offsets) for each in coming
            )
            assert jobs.residency.taken <= max(here.rules.max_jobs, here.taken), (
                "or as before it was lowered"
            )
            here.note_taken()

    @invariant()
    def claim_7_nothing_is_handed_out_without_trust_or_during_a_wait(self) -> None:
        for here in self.queues:
            if not here.may_hand_out(self.now_ns):
                assert lease(here.pipeline, now_ns=self.now_ns) == []

    @invariant()
    def no_wake_up_is_lost(self) -> None:
        for here in self.queues:
            due = here.naive.next_due_ns()
            if here.hold_until_ns > self.now_ns:
                due = min(due or here.hold_until_ns, here.hold_until_ns)
            assert here.pipeline.next_due_ns(self.now_ns) == due

    # ---- the end --------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Heal and drain: every message has one outcome, and no memory or lease is left."""
        for here in getattr(self, "queues", []):
            self._finish_everything(here)
        if hasattr(self, "budgets"):
            assert (self.budgets.memory.used, self.budgets.leases.used) == (0, 0)

    def _finish_everything(self, here: Modelled) -> None:
        if here.pipeline.draining:
            self._new_period(here, hold_ms=0, resume=here.record)
        while here.naive.jobs or max(here.naive.log, default=-1) >= here.pipeline.position:
            self._read(here, limit=1000, again=0, gap=0)
            self.now_ns += 50 * MS
            here.pipeline.trust_until(self.now_ns + TRUST_NS)
            self._settle(here, [])
            none_left = not here.naive.jobs  # all messages read were filtered
            leases = here.pull(1000, now_ns=self.now_ns, connection=1)
            self._settle(here, [(each.lease_id, "ack") for each in leases])
            assert none_left or leases or here.copies or here.refills, "a job is stuck"
            while here.refills:
                here.refill(0)
            while here.copies:
                self._copy_stored(here, 0)
        assert here.naive.finished.keys() == here.naive.log.keys(), "nothing is lost"
        assert here.pipeline.committable == here.pipeline.position
        here.pipeline.close()


TestPipelines = PipelineMachine.TestCase
