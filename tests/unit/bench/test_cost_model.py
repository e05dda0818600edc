from __future__ import annotations

from dataclasses import replace

import pytest

from bench import scale_document
from bench.cost_model import Load, Machine, broker_use, disk_use, proxy_use, requests_s, sizing

COSTS = {
    **dict.fromkeys(("message_256_proxy_us", "message_1_proxy_us"), 10.0),
    **dict.fromkeys(("message_256_broker_us", "message_1_broker_us"), 2.0),
    "sent_broker_us": 5.0,
    "active_proxy_us_s": 500.0,
    "active_broker_us_s": 400.0,
    "client_proxy_us_s": 20.0,
    "client_proxy_bytes": 30_000.0,
    "queue_proxy_bytes": 30_000.0,
    "group_proxy_us_s": 300.0,
    "group_proxy_bytes": 200_000.0,
    "proxy_bytes": 80e6,
    "lock_us": 60.0,
    "locked_queue_us": 3.0,
    "heartbeat_us": 60.0,
    "list_us": 40.0,
    "listed_member_us": 0.1,
}
LOAD = Load(messages_s=1e5)


def test_a_cluster_has_the_planned_reserve_and_not_much_more() -> None:
    found = sizing(COSTS, LOAD)
    assert all(use <= 0.6 for _, use in found.loads)
    assert proxy_use(COSTS, LOAD, found.proxies - 1, found.queues) > 0.6
    assert found.queues % found.brokers == 0
    assert found.queues >= 8 * found.proxies


def test_what_gives_out_first_is_the_fullest() -> None:
    found = sizing(COSTS, LOAD)
    uses = [use for _, use in found.loads]
    assert uses == sorted(uses, reverse=True)
    assert (found.first, found.second) == (found.loads[0][0], found.loads[1][0])
    slow = sizing(COSTS, replace(LOAD, body_bytes=1_000_000), Machine(disk_bytes_s=100e6))
    assert slow.first == "disks of the brokers"


@pytest.mark.parametrize(
    "more",
    [{"messages_s": 1e6}, {"groups": 4}, {"body_bytes": 100_000}, {"clients": 100_000}],
)
def test_more_of_anything_never_needs_less(more: dict[str, float]) -> None:
    least, most = sizing(COSTS, LOAD), sizing(COSTS, replace(LOAD, **more))  # type: ignore[arg-type]
    assert most.proxies >= least.proxies
    assert most.brokers >= least.brokers
    assert (most.proxies, most.brokers) != (least.proxies, least.brokers)


def test_requests_cost_the_brokers_their_counted_share() -> None:
    """Checked for each kind: a broker's use grows with the cost of its request."""
    load = replace(LOAD, groups=3)
    for proxies, brokers, queues in ((4, 2, 32), (40, 20, 320), (3, 50, 50)):
        asked = requests_s(load, proxies, brokers, queues)
        counts = {
            "heartbeat_us": asked.heartbeats / brokers,
            "lock_us": asked.renewals / brokers,
            "list_us": asked.lists,  # all at one broker
        }
        assert asked.total == asked.heartbeats + asked.renewals + asked.lists
        base = broker_use(COSTS, load, proxies, brokers, queues)
        for name, count in counts.items():
            dearer = {**COSTS, name: COSTS[name] + 1e6}
            more = broker_use(dearer, load, proxies, brokers, queues) - base
            assert more == pytest.approx(count), name


def test_a_proxy_renews_at_each_broker_where_it_owns_queues() -> None:
    few = requests_s(LOAD, proxies=4, brokers=2, queues=32)
    assert few.renewals == 4 * 2 / 2.0
    assert requests_s(LOAD, proxies=3, brokers=50, queues=50).renewals == 50 / 2.0
    assert sizing(COSTS, LOAD).requests_s > 0


def test_each_copy_is_written_by_a_broker() -> None:
    one, two = replace(LOAD, copies=1), replace(LOAD, copies=2)
    assert disk_use(two, 4, Machine()) == 2 * disk_use(one, 4, Machine())


def test_the_document_shows_a_cluster_for_each_load() -> None:
    lines = scale_document.sizings(COSTS).split("\n")
    assert lines[0] == f"|  | {' | '.join(scale_document.LOADS)} |"
    assert any(line.startswith("| first limit") for line in lines)
