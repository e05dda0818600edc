"""Times that clients reported, and plans made of them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from statistics import fmean

import pytest

from proxy.core.jobs.hand_out import HandOut
from proxy.tuning.handling import Handling
from proxy.tuning.observed_times import ObservedTimes
from proxy.tuning.service_times import ServiceTimes
from thin_client.figures import class_of

MS = 1_000_000
DRAWN = [ServiceTimes(4, 40, seed=3).ns(0, offset) for offset in range(20_000)]
COUNTS = Counter(map(class_of, DRAWN))


def test_observed_times_have_the_figures_of_those_that_were_counted() -> None:
    observed = ObservedTimes.of(COUNTS)

    assert observed.number == len(DRAWN)
    assert observed.mean_ms == pytest.approx(fmean(DRAWN) / MS, rel=0.01)
    assert observed.percentile_ms(50) == pytest.approx(4, rel=0.05)
    assert observed.percentile_ms(99) == pytest.approx(40, rel=0.08)


def test_the_messages_of_each_key_take_the_average_time() -> None:
    """A sum of as many random times would be 30 % off as often as not."""
    keys = [b"hot" if number % 2 else b"%d" % (number % 40) for number in range(4000)]
    observed = ObservedTimes.of(COUNTS)
    times = observed.in_chains_ns(0, keys)
    hot = [each for key, each in zip(keys, times, strict=True) if key == b"hot"]

    assert fmean(hot) / MS == pytest.approx(observed.mean_ms, rel=0.02)
    assert fmean(times) / MS == pytest.approx(observed.mean_ms, rel=0.03)
    assert max(hot) / MS > observed.percentile_ms(99.5)
    assert times == ObservedTimes.of(COUNTS).in_chains_ns(0, keys)
    assert times != ObservedTimes.of(COUNTS, seed=2).in_chains_ns(0, keys)


def test_draws_are_spread_over_the_distribution() -> None:
    observed = ObservedTimes.of(COUNTS)
    drawn = list(islice(observed.draws_ns(), 1000))

    assert fmean(drawn) / MS == pytest.approx(observed.mean_ms, rel=0.02)
    assert max(drawn) / MS > observed.percentile_ms(99.5)


def test_no_times_are_no_distribution() -> None:
    with pytest.raises(ValueError, match="no times were observed"):
        ObservedTimes.of({})


def handling(*, times: int = 1000, round_trips: int = 50, clients: int = 2) -> Handling:
    return Handling(
        clients=clients,
        handlers=16 * clients,
        prefetch=8 * clients,
        times={class_of(5 * MS): times},
        round_trips={class_of(2 * MS): round_trips},
    )


def test_answers_of_several_proxies_are_summed() -> None:
    one, other = handling(), handling(times=1)
    both = Handling.merged([one.as_dict(), other.as_dict()])

    assert (both.clients, both.handlers, both.prefetch) == (4, 64, 32)
    assert (both.times, both.round_trips) == (
        {class_of(5 * MS): 1001},
        {class_of(2 * MS): 100},
    )


def test_a_plan_has_the_clients_that_reported() -> None:
    plan = handling().plan(None, None, round_trip_ns=None, hand_out=HandOut.LONGEST_CHAIN)

    assert (plan.workers, plan.clients, plan.prefetch) == (32, 2, 8)
    assert plan.round_trip_ns == pytest.approx(2 * MS, rel=0.04)
    assert plan.round_trips == ObservedTimes.of({class_of(2 * MS): 50})
    assert plan.service.mean_ms == pytest.approx(5, rel=0.04)
    assert (plan.handlers(), plan.hand_out) == ([16, 16], HandOut.LONGEST_CHAIN)


def test_given_values_go_before_those_reported() -> None:
    service = ServiceTimes(7, 7)
    plan = handling().plan(3, service, round_trip_ns=5)
    assert (plan.workers, plan.service, plan.round_trip_ns) == (3, service, 5)
    assert sum(plan.handlers()) == 3


def test_too_few_reports_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"handling times of 99 messages, and at least 100"):
        handling(times=99).plan(None, None, round_trip_ns=1)
    with pytest.raises(ValueError, match="did not report their handlers"):
        Handling().plan(None, ServiceTimes(1, 1), round_trip_ns=1)
    assert not handling(round_trips=19).knows_round_trip
