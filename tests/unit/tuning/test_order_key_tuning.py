"""Candidates in bodies, samples, service times, and explanations of simulations."""

from __future__ import annotations

import statistics
from types import SimpleNamespace

import orjson
import pytest

from proxy.core.keys.kinds.registry import candidates_in, compile_order_key, look_each
from proxy.tuning.sample import Sample
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulation import Waits, simulate
from proxy.tuning.simulator import Plan, play
from testkit.messages import message as stored_message
from tests.support.samples import by_key, sample_of


def message(document: object, *, key: str | None = None) -> SimpleNamespace:
    body = document if isinstance(document, bytes) else orjson.dumps(document)
    return SimpleNamespace(key=key, body=body, properties={"tenant": "a"} if key else {})


def test_candidates_are_paths_to_texts_and_whole_numbers() -> None:
    document = {
        "id": 7,
        "paid": True,
        "price": 1.5,
        "lines": [{"id": 1}],
        "none": None,
        "customer": {"name": "a", "address": {"city": "b"}},
        "order id": "x",
        "it's": "y",
    }
    found = candidates_in([message(document), message({"id": 8}), message(b"no json")])

    assert found == ["QID", "$.id", "$.customer.name", "$.customer.address.city", "$['order id']"]
    assert [compile_order_key(each).text for each in found] == found
    assert candidates_in([stored_message(0, body=b"[]", key="k")]) == ["QID", "KEY"]


def test_candidates_are_not_looked_for_too_deep_and_not_too_many() -> None:
    deep = {"a": {"b": {"c": {"d": 1, "e": {"f": 2}}}}}
    assert candidates_in([message(deep)]) == ["QID", "$.a.b.c.d"]
    wide = {f"f{number}": number for number in range(100)}
    assert len(candidates_in([message(wide)])) == 25


def test_properties_of_applications_are_candidates_and_those_of_rocketmq_are_not() -> None:
    stored = [
        stored_message(n, key="k", tag="t", WAIT="true", tenant="a", trace=str(n % 2 or ""))
        for n in range(4)
    ]
    assert candidates_in(stored) == ["QID", "KEY", "PROPERTY:tenant", "PROPERTY:trace"]


def test_one_pass_over_a_body_equals_each_single_rule() -> None:
    texts = ("QID", "KEY", "$.id", "$.a.b", "$..id", "PROPERTY:tenant")
    rules = [compile_order_key(text) for text in texts]
    nested = b"[" * 2000
    for each in ({"id": 1}, {"a": {"b": "x"}}, {"id": None}, [], b"", b"no json", nested):
        looked_at = message(each, key="k")
        assert look_each(rules, looked_at) == [rule.look(looked_at) for rule in rules]


def test_a_sample_keeps_each_key_once_and_reports_as_a_profile_does() -> None:
    sample = Sample(["KEY", "$.id"])
    for number in range(200):
        sample.add(
            message({"id": str(number % 3)}, key=f"k{number % 10}"),
            queue=f"broker-a_{number % 2}",
            offset=number,
            stored_ms=number,
        )

    column = [key for queue in sample.queues.values() for key in queue.keys[1]]
    assert len({id(key) for key in column}) == 3
    assert len(sample) == 200
    by_number, by_id = sample.report(source="x", workers=64).candidates
    assert (by_number.keys, by_number.chains, by_number.scattered_keys) == (10, 10, 0)
    assert (by_id.keys, by_id.chains, by_id.scattered_keys) == (3, 6, 3)


@pytest.mark.parametrize("text", ["p50=3,p99=80", "p50=3, p99=80"])
def test_service_times_have_their_percentiles_and_follow_from_the_place(text: str) -> None:
    service = ServiceTimes.parse(text, seed=4)
    times = [service.ns(queue, offset) / 1e6 for queue in range(4) for offset in range(20_000)]

    quantiles = statistics.quantiles(times, n=100)
    assert quantiles[49] == pytest.approx(3, rel=0.03)
    assert quantiles[98] == pytest.approx(80, rel=0.08)
    assert statistics.fmean(times) == pytest.approx(service.mean_ms, rel=0.03)
    assert times[:10] == [ServiceTimes.parse(text, seed=4).ns(0, each) / 1e6 for each in range(10)]
    assert times[:10] != [ServiceTimes.parse(text, seed=5).ns(0, each) / 1e6 for each in range(10)]
    assert abs(statistics.correlation(times[:-1], times[1:])) < 0.02


def test_a_plain_service_time_is_always_the_same() -> None:
    service = ServiceTimes.parse("2.5")

    assert {service.ns(0, offset) for offset in range(100)} == {2_500_000}
    assert (str(service), service.mean_ms) == ("2.5 ms", 2.5)


@pytest.mark.parametrize(
    "text", ["", "fast", "0", "-1", "nan", "inf", "p50=3", "p50=9,p99=3", "p50=0,p99=1", "1e12"]
)
def test_other_service_times_are_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="service time") as refused:
        ServiceTimes.parse(text)
    assert "\n" not in str(refused.value)


def test_a_candidate_that_the_sample_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="not a candidate of this sample"):
        play(sample_of([["a"]]), "$.id", by_key(), Plan(1, ServiceTimes(1, 1)))


def test_percentiles_of_waits_are_those_of_messages() -> None:
    played = play(sample_of([["a"] * 100]), "KEY", by_key(), Plan(4, ServiceTimes(10, 10), 0))
    waits = Waits.of(played.key_waits_ns)

    assert (waits.share, waits.p50_ms, waits.p90_ms) == (0.99, 490, 890)
    assert (waits.p99_ms, waits.max_ms) == (980, 990)


def test_the_best_is_named_with_its_reasons() -> None:
    """KEY is best; QID keeps order and is slower; an unsuitable key is named as such."""
    sample = Sample(["QID", "KEY", "$.c"])
    for number in range(600):
        queue = number % 2
        sample.add(
            message({"c": number % 3}, key=f"q{queue}k{number % 20}"),
            queue=f"broker-a_{queue}",
            offset=number // 2,
            stored_ms=number,
        )
    plan = Plan(8, ServiceTimes(10, 10), 0)
    lint = sample.report(source="orders", workers=8)
    told: list[str] = []
    report = simulate(
        sample, by_key(), plan, lint=lint, on_run=lambda run: told.append(run.candidate)
    )

    assert told == list(sample.candidates)
    assert report.take == "KEY"
    assert [each.candidate for each in report.candidates] == ["KEY", "$.c", "QID"]
    assert report.ideal_s == pytest.approx(0.75)
    first, *others = report.why
    assert first.startswith("KEY processes 600 messages in 750 ms, that is ")
    assert "QID takes 4.0 times as long: 2.0 handlers are busy." in others
    assert any("whatever their times: $.c;" in each for each in others)


def test_a_key_of_each_message_its_own_is_no_advice_where_another_keeps_order() -> None:
    plan = Plan(8, ServiceTimes(10, 10), 0)
    for paths, taken in ((["$.n", "KEY"], "KEY"), (["$.n"], "$.n")):
        sample = Sample(paths)
        for number in range(60):
            sample.add(
                message({"n": number}, key=f"k{number % 5}"),
                queue="broker-a_0",
                offset=number,
                stored_ms=number,
            )
        lint = sample.report(source="orders", workers=8)
        report = simulate(sample, by_key(), plan, lint=lint)

        assert (lint.advice.take, report.take) == (taken, taken)
        cautions = {each.candidate: each.cautions for each in lint.advice.judgements}
        assert cautions["$.n"][0].endswith("or the sample is too small to tell")
        if taken == "KEY":
            assert report.candidates[0].candidate == "$.n"  # the fastest, because it orders nothing
            assert any("With $.n almost every" in each for each in report.why)


def test_without_a_fit_candidate_none_is_named() -> None:
    sample = Sample(["$.c"])
    sample.add(message({}), queue="broker-a_0", offset=0, stored_ms=0)
    plan = Plan(8, ServiceTimes(10, 10), 0)
    lint = sample.report(source="orders", workers=8)
    report = simulate(sample, by_key(), plan, lint=lint)

    assert (report.take, list(report.why)) == (None, [lint.advice.why])
