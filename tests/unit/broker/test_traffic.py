"""Counts of a broker's incoming and outgoing messages, over virtual time."""

from __future__ import annotations

from broker_core.broker.admin.runtime_table import Facts, runtime_table
from broker_core.broker.traffic import DAY_MS, HOUR_MS, MINUTE_MS, Sample, Tally, Traffic
from broker_core.names import Group, Topic
from broker_core.remoting.admin_bodies import Pace

ORDERS, OTHERS, BILLING = Topic("orders"), Topic("others"), Group("billing")
_TEN_S = 10_000


def made(**put: int) -> Traffic:
    return Traffic({Topic(name): count for name, count in put.items()}, now_ms=0, day=1)


def test_rates_are_those_of_the_span_that_is_asked_for() -> None:
    traffic = made(orders=500)
    for second in range(10, 3610, 10):  # an hour of 1 per second, its last minute of 10 per second
        put = 500 + second + 9 * max(0, second - 3540)
        traffic.sample({ORDERS: put}, now_ms=second * 1000, day=1)
    now = {"put": 500 + 3600 + 540, "now_ms": 3_600_000}
    assert traffic.put_pace(ORDERS, span_ms=MINUTE_MS, **now) == Pace(600, 10.0)
    hour = traffic.put_pace(ORDERS, span_ms=HOUR_MS, **now)
    assert (hour.messages, round(hour.rate, 2)) == (4140, 1.15)
    assert traffic.put_today({ORDERS: 4640}).now == 4140
    assert traffic.all_put({ORDERS: 4640}, MINUTE_MS, now_ms=3_600_000).rate == 10.0


def test_what_a_group_gets_is_counted_and_forgotten_with_it() -> None:
    traffic = made(orders=0)
    traffic.pulled(BILLING, ORDERS, 3, offset=17)
    traffic.gave(BILLING, ORDERS, 30)
    pace = traffic.given_pace(BILLING, ORDERS, MINUTE_MS, now_ms=_TEN_S)
    assert pace == Pace(30, 3.0)
    assert traffic.pull_offset(BILLING, ORDERS, 3) == 17
    traffic.sample({ORDERS: 0}, now_ms=_TEN_S, day=1)
    traffic.forget({BILLING})
    assert not traffic.knows(BILLING, ORDERS)
    assert traffic.pull_offset(BILLING, ORDERS, 3) == 0
    traffic.sample({ORDERS: 0}, now_ms=2 * _TEN_S, day=1)
    assert traffic.given_pace(BILLING, ORDERS, MINUTE_MS, now_ms=2 * _TEN_S).messages == 0
    assert traffic.given_today().now == 30


def test_a_topic_created_again_counts_from_0() -> None:
    traffic = made(orders=100)
    traffic.sample({ORDERS: 110}, now_ms=_TEN_S, day=1)
    traffic.sample({ORDERS: 5}, now_ms=2 * _TEN_S, day=1)
    assert traffic.put_today({ORDERS: 5}).now == 15
    assert traffic.put_pace(ORDERS, 5, MINUTE_MS, now_ms=2 * _TEN_S).messages == 0
    traffic.sample({ORDERS: 7}, now_ms=3 * _TEN_S, day=1)
    assert traffic.put_pace(ORDERS, 7, MINUTE_MS, now_ms=3 * _TEN_S).messages == 2


def test_what_stands_still_for_a_day_costs_nothing() -> None:
    tally = Tally({ORDERS: 0, OTHERS: 0}, now_ms=0)
    tally.sample({ORDERS: 1, OTHERS: 1}, now_ms=_TEN_S)
    assert len(tally) == 2
    for minute in range(1, 25 * 60):
        tally.sample({ORDERS: 1, OTHERS: minute}, now_ms=minute * MINUTE_MS)
    assert len(tally) == 1
    assert tally.over(ORDERS, DAY_MS, Sample(25 * HOUR_MS, 1)).messages == 0
    assert tally.over(OTHERS, DAY_MS, Sample(25 * HOUR_MS, 1499)).messages > 1400


def test_midnight_is_remembered_twice() -> None:
    traffic = made(orders=0)
    for day, put in ((1, 10), (2, 30), (3, 60)):
        traffic.gave(BILLING, ORDERS, 1)
        traffic.sample({ORDERS: put}, now_ms=day * DAY_MS, day=day)
    assert traffic.put_today({ORDERS: 65}) == (65, 60, 30)
    assert traffic.given_today() == (3, 3, 2)


def test_the_table_holds_what_the_tools_compute_with() -> None:
    paces = (Pace(1, 0.5), Pace(2, 1.25), Pace(3, 2.0))
    traffic = made()
    facts = Facts(
        boot_ms=1000,
        locks_since_ms=500,
        retention={"retentionUnreadDeleted": 3},
        now_ms=1000 + DAY_MS + HOUR_MS + 61_000,
        log_range=(5, 50),
        earliest_ms=None,
        disk_total=3 << 40,
        disk_used=1 << 40,
        disk_free=1 << 40,
        put=traffic.put_today({}),
        given=traffic.given_today(),
        put_paces=paces,
        given_paces=paces,
    )
    table = runtime_table(facts)
    assert table["putTps"] == table["getTransferedTps"] == "0.50 1.25 2.00"
    assert (table["lockTableTimestamp"], table["retentionUnreadDeleted"]) == ("500", "3")
    assert table["commitLogDiskRatio"] == "0.5000"
    assert table["commitLogDirCapacity"] == "Total : 3.0 TiB, Free : 1.0 TiB."
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("5", "50")
    assert "earliestMessageTimeStamp" not in table  # nothing is stored
