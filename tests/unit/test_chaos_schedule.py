"""The plan of ``make chaos``, and the figures that it reports."""

from __future__ import annotations

import itertools

import pytest

from tests.chaos.figures import figures_of
from tests.chaos.schedule import KINDS, LANES, TIMES, Fault, plan
from tests.chaos.workload import HOT, POISONED, Sender, fails
from tests.support.histories import LANE, Story


def faults_of(seed: int, times: str = "default", seconds: float = 0) -> list[Fault]:
    return plan(seed, seconds=seconds, times=TIMES[times], proxies=3, clients=4)


@pytest.mark.parametrize("times", sorted(TIMES))
@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_every_kind_of_fault_and_stops_outlast_their_leases(
    seed: int, times: str
) -> None:
    faults = faults_of(seed, times)

    assert sorted(fault.kind for fault in faults) == sorted(KINDS)
    lease_s, expiry_s = TIMES[times].lease_s, TIMES[times].expiry_s
    assert all(fault.for_s > lease_s for fault in faults if fault.action in ("stop", "hold"))
    assert all(fault.for_s > expiry_s for fault in faults if fault.action == "sleep")


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert faults_of(7) == faults_of(7) != faults_of(8)


@pytest.mark.parametrize("lane", LANES)
def test_in_a_lane_one_fault_ends_before_the_next_begins(lane: tuple[str, ...]) -> None:
    mine = [fault for fault in faults_of(3, seconds=300) if fault.role in lane]

    assert len(mine) > len({fault.kind for fault in mine})
    assert all(a.at_s + a.for_s < b.at_s for a, b in itertools.pairwise(mine))
    assert mine[-1].at_s + mine[-1].for_s <= 300


def test_a_key_is_sent_by_one_sender_only() -> None:
    """Else nobody could say in which order its messages were sent."""
    senders = [Sender(number, 12, 16) for number in range(12)]
    keys = [{body["key"] for body in itertools.islice(each.messages(1), 200)} for each in senders]

    assert sum(map(len, keys)) == len(set().union(*keys)) == 16
    assert {HOT, POISONED} <= set().union(*keys)


def test_poison_fails_until_it_is_cured_and_a_retry_as_often_as_it_says() -> None:
    poison, retry = {"plan": "poison"}, {"plan": "retry", "times": 1}

    assert fails(poison, attempt=9, cured=False)
    assert not fails(poison, attempt=1, cured=True)
    assert fails(retry, attempt=1, cured=False)
    assert not fails(retry, attempt=2, cured=False)


def test_repetitions_are_counted_by_what_ended_the_lease_before() -> None:
    story = Story().own(1)
    story.ack(0, story.deliver(0), outcome="retry")
    story.expire(0, story.deliver(0))
    story.ack(0, story.deliver(0)).handle_end(0)
    story.own(2)
    story.deliver(0)
    figures = figures_of(story.events)

    assert figures.repeats == {"retry": 1, "lease ended": 1, "change of owner": 1}
    assert figures.duplicates == {"change of owner": 1}


def test_a_take_over_lasts_from_the_fault_to_the_next_owners_first_hand_out() -> None:
    story = Story().add("own+", **LANE, epoch=1, owner="p")
    fault = {"what": "proxy.kill", "target": "proxy 0", "node_of_target": "n"}
    story.add("nemesis", **fault, phase="begin").own(2)
    story.deliver(0)
    for event, node, t_ns in zip(
        story.events, "nxmm", (0, 10**9, 4 * 10**9, 6 * 10**9), strict=True
    ):
        event.update(node=node, t_ns=t_ns)

    take_over = figures_of(story.events).as_dict()["take_overs"]["proxy.kill"]
    assert take_over == {"queues": 1, "median_s": 5.0, "longest_s": 5.0}
