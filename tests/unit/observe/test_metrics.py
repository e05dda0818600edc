"""Every metric is exported, equals the statistics, and has no order key in a label."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from broker_core.clock import now_ns, wall_ms
from broker_core.names import Group, Topic
from proxy.admin.metrics_collector import ProxyCollector
from proxy.core.broadcast.member_group import member_group
from proxy.core.group.group_buffer import PullWish
from proxy.core.group.known_queue import KnownQueue, QueueOwner, Source
from proxy.core.jobs.measures import Measures
from proxy.core.jobs.window import Budget
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.lease_book import Holder
from proxy.core.leases.verdicts import Nack
from proxy.core.pipeline.key_counts import KeyCount, key_counts
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.lane.counts import TopicCounts
from proxy.lane.group_lane import GroupLane
from proxy.lane.topic_rules import rules_of
from proxy.observe.metrics import (
    ACCESS,
    BUILD,
    CONFIGURATION,
    COUNTS_BY,
    DELIVERIES,
    HISTOGRAMS,
    LIMITS,
    PREFIX,
    PROCESS,
    REPLICAS,
    RETENTION,
    SEND_FAILURES,
    SEND_SECONDS,
    SENDS,
    TOPIC_COUNTERS,
    definitions,
)
from testkit.lanes import GROUP, group_settings, make_lane
from testkit.messages import held_bytes, keyed, message
from testkit.pipelines import Budgets, pipeline, queue

SECRET = "a-customers-name"
ACCESS_LABELS = {
    "principal": "ann",
    "token": "ann-2026",
    "setting": "listen.tls",
    "limit": "max_waiting_pulls",
}
FIGURES = {
    name: 100.0 + index
    for index, name in enumerate(PROCESS)
    if name not in ("memory", "window", "waiting_pulls")
}
ORDERS = Topic("orders")


class Sample(NamedTuple):
    name: str
    labels: tuple[str, ...]  # values by label names


async def lane_with_work() -> tuple[GroupLane, Budget]:
    """Return a lane: offset 0 acked, 1 leased with 2 and 3 behind it, 4 retrying, 5 ready; end
    offset 8.
    """
    memory = Budget(100_000)
    lane = make_lane(memory=memory)
    owned = pipeline(
        rules_of(lane.settings.topics[0]),
        of=queue(3),
        epoch=9,
        budgets=Budgets(memory, lane.leases_of_group),
    )
    lane.add(owned)
    keys = ["first", SECRET, SECRET, SECRET, "failing", "last"]
    stored_ms = wall_ms() - 90_000
    messages = [
        message(n, body=b"xyz", key=key, store_ms=stored_ms + n) for n, key in enumerate(keys)
    ]
    lane.on_messages(owned, messages, next_offset=6)
    owned.ends_at(8)
    lane.lease(PullWish(Holder(1), None, 3, 1 << 30), now_ns=now_ns())
    lane.settle("orders", owned.qid, acked=[LeaseId(1), LeaseId(77)])
    lane.settle_by_offset("orders", owned.qid, failed=[4], connection=1)
    lane.presence.waits(None, 4)
    lane.presence.show([ORDERS], shows_all=True)
    lane.rates.route(ORDERS, [queue(3), queue(4)])
    lane.close()
    return lane, memory


class Unowned:
    """One queue of each lane without an owner, read 9 s after its oldest message was stored, one
    without known figures, and one of another proxy.
    """

    def __init__(self, lanes: Sequence[GroupLane]) -> None:
        self._lanes = lanes

    def of(self, lane: GroupLane) -> list[KnownQueue]:
        return [
            KnownQueue(
                queue=queue(5),
                owned=QueueOwner.FREE,
                source=Source.RECORDS,
                ever_owned=True,
                lag=5,
                unfinished=4,
                parked=3,
                parked_keys=2,
                paused_keys=1,
                attempts=7,
                oldest_ms=wall_ms() - 9000,
            ),
            KnownQueue(queue=queue(6)),
            KnownQueue(queue=queue(7), owned=QueueOwner.ELSEWHERE, lag=50),
        ]

    def missed(self, lane: GroupLane) -> frozenset[str]:
        return frozenset()

    def dead_letters(self, group: Group) -> tuple[int | None, int | None]:
        return 8, 1

    def lag_without_clients(self) -> dict[tuple[Group, Topic], int]:
        return {(lane.name, ORDERS): 5 for lane in self._lanes}


def scrape(
    *lanes: GroupLane, memory: Budget, per_queue: bool = True
) -> tuple[str, dict[Sample, float]]:
    """Return the text of a scrape, and its values."""
    registry = CollectorRegistry()
    redriven = {(lane.name, "orders"): 6 for lane in lanes}
    reported = {f"bulk_{each}": 3.0 for each in ("lost", "skipped", "repeated")}
    bulk = {lane.name: {"bulk_bytes": 7.0, "bulk_held_back": 0.25, **reported} for lane in lanes}
    source = {"file": dict.fromkeys(CONFIGURATION, 1.0)}
    sent = {(lane.name, ORDERS): dict.fromkeys(DELIVERIES, 2.0) for lane in lanes}
    limits = {name: {"max_waiting_pulls": 3.0} for name in LIMITS}
    registry.register(
        ProxyCollector(
            lanes,
            memory,
            lambda: FIGURES,
            redriven,
            lambda: bulk,
            configuration=lambda: source,
            deliveries=lambda: sent,
            limits=lambda: limits,
            retention=lambda: {"broker-a": dict.fromkeys(RETENTION, 1.0)},
            replicas=lambda: {"broker-a": dict.fromkeys(REPLICAS, 1.0)},
            unowned=Unowned(lanes),
            per_queue=per_queue,
            access=lambda: [
                (name, [ACCESS_LABELS[label] for label in each.labels], 1)
                for name, each in ACCESS.items()
            ],
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
    lane.rates.route(ORDERS, [pipeline.queue, queue(4)])
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_rate_limit", (GROUP, ""))] == pytest.approx(0.0005)
    assert values[Sample("orderlane_rate_limited", (GROUP, "orders"))] == 1


async def test_every_definition_has_a_sample_with_its_labels_and_its_kind() -> None:
    lane, memory = await lane_with_work()
    topic = lane.settings.topics[0].model_copy(update={"max_rate": 5.0})
    lane.rates.follow(lane.settings.model_copy(update={"topics": (topic,)}))
    text, values = scrape(lane, memory=memory)
    values_of = {"group": [GROUP], "topic": ["orders"]}
    values_of |= {"source": ["file"], "limit": ["max_waiting_pulls"], "broker": ["broker-a"]}
    values_of |= {label: [value] for label, value in ACCESS_LABELS.items()}
    values_of |= {"component": ["proxy"], "version": [version("orderlane")]}
    values_of |= {"python": [platform.python_version()]}
    expected = set()
    for each in definitions():
        if each.values:
            values_of[each.labels[-1]] = [*each.values]
        values_of["queue"] = ["broker-a_5" if each.name.startswith("unowned_") else "broker-a_3"]
        for labels in product(*(values_of[name] for name in sorted(each.labels))):
            if each.bounds:
                for bound in (*(format(bound, "g") for bound in each.bounds), "+Inf"):
                    bounded = (*zip(sorted(each.labels), labels, strict=True), ("le", bound))
                    by_name = tuple(value for _, value in sorted(bounded))
                    expected.add(Sample(f"{PREFIX}{each.name}_bucket", by_name))
                expected.add(Sample(f"{PREFIX}{each.name}_sum", labels))
                expected.add(Sample(f"{PREFIX}{each.name}_count", labels))
            else:
                expected.add(Sample(PREFIX + each.name, labels))
    assert values.keys() == expected
    for each in definitions():
        assert f"# TYPE orderlane_{each.name} {each.kind}\n" in text
        assert f"# HELP orderlane_{each.name} {each.help}\n" in text
        assert each.counter == each.name.endswith("_total")


async def test_the_values_of_a_queue_are_those_of_its_statistics() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    place = (GROUP, "broker-a_3", "orders")
    of_queue = {name: value for (name, labels), value in values.items() if labels == place}
    assert 89.9 <= of_queue.pop("orderlane_lag_seconds") < 150  # the oldest is a ms younger
    assert of_queue.pop("orderlane_commit_age_seconds") > 0
    assert of_queue == {
        "orderlane_consumer_lag_messages": 8,
        "orderlane_unfinished_messages": 5,
        "orderlane_ready_messages": 1,
        "orderlane_inflight": 1,
        "orderlane_retrying_messages": 1,
        "orderlane_blocked_messages": 2,
        "orderlane_spilled_messages": 0,
        "orderlane_uncopied_messages": 0,
        "orderlane_highest_attempts": 1,
        "orderlane_queue_window_used_ratio": 5 / 20_000,
        "orderlane_span_messages": 6,
        "orderlane_near_retention_keys": 0,
        "orderlane_failing_reads": 0,
        "orderlane_damaged_messages": 0,
        "orderlane_owner_epoch": 9,
    }


async def test_the_values_of_a_topic_are_its_counts() -> None:
    lane, memory = await lane_with_work()
    names = {each.name for each in fields(TopicCounts)}
    others = {"measures", "filtered_in_a_row", "keyless_in_a_row", "last_expired_ns"}
    assert TOPIC_COUNTERS.keys() | COUNTS_BY.keys() | others == names
    assert HISTOGRAMS.keys() == {each.name for each in fields(Measures)}
    lane.counts[ORDERS] = TopicCounts(
        dead_lettered=Counter(exhausted=3, missing_key=1),
        **{name: number for number, name in enumerate(TOPIC_COUNTERS)},
    )
    _, values = scrape(lane, memory=memory)
    assert [
        values[Sample("orderlane_" + each.name, (GROUP, "orders"))]
        for each in TOPIC_COUNTERS.values()
    ] == list(range(len(TOPIC_COUNTERS)))
    assert values[Sample("orderlane_dlq_total", (GROUP, "exhausted", "orders"))] == 3
    assert values[Sample("orderlane_dlq_total", (GROUP, "missing_key", "orders"))] == 1


async def test_the_values_of_the_process_are_its_figures() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    for name, value in FIGURES.items():
        assert values[Sample("orderlane_" + PROCESS[name].name, ())] == value
    keys = (SECRET, SECRET, SECRET, "failing", "last")
    held = sum(held_bytes(message(0, body=b"xyz", key=key), key) for key in keys)
    assert values[Sample("orderlane_memory_used_bytes", ())] == held
    assert values[Sample("orderlane_window_used_ratio", ())] == held / 100_000
    assert values[Sample("orderlane_waiting_pulls", (GROUP,))] == 4


async def test_dead_letters_that_went_back_are_counted_by_group_and_topic() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_dlq_redriven_total", (GROUP, "orders"))] == 6


async def test_bulk_reads_are_counted_by_group() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_bulk_bytes_total", (GROUP,))] == 7
    assert values[Sample("orderlane_bulk_held_back_seconds_total", (GROUP,))] == 0.25


async def test_no_key_stands_in_a_scrape() -> None:
    lane, memory = await lane_with_work()
    assert SECRET not in scrape(lane, memory=memory)[0]
    assert not any("key" in label for each in definitions() for label in each.labels)


async def test_without_series_of_queues_their_values_are_those_of_the_topic() -> None:
    """An empty label is no label for Prometheus."""
    lane, memory = await lane_with_work()
    second = pipeline(rules_of(lane.settings.topics[0]), of=queue(4), epoch=11)
    lane.add(second)
    lane.on_messages(second, [message(0, store_ms=wall_ms() - 200_000)], next_offset=1)
    second.ends_at(3)
    _, each = scrape(lane, memory=memory)
    _, values = scrape(lane, memory=memory, per_queue=False)
    lane.close()
    place = (GROUP, "", "orders")
    by_topic = {name for name, labels in values if labels == place and "_unowned_" not in name}
    by_queue = {name for name, labels in each if labels == (GROUP, "broker-a_4", "orders")}
    assert by_topic == by_queue - {"orderlane_owner_epoch"}
    assert values[Sample("orderlane_consumer_lag_messages", place)] == 8 + 3
    assert values[Sample("orderlane_ready_messages", place)] == 1 + 1
    assert 200 <= values[Sample("orderlane_lag_seconds", place)] < 260
    assert values[Sample("orderlane_queue_window_used_ratio", place)] == 5 / 20_000
    assert values[Sample("orderlane_keys", (GROUP, "", "ready", "orders"))] == 1 + 1
    assert not any("broker-a_4" in labels for _, labels in values)
    assert values[Sample("orderlane_owned_queues", (GROUP, "orders"))] == 2


async def test_a_queue_whose_window_is_full_behind_few_keys_is_counted() -> None:
    topic = group_settings().topics[0].model_copy(update={"max_jobs_in_memory": 10})
    lane = make_lane(group_settings().model_copy(update={"topics": (topic,)}))
    owned = pipeline(rules_of(topic), of=queue(3))
    lane.add(owned)
    place = Sample("orderlane_head_blocked_queues", (GROUP, "orders"))
    lane.on_messages(owned, [keyed(n, "stuck") for n in range(8)], next_offset=8)
    assert scrape(lane, memory=Budget(1000))[1][place] == 0
    lane.on_messages(owned, [keyed(8, "stuck")], next_offset=9)
    assert scrape(lane, memory=Budget(1000))[1][place] == 1
    lane.close()


async def test_keys_are_counted_by_the_state_of_their_first_message() -> None:
    lane, memory = await lane_with_work()
    (owned,) = lane.buffer
    lane.on_messages(owned, [keyed(n, key) for n, key in ((6, "away"), (7, "x"))], next_offset=8)
    owned.pause(b"away", PausedKey(0))
    owned.parked[b"x"] = ParkedKey(7, owned.epoch)
    _, values = scrape(lane, memory=memory)
    counts = {
        state: values[Sample("orderlane_keys", (GROUP, "broker-a_3", state, "orders"))]
        for state in KeyCount
    }
    assert counts == {
        "ready": 1,
        "running": 1,
        "retrying": 1,
        "blocked": 0,
        "paused": 1,
        "parked": 1,
    }
    owned.pause(EVERYTHING, PausedKey(0))
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_keys", (GROUP, "broker-a_3", "paused", "orders"))] == 2


async def test_keyless_messages_are_no_keys() -> None:
    lane = make_lane(group_settings(order_key="$.id", missing_key="unordered"))
    owned = pipeline(rules_of(lane.settings.topics[0]), of=queue(3))
    lane.add(owned)
    bodies = [b"{}", b"{}", b'{"id": "a"}', b'{"id": "a"}']
    lane.on_messages(owned, [message(n, body=it) for n, it in enumerate(bodies)], next_offset=4)
    counts = key_counts(owned)
    lane.close()
    assert (counts[KeyCount.READY], counts[KeyCount.BLOCKED], sum(counts.values())) == (1, 0, 1)
    assert lane.counts[ORDERS].missing_keys == {"unordered": 2}


async def test_the_share_of_the_hottest_keys_is_that_of_their_hand_outs() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)  # three deliveries of three keys
    assert values[Sample("orderlane_hot_key_share", (GROUP, "1", "orders"))] == pytest.approx(1 / 3)
    assert values[Sample("orderlane_hot_key_share", (GROUP, "10", "orders"))] == 1


async def test_histograms_count_each_hand_out_and_each_verdict() -> None:
    lane, memory = await lane_with_work()
    (owned,) = lane.buffer
    place = (GROUP, "orders")
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_queue_wait_seconds_count", place)] == 3
    assert values[Sample("orderlane_handler_seconds_count", place)] == 2
    assert values[Sample("orderlane_attempts_count", place)] == 1
    assert values[Sample("orderlane_key_wait_seconds_count", place)] == 0
    lane.settle("orders", owned.qid, acked=[LeaseId(2)], nacked=[Nack(LeaseId(99))])
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_key_wait_seconds_count", place)] == 1
    assert values[Sample("orderlane_attempts_bucket", (GROUP, "1", "orders"))] == 2


async def test_queues_of_a_topic_are_counted_while_the_proxy_is_in_its_group() -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_topic_queues", (GROUP, "orders"))] == 2
    lane.presence.leave()
    _, values = scrape(lane, memory=memory)
    assert Sample("orderlane_topic_queues", (GROUP, "orders")) not in values
    assert values[Sample("orderlane_group_joined", (GROUP,))] == 0


async def test_a_broadcast_group_is_joined_while_one_of_its_clients_is() -> None:
    broadcast, member = (
        make_lane(group_settings("all", mode="broadcast")),
        make_lane(group_settings(member_group("all", "desk 1"))),
    )
    place = Sample("orderlane_group_joined", ("all",))
    assert scrape(broadcast, member, memory=Budget(1000))[1][place] == 0
    member.presence.show([ORDERS], shows_all=True)
    assert scrape(broadcast, member, memory=Budget(1000))[1][place] == 1
    clustering = make_lane(group_settings("all"))
    assert scrape(clustering, member, memory=Budget(1000))[1][place] == 0


async def test_nothing_waits_for_a_commit_where_all_is_committed() -> None:
    lane, memory = await lane_with_work()
    (owned,) = lane.buffer
    owned.committed_at(owned.committable, now_ns())
    _, values = scrape(lane, memory=memory)
    assert values[Sample("orderlane_commit_age_seconds", (GROUP, "broker-a_3", "orders"))] == 0


@pytest.mark.parametrize("per_queue", [True, False])
async def test_queues_without_an_owner_have_samples_unless_nothing_is_known(
    *, per_queue: bool
) -> None:
    lane, memory = await lane_with_work()
    _, values = scrape(lane, memory=memory, per_queue=per_queue)
    found = {name: value for name, value in values.items() if "_unowned_" in name.name}
    queue_label = "broker-a_5" if per_queue else ""
    place = (GROUP, queue_label, "orders")
    age = found.pop(Sample("orderlane_unowned_lag_seconds", place))
    assert age == pytest.approx(9, abs=1)
    assert found == {
        Sample("orderlane_unowned_queues", (GROUP, "orders")): 2,
        Sample("orderlane_unowned_unfinished_messages", place): 4,
        Sample("orderlane_unowned_parked_messages", place): 3,
        Sample("orderlane_unowned_highest_attempts", place): 7,
        Sample("orderlane_unowned_keys", (GROUP, queue_label, "parked", "orders")): 2,
        Sample("orderlane_unowned_keys", (GROUP, queue_label, "paused", "orders")): 1,
    }
    assert values[Sample("orderlane_dead_letters", (GROUP,))] == 8


@pytest.mark.parametrize("per_queue", [True, False])
async def test_the_lag_at_a_broker_that_does_not_confirm_the_lock_is_unknown(
    per_queue: bool,
) -> None:
    """More messages may be there by now, and a sum would lack them."""
    lane, memory = await lane_with_work()
    silent = pipeline(rules_of(lane.settings.topics[0]), of=queue(4), trusted_until_ns=now_ns() - 1)
    lane.add(silent)
    silent.ends_at(3)
    _, values = scrape(lane, memory=memory, per_queue=per_queue)
    lags = {labels for name, labels in values if name == "orderlane_consumer_lag_messages"}
    assert lags == ({(GROUP, "broker-a_3", "orders")} if per_queue else set())
    ready = {labels for name, labels in values if name == "orderlane_ready_messages"}
    assert (GROUP, "broker-a_4" if per_queue else "", "orders") in ready


async def test_a_bug_with_one_group_costs_no_samples_of_others() -> None:
    lane, memory = await lane_with_work()
    faulty: Any = SimpleNamespace(name="faulty")  # it has no figures
    _, values = scrape(faulty, lane, memory=memory)
    assert values[Sample("orderlane_waiting_pulls", (GROUP,))] == 4
    assert values[Sample("orderlane_unowned_queues", (GROUP, "orders"))] == 2


async def test_a_lost_queue_leaves_no_sample_behind() -> None:
    lane, memory = await lane_with_work()
    (owned,) = lane.buffer
    lane.remove(owned)
    queues = [labels for _, labels in scrape(lane, memory=memory)[1] if "broker-a_3" in labels]
    assert queues == []


def test_a_proxy_without_groups_has_all_families() -> None:
    text, values = scrape(memory=Budget(100))
    of_labels = sum(map(len, (CONFIGURATION, LIMITS, ACCESS, RETENTION, REPLICAS, SENDS)))
    of_sends = len(SEND_FAILURES.values) + len(SEND_SECONDS.bounds) + 3
    assert len(values) == len(FIGURES) + of_labels + of_sends + len((BUILD, *"mw"))
    assert text.count("# TYPE") == len(definitions())


def test_names_of_metrics_and_of_figures_are_unique() -> None:
    names = [each.name for each in definitions()]
    assert len(set(names)) == len(names)
