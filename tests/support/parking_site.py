"""One queue with parked keys, its twin, and the ownership records of both, over several owners.

The steps are those of ``proxy.upstream.parking.parked_keys``; a crash may follow each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.chains import Job
from proxy.core.jobs.refills import Refill
from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Lease
from proxy.core.leases.verdicts import Nack
from proxy.core.ownership.recording import Recording
from proxy.core.parking.parked_recovery import FoundParked
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.parking.twin_pipeline import TwinPipeline
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.codec import decode, encode
from proxy.core.records.record import Own, Record, Unreadable
from proxy.core.records.replay import LastOwner, replay
from proxy.core.records.snapshot_parts import parts
from proxy.errors import WrongState
from proxy.upstream.ownership.resets import moved_to
from testkit.messages import message
from testkit.pipelines import FOR_EVER_NS, HOLDER, MS, Budgets, queue, rules

MAX_DELIVERIES = 2
RULES: dict[str, Any] = {
    "max_jobs": 8,
    "max_jobs_per_key": 2,
    "retry": RetryPolicy((1,), MAX_DELIVERIES, OnExhausted.PARK),
}


class _Log:
    """The ownership records of one queue."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def append(self, records: Iterable[Record]) -> int:
        at = len(self.bodies)
        self.bodies += [encode(record) for record in records]
        return at

    def last(self) -> LastOwner | None:
        return replay((at, _decoded(body)) for at, body in enumerate(self.bodies))


def _decoded(body: bytes) -> Record | Unreadable:
    try:
        return decode(body)
    except ValueError as error:
        return Unreadable(str(error))


class ParkingSite:
    """Stored data and the current owner's state. Raises AssertionError for a broken guarantee."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.sent: list[str] = []  # keys of the messages of the queue
        self.copies: list[StoredMessage] = []  # the twin
        self.logs = _Log(), _Log()
        self.committed = [0, 0]
        self.done: set[int] = set()  # offsets that a client handled
        self.done_now: set[int] = set()  # the same, under this owner
        self.durable: set[int] = set()  # the same, followed by records of both queues
        self.broken: set[str] = set()  # keys whose messages fail
        self.asked: set[bytes] = set()  # keys redriven since they were parked
        self.leases: list[tuple[QueuePipeline, Lease]] = []
        self.refills: list[tuple[QueuePipeline, Refill]] = []
        self.hastened: list[tuple[QueuePipeline, Job]] = []
        self.to_check: set[bytes] = set()  # keys to check for copies
        self.begin()

    def put(self, keys: Iterable[str]) -> None:
        """Store a message of each of *keys* in the queue."""
        self.sent.extend(keys)

    def toggle(self, key: str) -> None:
        """Make messages of *key* fail, or succeed again."""
        self.broken ^= {key}

    # ---- ownership periods ----------------------------------------------------------------------

    def wanted_rules(self) -> TopicRules:
        """Return the settings' key rules."""
        return rules(**RULES)

    def stored(self, offset: int, **others: str) -> StoredMessage:
        """Return the stored message, or copy, at an offset."""
        return message(offset, key=self.sent[offset], **others)

    def begin(self) -> None:
        """Start a new owner; the previous one may have crashed at any step."""
        self.rules = self.wanted_rules()
        self.budgets = Budgets()
        self.done_now = set()
        self.unheard = False
        self.leases.clear()
        self.refills.clear()
        self.hastened.clear()
        self.to_check.clear()
        last = self.logs[0].last()
        epoch = self.logs[0].append([Own("us", 1, 1, 1, 1)])
        self.pipeline = ParkingPipeline(
            **self._arguments(queue(), epoch, last, start=self.committed[0]), period=epoch
        )
        if (last is None and epoch) or (last is not None and last.damage is not None):
            self._find_parked()
        self.recording = Recording(self.pipeline, last)
        self.twin: TwinPipeline | None = None
        self.apply_effects(self.pipeline, self.pipeline.on_time(now_ns=self.now_ns))

    def _arguments(
        self, name: QueueName, epoch: int, last: LastOwner | None, *, start: int
    ) -> dict[str, object]:
        return {
            "queue": name,
            "epoch": Epoch(epoch),
            "rules": self.rules,
            "start_offset": start,
            "committed": start,
            "trusted_until_ns": FOR_EVER_NS,
            "memory": self.budgets.memory,
            "leases_of_group": self.budgets.leases,
            "resume": None if last is None else last.snapshot,
        }

    def _find_parked(self) -> None:
        last = self.logs[1].last()
        said = None if last is None else last.snapshot
        found = FoundParked(self.pipeline, said, self.committed[1])
        for copy in self.copies[found.position :]:
            found.see(copy)
        self.pipeline.found_parked(found.keys)

    def damage(self, which: int, back: int, *, records: int) -> None:
        """Damage records near the end of a log and drop the owner."""
        bodies = self.logs[which].bodies
        first = max(0, len(bodies) - 1 - back)
        for at in range(first, min(first + records, len(bodies))):
            bodies[at] = b"\0garbage"
        self.durable.clear()  # finished messages may be delivered again
        self.begin()
        self.open_twin()

    def reset(self, to: int, *, is_free: bool = False) -> None:
        """Reset the group forward. *is_free*: while the queue has no owner. Skipped messages that
        were not copied are not needed any more.
        """
        moved = moved_to(self.pipeline, to)
        last = self.logs[0].last()
        if is_free and last is not None and last.snapshot is not None:
            epoch = Epoch(self.logs[0].append([Own("us", 1, 1, 1, 1)]))
            moved = last.snapshot.moved_to(to, epoch=epoch)
        self.logs[0].append(parts(moved))
        self.committed[0] = to
        copied = {int(each.properties["ORDERLANE_OFFSET"]) for each in self.copies}
        self.done.update(set(range(to)) - copied)
        self.durable = {each for each in self.durable if each < to}
        self.begin()
        self.open_twin()

    def commit(self) -> None:
        """Commit both queues."""
        self.committed[0] = self.pipeline.committable
        if self.twin is not None:
            self.committed[1] = self.twin.committable

    def open_twin(self) -> None:
        """Open the twin as soon as a key is parked."""
        if self.twin is not None or not self.pipeline.parked:
            return
        last = self.logs[1].last()
        epoch = self.logs[1].append([Own("us", 1, 1, 1, self.pipeline.epoch)])
        self.twin = TwinPipeline(
            twin_of=self.pipeline,
            must_read=len(self.copies),
            period=1,
            **self._arguments(queue(topic=Topic("%PARK%1")), epoch, last, start=self.committed[1]),
        )
        self.pipeline.open_twin(self.twin)
        self.twin_recording = Recording(self.twin, last)
        self.apply_effects(self.twin, self.twin.on_time(now_ns=self.now_ns))

    # ---- steps of the owner ---------------------------------------------------------------------

    def read(self) -> None:
        """Read one or two messages of the queue."""
        at = self.pipeline.position
        room = min(2, self.pipeline.room(demand=True))
        if self.pipeline.refills_due:
            self.apply_effects(self.pipeline, self.pipeline.take_refills())
        messages = [self.stored(each) for each in range(at, len(self.sent))[:room]]
        if messages:
            self.apply_effects(self.pipeline, self.pipeline.on_messages(messages, next_offset=at))

    def read_twin(self) -> None:
        """Read one or two copies."""
        if self.twin is not None:
            at = self.twin.position
            self.apply_effects(
                self.twin, self.twin.on_messages(self.copies[at : at + 2], next_offset=at)
            )

    def refill(self) -> None:
        """Complete the oldest read of spilled messages."""
        if self.refills:
            pipeline, refill = self.refills.pop(0)
            found = (
                [self.copies[each] for each in refill.offsets]
                if pipeline is self.twin
                else [self.stored(each) for each in refill.offsets]
            )
            self.apply_effects(pipeline, pipeline.refilled(refill, found))

    def record(self) -> None:
        """Write the periodic records of both queues."""
        self.write_record(0)
        if self.twin is not None:
            self.write_record(1)
        self.durable |= self.done_now

    def record_parked(self) -> None:
        """Write the record that lists newly parked keys."""
        new = self.pipeline.parked.keys() - self.pipeline.parking.recorded
        if new:
            self.write_record(0)
            self.pipeline.parking.is_recorded(new)
            self.open_twin()

    def copy(self, *, heard: bool) -> None:
        """Store copies of one key. *heard*: the owner receives the confirmation."""
        if self.twin is None:
            return
        self.to_check.update(self.pipeline.parking.keys_to_copy())
        for key in sorted(self.pipeline.jobs.chains.held_keys):
            jobs = self.pipeline.to_copy(key, jobs=2, body_bytes=1000)
            assert not jobs or key in self.to_check, f"{key!r} would never be copied"
            self.to_check.discard(key)
            if jobs:
                for job in jobs:
                    properties = {
                        "ORDERLANE_OFFSET": str(job.offset),
                        "ORDERLANE_EPOCH": str(self.pipeline.epoch),
                    }
                    copied = self.stored(job.offset, **properties)
                    self.copies.append(replace(copied, queue_offset=len(self.copies)))
                self.unheard = not heard
                if not heard:
                    self.pipeline.parking.look_again([key])
                else:
                    self.twin.copies_end_at(len(self.copies))
                    self.apply_effects(self.pipeline, self.pipeline.copied(jobs))
                return

    def leave(self, *, until: int) -> None:
        """Unpark keys without parked messages; a crash may follow step *until*."""
        if self.unheard:
            return  # the first try fails
        if self.twin is not None:
            keys = [each for each in self.twin.redrives.keys if each not in self.twin.jobs.by_key]
            assert set(keys) == set(self.twin.redrives.emptied()), (
                "a redriven key would never leave"
            )
        if self.pipeline.leave() or self.pipeline.parking.leaving:
            assert self.twin is not None
            keys = set(self.pipeline.parking.leaving)
            self.write_record(0)
            self.asked -= keys
            if until > 0:
                self.twin.redrives.forget(keys)
            if until > 1:
                self.write_record(1)
            if until > 2:
                self.apply_effects(self.pipeline, self.pipeline.left(keys))

    def redrive(self, key: str) -> None:
        """Redrive a key as an operator."""
        self.redrive_key(key.encode())

    def redrive_key(self, key: bytes) -> None:
        """Redrive a key that may be invalid UTF-8, as an operator."""
        if self.twin is not None and key in self.pipeline.parking.recorded:
            self.asked.add(key)
            self.apply_effects(self.twin, self.twin.redrive(key))

    def stop(self, key: str) -> None:
        """Stop a redrive as an operator."""
        if self.twin is not None:
            self.apply_effects(self.twin, self.twin.stop(key.encode()))

    def park(self, key: str) -> None:
        """Park a key as an operator."""
        self.pipeline.parking.park(key.encode())

    # ---- clients --------------------------------------------------------------------------------

    def pull(self) -> None:
        """Deliver one job of each queue."""
        for pipeline in (self.pipeline, self.twin):
            if pipeline is not None:
                for lease in pipeline.lease(
                    max_jobs=1, max_bytes=1000, now_ns=self.now_ns, holder=HOLDER
                ):
                    if pipeline is self.twin:
                        assert lease.job.key in self.asked, f"{lease}: not redriven"
                    self._judge(pipeline, lease)
                    self.leases.append((pipeline, lease))
                self.apply_effects(pipeline, pipeline.take_unreported() or Effects())

    def retry(self, key: str) -> None:
        """Reset the attempts of the first message of *key*, as if it had never failed."""
        name, pipeline = key.encode(), self.pipeline
        if name in pipeline.parked or name in pipeline.parking.leaving:
            if self.twin is None or not (name in self.twin.jobs.by_key and self.twin.is_read):
                return
            pipeline = self.twin
        with suppress(WrongState):
            job = pipeline.head(name)
            if job is not None:
                pipeline.retry(job, reset_attempts=True)
                self.hastened.append((pipeline, job))

    def retry_recorded(self) -> None:
        """Record the retry."""
        for pipeline, job in self.hastened:
            self.apply_effects(pipeline, pipeline.offer_again(job))
        self.hastened.clear()

    def settle(self) -> None:
        """Answer the oldest lease: nack if its key is broken, otherwise ack."""
        if not self.leases:
            return
        pipeline, lease = self.leases.pop(0)
        self.now_ns += 2 * MS
        offset, key = self._origin(pipeline, lease)
        if pipeline.leases.live(lease.lease_id) is not lease:
            return
        if key in self.broken:
            nack = Nack(lease.lease_id)
            self.apply_effects(pipeline, pipeline.settle(nacked=[nack], now_ns=self.now_ns))
        else:
            self.done.add(offset)
            self.done_now.add(offset)
            self.apply_effects(
                pipeline, pipeline.settle(acked=[lease.lease_id], now_ns=self.now_ns)
            )
        self.now_ns += 2 * MS
        for each in (self.pipeline, self.twin):
            if each is not None:
                self.apply_effects(each, each.on_time(now_ns=self.now_ns))

    def finish(self) -> None:
        """Repair and redrive all keys; all messages must finish."""
        self.broken.clear()
        self.retry_recorded()
        for _ in range(40 * (len(self.sent) + 4)):
            self.record_parked()
            self.open_twin()
            for key in list(self.pipeline.parked):
                if self.twin is None or key not in self.twin.redrives.keys:
                    self.redrive_key(key)
            for step in (self.read, self.read_twin, self.refill, self.pull, self.settle):
                step()
            self.copy(heard=True)
            self.leave(until=3)
        assert self.done == set(range(len(self.sent)))
        assert not self.pipeline.parked
        assert self.pipeline.committable == len(self.sent)
        if self.twin is not None:
            assert self.twin.committable == len(self.copies)

    # ---- judging --------------------------------------------------------------------------------

    def _judge(self, pipeline: QueuePipeline, lease: Lease) -> None:
        offset, key = self._origin(pipeline, lease)
        ahead = [o for o in range(offset) if self.sent[o] == key and o not in self.done]
        assert not ahead, f"{offset} of {key} was handed out before {ahead}"
        assert offset not in self.durable, f"{offset} had finished, and that was recorded"
        parked = key.encode() in self.pipeline.parked
        if pipeline is self.pipeline:
            assert not parked, f"{offset} of {key}, which is parked, was handed out"
        else:
            assert self.twin is not None
            assert key.encode() in self.twin.redrives.keys, (
                f"copy of {offset}: {key} is not redriven"
            )
        live = [self._origin(*each)[1] for each in self.leases if self._lives(*each)]
        assert key not in live, f"{key} is in two hands"

    def _lives(self, pipeline: QueuePipeline, lease: Lease) -> bool:
        return pipeline.leases.live(lease.lease_id) is lease

    def _origin(self, pipeline: QueuePipeline, lease: Lease) -> tuple[int, str]:
        offset = lease.job.offset
        if pipeline is self.twin:
            offset = int(self.copies[offset].properties["ORDERLANE_OFFSET"])
        return offset, self.sent[offset]

    def write_record(self, which: int) -> None:
        """Write the due records of the queue (0) or its twin (1), if any."""
        recording = self.twin_recording if which else self.recording
        log = self.logs[which]
        has_news = recording.has_news(self.now_ns)
        if due := recording.due(self.now_ns):
            assert has_news
            recording.written(due, at=log.append(due))
        pipeline = self.twin if which else self.pipeline
        last = log.last()
        assert pipeline is not None
        if due and last is not None:
            assert last.snapshot is not None
            assert last.snapshot.parked == pipeline.parked

    def apply_effects(self, pipeline: QueuePipeline, effects: Effects) -> None:
        """Collect the refills of *effects*."""
        assert not effects.dead_letters
        self.refills += [(pipeline, refill) for refill in effects.refills]
