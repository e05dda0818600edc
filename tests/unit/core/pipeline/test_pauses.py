"""Pauses of a queue, and jobs that are set aside for them."""

from __future__ import annotations

from broker_core.names import Topic
from proxy.core.jobs.chains import Job
from proxy.core.jobs.tracked_dict import TrackedDict
from proxy.core.pipeline.pauses import GroupPauses, Pauses
from proxy.core.records.paused_key import EVERYTHING, PausedKey

TOPIC, OTHER = Topic("orders"), Topic("payments")
HOW = PausedKey(1, "ada", "so")


def test_a_key_is_paused_once_and_resumed_once() -> None:
    pauses = Pauses(TrackedDict())

    assert pauses.pause(b"a", HOW)
    assert not pauses.pause(b"a", PausedKey(2))
    assert pauses.keys == {b"a": HOW}
    assert pauses.resume(b"a") == HOW
    assert pauses.resume(b"a") is None


def test_a_group_is_paused_while_a_queue_of_it_is_paused_as_a_whole() -> None:
    pauses, group = Pauses(TrackedDict()), GroupPauses()
    pauses.register_in(group, TOPIC)

    pauses.pause(b"a", HOW)
    assert (group.whole, pauses.whole) == (None, None)
    pauses.pause(EVERYTHING, HOW)
    assert (group.whole, pauses.whole) == (HOW, HOW)
    pauses.resume(EVERYTHING)
    assert (group.whole, pauses.whole) == (None, None)


def test_a_group_lists_the_paused_keys_of_a_topic_as_long_as_a_queue_has_them() -> None:
    first, second = (Pauses(TrackedDict({b"a": HOW, EVERYTHING: HOW})) for _ in range(2))
    group = GroupPauses()
    for each in (first, second):
        each.register_in(group, TOPIC)
    assert group.keys(TOPIC) == {b"a": HOW}
    assert group.keys(OTHER) == {}

    first.resume(b"a")
    assert group.keys(TOPIC) == {b"a": HOW}
    second.resume(b"a")
    assert group.keys(TOPIC) == {}
    second.pause(b"b", HOW)
    assert group.keys(TOPIC) == {b"b": HOW}

    second.unregister()
    assert (group.keys(TOPIC), group.whole) == ({}, HOW)
    first.unregister()
    second.pause(b"c", HOW)
    assert (group.keys(TOPIC), group.whole) == ({}, None)


def test_a_job_is_set_aside_only_while_its_key_is_paused() -> None:
    pauses = Pauses(TrackedDict({b"a": HOW}))
    paused, other, unordered = Job(1, b"a"), Job(2, b"b"), Job(3, None)

    assert [pauses.set_aside(job) for job in (paused, other, unordered)] == [True, False, False]
    assert pauses.has(paused)
    assert pauses.take(b"a") is None, "it is paused still"
    pauses.resume(b"a")
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
    pauses.pause(b"a", HOW)

    job = Job(1, b"a")
    assert twins.set_aside(job)
    assert not pauses.has(job)
