"""Extensions of leases by clients."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from proxy.core.group.group_buffer import PullWish
from proxy.core.leases.lease_book import Lease, LeaseBook
from proxy.downstream.consumer_service import ConsumerService
from proxy.lane.lanes import Lanes
from proxy.settings.proxy_settings import LimitSettings
from testkit.lanes import GROUP, TOPIC, group_settings, make_lane
from testkit.messages import keyed
from testkit.pipelines import HOLDER, pipeline, rules
from thrift_idl import consumer, consumer_service

NOW_NS = 1_000_000_000


class Answer:
    """A reply to a call of ``extend``."""

    def __init__(self) -> None:
        self.call: Any = self
        self.name = "extend"
        self.interpretation: Any = None
        self.not_held: list[Any] = []

    def __call__(self, result: Any) -> None:
        self.not_held = result.success.notHeld


def service() -> tuple[ConsumerService, Lanes]:
    lanes = Lanes(make_lane)
    lanes.add(group_settings(max_pull_batch=1000))
    return ConsumerService(lanes, LimitSettings()), lanes


def extend(serving: ConsumerService, *references: consumer.LeaseRef) -> list[Any]:
    """Extend the leases of *references* and return those that were not held."""
    answer: Any = Answer()
    request = consumer.ExtendRequest(clientId="client-1", leases=list(references), ms=5000)
    serving.extend(consumer_service.extend_args(request=request), answer)
    found: list[Any] = answer.not_held
    return found


def moves(monkeypatch: pytest.MonkeyPatch, jobs: int) -> int:
    """Return how often a deadline moves when all leases of a run of *jobs* are extended."""
    serving, lanes = service()
    lane = lanes.named(GROUP)
    owned = pipeline(
        rules(max_pull_batch=1000), messages=[keyed(n, "a") for n in range(jobs)], now_ns=NOW_NS
    )
    lane.add(owned)
    ticks = count(NOW_NS)  # time passes between any two looks at the clock
    monkeypatch.setattr("proxy.lane.group_lane.now_ns", lambda: next(ticks))
    wish = PullWish(HOLDER, None, jobs, 1 << 40, max_run=jobs)
    (batch,) = lane.lease(wish, now_ns=NOW_NS)
    assert len(batch.leases) == jobs
    context = consumer.Context(groupId=GROUP, topic=TOPIC, qid=owned.qid)
    moved = 0
    extend_one = LeaseBook.extend

    def counted(book: LeaseBook, lease: Lease, deadline_ns: int) -> None:
        nonlocal moved
        if deadline_ns > lease.deadline_ns:
            moved += len(lease.run or (lease,))
        extend_one(book, lease, deadline_ns)

    monkeypatch.setattr(LeaseBook, "extend", counted)
    assert not extend(
        serving, *(consumer.LeaseRef(context, each.lease_id) for each in batch.leases)
    )
    lane.close()
    return moved


async def test_extending_a_run_costs_as_much_as_it_has_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [moves(monkeypatch, jobs) for jobs in (50, 100)] == [50, 100]


def test_leases_that_are_not_held_are_named_with_their_contexts() -> None:
    serving, _ = service()
    known = consumer.Context(groupId=GROUP, topic=TOPIC, qid="broker-a_0@1")
    other = consumer.Context(groupId="unknown", topic=TOPIC, qid="broker-a_0@1")
    asked = [(known, 1), (other, 2), (known, 3), (None, 4)]
    not_held = extend(serving, *(consumer.LeaseRef(context, number) for context, number in asked))
    named = [(each.context.groupId, each.leaseId) for each in not_held]
    assert sorted(named, key=lambda each: each[1]) == [
        (GROUP, 1),
        ("unknown", 2),
        (GROUP, 3),
        (None, 4),
    ]
