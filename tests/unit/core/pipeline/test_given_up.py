"""A message that an owner gave up before it was killed is given up by the next one, too."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.keys.ids import Epoch
from proxy.core.keys.retry_policy import OnExhausted, RetryPolicy
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Snapshot
from testkit.messages import keyed
from testkit.pipelines import KEYS, MS, lease, offsets, pipeline, rules
from tests.support.parking_site import MAX_DELIVERIES, RULES, ParkingSite


def resumed(attempts: int, **retry: Any) -> QueuePipeline:
    """Return a queue whose first message has that many failed deliveries in the records."""
    policy = {"max_deliveries": 2, "on_exhausted": OnExhausted.DEAD_LETTER, **retry}
    last = Snapshot(Epoch(1), 0, 3, (0, 1, 2), {0: attempts}, keys=KEYS)
    return pipeline(
        rules(retry=RetryPolicy((10,), **policy)),
        epoch=2,
        resume=last,
        messages=[keyed(0, "a"), keyed(1, "a"), keyed(2, "b")],
    )


def test_it_is_a_dead_letter_at_its_turn_and_its_key_goes_on() -> None:
    queue = resumed(2)
    assert offsets(lease(queue)) == [2]
    effects = queue.take_unreported()
    assert effects is not None
    (job,) = effects.dead_letters
    assert (job.offset, job.attempts) == (0, 2)
    assert job.reason == "its deliveries were used up before its owner ended"
    assert (queue.take_unreported(), offsets(lease(queue))) == (None, [])
    assert queue.dead_lettered(job).finished == [(0, Outcome.DEAD_LETTERED)]
    assert offsets(lease(queue)) == [1]


@pytest.mark.parametrize(
    ("attempts", "retry"),
    [
        (1, {}),
        (2, {"on_exhausted": OnExhausted.BLOCK}),
    ],
)
def test_a_message_not_given_up_is_delivered(attempts: int, retry: dict[str, Any]) -> None:
    queue = resumed(attempts, **retry)
    assert [(each.job.offset, each.job.attempts) for each in lease(queue)] == [
        (2, 1),
        (0, attempts + 1),
    ]
    assert queue.take_unreported() is None


def test_a_limit_that_was_raised_meanwhile_has_it_handed_out() -> None:
    queue = resumed(2)
    queue.change_rules(rules(retry=RetryPolicy((10,), 3, OnExhausted.DEAD_LETTER)))
    assert offsets(lease(queue)) == [2, 0]


def test_a_limit_that_is_lowered_under_its_owner_lets_it_come_once_more() -> None:
    """No owner had given it up."""
    queue = resumed(2, max_deliveries=5)
    queue.change_rules(rules(retry=RetryPolicy((10,), 2, OnExhausted.DEAD_LETTER)))
    _, first = lease(queue)
    assert (first.job.offset, first.job.attempts) == (0, 3)
    effects = queue.settle(nacked=[Nack(first.lease_id)], now_ns=1)
    assert [job.offset for job in effects.dead_letters] == [0]


def test_it_waits_for_a_client_that_may_have_it_from_the_owner_before() -> None:
    last = Snapshot(Epoch(1), 0, 1, (0,), {0: 2}, leases={0: 5}, keys=KEYS)
    policy = RetryPolicy((10,), 2, OnExhausted.DEAD_LETTER)
    queue = pipeline(rules(retry=policy), epoch=2, resume=last, messages=[keyed(0, "a")])
    assert (lease(queue, now_ns=1 * MS), queue.take_unreported()) == ([], None)
    queue.on_time(now_ns=6 * MS)
    assert lease(queue, now_ns=6 * MS) == []
    assert queue.take_unreported() is not None


class Site(ParkingSite):
    """A site whose next owner allows fewer deliveries."""

    allowed = MAX_DELIVERIES + 1

    def wanted_rules(self) -> Any:
        retry = RetryPolicy((1,), self.allowed, OnExhausted.PARK)
        return rules(**{**RULES, "retry": retry})


def test_where_keys_are_parked_its_key_is() -> None:
    site = Site()
    site.sent += ["a", "a", "b"]
    site.broken.add("a")
    site.read()
    for _ in range(MAX_DELIVERIES):
        site.pull()
        site.settle()
    site.record()
    assert not site.pipeline.parked
    site.allowed = MAX_DELIVERIES
    site.begin()
    site.read()
    site.read()
    site.pull()
    site.pull()
    ((_, held),) = site.leases
    assert (held.job.offset, set(site.pipeline.parked)) == (2, {b"a"})
    site.finish()
