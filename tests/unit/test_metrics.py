"""Every metric is exported, tells what the statistics tell, and holds no key in a label."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from broker_core.names import Topic
from proxy.core.flow_window import Budget
from proxy.core.group_buffer import PullWish
from proxy.core.ids import LeaseId
from proxy.core.pull_buffer import Holder
from proxy.group_lane import GroupLane
from proxy.lane_counts import TopicCounts
from proxy.lane_listener import Verdicts
from proxy.metrics import (
    CONFIGURATION,
    DELIVERIES,
    PROCESS,
    TOPIC_COUNTERS,
    ProxyCollector,
    definitions,
)
from proxy.topic_rules import rules_of
from tests.support.lanes import GROUP, make_lane
from tests.support.messages import keyed
from tests.support.pipelines import Budgets, pipeline, queue

SECRET = "a-customers-name"
FIGURES = {
    name: 100.0 + index
    for index, name in enumerate(PROCESS)
    if name not in ("memory", "window", "waiting_pulls")
}
ORDERS = Topic("orders")


class Sample(NamedTuple):
    name: str
    labels: tuple[str, ...]  # values, by the labels' names


async def lane_with_work() -> tuple[GroupLane, Budget]:
    """Offset 0 acked, 1 leased with 2 and 3 behind it, 4 retrying, 5 ready; the broker has 8."""
    memory = Budget(100)
    lane = make_lane(memory=memory)
    owned = pipeline(
        rules_of(lane.settings.topics[0]),
        of=queue(3),
        epoch=9,
        budgets=Budgets(memory, lane.leases_of_group),
    )
    lane.add(owned)
    keys = ["first", SECRET, SECRET, SECRET, "failing", "last"]
    lane.on_messages(owned, [keyed(n, key) for n, key in enumerate(keys)], next_offset=6)
    owned.end_offset = 8
    lane.lease(PullWish(Holder(1), None, 3, 1 << 30))
    verdicts = Verdicts("orders", owned.qid, acked=[LeaseId(1), LeaseId(77)], failed=[4])
    lane.settle(verdicts, connection=1)
    lane.presence.waiting_pulls = 4
    lane.close()
    return lane, memory


def scrape(*lanes: GroupLane, memory: Budget) -> tuple[str, dict[Sample, float]]:
    """The text of a scrape, and its values."""
    registry = CollectorRegistry()
    redriven = {(lane.name, "orders"): 6 for lane in lanes}
    bulk = {lane.name: {"bulk_bytes": 7.0, "bulk_held_back": 0.25} for lane in lanes}
    source = {"file": dict.fromkeys(CONFIGURATION, 1.0)}
    sent = {(lane.name, ORDERS): dict.fromkeys(DELIVERIES, 2.0) for lane in lanes}
    registry.register(
        ProxyCollector(
            lanes,
            memory,
            lambda: FIGURES,
            redriven,
            lambda: bulk,
            configuration=lambda: source,
            deliveries=lambda: sent,
        )
    )
    text = generate_latest(registry).decode()
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            values[Sample(sample.name, labels)] = sample.value
    return text, values


async def test_a_rate_limit_shows_this_proxy_s_share_and_what_it_holds_back() -> None:
    lane, memory = await lane_with_work()
    [pipeline] = lane.buffer
    lane.rates.follow(lane.settings.model_copy(update={"max_rate": 0.001}))
    lane.rates.route(ORDERS, [pipeline.queue, queue(9)])
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_rate_limit", (GROUP, ""))] == pytest.approx(0.0005)
    assert values[Sample("orderlane_rate_limited", (GROUP, "orders"))] == 1


async def test_every_definition_has_a_sample_with_its_labels_and_its_kind() -> None:
    lane, memory = await lane_with_work()
    topic = lane.settings.topics[0].model_copy(update={"max_rate": 5.0})
    lane.rates.follow(lane.settings.model_copy(update={"topics": (topic,)}))
    text, values = scrape(lane, memory=memory)
    labels = {"group": GROUP, "topic": "orders", "queue": "broker-a_3", "source": "file"}
    expected = {
        Sample("orderlane_" + each.name, tuple(labels[name] for name in sorted(each.labels)))
        for each in definitions()
    }
    assert values.keys() == expected
    for each in definitions():
        kind = "counter" if each.counter else "gauge"
        assert f"# TYPE orderlane_{each.name} {kind}\n" in text
        assert f"# HELP orderlane_{each.name} {each.help}\n" in text
        assert each.counter == each.name.endswith("_total")


async def test_the_values_of_a_queue_are_those_of_its_statistics() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    place = (GROUP, "broker-a_3", "orders")
    assert {name: value for (name, labels), value in values.items() if labels == place} == {
        "orderlane_consumer_lag_messages": 8,
        "orderlane_unfinished_messages": 5,
        "orderlane_ready_messages": 1,
        "orderlane_inflight": 1,
        "orderlane_retrying_messages": 1,
        "orderlane_blocked_messages": 2,
        "orderlane_spilled_messages": 0,
        "orderlane_uncopied_messages": 0,
        "orderlane_keys": 3,
        "orderlane_paused_keys": 0,
        "orderlane_span_messages": 6,
        "orderlane_near_retention_keys": 0,
        "orderlane_owner_epoch": 9,
    }


async def test_the_values_of_a_topic_are_its_counts() -> None:
    lane, memory = await lane_with_work()
    assert TOPIC_COUNTERS.keys() == {each.name for each in fields(TopicCounts)}
    for number, name in enumerate(TOPIC_COUNTERS):
        setattr(lane.counts[ORDERS], name, number)
    _, values = scrape(lane, memory=memory)
    assert [
        values[Sample("orderlane_" + each.name, (GROUP, "orders"))]
        for each in TOPIC_COUNTERS.values()
    ] == list(range(len(TOPIC_COUNTERS)))


async def test_the_values_of_the_process_are_its_figures() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    for name, value in FIGURES.items():
        assert values[Sample("orderlane_" + PROCESS[name].name, ())] == value
    assert values[Sample("orderlane_memory_used_bytes", ())] == 15
    assert values[Sample("orderlane_window_used_ratio", ())] == 0.15
    assert values[Sample("orderlane_waiting_pulls", (GROUP,))] == 4


async def test_dead_letters_that_went_back_are_counted_by_group_and_topic() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_dlq_redriven_total", (GROUP, "orders"))] == 6


async def test_what_bulk_readers_do_is_counted_by_group() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_bulk_bytes_total", (GROUP,))] == 7
    assert values[Sample("orderlane_bulk_held_back_seconds_total", (GROUP,))] == 0.25


async def test_no_key_stands_in_a_scrape() -> None:
    lane, memory = await lane_with_work()
    assert SECRET not in scrape(lane, memory=memory)[0]


async def test_a_lost_queue_leaves_no_sample_behind() -> None:
    lane, memory = await lane_with_work()
    (owned,) = lane.buffer
    lane.remove(owned)
    assert not [name for name, labels in scrape(lane, memory=memory)[1] if len(labels) == 3]


def test_a_proxy_without_groups_has_all_families() -> None:
    text, values = scrape(memory=Budget(100))
    assert len(values) == len(FIGURES) + len(CONFIGURATION) + 2
    assert text.count("# TYPE") == len(definitions())


def test_names_of_metrics_and_of_figures_are_unique() -> None:
    names = [each.name for each in definitions()]
    assert len(set(names)) == len(names)
