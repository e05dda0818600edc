"""What a simulation is given: its size, the settings of proxies and brokers, what things cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.simulation.events import MS, SECOND
from proxy.settings.proxy_settings import LockSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Processor time of a broker or proxy for one thing, ns, and what a disk takes; a broker does
    one thing at a time. What has a default is assumed, all else is measured: ``measured_costs``.
    """

    heartbeat_ns: int
    list_ns: int  # of one member
    listed_member_ns: int
    lock_ns: int  # of one queue
    locked_queue_ns: int
    record_ns: int  # alone; those that are stored together cost less
    request_ns: int  # any other: as to be told where a queue ends
    take_over_ns: int  # of a queue, at the proxy
    notice_ns: int = 10_000
    look_ns: int = 300_000  # a proxy's look, without the requests
    disk_ns: int = 3 * MS


def measured_costs(coefficients: Mapping[str, float]) -> Costs:
    """By what ``bench.coefficients`` found, its names and µs. Raises KeyError."""

    def ns(name: str) -> int:
        return max(0, round(coefficients[name] * 1000))  # a slope may come out below nothing

    return Costs(
        heartbeat_ns=ns("heartbeat_us"),
        list_ns=ns("list_us"),
        listed_member_ns=ns("listed_member_us"),
        lock_ns=ns("lock_us"),
        locked_queue_ns=ns("locked_queue_us"),
        record_ns=ns("record_us"),
        request_ns=ns("look_us"),
        take_over_ns=ns("take_over_proxy_us"),
    )


@dataclass(frozen=True, slots=True)
class Model:
    """*work_s*: what clients have in hand when a queue is handed over takes up to that long."""

    costs: Costs
    proxies: int = 1000
    queues: int = 100_000
    brokers: int = 100
    seed: int = 7
    lock: LockSettings = field(default_factory=LockSettings)
    lease_ms: int = 5000
    work_s: float = 0.5
    cold_start_s: float = 10.0  # processes come up within that time
    route_refresh_ns: int = 30 * SECOND
    missed_refresh_ns: int = 2 * SECOND  # while a broker is missing in it
    rest_s: float = 8.0  # a scenario is over once nothing moved for so long
