"""The delivery policy of a group in the simulation: backlogs of keys of different sizes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from random import Random
from types import SimpleNamespace

import pytest

from proxy.core.jobs.hand_out import HandOut
from proxy.core.keys.topic_rules import TopicRules
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulator import Plan, Played, play
from testkit.pipelines import rules

_WORKERS, _SERVICE_MS = 16, 10


def backlog(keys: Iterable[int], *, queues: int) -> Sample:
    """Return messages of *keys*, each key in one queue."""
    sample = Sample(("KEY",))
    ends = [count() for _ in range(queues)]
    for number, key in enumerate(keys):
        queue = key % queues
        message = SimpleNamespace(key=f"key-{key}", body=b"")
        sample.add(message, queue=f"b_{queue}", offset=next(ends[queue]), stored_ms=number)
    return sample


def played(
    sample: Sample, policy: HandOut, known: TopicRules | None = None, *, workers: int = _WORKERS
) -> Played:
    service = ServiceTimes.parse(str(_SERVICE_MS), seed=1)
    return play(sample, "KEY", known or rules(), Plan(workers, service, hand_out=policy))


def of_ceiling(sample: Sample, policy: HandOut, *, workers: int = _WORKERS) -> float:
    """Return the share of the time in which handlers worked."""
    found = played(sample, policy, workers=workers)
    return found.work_ns / (found.total_ns * workers)


def test_the_longest_chain_first_keeps_handlers_busy_to_the_end() -> None:
    """1,000 keys with four messages on average, as in the benchmark ``keyed``."""
    gains = 0.0
    for seed in range(3):
        chance = Random(seed)
        sample = backlog((chance.randrange(1000) for _ in range(4000)), queues=8)
        oldest, longest = (of_ceiling(sample, policy, workers=64) for policy in HandOut)
        assert longest >= 0.97
        gains += longest - oldest
    assert gains > 0.1


def test_the_longest_chain_of_all_queues_never_waits_for_the_turn_of_its_queue() -> None:
    """One key has a sixteenth of the messages, as many as handlers can do meanwhile."""
    chance = Random(1)
    keys = [0] * 100 + [chance.randrange(1, 200) for _ in range(1500)]
    chance.shuffle(keys)
    sample = backlog(keys, queues=32)
    oldest, longest = (of_ceiling(sample, policy) for policy in HandOut)
    assert longest > 1.1 * oldest


def test_chains_that_are_spilled_count_in_full() -> None:
    """With room for 100 messages of a queue, most of the long chains are not in memory."""
    keys = [number % 4 for number in range(600)] + [*range(4, 600)]
    sample = backlog(keys, queues=2)
    small = rules(max_jobs=100, max_jobs_per_key=4)
    times = [played(sample, policy, small).total_ns for policy in HandOut]
    assert times[1] <= times[0]


@pytest.mark.parametrize("policy", HandOut)
def test_each_policy_handles_every_message_once(policy: HandOut) -> None:
    chance = Random(4)
    keys = [int(chance.paretovariate(0.7)) % 90 for _ in range(2000)]
    assert len(played(backlog(keys, queues=4), policy).key_waits_ns) == len(keys)
