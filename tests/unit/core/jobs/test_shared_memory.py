"""Queues whose windows exceed the memory together: each continues past its stuck key."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.refills import Refill
from proxy.core.jobs.window import Budget
from proxy.core.keys.topic_rules import TopicRules
from proxy.core.leases.lease_book import Lease
from proxy.core.pipeline.effects import Effects
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from testkit.messages import message
from testkit.pipelines import Budgets, lease, pipeline, queue, rules

DEFAULTS = TopicRules(rules().order_key)
SCALE = 64


@dataclass(slots=True)
class Site:
    """One queue; the client with its stuck key never finishes."""

    log: list[StoredMessage]
    pipeline: QueuePipeline
    done: int = 0
    refills: deque[Refill] = field(default_factory=deque)
    stuck: list[Lease] = field(default_factory=list)

    def read(self, *, demand: bool) -> bool:
        """Read; return False if there was no room."""
        here = self.pipeline
        room = min(here.room(demand=demand), 256)
        if some := self.log[here.position : here.position + room]:
            self.apply(here.on_messages(some, next_offset=some[-1].queue_offset + 1))
        return bool(some)

    def step(self, *, demand: bool) -> bool:
        """Read, refill, deliver and finish; return False if nothing moved."""
        here, before = self.pipeline, (self.pipeline.position, self.done)
        self.read(demand=demand)
        while self.refills:
            refill = self.refills.popleft()
            self.apply(here.refilled(refill, [self.log[each] for each in refill.offsets]))
        for each in lease(here, 8):
            if each.job.key == b"stuck":
                self.stuck.append(each)
            else:
                self.apply(here.settle(acked=[each.lease_id], now_ns=0))
                self.done += 1
        return before != (here.position, self.done)

    def apply(self, effects: Effects) -> None:
        self.refills += effects.refills


@pytest.mark.parametrize("size", [14_000, 25_000])
@pytest.mark.parametrize("part", [0.5, 0.9])
def test_the_defaults_with_eight_queues_of_large_bodies(size: int, part: float) -> None:
    """All at a 64th of the size: 1 GiB, 20,000 messages per queue; *part* are of stuck keys."""
    memory = Budget((1 << 30) // SCALE)
    limits = rules(
        max_jobs=DEFAULTS.max_jobs // SCALE, max_jobs_per_key=DEFAULTS.max_jobs_per_key // SCALE
    )
    body, sites = b"x" * size, []
    for number in range(8):
        keys = ["stuck" if n % 10 < part * 10 else f"k{n % 50}" for n in range(600)]
        log = [message(n, body=body, key=key) for n, key in enumerate(keys)]
        made = pipeline(limits, of=queue(number), budgets=Budgets(memory))
        sites.append(Site(log, made))
    most = 0
    for demand in (False, True):  # waiting clients are patient at first
        while sum(site.step(demand=demand) for site in sites):
            most = max(most, memory.used)
    assert [site.done for site in sites] == [600 - round(600 * part)] * 8
    assert most < memory.limit * 1.1
    assert all(len(site.stuck) == 1 for site in sites)
