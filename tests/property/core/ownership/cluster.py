"""Two proxies and a broker in virtual time, made of real pipelines and ownership records.

The actions of a proxy between pipelines and broker (lock, renew, take over, hand over) are modelled
here, one step per ``tick``, so that a process can be stopped, cut off or killed between any two.
``Judge`` checks every delivery of all proxies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.jobs.chains import Job
from proxy.core.jobs.refills import Refill
from proxy.core.keys.ids import Epoch, LeaseId
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Nack
from proxy.core.ownership.recording import Recording
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.codec import encode
from proxy.core.records.record import Clean, Own, Record
from proxy.core.records.replay import LastOwner
from testkit.messages import keyed
from testkit.pipelines import Budgets, lease, pipeline, rules
from tests.property.core.ownership.cluster_judge import (
    DRAIN_NS,
    EXPIRY_NS,
    MS,
    RENEWAL_NS,
    SECOND,
    TRUST_NS,
    Broker,
    Judge,
    finished,
)


@dataclass(slots=True)
class TakeOver:
    """Knowledge of a proxy, step by step, after its lock was granted."""

    looked: bool = False
    last: LastOwner | None = None
    end: int = 0  # of the ownership records when it read them
    broker_start_ms: int = 0


@dataclass(slots=True, eq=False)
class Proxy:
    """One process. ``wanted``: True if the queue is in its share."""

    broker: Broker
    judge: Judge
    name: str
    visibility_ns: int
    life: int = 0
    wanted: bool = False
    stopped: bool = False
    cut_off: bool = False
    slow: bool = False  # requests and answers take a tick each
    trusted_until_ns: int = 0
    renewed_ns: int = 0
    broker_start_ns: int = -1  # when its connection was made
    hold_until_ns: int = 0  # no delivery before, in this period or the next of this process
    pipeline: QueuePipeline | None = None
    known: set[int] = field(default_factory=set)
    taking: TakeOver | None = None
    request: tuple[int, bool | None] | None = None  # a lock request: sent at, answer
    commits: list[tuple[int, int]] = field(default_factory=list)  # on their way
    copies: list[Job] = field(default_factory=list)
    refills: list[Refill] = field(default_factory=list)
    recording: Recording = field(init=False)
    recorded_ns: int = 0
    drain_until_ns: int = 0

    @property
    def client(self) -> str:
        """Client id, new for every process."""
        return f"{self.name}-{self.life}"

    def kill(self) -> None:
        """Kill the process; its leases live on in its clients."""
        self.life += 1
        self.pipeline = self.taking = self.request = None
        self.heal()
        self.copies, self.refills, self.known = [], [], set()
        self.trusted_until_ns = self.hold_until_ns = 0

    def stop(self) -> None:
        """Do nothing until ``resume`` while time passes."""
        self.stopped = True

    def resume(self) -> None:
        self.stopped = False

    def toggle(self, trouble: str) -> None:
        """Start or end *trouble*: the process stops, loses its broker, or gets late answers."""
        match trouble:
            case "stop":
                self.stopped = not self.stopped
            case "cut":
                self.cut_off = not self.cut_off
            case "slow":
                self.slow = not self.slow

    def heal(self) -> None:
        """End all trouble."""
        self.stopped = self.cut_off = self.slow = False

    def want(self, *, wanted: bool = True) -> None:
        """Change its share of the queues."""
        self.wanted = wanted

    # ---- actions of its clients ----------------------------------------------------------------

    def pull(self, jobs: int, *, now_ns: int) -> list[Lease]:
        if self.pipeline is None or self.stopped:
            return []
        leases = lease(self.pipeline, jobs, now_ns=now_ns)
        for each in leases:
            self.judge.handed_out(self.pipeline.epoch, each, known=self.known, now_ns=now_ns)
        return leases

    def settle(self, how: list[str], *, now_ns: int) -> None:
        """Apply one verdict to each live lease, the oldest first."""
        if self.pipeline is None or self.stopped:
            return
        said = list(zip(self._live(self.pipeline), how, strict=False))
        self._saw(
            self.pipeline,
            self.pipeline.settle(
                acked=[lease_id for lease_id, verdict in said if verdict == "ack"],
                nacked=[
                    Nack(lease_id, reject=verdict == "reject")
                    for lease_id, verdict in said
                    if verdict in ("nack", "reject")
                ],
                released=[lease_id for lease_id, verdict in said if verdict == "release"],
                now_ns=now_ns,
            ),
        )

    def extend(self, *, now_ns: int) -> None:
        if self.pipeline is not None and not self.stopped:
            mine = self._live(self.pipeline)
            self.pipeline.extend(mine, ms=self.visibility_ns // MS, now_ns=now_ns)

    def _live(self, owned: QueuePipeline) -> list[LeaseId]:
        return [lease_id for epoch, lease_id in self.judge.live if epoch == owned.epoch]

    def _leases_end_ns(self, owned: QueuePipeline) -> int:
        live = self.judge.live.items()
        return max(
            (each.deadline_ns for (epoch, _), each in live if epoch == owned.epoch), default=0
        )

    def _saw(self, owned: QueuePipeline, effects: Effects) -> None:
        self.known |= {offset for offset, _ in effects.finished}
        self.copies += effects.dead_letters
        self.refills += effects.refills
        self.judge.saw(owned.epoch, effects)

    # ---- its own actions -----------------------------------------------------------------------

    def tick(self, *, now_ns: int) -> None:
        """Do everything that is due, unless stopped. Commits on their way always arrive."""
        for epoch, offset in self.commits:
            self.broker.commit(epoch, offset)
        self.commits.clear()
        if self.stopped:
            return
        if self.pipeline is not None:
            self._saw(self.pipeline, self.pipeline.on_time(now_ns=now_ns))
        if self.cut_off:
            return
        self._locks(now_ns)
        if self.taking is not None:
            self._take_over(self.taking, now_ns)
        elif self.pipeline is not None:
            self._serve(self.pipeline, now_ns)

    def _locks(self, now_ns: int) -> None:
        """Request locks. Trust counts from before the request, whenever the answer arrives."""
        owns = self.pipeline is not None or self.taking is not None
        if self.request is None:
            if not (owns and now_ns - self.renewed_ns >= RENEWAL_NS) and not (
                self.wanted and not owns
            ):
                return
            self.request = (now_ns, None)
            if self.slow:
                return
        sent_ns, answer = self.request
        if answer is None:
            answer = self.broker.lock(self.client, now_ns)
            self.request = (sent_ns, answer)
            if self.slow:
                return
        self.request = None
        if answer:
            self._granted(sent_ns, now_ns)
        else:
            self._lose()

    def _granted(self, sent_ns: int, now_ns: int) -> None:
        self.renewed_ns = sent_ns
        reconnected = self.broker_start_ns != self.broker.start_ns
        self.broker_start_ns = self.broker.start_ns
        if self.pipeline is None and self.taking is None:
            self.taking = TakeOver()
        elif reconnected or self.trusted_until_ns <= now_ns:
            # Another proxy may have been the owner meanwhile.
            last = self.broker.last_owner()
            if self.pipeline is None or last is None or last.epoch != self.pipeline.epoch:
                self._lose()
                return
        self.trusted_until_ns = max(self.trusted_until_ns, sent_ns + TRUST_NS)
        if self.pipeline is not None:
            self.pipeline.trust_until(self.trusted_until_ns)

    def _lose(self) -> None:
        """Drop a lost queue without unlocking it, which would forget leases of an earlier owner."""
        if self.pipeline is not None:
            self.hold_until_ns = max(self.hold_until_ns, self._leases_end_ns(self.pipeline))
            self.pipeline.close()
        self.pipeline = self.taking = self.request = None
        self.copies, self.refills, self.known, self.trusted_until_ns = [], [], set(), 0

    def _take_over(self, taking: TakeOver, now_ns: int) -> None:
        if not taking.looked:
            taking.looked, taking.end = True, len(self.broker.records)
            taking.broker_start_ms = self.broker.start_ns // MS
            taking.last = self.broker.last_owner()
            return
        last, epoch = taking.last, len(self.broker.records)
        period = 1 if last is None else last.own.period + 1
        trust_ms, lease_ms = TRUST_NS // MS, self.visibility_ns // MS
        own = Own(self.client, trust_ms, lease_ms, taking.broker_start_ms, period)
        self.broker.records.append(encode(own))
        wait_ns = 0
        if epoch != taking.end:  # another proxy wrote in between: read again
            taking.looked = False
            wait_ns = TRUST_NS + self.visibility_ns
        elif last is not None:
            wait_ns = last.wait_ns(
                broker_start_ms=taking.broker_start_ms,
                broker_lock_expiry_s=EXPIRY_NS / SECOND,
            )
        self.hold_until_ns = max(self.hold_until_ns, now_ns + wait_ns)
        if not taking.looked:
            return
        resume = last.snapshot if last else None
        start = max(self.broker.committed, resume.base if resume else 0)
        self.known = set(range(start)) | {
            offset
            for offset in range(len(self.broker.log))
            if resume is not None and finished(resume, offset)
        }
        self.judge.took_over(self.known)
        self.taking, self.recorded_ns = None, now_ns
        self.pipeline = pipeline(
            rules(
                visibility_ns=self.visibility_ns,
                retry=RetryPolicy((500,), 3, OnExhausted.DEAD_LETTER),
                max_jobs=8,
                max_jobs_per_key=2,
            ),
            epoch=epoch,
            start=start,
            committed=self.broker.committed,
            trusted_until_ns=self.trusted_until_ns,
            hold_until_ns=self.hold_until_ns,
            resume=resume,
            budgets=Budgets(),
            now_ns=now_ns,
        )
        self.recording = Recording(self.pipeline, last)

    def _record(self, now_ns: int) -> None:
        has_news = self.recording.has_news(now_ns)
        records: list[Record] = self.recording.due(now_ns)
        assert has_news or not records
        if records:
            at = len(self.broker.records)
            bodies = [encode(record) for record in records]
            self.broker.records.extend(bodies)
            self.recording.written(records, at=at)

    def _serve(self, owned: QueuePipeline, now_ns: int) -> None:
        position = owned.position
        some = self.broker.log[position : position + min(owned.room(demand=True), 8)]
        self._saw(owned, owned.on_messages(some, next_offset=position + len(some)))
        while self.copies or self.refills:
            if self.copies:
                self._saw(owned, owned.dead_lettered(self.copies.pop()))
            else:
                refill = self.refills.pop()
                messages = [self.broker.log[offset] for offset in refill.offsets]
                self._saw(owned, owned.refilled(refill, messages))
        if now_ns - self.recorded_ns >= SECOND and now_ns < self.trusted_until_ns:
            self.recorded_ns = now_ns
            self._record(now_ns)
        if not self.wanted and not owned.draining:
            owned.drain()
            self.drain_until_ns = now_ns + DRAIN_NS
        if owned.draining and now_ns >= self.drain_until_ns:
            owned.refuse_extensions()
        if owned.draining and owned.drained(now_ns) and now_ns < self.trusted_until_ns:
            self.broker.commit(owned.epoch, owned.committable)
            self._record(now_ns)
            self.broker.records.append(encode(Clean(Epoch(owned.epoch))))
            self.broker.unlock(self.client)
            hold_until_ns = self.hold_until_ns
            self._lose()
            self.hold_until_ns = hold_until_ns  # surviving leases are recorded

    def commit(self, *, now_ns: int) -> None:
        """Send a commit while trusted; it arrives at the next tick even if the sender dies."""
        able = not self.stopped and not self.cut_off and now_ns < self.trusted_until_ns
        if self.pipeline is not None and able:
            self.commits.append((self.pipeline.epoch, self.pipeline.committable))


class Cluster:
    """The whole system, with one clock that runs while processes are stopped."""

    def __init__(self, *, visibility_ns: int, forgets_locks: bool) -> None:
        self.now_ns = SECOND
        self.broker = Broker(forgets_locks)
        self.judge = Judge(self.broker)
        self.proxies = [
            Proxy(self.broker, self.judge, name, visibility_ns) for name in ("left", "right")
        ]
        self.proxies[0].want()

    def produce(self, *keys: str) -> None:
        for key in keys:
            self.broker.log.append(keyed(len(self.broker.log), key))

    def want(self, which: int) -> None:
        """Move the queue into the share of one proxy."""
        for number, each in enumerate(self.proxies):
            each.want(wanted=number == which)

    def run(self, ms: int, *, step_ms: int = 500) -> None:
        for _ in range(0, ms, step_ms):
            self.now_ns += step_ms * MS
            for each in self.proxies:
                each.tick(now_ns=self.now_ns)

    def finish(self) -> None:
        """Heal, and let one proxy finish everything within the time that the waits allow."""
        self.proxies[1].kill()
        self.want(0)
        healed = self.proxies[0]
        healed.heal()
        for _ in range(400):
            self.run(500)
            healed.pull(100, now_ns=self.now_ns)
            healed.settle(["ack"] * 100, now_ns=self.now_ns)
            healed.commit(now_ns=self.now_ns)
            if self.broker.committed == len(self.broker.log):
                break
        assert self.judge.finished.keys() == set(range(len(self.broker.log))), "nothing is lost"
        assert self.broker.committed == len(self.broker.log)
