"""The newest records of a queue show who owned it last, whatever order all records arrived in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker_core.names import Group, QueueName, Topic
from proxy.core.keys.ids import Epoch
from proxy.core.records.codec import encode
from proxy.core.records.gaps import certain_base, gaps, has_late_snapshot, later_owner
from proxy.core.records.record import Clean, Delta, Own, Record, Snapshot, ownership_topic
from proxy.core.records.replay import LastOwner, replay
from proxy.core.records.snapshot_parts import parts
from proxy.upstream.records import ownership_log
from proxy.upstream.records.ownership_log import TAIL, OwnershipLog
from testkit.messages import message
from tests.support.fake_broker_client import FakeBrokerClient

GROUP, ORDERS = Group("billing"), QueueName(Topic("orders"), "broker-a", 0)
TWIN = ownership_topic(GROUP, ORDERS.topic)


@dataclass
class Writer:
    """An owner that writes records as ``Recorder`` does, and does not know that others do."""

    epoch: Epoch
    own: Own
    end: int
    snapshot_at: int | None = None
    last_at: int = 0
    serial: int = 0
    ended: bool = False
    doubtful: bool = False

    def due(self, read: int, *, whole: bool) -> Sequence[Record]:
        """Return a delta, or a snapshot in one or several records."""
        if self.snapshot_at is not None and not whole:
            return [Delta(self.epoch, self.snapshot_at, 0, read, after=self.last_at)]
        self.serial, self.snapshot_at = self.serial + 1, None
        state = Snapshot(self.epoch, 0, read, tuple(range(0, read, 3)))
        return parts(state, self.own, serial=self.serial, most=read % 5 * 300 + 300)

    def stored(self, log: Sequence[Record], records: Sequence[Record], at: Sequence[int]) -> None:
        """Note where *records* were stored, and look at what is in between."""
        counts = at[0] >= self.end or not isinstance(records[0], Delta)
        if at[0] < self.end:
            self.ended = at[0] <= self.epoch
            self.end = self.epoch + 1
        for gap in gaps(self.end, at):
            found = log[gap.start : gap.stop]
            if later_owner(found, of_twin=None) is not None:
                self.ended = True
            if gap.stop > at[0] or isinstance(records[0], Delta):
                counts = counts and not has_late_snapshot(found, epoch=self.epoch)
        self.end = at[-1] + 1
        if not counts:
            self.snapshot_at = None
        else:
            self.last_at = at[0]
            if not isinstance(records[0], Delta):
                self.snapshot_at = at[0]


@dataclass
class Story:
    """Owners that follow each other in one queue, and the records that they leave."""

    chance: random.Random
    log: list[Record] = field(default_factory=list)
    late: list[Record] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)

    lost_power: bool = False

    def __post_init__(self) -> None:
        # How often former owners write, and how often they get no answer then.
        self.unaware = self.chance.choice([0.05, 0.3, 0.95])
        self.unanswered = self.chance.choice([0.1, 0.5, 1.0])

    def go_on(self) -> None:
        """Take one step: a record arrives late, a queue is taken over, an owner writes."""
        chance = self.chance
        if self.late and chance.random() < 0.05:
            self.log.append(self.late.pop(chance.randrange(len(self.late))))
        elif not self.writers or self.writers[-1].ended or chance.random() < 0.015:
            self._take_over()
        elif chance.random() < 0.01:
            del self.log[-chance.randint(1, 20) :]
            self.lost_power = True
            for each in self.writers:
                each.doubtful = True
        else:
            former = [each for each in self.writers[:-1] if not each.ended]
            if former and chance.random() < self.unaware:
                self._write(chance.choice(former), unanswered=self.unanswered)
            else:
                self._write(self.writers[-1], unanswered=0.1)

    def _take_over(self) -> None:
        own = Own(f"proxy-{len(self.writers)}", 5000, 5000, 1, period=len(self.writers))
        if self.chance.random() < 0.1:
            self.late.append(own)  # its writer gave up
            return
        epoch = Epoch(len(self.log))
        last = replay(enumerate(self.log))
        self.log.append(own)
        writer = Writer(epoch, own, end=epoch + 1)
        if last is not None and last.snapshot is not None and last.damage is None:
            writer.snapshot_at, writer.last_at = last.snapshot_at, last.last_at
        self.writers.append(writer)

    def _write(self, writer: Writer, *, unanswered: float) -> None:
        chance = self.chance
        if chance.random() < 0.01:
            self.log.append(Clean(writer.epoch))
            writer.ended = True
            return
        whole = writer.doubtful or chance.random() < 0.04
        records = writer.due(len(self.log) + 1, whole=whole)
        if chance.random() >= unanswered:
            at = []
            for record in records:
                while self.late and chance.random() < 0.1:
                    self.log.append(self.late.pop())
                at.append(len(self.log))
                self.log.append(record)
            writer.stored(self.log, records, at)
            if writer.doubtful:
                last = replay(enumerate(self.log[: at[0]]))
                named = None if last is None else (last.epoch, last.own.owner)
                writer.ended = writer.ended or named != (writer.epoch, writer.own.owner)
                writer.doubtful = False
            return
        if (fate := chance.random()) < 0.4:
            self.log += records
        elif fate < 0.7:
            self.late += records
        writer.snapshot_at = None


async def last_owner(log: Sequence[Record], *, lowest: int) -> tuple[LastOwner | None, int]:
    """Return the newest period in *log*, and how many records were read to find it."""
    broker: Any = FakeBrokerClient(**{TWIN: 1})
    broker.store(
        *(message(offset, body=encode(record), topic=TWIN) for offset, record in enumerate(log))
    )
    broker.lowest[QueueName(TWIN, "broker-a", 0)] = lowest
    found, end = await OwnershipLog(broker).last(GROUP, ORDERS)
    assert end == len(log)
    return found, sum(min(each["max_messages"], len(log)) for each in broker.pulls)


@pytest.mark.parametrize("seed", range(40))
async def test_records_further_back_change_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners that were replaced without noticing write on; records arrive late, or unnoticed."""
    story = Story(random.Random(seed))
    while len(story.log) < 300:
        story.go_on()
        if story.chance.random() < 0.95:
            continue
        lowest = story.chance.choice([0, 0, len(story.log) // 2])
        if story.lost_power:  # late snapshots of owners that were lost may be left alone then
            lowest = 0
        found, _ = await last_owner(story.log, lowest=lowest)
        with monkeypatch.context() as without:
            without.setattr(ownership_log, "certain_base", lambda _: None)
            expected, _ = await last_owner(story.log, lowest=lowest)
        assert found == expected


def test_the_newest_records_are_often_enough() -> None:
    """Otherwise the test above would compare a search with itself."""
    enough = 0
    for seed in range(40):
        story = Story(random.Random(seed))
        while len(story.log) < 300:
            story.go_on()
            newest = [*enumerate(story.log)][-TAIL:]
            enough += certain_base(newest) is not None
    assert enough > 1000


async def test_a_long_period_is_not_read_to_its_beginning() -> None:
    """A take-over takes the same time after a minute and after a month."""
    own = Own("proxy-1", 5000, 5000, 1, period=1)
    log: list[Record] = [own]
    for number in range(3000):
        at = len(log)
        if number % 256 == 0:
            base = at
            log += parts(Snapshot(Epoch(0), 0, number + 1, (0,)), own, serial=number // 256 + 1)
        else:
            log.append(Delta(Epoch(0), base, 0, number, after=at - 1))

    found, read = await last_owner(log, lowest=0)

    assert found is not None
    assert (found.own, found.damage, found.last_at) == (own, None, len(log) - 1)
    assert found.snapshot == Snapshot(Epoch(0), 0, 2999, (0,))
    assert read < 256 + 2 * TAIL
