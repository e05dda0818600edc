"""Pauses of a queue, and jobs that are set aside for them."""

from __future__ import annotations

from broker_core.names import QueueName
from proxy.core.jobs.chains import Job
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.pipeline.pauses import Pauses
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from testkit.pipelines import queue

HOW = PausedKey(1, "ada", "so")


def test_a_key_is_paused_once_and_resumed_once() -> None:
    pauses = Pauses(TrackedDict())

    assert pauses.pause(queue(), b"a", HOW)
    assert not pauses.pause(queue(), b"a", PausedKey(2))
    assert pauses.keys == {b"a": HOW}
    assert pauses.resume(queue(), b"a") == HOW
    assert pauses.resume(queue(), b"a") is None


def test_the_group_lists_queues_paused_as_a_whole() -> None:
    pauses = Pauses(TrackedDict())
    told: dict[object, PausedKey] = {}
    pauses.register_in(queue(), told, {})

    pauses.pause(queue(), b"a", HOW)
    assert (told, pauses.whole) == ({}, None)
    pauses.pause(queue(), EVERYTHING, HOW)
    assert (told, pauses.whole) == ({queue(): HOW}, HOW)
    pauses.resume(queue(), EVERYTHING)
    assert (told, pauses.whole) == ({}, None)


def test_the_group_lists_queues_with_paused_keys() -> None:
    pauses = Pauses(TrackedDict({b"a": HOW, EVERYTHING: HOW}))
    told: dict[QueueName, Pauses] = {}
    pauses.register_in(queue(), {}, told)
    assert (told, dict(pauses.single_keys())) == ({queue(): pauses}, {b"a": HOW})

    pauses.resume(queue(), b"a")
    assert told == {}
    pauses.pause(queue(), b"b", HOW)
    assert told == {queue(): pauses}


def test_a_job_is_set_aside_only_while_its_key_is_paused() -> None:
    pauses = Pauses(TrackedDict({b"a": HOW}))
    paused, other, unordered = Job(1, b"a"), Job(2, b"b"), Job(3, None)

    assert [pauses.set_aside(job) for job in (paused, other, unordered)] == [True, False, False]
    assert pauses.has(paused)
    assert pauses.take(b"a") is None, "it is paused still"
    pauses.resume(queue(), b"a")
    assert pauses.take(b"a") is paused
    assert pauses.take(b"a") is None


def test_a_job_that_an_operator_took_is_set_aside_no_longer() -> None:
    pauses = Pauses(TrackedDict({b"a": HOW}))
    first, second = Job(1, b"a"), Job(2, b"a")
    pauses.set_aside(first)

    pauses.forget(second)
    assert pauses.has(first), "another job of the key changes nothing"
    pauses.forget(first)
    assert not pauses.has(first)


def test_a_twin_is_paused_with_its_queue_but_sets_its_own_jobs_aside() -> None:
    pauses = Pauses(TrackedDict())
    twins = Pauses(pauses.keys)
    pauses.pause(queue(), b"a", HOW)

    job = Job(1, b"a")
    assert twins.set_aside(job)
    assert not pauses.has(job)
