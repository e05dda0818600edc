from __future__ import annotations

import pytest

from proxy.core.ownership.allocation import allocate
from testkit.pipelines import queue

QUEUES = [queue(queue_id) for queue_id in range(8)]


@pytest.mark.parametrize("members", [1, 2, 3, 5, 8, 11])
def test_every_queue_has_exactly_one_owner_and_shares_differ_by_one(members: int) -> None:
    names = [f"proxy-{number:02}" for number in range(members)]
    shares = [allocate(name, names, QUEUES) for name in names]
    assert sorted(each for share in shares for each in share) == QUEUES
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_shares_are_consecutive_as_rocketmq_computes_them() -> None:
    assert allocate("b", ["a", "b", "c"], QUEUES) == QUEUES[3:6]


def test_the_order_and_repetition_of_the_members_does_not_matter() -> None:
    assert allocate("b", ["b", "a", "a"], QUEUES) == allocate("b", ["a", "b"], QUEUES)


def test_others_than_members_get_nothing() -> None:
    assert allocate("x", ["a", "b"], QUEUES) == []
    assert allocate("x", [], QUEUES) == []
