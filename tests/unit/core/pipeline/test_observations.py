"""Measures of messages and events of keys."""

from __future__ import annotations

from proxy.core.jobs.chains import Job, JobChains
from proxy.core.jobs.measures import Measures
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.pipeline.observations import Observations
from proxy.core.pipeline.recent_keys import HotKeys, KeyEvent


def leased(job: Job, holder: Holder) -> Lease:
    return Lease(LeaseId(1), job, holder, 10, 0, 10)


def test_an_event_says_when_and_to_which_message_it_happened() -> None:
    observed = Observations(JobChains())
    observed.now.set(7)
    observed.note(Job(3, b"a", attempts=2), "failed", "no stock")

    assert observed.events.of(b"a") == [KeyEvent(7, "failed", 3, 2, "no stock")]
    assert b"a" in observed.noted_keys


def test_of_messages_without_a_key_nothing_is_noted() -> None:
    observed = Observations(JobChains())
    observed.note(Job(3, None), "failed", "no stock")

    assert not observed.noted_keys


def test_hand_outs_are_noted_of_keys_to_which_something_happened() -> None:
    observed = Observations(JobChains())
    named, other = leased(Job(0, b"a"), Holder(4, "ann")), leased(Job(1, b"b"), Holder(4))
    observed.handed_out([named, other])
    assert not observed.noted_keys, "nothing happened to either"

    observed.note(named.job, "failed", "")
    observed.handed_out([named, other, leased(named.job, Holder(4))])

    details = [(event.what, event.detail) for event in observed.events.of(b"a")]
    assert details == [("failed", ""), ("delivered", "to ann"), ("delivered", "to connection 4")]
    assert observed.events.of(b"b") == []


def test_the_time_is_that_of_the_chains() -> None:
    chains = JobChains()
    observed = Observations(chains)
    chains.submit(Job(0, b"a"))
    waiting = Job(1, b"a")
    observed.now.set(5)
    chains.submit(waiting)

    assert waiting.since_ns == 5


def test_waits_in_chains_are_measured_in_the_same_place() -> None:
    chains, measures = JobChains(), Measures()
    observed = Observations(chains)
    observed.measure_by(measures)
    observed.now.set(5)
    chains.submit(Job(0, b"a"))
    chains.submit(Job(1, b"a"))
    first = chains.poll()
    assert first is not None
    observed.now.set(9)
    chains.finish(first)

    assert observed.measures is measures
    assert measures.key_wait.total == 4


def test_hot_keys_are_counted_on_where_no_others_are_given() -> None:
    observed, hot = Observations(JobChains()), HotKeys()
    observed.measure_by(Measures(), hot=hot)
    observed.measure_by(Measures())

    assert observed.hot is hot
