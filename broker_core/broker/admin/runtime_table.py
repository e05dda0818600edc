"""A broker's figures under the names that RocketMQ's tools expect. Pure.

Figures that this broker does not have are omitted; tools show them as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker_core.broker.traffic import MINUTE_MS, TEN_MINUTES_MS, Today
from broker_core.remoting.admin_bodies import Pace
from broker_core.remoting.command import VERSION

#: Time spans of the three figures of a rate, as in RocketMQ.
RATE_SPANS_MS = (10_000, MINUTE_MS, TEN_MINUTES_MS)

#: RocketMQ's thread pools, which its tools show. This broker has no queues for threads.
_POOLS = ("send", "pull")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Figures of a broker now. Times in ms since 1970, disk in bytes, without root's reserve.

    ``locks_since_ms``: when its table of orderly locks was begun. ``retention``: figures of the
    retention, by name.
    """

    boot_ms: int
    locks_since_ms: int
    retention: Mapping[str, int]
    now_ms: int
    log_range: tuple[int, int]
    earliest_ms: int | None
    disk_total: int
    disk_used: int
    disk_free: int
    put: Today
    given: Today
    put_paces: tuple[Pace, ...]
    given_paces: tuple[Pace, ...]


def runtime_table(facts: Facts) -> dict[str, str]:
    """Return names and values."""
    begin, end = facts.log_range
    used = facts.disk_used / max(1, facts.disk_used + facts.disk_free)
    put, given = _rates(facts.put_paces), _rates(facts.given_paces)
    table = {
        "bootTimestamp": str(facts.boot_ms),
        "brokerActive": "true",
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": "orderlane",
        "commitLogDirCapacity": (
            f"Total : {_size(facts.disk_total)}, Free : {_size(facts.disk_free)}."
        ),
        "commitLogDiskRatio": f"{used:.4f}",
        "commitLogMaxOffset": str(end),
        "commitLogMinOffset": str(begin),
        # Not in RocketMQ, as the next ones; its brokers forget locks in a restart.
        "lockTableTimestamp": str(facts.locks_since_ms),
        **{name: str(value) for name, value in facts.retention.items()},
        "getTransferedTps": given,  # misspelt name of 4.9
        "getTransferredTps": given,
        "pageCacheLockTimeMills": "0",
        "putMessageTimesTotal": str(facts.put.now),
        "putTps": put,
        "runtime": _span(facts.now_ms - facts.boot_ms),
    }
    if facts.earliest_ms is not None:
        table["earliestMessageTimeStamp"] = str(facts.earliest_ms)
    for name, today in (("msgPut", facts.put), ("msgGet", facts.given)):
        table[f"{name}TotalTodayNow"] = str(today.now)
        table[f"{name}TotalTodayMorning"] = str(today.this_morning)
        table[f"{name}TotalYesterdayMorning"] = str(today.yesterday_morning)
    for pool in _POOLS:
        table[f"{pool}ThreadPoolQueueSize"] = "0"
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return table


def _rates(paces: tuple[Pace, ...]) -> str:
    return " ".join(f"{pace.rate:.2f}" for pace in paces)


def _span(took_ms: int) -> str:
    minutes, seconds = divmod(max(0, took_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.1f} {units[0]}"
